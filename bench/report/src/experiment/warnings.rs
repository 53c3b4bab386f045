//! What a reader must know before quoting a number of an experiment, the
//! gravest first, each with the points that it holds for.

use super::{
    load::Point,
    view::{CurveView, View},
};
use crate::{
    notes::{Note, printable},
    stationary::{CHANGED, STALLED},
    units::{count, percent, plural, rate},
};
use serval_measure::experiment::Flag;
use std::collections::BTreeMap;

/// Points named in a sentence.
const NAMED_MAX: usize = 12;

/// Sentences below one.
const DETAILS_MAX: usize = 12;

/// What each flag means for the numbers.
const FLAGS: [(Flag, &str); 7] = [
    (
        Flag::Overloaded,
        "Overloaded: more was offered than was done, so that what waits, and with it response times, grew for \
                        as long as the run lasted",
    ),
    (Flag::Unsteady, "Never steady: the warm-up was cut off before throughput and service time were steady"),
    (Flag::Stalled, "Stalled: for some time of the measured part nearly nothing was done"),
    (
        Flag::Changed,
        "Changed while measured: throughput or service time did not stay the same, and the numbers are of all of it \
                     together",
    ),
    (Flag::Failures, "Failures: times are of what succeeded"),
    (Flag::FewSamples, "Few samples: too few operations for the tail percentiles"),
    (Flag::Interrupted, "Interrupted: the run was ended before its time"),
];

/// How notes of lateness begin.
const LATE: &str = "Operations started late: ";

/// How notes of single runs begin that say what flags say of the points.
const SAID_BY_FLAGS: [&str; 5] =
    ["The run was not steady", "Whether the run was steady", "The schedule asked for", STALLED, CHANGED];

/// Whether a note of a single run is said by the points' own.
fn is_said_by_points(note: &str) -> bool {
    SAID_BY_FLAGS.iter().any(|start| note.starts_with(start)) || note.contains(" unfinished")
}

/// Some names, and how many more.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let shown = names[..names.len() - more].join("; ");
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

/// Some lines, and how many more.
fn cut(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(DETAILS_MAX);
    lines.truncate(DETAILS_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The numbers of a note of lateness: `p99 1.67 ms, at most 6.91 ms`.
fn lateness(note: &str) -> String {
    let numbers = note.strip_prefix(LATE).unwrap_or(note);
    // Numbers have points too; the sentence's is followed by a space.
    numbers.split(". ").next().unwrap_or(numbers).trim().to_owned()
}

pub(super) fn warnings(view: &View<'_>) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut say = |text: String, details: Vec<String>| notes.push(Note { text, details: cut(details) });
    let names = |holds: &dyn Fn(&CurveView<'_>, &Point) -> bool| -> Vec<String> {
        view.points().filter(|(c, p)| holds(c, p)).map(|(c, p)| c.name_of(p)).collect()
    };
    let bound = names(&|_, point| point.flags.contains(&Flag::ClientBound) || !point.bound.is_empty());
    if !bound.is_empty() {
        let reasons = view.points().flat_map(|(curve, point)| {
            point.bound.iter().map(move |sentence| format!("{}: {sentence}", curve.name_of(point)))
        });
        say(
            format!("Client bound: the client, and not the store, bounded these points: {}.", some(&bound)),
            reasons.collect(),
        );
    }
    for (flag, words) in FLAGS {
        let flagged = names(&|_, point| match flag {
            Flag::Failures => point.failed > 0 || point.flags.contains(&flag),
            _ => point.flags.contains(&flag),
        });
        if !flagged.is_empty() {
            let details = match flag {
                Flag::Failures => failures(view),
                Flag::Stalled => told(view, STALLED),
                Flag::Changed => told(view, CHANGED),
                _ => Vec::new(),
            };
            say(format!("{words}: {}.", some(&flagged)), details);
        }
        if flag == Flag::Overloaded {
            // Where that is so is said already.
            let missed = view.points().filter(|(_, point)| point.target_missed() && !point.overloaded());
            let missed: Vec<String> = missed
                .map(|(curve, point)| {
                    format!("{} ({}/s done)", curve.name_of(point), rate(point.throughput.value))
                })
                .collect();
            if !missed.is_empty() {
                say(format!("Target missed: less was done than was offered: {}.", some(&missed)), Vec::new());
            }
        }
    }
    let unfinished = view.points().filter(|(_, point)| point.unfinished > 0);
    let unfinished: Vec<String> = unfinished
        .map(|(curve, point)| format!("{} ({})", curve.name_of(point), count(point.unfinished)))
        .collect();
    if !unfinished.is_empty() {
        say(
            format!(
                "Unfinished operations: without an outcome when the run ended, so that the highest percentiles are lower \
                 bounds: {}.",
                some(&unfinished)
            ),
            Vec::new(),
        );
    }
    for part in view.parts {
        let document = &part.experiment.document;
        if !document.complete {
            let done =
                document.runs.iter().filter(|run| run.kind == serval_measure::experiment::RunKind::Point);
            say(
                format!(
                    "{} is not complete: {} of {} were done.",
                    printable(&document.title, 100),
                    done.count(),
                    plural(document.runs_planned, "run")
                ),
                Vec::new(),
            );
        }
        if !part.loaded.unreadable.is_empty() {
            say(
                "Results cannot be read; the numbers are of the others.".to_owned(),
                part.loaded.unreadable.clone(),
            );
        }
        document.warnings.iter().for_each(|warning| say(printable(warning, 1000), Vec::new()));
    }
    // The documents' own, each once; what the points say already is not said again.
    let mut own: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut late = Vec::new();
    let all = view.points().count();
    for (curve, point) in view.points() {
        for warning in point.warnings.iter().filter(|warning| !point.bound.contains(*warning)) {
            // The numbers of each are its own, what they mean is not.
            match warning.starts_with(LATE) {
                true if all > 1 => late.push((curve.name_of(point), lateness(warning))),
                _ if all > 1 && is_said_by_points(warning) => {}
                _ => own.entry(warning).or_default().push(curve.name_of(point)),
            }
        }
    }
    if !late.is_empty() {
        let names: Vec<String> = late.iter().map(|(name, _)| name.clone()).collect();
        say(
            format!(
                "Operations started late, for all clients still waited for answers or the machine gave the client no \
                 processor in time; the wait is part of the response times and not of the service times: {}.",
                some(&names)
            ),
            late.into_iter().map(|(name, numbers)| format!("{name}: {numbers}")).collect(),
        );
    }
    for (warning, names) in own {
        let which = if names.len() == all && all > 1 { "all points".to_owned() } else { some(&names) };
        say(if all > 1 { format!("{warning} ({which})") } else { warning.to_owned() }, Vec::new());
    }
    notes
}

/// What runs say of themselves that begins so, by point.
fn told(view: &View<'_>, start: &str) -> Vec<String> {
    let said = view.points().flat_map(|(curve, point)| {
        let notes = point.warnings.iter().filter_map(|note| note.strip_prefix(start));
        notes.map(|note| {
            let numbers = note.split(". ").next().unwrap_or(note).trim_end_matches('.');
            format!("{}: {numbers}", curve.name_of(point))
        })
    });
    said.collect()
}

/// What failed, by point and operation, and what the stores said.
fn failures(view: &View<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (curve, point) in view.points() {
        for metric in point.metrics.iter().filter(|metric| metric.failed > 0) {
            lines.push(format!(
                "{}: {} of {} {} ({})",
                curve.name_of(point),
                count(metric.failed),
                count(metric.count),
                metric.name,
                percent(metric.failed, metric.count)
            ));
        }
        let said = point.messages.iter().max_by_key(|(_, times)| **times);
        if let (Some((words, times)), Some(line)) = (said, lines.last_mut()) {
            line.push_str(&format!("; {} × {words}", count(*times)));
        }
    }
    lines
}
