//! A comparison as Markdown, for a pull request: the verdict in a line, what
//! changed in a table, the rest folded away.

use crate::{
    document::{Comparison, MetricComparison, MetricVerdict, OverallVerdict, metrics},
    table::{change, full_name, interval, level, notes, runs, size, value},
};
use serval_report::text::printable;
use std::fmt::Write as _;

/// Text that Markdown and HTML take for nothing else.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text, 1_000).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn rows<'a>(
    out: &mut String,
    comparison: &Comparison,
    rows: impl Iterator<Item = (&'a str, &'a MetricComparison)>,
) {
    let with_point = comparison.points.iter().any(|point| !point.name.is_empty());
    let (head, rule) = if with_point { ("| point ", "|---") } else { ("", "") };
    let level = level(1.0 - comparison.alpha);
    let _ = writeln!(
        out,
        "{head}| metric | A | B | change | {level} % interval | noise, % | least, % | p, adjusted | verdict |\n{rule}|---|---:|---:|---:|---:|---:|---:|---:|---|"
    );
    for (point, metric) in rows {
        let kind = metric.metric.kind;
        let marked = match metric.verdict {
            MetricVerdict::Worse | MetricVerdict::Better => format!("**{}**", metric.verdict.words()),
            other => other.words().to_owned(),
        };
        let point = if with_point { format!("| {} ", escaped(point)) } else { String::new() };
        let p = match metric.p_adjusted {
            Some(p) if p < 0.0001 => "< 0.0001".to_owned(),
            Some(p) => format!("{p:.4}"),
            None => "–".to_owned(),
        };
        let _ = writeln!(
            out,
            "{point}| {} | {} | {} | {} | {} | {} | {} | {p} | {marked} |",
            escaped(&full_name(metric)),
            value(kind, metric.a),
            value(kind, metric.b),
            change(kind, metric.change),
            interval(metric),
            size(metric.noise),
            size(metric.detectable),
        );
    }
}

/// The Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    let mark = match comparison.verdict {
        OverallVerdict::Worse => "❌",
        OverallVerdict::Inconclusive => "❔",
        OverallVerdict::Better | OverallVerdict::NoDifference => "✅",
    };
    let mut out = format!("{mark} **serval compare: {}**\n", escaped(&comparison.sentence));
    let all = || metrics(&comparison.points);
    if !comparison.setup.is_empty() {
        out.push_str("\nThe set-up differs:\n\n| | A | B |\n|---|---|---|\n");
        for difference in &comparison.setup {
            let (what, a, b) = (&difference.what, &difference.a, &difference.b);
            let _ = writeln!(out, "| {} | {} | {} |", escaped(what), escaped(a), escaped(b));
        }
    }
    if !comparison.warnings.is_empty() {
        out.push('\n');
    }
    for warning in &comparison.warnings {
        let _ = writeln!(out, "* {}", escaped(warning));
    }
    let changed =
        |metric: &MetricComparison| matches!(metric.verdict, MetricVerdict::Worse | MetricVerdict::Better);
    if all().any(|(_, metric)| changed(metric)) {
        out.push('\n');
        rows(&mut out, comparison, all().filter(|(_, metric)| changed(metric)));
    }
    let number = all().count();
    let _ = writeln!(out, "\n<details><summary>All {number} metrics</summary>\n");
    for (name, given) in [("A", &comparison.a), ("B", &comparison.b)] {
        let _ = writeln!(out, "* {name}: {}", escaped(given));
    }
    for point in &comparison.points {
        let name = if point.name.is_empty() { String::new() } else { format!("{}: ", escaped(&point.name)) };
        let _ = writeln!(out, "* {name}{}", runs(point));
    }
    out.push('\n');
    rows(&mut out, comparison, all());
    for note in notes(comparison) {
        let _ = writeln!(out, "\n{}", escaped(&note));
    }
    out.push_str("\n</details>\n");
    out
}
