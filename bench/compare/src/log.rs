//! The histogram log beside a result, as far as resampling needs it: per
//! piece of the run and operation, how many times fell into which cell.

use crate::pieces::{Pieces, start_ms, weighted};
use serval_measure::{histogram::Histogram, layout};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

/// Bytes of a log that are read at most: a day of seconds with four operations.
const LOG_MAX: u64 = 1 << 30;
/// Bytes of a line that are read at most; a histogram has a few thousand.
const LINE_MAX: u64 = 4 << 20;
/// Cells kept of an operation at most. Where a run has more, neighbours are
/// put together in the resamples (not in the values that are shown).
const CELLS_MAX: usize = 2048;

/// One operation's times, by cell and piece.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    pieces: usize,
    /// The highest time of each cell that is not empty, ns, rising.
    highest: Vec<u64>,
    /// For each cell a row: how many times of each piece are in it or below.
    below: Vec<u32>,
    /// The sum of the times of each piece, ns.
    sums: Vec<f64>,
    /// How many there are in each piece.
    counts: Vec<f64>,
}

impl Times {
    /// Takes counts of cells by piece.
    fn of(pieces: usize, mut found: Vec<(u32, u32, u64)>) -> Option<Times> {
        found.sort_unstable();
        let mut cells: Vec<u32> = found.iter().map(|(cell, _, _)| *cell).collect();
        cells.dedup();
        let together = cells.len().div_ceil(CELLS_MAX).max(1);
        let highest: Vec<u64> = cells
            .chunks(together)
            .map(|cells| layout::highest_of(*cells.last().unwrap_or(&0) as usize))
            .collect();
        let mut times =
            Times { pieces, highest, below: Vec::new(), sums: vec![0.0; pieces], counts: vec![0.0; pieces] };
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

    /// How many times there are.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum::<f64>() as u64
    }

    /// The mean where pieces are there `weights` times, ns.
    pub(crate) fn mean(&self, weights: &[u32]) -> f64 {
        weighted(&self.sums, weights) / weighted(&self.counts, weights)
    }

    fn up_to(&self, cell: usize, weights: &[u32]) -> u64 {
        let row = &self.below[cell * self.pieces..(cell + 1) * self.pieces];
        row.iter().zip(weights).map(|(n, weight)| u64::from(*n) * u64::from(*weight)).sum()
    }

    /// The percentile of the merged histograms of pieces that are there
    /// `weights` times, ns, as [`Histogram::percentile`] has it. No number
    /// where nothing is there.
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

/// Counts by cell of one tag in the piece that is being read.
#[derive(Default)]
struct Growing {
    piece: u32,
    cells: BTreeMap<u32, u64>,
    found: Vec<(u32, u32, u64)>,
}

impl Growing {
    fn next_piece(&mut self, piece: u32) {
        let of = self.piece;
        self.found.extend(std::mem::take(&mut self.cells).into_iter().map(|(cell, n)| (cell, of, n)));
        self.piece = piece;
    }
}

/// The tag that the log has for a name.
pub(crate) fn tag(operation: &str, service: bool) -> String {
    let name: String =
        operation.chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect();
    if service { format!("{name}-SERVICE") } else { name }
}

/// Reads what a log has of some tags in the measured intervals.
pub(crate) fn read(
    path: &Path,
    pieces: &Pieces,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Times>, String> {
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
) -> Result<BTreeMap<String, Times>, String> {
    let mut growing: BTreeMap<String, Growing> = BTreeMap::new();
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
            // Comments, the head, and lines without a tag, which Serval has not.
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
        let tag = match growing.get_mut(tag) {
            Some(tag) => tag,
            None => growing.entry(tag.to_owned()).or_default(),
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
    for (tag, mut growing) in growing {
        growing.next_piece(0);
        let times = Times::of(pieces.number(), growing.found)
            .ok_or_else(|| format!("{tag}: more than {} times in one part of the run", u32::MAX))?;
        all.insert(tag, times);
    }
    Ok(all)
}
