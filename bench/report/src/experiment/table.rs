//! The table of all points.

use super::{
    load::{LoadTimes, Point, Spread},
    summary::{keeps, saturates},
    view::{CurveView, View},
};
use crate::{
    html::parts::{Table, explained, heading, small},
    text::escape,
    units::{count, plural, rate, time},
};

/// A cell with a number, and its spread below it.
fn cell(spread: Spread, write: fn(f64) -> String) -> String {
    let Spread { value, low, high } = spread;
    // Never break a line between a number and its unit.
    let [value, low, high] = [value, low, high].map(|number| write(number).replace(' ', "\u{a0}"));
    let span = match (low.split_once('\u{a0}'), high.split_once('\u{a0}')) {
        _ if low == high => String::new(),
        // A common unit is said once.
        (Some((number, unit)), Some((_, other))) if unit == other => small(&format!("{number} to {high}")),
        _ => small(&format!("{low} to {high}")),
    };
    value + &span
}

/// Cells of times.
fn times(times: Option<&LoadTimes>) -> [String; 6] {
    let Some(times) = times else { return ["–"; 6].map(str::to_owned) };
    let [mean, p50, p95, p99, p999] =
        [times.mean, times.p50, times.p95, times.p99, times.p999].map(|s| cell(s, time));
    [mean, p50, p95, p99, p999, time(times.max_ns as f64)]
}

pub(super) fn points(page: &mut String, view: &View<'_>) {
    page.push_str("<h2>All points</h2>\n");
    for curve in &view.curves {
        heading(page, &curve.name);
        let words: Vec<String> =
            curve.saturation.map(saturates).into_iter().chain(curve.highest.map(keeps)).collect();
        explained(page, &words.join(" "));
        let mut table = Table::numbers(
            "<offered | done/s | <operation | count | failed | < | mean | p50 | p95 | p99 | p99.9 | max",
        );
        table.class = "numbers points";
        for point in &curve.results.points {
            rows(&mut table, curve, point);
        }
        table.write(page);
    }
    explained(
        page,
        "Percentiles come from the merged times of all repeats: percentiles cannot be averaged. Below a number: its minimum \
         and maximum over the repeats. Response time: from the intended start to the end, what a user waits. \
         Service time: from the actual start to the end, what the store takes.",
    );
}

/// A row for each operation of a point, or two where response and service times differ.
fn rows(table: &mut Table, curve: &CurveView<'_>, point: &Point) {
    for (nth, metric) in point.metrics.iter().enumerate() {
        let two = metric.response != metric.service;
        let (name, done) = match nth {
            0 => (name(curve, point), cell(point.throughput, rate)),
            _ => Default::default(),
        };
        let class = match (nth, two) {
            (0, true) => "first begin",
            (0, false) => "begin",
            (_, true) => "first",
            (_, false) => "",
        };
        let counts = [count(metric.count), count(metric.failed)];
        let first = [name, done, escape(&metric.name)].into_iter().chain(counts);
        let response = first.chain(["response".to_owned()]).chain(times(metric.response.as_ref()));
        table.row_of(class, response);
        if two {
            let first = ["", "", "", "", "", "service"].map(str::to_owned);
            table.row_of("service", first.into_iter().chain(times(metric.service.as_ref())));
        }
    }
}

/// The first cell of a point: name, clients, repeats and flags.
fn name(curve: &CurveView<'_>, point: &Point) -> String {
    let at = curve.at.map_or(String::new(), |(at, _)| format!("{at}: "));
    let clients = point.target.map_or(String::new(), |_| format!("{}, ", plural(point.clients, "client")));
    let repeats = small(&format!("{clients}{}", plural(point.repeats, "repeat")));
    let flags = match point.flag_words().join(", ") {
        none if none.is_empty() => none,
        flags => format!("<small class=\"flag\">{flags}</small>"),
    };
    format!("{}{repeats}{flags}", escape(at + &point.load()))
}
