//! A comparison as a table for people, at most [`WIDTH`] columns wide.

use crate::{
    RUNS_MIN,
    document::{
        Comparison, MetricComparison, MetricKind, MetricVerdict, OverallVerdict, PointComparison, least_runs,
        metrics,
    },
};
use anstyle::Style;
use serval_report::{
    terminal::{Styles, WIDTH, line, wrapped},
    text::printable,
    units::{count, digits, percentile, plural, rate, time},
};

/// Characters of an operation's name in the table.
const NAME_MAX: usize = 15;
/// Characters of an operation's name in sentences.
const LONG_NAME_MAX: usize = 40;
/// Characters of what a side was given as.
const GIVEN_MAX: usize = 200;

fn what(kind: MetricKind) -> String {
    match (kind, kind.percentile()) {
        (_, Some(of)) => percentile(of),
        (MetricKind::Throughput, _) => "throughput".to_owned(),
        (MetricKind::FailedShare, _) => "share failed".to_owned(),
        (..) => "mean".to_owned(),
    }
}

fn name(metric: &MetricComparison, max: usize) -> String {
    let what = what(metric.metric.kind);
    match &metric.metric.operation {
        Some(operation) => format!("{} {what}", printable(operation, max)),
        None => what,
    }
}

/// `READ p99`, `READ p99 (service)`.
pub(crate) fn full_name(metric: &MetricComparison) -> String {
    let service = if metric.metric.kind.is_service() { " (service)" } else { "" };
    format!("{}{service}", name(metric, LONG_NAME_MAX))
}

/// A value in its unit.
pub(crate) fn value(kind: MetricKind, value: f64) -> String {
    match kind {
        MetricKind::Throughput => rate(value),
        MetricKind::FailedShare => format!("{} %", short(value * 100.0)),
        _ => time(value),
    }
}

/// Three digits that matter, in at most six characters up to a million.
fn short(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "–".to_owned(),
        // Less than one in a hundred million is of the arithmetic.
        v if v < 0.000_001 => "0".to_owned(),
        v if v < 0.000_95 => format!("{value:.0e}"),
        v if v < 0.0995 => format!("{value:.3}"),
        v if v >= 99_999.5 => format!("{value:.0e}"),
        _ => digits(value),
    }
}

/// A share in percent, without digits that say nothing: `95`, `99.5`.
pub(crate) fn level(share: f64) -> f64 {
    (share * 1e5).round() / 1e3
}

/// From this change on (+900 %) the factor is shown instead.
const FACTOR_FROM: f64 = 9.0;

/// A signed number of percent, or of shares a difference in points; `×12.5` for what is
/// ten times and more.
fn signed(value: f64) -> String {
    if value >= FACTOR_FROM {
        return format!("×{}", short(value + 1.0));
    }
    let text = short(value.abs() * 100.0);
    match text.as_str() {
        "0" => text,
        _ if value < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// [`signed`] with its unit.
fn with_unit(value: f64, unit: &str) -> String {
    let text = signed(value);
    if text.starts_with('×') { text } else { format!("{text} {unit}") }
}

/// `+3.10 %`, of shares `+0.2 points`.
pub(crate) fn change(kind: MetricKind, value: f64) -> String {
    with_unit(value, if kind.is_relative() { "%" } else { "points" })
}

/// `−1.2 … +3.4 %`.
pub(crate) fn interval(metric: &MetricComparison) -> String {
    match (metric.low, metric.high) {
        (Some(low), Some(high)) => format!("{} … {}", signed(low), signed(high)),
        _ => "–".to_owned(),
    }
}

/// A size without sign, in percent.
pub(crate) fn size(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| match value {
        value if value >= FACTOR_FROM => format!("×{}", short(value + 1.0)),
        value => short(value * 100.0),
    })
}

/// What the verdict says, and how the table marks it.
fn verdict(metric: &MetricComparison, styles: &Styles) -> (String, Style) {
    let words = metric.verdict.words().to_owned();
    match metric.verdict {
        MetricVerdict::Worse => (words.to_uppercase(), styles.warning),
        MetricVerdict::Better => (words.to_uppercase(), styles.heading),
        MetricVerdict::WithinNoise | MetricVerdict::BelowThreshold => (words, Style::new()),
        MetricVerdict::NoDifference | MetricVerdict::Inconclusive => (words, styles.dim),
    }
}

/// The table.
pub fn table(comparison: &Comparison, styles: &Styles) -> String {
    let mut text = String::new();
    let worse = matches!(comparison.verdict, OverallVerdict::Worse | OverallVerdict::Inconclusive);
    wrapped(&mut text, "", &comparison.sentence, if worse { styles.warning } else { styles.headline });
    for (name, given) in [("A", &comparison.a), ("B", &comparison.b)] {
        wrapped(&mut text, &format!("{name}: "), &printable(given, GIVEN_MAX), styles.dim);
    }
    if !comparison.setup.is_empty() {
        text.push('\n');
        line(&mut text, "The set-up differs:", styles.warning);
        for difference in &comparison.setup {
            let words = format!("{}: {} in A, {} in B", difference.what, difference.a, difference.b);
            wrapped(&mut text, "  ", &words, styles.warning);
        }
    }
    if !comparison.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &comparison.warnings {
        wrapped(&mut text, "! ", &printable(warning, 1_000), styles.warning);
    }
    for point in &comparison.points {
        point_table(&mut text, point, comparison, styles);
    }
    text.push('\n');
    for note in notes(comparison) {
        wrapped(&mut text, "", &note, styles.dim);
    }
    text
}

/// What the columns are.
pub(crate) fn notes(comparison: &Comparison) -> Vec<String> {
    let all = || metrics(&comparison.points).map(|(_, metric)| metric);
    let tested = all().filter(|metric| metric.p_adjusted.is_some()).count();
    let mut notes = vec![format!(
        "A and B are geometric means over runs of what each run has. Change is from A to B, with its interval ({} %, for \
         the metric alone); of the share failed it is in points. Noise is what single runs of one side differ by. Least \
         is the smallest change that would have been found 4 times in 5. Both are in percent.",
        level(1.0 - comparison.alpha)
    )];
    if tested > 0 {
        notes.push(format!(
            "The chance of any false alarm in {tested} metrics together is at most {} %. 'No difference' is not proof of none: \
             see least.",
            level(comparison.alpha)
        ));
    }
    let has = |verdict| all().any(|metric| metric.verdict == verdict);
    if has(MetricVerdict::WithinNoise) {
        notes.push(
            "'Within noise': more than chance makes of means, but no more than single runs of one side differ by.".into(),
        );
    }
    if has(MetricVerdict::BelowThreshold) {
        let threshold = level(comparison.threshold);
        notes.push(format!(
            "'Ignored': more than chance and noise, but no more than the threshold of {threshold} %."
        ));
    }
    if has(MetricVerdict::Inconclusive) {
        notes.push(format!("'Inconclusive': fewer than {RUNS_MIN} runs on a side; repeat the runs."));
        // One run has no interval.
        if let runs @ 2..RUNS_MIN = least_runs(&comparison.points) {
            notes.push(format!(
                "Intervals of {} a side are wide: so few say little of how much runs differ.",
                plural(runs as u64, "run")
            ));
        }
    }
    notes
}

/// `5 runs a side`, `7 runs in A, 5 in B`.
pub(crate) fn of_sides(a: usize, b: usize, what: &str) -> String {
    let of_a = plural(a as u64, what);
    if a == b { format!("{of_a} a side") } else { format!("{of_a} in A, {} in B", count(b as u64)) }
}

/// The runs of a point, by side.
pub(crate) fn runs(point: &PointComparison) -> String {
    of_sides(point.runs_a.len(), point.runs_b.len(), "run")
}

/// The parts of a point's table: its title and which metrics are in it.
pub(crate) fn parts(point: &PointComparison) -> Vec<(&'static str, Vec<&MetricComparison>)> {
    let part = |of: fn(&MetricComparison) -> bool| point.metrics.iter().filter(|metric| of(metric)).collect();
    let parts: [(_, Vec<_>); 3] = [
        ("RUN", part(|metric| metric.metric.operation.is_none())),
        ("RESPONSE TIME", part(|m| m.metric.operation.is_some() && !m.metric.kind.is_service())),
        ("SERVICE TIME", part(|m| m.metric.kind.is_service())),
    ];
    parts.into_iter().filter(|(_, metrics)| !metrics.is_empty()).collect()
}

fn point_table(text: &mut String, point: &PointComparison, comparison: &Comparison, styles: &Styles) {
    text.push('\n');
    let title = match point.name.as_str() {
        "" => runs(point),
        name => format!("{name}; {}", runs(point)),
    };
    wrapped(text, "", &title, styles.headline);
    let name_max = if styles.cuts { NAME_MAX } else { usize::MAX };
    let width = point.metrics.iter().map(|m| name(m, name_max).chars().count()).max().unwrap_or(0).max(13);
    for (title, metrics) in parts(point) {
        let head = format!(
            "{title:width$} {:>8} {:>8} {:>9} {:>19} {:>6} {:>6} ",
            "A",
            "B",
            "change",
            format!("{} % interval", level(1.0 - comparison.alpha)),
            "noise",
            "least"
        );
        text.push('\n');
        line(text, &head, styles.heading);
        for metric in metrics {
            let kind = metric.metric.kind;
            let unit = if kind.is_relative() { "%" } else { "pt" };
            let (words, style) = verdict(metric, styles);
            let cells = format!(
                "{:width$} {:>8} {:>8} {:>9} {:>19} {:>6} {:>6}  {style}{words}{style:#}",
                name(metric, name_max),
                value(kind, metric.a),
                value(kind, metric.b),
                with_unit(metric.change, unit),
                interval(metric),
                size(metric.noise),
                size(metric.detectable),
            );
            line(text, &cells, Style::new());
        }
    }
}

const _: () = assert!(NAME_MAX + 1 + 6 + 8 + 8 + 9 + 19 + 6 + 6 + 8 + 13 <= WIDTH);
