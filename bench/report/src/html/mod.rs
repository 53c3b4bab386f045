//! A result as one HTML file, which loads nothing and has no scripts.

pub(crate) mod parts;
pub(crate) mod series;

use crate::{
    notes::warnings,
    plot::{self, Line, Plot},
    summary::{two_times, what_times_are},
    text::{escape, printable, title},
    times::{Row, percentiles, rows, times_in_words},
    units::{self, count, digits, known, percent, plural, rate, time},
};
use parts::{Table, command_line, explained, figure, preformatted, tile, warnings_section};
use serval_result::{
    document::{Latency, MetricResult, ResultDocument},
    load::Usage,
    metric::is_beside,
};
use std::{collections::BTreeSet, fmt::Write as _};

/// Returns the page of a result.
pub fn html(document: &ResultDocument) -> String {
    let run = &document.run;
    let below = format!("{} · Serval {}", run.started, run.serval_version);
    parts::page(&title(document), &below, |page| {
        // A warning that invalidates the numbers comes before them.
        let warnings = warnings(document);
        let bound = !document.client_bounds().is_empty();
        if bound {
            warnings_section(page, &warnings);
        }
        tiles(page, document);
        if !bound {
            warnings_section(page, &warnings);
        }
        if !document.metrics.is_empty() {
            numbers(page, document);
            series::section(page, document);
            by_percentile(page, document);
        }
        if let Some(group) = document.group.as_ref().filter(|group| !group.clients.is_empty()) {
            crate::group::section(page, group, series::without_end(&document.series));
        }
        if let Some(lag) = &document.lag {
            crate::lag::section(page, lag);
        }
        loads(page, document);
        facts(page, document);
    })
}

/// Returns every plot of the page as files.
pub fn plots(document: &ResultDocument) -> Vec<PlotFile> {
    let group = document.group.as_ref().filter(|group| !group.clients.is_empty()).and_then(|group| {
        Some(("processes".to_owned(), crate::group::plot(group, series::without_end(&document.series))?))
    });
    let all = series::plots(document).into_iter().chain(distributions(document)).chain(group);
    let all = all.chain(document.lag.iter().flat_map(crate::lag::plots));
    named_apart(all.filter_map(|(name, plot)| PlotFile::of(&name, &plot)))
}

/// Makes names of files unique: names of operations may differ in characters that a file's name
/// leaves out.
pub(crate) fn named_apart(files: impl Iterator<Item = PlotFile>) -> Vec<PlotFile> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let apart = files.map(|mut file| {
        let mut name = file.name.clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{}-{number}", file.name);
        }
        file.name = name;
        file
    });
    apart.collect()
}

/// A plot as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotFile {
    /// Name without extension: lower-case letters, digits and hyphens.
    pub name: String,
    /// Contents of the SVG file.
    pub svg: String,
    /// Contents of the PNG file, at twice the resolution.
    pub png: Vec<u8>,
}

impl PlotFile {
    pub(crate) fn of(name: &str, plot: &Plot) -> Option<PlotFile> {
        Some(PlotFile { name: file_name(name), svg: plot.svg_file()?, png: plot.png_file()? })
    }
}

/// A title as the name of a file.
fn file_name(words: &str) -> String {
    let mut name = String::new();
    for c in words.chars().take(120) {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_lowercase()),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => (),
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "plot".to_owned() } else { name.to_owned() }
}

fn tiles(page: &mut String, document: &ResultDocument) {
    let overall = &document.overall;
    page.push_str("<div class=\"tiles\">\n");
    let mut tile = |value: String, what: String| tile(page, &value, &what);
    tile(rate(overall.throughput), "operations/s".to_owned());
    for p in [50.0, 99.0] {
        match leading(document) {
            Some((name, response)) => {
                if let Some(ns) = response.percentile(p) {
                    let least = if document.is_lower_bound(p) { "≥ " } else { "" };
                    let what = format!("response time {}, {name}", units::percentile(p));
                    tile(format!("{least}{}", time(ns as f64)), what);
                }
            }
            None => {
                tile("–".to_owned(), format!("response time {}: nothing succeeded", units::percentile(p)))
            }
        }
    }
    let failed = match overall.failed {
        0 => "none failed".to_owned(),
        failed => format!("{} failed ({})", count(failed), percent(failed, overall.operations)),
    };
    tile(count(overall.operations), format!("operations, {failed}"));
    let warm_up = match overall.warm_up_s {
        s if s > 0.0 => format!(" after {} of warm-up", time(s * 1e9)),
        _ => String::new(),
    };
    tile(time(overall.duration_s * 1e9), format!("measured{warm_up}"));
    tile(count(document.run.clients), format!("client{}", if document.run.clients == 1 { "" } else { "s" }));
    page.push_str("</div>\n");
}

/// The response times of the most frequent operation.
fn leading(document: &ResultDocument) -> Option<(&str, &Latency)> {
    let operations = by_count(document).into_iter().filter(|metric| !is_beside(&metric.name));
    let (metric, ok) = operations.into_iter().find_map(|m| Some((m, m.ok.as_ref()?)))?;
    Some((&metric.name, &ok.response))
}

fn by_count(document: &ResultDocument) -> Vec<&MetricResult> {
    let mut metrics: Vec<_> = document.metrics.iter().collect();
    metrics.sort_by_key(|metric| std::cmp::Reverse(metric.count()));
    metrics
}

fn numbers(page: &mut String, document: &ResultDocument) {
    let paced = two_times(document);
    let percentiles = percentiles(document);
    let mut table = Table::numbers("<operation | count | /s | failed | < | mean");
    percentiles.iter().for_each(|p| table.head(&units::percentile(*p)));
    table.heads("max");
    for Row { operation, status, count: all, failed, times } in rows(document) {
        let name = status.map_or(operation.to_owned(), |status| format!("{operation} {status}"));
        let first = [
            escape(printable(&name, 60)),
            count(all),
            rate(all as f64 / document.overall.duration_s),
            failed.map_or(String::new(), count),
            "response".to_owned(),
        ];
        let response = times_in_words(times.map(|times| &times.response), &percentiles);
        table.row_of(if paced { "first" } else { "" }, first.into_iter().chain(response));
        if paced {
            let first = ["", "", "", "", "service"].map(str::to_owned);
            let service = times_in_words(times.map(|times| &times.service), &percentiles);
            table.row_of("service", first.into_iter().chain(service));
        }
    }
    page.push_str("<h2>Times</h2>\n");
    table.write(page);
    explained(page, what_times_are(document));
}

/// Plots by percentile, with names for their files.
fn distributions(document: &ResultDocument) -> Vec<(String, Plot)> {
    let plotted = by_count(document).into_iter().filter(|metric| metric.name != "CLEANUP");
    let plot = |metric: &MetricResult| {
        let ok = metric.ok.as_ref()?;
        let line = |label, style, latency: &Latency| {
            let points = latency.to_histogram().map(|h| plot::distribution(&h)).unwrap_or_default();
            Line::new(label, style, points.into_iter().map(|(x, y)| (x, Some(y))))
        };
        let mut lines = Vec::new();
        if two_times(document) {
            lines.push(line("service time", 2, &ok.service).dashed_by_style());
        }
        lines.push(line("response time", 1, &ok.response));
        let plot = plot::by_percentile(metric.name.clone(), lines, (520, 300))?;
        Some((format!("percentiles {}", metric.name), plot))
    };
    plotted.take(series::PLOTTED_MAX).filter_map(plot).collect()
}

fn by_percentile(page: &mut String, document: &ResultDocument) {
    let plots = distributions(document);
    if plots.is_empty() {
        return;
    }
    page.push_str("<h2>By percentile</h2>\n<div class=\"pair\">\n");
    for (_, plot) in &plots {
        figure(page, plot, true);
    }
    page.push_str("</div>\n");
}

/// Resource usage of the client and of watched processes.
fn loads(page: &mut String, document: &ResultDocument) {
    let mut rows: Vec<(String, String, &Usage)> = Vec::new();
    if let Some(client) = &document.client {
        rows.push(("the client".to_owned(), plural(client.threads, "thread"), &client.usage));
    }
    for process in &document.processes {
        let pids: Vec<String> = process.pids.iter().take(8).map(u32::to_string).collect();
        rows.push((printable(&process.name, 60), format!("process {}", pids.join(", ")), &process.usage));
    }
    if rows.is_empty() {
        return;
    }
    let (operations, seconds) = (document.overall.operations as f64, document.overall.duration_s);
    let each = |total: Option<f64>, words: fn(f64) -> String| {
        known(total.filter(|_| operations > 0.0), |total| words(total / operations))
    };
    let bytes = |bytes: Option<u64>| each(bytes.map(|b| b as f64), |b| units::bytes(b.round() as u64));
    let mut table = Table::numbers(
        "<what | CPU time | of a processor | CPU/operation | waited for one | sent/operation | received/operation | memory",
    );
    for (name, what, usage) in rows {
        table.row([
            format!("{} <span class=\"soft\">{}</span>", escape(name), escape(what)),
            time(usage.cpu_s * 1e9),
            known((seconds > 0.0).then(|| usage.cpu_s / seconds), digits),
            each(Some(usage.cpu_s * 1e9), time),
            known(usage.run_queue_s, |s| time(s * 1e9)),
            bytes(usage.sent_bytes),
            bytes(usage.received_bytes),
            known(usage.memory_bytes, units::bytes),
        ]);
    }
    page.push_str("<h2>What it cost</h2>\n");
    table.write(page);
    let share = |share: f64| format!("{:.0} %", share * 100.0);
    let words = document.client.iter().flat_map(|client| {
        let busiest = client.busiest_thread.map(|s| {
            format!(
                "The busiest of the client's threads ran, or waited for a processor, {} of the time.",
                share(s)
            )
        });
        let outside = client
            .outside_store
            .map(|s| format!("Clients spent {} of their time outside of the store.", share(s)));
        let machine =
            client.machine_busy.map(|s| format!("{} of the machine's processors were in use.", share(s)));
        [busiest, outside, machine].into_iter().flatten()
    });
    explained(page, &words.collect::<Vec<_>>().join(" "));
}

fn facts(page: &mut String, document: &ResultDocument) {
    let (run, environment, overall) = (&document.run, &document.environment, &document.overall);
    let cpu = if overall.duration_s > 0.0 { overall.client_cpu_s / overall.duration_s } else { 0.0 };
    let mut rows = vec![
        ("store", run.store.clone()),
        ("workload", run.workload.clone()),
        ("started", run.started.clone()),
        ("ended by", overall.ended_by.to_string()),
        ("clients", format!("{}, {}", count(run.clients), run.execution)),
        ("seed", run.seed.to_string()),
    ];
    if let Some(steadiness) = &document.steadiness {
        let change = |share: f64| format!("{:+.1} %", share * 100.0);
        let steady = if steadiness.steady { "steady" } else { "never steady" };
        rows.push((
            "warm-up",
            format!(
                "{steady} within {}; over its last {} throughput changed by {}, service time by {}",
                time(steadiness.max_s * 1e9),
                time(steadiness.window_s * 1e9),
                change(steadiness.throughput_drift),
                change(steadiness.service_drift)
            ),
        ));
    }
    if let Some(stationarity) = &document.stationarity {
        rows.push(("while measured", crate::stationary::in_short(stationarity)));
    }
    if let Some(pacing) = &document.pacing {
        let slack = if pacing.slack_ns > 0 {
            format!(", slack {}", time(pacing.slack_ns as f64))
        } else {
            String::new()
        };
        rows.push(("schedule", format!("{}, arrivals {}{slack}", pacing.schedule, pacing.arrivals)));
        let late = &pacing.lateness;
        let p99 = late.percentile(99.0).map_or(String::new(), |ns| format!("p99 {}, ", time(ns as f64)));
        rows.push(("lateness", format!("{p99}at most {}", time(late.max_ns as f64))));
    }
    parts::facts(page, "The run", rows);
    parts::facts(page, "The store", &run.store_facts);
    let rows = [
        ("processor", format!("{}, {}", environment.cpu, plural(environment.cores, "core"))),
        ("memory", units::bytes(environment.memory_bytes)),
        ("system", environment.kernel.clone()),
        ("host", environment.host.clone()),
        ("build", environment.build.clone()),
        ("CPU time", format!("{} ({} of a processor)", time(overall.client_cpu_s * 1e9), digits(cpu))),
    ];
    parts::facts(page, "The client's machine", rows);
    if !run.properties.is_empty() {
        page.push_str("<h2>Properties</h2>\n<div class=\"card scroll\"><table class=\"facts\">\n");
        page.push_str("<thead><tr><th>property</th><th>value</th><th>from</th></tr></thead>\n<tbody>\n");
        for (name, property) in &run.properties {
            let (name, value, origin) = (escape(name), escape(&property.value), escape(&property.origin));
            let _ =
                writeln!(page, "<tr><th>{name}</th><td>{value}</td><td class=\"soft\">{origin}</td></tr>");
        }
        page.push_str("</tbody></table></div>\n");
    }
    page.push_str("<h2>Command line</h2>\n");
    preformatted(page, &command_line(&run.command_line));
}

#[cfg(test)]
mod tests {
    use super::{parts::checks::check, *};
    use crate::{sample, text::quoted};
    use proptest::prelude::*;
    use serval_result::document::IntervalSummary;

    #[test]
    fn untrusted_texts_are_escaped() {
        let page = html(&sample::paced());
        check(&page);
        assert!(page.contains("&lt;script&gt;alert(1)"));
        assert!(
            page.contains("&lt;b&gt;no such key&lt;/b&gt; &amp; &quot;none&quot; in &#39;usertable&#39;")
        );
        assert_eq!(escape("\u{0}\u{1b}\u{202e}"), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("-p"), "-p");
    }

    #[test]
    fn names_of_plot_files_are_unique() {
        let mut document = sample::paced();
        let names = ["a b", "a,b", "Größe"];
        for (metric, name) in document.metrics.iter_mut().zip(names) {
            for interval in &mut document.series {
                if let Some(of) = interval.metrics.remove(&metric.name) {
                    interval.metrics.insert(name.to_owned(), of);
                }
            }
            name.clone_into(&mut metric.name);
        }
        let plots = plots(&document);
        let mut names: Vec<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
        assert!(names.iter().any(|name| name.ends_with("-2")), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), plots.len());
    }

    #[test]
    fn a_page_has_all_sections() {
        let page = html(&sample::paced());
        let parts = [
            "Before quoting a number",
            "<h2>Times",
            "Operations a second",
            "Response time, READ",
            "By percentile",
            "The client&#39;s machine",
            "Properties",
            "workloads/workload a:12",
            "Command line",
            "offered</span>",
        ];
        for part in parts {
            assert!(page.contains(part) || page.contains(&part.replace("&#39;", "'")), "{part}");
        }
        // Throughput and failures; lines and a heat map for each of 3 operations; percentiles.
        assert_eq!(page.matches("<svg role").count(), 2 + 3 * 2 + 3);
        let page = html(&sample::unpaced());
        assert!(page.contains("Closed loop: response time equals") && !page.contains("service time</span>"));
        check(&page);
    }

    #[test]
    fn a_client_bound_warning_comes_first_and_costs_have_a_table() {
        let usage = Usage {
            cpu_s: 5.0,
            run_queue_s: Some(0.25),
            memory_bytes: Some(3 << 20),
            sent_bytes: Some(1_000_000),
            received_bytes: None,
        };
        let mut document = sample::paced();
        let client = serval_result::load::ClientLoad {
            usage: usage.clone(),
            threads: 2,
            busiest_thread: Some(0.98),
            bound_by_client: vec!["The client's threads <were> busy.".to_owned()],
            ..Default::default()
        };
        document.client = Some(client);
        let process =
            serval_result::load::ProcessLoad { name: "redis-server".to_owned(), usage, ..Default::default() };
        document.processes = vec![process];
        // The document's warnings contain it too; the page must not repeat it.
        document.warnings.push("The client's threads <were> busy.".to_owned());
        let page = html(&document);
        check(&page);
        let said = "threads &lt;were&gt; busy.";
        assert_eq!(page.matches(said).count(), 1);
        assert!(page.find(said).unwrap() < page.find("class=\"tiles\"").unwrap());
        for part in ["What it cost", "redis-server", "250 ms", "3.00 MiB", "98 % of the time"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!html(&sample::paced()).contains("What it cost"));
    }

    #[test]
    fn empty_and_long_series_are_drawn() {
        let page = html(&sample::empty());
        check(&page);
        assert!(!page.contains("<svg") && !page.contains("NaN"));
        let mut long = sample::unpaced();
        let second = long.series[20].clone();
        long.series =
            (0..20_000).map(|i| IntervalSummary { start_s: f64::from(i), ..second.clone() }).collect();
        let page = html(&long);
        assert!(page.contains("Every point of a plot stands for 34 intervals"));
        assert!(page.len() < 300_000, "{}", page.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn no_result_breaks_the_page(document in sample::any_document()) {
            check(&html(&document));
        }
    }
}
