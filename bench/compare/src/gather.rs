//! From paths to the runs of a side.

use crate::{error::CompareError, run::Run};
use serval_report::{
    stored::{self, EXPERIMENT, RESULT, Stored, StoredExperiment},
    text::printable,
    units::{digits, rate},
};
use serval_result::experiment::{ExperimentKind, Flag, RunEntry, RunKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Folders below a given one that are looked into: as deep as a folder of
/// experiments' runs, and some.
const DEPTH_MAX: usize = 6;
/// Folders that are looked at in all.
const FOLDERS_MAX: usize = 20_000;
/// Runs of a side.
const RUNS_MAX: usize = 1_000;
/// How far offered loads of the same point may be apart, as a share.
const SAME_TARGET: f64 = 0.005;

/// A point of an experiment, or a phase.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// Whether it is a phase: then it has a name only.
    is_phase: bool,
    /// The curve's name, or the phase's.
    pub(crate) curve: String,
    workload: String,
    target: Option<f64>,
    /// Of the curve's own saturation, where the load was asked for so.
    share: Option<f64>,
    point: usize,
    /// Which of the curve's points of this load it is, from 0.
    nth: usize,
}

/// The load of a run of a point as it was asked for, for finding the same again.
fn asked(run: &RunEntry) -> (Option<u64>, Option<u64>) {
    match run.share {
        Some(share) => (None, Some(share.to_bits())),
        None => (run.target.map(f64::to_bits), None),
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME_TARGET * a.abs().max(b.abs())
}

impl Point {
    fn of_phase(name: &str) -> Point {
        Point {
            is_phase: true,
            curve: name.to_owned(),
            workload: String::new(),
            target: None,
            share: None,
            point: 0,
            nth: 0,
        }
    }

    /// Whether two are to be compared; curves and phases by name where there are several.
    fn matches(&self, other: &Point, by_curve: bool) -> bool {
        if self.is_phase != other.is_phase {
            return false;
        }
        let same_load = match ((self.share, other.share), (self.target, other.target)) {
            // Half of what each can do, whatever that is.
            ((Some(a), Some(b)), _) => close(a, b),
            (_, (None, None)) => true,
            (_, (Some(a), Some(b))) => close(a, b),
            _ => false,
        };
        same_load
            && self.nth == other.nth
            && self.workload == other.workload
            && (!by_curve || self.curve == other.curve)
    }

    fn name(&self, with_curve: bool) -> String {
        if self.is_phase {
            return printable(&format!("phase {}", self.curve), 80);
        }
        let load = match (self.share, self.target) {
            (Some(share), _) => format!("{} % of the saturation offered", digits(share * 100.0)),
            (None, Some(target)) => format!("{} operations/s offered", rate(target)),
            (None, None) => "as fast as the store answers".to_owned(),
        };
        let name = if with_curve { &self.curve } else { &self.workload };
        printable(&format!("{name}, point {}: {load}", self.point + 1), 80)
    }
}

/// A side: the runs that its paths lead to.
#[derive(Debug)]
pub struct Side {
    /// `A`, `B`, or what else it is called.
    pub(crate) name: String,
    /// What it was given as.
    pub(crate) given: String,
    pub(crate) runs: Vec<(Option<Point>, Run)>,
    /// Where curves saturate, of each experiment: the curve, its workload, the experiment's
    /// folder, operations/s.
    saturations: Vec<(String, String, PathBuf, f64)>,
    /// What must be known of it.
    pub(crate) warnings: Vec<String>,
}

/// Runs of both sides that are compared with one another.
pub(crate) struct Pair<'a> {
    pub(crate) name: String,
    pub(crate) a: Vec<&'a Run>,
    pub(crate) b: Vec<&'a Run>,
    /// The point in A, if there is one.
    pub(crate) point: Option<&'a Point>,
}

struct Search {
    folders: usize,
    seen: BTreeSet<PathBuf>,
    found: Vec<PathBuf>,
}

impl Search {
    fn look(&mut self, path: &Path, root: &Path, depth: usize) -> Result<(), CompareError> {
        let failed = |error| CompareError::Folder { path: path.to_owned(), error };
        self.folders += 1;
        if self.folders > FOLDERS_MAX {
            return Err(CompareError::TooMany { path: root.to_owned(), max: FOLDERS_MAX, what: "folders" });
        }
        let (experiment, result) = (path.join(EXPERIMENT), path.join(RESULT));
        let file = match path {
            path if !path.is_dir() => Some(path),
            _ if experiment.exists() => Some(experiment.as_path()),
            _ if result.exists() => Some(result.as_path()),
            _ => None,
        };
        if let Some(file) = file {
            // One that several paths lead to is one.
            if self.seen.insert(file.canonicalize().map_err(failed)?) {
                self.found.push(file.to_owned());
            }
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Ok(());
        }
        let mut below = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Hidden ones are results in the making. Links may lead in circles.
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !hidden && entry.file_type().map_err(failed)?.is_dir() {
                below.push(entry.path());
            }
        }
        below.sort();
        below.iter().try_for_each(|path| self.look(path, root, depth + 1))
    }
}

/// A path, and the curve or phase if the path is `DIR:CURVE`.
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
        let mut flags: BTreeMap<Flag, usize> = BTreeMap::new();
        let mut search = Search { folders: 0, seen: BTreeSet::new(), found: Vec::new() };
        for given in paths {
            let (path, curve) = curve_of(given);
            search.look(&path, &path, 0)?;
            let found = std::mem::take(&mut search.found);
            if found.is_empty()
                && !search.seen.iter().any(|seen| path.canonicalize().is_ok_and(|p| seen.starts_with(p)))
            {
                return Err(CompareError::Empty(path));
            }
            for path in found {
                match (stored::read(&path)?, &curve) {
                    (Stored::Result(_, _), Some(curve)) => {
                        return Err(CompareError::Unfit(format!(
                            "{}: it is a result and has no curve '{curve}': curves are of experiments",
                            path.display()
                        )));
                    }
                    (Stored::Result(file, document), None) => side.push(None, Run::of(&file, &document)?)?,
                    (Stored::Experiment(experiment), curve) => {
                        side.take(&experiment, curve.as_deref(), &mut flags)?;
                    }
                }
            }
        }
        if let (Some(_), Some(_)) = (
            side.runs.iter().find(|(point, _)| point.is_some()),
            side.runs.iter().find(|(point, _)| point.is_none()),
        ) {
            return Err(CompareError::Unfit(format!(
                "side {name} ({}) has both results and experiments: compare one or the other",
                side.given
            )));
        }
        for (flag, number) in flags {
            let words = flag.words();
            side.warnings.push(format!("{number} of {} runs of {name}: {words}.", side.runs.len()));
        }
        side.tell_notes();
        Ok(side)
    }

    fn push(&mut self, point: Option<Point>, run: Run) -> Result<(), CompareError> {
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

    fn take(
        &mut self,
        experiment: &StoredExperiment,
        curve: Option<&str>,
        flags: &mut BTreeMap<Flag, usize>,
    ) -> Result<(), CompareError> {
        let document = &experiment.document;
        if document.kind == ExperimentKind::Phases {
            return self.take_phases(experiment, curve, flags);
        }
        let names: Vec<&str> = document.curves.iter().map(|curve| curve.name.as_str()).collect();
        if let Some(wanted) = curve
            && !names.contains(&wanted)
        {
            return Err(CompareError::Unfit(format!(
                "{}: it has no curve '{wanted}'; it has {}",
                experiment.folder.display(),
                printable(&names.join(", "), 300)
            )));
        }
        self.tell_incomplete(experiment);
        for of in document.curves.iter().filter(|of| curve.is_none_or(|wanted| wanted == of.name)) {
            let found = of.saturation.as_ref().map(|saturation| saturation.throughput);
            if let Some(throughput) = found.filter(|t| t.is_finite() && *t > 0.0) {
                let folder = experiment.folder.clone();
                self.saturations.push((of.name.clone(), of.workload.clone(), folder, throughput));
            }
        }
        let before = self.runs.len();
        for entry in document.runs.iter().filter(|run| run.kind == RunKind::Point) {
            let Some(of) = document.curves.get(entry.curve) else { continue };
            if curve.is_some_and(|wanted| wanted != of.name) {
                continue;
            }
            let result = experiment.result(entry)?;
            let folder = experiment.run_folder(entry).unwrap_or_default();
            let alike: BTreeSet<usize> = document
                .runs
                .iter()
                .filter(|run| (run.kind, run.curve) == (RunKind::Point, entry.curve))
                .filter(|run| run.point < entry.point && asked(run) == asked(entry))
                .map(|run| run.point)
                .collect();
            let point = Point {
                is_phase: false,
                curve: of.name.clone(),
                workload: of.workload.clone(),
                target: entry.target,
                share: entry.share,
                point: entry.point,
                nth: alike.len(),
            };
            entry.flags.iter().for_each(|flag| *flags.entry(*flag).or_default() += 1);
            self.push(Some(point), Run::of(&folder.join(RESULT), &result)?)?;
        }
        if self.runs.len() == before {
            return Err(CompareError::Unfit(format!(
                "{}: no point of it has been run yet",
                experiment.folder.display()
            )));
        }
        Ok(())
    }

    /// The loads and runs of an experiment of phases, or that of one phase.
    fn take_phases(
        &mut self,
        experiment: &StoredExperiment,
        phase: Option<&str>,
        flags: &mut BTreeMap<Flag, usize>,
    ) -> Result<(), CompareError> {
        let measured = || {
            let phases = experiment.document.phases.iter();
            phases.filter_map(|entry| Some((entry, entry.folder.as_ref()?)))
        };
        let folder = experiment.folder.display();
        if measured().next().is_none() {
            return Err(CompareError::Unfit(format!("{folder}: no load or run of it has ended yet")));
        }
        if let Some(wanted) = phase
            && measured().all(|(entry, _)| entry.name != wanted)
        {
            let names: Vec<&str> = measured().map(|(entry, _)| entry.name.as_str()).collect();
            return Err(CompareError::Unfit(format!(
                "{folder}: it has no load or run '{wanted}'; it has {}",
                printable(&names.join(", "), 300)
            )));
        }
        self.tell_incomplete(experiment);
        for (entry, below) in measured().filter(|(entry, _)| phase.is_none_or(|wanted| wanted == entry.name))
        {
            let result = experiment.result_in(below)?;
            entry.flags.iter().for_each(|flag| *flags.entry(*flag).or_default() += 1);
            let run = Run::of(&experiment.folder.join(below).join(RESULT), &result)?;
            self.push(Some(Point::of_phase(&entry.name)), run)?;
        }
        Ok(())
    }

    fn tell_incomplete(&mut self, experiment: &StoredExperiment) {
        if !experiment.document.complete {
            let folder = experiment.folder.display();
            self.warnings.push(format!("The experiment {folder} of {} is not complete.", self.name));
        }
    }

    fn tell_notes(&mut self) {
        let mut notes: BTreeMap<&str, usize> = BTreeMap::new();
        for note in self.runs.iter().flat_map(|(_, run)| &run.notes) {
            *notes.entry(note).or_default() += 1;
        }
        for (note, number) in notes {
            self.warnings.push(format!("{number} of {} runs of {} {note}.", self.runs.len(), self.name));
        }
    }

    /// The curves that its runs are of.
    fn curves(&self) -> BTreeSet<&str> {
        self.runs.iter().filter_map(|(point, _)| Some(point.as_ref()?.curve.as_str())).collect()
    }

    fn points(&self) -> Vec<&Point> {
        let mut points: Vec<&Point> = Vec::new();
        for point in self.runs.iter().filter_map(|(point, _)| point.as_ref()) {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }

    /// The runs that are repeats of one another: those of each point.
    pub(crate) fn repeats(&self, point: Option<&Point>, by_curve: bool) -> Vec<Vec<&Run>> {
        let points = self.points();
        match point {
            None if !points.is_empty() => {
                points.iter().map(|point| self.runs_of(Some(point), true)).collect()
            }
            point => vec![self.runs_of(point, by_curve)],
        }
    }

    /// The runs of a point that matches, or all if there is no point to match.
    pub(crate) fn runs_of(&self, point: Option<&Point>, by_curve: bool) -> Vec<&Run> {
        let fits = |(own, _): &&(Option<Point>, Run)| match (own, point) {
            (Some(own), Some(point)) => own.matches(point, by_curve),
            _ => true,
        };
        self.runs.iter().filter(fits).map(|(_, run)| run).collect()
    }
}

/// Whether curves are told apart by their names: where a side has several.
pub(crate) fn by_curve(a: &Side, b: &Side) -> bool {
    a.curves().len() > 1 || b.curves().len() > 1
}

/// What of the sides is compared with what, and what is left over.
pub(crate) fn pairs<'a>(a: &'a Side, b: &'a Side) -> Result<(Vec<Pair<'a>>, Vec<String>), CompareError> {
    let (of_a, of_b) = (a.points(), b.points());
    // Results, and one point of an experiment, are sets of repeats.
    if of_a.len() <= 1 && of_b.len() <= 1 && (of_a.is_empty() || of_b.is_empty()) {
        let pair =
            Pair { name: String::new(), a: a.runs_of(None, false), b: b.runs_of(None, false), point: None };
        return Ok((vec![pair], Vec::new()));
    }
    if of_a.is_empty() || of_b.is_empty() {
        let (experiment, results) = if of_a.is_empty() { (b, a) } else { (a, b) };
        return Err(CompareError::Unfit(format!(
            "{} is an experiment of several points and {} is not: compare experiments with experiments, or name \
             folders of runs on both sides",
            experiment.given, results.given
        )));
    }
    let (curves_a, curves_b) = (a.curves(), b.curves());
    let by_curve = by_curve(a, b);
    let phases = of_a.iter().chain(&of_b).any(|point| point.is_phase);
    if !phases && (curves_a.len() > 1) != (curves_b.len() > 1) {
        let (many, one, curves) = if curves_a.len() > 1 { (a, b, curves_a) } else { (b, a, curves_b) };
        let names: Vec<&str> = curves.into_iter().collect();
        return Err(CompareError::Unfit(format!(
            "{} has several curves, {} has one: name one as {}:CURVE, of {}",
            many.given,
            one.given,
            many.given,
            printable(&names.join(", "), 300)
        )));
    }
    let mut pairs = Vec::new();
    let mut left = Vec::new();
    let mut taken: Vec<&Point> = Vec::new();
    for point in &of_a {
        // One point whose targets came out a little apart is one of several here.
        if taken.iter().any(|other| other.matches(point, by_curve)) {
            continue;
        }
        taken.push(point);
        let runs = b.runs_of(Some(point), by_curve);
        if runs.is_empty() {
            left.push(format!("{} is in A only.", point.name(by_curve)));
        } else {
            let name = point.name(by_curve);
            pairs.push(Pair { name, a: a.runs_of(Some(point), by_curve), b: runs, point: Some(point) });
        }
    }
    for point in of_b.iter().filter(|point| a.runs_of(Some(point), by_curve).is_empty()) {
        left.push(format!("{} is in B only.", point.name(by_curve)));
    }
    if pairs.is_empty() && phases {
        return Err(CompareError::Unfit(format!(
            "no phase of {} is one of {}: phases are compared with phases of the same name. To compare two of different names \
             name one a side, as DIR:PHASE",
            a.given, b.given
        )));
    }
    if pairs.is_empty() {
        return Err(CompareError::Unfit(format!(
            "no point of {} is one of {}: points match by workload and offered load{}, a rate with the same rate and a share of \
             the saturation with the same share",
            a.given,
            b.given,
            if by_curve { ", and by the curve's name" } else { "" }
        )));
    }
    Ok((pairs, left))
}

/// Where a curve saturates, in the experiments of both sides.
pub(crate) struct Saturations {
    /// What it is of.
    pub(crate) name: String,
    /// Experiments' folders and operations/s.
    pub(crate) a: Vec<(PathBuf, f64)>,
    pub(crate) b: Vec<(PathBuf, f64)>,
}

/// The saturations of curves that are compared.
pub(crate) fn saturations(a: &Side, b: &Side) -> Vec<Saturations> {
    let by_curve = by_curve(a, b);
    let mut all: Vec<Saturations> = Vec::new();
    for (side, is_a) in [(a, true), (b, false)] {
        for (curve, workload, folder, throughput) in &side.saturations {
            let name = printable(if by_curve { curve } else { workload }, 60);
            let at = all.iter().position(|of| of.name == name).unwrap_or_else(|| {
                all.push(Saturations { name, a: Vec::new(), b: Vec::new() });
                all.len() - 1
            });
            let of = if is_a { &mut all[at].a } else { &mut all[at].b };
            of.push((folder.clone(), *throughput));
        }
    }
    all.retain(|of| !of.a.is_empty() && !of.b.is_empty());
    all
}

impl Pair<'_> {
    /// Whether the sides were offered shares of their own saturations.
    pub(crate) fn by_share(&self) -> bool {
        self.point.is_some_and(|point| point.share.is_some())
    }
}
