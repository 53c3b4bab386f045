//! The verdict of a whole comparison, and its sentence.

use crate::{
    RUNS_MIN,
    document::{MetricVerdict, OverallVerdict, PointComparison, least_runs, metrics},
    table,
};
use serval_report::{text::printable, units::plural};

/// Returns the verdict of all metrics together.
pub(crate) fn verdict(points: &[PointComparison]) -> OverallVerdict {
    let any = |verdict| metrics(points).any(|(_, metric)| metric.verdict == verdict);
    let nothing = metrics(points).next().is_none();
    if any(MetricVerdict::Worse) {
        OverallVerdict::Worse
    } else if nothing || any(MetricVerdict::Inconclusive) {
        OverallVerdict::Inconclusive
    } else if any(MetricVerdict::Better) {
        OverallVerdict::Better
    } else {
        OverallVerdict::NoDifference
    }
}

/// Most changes that the sentence names.
const NAMED_MAX: usize = 3;

/// Characters of what a side was given as.
const GIVEN_MAX: usize = 60;

/// What a side was given as, and its letter: `after (B)`. The end of a long path tells most.
fn side(given: &str, letter: char) -> String {
    let beyond = given.chars().count().saturating_sub(GIVEN_MAX);
    let start: String = if beyond > 0 { "…".to_owned() } else { String::new() };
    let end: String = given.chars().skip(beyond).collect();
    format!("{start}{} ({letter})", printable(&end, GIVEN_MAX))
}

/// Returns the verdict as a sentence. `given`: what A and B were given as.
pub(crate) fn sentence(verdict: OverallVerdict, points: &[PointComparison], [a, b]: [&str; 2]) -> String {
    let named = |wanted: MetricVerdict| -> (usize, String) {
        let found: Vec<_> = metrics(points).filter(|(_, metric)| metric.verdict == wanted).collect();
        let named: Vec<String> = found
            .iter()
            .take(NAMED_MAX)
            .map(|(point, metric)| {
                let at = if point.is_empty() { String::new() } else { format!(" ({point})") };
                format!(
                    "{} {}{at}",
                    table::full_name(metric),
                    table::change(metric.metric.kind, metric.change)
                )
            })
            .collect();
        let more = if found.len() > NAMED_MAX { ", …" } else { "" };
        (found.len(), format!("{}{more}", named.join(", ")))
    };
    let of = metrics(points).count();
    let (a, b) = (side(a, 'A'), side(b, 'B'));
    match verdict {
        OverallVerdict::Worse => {
            let (number, names) = named(MetricVerdict::Worse);
            let better = match named(MetricVerdict::Better) {
                (0, _) => String::new(),
                (number, names) => format!("; {number} better: {names}"),
            };
            format!("{b} is worse than {a} in {number} of {of} metrics: {names}{better}.")
        }
        OverallVerdict::Better => {
            let (number, names) = named(MetricVerdict::Better);
            format!("{b} is better than {a} in {number} of {of} metrics and worse in none: {names}.")
        }
        OverallVerdict::NoDifference => format!("No difference was found in {of} metrics."),
        OverallVerdict::Inconclusive if of == 0 => {
            "Inconclusive: there is no metric that every run has.".to_owned()
        }
        OverallVerdict::Inconclusive => format!(
            "Inconclusive: {} on a side, at least {RUNS_MIN} are needed. The numbers say nothing yet.",
            plural(least_runs(points) as u64, "run")
        ),
    }
}
