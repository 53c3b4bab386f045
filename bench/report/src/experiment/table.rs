//! All points with all numbers.

use super::{
    load::{Point, Spread, Times},
    summary::{keeps, saturates},
    view::{CurveView, View},
};
use crate::{
    text::escape,
    units::{count, plural, rate, time},
};
use std::fmt::Write as _;

/// A number, and below it its spread.
fn cell(spread: Spread, write: fn(f64) -> String) -> String {
    let Spread { value, low, high } = spread;
    // A number and its unit stay in one line.
    let [value, low, high] = [value, low, high].map(|number| write(number).replace(' ', "\u{a0}"));
    let span = match (low.split_once('\u{a0}'), high.split_once('\u{a0}')) {
        _ if low == high => String::new(),
        // A unit that both have stands once.
        (Some((number, unit)), Some((_, other))) if unit == other => {
            format!("<small>{number} to {}</small>", escape(high))
        }
        _ => format!("<small>{} to {}</small>", escape(low), escape(high)),
    };
    format!("<td>{}{span}</td>", escape(value))
}

fn times(times: Option<&Times>) -> String {
    let Some(times) = times else { return "<td>–</td>".repeat(6) };
    let mut cells: String =
        [times.mean, times.p50, times.p95, times.p99, times.p999].map(|s| cell(s, time)).concat();
    let _ = write!(cells, "<td>{}</td>", escape(time(times.max_ns as f64)));
    cells
}

pub(super) fn points(page: &mut String, view: &View<'_>) {
    page.push_str("<h2>All points</h2>\n");
    for curve in &view.curves {
        let mut words: Vec<String> = Vec::new();
        words.extend(curve.saturation.map(saturates));
        words.extend(curve.highest.map(keeps));
        let _ = writeln!(page, "<h3 class=\"above\">{}</h3>", escape(&curve.name));
        if !words.is_empty() {
            let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(words.join(" ")));
        }
        page.push_str(
            "<div class=\"card scroll\">\n<table class=\"numbers points\">\n<thead><tr><th class=\"text\">offered</th>\
             <th>done/s</th><th class=\"text\">operation</th><th>count</th><th>failed</th><th class=\"text\"></th>\
             <th>mean</th><th>p50</th><th>p95</th><th>p99</th><th>p99.9</th><th>max</th></tr></thead>\n<tbody>\n",
        );
        for point in &curve.results.points {
            rows(page, curve, point);
        }
        page.push_str("</tbody>\n</table>\n</div>\n");
    }
    let _ = writeln!(
        page,
        "<p class=\"soft\">{}</p>",
        escape(
            "Percentiles are those of all repeats' times together: the mean of percentiles is no percentile. Below a \
             number stand its least and most over the repeats. Response time: from the intended start to the end, what a \
             user waits. Service time: from the actual start to the end, what the store takes."
        )
    );
}

fn rows(page: &mut String, curve: &CurveView<'_>, point: &Point) {
    let mut first = true;
    for metric in &point.metrics {
        let two = metric.response != metric.service;
        let (name, done) = if first {
            let flags = point.flag_words().join(", ");
            let flags = if flags.is_empty() {
                String::new()
            } else {
                format!("<small class=\"flag\">{flags}</small>")
            };
            let more = match point.target {
                Some(_) => {
                    format!("{}, {}", plural(point.clients, "client"), plural(point.repeats, "repeat"))
                }
                None => plural(point.repeats, "repeat"),
            };
            let at = curve.at.map_or(String::new(), |(at, _)| format!("{at}: "));
            let name = format!("{}<small>{}</small>{flags}", escape(at + &point.load()), escape(more));
            (name, cell(point.throughput, rate))
        } else {
            (String::new(), "<td></td>".to_owned())
        };
        let class = match (first, two) {
            (true, true) => " class=\"first begin\"",
            (true, false) => " class=\"begin\"",
            (false, true) => " class=\"first\"",
            (false, false) => "",
        };
        first = false;
        let _ = writeln!(
            page,
            "<tr{class}><th>{name}</th>{done}<td class=\"text\">{}</td><td>{}</td><td>{}</td><td class=\"text\">response</td>{}</tr>",
            escape(&metric.name),
            count(metric.count),
            count(metric.failed),
            times(metric.response.as_ref())
        );
        if two {
            let _ = writeln!(
                page,
                "<tr class=\"service\"><th></th><td></td><td></td><td></td><td></td><td class=\"text\">service</td>{}</tr>",
                times(metric.service.as_ref())
            );
        }
    }
}
