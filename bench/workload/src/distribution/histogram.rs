//! Lengths from a histogram file, YCSB's way and the right way.
//!
//! The file has a line `BlockSize\tN`, then a line `bucket\tcount` for every
//! bucket 0, 1, 2, ... in order (YCSB inserts each line at the position it
//! names, so anything else fails or shifts the buckets behind it).
//!
//! Law, YCSB's `HistogramGenerator`: a number uniform below the total count
//! is lessened by the buckets' counts in turn. The first bucket b but the
//! last that brings it to 0 or below gives the length (b+1) x BlockSize; if
//! none does, the last bucket L gives L x BlockSize. So every boundary counts
//! one draw too many for the lower bucket, bucket 0 is drawn even when its
//! count is 0, and the last bucket's lengths are those of the one before.
//!
//! Law, exact: bucket b has probability count(b)/total and gives the length
//! (b+1) x BlockSize.
//!
//! Example: BlockSize 10, counts 5, 0, 3, 2. The numbers 0 to 5 give 10, 6
//! to 8 give 30, 9 gives 30 again; exact are 10, 30, 40 with 0.5, 0.3, 0.2.

use crate::random::Random;
use std::{fmt, sync::Arc};

/// The largest number of buckets: lengths up to 1 MiB octet by octet, for
/// 8 MiB of memory.
pub const MAX_BUCKETS: usize = 1 << 20;

/// The largest file: that many buckets with lines of the longest numbers.
pub const MAX_FILE_BYTES: usize = 32 << 20;

/// The largest block size: that of YCSB, a Java `int`. No length can pass
/// 2^51 then.
pub const MAX_BLOCK_SIZE: u64 = i32::MAX as u64;

/// Faults that are reported before reading stops: a file that is no
/// histogram would have one a line.
const MAX_FAULTS: usize = 10;

/// A fault in a histogram file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct HistogramFault {
    /// Line number, from 1; the line behind the last one when something is
    /// missing.
    pub line: usize,
    /// What is wrong and what should be there.
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
    /// Of each bucket, the count of it and all before; not empty, and the
    /// last is above 0.
    cumulative: Arc<[u64]>,
    /// The sum of bucket number times count.
    weighted: f64,
}

impl LengthHistogram {
    /// Reads a file. Lines may end in `\r\n`, and blank lines at the end are
    /// ignored.
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
                    // Takes the number of the bucket that is missing, so that
                    // the next line is not a fault as well.
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

    /// From the `counts` of the buckets, the first of which ends at
    /// `block_size`.
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

    /// A length as YCSB draws it. O(log of the number of buckets).
    #[inline]
    pub fn draw<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        let number = rng.below(self.total());
        let last = self.cumulative.len() - 1;
        let bucket = self.cumulative[..last].partition_point(|&upto| upto < number);
        (if bucket < last { bucket + 1 } else { last }) as u64 * self.block_size
    }

    /// A length as the histogram says. O(log of the number of buckets).
    #[inline]
    pub fn draw_exact<R: Random + ?Sized>(&self, rng: &mut R) -> u64 {
        let number = rng.below(self.total());
        let bucket = self.cumulative.partition_point(|&upto| upto <= number);
        (bucket + 1) as u64 * self.block_size
    }

    /// YCSB's mean, which is that of neither law: it takes bucket b for the
    /// length b x BlockSize.
    pub fn mean(&self) -> f64 {
        self.block_size as f64 * self.weighted / self.total() as f64
    }

    /// The mean of [`LengthHistogram::draw_exact`].
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

/// As much of a text as an error should quote.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}
