//! Reads the histogram log beside a result: how many times of each operation fell into which cell of the histogram,
//! for each piece of the run.

use crate::pieces::{Pieces, start_ms, weighted};
use serval_measure::{histogram::Histogram, layout};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

/// Largest log, in bytes: a day of one-second intervals with four operations.
const LOG_MAX: u64 = 1 << 30;
/// Longest line, in bytes; a histogram has a few thousand.
const LINE_MAX: u64 = 4 << 20;
/// Most cells of an operation. Of more, neighbours are merged in resamples, but not in the values that are shown.
const CELLS_MAX: usize = 2048;

/// Times of one operation, by cell and piece.
#[derive(Debug, Clone, Default)]
pub(crate) struct PieceTimes {
    pieces: usize,
    /// The highest time of each non-empty cell, ns, in rising order.
    highest: Vec<u64>,
    /// A row for each cell: the number of times in it or below, by piece.
    below: Vec<u32>,
    /// Sum of the times, ns, by piece.
    sums: Vec<f64>,
    /// Number of times, by piece.
    counts: Vec<f64>,
}

impl PieceTimes {
    /// Builds it from `(cell, piece, count)`; `None` if a piece has too many times to count.
    fn of(pieces: usize, mut found: Vec<(u32, u32, u64)>) -> Option<PieceTimes> {
        found.sort_unstable();
        let mut cells: Vec<u32> = found.iter().map(|(cell, _, _)| *cell).collect();
        cells.dedup();
        let together = cells.len().div_ceil(CELLS_MAX).max(1);
        let highest: Vec<u64> = cells
            .chunks(together)
            .map(|cells| layout::highest_of(*cells.last().unwrap_or(&0) as usize))
            .collect();
        let mut times = PieceTimes {
            pieces,
            highest,
            below: Vec::new(),
            sums: vec![0.0; pieces],
            counts: vec![0.0; pieces],
        };
        let mut sofar = vec![0u32; pieces];
        let mut rest = found.iter().peekable();
        for cells in cells.chunks(together) {
            while let Some((cell, piece, count)) = rest.next_if(|(cell, _, _)| cells.contains(cell)) {
                let piece = *piece as usize;
                sofar[piece] = sofar[piece].checked_add(u32::try_from(*count).ok()?)?;
                times.sums[piece] += layout::middle_of(*cell as usize) as f64 * *count as f64;
                times.counts[piece] += *count as f64;
            }
            times.below.extend(&sofar);
        }
        Some(times)
    }

    /// Number of times.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum::<f64>() as u64
    }

    /// Mean of a resample that has each piece `weights` times, ns.
    pub(crate) fn mean(&self, weights: &[u32]) -> f64 {
        weighted(&self.sums, weights) / weighted(&self.counts, weights)
    }

    fn up_to(&self, cell: usize, weights: &[u32]) -> u64 {
        let row = &self.below[cell * self.pieces..(cell + 1) * self.pieces];
        row.iter().zip(weights).map(|(n, weight)| u64::from(*n) * u64::from(*weight)).sum()
    }

    /// Percentile of the merged histograms of a resample that has each piece `weights` times, ns, as
    /// [`Histogram::percentile`] defines it. NaN if the resample has no times.
    pub(crate) fn percentile(&self, percentile: f64, weights: &[u32]) -> f64 {
        let Some(last) = self.highest.len().checked_sub(1) else { return f64::NAN };
        let total = self.up_to(last, weights);
        if total == 0 {
            return f64::NAN;
        }
        let wanted = (percentile / 100.0 * total as f64 * (1.0 - 1e-12)).ceil().max(1.0) as u64;
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = (low + high) / 2;
            if self.up_to(middle, weights) >= wanted { high = middle } else { low = middle + 1 }
        }
        self.highest[low] as f64
    }
}

/// Counts of one tag while the log is read.
#[derive(Default)]
struct TagCounts {
    /// The piece that the current lines belong to, and its cells.
    piece: u32,
    cells: BTreeMap<u32, u64>,
    found: Vec<(u32, u32, u64)>,
}

impl TagCounts {
    fn next_piece(&mut self, piece: u32) {
        let of = self.piece;
        self.found.extend(std::mem::take(&mut self.cells).into_iter().map(|(cell, n)| (cell, of, n)));
        self.piece = piece;
    }
}

/// The tag of an operation in the log.
pub(crate) fn tag(operation: &str, service: bool) -> String {
    let name: String =
        operation.chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect();
    if service { format!("{name}-SERVICE") } else { name }
}

/// Reads the wanted tags of the measured intervals.
pub(crate) fn read(
    path: &Path,
    pieces: &Pieces,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, PieceTimes>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if length > LOG_MAX {
        return Err(format!("it is longer than {} MiB, which is the most that is read", LOG_MAX >> 20));
    }
    read_from(BufReader::with_capacity(1 << 16, file.take(LOG_MAX)), pieces, wanted)
}

fn read_from(
    mut input: impl BufRead,
    pieces: &Pieces,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, PieceTimes>, String> {
    let mut by_tag: BTreeMap<String, TagCounts> = BTreeMap::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut rest = (&mut input).take(LINE_MAX);
        if rest.read_until(b'\n', &mut line).map_err(|error| error.to_string())? == 0 {
            break;
        }
        let fault = |what: &str| format!("line {number}: {what}");
        if line.len() as u64 == LINE_MAX {
            return Err(fault("it is too long for a histogram log"));
        }
        let text = std::str::from_utf8(&line).map_err(|_| fault("it is no text"))?.trim_end();
        let Some(fields) = text.strip_prefix("Tag=") else {
            // Comments and the head; every line of times has a tag.
            continue;
        };
        let mut fields = fields.splitn(5, ',');
        let mut field = || fields.next().ok_or_else(|| fault("it has too few fields: the log is cut off"));
        let (tag, start, _, _, encoded) = (field()?, field()?, field()?, field()?, field()?);
        if !wanted(tag) {
            continue;
        }
        let start: f64 = start.parse().map_err(|_| fault("its start is no number"))?;
        let Some(piece) = pieces.at(start_ms(start)) else { continue };
        let histogram = Histogram::decode(encoded).map_err(|error| fault(&error.to_string()))?;
        let piece = piece as u32;
        let tag = match by_tag.get_mut(tag) {
            Some(tag) => tag,
            None => by_tag.entry(tag.to_owned()).or_default(),
        };
        if tag.piece != piece {
            tag.next_piece(piece);
        }
        for (value, count) in histogram.iter() {
            let cell = tag.cells.entry(layout::index_of(value) as u32).or_default();
            *cell = cell.saturating_add(count);
        }
    }
    let mut all = BTreeMap::new();
    for (tag, mut counts) in by_tag {
        counts.next_piece(0);
        let times = PieceTimes::of(pieces.number(), counts.found)
            .ok_or_else(|| format!("{tag}: more than {} times in one part of the run", u32::MAX))?;
        all.insert(tag, times);
    }
    Ok(all)
}
