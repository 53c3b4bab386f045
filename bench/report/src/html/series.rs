//! The course of a run.

use super::{by_count, parts::figure};
use crate::{
    plot::{Axis, Column, Heat, Line, POINTS_MAX, Plot},
    text::escape,
};
use serval_result::{
    document::{IntervalMetric, IntervalSummary, IntervalTimes, MetricResult, ResultDocument, parse_levels},
    metric::is_beside,
};
use std::{collections::BTreeMap, fmt::Write as _, ops::Range};

/// Operations that get plots of their own; the CSV has all.
pub(super) const PLOTTED_MAX: usize = 6;

/// Width and height of plots over time.
const SIZE: (u32, u32) = (1040, 240);

/// The series, in chunks if it is long.
struct Series<'a> {
    chunks: Vec<&'a [IntervalSummary]>,
    chunk: usize,
    seconds: f64,
    warm_up: Option<Range<f64>>,
}

/// A run ends with the closing of its clients, which is no second of it, nor
/// is the time that what was in flight was given.
pub(crate) fn without_end(series: &[IntervalSummary]) -> &[IntervalSummary] {
    match series {
        [rest @ .., end] if !rest.is_empty() && end.length_s < 0.2 * rest[0].length_s => rest,
        all => all,
    }
}

/// Plots of a run over time, each with the name of its file.
pub(super) fn plots(document: &ResultDocument) -> Vec<(String, Plot)> {
    let Some(series) = Series::new(&document.series) else { return Vec::new() };
    // Closing happens once, at the end: there is no course of it to show.
    let plotted: Vec<&MetricResult> =
        by_count(document).into_iter().filter(|metric| metric.name != "CLEANUP").take(PLOTTED_MAX).collect();
    let mut plots = Vec::new();
    let mut add = |name: String, plot: Option<Plot>| plots.extend(plot.map(|plot| (name, plot)));
    add("throughput".to_owned(), series.throughput(document, &plotted));
    for metric in &plotted {
        add(format!("times {}", metric.name), series.latency(metric));
        add(format!("heat map {}", metric.name), series.heat(metric));
    }
    if document.overall.failed > 0 {
        add("failures".to_owned(), series.failures(&plotted));
    }
    plots
}

/// The section of a page.
pub(super) fn section(page: &mut String, document: &ResultDocument) {
    let plots = plots(document);
    if plots.is_empty() {
        return;
    }
    page.push_str("<h2>Over time</h2>\n");
    for (_, plot) in &plots {
        figure(page, plot, true);
    }
    let mut words = String::new();
    if plots.iter().any(|(_, plot)| plot.shade.is_some()) {
        words.push_str("Grey: warm-up. ");
    }
    if plots.iter().any(|(_, plot)| plot.heat.is_some()) {
        words.push_str(HEAT_WORDS);
        words.push(' ');
    }
    if let Some(series) = Series::new(&document.series).filter(|series| series.chunk > 1) {
        let _ = write!(
            words,
            "Every point of a plot stands for {} intervals: the mean of their rates, the highest of their times.",
            series.chunk
        );
    }
    if !words.is_empty() {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(words.trim_end()));
    }
}

/// What a heat map shows.
pub(crate) const HEAT_WORDS: &str = "Heat maps: a column is an interval, or some of them; the stronger a cell, the larger \
    the share of its operations that took so long. The faintest may be a single one.";

impl<'a> Series<'a> {
    fn new(series: &'a [IntervalSummary]) -> Option<Self> {
        let series = without_end(series);
        let last = series.last()?;
        let chunk = series.len().div_ceil(POINTS_MAX);
        let warm_up = series.iter().filter(|interval| interval.warm_up).map(|i| i.start_s + i.length_s);
        Some(Series {
            chunks: series.chunks(chunk).collect(),
            chunk,
            seconds: last.start_s + last.length_s,
            warm_up: warm_up.reduce(f64::max).map(|end| 0.0..end),
        })
    }

    /// A line of values of chunks, each in its middle.
    fn line(&self, label: &str, style: usize, value: impl Fn(&[IntervalSummary]) -> Option<f64>) -> Line {
        let points = self.chunks.iter().map(|chunk| {
            let (first, last) = (&chunk[0], &chunk[chunk.len() - 1]);
            ((first.start_s + last.start_s + last.length_s) / 2.0, value(chunk))
        });
        Line::new(label, style, points)
    }

    fn plot(&self, title: String, y: Axis, lines: Vec<Line>) -> Option<Plot> {
        let x = Axis::seconds(self.seconds, SIZE.0)?;
        let plot = Plot::new(title, SIZE, x, y).with_lines(lines);
        Some(Plot { shade: self.warm_up.clone(), ..plot })
    }

    fn rates(&self, title: &str, lines: Vec<Line>) -> Option<Plot> {
        let y = Axis::rates(lines.iter().flat_map(Line::values).fold(0.0, f64::max), 6 * 90)?;
        self.plot(title.to_owned(), y, lines)
    }

    fn throughput(&self, document: &ResultDocument, plotted: &[&MetricResult]) -> Option<Plot> {
        let mut lines = vec![self.line("all operations", 1, |chunk| per_second(chunk, &all_operations))];
        if plotted.len() > 1 {
            for (metric, style) in plotted.iter().zip(2..) {
                let of = |interval: &IntervalSummary| {
                    interval.metrics.get(&metric.name).map_or(0.0, |m| ended(m) as f64)
                };
                lines.push(self.line(&metric.name, style, |chunk| per_second(chunk, &of)).dashed_by_style());
            }
        }
        let due = |interval: &IntervalSummary| interval.pacing.map_or(0.0, |pacing| pacing.due);
        if self.chunks.iter().any(|chunk| chunk[0].pacing.is_some()) {
            lines.push(self.line("asked for", 1, |chunk| per_second(chunk, &due)).dashed());
        } else if let Some(pacing) = &document.pacing {
            let ends = [0.0, self.seconds].map(|x| (x, Some(pacing.target)));
            lines.push(Line::new("asked for", 1, ends.into_iter()).dashed());
        }
        self.rates("Operations a second", lines)
    }

    fn failures(&self, plotted: &[&MetricResult]) -> Option<Plot> {
        let lines = plotted.iter().zip([4, 2, 1, 3, 5, 6]).map(|(metric, style)| {
            let failed = |interval: &IntervalSummary| {
                interval.metrics.get(&metric.name).map_or(0.0, |m| m.failed as f64)
            };
            self.line(&metric.name, style, |chunk| per_second(chunk, &failed)).dashed_by_style()
        });
        let lines: Vec<Line> = lines.filter(|line| line.values().any(|v| v > 0.0)).collect();
        self.rates("Failures a second", lines)
    }

    fn latency(&self, metric: &MetricResult) -> Option<Plot> {
        let highest = |chunk: &[IntervalSummary], field: fn(&IntervalSummary, &str) -> Option<u64>| {
            chunk.iter().filter_map(|i| field(i, &metric.name)).max().map(|ns| ns.max(1) as f64)
        };
        // Not measured during the warm-up.
        let late = |i: &IntervalSummary, _: &str| {
            i.pacing.map(|pacing| pacing.lateness).filter(|late| late.max_ns > 0).map(|late| late.p99_ns)
        };
        // The highest first, so that the median lies on top.
        let mut lines = vec![
            self.line("max", 4, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.max_ns))),
            self.line("p99", 3, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.p99_ns))),
            self.line("p95", 2, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.p95_ns))),
            self.line("p50", 1, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.p50_ns))),
        ];
        if self.chunks.iter().any(|chunk| chunk[0].pacing.is_some()) {
            lines.push(self.line("of it waiting to start, p99", 5, |chunk| highest(chunk, late)).dashed());
        }
        let y = Axis::times(lines.iter().flat_map(Line::values))?;
        self.plot(format!("Response time, {}", metric.name), y, lines)
    }

    fn heat(&self, metric: &MetricResult) -> Option<Plot> {
        let columns = self.chunks.iter().map(|chunk| {
            let (first, last) = (&chunk[0], &chunk[chunk.len() - 1]);
            let levels =
                added(chunk.iter().filter_map(|i| Some(i.metrics.get(&metric.name)?.levels.as_str())));
            Column { x: first.start_s..last.start_s + last.length_s, levels }
        });
        let heat = Heat { columns: columns.collect() };
        let y = Axis::times_between(heat.times()?);
        let plot = self.plot(format!("Response time, {}, as heat map", metric.name), y, Vec::new())?;
        Some(plot.with_heat(heat))
    }
}

/// Levels of several intervals together.
pub(crate) fn added<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<(u32, u64)> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (level, count) in texts.flat_map(parse_levels) {
        let sum = sums.entry(level).or_default();
        *sum = sum.saturating_add(count);
    }
    sums.into_iter().collect()
}

fn per_second(chunk: &[IntervalSummary], number: &dyn Fn(&IntervalSummary) -> f64) -> Option<f64> {
    let seconds: f64 = chunk.iter().map(|i| i.length_s).sum();
    (seconds > 0.0).then(|| chunk.iter().map(number).sum::<f64>() / seconds)
}

fn response<'a>(interval: &'a IntervalSummary, name: &str) -> Option<&'a IntervalTimes> {
    interval.metrics.get(name).filter(|metric| metric.ok > 0).map(|metric| &metric.response)
}

/// Operations that ended in an interval. A read-modify-write is one, though
/// its read and its update are counted too; what is no operation of the
/// workload (closing, verifying) is left out.
pub(crate) fn all_operations(interval: &IntervalSummary) -> f64 {
    let of = |name: &str| interval.metrics.get(name).map_or(0, ended);
    let verbs: u64 = ["READ", "UPDATE", "INSERT", "SCAN", "DELETE", "INSERT-BATCH"]
        .into_iter()
        .map(of)
        .fold(0, u64::saturating_add);
    if verbs > 0 {
        return verbs.saturating_sub(of("READ-MODIFY-WRITE")) as f64;
    }
    interval.metrics.iter().filter(|(name, _)| !is_beside(name)).map(|(_, m)| ended(m) as f64).sum()
}

fn ended(metric: &IntervalMetric) -> u64 {
    metric.ok.saturating_add(metric.failed)
}
