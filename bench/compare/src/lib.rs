//! Two sides of runs compared: which metrics differ, by how much, and how
//! surely. The law is in `docs/comparing.md`.

pub mod document;
mod error;
mod gather;
mod judge;
mod log;
mod markdown;
mod pieces;
mod run;
#[cfg(test)]
#[path = "../../report/src/sample.rs"]
#[allow(dead_code, reason = "the tests of reports need the rest")]
mod sample;
mod setup;
mod table;
#[cfg(test)]
mod tests;

pub use error::CompareError;
pub use gather::Side;
pub use markdown::markdown;
pub use table::table;

use document::{COMPARISON_VERSION, Comparison, MetricComparison, Overall, PointComparison, Verdict};
use judge::{conclude, judge};
use run::Run;
use serval_report::units::{plural, rate};
use std::collections::BTreeSet;

/// Runs of a side below which nothing is concluded: the spread of four says too little of
/// that of all.
pub const RUNS_MIN: usize = 5;

/// Resamples of each side that are enough for all that is told: the standard
/// error of a standard error is then 1.6 %.
pub const RESAMPLES: usize = 2_000;

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The chance of any false alarm at most; above 0, at most 0.5.
    pub alpha: f64,
    /// Relative changes up to this are ignored, as a share.
    pub threshold: f64,
    /// Resamples of each side.
    pub resamples: usize,
    /// The seed of the resampling.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { alpha: 0.05, threshold: 0.0, resamples: RESAMPLES, seed: 1 }
    }
}

/// Compares side B with side A. `same` are sides of which all runs are of the
/// same: what they differ by is the noise; without them, what runs within A and within B differ by.
pub fn compare(a: &Side, b: &Side, same: &[Side], options: &Options) -> Result<Comparison, CompareError> {
    for (_, run) in &b.runs {
        if let Some((_, twin)) = a.runs.iter().find(|(_, other)| other.identity == run.identity) {
            return Err(CompareError::Unfit(format!(
                "{} and {} are the same run: it cannot be on both sides",
                twin.path.display(),
                run.path.display()
            )));
        }
    }
    let (pairs, mut warnings) = gather::pairs(a, b)?;
    let by_curve = gather::by_curve(a, b);
    let mut points = Vec::new();
    let mut all = Vec::new();
    let mut problems = Vec::new();
    let mut told = BTreeSet::new();
    for pair in &pairs {
        let known: Vec<Vec<&Run>> = same.iter().flat_map(|side| side.repeats(pair.point, by_curve)).collect();
        let (metrics, left_out) = judge::metrics(&pair.a, &pair.b);
        let untold = !same.is_empty() && known.iter().all(|runs| runs.len() < 2);
        let untold = untold.then(|| {
            "The runs given for the noise have no two of the same: it is taken within A and B.".to_owned()
        });
        let of = if pair.name.is_empty() { String::new() } else { format!("{}: ", pair.name) };
        let within = [setup::within("A", &pair.a), setup::within("B", &pair.b)];
        let nothing = [("A", &pair.a), ("B", &pair.b)]
            .into_iter()
            .filter(|(_, runs)| runs.iter().all(|run| run.operations > 0 && run.counts.is_empty()));
        let nothing = nothing.map(|(side, _)| format!("No operation of {side} succeeded."));
        warnings.extend(
            nothing
                .chain(left_out)
                .chain(within.into_iter().flatten())
                .chain(untold)
                .map(|w| format!("{of}{w}")),
        );
        let (judged, more) = judge(&pair.a, &pair.b, &known, &metrics, options);
        problems.extend(more);
        points.push((pair, judged.len()));
        all.extend(judged);
        told.extend(pair.a.iter().chain(&pair.b).filter(|run| !run.has_log()).map(|run| &run.path));
    }
    let saturations = gather::saturations(a, b);
    let mut tested = Vec::new();
    for of in &saturations {
        let told: Vec<String> = [("A", &of.a), ("B", &of.b)]
            .into_iter()
            .map(|(side, found)| {
                let mean = found.iter().map(|(_, x)| x.ln()).sum::<f64>() / found.len() as f64;
                format!("{} operations/s in {side}", rate(mean.exp()))
            })
            .collect();
        if of.a.len() < RUNS_MIN || of.b.len() < RUNS_MIN {
            warnings.push(format!(
                "{} saturates at {}, found {} and {}: at least {RUNS_MIN} sweeps a side are needed to say whether that differs.",
                of.name,
                told.join(", "),
                times(of.a.len()),
                times(of.b.len()),
            ));
        } else {
            let values =
                |found: &[(std::path::PathBuf, f64)]| found.iter().map(|(_, x)| *x).collect::<Vec<_>>();
            all.push(judge::throughputs(&values(&of.a), &values(&of.b), options));
            tested.push(of);
        }
    }
    if pairs.iter().any(|pair| pair.by_share()) {
        warnings.push(
            "Points are shares of each curve's own saturation: at the same share the sides were offered different loads."
                .to_owned(),
        );
    }
    conclude(&mut all, options);
    if !told.is_empty() {
        warnings.push(format!(
            "{} no histograms.hlog beside the result: of such runs' times whole runs alone are resampled.",
            match told.len() {
                1 => "1 run has".to_owned(),
                number => format!("{number} runs have"),
            }
        ));
    }
    if let Some(first) = problems.first() {
        warnings.push(format!(
            "{} cannot be used; of such runs' times whole runs alone are resampled. {first}.",
            plural(problems.len() as u64, "histogram log")
        ));
    }
    warnings.splice(0..0, a.warnings.iter().chain(&b.warnings).cloned());
    let mut metrics = all.into_iter().map(|judged| judged.told);
    let mut points: Vec<PointComparison> = points
        .into_iter()
        .map(|(pair, number)| PointComparison {
            name: pair.name.clone(),
            runs_a: paths(&pair.a),
            runs_b: paths(&pair.b),
            metrics: metrics.by_ref().take(number).collect(),
        })
        .collect();
    points.extend(tested.into_iter().map(|of| {
        let folders = |found: &[(std::path::PathBuf, f64)]| {
            found.iter().map(|(folder, _)| folder.display().to_string()).collect()
        };
        PointComparison {
            name: format!("{}, saturation, by sweeps", of.name),
            runs_a: folders(&of.a),
            runs_b: folders(&of.b),
            metrics: metrics.by_ref().take(1).collect(),
        }
    }));
    let verdict = overall(&points);
    Ok(Comparison {
        comparison_version: COMPARISON_VERSION,
        serval_version: env!("CARGO_PKG_VERSION").to_owned(),
        a: a.given.clone(),
        b: b.given.clone(),
        alpha: options.alpha,
        threshold: options.threshold,
        resamples: options.resamples as u64,
        seed: options.seed,
        verdict,
        sentence: sentence(verdict, &points),
        setup: setup::differences(&a.runs_of(None, false), &b.runs_of(None, false)),
        warnings,
        points,
    })
}

/// `once`, `5 times`.
fn times(number: usize) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

fn paths(runs: &[&Run]) -> Vec<String> {
    runs.iter().map(|run| run.path.display().to_string()).collect()
}

fn overall(points: &[PointComparison]) -> Overall {
    let any =
        |verdict| points.iter().flat_map(|point| &point.metrics).any(|metric| metric.verdict == verdict);
    let nothing = points.iter().all(|point| point.metrics.is_empty());
    if any(Verdict::Worse) {
        Overall::Worse
    } else if nothing || any(Verdict::Inconclusive) {
        Overall::Inconclusive
    } else if any(Verdict::Better) {
        Overall::Better
    } else {
        Overall::NoDifference
    }
}

/// Changes that a sentence names.
const NAMED_MAX: usize = 3;

fn sentence(verdict: Overall, points: &[PointComparison]) -> String {
    let all: Vec<(&str, &MetricComparison)> = points
        .iter()
        .flat_map(|point| point.metrics.iter().map(|metric| (point.name.as_str(), metric)))
        .collect();
    let named = |wanted: Verdict| -> (usize, String) {
        let found: Vec<_> = all.iter().filter(|(_, metric)| metric.verdict == wanted).collect();
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
    let of = all.len();
    match verdict {
        Overall::Worse => {
            let (number, names) = named(Verdict::Worse);
            let better = match named(Verdict::Better) {
                (0, _) => String::new(),
                (number, names) => format!("; {number} better: {names}"),
            };
            format!("B is worse in {number} of {of} metrics: {names}{better}.")
        }
        Overall::Better => {
            let (number, names) = named(Verdict::Better);
            format!("B is better in {number} of {of} metrics and worse in none: {names}.")
        }
        Overall::NoDifference => format!("No difference was found in {of} metrics."),
        Overall::Inconclusive if of == 0 => "Inconclusive: there is no metric that every run has.".to_owned(),
        Overall::Inconclusive => {
            let least = points.iter().flat_map(|point| [point.runs_a.len(), point.runs_b.len()]).min();
            format!(
                "Inconclusive: {} on a side, at least {RUNS_MIN} are needed. The numbers say nothing yet.",
                plural(least.unwrap_or(0) as u64, "run")
            )
        }
    }
}
