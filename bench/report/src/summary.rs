//! The summary of a result as text, at most [`WIDTH`](crate::terminal::WIDTH) columns wide.

use crate::{
    notes::warnings,
    terminal::{self, Styles, TextTable, wrapped},
    text::{printable, title},
    times::{Row, percentiles, rows, times_in_words},
    units::{bytes, known, percent, percentile, plural, rate, short_count, time},
};
use anstyle::Style;
use serval_result::document::{Latency, ResultDocument, TimesResult};

/// Largest number of percentiles in a row; `result.json` has all.
const PERCENTILES_MAX: usize = 4;

/// Width of names: the longest of YCSB's metrics has 23 characters.
const NAME_MAX: usize = 23;

/// Returns the summary.
pub fn summary(document: &ResultDocument, styles: &Styles) -> String {
    let mut text = String::new();
    headline(&mut text, document, styles);
    terminal::warnings(&mut text, &warnings(document), styles);
    if !document.metrics.is_empty() {
        table(&mut text, "RESPONSE TIME", document, styles, |times| &times.response);
        if two_times(document) {
            table(&mut text, "SERVICE TIME", document, styles, |times| &times.service);
        }
        wrapped(&mut text, "", what_times_are(document), styles.dim);
    }
    if let Some(group) = document.group.as_ref().filter(|group| !group.clients.is_empty()) {
        crate::group::summary(&mut text, group, styles);
    }
    if let Some(lag) = &document.lag {
        crate::lag::summary(&mut text, lag, styles);
    }
    costs(&mut text, document, styles);
    text
}

/// Whether response and service times differ: with an offered load, or with a driver, which measures
/// the service time.
pub fn two_times(document: &ResultDocument) -> bool {
    document.pacing.is_some() || driven(document)
}

fn driven(document: &ResultDocument) -> bool {
    document.metrics.iter().any(|metric| metric.name == "DRIVER-HOP")
}

/// Explains the times of a document.
pub(crate) fn what_times_are(document: &ResultDocument) -> &'static str {
    match (document.pacing.is_some(), driven(document)) {
        (true, false) => RESPONSE_AND_SERVICE,
        (false, false) => NOT_PACED,
        (_, true) => DRIVEN,
    }
}

/// Explains response and service times.
const RESPONSE_AND_SERVICE: &str = "Response time: from the intended start to the end, what a user \
    waits. Service time: from the actual start to the end, what the store takes.";

/// Explains times measured through a driver process.
const DRIVEN: &str = "Response time: from the start (the intended one with an offered load) to the receipt of the \
    outcome. Service time: what the driver measured around its client library. DRIVER-HOP: the way to the driver and back.";

/// Explains costs.
const WHAT_COSTS_ARE: &str = "Costs are of the measured time. CPU: of all threads. run-queue wait: time that threads were \
    ready to run and waited for a processor. sent, received: payload of TCP connections. memory: at the end.";

/// Explains why there is only one table.
const NOT_PACED: &str = "Closed loop: response time equals service time.";

fn headline(text: &mut String, document: &ResultDocument, styles: &Styles) {
    let (run, overall) = (&document.run, &document.overall);
    wrapped(text, "", &printable(&title(document), 300), styles.headline);
    let warm_up = match overall.warm_up_s {
        s if s > 0.0 => format!(" after {} of warm-up", time(s * 1e9)),
        _ => String::new(),
    };
    let second = format!("{}, {}{warm_up}", plural(run.clients, "client"), time(overall.duration_s * 1e9));
    wrapped(text, "", &second, styles.dim);
    let third = format!(
        "{} operations/s ({} operation{}, {} failed{})",
        rate(overall.throughput),
        short_count(overall.operations),
        if overall.operations == 1 { "" } else { "s" },
        short_count(overall.failed),
        match overall.failed {
            0 => String::new(),
            failed => format!(", {}", percent(failed, overall.operations)),
        }
    );
    wrapped(text, "", &third, styles.headline);
}

/// The percentiles that the summary shows; the usual ones take precedence.
fn shown(document: &ResultDocument) -> Vec<f64> {
    let all = percentiles(document);
    let usual = |p: &f64| [50.0, 95.0, 99.0, 99.9].contains(p);
    let mut chosen: Vec<f64> = all.iter().copied().filter(usual).collect();
    let room = PERCENTILES_MAX.saturating_sub(chosen.len());
    chosen.extend(all.into_iter().rev().filter(|p| !usual(p)).take(room));
    chosen.sort_by(f64::total_cmp);
    chosen
}

fn table(
    text: &mut String,
    title: &str,
    document: &ResultDocument,
    styles: &Styles,
    which: impl Fn(&TimesResult) -> &Latency,
) {
    let percentiles = shown(document);
    let name = |row: Row<'_>| match row.status {
        None => styles.cell(row.operation, NAME_MAX),
        Some(status) => format!("  {}", styles.cell(status, NAME_MAX - 2)),
    };
    let names: Vec<String> = std::iter::once(title.to_owned()).chain(rows(document).map(name)).collect();
    let columns = TextTable::new(&names, [10, 8, 7].into_iter().chain(vec![7; percentiles.len() + 2]));
    let heads = ["count", "/s", "failed", "mean"].map(str::to_owned).into_iter();
    let heads = heads.chain(percentiles.iter().map(|p| percentile(*p))).chain(["max".to_owned()]);
    text.push('\n');
    columns.row(text, styles.heading, title, heads);
    for (row, name) in rows(document).zip(&names[1..]) {
        let counts = [
            short_count(row.count),
            rate(row.count as f64 / document.overall.duration_s),
            row.failed.map_or(String::new(), short_count),
        ];
        let style = if row.failed.is_none() { styles.dim } else { Style::new() };
        let times = times_in_words(row.times.map(&which), &percentiles);
        columns.row(text, style, name, counts.into_iter().chain(times));
    }
}

/// The table of costs of an operation; nothing if neither the client's nor any process's are known.
fn costs(text: &mut String, document: &ResultDocument, styles: &Styles) {
    let operations = document.overall.operations;
    let client = document.client.iter().map(|load| ("client".to_owned(), &load.usage));
    let processes = document.processes.iter().map(|load| (styles.cell(&load.name, NAME_MAX), &load.usage));
    let rows: Vec<_> = client.chain(processes).collect();
    if rows.is_empty() || operations == 0 {
        return;
    }
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).chain(["COST"]).collect();
    let columns = TextTable::new(&names, [9, 10, 11, 10, 7, 14]);
    let heads = ["CPU/op", "sent/op", "received/op", "memory", "CPU", "run-queue wait"];
    text.push('\n');
    columns.row(text, styles.heading, "COST", heads);
    let per = |bytes: Option<u64>| {
        // Small numbers have decimals.
        known(bytes, |bytes| match bytes as f64 / operations as f64 {
            few if few < 1e9 => format!("{} B", rate(few)),
            many => format!("{many:.1e} B"),
        })
    };
    for (name, usage) in &rows {
        let cells = [
            time(usage.cpu_s * 1e9 / operations as f64),
            per(usage.sent_bytes),
            per(usage.received_bytes),
            known(usage.memory_bytes, bytes),
            time(usage.cpu_s * 1e9),
            known(usage.run_queue_s, |seconds| time(seconds * 1e9)),
        ];
        columns.row(text, Style::new(), name, cells);
    }
    wrapped(text, "", WHAT_COSTS_ARE, styles.dim);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, terminal::WIDTH};
    use proptest::prelude::*;

    fn check(name: &str, text: &str) {
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "UPDATE_GOLDEN=1 accepts the new text");
    }

    #[test]
    fn a_paced_run_has_both_tables_and_response_leads() {
        check("summary-paced.txt", &summary(&sample::paced(), &Styles::colourless()));
    }

    #[test]
    fn an_unpaced_run_says_so() {
        check("summary-unpaced.txt", &summary(&sample::unpaced(), &Styles::colourless()));
    }

    #[test]
    fn costs_have_a_table_and_a_client_bound_warning_comes_first() {
        let text = summary(&sample::costly(), &Styles::colourless());
        let first = text.lines().find(|line| line.starts_with('!')).unwrap();
        assert!(first.starts_with("! The client bounded this result"), "{first}");
        check("summary-costs.txt", &text);
        let name = &sample::costly().processes[1].name;
        let text = summary(&sample::costly(), &Styles::plain());
        assert!(!text.contains('…') && text.contains(name), "a file has all of '{name}':\n{text}");
        let mut none = sample::costly();
        none.overall.operations = 0;
        assert!(!summary(&none, &Styles::plain()).contains("COST"));
    }

    #[test]
    fn a_result_without_operations_has_no_table() {
        let text = summary(&sample::empty(), &Styles::plain());
        assert!(!text.contains("RESPONSE TIME") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn only_ansi_styles_have_colours() {
        assert!(!summary(&sample::paced(), &Styles::plain()).contains('\x1b'));
        assert!(summary(&sample::paced(), &Styles::ansi()).contains("\x1b["));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_line_is_too_wide(document in sample::any_document()) {
            for line in summary(&document, &Styles::colourless()).lines() {
                prop_assert!(line.chars().count() <= WIDTH, "{}", line);
            }
        }
    }
}
