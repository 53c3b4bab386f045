//! The client processes of a group's result.

use crate::{
    html::{
        parts::{Table, explained, figure},
        series::HEIGHT,
    },
    plot::{
        Plot,
        timeline::{TimePlots, Timeline},
    },
    terminal::{Styles, TextTable, line, wrapped},
    text::{escape, printable},
    times::quantile,
    units::{count, known, rate, time},
};
use serval_result::{
    document::IntervalSummary,
    group::{GroupClient, GroupResult},
};

/// Largest number of processes with lines in the plot; the table has all.
const CURVES_MAX: usize = 12;

/// Largest number of processes that a summary lists.
const LISTED_MAX: usize = 20;

/// The name of a process: its share, host and process id.
fn name(client: &GroupClient) -> String {
    format!("{} on {} (process {})", client.share, printable(&client.host, 40), client.process)
}

/// How closely together the processes started, in words.
fn together(group: &GroupResult) -> Option<String> {
    let (skew, error) = (group.start_skew_ns?, group.clock_error_ns?);
    Some(format!(
        "The processes started within {} of each other (clock error up to {}).",
        time(skew as f64),
        time(error as f64)
    ))
}

/// The table of processes in a summary.
pub(crate) fn summary(text: &mut String, group: &GroupResult, styles: &Styles) {
    let shown = &group.clients[..group.clients.len().min(LISTED_MAX)];
    let names: Vec<String> = shown.iter().map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["PROCESS"]).collect();
    let columns = TextTable::new(&names, [10, 8, 7, 7, 7, 8]);
    text.push('\n');
    columns.row(text, styles.heading, "PROCESS", ["count", "/s", "failed", "p50", "p99", "late p99"]);
    for (client, name) in shown.iter().zip(names) {
        let cells = [
            count(client.operations),
            rate(client.throughput),
            count(client.failed),
            quantile(client.response.as_ref(), 50.0),
            quantile(client.response.as_ref(), 99.0),
            quantile(client.lateness.as_ref(), 99.0),
        ];
        columns.row(text, anstyle::Style::new(), name, cells);
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
    let mut table =
        Table::numbers("<process | <host | clients | operations | /s | failed | p50 | p99 | late p99 | CPU");
    for client in &group.clients {
        table.row([
            escape(&client.share),
            escape(format!("{} (process {})", printable(&client.host, 60), client.process)),
            count(client.clients),
            count(client.operations),
            rate(client.throughput),
            count(client.failed),
            quantile(client.response.as_ref(), 50.0),
            quantile(client.response.as_ref(), 99.0),
            quantile(client.lateness.as_ref(), 99.0),
            known(client.load.as_ref(), |load| time(load.usage.cpu_s * 1e9)),
        ]);
    }
    page.push_str("<h2>Client processes</h2>\n");
    table.write(page);
    explained(page, &together(group).unwrap_or_default());
    if let Some(plot) = plot(group, series) {
        figure(page, &plot, true);
    }
}
