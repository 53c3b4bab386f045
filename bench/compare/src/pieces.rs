//! The pieces of a run's measured time, which resampling draws.

use serval_result::{
    document::{IntervalMetric, IntervalSummary},
    metric::is_beside,
};
use serval_statistics::series::block_length;
use std::collections::{BTreeMap, BTreeSet};

/// Pieces of a run at most. Longer runs have several intervals in a piece: two hundred
/// tell what hangs together as well as thousands do, in bounded memory.
const PIECES_MAX: usize = 240;

/// Metrics that are no operations of the workload on the store's data.
pub(crate) const LEFT_OUT: [&str; 2] = ["CLEANUP", "VERIFY"];

/// What is known of the pieces without the histogram log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces {
    /// The piece of an interval, by its start in ms since the run's.
    by_start: BTreeMap<u64, usize>,
    /// Seconds.
    length: Vec<f64>,
    /// Operations that ended.
    ended: Vec<f64>,
    /// Operations that failed.
    failed: Vec<f64>,
    /// Length of blocks, pieces.
    pub(crate) block: usize,
}

/// Intervals by piece. A run mostly ends within an interval, and measuring mostly begins within one,
/// after the warm-up. A first or last piece of less than half the longest one joins its neighbour.
/// Drawn alone, its few operations would count as the rate of a whole resample: an interval of ±50 %
/// for a run of a second and a bit.
fn chunks<'a, 'i>(measured: &'a [&'i IntervalSummary]) -> Vec<&'a [&'i IntervalSummary]> {
    let together = measured.len().div_ceil(PIECES_MAX).max(1);
    let length = |chunk: &[&IntervalSummary]| chunk.iter().map(|interval| interval.length_s).sum::<f64>();
    let mut chunks: Vec<_> = measured.chunks(together).collect();
    let longest = chunks.iter().map(|chunk| length(chunk)).fold(0.0, f64::max);
    let is_short = |chunk: &[&IntervalSummary]| length(chunk) < longest / 2.0;
    if let [.., before, last] = chunks[..]
        && is_short(last)
    {
        chunks.truncate(chunks.len() - 2);
        chunks.push(&measured[measured.len() - before.len() - last.len()..]);
    }
    if let [first, second, ..] = chunks[..]
        && is_short(first)
    {
        chunks.splice(..2, [&measured[..first.len() + second.len()]]);
    }
    chunks
}

/// The start of an interval as a histogram log has it.
pub(crate) fn start_ms(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e3).round() as u64
}

impl Pieces {
    /// The pieces of a series, warm-up left out.
    pub(crate) fn of(series: &[IntervalSummary]) -> Pieces {
        let measured: Vec<&IntervalSummary> =
            series.iter().filter(|interval| !interval.warm_up && interval.length_s > 0.0).collect();
        let chunks = chunks(&measured);
        let number = chunks.len();
        let mut pieces = Pieces {
            length: vec![0.0; number],
            ended: vec![0.0; number],
            failed: vec![0.0; number],
            ..Pieces::default()
        };
        let names: BTreeSet<&str> = measured
            .iter()
            .flat_map(|interval| interval.metrics.keys().map(String::as_str))
            .filter(|name| !LEFT_OUT.contains(name))
            .collect();
        let by_piece = chunks.iter().enumerate();
        for (piece, interval) in by_piece.flat_map(|(piece, chunk)| chunk.iter().map(move |i| (piece, i))) {
            pieces.by_start.insert(start_ms(interval.start_s), piece);
            pieces.length[piece] += interval.length_s;
            let operations = names.iter().filter(|name| !is_beside(name));
            for metric in operations.filter_map(|name| interval.metrics.get(*name)) {
                pieces.ended[piece] += metric.ok as f64 + metric.failed as f64;
                pieces.failed[piece] += metric.failed as f64;
            }
        }
        // The longest that any series of the run asks for serves all.
        let rates: Vec<f64> = pieces.ended.iter().zip(&pieces.length).map(|(n, s)| n / s).collect();
        let mut longest = block_length(&rates);
        for name in names {
            let means: Vec<f64> = chunks
                .iter()
                .filter_map(|piece| mean(piece.iter().filter_map(|i| i.metrics.get(name))))
                .collect();
            longest = longest.max(block_length(&means));
        }
        pieces.block = longest.ceil() as usize;
        pieces
    }

    /// How many.
    pub(crate) fn number(&self) -> usize {
        self.length.len()
    }

    /// The piece of an interval that began at this time, if it was measured.
    pub(crate) fn at(&self, start_ms: u64) -> Option<usize> {
        self.by_start.get(&start_ms).copied()
    }

    /// Operations/s where pieces are there `weights` times.
    pub(crate) fn rate(&self, weights: &[u32]) -> f64 {
        weighted(&self.ended, weights) / weighted(&self.length, weights)
    }

    /// The share that failed.
    pub(crate) fn failed_share(&self, weights: &[u32]) -> f64 {
        weighted(&self.failed, weights) / weighted(&self.ended, weights)
    }
}

/// Σ wᵢ xᵢ.
pub(crate) fn weighted(values: &[f64], weights: &[u32]) -> f64 {
    values.iter().zip(weights).map(|(value, weight)| value * f64::from(*weight)).sum()
}

/// The mean response time of intervals taken together.
fn mean<'a>(intervals: impl Iterator<Item = &'a IntervalMetric>) -> Option<f64> {
    let (sum, count) = intervals.fold((0.0, 0.0), |(sum, count), interval| {
        let ok = interval.ok as f64;
        (sum + ok * interval.response.mean_ns, count + ok)
    });
    (count > 0.0).then_some(sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_result::document::IntervalTimes;

    #[test]
    fn only_operations_of_the_workload_count_as_ended() {
        let times = IntervalTimes::default();
        let metric = |ok, failed| IntervalMetric {
            ok,
            failed,
            response: times,
            service: times,
            levels: String::new(),
        };
        let metrics = [
            ("READ", metric(9, 1)),
            ("DRIVER-HOP", metric(10, 0)),
            ("FLUSH", metric(3, 3)),
            ("SCAN-LATENCY-PER-RECORD", metric(5, 0)),
            ("VERIFY", metric(7, 7)),
        ];
        let metrics = metrics.map(|(name, metric)| (name.to_owned(), metric)).into();
        let interval = IntervalSummary { start_s: 0.0, length_s: 2.0, warm_up: false, metrics, pacing: None };
        let pieces = Pieces::of(&[interval]);
        assert_eq!((pieces.rate(&[1]), pieces.failed_share(&[1])), (5.0, 0.1));
    }

    #[test]
    fn a_short_last_interval_joins_the_piece_before_it() {
        let interval = |start_s: f64, length_s: f64, ok| {
            let times = IntervalTimes::default();
            let metric =
                IntervalMetric { ok, failed: 0, response: times, service: times, levels: String::new() };
            let metrics = [("READ".to_owned(), metric)].into();
            IntervalSummary { start_s, length_s, warm_up: false, metrics, pacing: None }
        };
        // 1,000 operations/s, but the last 20 ms had a stall: alone they would be 100/s.
        let ends_early = [interval(0.0, 1.0, 1_000), interval(1.0, 1.0, 1_000), interval(2.0, 0.02, 2)];
        let pieces = Pieces::of(&ends_early);
        assert_eq!(pieces.number(), 2);
        assert_eq!(pieces.at(2_000), Some(1));
        assert!((pieces.rate(&[0, 2]) - 1_002.0 / 1.02).abs() < 1e-9);
        let ends_late = [interval(0.0, 1.0, 1_000), interval(1.0, 0.6, 600)];
        assert_eq!(Pieces::of(&ends_late).number(), 2);
        let short = [interval(0.0, 1.0, 1_000), interval(1.0, 0.1, 10)];
        assert_eq!(Pieces::of(&short).number(), 1);
        // The warm-up ended 20 ms before an interval did.
        let begins_late = [interval(0.98, 0.02, 2), interval(1.0, 1.0, 1_000), interval(2.0, 1.0, 1_000)];
        let pieces = Pieces::of(&begins_late);
        assert_eq!((pieces.number(), pieces.at(980), pieces.at(1_000)), (2, Some(0), Some(0)));
        let both = [interval(0.9, 0.1, 10), interval(1.0, 1.0, 1_000), interval(2.0, 0.1, 10)];
        assert_eq!(Pieces::of(&both).number(), 1);
        assert_eq!(Pieces::of(&[interval(0.0, 0.1, 10)]).number(), 1);
        assert_eq!(Pieces::of(&[]).number(), 0);
    }
}
