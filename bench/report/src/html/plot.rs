//! Plots as SVG without colours of their own: the page's style sheet maps
//! those used here to those of its light and dark themes.

use crate::units::{digits, time};
use plotters::{
    coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    prelude::*,
    style::RGBColor,
};
use serval_measure::histogram::Histogram;
use std::ops::Range;

const INK: RGBColor = RGBColor(0x5d, 0x66, 0x75);
const GRID: RGBColor = RGBColor(0xd3, 0xd8, 0xe0);

/// Colours of lines, in the order of the style sheet's `--c1` to `--c6`.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x2f, 0x6f, 0xde),
    RGBColor(0x0d, 0x94, 0x88),
    RGBColor(0xd9, 0x77, 0x06),
    RGBColor(0xd4, 0x3d, 0x51),
    RGBColor(0x7c, 0x4f, 0xd6),
    RGBColor(0x5f, 0x7a, 0x1f),
];

/// Points of a line at most: more are not told apart, and a day of seconds
/// would make a page of many megabytes.
pub(super) const POINTS_MAX: usize = 600;

/// A line: pieces of points, and the number of its colour from 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) dashed: bool,
    /// Where there is nothing to show the line is interrupted.
    pub(super) pieces: Vec<Vec<(f64, f64)>>,
}

impl Line {
    /// A line through points, interrupted where a value is `None`.
    pub(super) fn new(label: &str, colour: usize, points: impl Iterator<Item = (f64, Option<f64>)>) -> Line {
        let mut pieces = vec![Vec::new()];
        for (x, y) in points {
            match (y, pieces.last_mut()) {
                (Some(y), Some(piece)) if y.is_finite() => piece.push((x, y)),
                _ => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        Line { label: label.to_owned(), colour, dashed: false, pieces }
    }

    /// The same, dashed.
    pub(super) fn dashed(self) -> Line {
        Line { dashed: true, ..self }
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.pieces.iter().flatten()
    }
}

/// What a plot's area is.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) width: u32,
    pub(super) height: u32,
    /// What is measured to the right, below the axis.
    pub(super) x_label: &'static str,
    /// Where the warm-up ends, if there was one.
    pub(super) warm_up_until: Option<f64>,
}

/// An axis with chosen points and labels.
#[derive(Debug, Clone)]
struct Axis {
    range: Range<f64>,
    logarithmic: bool,
    points: Vec<f64>,
    label: fn(f64) -> String,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let place = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (start, end) = (place(self.range.start), place(self.range.end));
        let part = (place(*value) - start) / (end - start);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _hint: H) -> Vec<f64> {
        self.points.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(*value)
    }
}

/// Rates over time in seconds, from 0.
pub(super) fn over_time(lines: &[Line], seconds: f64, frame: &Frame) -> Option<String> {
    let most = lines.iter().flat_map(Line::points).map(|(_, y)| *y).fold(0.0, f64::max);
    if most <= 0.0 || seconds <= 0.0 {
        return None;
    }
    let top = most * 1.08;
    let y = Axis {
        range: 0.0..top,
        logarithmic: false,
        points: steps(top),
        label: |rate| tick(crate::units::rate(rate)),
    };
    draw(lines, seconds_axis(seconds), y, frame)
}

/// Times in ns on a logarithmic axis over time in seconds.
pub(super) fn times_over_time(lines: &[Line], seconds: f64, frame: &Frame) -> Option<String> {
    let y = times_axis(lines)?;
    if seconds <= 0.0 {
        return None;
    }
    draw(lines, seconds_axis(seconds), y, frame)
}

/// Times in ns against percentiles, with as much room for 99 to 99.9 as for
/// 90 to 99.
pub(super) fn by_percentile(lines: &[Line], frame: &Frame) -> Option<String> {
    let y = times_axis(lines)?;
    let last = lines.iter().flat_map(Line::points).map(|(x, _)| *x).fold(1.0, f64::max);
    let mut points: Vec<f64> = vec![0.0, percentile_place(0.5)];
    points.extend((1..=last as u32).map(f64::from));
    let x = Axis { range: 0.0..last, logarithmic: false, points, label: percentile_label };
    draw(lines, x, y, frame)
}

/// Marks on axes are round: `1 ms` and not `1.00 ms`.
fn tick(text: String) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

fn seconds_axis(seconds: f64) -> Axis {
    Axis { range: 0.0..seconds, logarithmic: false, points: steps(seconds), label: seconds_label }
}

fn times_axis(lines: &[Line]) -> Option<Axis> {
    let range = decades(lines)?;
    let points = log_steps(&range);
    Some(Axis { range, logarithmic: true, points, label: |ns| tick(time(ns)) })
}

/// The place of a percentile on [`by_percentile`]'s axis.
fn percentile_place(share_above: f64) -> f64 {
    -share_above.log10()
}

fn percentile_label(place: f64) -> String {
    let percentile = 100.0 - 100.0 * 10f64.powf(-place);
    let decimals = (place.round() as usize).saturating_sub(2);
    format!("{percentile:.decimals$}")
}

fn seconds_label(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 && s.fract() != 0.0 => format!("{} s", digits(s)),
        s if s < 600.0 => format!("{s:.0} s"),
        s => {
            let s = s.round() as u64;
            let (hours, minutes, s) = (s / 3600, s / 60 % 60, s % 60);
            if hours > 0 { format!("{hours}:{minutes:02}:{s:02} h") } else { format!("{minutes}:{s:02} min") }
        }
    }
}

/// The distribution of a histogram for [`by_percentile`]: the share of times
/// that are not above, cut where less than one time is above.
pub(super) fn distribution(histogram: &Histogram) -> Vec<(f64, f64)> {
    let count = histogram.count() as f64;
    // No more points than an axis of this many parts a decade shows.
    const PART: f64 = 1.0 / 100.0;
    let (mut seen, mut points) = (0u64, Vec::new());
    for (ns, n) in histogram.iter() {
        let ns = ns.clamp(histogram.min(), histogram.max()) as f64;
        let before = percentile_place((count - seen as f64) / count);
        seen += n;
        // The last time has nothing above it: it stands where half of itself is.
        let after = percentile_place((count - seen as f64).max(0.5) / count);
        let drawn = points.last().map(|(x, _)| *x);
        // A step, where many have the same time.
        let is_step = after - before > PART;
        if drawn.is_none() || is_step {
            points.push((before, ns));
        }
        if is_step || seen == histogram.count() || after - drawn.unwrap_or(before) > PART {
            points.push((after, ns));
        }
    }
    points
}

/// About six round steps from 0 to `end`.
fn steps(end: f64) -> Vec<f64> {
    let rough = end / 6.0;
    let size = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * size).find(|s| *s >= rough).unwrap_or(rough);
    (0..=(end / step) as u32).map(|i| f64::from(i) * step).collect()
}

/// From below the smallest to above the largest value of lines on a
/// logarithmic axis.
fn decades(lines: &[Line]) -> Option<Range<f64>> {
    let values = || lines.iter().flat_map(Line::points).map(|(_, y)| *y).filter(|y| *y > 0.0);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if most <= 0.0 {
        return None;
    }
    Some(least * 0.8..most * 1.25)
}

/// Powers of ten within a range, with 2 and 5 between them where there are
/// few.
fn log_steps(range: &Range<f64>) -> Vec<f64> {
    let few = range.end / range.start < 200.0;
    let parts: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let first = range.start.log10().floor() as i32;
    let last = range.end.log10().ceil() as i32;
    (first..=last)
        .flat_map(|power| parts.iter().map(move |part| part * 10f64.powi(power)))
        .filter(|value| range.contains(value))
        .collect()
}

fn draw(lines: &[Line], x: Axis, y: Axis, frame: &Frame) -> Option<String> {
    let mut svg = String::new();
    // Writing to a string does not fail; a plot that plotters refuses is left out.
    try_draw(&mut svg, lines, x, y, frame).ok()?;
    Some(svg)
}

type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

fn try_draw(svg: &mut String, lines: &[Line], x: Axis, y: Axis, frame: &Frame) -> Result<(), DrawError> {
    let Range { start: bottom, end: top } = y.range;
    let area = SVGBackend::with_string(svg, (frame.width, frame.height)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_top(8)
        .margin_right(24)
        .x_label_area_size(if frame.x_label.is_empty() { 26 } else { 42 })
        .y_label_area_size(66)
        .build_cartesian_2d(x, y)?;
    if let Some(end) = frame.warm_up_until {
        chart.draw_series([Rectangle::new([(0.0, bottom), (end, top)], GRID.mix(0.45).filled())])?;
    }
    let text = ("sans-serif", 13).into_font().color(&INK);
    chart
        .configure_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID)
        .max_light_lines(0)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(frame.x_label)
        .draw()?;
    for line in lines {
        let style = COLOURS[(line.colour - 1) % COLOURS.len()].stroke_width(2);
        for piece in &line.pieces {
            // A point alone is no line.
            if let [(x, y)] = piece[..] {
                chart.draw_series([Circle::new((x, y), 1, style)])?;
            } else if line.dashed {
                chart.draw_series(DashedLineSeries::new(piece.iter().copied(), 6, 4, style))?;
            } else {
                chart.draw_series([PathElement::new(piece.clone(), style)])?;
            }
        }
    }
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps() {
        assert_eq!(steps(120.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        assert_eq!(log_steps(&(3e5..2e7)), [5e5, 1e6, 2e6, 5e6, 1e7][..]);
        assert_eq!(log_steps(&(3e3..2e7)), [1e4, 1e5, 1e6, 1e7]);
        assert_eq!(tick(time(1e6)), "1 ms");
        assert_eq!(tick("50.0".to_owned()), "50");
        assert_eq!(tick("200".to_owned()), "200");
        assert_eq!(seconds_label(7325.0), "2:02:05 h");
        assert_eq!(percentile_label(0.0), "0");
        assert_eq!(percentile_label(percentile_place(0.5)), "50");
        assert_eq!(percentile_label(1.0), "90");
        assert_eq!(percentile_label(4.0), "99.99");
    }

    #[test]
    fn a_line_is_interrupted_where_there_is_nothing() {
        let line = Line::new(
            "a",
            1,
            [(0.0, Some(1.0)), (1.0, None), (2.0, Some(2.0)), (3.0, Some(3.0))].into_iter(),
        );
        assert_eq!(line.pieces, [vec![(0.0, 1.0)], vec![(2.0, 2.0), (3.0, 3.0)]]);
    }

    #[test]
    fn a_distribution_rises_and_is_short() {
        let mut histogram = Histogram::new();
        (0..100_000u64).for_each(|i| histogram.record(1000 + i * 37));
        let points = distribution(&histogram);
        assert!(points.len() < 1200, "{}", points.len());
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
        let last = points.last().unwrap();
        assert!((last.0 - 200_000f64.log10()).abs() < 1e-9);
        assert_eq!(last.1, histogram.max() as f64);
    }

    #[test]
    fn nothing_is_no_plot() {
        let frame = Frame { width: 100, height: 100, x_label: "", warm_up_until: None };
        let none = [Line::new("a", 1, std::iter::empty())];
        assert_eq!(over_time(&none, 1.0, &frame), None);
        assert_eq!(times_over_time(&none, 1.0, &frame), None);
        assert_eq!(by_percentile(&none, &frame), None);
    }
}
