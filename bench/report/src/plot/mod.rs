//! Plots, drawn by plotters: inline in a page, whose style sheet has the colours of the light and
//! dark themes, and as SVG and PNG files.

mod axis;
mod draw;
mod heat;
pub(crate) mod palette;
pub(crate) mod timeline;

pub(crate) use axis::Axis;
use axis::percentile_place;
pub(crate) use heat::{Column, Heat, opacity};
use serval_measure::histogram::Histogram;
use std::ops::Range;

/// Largest number of points of a line: a page shows no more, and a day of seconds would take
/// megabytes.
const POINTS_MAX: usize = 600;

/// Number of adjacent pieces of time to merge into a point, so that a line has at most
/// [`POINTS_MAX`] points.
pub(crate) fn chunk_of(pieces: usize) -> usize {
    pieces.div_ceil(POINTS_MAX).max(1)
}

/// A plot.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// The title.
    pub(crate) title: String,
    /// Width and height in pixels.
    pub(crate) size: (u32, u32),
    /// The x axis.
    pub(crate) x: Axis,
    /// The y axis.
    pub(crate) y: Axis,
    /// The shaded range of the x axis: the warm-up.
    pub(crate) shade: Option<Range<f64>>,
    /// Vertical marks.
    pub(crate) uprights: Vec<Upright>,
    /// Bars.
    pub(crate) bars: Vec<Bar>,
    /// Lines; later ones lie over earlier ones.
    pub(crate) lines: Vec<Line>,
    /// Cells of a heat map.
    pub(crate) heat: Option<Heat>,
    /// The legend.
    pub(crate) legend: Vec<LegendEntry>,
}

impl Plot {
    /// An empty plot.
    pub(crate) fn new(title: impl Into<String>, size: (u32, u32), x: Axis, y: Axis) -> Plot {
        Plot {
            title: title.into(),
            size,
            x,
            y,
            shade: None,
            uprights: Vec::new(),
            bars: Vec::new(),
            lines: Vec::new(),
            heat: None,
            legend: Vec::new(),
        }
    }

    /// The plot with lines, and a legend of those that are not empty.
    pub(crate) fn with_lines(mut self, lines: Vec<Line>) -> Plot {
        for line in lines.iter().filter(|line| !line.is_empty() && !line.label.is_empty()) {
            let key = LegendEntry {
                label: line.label.clone(),
                style: line.style,
                shape: if line.dots.is_empty() { Shape::Line(line.dash) } else { Shape::Dot },
            };
            if !self.legend.contains(&key) {
                self.legend.push(key);
            }
        }
        self.lines = lines;
        self
    }

    /// The plot with a heat map and its legend.
    pub(crate) fn with_heat(mut self, heat: Heat) -> Plot {
        self.legend.extend(heat::keys());
        self.heat = Some(heat);
        self
    }

    /// The plot for a page: without title and legend, which the page writes, and in colours that
    /// its style sheet replaces.
    pub(crate) fn inline_svg(&self) -> Option<String> {
        draw::svg(self, false)
    }

    /// The plot as an SVG file: with title and legend, on white.
    pub(crate) fn svg_file(&self) -> Option<String> {
        draw::svg(self, true)
    }

    /// The plot as a PNG file, at twice the resolution.
    pub(crate) fn png_file(&self) -> Option<Vec<u8>> {
        draw::png(self)
    }
}

/// An entry of the legend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LegendEntry {
    /// The label.
    pub(crate) label: String,
    /// Number of the style, from 1.
    pub(crate) style: usize,
    /// The shape.
    pub(crate) shape: Shape,
}

/// The shape of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// A line.
    Line(Option<palette::Dash>),
    /// The mark of the style.
    Dot,
    /// A bar.
    Bar,
    /// A cell of a heat map with this shade.
    Cell(u8),
}

/// A line, its marks, or both.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Line {
    /// The label; if empty, the line is not in the legend.
    pub(crate) label: String,
    /// Number of the style, from 1.
    pub(crate) style: usize,
    /// Lengths of strokes and gaps.
    pub(crate) dash: Option<palette::Dash>,
    /// Its points; the line is interrupted between pieces.
    pub(crate) pieces: Vec<Vec<(f64, f64)>>,
    /// The marks.
    pub(crate) dots: Vec<Dot>,
}

/// A point with a mark.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dot {
    /// Position.
    pub(crate) at: (f64, f64),
    /// Minimum and maximum on the y axis; equal if there is no spread.
    pub(crate) spread: (f64, f64),
    /// Minimum and maximum on the x axis.
    pub(crate) spread_x: (f64, f64),
    /// Whether the mark is hollow: the point has a flag.
    pub(crate) hollow: bool,
    /// The x position that was asked for but not reached.
    pub(crate) wanted_x: Option<f64>,
}

impl Line {
    /// A line through points, interrupted where a value is `None`.
    pub(crate) fn new(label: &str, style: usize, points: impl Iterator<Item = (f64, Option<f64>)>) -> Line {
        let mut pieces = vec![Vec::new()];
        for (x, y) in points {
            match (y, pieces.last_mut()) {
                (Some(y), Some(piece)) if y.is_finite() => piece.push((x, y)),
                _ => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        Line { label: label.to_owned(), style, pieces, ..Line::default() }
    }

    /// The line, dashed.
    pub(crate) fn dashed(self) -> Line {
        Line { dash: Some((6, 4)), ..self }
    }

    /// The line with the dash of its style.
    pub(crate) fn dashed_by_style(self) -> Line {
        Line { dash: palette::dash(self.style), ..self }
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.dots.is_empty()
    }

    /// The highest value of lines; 0 if there is none above 0.
    pub(crate) fn highest(lines: &[Line]) -> f64 {
        lines.iter().flat_map(Line::values).fold(0.0, f64::max)
    }

    /// All y values, with the ends of spreads.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        let dots = self.dots.iter().flat_map(|dot| [dot.at.1, dot.spread.0, dot.spread.1]);
        self.pieces.iter().flatten().map(|(_, y)| *y).chain(dots)
    }
}

/// A vertical mark.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Upright {
    /// Position on the x axis.
    pub(crate) x: f64,
    /// Number of the style; `None` for that of the axes.
    pub(crate) style: Option<usize>,
    /// The label at its top; may be empty.
    pub(crate) label: String,
}

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    /// Left and right end.
    pub(crate) x: Range<f64>,
    /// Lower and upper end.
    pub(crate) y: (f64, f64),
    /// Minimum and maximum.
    pub(crate) spread: (f64, f64),
    /// Number of the style, from 1.
    pub(crate) style: usize,
}

/// A plot of times in ns by percentile.
pub(crate) fn by_percentile(title: String, lines: Vec<Line>, size: (u32, u32)) -> Option<Plot> {
    let y = Axis::times(lines.iter().flat_map(Line::values))?;
    let last =
        lines.iter().flat_map(|line| line.pieces.iter().flatten()).map(|(x, _)| *x).fold(1.0, f64::max);
    Some(Plot::new(title, size, Axis::percentiles(last, size.0), y).with_lines(lines))
}

/// The distribution of a histogram for [`by_percentile`], up to the percentile that half a sample
/// exceeds.
pub(crate) fn distribution(histogram: &Histogram) -> Vec<(f64, f64)> {
    let count = histogram.count() as f64;
    // Smallest distance of points on the axis, in decades.
    const PART: f64 = 1.0 / 100.0;
    let (mut seen, mut points) = (0u64, Vec::new());
    for (ns, n) in histogram.iter() {
        let ns = ns.clamp(histogram.min(), histogram.max()) as f64;
        let before = percentile_place((count - seen as f64) / count);
        seen += n;
        // No time exceeds the last one: it counts half.
        let after = percentile_place((count - seen as f64).max(0.5) / count);
        let drawn = points.last().map(|(x, _)| *x);
        // A step: many operations took the same time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interrupted_at_missing_values() {
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
    fn no_values_make_no_plot() {
        let none = vec![Line::new("a", 1, std::iter::empty())];
        assert!(by_percentile("a".to_owned(), none, (100, 100)).is_none());
    }

    /// A plot with every kind of content.
    fn whole() -> Plot {
        let dot = |x: f64, y: f64, hollow| Dot {
            at: (x, y),
            spread: (y * 0.8, y * 1.3),
            spread_x: (x * 0.9, x * 1.1),
            hollow,
            wanted_x: hollow.then_some(x * 1.2),
        };
        let lines: Vec<Line> = (1..=6)
            .map(|style| {
                let points: Vec<(f64, f64)> =
                    (1..9).map(|i| (f64::from(i) * 1e3, f64::from(i * style) * 1e5)).collect();
                let dots = points.iter().map(|(x, y)| dot(*x, *y, *x > 6e3)).collect();
                let line = Line::new(
                    &format!("store <{style}>"),
                    style as usize,
                    points.into_iter().map(|(x, y)| (x, Some(y))),
                );
                if style > 4 { line.dashed_by_style() } else { Line { dots, ..line } }
            })
            .collect();
        let x = Axis::rates(1e4, 360).unwrap().labelled("operations/s");
        let y = Axis::times(lines.iter().flat_map(Line::values)).unwrap();
        let mut plot = Plot::new("Response time & more, READ", (360, 260), x, y).with_lines(lines);
        plot.shade = Some(0.0..500.0);
        plot.uprights = vec![Upright { x: 7e3, style: Some(1), label: "70 %".to_owned() }];
        plot.bars = vec![Bar { x: 8.5e3..9e3, y: (1e5, 5e5), spread: (4e5, 6e5), style: 2 }];
        plot.heat = Some(Heat { columns: vec![Column { x: 1e3..2e3, levels: vec![(56, 10), (57, 1)] }] });
        plot
    }

    #[test]
    fn only_a_file_has_title_and_legend() {
        let (file, inline) = (whole().svg_file().unwrap(), whole().inline_svg().unwrap());
        for svg in [&file, &inline] {
            assert!(
                svg.starts_with("<svg role=\"img\" aria-label=\"Response time &amp; more, READ\""),
                "{svg}"
            );
            assert!(svg.contains("<title>Response time &amp; more, READ</title>"));
            assert!(svg.contains("stroke-dasharray=\"12 4\""), "the style's dash");
            assert!(svg.contains("<image ") && svg.contains("data:image/png;base64,"));
        }
        assert!(file.contains("store &lt;6&gt;") && !inline.contains("store &lt;6&gt;"));
        assert!(file.contains("width=\"360\""), "{}", &file[..300]);
    }

    #[test]
    fn a_png_is_twice_the_size_and_has_the_colours_of_its_lines() {
        let png = whole().png_file().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.color_type), (720, png::ColorType::Rgb));
        assert!(info.height > 520, "{}", info.height);
        for style in 1..=6 {
            let plotters::style::RGBColor(r, g, b) = palette::colour(style);
            let there = pixels.chunks(3).filter(|pixel| **pixel == [r, g, b]).count();
            assert!(there > 40, "style {style} is on {there} pixels");
        }
    }
}
