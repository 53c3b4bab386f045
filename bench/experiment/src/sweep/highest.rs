//! Search for the highest rate that keeps an SLO: bisection, repeated runs around its result, and the crossing of an
//! isotonic regression (`docs/experiments.md`).

use super::{
    conduct::{PlannedRun, PointLoad, SweepConductor, paced_clients},
    curves::REPEATED_RATES,
};
use crate::{error::ConductError, journal::JournalError, promise::Promise};
use serval_model::properties::Faults;
use serval_plan::PlanError;
use serval_report::{stored::StoredExperiment, units::rate as per_second};
use serval_result::{
    document::ResultDocument,
    experiment::{Flag, Highest, PromiseTrial, RunEntry, RunKind},
    flags::flags,
};
use serval_statistics::crossing::{Crossing, Trial, crossing};

/// Upper end of the first bracket, as a share of the saturation.
const ABOVE: f64 = 1.05;

/// Width of the bracket at which the bisection ends, as a share of the saturation.
const HALVED_TO: f64 = 0.05;

/// Confidence level of the interval.
const CONFIDENCE: f64 = 0.95;

/// Margin of a run without any finished operation.
const FAR: f64 = 20.0;

/// State of the bisection: the highest rate that kept the SLO, and the lowest that broke it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bracket {
    kept: f64,
    broken: f64,
}

impl Bracket {
    /// Returns the bracket after trials, each a rate and whether it kept the SLO.
    fn after(saturation: f64, trials: &[(f64, bool)]) -> Bracket {
        let mut bracket = Bracket { kept: 0.0, broken: saturation * ABOVE };
        for (rate, kept) in trials {
            if *kept {
                bracket.kept = bracket.kept.max(*rate)
            } else {
                bracket.broken = bracket.broken.min(*rate)
            }
        }
        bracket
    }

    /// Returns the rate to try next; `None` if the bracket is narrow enough.
    fn next(&self, saturation: f64) -> Option<f64> {
        let width = self.broken - self.kept;
        (width > HALVED_TO * saturation).then_some(self.kept + width / 2.0)
    }

    /// Returns even rates over the bracket and half its width to both sides.
    fn around(&self) -> Vec<f64> {
        let width = self.broken - self.kept;
        let low = (self.kept - width / 2.0).max(self.broken / 10.0);
        let high = self.broken + width / 2.0;
        (0..REPEATED_RATES).map(|i| low + (high - low) * i as f64 / (REPEATED_RATES - 1) as f64).collect()
    }
}

/// A run with an offered load, and its margin to the SLO.
struct Tried {
    kind: RunKind,
    rate: f64,
    /// `None` if the run has no operation of the SLO.
    margin: Option<f64>,
    trial: PromiseTrial,
}

impl SweepConductor<'_> {
    /// Finds the highest rate of every curve.
    pub(super) fn highest(&mut self, promise: &Promise) -> Result<(), ConductError> {
        self.find_saturations()?;
        let mut brackets = Vec::new();
        for curve in 0..self.experiment.curves.len() {
            let bracket = if self.lost[curve] { None } else { self.halve(curve, promise)? };
            brackets.push(bracket);
        }
        self.run_points(self.jobs_around(&brackets))?;
        for curve in 0..brackets.len() {
            if !self.lost[curve] {
                let highest = self.answer(curve, promise)?;
                self.journal.document.curves[curve].highest = Some(highest);
            }
        }
        Ok(self.journal.write()?)
    }

    fn saturation(&self, curve: usize) -> (f64, u64) {
        self.journal.document.curves[curve]
            .saturation
            .as_ref()
            .map_or((0.0, 1), |s| (s.throughput, s.clients))
    }

    fn paced_clients(&self, curve: usize) -> u64 {
        self.settings().clients.unwrap_or_else(|| paced_clients(self.saturation(curve).1))
    }

    /// Returns the runs of a curve that had an offered load, with their margins to the SLO.
    fn trials(&self, curve: usize, promise: &Promise) -> Result<Vec<Tried>, ConductError> {
        let stored = StoredExperiment {
            folder: self.journal.path().to_owned(),
            document: self.journal.document.clone(),
        };
        let of = |entry: &&RunEntry| entry.curve == curve && entry.target.is_some();
        let mut trials = Vec::new();
        for entry in self.journal.document.runs.iter().filter(of) {
            let document = stored.result(entry).map_err(JournalError::Stored)?;
            let margin = margin(promise, &document)?;
            let values = promise.values(&document).map_err(no_standing)?;
            trials.push(Tried {
                kind: entry.kind,
                rate: entry.target.unwrap_or_default(),
                margin,
                trial: PromiseTrial { folder: entry.folder.clone(), kept: kept(margin), values },
            });
        }
        Ok(trials)
    }

    /// Bisects until the bracket is narrow enough; returns `None` if the curve is lost.
    fn halve(&mut self, curve: usize, promise: &Promise) -> Result<Option<Bracket>, ConductError> {
        let (saturation, _) = self.saturation(curve);
        let searched =
            |tried: Tried| (tried.kind == RunKind::Search).then_some((tried.rate, kept(tried.margin)));
        let mut trials: Vec<(f64, bool)> =
            self.trials(curve, promise)?.into_iter().filter_map(searched).collect();
        loop {
            let bracket = Bracket::after(saturation, &trials);
            let Some(rate) = bracket.next(saturation) else { return Ok(Some(bracket)) };
            let job = PlannedRun {
                curve,
                kind: RunKind::Search,
                point: 1,
                repeat: trials.len() as u32,
                target: Some(rate),
                clients: self.paced_clients(curve),
                time: self.settings().time,
                what: format!("{} operations/s", per_second(rate)),
            };
            let Some(document) = self.attempt(&job)? else { return Ok(None) };
            trials.push((rate, kept(margin(promise, &document)?)));
        }
    }

    fn jobs_around(&self, brackets: &[Option<Bracket>]) -> Vec<PlannedRun> {
        self.jobs(REPEATED_RATES, |curve, point| {
            let rate = brackets[curve]?.around()[point];
            Some(PointLoad {
                target: Some(rate),
                clients: self.paced_clients(curve),
                what: format!("{} operations/s", per_second(rate)),
            })
        })
    }

    fn answer(&self, curve: usize, promise: &Promise) -> Result<Highest, ConductError> {
        let (saturation, _) = self.saturation(curve);
        let tried = self.trials(curve, promise)?;
        let of = |tried: &Tried| Some(Trial { at: tried.rate, value: tried.margin? });
        let trials: Vec<Trial> = tried.iter().filter_map(of).collect();
        if trials.is_empty() {
            let problem = "no run performed an operation of its conditions: use longer runs";
            return Err(no_standing(problem.to_owned()));
        }
        let most = trials.iter().map(|trial| trial.at).fold(0.0, f64::max);
        let mut notes = Vec::new();
        let found = crossing(&trials, CONFIDENCE, self.journal.document.seed);
        let (rate, low, high) = match found {
            Crossing::At { at, low, high } => (at, low.max(0.0), high),
            Crossing::Below => {
                notes.push("the SLO was broken at every rate that was tried".to_owned());
                (0.0, 0.0, trials.iter().map(|trial| trial.at).fold(most, f64::min))
            }
            Crossing::Above => {
                notes.push(format!(
                    "the SLO was kept, on average, at every rate that was tried, up to {} operations/s; it may be \
                     kept at higher ones",
                    per_second(most)
                ));
                (most, most, f64::INFINITY)
            }
        };
        if rate > saturation {
            notes.push(format!(
                "that is the store's saturation, {} operations/s, or beyond it: with longer runs it would be less",
                per_second(saturation)
            ));
        }
        // JSON has no infinity.
        let high = if high.is_finite() { high } else { f64::MAX };
        let trials = tried.into_iter().map(|tried| tried.trial).collect();
        Ok(Highest { promise: promise.to_string(), rate, low, high, confidence: CONFIDENCE, notes, trials })
    }
}

/// Returns a run's margin to the SLO; `None` if the run has no operation of it. An overloaded run breaks the SLO
/// whatever its times are.
fn margin(promise: &Promise, document: &ResultDocument) -> Result<Option<f64>, ConductError> {
    let standing = promise.standing(document).map_err(no_standing)?;
    let margin = standing.map(|standing| standing.margin);
    if !flags(document).contains(&Flag::Overloaded) {
        return Ok(margin);
    }
    let offered = document.pacing.as_ref().map_or(0.0, |pacing| pacing.target);
    let missing = (offered / document.overall.throughput.max(1e-9)).ln();
    Ok(margin.map(|margin| margin.max(missing.clamp(f64::MIN_POSITIVE, FAR))).or(Some(FAR)))
}

/// Returns whether a run kept the SLO. A run without data does not violate it.
fn kept(margin: Option<f64>) -> bool {
    margin.is_none_or(|margin| margin <= 0.0)
}

fn no_standing(problem: String) -> ConductError {
    PlanError::Faults(Faults::one(format!("the SLO: {problem}"))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bisection_ends_within_5_percent_and_brackets_the_true_rate() {
        for truth in [3.0, 250.0, 539.5, 900.0, 1049.0] {
            let mut trials = Vec::new();
            let bracket = loop {
                let bracket = Bracket::after(1000.0, &trials);
                match bracket.next(1000.0) {
                    Some(rate) => trials.push((rate, rate <= truth)),
                    None => break bracket,
                }
            };
            assert!(trials.len() <= 5, "{trials:?}");
            assert!(
                bracket.kept <= truth && truth <= bracket.broken && bracket.broken - bracket.kept <= 50.0
            );
            let around = bracket.around();
            assert!(around.is_sorted() && around[0] > 0.0, "{around:?}");
        }
    }
}
