//! Two sides of stored runs compared: which metrics differ, by how much, and
//! how surely. The statistics are described in `docs/comparing.md`.

mod conclusion;
pub mod document;
mod error;
mod judge;
mod log;
mod markdown;
mod pairs;
mod pieces;
mod points;
mod run;
#[cfg(test)]
#[path = "../../report/src/sample.rs"]
#[expect(dead_code, reason = "the tests of reports need the rest")]
mod sample;
mod search;
mod setup;
mod side;
mod table;
#[cfg(test)]
mod tests;

pub use error::CompareError;
pub use markdown::markdown;
pub use side::Side;
pub use table::table;

use document::{COMPARISON_VERSION, Comparison, PointComparison};
use judge::JudgedMetric;
use pairs::{RunPair, SaturationPair};
use run::ComparedRun;
use serval_report::units::{plural, rate};
use setup::Setup;
use side::CurveSaturation;
use std::{collections::BTreeSet, path::Path};

/// Runs that each side needs for a verdict: fewer say too little about the spread of all.
pub const RUNS_MIN: usize = 5;

/// Default number of resamples of each side: the standard error of a standard error is then 1.6 %.
pub const RESAMPLES: usize = 2_000;

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompareOptions {
    /// Largest probability of any false alarm; above 0, at most 0.5.
    pub alpha: f64,
    /// Relative changes up to this are ignored, as a share.
    pub threshold: f64,
    /// Resamples of each side.
    pub resamples: usize,
    /// Seed of the resampling.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions { alpha: 0.05, threshold: 0.0, resamples: RESAMPLES, seed: 1 }
    }
}

/// Compares side B with side A. The runs of each side in `same` repeat one another, and their differences are the
/// noise; without them, it is taken from the differences within A and within B.
pub fn compare(
    a: &Side,
    b: &Side,
    same: &[Side],
    options: &CompareOptions,
) -> Result<Comparison, CompareError> {
    refuse_shared_runs(a, b)?;
    let (pairs, unmatched) = pairs::pairs(a, b)?;
    let mut warnings = [a.warnings.clone(), b.warnings.clone(), unmatched].concat();
    let mut log_problems = Vec::new();
    let mut points = Vec::new();
    for pair in &pairs {
        let repeats: Vec<Vec<&ComparedRun>> =
            same.iter().flat_map(|side| side.repeats(pair.point, pairs::by_curve(a, b))).collect();
        let (metrics, left_out) = judge::metrics(&pair.a, &pair.b);
        warnings.extend(warnings_of(pair, &repeats, left_out));
        let (judged, problems) = judge::judge(&pair.a, &pair.b, &repeats, &metrics, options);
        log_problems.extend(problems);
        let paths = |runs: &[&ComparedRun]| runs.iter().map(|run| text(&run.path)).collect();
        points.push(JudgedPoint {
            name: pair.name.clone(),
            runs_a: paths(&pair.a),
            runs_b: paths(&pair.b),
            metrics: judged,
        });
    }
    for pair in &pairs::saturations(a, b) {
        match judged_saturation(pair, options) {
            Ok(point) => points.push(point),
            Err(warning) => warnings.push(warning),
        }
    }
    if pairs.iter().any(|pair| pair.point.is_some_and(|point| point.is_share())) {
        warnings.push(
            "Points are shares of each curve's own saturation: at the same share the sides were offered different loads."
                .to_owned(),
        );
    }
    warnings.extend(warnings_of_logs(&pairs, &log_problems));
    judge::conclude(points.iter_mut().flat_map(|point| &mut point.metrics), options);
    let points: Vec<PointComparison> = points.into_iter().map(JudgedPoint::comparison).collect();
    let verdict = conclusion::verdict(&points);
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
        sentence: conclusion::sentence(verdict, &points, [&a.given, &b.given]),
        setup: setup::differences(&setups(&a.runs_of(None, false)), &setups(&b.runs_of(None, false))),
        warnings,
        points,
    })
}

/// Runs of both sides whose metrics are judged.
struct JudgedPoint {
    name: String,
    runs_a: Vec<String>,
    runs_b: Vec<String>,
    metrics: Vec<JudgedMetric>,
}

impl JudgedPoint {
    fn comparison(self) -> PointComparison {
        let JudgedPoint { name, runs_a, runs_b, metrics } = self;
        let metrics = metrics.into_iter().map(|judged| judged.comparison).collect();
        PointComparison { name, runs_a, runs_b, metrics }
    }
}

fn refuse_shared_runs(a: &Side, b: &Side) -> Result<(), CompareError> {
    for (_, run) in &b.runs {
        if let Some((_, twin)) = a.runs.iter().find(|(_, other)| other.identity == run.identity) {
            return Err(CompareError::Unfit(format!(
                "{} and {} are the same run: it cannot be on both sides",
                twin.path.display(),
                run.path.display()
            )));
        }
    }
    Ok(())
}

/// Returns what a reader must know of two sets of runs.
fn warnings_of(pair: &RunPair<'_>, repeats: &[Vec<&ComparedRun>], left_out: Vec<String>) -> Vec<String> {
    let of = if pair.name.is_empty() { String::new() } else { format!("{}: ", pair.name) };
    let sides = [("A", &pair.a), ("B", &pair.b)];
    let without_success = sides
        .into_iter()
        .filter(|(_, runs)| runs.iter().all(|run| run.operations > 0 && run.counts.is_empty()))
        .map(|(side, _)| format!("No operation of {side} succeeded."));
    let within = sides.into_iter().filter_map(|(side, runs)| setup::within(side, &setups(runs)));
    let no_repeats = !repeats.is_empty() && repeats.iter().all(|runs| runs.len() < 2);
    let no_repeats = no_repeats.then(|| {
        "The runs given for the noise have no two of the same: it is taken within A and B.".to_owned()
    });
    let all = without_success.chain(left_out).chain(within).chain(no_repeats);
    all.map(|warning| format!("{of}{warning}")).collect()
}

/// Compares the saturations of a curve, or says which there are if sweeps are too few to compare.
fn judged_saturation(pair: &SaturationPair<'_>, options: &CompareOptions) -> Result<JudgedPoint, String> {
    let throughputs =
        |found: &[&CurveSaturation]| -> Vec<f64> { found.iter().map(|s| s.throughput).collect() };
    let (a, b) = (throughputs(&pair.a), throughputs(&pair.b));
    if a.len() < RUNS_MIN || b.len() < RUNS_MIN {
        let typical = |values: &[f64]| {
            let logarithm = values.iter().map(|x| x.ln()).sum::<f64>() / values.len() as f64;
            rate(logarithm.exp())
        };
        return Err(format!(
            "{} saturates at {} operations/s in A, {} operations/s in B, by {}: at least {RUNS_MIN} sweeps a side are needed \
             to say whether that differs.",
            pair.name,
            typical(&a),
            typical(&b),
            table::of_sides(a.len(), b.len(), "sweep"),
        ));
    }
    let folders = |found: &[&CurveSaturation]| found.iter().map(|s| text(&s.folder)).collect();
    Ok(JudgedPoint {
        name: format!("{}, saturation, by sweeps", pair.name),
        runs_a: folders(&pair.a),
        runs_b: folders(&pair.b),
        metrics: vec![judge::throughputs(a, b, options)],
    })
}

/// Returns what a reader must know of histogram logs that are missing or cannot be used.
fn warnings_of_logs(pairs: &[RunPair<'_>], problems: &[String]) -> Vec<String> {
    let runs = pairs.iter().flat_map(|pair| pair.a.iter().chain(&pair.b));
    let without: BTreeSet<&Path> = runs.filter(|run| !run.has_log()).map(|run| run.path.as_path()).collect();
    let missing = match without.len() {
        0 => None,
        1 => Some("1 run has".to_owned()),
        number => Some(format!("{number} runs have")),
    };
    let missing = missing.map(|runs| {
        format!(
            "{runs} no histograms.hlog beside the result: of such runs' times whole runs alone are resampled."
        )
    });
    let unusable = problems.first().map(|first| {
        format!(
            "{} cannot be used; of such runs' times whole runs alone are resampled. {first}.",
            plural(problems.len() as u64, "histogram log")
        )
    });
    missing.into_iter().chain(unusable).collect()
}

fn setups<'a>(runs: &[&'a ComparedRun]) -> Vec<&'a Setup> {
    runs.iter().map(|run| &run.setup).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
