//! Lengths from a histogram file, drawn as in YCSB or exactly.
//!
//! The file has a line `BlockSize\tN`, then a line `bucket\tcount` for each of
//! the buckets 0, 1, 2, ... in order. (YCSB inserts each line at the position
//! that it names, so any other order fails or shifts the following buckets.)
//!
//! Law of YCSB's `HistogramGenerator`: the counts of the buckets are
//! subtracted in turn from a uniform number below the total count. The first
//! bucket b, except the last, at which the rest is 0 or below gives the length
//! (b+1) x BlockSize. If there is none, the last bucket L gives L x BlockSize.
//! So each boundary counts one draw too many for the lower bucket, bucket 0 is
//! drawn even if its count is 0, and the last bucket yields the lengths of the
//! one before it.
//!
//! Exact law: bucket b has probability count(b)/total and gives the length
//! (b+1) x BlockSize.
//!
//! Example: BlockSize 10, counts 5, 0, 3, 2. In YCSB the numbers 0 to 5 give
//! 10, 6 to 8 give 30, and 9 gives 30. Exact are 10, 30, 40 with 0.5, 0.3, 0.2.

use crate::random::Random;
use std::{fmt, sync::Arc};

/// Most buckets: lengths up to 1 MiB in steps of one byte, in 8 MiB of memory.
pub const MAX_BUCKETS: usize = 1 << 20;

/// Largest file, bytes: [`MAX_BUCKETS`] lines with the longest numbers.
pub const MAX_FILE_BYTES: usize = 32 << 20;

/// Largest block size: YCSB's, a Java `int`. Lengths then stay below 2^51.
pub const MAX_BLOCK_SIZE: u64 = i32::MAX as u64;

/// Most faults reported: a file that is not a histogram would have one per line.
const MAX_FAULTS: usize = 10;

/// A fault in a histogram file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct HistogramFault {
    /// Line number, from 1; one past the last line if something is missing.
    pub line: usize,
    /// The fault and the expected content.
    pub problem: String,
}

/// The faults of a histogram file: all of them, or the first ten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramError(pub Vec<HistogramFault>);

impl std::error::Error for HistogramError {}

impl fmt::Display for HistogramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// A histogram of lengths. Clones share the counts.
#[derive(Debug, Clone, PartialEq)]
pub struct LengthHistogram {
    block_size: u64,
    /// Cumulative counts of the buckets; not empty, and the last is above 0.
    cumulative: Arc<[u64]>,
    /// Sum of bucket number times count.
    weighted: f64,
}

impl LengthHistogram {
    /// Parses a file. Lines may end in `\r\n`. Ignores blank lines at the end.
    pub fn parse(file: &[u8]) -> Result<Self, HistogramError> {
        let fault = |line, problem: String| HistogramFault { line, problem };
        if file.len() > MAX_FILE_BYTES {
            let problem = format!("the file has {} bytes: at most {MAX_FILE_BYTES} are read", file.len());
            return Err(HistogramError(vec![fault(1, problem)]));
        }
        let text = String::from_utf8_lossy(file);
        let mut lines = text.trim_end().lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut faults = Vec::new();
        let mut block_size = 0;
        match lines.next().map(|(_, line)| block(line)) {
            None => {
                faults.push(fault(1, "the file is empty: 'BlockSize', a tab and a number come first".into()))
            }
            Some(Err(problem)) => faults.push(fault(1, problem)),
            Some(Ok(size)) => block_size = size,
        }
        let mut counts = Vec::new();
        for (line, text) in lines {
            if faults.len() == MAX_FAULTS {
                break;
            }
            match bucket(text, counts.len()) {
                Ok(count) => counts.push(count),
                Err(problem) => {
                    faults.push(fault(line, problem));
                    // Fills the place of a missing bucket, so that the next line is not
                    // reported as well.
                    counts.push(0);
                }
            }
        }
        if !faults.is_empty() {
            return Err(HistogramError(faults));
        }
        let behind = counts.len() + 2;
        LengthHistogram::new(block_size, &counts)
            .map_err(|problem| HistogramError(vec![fault(behind, problem)]))
    }

    /// Returns the histogram with these `counts` of buckets of `block_size`.
    fn new(block_size: u64, counts: &[u64]) -> Result<Self, String> {
        let mut total = 0u64;
        let mut weighted = 0u128;
        let mut cumulative = Vec::with_capacity(counts.len());
        for (bucket, &count) in counts.iter().enumerate() {
            total = total.checked_add(count).ok_or("the counts add up to more than 64 bits hold")?;
            weighted += bucket as u128 * u128::from(count);
            cumulative.push(total);
        }
        if total == 0 {
            return Err(
                "no bucket has a count above 0: lines of a bucket, a tab and a count must follow".into()
            );
        }
        Ok(LengthHistogram { block_size, cumulative: cumulative.into(), weighted: weighted as f64 })
    }

    fn total(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(0)
    }

    /// Draws a length as YCSB does. O(log of the number of buckets).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        let number = rng.below(self.total());
        let last = self.cumulative.len() - 1;
        let bucket = self.cumulative[..last].partition_point(|&upto| upto < number);
        (if bucket < last { bucket + 1 } else { last }) as u64 * self.block_size
    }

    /// Draws a length by the exact law. O(log of the number of buckets).
    #[inline]
    pub fn draw_exact<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        let number = rng.below(self.total());
        let bucket = self.cumulative.partition_point(|&upto| upto <= number);
        (bucket + 1) as u64 * self.block_size
    }

    /// Returns YCSB's mean, which belongs to neither law: it uses the length
    /// b x BlockSize for bucket b.
    pub fn mean(&self) -> f64 {
        self.block_size as f64 * self.weighted / self.total() as f64
    }

    /// Returns the mean of [`LengthHistogram::draw_exact`].
    pub fn mean_exact(&self) -> f64 {
        self.mean() + self.block_size as f64
    }
}

fn block(line: &str) -> Result<u64, String> {
    let expected = format!("'BlockSize', a tab and a number from 1 to {MAX_BLOCK_SIZE}");
    match line.split('\t').map(str::trim).collect::<Vec<_>>().as_slice() {
        ["BlockSize", size, ..] => match size.parse() {
            Ok(size) if (1..=MAX_BLOCK_SIZE).contains(&size) => Ok(size),
            _ => Err(format!("the block size is '{}': the line must be {expected}", shortened(size))),
        },
        _ => Err(format!("'{}' is not {expected}", shortened(line))),
    }
}

fn bucket(line: &str, next: usize) -> Result<u64, String> {
    let mut columns = line.split('\t').map(str::trim);
    let (number, count) = (columns.next().unwrap_or(""), columns.next());
    let Some(count) = count else {
        return Err(format!("'{}' is not a bucket, a tab and a count", shortened(line)));
    };
    if number.parse() != Ok(next) {
        return Err(format!(
            "the bucket is '{}' where {next} must come: YCSB takes the buckets in order from 0, none left out",
            shortened(number)
        ));
    }
    if next >= MAX_BUCKETS {
        return Err(format!("bucket {next} is one too many: {MAX_BUCKETS} are possible"));
    }
    count.parse().map_err(|_| format!("the count is '{}': it must be a number, 0 or above", shortened(count)))
}

/// Returns the part of a text that an error quotes.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}
