//! Plots over time: lines and heat maps of consecutive pieces of measured time.

use super::{Axis, Column, Heat, Line, Plot, Upright};
use std::ops::Range;

/// Width of plots over time, in pixels.
const WIDTH: u32 = 1040;

/// An axis of time, and what the plots on it share.
pub(crate) struct TimePlots {
    x: Axis,
    height: u32,
    /// The shaded range: the warm-up.
    pub(crate) shade: Option<Range<f64>>,
    /// Vertical marks.
    pub(crate) uprights: Vec<Upright>,
    /// Whether to leave room for the labels of `uprights` above all values.
    pub(crate) headroom: bool,
}

impl TimePlots {
    /// Plots over this many seconds; `None` if no time has passed.
    pub(crate) fn new(seconds: f64, height: u32) -> Option<TimePlots> {
        let x = Axis::seconds(seconds, WIDTH)?;
        Some(TimePlots { x, height, shade: None, uprights: Vec::new(), headroom: false })
    }

    fn plot(&self, title: impl Into<String>, y: Axis) -> Plot {
        let plot = Plot::new(title, (WIDTH, self.height), self.x.clone(), y);
        Plot { shade: self.shade.clone(), uprights: self.uprights.clone(), ..plot }
    }

    /// A plot of operations a second; `None` if there are none.
    pub(crate) fn rates(&self, title: impl Into<String>, lines: Vec<Line>) -> Option<Plot> {
        let room = if self.headroom { 1.12 } else { 1.0 };
        let y = Axis::rates(Line::highest(&lines) * room, 540)?;
        Some(self.plot(title, y).with_lines(lines))
    }

    /// A plot of times in ns; `None` if there are none.
    pub(crate) fn times(&self, title: impl Into<String>, lines: Vec<Line>) -> Option<Plot> {
        let y = Axis::times(lines.iter().flat_map(Line::values))?;
        Some(self.plot(title, y).with_lines(lines))
    }

    /// A heat map of times; `None` if there are none.
    pub(crate) fn heat(&self, title: impl Into<String>, columns: Vec<Column>) -> Option<Plot> {
        let heat = Heat { columns };
        let Range { start, end } = heat.times()?;
        let room = if self.headroom { (end / start).powf(0.1) } else { 1.0 };
        Some(self.plot(title, Axis::times_between(start..end * room)).with_heat(heat))
    }
}

/// A piece of measured time.
pub(crate) struct Piece<T> {
    /// Number of its segment; lines are interrupted between segments.
    pub(crate) segment: usize,
    /// Start and end on the axis, in seconds.
    pub(crate) time: Range<f64>,
    /// The measurements.
    pub(crate) measured: T,
}

/// Pieces of measured time in order.
pub(crate) struct Timeline<T> {
    pub(crate) pieces: Vec<Piece<T>>,
    /// Whether a segment of a single piece is drawn as a line and not as a dot.
    pub(crate) stretched: bool,
}

impl<T> Timeline<T> {
    /// The end of the last piece, in seconds; 0 if there is none.
    pub(crate) fn end(&self) -> f64 {
        self.pieces.last().map_or(0.0, |piece| piece.time.end)
    }

    /// A line through a value of each piece, in the middle of its time.
    pub(crate) fn line(&self, label: &str, style: usize, value: impl Fn(&Piece<T>) -> Option<f64>) -> Line {
        let segments = self.pieces.chunk_by(|a, b| a.segment == b.segment);
        let points = segments.flat_map(|pieces| {
            let mut points = vec![(pieces[0].time.start, None)];
            match pieces {
                [only] if self.stretched => {
                    let value = value(only);
                    points.extend([only.time.start, only.time.end].map(|at| (at, value)));
                }
                _ => points.extend(pieces.iter().map(|piece| {
                    let Range { start, end } = piece.time;
                    ((start + end) / 2.0, value(piece))
                })),
            }
            points
        });
        Line::new(label, style, points)
    }

    /// The columns of a heat map of levels.
    pub(crate) fn columns(&self, levels: impl Fn(&Piece<T>) -> Vec<(u32, u64)>) -> Vec<Column> {
        let column = |piece: &Piece<T>| Column { x: piece.time.clone(), levels: levels(piece) };
        self.pieces.iter().map(column).collect()
    }
}
