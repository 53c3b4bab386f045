//! What a reader must know before quoting a number of an experiment, the
//! gravest first, each with the points that it holds for.

use super::{load::Point, view::View};
use crate::{
    notes::{Note, printable},
    stationary::{CHANGED, STALLED},
    units::{count, percent, plural, rate},
};
use serval_result::experiment::Flag;

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

/// A point: its curve, and its load with what is to be said of it.
type Named<'n> = (&'n str, String);

/// Some points, by curve, and how many more: `redis at 2,000/s, 4,000/s; yesquel at 1,000/s`. What is
/// to be said of a point stands behind its load.
fn some(points: &[Named<'_>]) -> String {
    let more = points.len().saturating_sub(NAMED_MAX);
    let curves = points[..points.len() - more].chunk_by(|a, b| a.0 == b.0);
    let curves: Vec<String> = curves
        .map(|points| {
            let loads: Vec<&str> = points.iter().map(|(_, load)| load.as_str()).collect();
            format!("{} at {}", points[0].0, loads.join(", "))
        })
        .collect();
    let shown = curves.join("; ");
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

/// A sentence with its numbers left out, and the numbers: commas of thousands and points of decimals
/// are parts of them.
fn apart(sentence: &str) -> (String, Vec<String>) {
    let (mut form, mut numbers) = (String::new(), Vec::new());
    let mut rest = sentence;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[at..];
        let end = number.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.'));
        let number = number[..end.unwrap_or(number.len())].trim_end_matches([',', '.']);
        form.push_str(&rest[..at]);
        form.push('\u{0}');
        numbers.push(number.to_owned());
        rest = &rest[at + number.len()..];
    }
    form.push_str(rest);
    (form, numbers)
}

/// Sentences that differ in their numbers only as one, with the least and the most of each
/// number, and the points that it is said of.
fn together<'n>(said: &[(&'n str, String, String)]) -> Vec<(String, Vec<Named<'n>>)> {
    let mut forms: Vec<(String, Vec<Vec<String>>, Vec<Named<'n>>)> = Vec::new();
    for (curve, load, sentence) in said {
        let (form, numbers) = apart(sentence);
        let point = (*curve, load.clone());
        match forms.iter_mut().find(|(other, ..)| *other == form) {
            Some((_, all, points)) => {
                all.push(numbers);
                if !points.contains(&point) {
                    points.push(point);
                }
            }
            None => forms.push((form, vec![numbers], vec![point])),
        }
    }
    let value = |number: &&String| number.replace(',', "").parse::<f64>().unwrap_or(f64::MAX);
    let sentence = |form: &str, all: &[Vec<String>]| {
        let mut parts = form.split('\u{0}');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for (nth, part) in parts.enumerate() {
            let numbers = || all.iter().filter_map(|numbers| numbers.get(nth));
            let by_value = |a: &&String, b: &&String| value(a).total_cmp(&value(b));
            if let (Some(least), Some(most)) = (numbers().min_by(by_value), numbers().max_by(by_value)) {
                out.push_str(least);
                if least != most {
                    out.push_str(&format!(" to {most}"));
                }
            }
            out.push_str(part);
        }
        out
    };
    forms.into_iter().map(|(form, all, points)| (sentence(&form, &all), points)).collect()
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
    let mut notes: Vec<Note> = view.parts.iter().flat_map(super::phases::warnings).collect();
    let mut say = |text: String, details: Vec<String>| notes.push(Note { text, details: cut(details) });
    let names = |holds: &dyn Fn(&Point) -> bool| -> Vec<(&str, String)> {
        view.points().filter(|(_, p)| holds(p)).map(|(c, p)| (c.name.as_str(), p.load())).collect()
    };
    let bound = names(&|point| point.flags.contains(&Flag::ClientBound) || !point.bound.is_empty());
    if !bound.is_empty() {
        let reasons: Vec<(&str, String, String)> = view
            .points()
            .flat_map(|(curve, point)| {
                let said = point.bound.iter();
                said.map(|sentence| (curve.name.as_str(), point.load(), sentence.clone()))
            })
            .collect();
        let reasons = together(&reasons);
        let only = reasons.len() == 1;
        let reasons = reasons.into_iter().map(|(sentence, points)| match only {
            true => sentence,
            false => format!("{}: {sentence}", some(&points)),
        });
        say(
            format!("Client bound: the client, and not the store, bounded these points: {}.", some(&bound)),
            reasons.collect(),
        );
    }
    for (flag, words) in FLAGS {
        let flagged = names(&|point| match flag {
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
            let missed: Vec<(&str, String)> = missed
                .map(|(curve, point)| {
                    let done = format!("{} ({}/s done)", point.load(), rate(point.throughput.value));
                    (curve.name.as_str(), done)
                })
                .collect();
            if !missed.is_empty() {
                say(format!("Target missed: less was done than was offered: {}.", some(&missed)), Vec::new());
            }
        }
    }
    let unfinished = view.points().filter(|(_, point)| point.unfinished > 0);
    let unfinished: Vec<(&str, String)> = unfinished
        .map(|(curve, point)| {
            (curve.name.as_str(), format!("{} ({})", point.load(), count(point.unfinished)))
        })
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
        if !document.complete && !super::phases::has(part) {
            let done =
                document.runs.iter().filter(|run| run.kind == serval_result::experiment::RunKind::Point);
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
    let mut own: Vec<(&str, String, String)> = Vec::new();
    let mut late: Vec<(&str, String, String)> = Vec::new();
    let all = view.points().count();
    for (curve, point) in view.points() {
        for warning in point.warnings.iter().filter(|warning| !point.bound.contains(*warning)) {
            let said = (curve.name.as_str(), point.load());
            // The numbers of each are its own, what they mean is not.
            match warning.starts_with(LATE) {
                true if all > 1 => late.push((said.0, said.1, lateness(warning))),
                _ if all > 1 && is_said_by_points(warning) => {}
                _ => own.push((said.0, said.1, warning.clone())),
            }
        }
    }
    if !late.is_empty() {
        // A point has such a note for each repeat.
        let repeats = late.chunk_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
        let (points, details): (Vec<_>, Vec<_>) = repeats
            .map(|of| {
                let numbers: Vec<&str> = of.iter().map(|(_, _, numbers)| numbers.as_str()).collect();
                let (curve, load) = (of[0].0, &of[0].1);
                ((curve, load.clone()), format!("{curve} at {load}: {}", numbers.join("; ")))
            })
            .unzip();
        say(
            format!(
                "Operations started late, for all clients still waited for answers or the machine gave the client no \
                 processor in time; the wait is part of the response times and not of the service times: {}.",
                some(&points)
            ),
            details,
        );
    }
    for (warning, points) in together(&own) {
        let which = if points.len() == all && all > 1 { "all points".to_owned() } else { some(&points) };
        say(if all > 1 { format!("{warning} ({which})") } else { warning }, Vec::new());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_differ_in_numbers_only_are_one() {
        let said =
            |curve: &'static str, load: &str, sentence: &str| (curve, load.to_owned(), sentence.to_owned());
        let all = [
            said("redis", "1 client", "clients spent 58 % of 1,200 ms outside."),
            said("redis", "2 clients", "clients spent 9.5 % of 1,200 ms outside."),
            said("redis", "2 clients", "clients spent 60 % of 1,200 ms outside."),
            said("sqlite", "max", "no processor was free."),
            said("sqlite", "max", "clients spent 99 % of 1,200 ms outside."),
        ];
        let found: Vec<(String, String)> =
            together(&all).into_iter().map(|(sentence, points)| (sentence, some(&points))).collect();
        let wanted = [
            ("clients spent 9.5 to 99 % of 1,200 ms outside.", "redis at 1 client, 2 clients; sqlite at max"),
            ("no processor was free.", "sqlite at max"),
        ];
        assert_eq!(found, wanted.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let many: Vec<(&str, String)> = (0..14).map(|i| ("a", i.to_string())).collect();
        assert_eq!(some(&many), "a at 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11; and 2 more");
    }
}
