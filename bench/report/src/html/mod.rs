//! A result as one HTML file: nothing in it is fetched from elsewhere, and
//! nothing in it runs.

mod plot;

use crate::{
    notes::{is_lower_bound, notes, percentile, printable, title, total},
    summary::{two_times, what_times_are},
    units::{self, count, digits, percent, plural, rate, time},
};
use plot::{Frame, Line, POINTS_MAX};
use serval_measure::document::{
    IntervalMetric, IntervalSummary, IntervalTimes, Latency, MetricResult, ResultDocument, TimesResult,
};
use std::fmt::{Display, Write as _};

/// Operations that get plots of their own; the CSV has all.
const PLOTTED_MAX: usize = 6;

/// Style sheet of the page.
const STYLE: &str = include_str!("style.css");

/// The page.
pub fn html(document: &ResultDocument) -> String {
    let run = &document.run;
    let title = escape(title(document));
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    let _ = writeln!(
        page,
        "<p class=\"soft\">{} · Serval {}</p>",
        escape(&run.started),
        escape(&run.serval_version)
    );
    tiles(&mut page, document);
    warnings(&mut page, document);
    if !document.metrics.is_empty() {
        numbers(&mut page, document);
        plots(&mut page, document);
    }
    facts(&mut page, document);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Text as part of a page: in an element or in a quoted attribute.
fn escape(text: impl Display) -> String {
    let mut out = String::new();
    for c in text.to_string().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn tiles(page: &mut String, document: &ResultDocument) {
    let overall = &document.overall;
    page.push_str("<div class=\"tiles\">\n");
    let mut tile = |value: String, what: String| {
        let _ = writeln!(
            page,
            "<div class=\"card tile\"><b>{}</b><span>{}</span></div>",
            escape(value),
            escape(what)
        );
    };
    tile(rate(overall.throughput), "operations/s".to_owned());
    for p in [50.0, 99.0] {
        match leading(document) {
            Some((name, response)) => {
                if let Some(ns) = percentile(response, p) {
                    let least = if is_lower_bound(document, p) { "≥ " } else { "" };
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

/// The response times of the operation that there are most of.
fn leading(document: &ResultDocument) -> Option<(&str, &Latency)> {
    let operations = by_count(document).into_iter().filter(|metric| !is_beside(&metric.name));
    let (metric, ok) = operations.into_iter().find_map(|m| Some((m, m.ok.as_ref()?)))?;
    Some((&metric.name, &ok.response))
}

/// Whether a metric is no operation of the workload.
fn is_beside(name: &str) -> bool {
    matches!(name, "CLEANUP" | "VERIFY" | "SCAN-LATENCY-PER-RECORD" | "DRIVER-HOP")
}

fn by_count(document: &ResultDocument) -> Vec<&MetricResult> {
    let mut metrics: Vec<_> = document.metrics.iter().collect();
    metrics.sort_by_key(|metric| std::cmp::Reverse(total(metric)));
    metrics
}

fn warnings(page: &mut String, document: &ResultDocument) {
    let notes = notes(document);
    if notes.is_empty() {
        return;
    }
    page.push_str("<section class=\"card notes\">\n<h2>Before quoting a number</h2>\n<ul>\n");
    for note in notes {
        let _ = write!(page, "<li>{}", escape(&note.text));
        if !note.details.is_empty() {
            page.push_str("<ul>");
            for detail in &note.details {
                let _ = write!(page, "<li>{}</li>", escape(detail));
            }
            page.push_str("</ul>");
        }
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n</section>\n");
}

fn numbers(page: &mut String, document: &ResultDocument) {
    let paced = two_times(document);
    let mut percentiles: Vec<f64> = Vec::new();
    for times in document.metrics.iter().flat_map(|m| m.ok.iter().chain(m.failed.values())) {
        percentiles.extend(times.response.percentiles.iter().map(|p| p.percentile));
    }
    percentiles.sort_by(f64::total_cmp);
    percentiles.dedup();
    let heads: String = percentiles.iter().map(|p| format!("<th>{}</th>", units::percentile(*p))).collect();
    let _ = write!(
        page,
        "<h2>Times</h2>\n<div class=\"card scroll\">\n<table class=\"numbers\">\n<thead><tr><th class=\"text\">operation</th>\
         <th>count</th><th>/s</th><th>failed</th><th class=\"text\"></th><th>mean</th>{heads}<th>max</th></tr></thead>\n<tbody>\n"
    );
    for metric in &document.metrics {
        let all = total(metric);
        let failed = all.saturating_sub(metric.ok.as_ref().map_or(0, |ok| ok.service.count));
        let row =
            Row { name: metric.name.clone(), count: all, failed: Some(failed), times: metric.ok.as_ref() };
        row.write(page, document, &percentiles, paced);
        for (status, times) in &metric.failed {
            let name = format!("{} {status}", metric.name);
            let row = Row { name, count: times.service.count, failed: None, times: Some(times) };
            row.write(page, document, &percentiles, paced);
        }
    }
    let _ = writeln!(page, "</tbody>\n</table>\n</div>\n<p class=\"soft\">{}</p>", what_times_are(document));
}

/// A line of the table, or two when response and service times differ.
struct Row<'a> {
    name: String,
    count: u64,
    failed: Option<u64>,
    times: Option<&'a TimesResult>,
}

impl Row<'_> {
    fn write(&self, page: &mut String, document: &ResultDocument, percentiles: &[f64], paced: bool) {
        let cells = |latency: Option<&Latency>| -> String {
            let cell = |ns: Option<f64>| format!("<td>{}</td>", ns.map_or("–".to_owned(), time));
            let latency = latency.filter(|latency| latency.count > 0);
            let mut cells = cell(latency.map(|l| l.mean_ns));
            for &p in percentiles {
                cells += &cell(latency.and_then(|l| percentile(l, p)).map(|ns| ns as f64));
            }
            cells + &cell(latency.map(|l| l.max_ns as f64))
        };
        let first = if paced { " class=\"first\"" } else { "" };
        let _ = writeln!(
            page,
            "<tr{first}><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">response</td>{}</tr>",
            escape(printable(&self.name, 60)),
            count(self.count),
            rate(self.count as f64 / document.overall.duration_s),
            self.failed.map_or(String::new(), count),
            cells(self.times.map(|times| &times.response))
        );
        if paced {
            let _ = writeln!(
                page,
                "<tr class=\"service\"><th></th><td></td><td></td><td></td><td class=\"text\">service</td>{}</tr>",
                cells(self.times.map(|times| &times.service))
            );
        }
    }
}

fn figure(page: &mut String, title: &str, lines: &[Line], svg: Option<String>) {
    let Some(svg) = svg else { return };
    let _ =
        write!(page, "<figure class=\"card\"><figcaption><h3>{}</h3><span class=\"legend\">", escape(title));
    for line in lines.iter().filter(|line| !line.pieces.is_empty()) {
        let class = if line.dashed { " class=\"dashed\"" } else { "" };
        let _ = write!(
            page,
            "<span><i{class} style=\"border-color:var(--c{})\"></i>{}</span>",
            (line.colour - 1) % 6 + 1,
            escape(&line.label)
        );
    }
    let _ = writeln!(page, "</span></figcaption>\n{svg}</figure>");
}

fn plots(page: &mut String, document: &ResultDocument) {
    // Closing happens once, at the end: there is no course of it to show.
    let plotted: Vec<&MetricResult> =
        by_count(document).into_iter().filter(|metric| metric.name != "CLEANUP").take(PLOTTED_MAX).collect();
    let series = Series::new(&document.series);
    if let Some(series) = &series {
        page.push_str("<h2>Over time</h2>\n");
        series.throughput(page, document, &plotted);
        for metric in &plotted {
            series.latency(page, metric);
        }
        if series.chunk > 1 {
            let _ = writeln!(
                page,
                "<p class=\"soft\">Every point of a plot stands for {} intervals: the mean of their rates, the highest \
                 of their times.</p>",
                series.chunk
            );
        }
    }
    let mut figures = String::new();
    for metric in &plotted {
        distribution(&mut figures, metric, two_times(document));
    }
    if !figures.is_empty() {
        let _ = writeln!(page, "<h2>By percentile</h2>\n<div class=\"pair\">\n{figures}</div>");
    }
}

fn distribution(page: &mut String, metric: &MetricResult, paced: bool) {
    let Some(ok) = &metric.ok else { return };
    let line = |label, colour, latency: &Latency| {
        let points = latency.to_histogram().map(|h| plot::distribution(&h)).unwrap_or_default();
        Line::new(label, colour, points.into_iter().map(|(x, y)| (x, Some(y))))
    };
    let mut lines = Vec::new();
    if paced {
        lines.push(line("service time", 2, &ok.service));
    }
    lines.push(line("response time", 1, &ok.response));
    let frame = Frame { width: 520, height: 300, x_label: "percentile", warm_up_until: None };
    let svg = plot::by_percentile(&lines, &frame);
    lines.reverse();
    figure(page, &metric.name, &lines, svg);
}

/// The series, in chunks if it is long.
struct Series<'a> {
    chunks: Vec<&'a [IntervalSummary]>,
    chunk: usize,
    seconds: f64,
    frame: Frame,
}

impl<'a> Series<'a> {
    fn new(series: &'a [IntervalSummary]) -> Option<Self> {
        // A run ends with the closing of its clients, which is no second of it.
        let series = match series {
            // Nor is the time that what was in flight was given.
            [rest @ .., end] if !rest.is_empty() && end.length_s < 0.2 * rest[0].length_s => rest,
            all => all,
        };
        let last = series.last()?;
        let chunk = series.len().div_ceil(POINTS_MAX);
        let warm_up = series.iter().filter(|interval| interval.warm_up).map(|i| i.start_s + i.length_s);
        Some(Series {
            chunks: series.chunks(chunk).collect(),
            chunk,
            seconds: last.start_s + last.length_s,
            frame: Frame { width: 1040, height: 260, x_label: "", warm_up_until: warm_up.reduce(f64::max) },
        })
    }

    /// A line of values of chunks, each in its middle.
    fn line(&self, label: &str, colour: usize, value: impl Fn(&[IntervalSummary]) -> Option<f64>) -> Line {
        let points = self.chunks.iter().map(|chunk| {
            let (first, last) = (&chunk[0], &chunk[chunk.len() - 1]);
            ((first.start_s + last.start_s + last.length_s) / 2.0, value(chunk))
        });
        Line::new(label, colour, points)
    }

    fn throughput(&self, page: &mut String, document: &ResultDocument, plotted: &[&MetricResult]) {
        let per_second = |chunk: &[IntervalSummary], number: &dyn Fn(&IntervalSummary) -> f64| {
            let seconds: f64 = chunk.iter().map(|i| i.length_s).sum();
            (seconds > 0.0).then(|| chunk.iter().map(number).sum::<f64>() / seconds)
        };
        let mut lines = vec![self.line("all operations", 1, |chunk| per_second(chunk, &all_operations))];
        let of = |interval: &IntervalSummary, name: &str| {
            interval.metrics.get(name).map_or(0.0, |m| ended(m) as f64)
        };
        // Failures have their own colour, the fourth.
        let colours = [2, 3, 5, 6];
        if plotted.len() > 1 {
            for (metric, colour) in plotted.iter().zip(colours) {
                lines.push(
                    self.line(&metric.name, colour, |chunk| per_second(chunk, &|i| of(i, &metric.name))),
                );
            }
        }
        if document.overall.failed > 0 {
            let failed = |i: &IntervalSummary| i.metrics.values().map(|m| m.failed as f64).sum();
            lines.push(self.line("failed", 4, |chunk| per_second(chunk, &failed)));
        }
        let due = |interval: &IntervalSummary| interval.pacing.map_or(0.0, |pacing| pacing.due);
        if self.chunks.iter().any(|chunk| chunk[0].pacing.is_some()) {
            lines.push(self.line("asked for", 1, |chunk| per_second(chunk, &due)).dashed());
        } else if let Some(pacing) = &document.pacing {
            let ends = [0.0, self.seconds].map(|x| (x, Some(pacing.target)));
            lines.push(Line::new("asked for", 1, ends.into_iter()).dashed());
        }
        let svg = plot::over_time(&lines, self.seconds, &self.frame);
        let warm_up = if self.frame.warm_up_until.is_some() { " (grey: warm-up)" } else { "" };
        figure(page, &format!("Operations a second{warm_up}"), &lines, svg);
    }

    fn latency(&self, page: &mut String, metric: &MetricResult) {
        let highest = |chunk: &[IntervalSummary], field: fn(&IntervalSummary, &str) -> Option<u64>| {
            chunk.iter().filter_map(|i| field(i, &metric.name)).max().map(|ns| ns.max(1) as f64)
        };
        // The highest first, so that the median lies on top.
        // Not measured during the warm-up.
        let late = |i: &IntervalSummary, _: &str| {
            i.pacing.map(|pacing| pacing.lateness).filter(|late| late.max_ns > 0).map(|late| late.p99_ns)
        };
        let mut lines = vec![
            self.line("max", 4, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.max_ns))),
            self.line("p99", 3, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.p99_ns))),
            self.line("p95", 2, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.p95_ns))),
            self.line("p50", 1, |chunk| highest(chunk, |i, name| response(i, name).map(|t| t.p50_ns))),
        ];
        if self.chunks.iter().any(|chunk| chunk[0].pacing.is_some()) {
            lines.push(self.line("of it waiting to start, p99", 5, |chunk| highest(chunk, late)).dashed());
        }
        let svg = plot::times_over_time(&lines, self.seconds, &self.frame);
        figure(page, &format!("Response time, {}", metric.name), &lines, svg);
    }
}

fn response<'a>(interval: &'a IntervalSummary, name: &str) -> Option<&'a IntervalTimes> {
    interval.metrics.get(name).filter(|metric| metric.ok > 0).map(|metric| &metric.response)
}

/// Operations that ended in an interval. A read-modify-write is one, though
/// its read and its update are counted too; what is no operation of the
/// workload (closing, verifying) is left out.
fn all_operations(interval: &IntervalSummary) -> f64 {
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

fn facts(page: &mut String, document: &ResultDocument) {
    let (run, environment, overall) = (&document.run, &document.environment, &document.overall);
    let cpu = if overall.duration_s > 0.0 { overall.client_cpu_s / overall.duration_s } else { 0.0 };
    let mut rows = vec![
        ("store".to_owned(), run.store.clone()),
        ("workload".to_owned(), run.workload.clone()),
        ("started".to_owned(), run.started.clone()),
        ("ended by".to_owned(), overall.ended_by.clone()),
        ("clients".to_owned(), format!("{}, {}", count(run.clients), run.execution)),
        ("seed".to_owned(), run.seed.to_string()),
    ];
    if let Some(pacing) = &document.pacing {
        let slack = if pacing.slack_ns > 0 {
            format!(", slack {}", time(pacing.slack_ns as f64))
        } else {
            String::new()
        };
        rows.push((
            "schedule".to_owned(),
            format!("{}, arrivals {}{slack}", pacing.schedule, pacing.arrivals),
        ));
        let late = &pacing.lateness;
        let p99 = percentile(late, 99.0).map_or(String::new(), |ns| format!("p99 {}, ", time(ns as f64)));
        rows.push(("lateness".to_owned(), format!("{p99}at most {}", time(late.max_ns as f64))));
    }
    table(page, "The run", &rows);
    let rows: Vec<_> = run.store_facts.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    table(page, "The store", &rows);
    let rows = [
        ("processor".to_owned(), format!("{}, {}", environment.cpu, plural(environment.cores, "core"))),
        ("memory".to_owned(), units::bytes(environment.memory_bytes)),
        ("system".to_owned(), environment.kernel.clone()),
        ("host".to_owned(), environment.host.clone()),
        ("build".to_owned(), environment.build.clone()),
        (
            "CPU time".to_owned(),
            format!("{} ({} of a processor)", time(overall.client_cpu_s * 1e9), digits(cpu)),
        ),
    ];
    table(page, "The client's machine", &rows);
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
    let words: Vec<String> = run.command_line.iter().map(|word| quoted(word)).collect();
    let _ = writeln!(
        page,
        "<h2>Command line</h2>\n<div class=\"card\"><pre>{}</pre></div>",
        escape(words.join(" "))
    );
}

fn table(page: &mut String, title: &str, rows: &[(String, String)]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>{title}</h2>\n<div class=\"card scroll\"><table class=\"facts\"><tbody>");
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    page.push_str("</tbody></table></div>\n");
}

/// A word of a command line as a shell wants it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    /// Tags without end tags.
    const VOID: [&str; 5] = ["meta", "rect", "line", "polyline", "circle"];

    /// Every element is closed in turn, and nothing runs or is fetched.
    fn check(page: &str) {
        let mut open: Vec<String> = vec!["html".to_owned(), "head".to_owned()];
        let body = page.split_once("</style>").unwrap().1;
        for part in body.split('<').skip(1) {
            let (tag, _) = part.split_once('>').expect("a tag ends");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
                continue;
            }
            let name = tag.split([' ', '\n', '/']).next().unwrap();
            assert!(!matches!(name, "script" | "img" | "link" | "iframe" | "object" | "base"), "{tag}");
            for attribute in ["href", "src=", "onload", "onerror", "url("] {
                assert!(!tag.contains(attribute), "{tag}");
            }
            if !tag.ends_with('/') && !VOID.contains(&name) {
                open.push(name.to_owned());
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn what_came_from_outside_is_escaped() {
        let page = html(&sample::paced());
        check(&page);
        assert!(page.contains("&lt;script&gt;alert(1)"));
        assert!(
            page.contains("&lt;b&gt;no such key&lt;/b&gt; &amp; &quot;none&quot; in &#39;usertable&#39;")
        );
        assert_eq!(escape("\u{0}\u{1b}"), "\u{fffd}\u{fffd}");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("-p"), "-p");
    }

    #[test]
    fn it_has_all_parts() {
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
            "asked for",
        ];
        for part in parts {
            assert!(page.contains(part) || page.contains(&part.replace("&#39;", "'")), "{part}");
        }
        assert_eq!(page.matches("<svg").count(), 1 + 3 + 3);
        let page = html(&sample::unpaced());
        assert!(page.contains("Nothing was paced") && !page.contains("service time</span>"));
        check(&page);
    }

    #[test]
    fn nothing_measured_and_long_series() {
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
