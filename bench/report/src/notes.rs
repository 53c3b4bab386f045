//! The texts of notes: what to know before quoting a number.

use crate::{
    stationary::{changed, stalled},
    sums::sum,
    text::printable,
    units::{count, percent, plural, rate, time, were},
};
use serval_result::{
    document::ResultDocument,
    metric::MessageCount,
    note::{ClientName, GroupNote, LagNote, MergedNote, Note},
    notes::derived,
};
use std::collections::BTreeMap;

/// Characters shown of a message: a store may answer with a whole page.
const MESSAGE_MAX: usize = 200;

/// Characters shown of a reason why the client bounded a result.
const REASON_MAX: usize = 500;

/// Characters shown of a text of a process of a group.
const CLIENT_MAX: usize = 300;

/// Explains why keys may never be found with write buffers.
const OVERTAKEN: &str = " Behind write buffers some may never be found: what one client acknowledged before, and sent after, \
    has written over them.";

/// A note in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The sentence.
    pub text: String,
    /// Details, for example a store's messages.
    pub details: Vec<String>,
}

impl From<&Note> for Warning {
    fn from(note: &Note) -> Self {
        Warning { text: text(note), details: details(note) }
    }
}

impl Warning {
    /// Returns the warning in one line, as a document's `warnings` have it.
    pub fn line(&self) -> String {
        if self.details.is_empty() {
            self.text.clone()
        } else {
            format!("{} {}", self.text, self.details.join("; "))
        }
    }
}

/// Returns the text of a note in one line.
pub fn line(note: &Note) -> String {
    Warning::from(note).line()
}

/// The notes that a document has. Documents of older versions have warnings only.
pub(crate) fn stored(document: &ResultDocument) -> Vec<Note> {
    let text = |text: &String| Note::Text { text: text.clone() };
    if document.notes.is_empty() {
        return document.warnings.iter().map(text).collect();
    }
    let notes = document.notes.iter().enumerate().map(|(number, note)| match note {
        // The later version that wrote this note wrote a warning too.
        Note::Other { .. } => document.warnings.get(number).map_or_else(|| note.clone(), text),
        note => note.clone(),
    });
    notes.collect()
}

/// Returns all notes of a result, the gravest first: those derived from its numbers, and its own.
pub fn notes(document: &ResultDocument) -> Vec<Note> {
    let mut notes = derived(document);
    let lines = lines(&notes);
    notes.extend(stored(document).into_iter().filter(|note| !lines.contains(&line(note))));
    notes
}

/// Returns the warnings of a result, the gravest first.
pub fn warnings(document: &ResultDocument) -> Vec<Warning> {
    notes(document).iter().map(Warning::from).collect()
}

/// Returns the texts of notes, as a document's `warnings` have them.
pub fn lines(notes: &[Note]) -> Vec<String> {
    notes.iter().map(line).collect()
}

/// Says that a store holds none of the `keys` sampled keys of a table, such as `key`.
pub fn no_records(keys: u64, key: &str, table: &str) -> String {
    format!("there are no records: none of {keys} keys such as '{key}' is in '{table}'")
}

fn details(note: &Note) -> Vec<String> {
    match note {
        Note::OperationsFailed { messages: some, more_messages, .. } => messages(some, *more_messages),
        Note::Merged(MergedNote::OfPart { note, .. }) => details(note),
        _ => Vec::new(),
    }
}

fn text(note: &Note) -> String {
    match note {
        Note::ClientBound { reason } => printable(reason, REASON_MAX),
        Note::Interrupted => {
            "A signal (Ctrl-C) ended the run: the numbers are of the part that was run.".to_owned()
        }
        Note::Failed => "The run failed before its end: the numbers are of the part that was run.".to_owned(),
        Note::NotSteady { warm_up_s, window_s, throughput_drift, service_drift } => format!(
            "The run was not steady when it was measured: {} throughput still changed by {:+.1} % and the mean service time by \
             {:+.1} % within {}. Raise warmup.max, or find out what disturbs the store.",
            after_warm_up(*warm_up_s),
            throughput_drift * 100.0,
            service_drift * 100.0,
            time(window_s * 1e9)
        ),
        Note::SteadinessUnknown { warm_up_s } => format!(
            "Whether the run was steady when it was measured could not be told: {} there were too few operations, or too much \
             noise. Raise warmup.max.",
            after_warm_up(*warm_up_s)
        ),
        Note::Stalled { stalls, judged_s } => stalled(stalls, *judged_s),
        Note::Changed { throughput, service, judged_s } => {
            changed(throughput.as_ref(), service.as_ref(), *judged_s)
        }
        Note::Unfinished { in_flight, not_started, oldest_ns, operations } => {
            unfinished(*in_flight, *not_started, *oldest_ns, *operations)
        }
        Note::BufferedWritesNotDone { sent, lost, unsent } => not_done(*sent, *lost, *unsent),
        Note::OperationsFailed { operation, count: all, failed, .. } => failures(operation, *all, failed),
        Note::TargetMissed { target, throughput } => format!(
            "The schedule asked for {} operations/s, {} were done: the store, or the client, is too slow for it.",
            rate(*target),
            rate(*throughput)
        ),
        Note::StartedLate { p99_ns, max_ns, slack_ns } => late(*p99_ns, *max_ns, *slack_ns),
        Note::DebugBuild => {
            "This is a debug build of the client: its numbers are not to be quoted.".to_owned()
        }
        Note::NoOperations => "No operation was measured.".to_owned(),
        Note::FewOperations { operations } => {
            format!("Only {} measured: tail percentiles say little.", were(*operations, "operation"))
        }
        Note::StoreLost { message } => format!("The store was lost: {message}."),
        Note::WorkloadEnded { message } => format!("The workload ended the run: {message}."),
        Note::ClientsLost { message } => format!("{message}."),
        Note::WatchedProcessEnded { name } => {
            format!("The watched process '{name}' ended during the run: its cost is not known.")
        }
        Note::WatchedBytesUnknown { name, why } => {
            format!("Bytes of the watched process '{name}' are not counted: {why}.")
        }
        Note::RawTimesMissing => "a client hangs: the last raw times are missing".to_owned(),
        Note::LoadIncomplete { missing } => {
            format!("the load is not complete: {} not inserted", were(*missing, "record"))
        }
        Note::CommandNotRun { client } => format!("client {client} was lost and did not run it"),
        Note::CurveGivenUp { curve, at, why } => format!("{curve}: given up at '{at}': {why}"),
        Note::SaturationNotReached { curve, saturation, most } => format!(
            "{}: no point reached the saturation of {} operations/s that was found before them; the most is {}. The store or \
             the machine became slower, or the search met a fast moment: repeat the sweep, with longer runs.",
            printable(curve, 60),
            rate(*saturation),
            rate(*most)
        ),
        Note::NoRecords { keys, key, table, store } => {
            let none = no_records(*keys, key, table);
            printable(
                &format!("{none}. Updates insert them, for that is what an update of {store} does"),
                usize::MAX,
            )
        }
        Note::Text { text } => printable(text, usize::MAX),
        Note::Group(note) => of_group(note),
        Note::Lag(note) => of_lag(note),
        Note::Merged(note) => of_merged(note),
        Note::Other { code, .. } => format!("A later version of Serval notes '{}'.", printable(code, 60)),
    }
}

fn of_group(note: &GroupNote) -> String {
    let name = |client: &ClientName| {
        let ClientName { share, host, process } = client;
        format!("{share} on {} (process {process})", printable(host, 40))
    };
    match note {
        GroupNote::ClientLost { client, why, operations } => {
            let nothing = if *operations == 0 { ": nothing of what it did is in the numbers" } else { "" };
            format!("Client {} {}{nothing}.", name(client), printable(why, CLIENT_MAX))
        }
        GroupNote::StartApart { apart_ns, clock_error_ns } => format!(
            "The clients may have begun as much as {} apart (clocks are known to {}).",
            time(*apart_ns as f64),
            time(*clock_error_ns as f64)
        ),
        GroupNote::Trouble { trouble } => {
            format!("While the group was at work: {}.", printable(trouble.trim_end_matches('.'), CLIENT_MAX))
        }
        GroupNote::ClientWarning { client, text } => {
            format!("Client {}: {}", name(client), printable(text, CLIENT_MAX))
        }
    }
}

fn of_lag(note: &LagNote) -> String {
    match note {
        LagNote::NotCarried { not_carried, carried } => format!(
            "{} of {} sampled writes did not go into the queue, which was full or too slow: their lag is not known. Lower \
             lag.sample, or use more consumers.",
            count(*not_carried),
            count(not_carried.saturating_add(*carried))
        ),
        LagNote::NotFound { keys, buffered } => format!(
            "{} not found when the time was over (lag.drain): their lag is longer than what was seen, and is in no \
             percentile. The survival curve has them as what they are.{}",
            were(*keys, "key"),
            if *buffered { OVERTAKEN } else { "" }
        ),
        LagNote::NotTaken { keys } => format!(
            "{} carried and came to no consumer that told of it: there were too few consumers, or one was lost. Nothing is \
             known of their lag.",
            were(*keys, "key")
        ),
        LagNote::Undecided { keys } => format!(
            "{} written over or deleted, or may have been, before a consumer found them: nothing is said of their lag.",
            were(*keys, "key")
        ),
        LagNote::NotNoted { operations } => format!(
            "{} could not be noted, for there were too many: what is said of lag and versions does not know of them. Lower \
             lag.sample.",
            plural(*operations, "read or write")
        ),
        LagNote::TooShort { writes } => format!(
            "{} of sampled keys had a value of less than 20 bytes, which a version needs: what reads of such values saw is left open.",
            plural(*writes, "write")
        ),
        LagNote::FromBefore { keys } => format!(
            "{} in the queue when the consumer began: they were waited for, or are of an earlier run. Another lag.queue \
             keeps runs apart.",
            were(*keys, "key")
        ),
        LagNote::Foreign { entries } => {
            format!("{} in the queue could not be understood, and left out.", were(*entries, "thing"))
        }
        LagNote::ReadsFailed { failed, reads } => format!(
            "{} of {} reads by consumers failed, which says nothing of lag.",
            count(*failed),
            count(*reads)
        ),
    }
}

fn of_merged(note: &MergedNote) -> String {
    match note {
        MergedNote::Regardless { problem } => format!("{problem}; they were merged all the same."),
        MergedNote::NotAtOnce { parts: [first, second], apart_s } => format!(
            "{first} ended {} before {second} began to measure: their throughputs must not be added. Merge runs in turn with \
             --one-after-another.",
            time(apart_s * 1e9)
        ),
        MergedNote::WithoutSeries => {
            "The series is left out: summaries of intervals cannot be merged. The parts have theirs."
                .to_owned()
        }
        MergedNote::OfPart { part, note } => format!("{part}: {}", text(note)),
        MergedNote::MachinesDiffer { machines } => {
            format!("The clients' machines differ. {}.", machines.join(". "))
        }
        MergedNote::NotPaced { part } => {
            format!("{part}: closed loop: its response times are its service times.")
        }
        MergedNote::LagNotMeasured { part } => {
            format!("{part}: no lag was measured: what is said of lag is of the others.")
        }
        MergedNote::LagSamplingDiffers { parts: [first, second], samples, poll_ns } => {
            let of = |which: usize| {
                format!("{} of keys, read every {:.3} ms", samples[which], poll_ns[which] as f64 / 1e6)
            };
            let (one, other) = (of(0), of(1));
            format!(
                "Lag was sampled differently ({first}: {one}; {second}: {other}): its distribution is of both."
            )
        }
        MergedNote::WithoutSurvival => {
            "The survival curves of lag are left out: curves that have censored keys in them \
             cannot be added. The parts have theirs."
                .to_owned()
        }
        MergedNote::WithoutVisibility { parts } => format!(
            "Hand-over, and times from acknowledgement to visibility, are left out: {} has none, for its clocks are not known.",
            parts.join(", ")
        ),
    }
}

fn after_warm_up(warm_up_s: f64) -> String {
    format!("after {} of warm-up, the longest allowed,", time(warm_up_s * 1e9))
}

fn unfinished(in_flight: u64, not_started: u64, oldest_ns: Option<u64>, finished: u64) -> String {
    let all = in_flight.saturating_add(not_started);
    let what = match (in_flight, not_started) {
        (_, 0) => String::new(),
        (0, _) => ", none of them sent".to_owned(),
        (sent, unsent) => format!(" ({} sent, {} due and not sent)", count(sent), count(unsent)),
    };
    let oldest = oldest_ns.map_or(String::new(), |ns| format!(", the oldest {}", time(ns as f64)));
    let known = known_percentile(finished, all);
    format!(
        "{} unfinished{what}{oldest}: percentiles above p{known} are lower bounds.",
        plural(all, "operation")
    )
}

/// The percentile up to which unfinished operations, which may be slower than all others, change
/// nothing; rounded down.
fn known_percentile(finished: u64, unfinished: u64) -> String {
    let unknown = unfinished as f64 / finished.saturating_add(unfinished) as f64 * 100.0;
    // One digit more than the share has: p99.98 for 0.013 %.
    let decimals = (-unknown.log10().floor()).clamp(0.0, 6.0) as usize;
    let factor = 10f64.powi(decimals as i32);
    let known = ((100.0 - unknown) * factor + 1e-6).floor() / factor;
    format!("{known:.decimals$}")
}

/// Acknowledged writes that failed or were never sent.
fn not_done(sent: u64, lost: u64, unsent: u64) -> String {
    let lost = (lost > 0).then(|| format!("of {} sent up to {} failed (FLUSH)", count(sent), count(lost)));
    let unsent = (unsent > 0).then(|| format!("{} were never sent", count(unsent)));
    let both: Vec<String> = lost.into_iter().chain(unsent).collect();
    format!("Writes were acknowledged when they were buffered, and not done: {}.", both.join(", and "))
}

fn failures(operation: &str, all: u64, failed: &BTreeMap<String, u64>) -> String {
    let sum = sum(failed.values().copied());
    let by_status: Vec<String> =
        failed.iter().map(|(status, n)| format!("{} {}", count(*n), printable(status, 40))).collect();
    format!(
        "{}: {} of {} failed ({}): {}.",
        printable(operation, 40),
        count(sum),
        count(all),
        percent(sum, all),
        by_status.join(", ")
    )
}

fn messages(messages: &[MessageCount], more: u64) -> Vec<String> {
    let line = |m: &MessageCount| {
        format!("{} × {}: {}", count(m.count), m.status, printable(&m.message, MESSAGE_MAX))
    };
    let more = (more > 0).then(|| format!("and {}; result.json has all", plural(more, "other message")));
    messages.iter().map(line).chain(more).collect()
}

fn late(p99_ns: u64, max_ns: u64, slack_ns: Option<u64>) -> String {
    let why = match slack_ns {
        Some(slack) => format!(
            "Operations due were held for up to {} to be sent together (pacing.slack=0 sends each when it is due, for \
             more CPU time)",
            time(slack as f64)
        ),
        None => "All clients still waited for answers, or the machine gave the client no processor in time"
            .to_owned(),
    };
    format!(
        "Operations started late: p99 {}, at most {}. {why}; the wait is part of the response times and not of the \
         service times.",
        time(p99_ns as f64),
        time(max_ns as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use serval_result::{
        document::EndedBy,
        flags::{Flag, flags},
        load::Steadiness,
    };

    #[test]
    fn unfinished_operations_bound_percentiles() {
        assert_eq!(known_percentile(999, 1), "99.9");
        assert_eq!(known_percentile(75, 25), "75");
        assert_eq!(known_percentile(999_870, 130), "99.98");
        assert_eq!(known_percentile(0, 3), "0");
        assert_eq!(
            unfinished(12, 3, None, 985),
            "15 operations unfinished (12 sent, 3 due and not sent): percentiles above p98 are lower bounds."
        );
    }

    /// A run whose operations fail at once does not load its client.
    #[test]
    fn a_failed_run_is_not_bounded_by_its_client() {
        let mut document = sample::costly();
        let is_bound = |document: &ResultDocument| {
            let noted = notes(document).iter().any(|note| matches!(note, Note::ClientBound { .. }));
            assert_eq!(noted, flags(document).contains(&Flag::ClientBound));
            noted
        };
        assert!(is_bound(&document));
        document.overall.ended_by = EndedBy::Failed.into();
        assert!(!is_bound(&document));
    }

    #[test]
    fn acknowledged_writes_that_failed_are_noted() {
        assert_eq!(
            not_done(1000, 30, 4),
            "Writes were acknowledged when they were buffered, and not done: of 1,000 sent up to 30 failed (FLUSH), \
             and 4 were never sent."
        );
    }

    #[test]
    fn a_run_that_was_not_steady_says_so_first() {
        let mut document = sample::unpaced();
        let first = |document: &ResultDocument| warnings(document).remove(0).text;
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

    /// A document has each note once, whether it stores notes or only warnings.
    #[test]
    fn a_document_has_each_note_once() {
        let mut document = sample::paced();
        let said = warnings(&document);
        let mut notes = notes(&document);
        assert!(notes.iter().any(|note| matches!(note, Note::OperationsFailed { .. })), "{notes:?}");
        document.warnings = said.iter().map(Warning::line).collect();
        assert_eq!(warnings(&document), said, "without notes");
        notes.push(Note::Other { code: "tides".to_owned(), arguments: serde_json::Value::Null });
        (document.warnings, document.notes) = (lines(&notes), notes);
        *document.warnings.last_mut().unwrap() = "The tide was high.".to_owned();
        let mut bytes = Vec::new();
        crate::json::write(&document, &mut bytes).unwrap();
        let document = crate::json::read(&bytes[..]).unwrap();
        let texts: Vec<String> = warnings(&document).into_iter().map(|warning| warning.text).collect();
        let wanted = said.into_iter().map(|warning| warning.text).chain(["The tide was high.".to_owned()]);
        assert_eq!(texts, wanted.collect::<Vec<_>>());
    }
}
