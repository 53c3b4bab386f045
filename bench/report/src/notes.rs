//! What a reader must know before quoting a number: the document's own
//! warnings, and those that its numbers make.

use crate::{
    group, lag, stationary,
    units::{count, percent, plural, rate, time},
};
use serval_result::{
    document::{BufferedResult, Censored, EndedBy, Latency, MetricResult, ResultDocument},
    flags::Offered,
    load::Steadiness,
};

/// Messages shown of one operation.
const MESSAGES_SHOWN: usize = 3;

/// Characters shown of one message: a store may answer with a whole page.
const MESSAGE_MAX: usize = 200;

/// Characters shown of a reason why the client bounded a result.
const REASON_MAX: usize = 500;

/// Share of the 99th percentile of response times from which lateness is
/// worth a word.
const LATENESS_MATTERS: f64 = 0.1;

/// Lateness of which nothing is said: what a timer and a switch of processes
/// take on a healthy machine.
const LATENESS_USUAL_NS: u64 = 200_000;

/// Change within a warm-up that is worth its number: below it, the noise is
/// what hides whether the run is steady.
const DRIFT_SEEN: f64 = 0.02;

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What is the matter.
    pub text: String,
    /// More of it, for example a store's messages.
    pub details: Vec<String>,
}

impl Note {
    /// The note in one line, as a document's `warnings` have it.
    pub fn line(&self) -> String {
        if self.details.is_empty() {
            self.text.clone()
        } else {
            format!("{} {}", self.text, self.details.join("; "))
        }
    }
}

/// All warnings of a result, the gravest first: those that its numbers make,
/// and those of its own that are not the same.
pub fn notes(document: &ResultDocument) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    let mut say = |text: String, details: Vec<String>| notes.push(Note { text, details });
    // Before all else: such numbers say little of the store.
    for reason in document.client.iter().flat_map(|client| &client.bound_by_client) {
        say(printable(reason, REASON_MAX), vec![]);
    }
    for note in document.group.iter().flat_map(group::notes) {
        say(note.text, note.details);
    }
    match document.overall.ended_by.known() {
        Some(EndedBy::Interrupted) => {
            say("A signal (Ctrl-C) ended the run: the numbers are of the part that was run.".into(), vec![])
        }
        Some(EndedBy::Failed) => {
            say("The run failed before its end: the numbers are of the part that was run.".into(), vec![])
        }
        _ => (),
    }
    if let Some(text) = document.steadiness.as_ref().and_then(|s| unsteady(s, document.overall.warm_up_s)) {
        say(text, vec![]);
    }
    for text in document.stationarity.iter().flat_map(stationary::sentences) {
        say(text, vec![]);
    }
    if let Some(text) = censored(&document.censored, document.overall.operations) {
        say(text, vec![]);
    }
    if let Some(text) = document.buffered.as_ref().and_then(not_done) {
        say(text, vec![]);
    }
    let is_buffered = document.buffered.is_some();
    for note in document.lag.iter().flat_map(|lag| lag::notes(lag, is_buffered)) {
        say(note.text, note.details);
    }
    for metric in &document.metrics {
        if let Some(text) = failures(metric) {
            say(text, messages(metric));
        }
    }
    if let Some(pacing) = &document.pacing {
        if let Some(text) = target_missed(document) {
            say(text, vec![]);
        }
        if let Some(text) = lateness(document, &pacing.lateness) {
            say(text, vec![]);
        }
    }
    let derived: Vec<String> = notes.iter().map(Note::line).collect();
    for warning in document.warnings.iter().filter(|warning| !derived.contains(warning)) {
        notes.push(Note { text: printable(warning, usize::MAX), details: vec![] });
    }
    notes
}

/// A run that was not steady when it was measured.
fn unsteady(steadiness: &Steadiness, warm_up_s: f64) -> Option<String> {
    if steadiness.steady {
        return None;
    }
    let Steadiness { throughput_drift, service_drift, window_s, .. } = steadiness;
    let warmed = format!("after {} of warm-up, the longest allowed,", time(warm_up_s * 1e9));
    if throughput_drift.abs().max(service_drift.abs()) < DRIFT_SEEN {
        return Some(format!(
            "Whether the run was steady when it was measured could not be told: {warmed} there were too few operations, \
             or too much noise. Raise warmup.max."
        ));
    }
    Some(format!(
        "The run was not steady when it was measured: {warmed} throughput still changed by {:+.1} % and the mean \
         service time by {:+.1} % within {}. Raise warmup.max, or find out what disturbs the store.",
        throughput_drift * 100.0,
        service_drift * 100.0,
        time(window_s * 1e9)
    ))
}

/// That a schedule asked for more than was done, if it did.
fn target_missed(document: &ResultDocument) -> Option<String> {
    let offered = Offered::of(document).filter(Offered::is_missed)?;
    Some(format!(
        "The schedule asked for {} operations/s, {} were done: the store, or the client, is too slow for it.",
        rate(offered.target),
        rate(offered.throughput)
    ))
}

/// The percentile of a latency, if it was asked for.
pub fn percentile(latency: &Latency, percentile: f64) -> Option<u64> {
    latency.percentiles.iter().find(|p| (p.percentile - percentile).abs() < 1e-9).map(|p| p.ns)
}

/// `run of CoreWorkload on redis`, after the label if there is one. Workloads
/// are classes in packages to YCSB, and scripts files in folders; their last
/// names say enough.
pub fn title(document: &ResultDocument) -> String {
    let run = &document.run;
    let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
    let divider = if run.workload.ends_with(".lua") { ['/', '\\'] } else { ['.', '.'] };
    let workload = run.workload.rsplit(divider).next().unwrap_or(&run.workload);
    format!("{label}{} of {workload} on {}", run.phase, run.store)
}

/// What came from outside, without characters that steer a terminal, and cut.
pub fn printable(text: &str, max: usize) -> String {
    let mut clean = String::new();
    for (index, c) in text.chars().enumerate() {
        if index >= max {
            clean.push('…');
            break;
        }
        clean.push(if c.is_control() || turns(c) { ' ' } else { c });
    }
    clean
}

/// Whether a character turns the direction of what stands behind it, over the end of its own text: a name
/// must not change how the numbers beside it are read.
pub(crate) fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
}

/// How often an operation ended, in whatever way. Numbers come from files
/// too, so that nothing here overflows.
pub fn total(metric: &MetricResult) -> u64 {
    metric.statuses.values().fold(0, |sum, n| sum.saturating_add(*n))
}

fn censored(censored: &Censored, finished: u64) -> Option<String> {
    let (sent, unsent) = (censored.in_flight, censored.not_started);
    let unfinished = sent.saturating_add(unsent);
    if unfinished == 0 {
        return None;
    }
    let what = match (sent, unsent) {
        (_, 0) => String::new(),
        (0, _) => ", none of them sent".to_owned(),
        (sent, unsent) => format!(" ({} sent, {} due and not sent)", count(sent), count(unsent)),
    };
    let ages = [&censored.in_flight_age, &censored.not_started_age];
    let oldest = ages.into_iter().flatten().map(|age| age.max_ns).max();
    let oldest = oldest.map_or(String::new(), |ns| format!(", the oldest {}", time(ns as f64)));
    let known = known_percentile(finished, unfinished);
    Some(format!(
        "{} unfinished{what}{oldest}: percentiles above p{known} are lower bounds.",
        plural(unfinished, "operation")
    ))
}

/// Whether operations that were not finished make a percentile a lower bound.
pub fn is_lower_bound(document: &ResultDocument, percentile: f64) -> bool {
    let censored = &document.censored;
    let unfinished = censored.in_flight.saturating_add(censored.not_started) as f64;
    let all = document.overall.operations as f64 + unfinished;
    unfinished > 0.0 && percentile > 100.0 * (1.0 - unfinished / all)
}

/// The percentile up to which unfinished operations, which may be slower
/// than all others, leave the numbers alone; rounded down.
fn known_percentile(finished: u64, unfinished: u64) -> String {
    let unknown = unfinished as f64 / finished.saturating_add(unfinished) as f64 * 100.0;
    // One digit more than the share needs: p99.98 for 0.013 %.
    let decimals = (-unknown.log10().floor()).clamp(0.0, 6.0) as usize;
    let factor = 10f64.powi(decimals as i32);
    let known = ((100.0 - unknown) * factor + 1e-6).floor() / factor;
    format!("{known:.decimals$}")
}

/// Writes that were acknowledged and not done.
fn not_done(buffered: &BufferedResult) -> Option<String> {
    let BufferedResult { sent, lost, unsent } = *buffered;
    let lost = (lost > 0).then(|| format!("of {} sent up to {} failed (FLUSH)", count(sent), count(lost)));
    let unsent = (unsent > 0).then(|| format!("{} were never sent", count(unsent)));
    let both: Vec<String> = lost.into_iter().chain(unsent).collect();
    (!both.is_empty()).then(|| {
        format!("Writes were acknowledged when they were buffered, and not done: {}.", both.join(", and "))
    })
}

fn failures(metric: &MetricResult) -> Option<String> {
    let ok = |status: &str| matches!(status, "OK" | "BATCHED_OK");
    let all = total(metric);
    let failed: Vec<_> = metric.statuses.iter().filter(|(status, n)| !ok(status) && **n > 0).collect();
    let sum = failed.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(**n));
    if sum == 0 {
        return None;
    }
    let by_status: Vec<String> =
        failed.iter().map(|(status, n)| format!("{} {}", count(**n), printable(status, 40))).collect();
    Some(format!(
        "{}: {} of {} failed ({}): {}.",
        printable(&metric.name, 40),
        count(sum),
        count(all),
        percent(sum, all),
        by_status.join(", ")
    ))
}

fn messages(metric: &MetricResult) -> Vec<String> {
    let mut messages: Vec<_> = metric.messages.iter().collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.count));
    let more = messages.len().saturating_sub(MESSAGES_SHOWN);
    let mut lines: Vec<String> = messages
        .iter()
        .take(MESSAGES_SHOWN)
        .map(|m| format!("{} × {}: {}", count(m.count), m.status, printable(&m.message, MESSAGE_MAX)))
        .collect();
    if more > 0 {
        lines.push(format!("and {}; result.json has all", plural(more as u64, "other message")));
    }
    lines
}

fn lateness(document: &ResultDocument, lateness: &Latency) -> Option<String> {
    let late = percentile(lateness, 99.0)?;
    let responses = document.metrics.iter().filter_map(|m| percentile(&m.ok.as_ref()?.response, 99.0));
    let response = responses.max()?;
    if late < LATENESS_USUAL_NS || (late as f64) < response as f64 * LATENESS_MATTERS {
        return None;
    }
    let slack = document.pacing.as_ref().map_or(0, |pacing| pacing.slack_ns);
    let why = if late <= slack.saturating_mul(2) {
        format!(
            "Operations due were held for up to {} to be sent together (pacing.slack=0 sends each when it is due, for \
             more CPU time)",
            time(slack as f64)
        )
    } else {
        "All clients still waited for answers, or the machine gave the client no processor in time".to_owned()
    };
    Some(format!(
        "Operations started late: p99 {}, at most {}. {why}; the wait is part of the response times and not of the \
         service times.",
        time(late as f64),
        time(lateness.max_ns as f64)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_operations_bound_percentiles() {
        assert_eq!(known_percentile(999, 1), "99.9");
        assert_eq!(known_percentile(75, 25), "75");
        assert_eq!(known_percentile(999_870, 130), "99.98");
        assert_eq!(known_percentile(0, 3), "0");
        let none = Censored::default();
        assert_eq!(censored(&none, 5), None);
        let some = Censored { in_flight: 12, not_started: 3, ..Censored::default() };
        assert_eq!(
            censored(&some, 985).unwrap(),
            "15 operations unfinished (12 sent, 3 due and not sent): percentiles above p98 are lower bounds."
        );
    }

    #[test]
    fn acknowledged_writes_that_were_not_done_are_told() {
        let buffered = |lost, unsent| BufferedResult { sent: 1000, lost, unsent };
        assert_eq!(not_done(&buffered(0, 0)), None);
        assert_eq!(
            not_done(&buffered(30, 4)).unwrap(),
            "Writes were acknowledged when they were buffered, and not done: of 1,000 sent up to 30 failed (FLUSH), \
             and 4 were never sent."
        );
    }

    #[test]
    fn a_run_that_was_not_steady_says_so_first() {
        let mut document = crate::sample::unpaced();
        let first = |document: &ResultDocument| notes(document).remove(0).text;
        document.steadiness = Some(Steadiness {
            steady: false,
            max_s: 10.0,
            window_s: 5.0,
            throughput_drift: 0.123,
            service_drift: -0.11,
        });
        assert_eq!(
            first(&document),
            "The run was not steady when it was measured: after 10.0 s of warm-up, the longest allowed, throughput \
             still changed by +12.3 % and the mean service time by -11.0 % within 5.00 s. Raise warmup.max, or find \
             out what disturbs the store."
        );
        let steadiness = document.steadiness.as_mut().unwrap();
        (steadiness.throughput_drift, steadiness.service_drift) = (0.0, 0.0);
        assert!(first(&document).contains("could not be told"));
        document.steadiness.as_mut().unwrap().steady = true;
        assert!(!first(&document).contains("steady"));
    }

    #[test]
    fn terminals_are_not_steered_by_stores() {
        assert_eq!(printable("a\x1b[31m\nb", 99), "a [31m b");
        assert_eq!(printable("abcdef", 3), "abc…");
    }
}
