//! Several client processes that made one result: what each did.

use crate::{
    html::{parts::figure, series::HEIGHT},
    plot::{
        Plot,
        timeline::{TimePlots, Timeline},
    },
    terminal::{Styles, line, wrapped},
    text::{escape, printable},
    units::{count, rate, time},
};
use serval_result::{
    document::{IntervalSummary, Latency},
    group::{GroupClient, GroupResult},
};
use std::fmt::Write as _;

/// Processes that have a curve of their own; all are in the table.
const CURVES_MAX: usize = 12;

/// Processes that a summary lists.
const LISTED_MAX: usize = 20;

/// What people call it.
fn name(client: &GroupClient) -> String {
    format!("{} on {} (process {})", client.share, printable(&client.host, 40), client.process)
}

fn quantile(latency: Option<&Latency>, p: f64) -> String {
    latency.and_then(|latency| latency.percentile(p)).map_or("–".to_owned(), |ns| time(ns as f64))
}

/// How exactly they began together, in words.
fn together(group: &GroupResult) -> Option<String> {
    let (skew, error) = (group.start_skew_ns?, group.clock_error_ns?);
    Some(format!(
        "The processes started within {} of each other (clock error up to {}).",
        time(skew as f64),
        time(error as f64)
    ))
}

/// A line a process.
pub(crate) fn summary(text: &mut String, group: &GroupResult, styles: &Styles) {
    let shown = &group.clients[..group.clients.len().min(LISTED_MAX)];
    let names: Vec<String> = shown.iter().map(name).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("PROCESS".len());
    text.push('\n');
    let head = format!(
        "{:width$} {:>10} {:>8} {:>7} {:>7} {:>7} {:>8}",
        "PROCESS", "count", "/s", "failed", "p50", "p99", "late p99"
    );
    line(text, &head, styles.heading);
    for (client, name) in shown.iter().zip(&names) {
        let cells = format!(
            "{name:width$} {:>10} {:>8} {:>7} {:>7} {:>7} {:>8}",
            count(client.operations),
            rate(client.throughput),
            count(client.failed),
            quantile(client.response.as_ref(), 50.0),
            quantile(client.response.as_ref(), 99.0),
            quantile(client.lateness.as_ref(), 99.0),
        );
        line(text, &cells, anstyle::Style::new());
    }
    if group.clients.len() > shown.len() {
        line(text, &format!("and {} more", group.clients.len() - shown.len()), styles.dim);
    }
    if let Some(words) = together(group) {
        wrapped(text, "", &words, styles.dim);
    }
}

/// Operations a second of each process.
pub(crate) fn plot(group: &GroupResult, series: &[IntervalSummary]) -> Option<Plot> {
    let timeline = Timeline::of_series(&[(0.0, series)]);
    let lines = group.clients.iter().take(CURVES_MAX).zip(1..);
    let lines = lines.map(|(client, style)| timeline.process(&client.share, style, |_| Some(&client.rates)));
    TimePlots::new(timeline.end(), HEIGHT)?.rates("Operations a second, of each process", lines.collect())
}

/// The section of a page.
pub(crate) fn section(page: &mut String, group: &GroupResult, series: &[IntervalSummary]) {
    page.push_str(
        "<h2>Client processes</h2>\n<div class=\"card scroll\">\n<table class=\"numbers\">\n<thead><tr><th class=\"text\">process</th>\
         <th class=\"text\">host</th><th>clients</th><th>operations</th><th>/s</th><th>failed</th><th>p50</th><th>p99</th>\
         <th>late p99</th><th>CPU</th></tr></thead>\n<tbody>\n",
    );
    for client in &group.clients {
        let cpu = client.load.as_ref().map_or("–".to_owned(), |load| time(load.usage.cpu_s * 1e9));
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{cpu}</td></tr>",
            escape(&client.share),
            escape(format!("{} (process {})", printable(&client.host, 60), client.process)),
            count(client.clients),
            count(client.operations),
            rate(client.throughput),
            count(client.failed),
            quantile(client.response.as_ref(), 50.0),
            quantile(client.response.as_ref(), 99.0),
            quantile(client.lateness.as_ref(), 99.0),
        );
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    if let Some(words) = together(group) {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(words));
    }
    if let Some(plot) = plot(group, series) {
        figure(page, &plot, true);
    }
}
