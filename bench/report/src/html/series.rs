//! The series of a run over time.

use super::{
    by_count,
    parts::{explained, figure},
};
use crate::{
    plot::{
        Line, Plot, chunk_of,
        timeline::{Piece, TimePlots, Timeline},
    },
    sums::{sum, sums},
};
use serval_result::{
    document::{IntervalMetric, IntervalSummary, IntervalTimes, MetricResult, ResultDocument, parse_levels},
    metric::is_beside,
};
use std::fmt::Write as _;

/// Largest number of operations with plots of their own; the CSV has all.
pub(super) const PLOTTED_MAX: usize = 6;

/// Height of plots of series.
pub(crate) const HEIGHT: u32 = 240;

/// Adjacent intervals merged into one point of a line.
pub(crate) struct Chunk<'a> {
    intervals: &'a [IntervalSummary],
    /// Index of the first interval in its series.
    first: usize,
}

/// The series without a short last interval: it holds the closing of the clients and the wait for
/// operations in flight.
pub(crate) fn without_end(series: &[IntervalSummary]) -> &[IntervalSummary] {
    match series {
        [rest @ .., end] if !rest.is_empty() && end.length_s < 0.2 * rest[0].length_s => rest,
        all => all,
    }
}

/// Plots of a run over time, with names for their files.
pub(super) fn plots(document: &ResultDocument) -> Vec<(String, Plot)> {
    let series = without_end(&document.series);
    let timeline = Timeline::of_series(&[(0.0, series)]);
    let Some(mut axis) = TimePlots::new(timeline.end(), HEIGHT) else { return Vec::new() };
    let warm_up = series.iter().filter(|interval| interval.warm_up).map(|i| i.start_s + i.length_s);
    axis.shade = warm_up.reduce(f64::max).map(|end| 0.0..end);
    // CLEANUP happens once, at the end.
    let plotted: Vec<&MetricResult> =
        by_count(document).into_iter().filter(|metric| metric.name != "CLEANUP").take(PLOTTED_MAX).collect();
    let mut plots = Vec::new();
    let mut add = |name: String, plot: Option<Plot>| plots.extend(plot.map(|plot| (name, plot)));
    add(
        "throughput".to_owned(),
        axis.rates("Operations a second", throughput(&timeline, document, &plotted)),
    );
    for MetricResult { name, .. } in &plotted {
        let mut times = timeline.response_times(name);
        times.extend(timeline.is_paced().then(|| timeline.lateness()));
        add(format!("times {name}"), axis.times(format!("Response time, {name}"), times));
        let columns = timeline.columns(|piece| {
            let intervals = piece.measured.intervals.iter();
            let metrics = intervals.filter_map(|interval| interval.metrics.get(name));
            sums(metrics.flat_map(|metric| parse_levels(&metric.levels))).into_iter().collect()
        });
        add(format!("heat map {name}"), axis.heat(format!("Response time, {name}, as heat map"), columns));
    }
    if document.overall.failed > 0 {
        let lines = plotted.iter().zip([4, 2, 1, 3, 5, 6]).map(|(metric, style)| {
            timeline.rate_of(&metric.name, style, |metric| metric.failed).dashed_by_style()
        });
        let lines = lines.filter(|line| line.values().any(|v| v > 0.0)).collect();
        add("failures".to_owned(), axis.rates("Failures a second", lines));
    }
    plots
}

/// Operations a second: all, those of each operation, and the offered load.
fn throughput(
    timeline: &Timeline<Chunk<'_>>,
    document: &ResultDocument,
    plotted: &[&MetricResult],
) -> Vec<Line> {
    let mut lines = vec![timeline.operations()];
    if plotted.len() > 1 {
        let of = |(metric, style): (&&MetricResult, usize)| {
            timeline.rate_of(&metric.name, style, ended).dashed_by_style()
        };
        lines.extend(plotted.iter().zip(2..).map(of));
    }
    let constant = || {
        let target = document.pacing.as_ref()?.target;
        let ends = [0.0, timeline.end()].map(|x| (x, Some(target)));
        Some(Line::new(OFFERED, 1, ends.into_iter()).dashed())
    };
    lines.extend(timeline.offered().or_else(constant));
    lines
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
    let chunk = chunk_of(without_end(&document.series).len());
    if chunk > 1 {
        let _ = write!(
            words,
            "Every point of a plot stands for {chunk} intervals: the mean of their rates, the highest of their times."
        );
    }
    explained(page, words.trim_end());
}

/// Explains heat maps.
pub(crate) const HEAT_WORDS: &str = "Heat maps: a column is one or more intervals; the stronger a cell's colour, the \
    larger the share of its column's operations that took this long. The faintest cell may be a single operation.";

/// Label of the line of the offered load.
const OFFERED: &str = "offered";

impl<'a> Timeline<Chunk<'a>> {
    /// The timeline of several series, given as pairs of start (in seconds) and intervals.
    pub(crate) fn of_series(series: &[(f64, &'a [IntervalSummary])]) -> Self {
        let chunk = chunk_of(series.iter().map(|(_, intervals)| intervals.len()).sum());
        let pieces = series.iter().enumerate().flat_map(|(segment, &(zero, intervals))| {
            intervals.chunks(chunk).enumerate().map(move |(nth, intervals)| {
                let (first, last) = (&intervals[0], &intervals[intervals.len() - 1]);
                let time = zero + first.start_s..zero + last.start_s + last.length_s;
                Piece { segment, time, measured: Chunk { intervals, first: nth * chunk } }
            })
        });
        Timeline { pieces: pieces.collect(), stretched: false }
    }

    /// A line of a number a second.
    fn rate(&self, label: &str, style: usize, number: impl Fn(&IntervalSummary) -> f64) -> Line {
        self.line(label, style, |piece| per_second(piece.measured.intervals, &number))
    }

    /// A line of a number of an operation a second.
    fn rate_of(&self, operation: &str, style: usize, number: fn(&IntervalMetric) -> u64) -> Line {
        self.rate(operation, style, |interval| {
            interval.metrics.get(operation).map_or(0.0, |metric| number(metric) as f64)
        })
    }

    /// Operations a second.
    pub(crate) fn operations(&self) -> Line {
        self.rate("all operations", 1, all_operations)
    }

    /// Whether any interval has an offered load.
    fn is_paced(&self) -> bool {
        self.pieces.iter().any(|piece| piece.measured.intervals.iter().any(|i| i.pacing.is_some()))
    }

    /// The offered load, if there is one.
    pub(crate) fn offered(&self) -> Option<Line> {
        let due = |interval: &IntervalSummary| interval.pacing.map_or(0.0, |pacing| pacing.due);
        let line = self.line(OFFERED, 1, |piece| {
            let intervals = piece.measured.intervals;
            intervals[0].pacing.and_then(|_| per_second(intervals, due))
        });
        self.is_paced().then(|| line.dashed())
    }

    /// A line of the highest value of each piece, in ns.
    fn highest(&self, label: &str, style: usize, ns: impl Fn(&IntervalSummary) -> Option<u64>) -> Line {
        self.line(label, style, |piece| {
            piece.measured.intervals.iter().filter_map(&ns).max().map(|ns| ns.max(1) as f64)
        })
    }

    /// Lines of an operation's response times; the median is the last, so that it lies on top.
    pub(crate) fn response_times(&self, operation: &str) -> Vec<Line> {
        let line = |label, style, ns: fn(&IntervalTimes) -> u64| {
            self.highest(label, style, |interval| {
                let metric = interval.metrics.get(operation).filter(|metric| metric.ok > 0)?;
                Some(ns(&metric.response))
            })
        };
        vec![
            line("max", 4, |times| times.max_ns),
            line("p99", 3, |times| times.p99_ns),
            line("p95", 2, |times| times.p95_ns),
            line("p50", 1, |times| times.p50_ns),
        ]
    }

    /// The p99 of how late operations started; not recorded during the warm-up.
    fn lateness(&self) -> Line {
        let line = self.highest("lateness, p99", 5, |interval| {
            let lateness = interval.pacing?.lateness;
            (lateness.max_ns > 0).then_some(lateness.p99_ns)
        });
        line.dashed()
    }

    /// A line of a client process's rates; `rates` returns those of a segment's intervals.
    pub(crate) fn process<'r>(
        &self,
        label: &str,
        style: usize,
        rates: impl Fn(usize) -> Option<&'r [f64]>,
    ) -> Line {
        let line = self.line(label, style, |piece| {
            let (all, Chunk { intervals, first }) = (rates(piece.segment)?, &piece.measured);
            let rates = all.get(*first..(first + intervals.len()).min(all.len()))?;
            (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
        });
        line.dashed_by_style()
    }
}

fn per_second(chunk: &[IntervalSummary], number: impl Fn(&IntervalSummary) -> f64) -> Option<f64> {
    let seconds: f64 = chunk.iter().map(|i| i.length_s).sum();
    (seconds > 0.0).then(|| chunk.iter().map(number).sum::<f64>() / seconds)
}

/// Operations that ended in an interval. A read-modify-write counts once, though its read and its
/// update have metrics too. Metrics beside the workload (CLEANUP, VERIFY) do not count.
pub(crate) fn all_operations(interval: &IntervalSummary) -> f64 {
    let of = |name: &str| interval.metrics.get(name).map_or(0, ended);
    let verbs = sum(["READ", "UPDATE", "INSERT", "SCAN", "DELETE", "INSERT-BATCH"].map(of));
    if verbs > 0 {
        return verbs.saturating_sub(of("READ-MODIFY-WRITE")) as f64;
    }
    interval.metrics.iter().filter(|(name, _)| !is_beside(name)).map(|(_, m)| ended(m) as f64).sum()
}

fn ended(metric: &IntervalMetric) -> u64 {
    metric.ok.saturating_add(metric.failed)
}
