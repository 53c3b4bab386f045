//! HdrHistogram interval logs (format version 1.3), for HdrHistogram's own tools,
//! HistogramLogAnalyzer and others.
//!
//! Each interval and tag has one line: tag, start in seconds since the start of the log, length in
//! seconds, maximum, and the compressed histogram.

use crate::histogram::Histogram;
use std::{
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Writes an interval log.
#[derive(Debug)]
pub struct HdrLog<W> {
    out: W,
    unit_ns: u64,
}

/// Unit of the maxima: with values in nanoseconds, HdrHistogram's tools assume milliseconds.
const MAX_UNIT: f64 = 1e6;

impl<W: Write> HdrLog<W> {
    /// Begins a log of values in units of `unit_ns` nanoseconds: 1, or 1000 as in YCSB's logs.
    pub fn new(mut out: W, start: SystemTime, comment: &str, unit_ns: u64) -> io::Result<Self> {
        let since_epoch = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(out, "#[{comment}]")?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {:.3} (seconds since epoch)]", since_epoch.as_secs_f64())?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(HdrLog { out, unit_ns })
    }

    /// Writes one interval of one tag. `start` is the time since the start of the log.
    pub fn interval(
        &mut self,
        tag: Option<&str>,
        start: Duration,
        length: Duration,
        histogram: &Histogram,
    ) -> io::Result<()> {
        if let Some(tag) = tag {
            // Commas and white space separate fields and lines.
            let tag: String =
                tag.chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect();
            write!(self.out, "Tag={tag},")?;
        }
        let max = (histogram.max() / self.unit_ns) as f64 / MAX_UNIT;
        let encoded = histogram.encode_in(self.unit_ns);
        writeln!(self.out, "{:.3},{:.3},{max:.3},{encoded}", start.as_secs_f64(), length.as_secs_f64())
    }

    /// Flushes and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn the_reference_reader_accepts_the_log() {
        let mut histogram = Histogram::new();
        [1_500, 2_500_000, 2_500_000].iter().for_each(|&v| histogram.record(v));
        let start = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let mut log = HdrLog::new(Vec::new(), start, "test", 1).unwrap();
        log.interval(Some("READ, all"), Duration::from_secs(1), Duration::from_millis(1001), &histogram)
            .unwrap();
        log.interval(None, Duration::from_secs(2), Duration::from_secs(1), &Histogram::new()).unwrap();
        let bytes = log.finish().unwrap();
        let entries: Vec<_> = IntervalLogIterator::new(&bytes).map(|e| e.unwrap()).collect();
        assert!(matches!(&entries[0], LogEntry::StartTime(t) if t.as_millis() == 1_700_000_000_250));
        let LogEntry::Interval(first) = &entries[1] else { panic!("{entries:?}") };
        assert_eq!(first.tag().unwrap().as_str(), "READ__all");
        assert_eq!(first.duration(), Duration::from_millis(1001));
        let read = Histogram::decode(first.encoded_histogram()).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), histogram.iter().collect::<Vec<_>>());
        assert_eq!(entries.len(), 3);
    }
}
