//! Histograms: one that a single writer fills while other threads read it, and one to merge,
//! subtract and take percentiles of.

use crate::layout::{self, CELLS, SIGNIFICANT_DIGITS, VALUE_MAX};
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// State that the writer and the readers of a histogram share.
///
/// Memory: 264 KiB of address space, only touched pages of it are resident.
#[derive(Debug)]
struct LiveCounts {
    cells: Box<[AtomicU64]>,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

/// The only writer of a histogram that other threads read at any moment.
///
/// A recording is a handful of plain loads and stores on memory that only the writer's thread
/// changes: no lock, no atomic read-modify-write. That is right for one writer only. So there is
/// one for each histogram, it cannot be cloned, and threads cannot share it:
///
/// ```compile_fail,E0277
/// let writer = serval_measure::histogram::HistogramWriter::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| writer.record(1));
///     scope.spawn(|| writer.record(2));
/// });
/// ```
///
/// ```compile_fail,E0599
/// let writer = serval_measure::histogram::HistogramWriter::new();
/// let other = writer.clone();
/// ```
#[derive(Debug)]
pub struct HistogramWriter {
    counts: Arc<LiveCounts>,
    /// Not `Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

/// Reads what a [`HistogramWriter`] has recorded.
///
/// Sees every recording that happened before some instant close to its own, and none twice.
/// Nothing is lost at the boundaries of intervals, because counts only grow and intervals are
/// differences.
///
/// It cannot record:
///
/// ```compile_fail,E0599
/// let writer = serval_measure::histogram::HistogramWriter::new();
/// writer.reader().record(1);
/// ```
#[derive(Debug, Clone)]
pub struct HistogramReader {
    counts: Arc<LiveCounts>,
}

impl Default for HistogramWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl HistogramWriter {
    /// The writer of a new, empty histogram.
    pub fn new() -> Self {
        let counts = LiveCounts {
            // Zeroed by the operating system, page by page, when first touched.
            cells: bytemuck::zeroed_slice_box(CELLS),
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        };
        HistogramWriter { counts: Arc::new(counts), _one_thread: PhantomData }
    }

    /// Returns a reader of the histogram.
    pub fn reader(&self) -> HistogramReader {
        HistogramReader { counts: Arc::clone(&self.counts) }
    }

    /// Counts a time in nanoseconds.
    #[inline]
    pub fn record(&self, ns: u64) {
        let LiveCounts { cells, sum, min, max } = &*self.counts;
        let bump = |cell: &AtomicU64, by: u64| cell.store(cell.load(Relaxed).wrapping_add(by), Relaxed);
        // Bounds first: a reader scans cells between them.
        if ns < min.load(Relaxed) {
            min.store(ns, Relaxed);
        }
        if ns > max.load(Relaxed) {
            max.store(ns, Relaxed);
        }
        bump(&cells[layout::index_of(ns)], 1);
        bump(sum, ns);
    }
}

impl HistogramReader {
    /// Returns the sum of all times so far, ns, which wraps.
    pub(crate) fn sum(&self) -> u64 {
        self.counts.sum.load(Relaxed)
    }

    /// Adds what has been counted so far to `total`.
    pub fn add_to(&self, total: &mut Histogram) {
        let live = &*self.counts;
        let (min, max) = (live.min.load(Relaxed), live.max.load(Relaxed));
        if min > max {
            return;
        }
        total.ensure_cells();
        let cells = layout::index_of(min)..=layout::index_of(max);
        for (cell, sum) in live.cells[cells.clone()].iter().zip(&mut total.cells[cells]) {
            let count = cell.load(Relaxed);
            *sum += count;
            total.count += count;
        }
        total.sum += u128::from(live.sum.load(Relaxed));
        total.min = total.min.min(min);
        total.max = total.max.max(max);
    }
}

/// A histogram that supports merging, subtraction and percentiles.
///
/// Percentiles of several clients come from merged histograms and are never averaged. Minimum,
/// maximum and mean are exact after recording and merging; after a subtraction or decoding they
/// are those of the cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Empty until the first time is counted.
    cells: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { cells: Vec::new(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// A histogram as processes send it to each other: exact, unlike the encodings for other tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct SparseHistogram {
    /// For each cell that is not empty, its distance from the previous one and its count.
    steps: Vec<(u32, u64)>,
    sum_high: u64,
    sum_low: u64,
    min: u64,
    max: u64,
}

/// Error for an encoded histogram that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an HdrHistogram in V2 compressed form, base64: {0}")]
pub struct DecodeError(String);

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    fn ensure_cells(&mut self) {
        if self.cells.is_empty() {
            self.cells = vec![0; CELLS];
        }
    }

    /// Counts a time in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Counts a time `n` times.
    pub fn record_n(&mut self, ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.ensure_cells();
        self.cells[layout::index_of(ns)] += n;
        self.count += n;
        self.sum += u128::from(ns) * u128::from(n);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.ensure_cells();
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns what was counted since `earlier`, a former state of this histogram. Minimum and
    /// maximum are those of the cells.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut cells = self.cells.clone();
        for (mine, theirs) in cells.iter_mut().zip(&earlier.cells) {
            *mine = mine.saturating_sub(*theirs);
        }
        let count = cells.iter().sum();
        let min = cells.iter().position(|&c| c > 0).map_or(u64::MAX, layout::lowest_of);
        let max = cells.iter().rposition(|&c| c > 0).map_or(0, layout::highest_of);
        Histogram {
            cells,
            count,
            sum: self.sum.saturating_sub(earlier.sum),
            // The exact bounds of the whole bound a part of it too.
            min: if count == 0 { u64::MAX } else { min.max(self.min) },
            max: if count == 0 { 0 } else { max.min(self.max) },
        }
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether no time was counted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the smallest time in ns; 0 if empty, as in HdrHistogram.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Returns the largest time in ns; 0 if empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean in ns; 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the time in ns that `percentile` (0 to 100) of all times do not exceed: the highest
    /// value of its cell, as in HdrHistogram, but never above the maximum. At most 0.1 % too high.
    /// Returns 0 if empty.
    pub fn percentile(&self, percentile: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let rank = percentile.clamp(0.0, 100.0) / 100.0 * self.count as f64;
        // 99.9 % of 1000 is 999, although 0.999 is not a double.
        let wanted = (rank * (1.0 - 1e-12)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, &count) in self.cells.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return layout::highest_of(index).clamp(self.min(), self.max);
            }
        }
        self.max
    }

    /// Returns the number of times above `ns`, exact to the width of a cell.
    pub fn count_above(&self, ns: u64) -> u64 {
        let first = layout::index_of(ns) + 1;
        self.cells.get(first..).map_or(0, |cells| cells.iter().sum())
    }

    /// Returns the cells that are not empty: the value in the middle, and the count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let full = self.cells.iter().enumerate().filter(|(_, count)| **count > 0);
        full.map(|(index, &count)| (layout::middle_of(index), count))
    }

    /// Returns the content, to be sent to another process, which restores it by
    /// [`Histogram::from_cells`].
    pub fn to_cells(&self) -> SparseHistogram {
        let full = self.cells.iter().enumerate().filter(|(_, count)| **count > 0);
        let mut last = 0;
        let steps = full.map(|(index, &count)| {
            let step = index - std::mem::replace(&mut last, index);
            (step as u32, count)
        });
        SparseHistogram {
            steps: steps.collect(),
            sum_high: (self.sum >> 64) as u64,
            sum_low: self.sum as u64,
            min: self.min(),
            max: self.max,
        }
    }

    /// Restores the histogram of another process.
    ///
    /// # Errors
    ///
    /// Fails if a cell does not exist, or if the counts do not fit 64 bits.
    pub fn from_cells(cells: &SparseHistogram) -> Result<Histogram, DecodeError> {
        let mut histogram = Histogram::new();
        let mut index = 0usize;
        for &(step, count) in &cells.steps {
            index = index.saturating_add(step as usize);
            histogram.ensure_cells();
            let cell = histogram
                .cells
                .get_mut(index)
                .ok_or_else(|| DecodeError(format!("there is no cell {index}")))?;
            *cell = cell.saturating_add(count);
            let sum = histogram.count.checked_add(count);
            histogram.count = sum.ok_or_else(|| DecodeError("more counts than fit 64 bits".to_owned()))?;
        }
        if histogram.count > 0 {
            histogram.sum = u128::from(cells.sum_high) << 64 | u128::from(cells.sum_low);
            (histogram.min, histogram.max) = (cells.min.min(cells.max), cells.max);
        }
        Ok(histogram)
    }

    /// Converts to the type of the `hdrhistogram` crate, with every time divided by `unit_ns` (1
    /// keeps nanoseconds).
    pub fn to_hdr(&self, unit_ns: u64) -> hdrhistogram::Histogram<u64> {
        let mut hdr = match hdrhistogram::Histogram::new_with_bounds(1, VALUE_MAX, SIGNIFICANT_DIGITS) {
            Ok(hdr) => hdr,
            // HdrHistogram accepts these constants; a test checks it.
            Err(_) => unreachable!("constant bounds"),
        };
        for (value, count) in self.iter() {
            hdr.saturating_record_n(value.clamp(self.min(), self.max) / unit_ns, count);
        }
        hdr
    }

    /// Returns HdrHistogram's V2 compressed encoding in base64, as in interval logs and for other
    /// tools.
    pub fn encode(&self) -> String {
        self.encode_in(1)
    }

    /// As [`encode`](Self::encode), with every time divided by `unit_ns`.
    pub fn encode_in(&self, unit_ns: u64) -> String {
        use base64::Engine as _;
        let mut bytes = Vec::new();
        match V2DeflateSerializer::new().serialize(&self.to_hdr(unit_ns), &mut bytes) {
            Ok(_) => base64::engine::general_purpose::STANDARD.encode(bytes),
            // Writing to memory does not fail, and the counts fit 63 bits.
            Err(_) => String::new(),
        }
    }

    /// Decodes the form of [`encode`](Self::encode), of this or another tool.
    pub fn decode(text: &str) -> Result<Histogram, DecodeError> {
        use base64::Engine as _;
        // Serval's encoded histograms have a few KiB. The limit bounds what a hostile file makes
        // the decoder decompress.
        const TEXT_MAX: usize = 4 << 20;
        if text.len() > TEXT_MAX {
            return Err(DecodeError(format!(
                "it has {} characters, at most {TEXT_MAX} are read",
                text.len()
            )));
        }
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| DecodeError(e.to_string()))?;
        let hdr: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|e| DecodeError(e.to_string()))?;
        let mut histogram = Histogram::new();
        // Sums of a few such counts must not overflow. No measurement reaches it.
        const COUNT_MAX: u64 = 1 << 53;
        let mut all = 0u64;
        for step in hdr.iter_recorded() {
            all = all.saturating_add(step.count_since_last_iteration());
            if all > COUNT_MAX {
                return Err(DecodeError(format!("it has more than {COUNT_MAX} times")));
            }
            let value = step.value_iterated_to();
            let low = hdr.lowest_equivalent(value);
            histogram.record_n(
                low + (hdr.highest_equivalent(value) - low).div_ceil(2),
                step.count_since_last_iteration(),
            );
        }
        Ok(histogram)
    }

    /// As [`decode`](Self::decode), with the exact sum and bounds that a result document has next to
    /// the cells.
    pub fn decode_exact(text: &str, mean: f64, min: u64, max: u64) -> Result<Histogram, DecodeError> {
        let mut histogram = Histogram::decode(text)?;
        if histogram.count > 0 {
            if min > max {
                return Err(DecodeError(format!(
                    "its least time, {min} ns, is above its greatest, {max} ns"
                )));
            }
            histogram.sum = (mean.max(0.0) * histogram.count as f64) as u128;
            histogram.min = min;
            histogram.max = max;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_histograms_survive_a_round_trip(times in proptest::collection::vec((any::<u64>(), 1u64..1000), 0..50)) {
            let mut histogram = Histogram::new();
            times.iter().for_each(|(ns, n)| histogram.record_n(*ns >> (n % 60), *n));
            let sent = serde_json::to_vec(&histogram.to_cells()).unwrap();
            let arrived = Histogram::from_cells(&serde_json::from_slice(&sent).unwrap()).unwrap();
            prop_assert_eq!(arrived, histogram);
        }

        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(
            steps in proptest::collection::vec((any::<u32>(), any::<u64>()), 0..9), ends in any::<(u64, u64, u64, u64)>(),
        ) {
            let (sum_high, sum_low, min, max) = ends;
            if let Ok(histogram) = Histogram::from_cells(&SparseHistogram { steps, sum_high, sum_low, min, max }) {
                let _ = (histogram.percentile(99.0), histogram.mean(), histogram.to_cells());
            }
        }
    }

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&v| histogram.record(v));
        histogram
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.min(), empty.max(), empty.percentile(99.0)), (0, 0, 0, 0));
        assert_eq!(empty.mean(), 0.0);
        assert_eq!(Histogram::decode(&empty.encode()).unwrap().count(), 0);
    }

    #[test]
    fn percentiles_of_a_known_sample() {
        let all: Vec<u64> = (1..=1000).collect();
        let histogram = of(&all);
        assert_eq!(histogram.percentile(50.0), 500);
        assert_eq!(histogram.percentile(99.9), 999);
        assert_eq!(histogram.percentile(100.0), 1000);
        assert_eq!(histogram.percentile(0.0), 1);
        assert_eq!(histogram.mean(), 500.5);
        assert_eq!(histogram.count_above(990), 10);
    }

    #[test]
    fn a_reader_on_another_thread_loses_nothing() {
        let writer = HistogramWriter::new();
        let live = writer.reader();
        let mut seen = Histogram::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || (0..200_000u64).for_each(|i| writer.record(i * 37 % 1_000_003)));
            let mut before = Histogram::new();
            while !writer.is_finished() {
                let mut now = Histogram::new();
                live.add_to(&mut now);
                assert!(now.count() >= before.count());
                seen.merge(&now.since(&before));
                before = now;
            }
            let mut last = Histogram::new();
            live.add_to(&mut last);
            seen.merge(&last.since(&before));
        });
        assert_eq!(seen.count(), 200_000);
        let mut total = Histogram::new();
        live.add_to(&mut total);
        assert_eq!(seen.iter().collect::<Vec<_>>(), total.iter().collect::<Vec<_>>());
    }

    #[test]
    fn invalid_encodings_are_refused() {
        for text in ["%", "AAAA", &"A".repeat(5 << 20)] {
            assert!(Histogram::decode(text).is_err());
        }
        // The numbers next to the cells may be wrong as well.
        let text = of(&[5, 600]).encode();
        assert!(Histogram::decode_exact(&text, 302.5, 5, 600).is_ok());
        assert!(Histogram::decode_exact(&text, 302.5, 591, 0).unwrap_err().to_string().contains("is above"));
        let mut many = Histogram::new();
        (1..=5).for_each(|value| many.record_n(value, 1 << 52));
        assert!(Histogram::decode(&many.encode()).unwrap_err().to_string().contains("more than"));
    }

    proptest! {
        #[test]
        fn merging_equals_recording_all_values(a in prop::collection::vec(0u64..1 << 43, 0..50),
                                    b in prop::collection::vec(0u64..1 << 43, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let all = of(&a.iter().chain(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(&merged, &all);
            let rest = all.since(&of(&a));
            prop_assert_eq!(rest.count(), b.len() as u64);
            prop_assert_eq!(rest.iter().collect::<Vec<_>>(), of(&b).iter().collect::<Vec<_>>());
        }

        #[test]
        fn encoding_keeps_every_cell(values in prop::collection::vec(0u64..1 << 42, 0..200)) {
            let histogram = of(&values);
            let read = Histogram::decode(&histogram.encode()).unwrap();
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), histogram.iter().collect::<Vec<_>>());
            let exact = Histogram::decode_exact(&histogram.encode(), histogram.mean(), histogram.min(), histogram.max()).unwrap();
            prop_assert_eq!((exact.min(), exact.max()), (histogram.min(), histogram.max()));
        }

        #[test]
        fn percentiles_are_within_a_thousandth_of_the_truth(
            mut values in prop::collection::vec(1u64..1 << 40, 1..300), p in 0.0f64..100.0) {
            let histogram = of(&values);
            values.sort_unstable();
            let rank = ((p / 100.0 * values.len() as f64).ceil().max(1.0) as usize).min(values.len());
            let truth = values[rank - 1] as f64;
            let estimate = histogram.percentile(p) as f64;
            prop_assert!(estimate >= truth && estimate <= truth * 1.001 + 1.0, "{estimate} for {truth}");
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[A-Za-z0-9+/=]{0,200}") {
            let _ = Histogram::decode(&text);
        }
    }
}
