//! A side: the runs that its paths lead to.

use crate::{
    error::CompareError,
    points::{MeasuredPoint, OfferedLoad},
    run::ComparedRun,
    search::ResultSearch,
};
use serval_report::{
    stored::{self, RESULT, Stored, StoredExperiment},
    text::printable,
};
use serval_result::experiment::{ExperimentKind, Flag, PhaseEntry, RunKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Most runs of a side.
const RUNS_MAX: usize = 1_000;

/// The runs of one side of a comparison.
#[derive(Debug)]
pub struct Side {
    /// Its name in messages: `A`, `B`, `--aa`.
    pub(crate) name: String,
    /// The paths that it was given as.
    pub(crate) given: String,
    /// Each run, and the point that it measured if it belongs to an experiment.
    pub(crate) runs: Vec<(Option<MeasuredPoint>, ComparedRun)>,
    pub(crate) saturations: Vec<CurveSaturation>,
    /// What a reader must know before quoting its numbers.
    pub(crate) warnings: Vec<String>,
}

/// Where an experiment found that a curve saturates.
#[derive(Debug)]
pub(crate) struct CurveSaturation {
    pub(crate) curve: String,
    pub(crate) workload: String,
    /// The experiment's folder.
    pub(crate) folder: PathBuf,
    /// Operations/s.
    pub(crate) throughput: f64,
}

/// Number of runs with each flag.
type FlagCounts = BTreeMap<Flag, usize>;

/// Splits `DIR:CURVE` into the folder and the name of a curve or phase.
fn curve_of(path: &Path) -> (PathBuf, Option<String>) {
    if !path.exists()
        && let Some(text) = path.to_str()
    {
        for (at, _) in text.match_indices(':').filter(|(at, _)| *at > 0) {
            let folder = Path::new(&text[..at]);
            if folder.exists() {
                return (folder.to_owned(), Some(text[at + 1..].to_owned()));
            }
        }
    }
    (path.to_owned(), None)
}

impl Side {
    /// Finds and reads the runs of a side. Each path is a result folder or
    /// its `result.json`, an experiment's folder, a folder with any of these below, or
    /// `DIR:CURVE`, one curve or phase of an experiment.
    pub fn read(name: &str, paths: &[PathBuf]) -> Result<Side, CompareError> {
        let given: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let mut side = Side {
            name: name.to_owned(),
            given: given.join(", "),
            runs: Vec::new(),
            saturations: Vec::new(),
            warnings: Vec::new(),
        };
        let mut flags = FlagCounts::new();
        let mut search = ResultSearch::default();
        for given in paths {
            let (path, curve) = curve_of(given);
            for path in search.below(&path)? {
                side.take(&path, curve.as_deref(), &mut flags)?;
            }
        }
        let of_experiments = side.runs.iter().filter(|(point, _)| point.is_some()).count();
        if of_experiments > 0 && of_experiments < side.runs.len() {
            return Err(CompareError::Unfit(format!(
                "side {name} ({}) has both results and experiments: compare one or the other",
                side.given
            )));
        }
        for (flag, number) in flags {
            side.warnings.push(format!("{number} of {} runs of {name}: {}.", side.runs.len(), flag.words()));
        }
        side.add_notes_of_runs();
        Ok(side)
    }

    fn push(&mut self, point: Option<MeasuredPoint>, run: ComparedRun) -> Result<(), CompareError> {
        if self.runs.len() == RUNS_MAX {
            return Err(CompareError::TooMany { path: run.path, max: RUNS_MAX, what: "runs" });
        }
        if let Some((_, twin)) = self.runs.iter().find(|(_, other)| other.identity == run.identity) {
            return Err(CompareError::Unfit(format!(
                "{} and {} are the same run, twice on side {}",
                twin.path.display(),
                run.path.display(),
                self.name
            )));
        }
        self.runs.push((point, run));
        Ok(())
    }

    /// Adds the result or experiment in a file, or the named curve or phase of the experiment.
    fn take(&mut self, path: &Path, curve: Option<&str>, flags: &mut FlagCounts) -> Result<(), CompareError> {
        match (stored::read(path)?, curve) {
            (Stored::Result(_, _), Some(curve)) => Err(CompareError::Unfit(format!(
                "{}: it is a result and has no curve '{curve}': curves are of experiments",
                path.display()
            ))),
            (Stored::Result(file, document), None) => self.push(None, ComparedRun::of(&file, &document)?),
            (Stored::Experiment(experiment), curve) => {
                let count = self.runs.len();
                let is_phases = experiment.document.kind == ExperimentKind::Phases;
                if is_phases {
                    self.take_phases(&experiment, curve, flags)?;
                } else {
                    self.take_points(&experiment, curve, flags)?;
                }
                if self.runs.len() == count {
                    let what = if is_phases {
                        "no load or run of it has ended yet"
                    } else {
                        "no point of it has been run yet"
                    };
                    return Err(CompareError::Unfit(format!("{}: {what}", experiment.folder.display())));
                }
                if !experiment.document.complete {
                    let folder = experiment.folder.display();
                    self.warnings.push(format!("The experiment {folder} of {} is not complete.", self.name));
                }
                Ok(())
            }
        }
    }

    /// Adds the points of an experiment's curves, or of one curve, and where they saturate.
    fn take_points(
        &mut self,
        experiment: &StoredExperiment,
        curve: Option<&str>,
        flags: &mut FlagCounts,
    ) -> Result<(), CompareError> {
        let document = &experiment.document;
        let is_wanted = |name: &str| curve.is_none_or(|wanted| wanted == name);
        if !document.curves.iter().any(|curve| is_wanted(&curve.name))
            && let Some(wanted) = curve
        {
            let names = document.curves.iter().map(|curve| curve.name.as_str());
            return Err(without(experiment, &format!("curve '{wanted}'"), names));
        }
        for of in document.curves.iter().filter(|of| is_wanted(&of.name)) {
            let found = of.saturation.as_ref().map(|saturation| saturation.throughput);
            if let Some(throughput) = found.filter(|t| t.is_finite() && *t > 0.0) {
                self.saturations.push(CurveSaturation {
                    curve: of.name.clone(),
                    workload: of.workload.clone(),
                    folder: experiment.folder.clone(),
                    throughput,
                });
            }
        }
        for entry in document.runs.iter().filter(|run| run.kind == RunKind::Point) {
            let Some(of) = document.curves.get(entry.curve).filter(|of| is_wanted(&of.name)) else {
                continue;
            };
            let load = OfferedLoad::of(entry);
            let earlier_of_this_load: BTreeSet<usize> = document
                .runs
                .iter()
                .filter(|run| (run.kind, run.curve) == (RunKind::Point, entry.curve))
                .filter(|run| run.point < entry.point && OfferedLoad::of(run) == load)
                .map(|run| run.point)
                .collect();
            let point = MeasuredPoint::OfCurve {
                curve: of.name.clone(),
                workload: of.workload.clone(),
                load,
                number: entry.point,
                nth: earlier_of_this_load.len(),
            };
            self.take_run(experiment, &entry.folder, point)?;
            entry.flags.iter().for_each(|flag| *flags.entry(*flag).or_default() += 1);
        }
        Ok(())
    }

    /// Adds the loads and runs of an experiment of phases, or one of them.
    fn take_phases(
        &mut self,
        experiment: &StoredExperiment,
        phase: Option<&str>,
        flags: &mut FlagCounts,
    ) -> Result<(), CompareError> {
        let phases = experiment.document.phases.iter();
        let measured: Vec<(&PhaseEntry, &String)> =
            phases.filter_map(|entry| Some((entry, entry.folder.as_ref()?))).collect();
        let is_wanted = |name: &str| phase.is_none_or(|wanted| wanted == name);
        if let Some(wanted) = phase
            && !measured.is_empty()
            && !measured.iter().any(|(entry, _)| is_wanted(&entry.name))
        {
            let names = measured.iter().map(|(entry, _)| entry.name.as_str());
            return Err(without(experiment, &format!("load or run '{wanted}'"), names));
        }
        for (entry, folder) in measured.into_iter().filter(|(entry, _)| is_wanted(&entry.name)) {
            self.take_run(experiment, folder, MeasuredPoint::Phase(entry.name.clone()))?;
            entry.flags.iter().for_each(|flag| *flags.entry(*flag).or_default() += 1);
        }
        Ok(())
    }

    fn take_run(
        &mut self,
        experiment: &StoredExperiment,
        folder: &str,
        point: MeasuredPoint,
    ) -> Result<(), CompareError> {
        let result = experiment.result_in(folder)?;
        let path = experiment.folder.join(folder).join(RESULT);
        self.push(Some(point), ComparedRun::of(&path, &result)?)
    }

    fn add_notes_of_runs(&mut self) {
        let mut notes: BTreeMap<&str, usize> = BTreeMap::new();
        for note in self.runs.iter().flat_map(|(_, run)| &run.notes) {
            *notes.entry(note).or_default() += 1;
        }
        for (note, number) in notes {
            self.warnings.push(format!("{number} of {} runs of {} {note}.", self.runs.len(), self.name));
        }
    }

    /// Names of the measured curves or phases.
    pub(crate) fn curves(&self) -> BTreeSet<&str> {
        self.runs.iter().filter_map(|(point, _)| Some(point.as_ref()?.curve())).collect()
    }

    /// The measured points: curves and phases in the order of their first runs, points of a curve by load. Runs
    /// are made in shuffled order.
    pub(crate) fn points(&self) -> Vec<&MeasuredPoint> {
        let mut points: Vec<&MeasuredPoint> = Vec::new();
        let mut curves: Vec<&str> = Vec::new();
        for point in self.runs.iter().filter_map(|(point, _)| point.as_ref()) {
            if !points.contains(&point) {
                points.push(point);
            }
            if !curves.contains(&point.curve()) {
                curves.push(point.curve());
            }
        }
        let place = |point: &MeasuredPoint| curves.iter().position(|curve| *curve == point.curve());
        points.sort_by(|one, other| place(one).cmp(&place(other)).then_with(|| one.by_load(other)));
        points
    }

    /// Sets of runs that repeat one another: those that match a point, or those of each point if there is none to match.
    pub(crate) fn repeats(&self, point: Option<&MeasuredPoint>, by_curve: bool) -> Vec<Vec<&ComparedRun>> {
        let points = self.points();
        match point {
            None if !points.is_empty() => {
                points.iter().map(|point| self.runs_of(Some(point), true)).collect()
            }
            point => vec![self.runs_of(point, by_curve)],
        }
    }

    /// The runs of points that match, or all runs if there is no point to match.
    pub(crate) fn runs_of(&self, point: Option<&MeasuredPoint>, by_curve: bool) -> Vec<&ComparedRun> {
        let fits = |(own, _): &&(Option<MeasuredPoint>, ComparedRun)| match (own, point) {
            (Some(own), Some(point)) => own.matches(point, by_curve),
            _ => true,
        };
        self.runs.iter().filter(fits).map(|(_, run)| run).collect()
    }
}

/// An experiment that has no such curve or phase.
fn without<'a>(
    experiment: &StoredExperiment,
    what: &str,
    names: impl Iterator<Item = &'a str>,
) -> CompareError {
    CompareError::Unfit(format!(
        "{}: it has no {what}; it has {}",
        experiment.folder.display(),
        printable(&names.collect::<Vec<_>>().join(", "), 300)
    ))
}
