//! Warnings of an experiment's report, the gravest first, each with the points that it applies to.

use super::{
    alike::{cut, together},
    load::Point,
    view::{CurveView, View},
};
use crate::{
    notes::{Warning, line},
    stationary::{changes, stalls},
    text::printable,
    units::{count, percent, plural, rate, time},
};
use serval_result::{
    experiment::{Flag, RunKind},
    note::Note,
};

/// Largest number of points named in a sentence.
const NAMED_MAX: usize = 12;

/// What each flag means for the numbers.
const FLAGS: [(Flag, &str); 7] = [
    (
        Flag::Overloaded,
        "Overloaded: more was offered than was done, so that the queue, and with it response times, grew as long as the run \
         lasted",
    ),
    (Flag::Unsteady, "Never steady: the warm-up was cut off before throughput and service time were steady"),
    (Flag::Stalled, "Stalled: for some of the measured time nearly nothing was done"),
    (
        Flag::Changed,
        "Changed while measured: throughput or service time changed, and the numbers cover the whole measured time",
    ),
    (Flag::Failures, "Failures: times are those of successful operations"),
    (Flag::FewSamples, "Few samples: too few operations for the tail percentiles"),
    (Flag::Interrupted, "Interrupted: the run ended early"),
];

/// Whether a warning about points covers a note of a run.
fn is_said_by_points(note: &Note) -> bool {
    matches!(
        note,
        Note::ClientBound { .. }
            | Note::Interrupted
            | Note::Failed
            | Note::NotSteady { .. }
            | Note::SteadinessUnknown { .. }
            | Note::Stalled { .. }
            | Note::Changed { .. }
            | Note::Unfinished { .. }
            | Note::OperationsFailed { .. }
            | Note::TargetMissed { .. }
            | Note::FewOperations { .. }
    )
}

/// A point: its curve, and its load, which details may follow.
type NamedPoint<'n> = (&'n str, String);

/// The first points, by curve, and how many more: `redis at 2,000/s, 4,000/s; yesquel at 1,000/s`.
fn some(points: &[NamedPoint<'_>]) -> String {
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

/// Sentences without duplicates; each with its points unless it applies to all points above.
fn each_once(said: Vec<(NamedPoint<'_>, String)>, above: &[NamedPoint<'_>]) -> Vec<String> {
    let forms = together(said);
    let only = forms.len() == 1;
    let line = |(sentence, points): (String, Vec<NamedPoint<'_>>)| match only || points == above {
        true => sentence,
        false => format!("{}: {sentence}", some(&points)),
    };
    forms.into_iter().map(line).collect()
}

/// The name of a point.
fn named<'v>(curve: &'v CurveView<'_>, point: &Point) -> NamedPoint<'v> {
    (&curve.name, point.load())
}

/// The points for which `more` is not `None`, with its text behind their load.
fn those<'v>(view: &'v View<'_>, more: impl Fn(&Point) -> Option<String>) -> Vec<NamedPoint<'v>> {
    let named = |(curve, point)| {
        let (curve, load) = named(curve, point);
        Some((curve, load + &more(point)?))
    };
    view.points().filter_map(named).collect()
}

pub(super) fn warnings(view: &View<'_>) -> Vec<Warning> {
    let mut all: Vec<Warning> = view.parts.iter().flat_map(super::phases::warnings).collect();
    let mut say = |text: String, details: Vec<String>| all.push(Warning { text, details: cut(details) });
    bound(view, &mut say);
    flagged(view, &mut say);
    unfinished(view, &mut say);
    of_experiments(view, &mut say);
    of_runs(view, &mut say);
    all
}

/// Takes a sentence and its details.
type Say<'s> = &'s mut dyn FnMut(String, Vec<String>);

/// Points that the client bounded.
fn bound(view: &View<'_>, say: Say<'_>) {
    let is_bound = |point: &Point| point.flags.contains(&Flag::ClientBound) || !point.bound.is_empty();
    let bound = those(view, |point| is_bound(point).then(String::new));
    if bound.is_empty() {
        return;
    }
    let reasons = view.points().flat_map(|(curve, point)| {
        point.bound.iter().map(move |sentence| (named(curve, point), sentence.clone()))
    });
    say(
        format!("Client bound: the client, and not the store, bounded these points: {}.", some(&bound)),
        each_once(reasons.collect(), &bound),
    );
}

/// Points with flags.
fn flagged(view: &View<'_>, say: Say<'_>) {
    for (flag, words) in FLAGS {
        let holds = |point: &Point| match flag {
            Flag::Failures => point.failed > 0 || point.flags.contains(&flag),
            _ => point.flags.contains(&flag),
        };
        let flagged = those(view, |point| holds(point).then(String::new));
        if !flagged.is_empty() {
            let details = match flag {
                Flag::Failures => failures(view, &flagged),
                Flag::Stalled => numbers(view, |note| match note {
                    Note::Stalled { stalls: found, judged_s } => Some(stalls(found, *judged_s)),
                    _ => None,
                }),
                Flag::Changed => numbers(view, |note| match note {
                    Note::Changed { throughput, service, judged_s } => {
                        Some(changes(throughput.as_ref(), service.as_ref(), *judged_s))
                    }
                    _ => None,
                }),
                _ => Vec::new(),
            };
            say(format!("{words}: {}.", some(&flagged)), details);
        }
        if flag == Flag::Overloaded {
            // Overloaded points are named already.
            let missed = those(view, |point| {
                let missed = point.target_missed() && !point.overloaded();
                missed.then(|| format!(" ({}/s done)", rate(point.throughput.value)))
            });
            if !missed.is_empty() {
                say(format!("Target missed: less was done than was offered: {}.", some(&missed)), Vec::new());
            }
        }
    }
}

fn unfinished(view: &View<'_>, say: Say<'_>) {
    let unfinished =
        those(view, |point| (point.unfinished > 0).then(|| format!(" ({})", count(point.unfinished))));
    if !unfinished.is_empty() {
        say(
            format!(
                "Unfinished operations: they had no outcome when the run ended, so that the highest percentiles are \
                 lower bounds: {}.",
                some(&unfinished)
            ),
            Vec::new(),
        );
    }
}

/// Warnings about whole experiments.
fn of_experiments(view: &View<'_>, say: Say<'_>) {
    for part in view.parts {
        let document = &part.experiment.document;
        if !document.complete && !super::phases::has(part) {
            let done = document.runs.iter().filter(|run| run.kind == RunKind::Point);
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
}

/// The notes of runs, without duplicates and without those that warnings about points cover.
fn of_runs(view: &View<'_>, say: Say<'_>) {
    let mut own: Vec<(NamedPoint<'_>, String)> = Vec::new();
    let mut late: Vec<(NamedPoint<'_>, String)> = Vec::new();
    let all = view.points().count();
    for (curve, point) in view.points() {
        for note in &point.notes {
            match note {
                // Say once what the numbers mean, and list them by point.
                Note::StartedLate { p99_ns, max_ns, slack_ns: None } if all > 1 => {
                    let [p99, most] = [p99_ns, max_ns].map(|ns| time(*ns as f64));
                    late.push((named(curve, point), format!("p99 {p99}, at most {most}")));
                }
                Note::ClientBound { .. } => {}
                note if all > 1 && is_said_by_points(note) => {}
                note => own.push((named(curve, point), printable(&line(note), 1000))),
            }
        }
    }
    if !late.is_empty() {
        // Each repeat of a point may have such a note.
        let repeats = late.chunk_by(|(a, _), (b, _)| a == b);
        let (points, details): (Vec<_>, Vec<_>) = repeats
            .map(|of| {
                let numbers: Vec<&str> = of.iter().map(|(_, numbers)| numbers.as_str()).collect();
                let (curve, load) = &of[0].0;
                (of[0].0.clone(), format!("{curve} at {load}: {}", numbers.join("; ")))
            })
            .unzip();
        say(
            format!(
                "Operations started late: all clients were busy, or the machine gave the client no processor in time. The \
                 wait is part of the response times and not of the service times: {}.",
                some(&points)
            ),
            details,
        );
    }
    for (warning, points) in together(own) {
        let which = if points.len() == all && all > 1 { "all points".to_owned() } else { some(&points) };
        say(if all > 1 { format!("{warning} ({which})") } else { warning }, Vec::new());
    }
}

/// The texts of one kind of note, by point.
fn numbers(view: &View<'_>, of: impl Fn(&Note) -> Option<String>) -> Vec<String> {
    let line = |(curve, point): (&CurveView<'_>, &Point)| {
        let numbers = point.notes.iter().filter_map(&of);
        numbers.map(|numbers| format!("{}: {numbers}", curve.name_of(point))).collect::<Vec<_>>()
    };
    view.points().flat_map(line).collect()
}

/// Failures by operation, and the most frequent message.
fn failures(view: &View<'_>, above: &[NamedPoint<'_>]) -> Vec<String> {
    let mut said = Vec::new();
    for (curve, point) in view.points() {
        for metric in point.metrics.iter().filter(|metric| metric.failed > 0) {
            let words = format!(
                "{} of {} {} ({})",
                count(metric.failed),
                count(metric.count),
                metric.name,
                percent(metric.failed, metric.count)
            );
            said.push((named(curve, point), words));
        }
        let most = point.messages.iter().max_by_key(|(_, times)| **times);
        if let (Some((words, times)), Some((_, line))) = (most, said.last_mut()) {
            line.push_str(&format!("; {} × {words}", count(*times)));
        }
    }
    each_once(said, above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_named_by_curve() {
        let points = [("redis", "1/s"), ("redis", "2/s"), ("sqlite", "max")].map(|(a, b)| (a, b.to_owned()));
        assert_eq!(some(&points), "redis at 1/s, 2/s; sqlite at max");
        let many: Vec<(&str, String)> = (0..14).map(|i| ("a", i.to_string())).collect();
        assert_eq!(some(&many), "a at 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11; and 2 more");
    }
}
