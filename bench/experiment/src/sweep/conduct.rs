//! Conducting a sweep or search: one run after the other.

use super::{
    curves::{CurvePlan, Experiment, REPEATED_RATES},
    datasets::{DatasetInUse, Stores},
};
use crate::{
    document::{experiment_document, plan_notes},
    error::{ConductError, Stopped},
    file::{CurveObjective, LoadPoint, RunSettings},
    journal::{ExperimentJournal, JournalError},
    run_folder,
    watcher::{ExperimentStep, Watcher},
};
use serval_group::{GroupSession, Team, check};
use serval_model::{
    OperationKind,
    properties::{Origin, Properties, units::format_span},
};
use serval_plan::{
    Plan, PlanError,
    folder::ResultFolder,
    fresh_seed,
    perform::{Performed, RunFiles, perform},
    properties as p,
    session::Session,
};
use serval_report::notes::{line, lines};
use serval_result::{
    document::ResultDocument,
    experiment::{Curve, ExperimentDocument, ExperimentKind, RunEntry, RunKind},
    note::Note,
};
use serval_runner::{Control, EndedBy, RunError};
use serval_workload::{
    core::{Phase, properties as core},
    random::{derived_seed, split_mix},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A run to perform.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedRun {
    pub(super) curve: usize,
    pub(super) kind: RunKind,
    pub(super) point: usize,
    pub(super) repeat: u32,
    pub(super) target: Option<f64>,
    pub(super) clients: u64,
    pub(super) time: Duration,
    /// Description for the user and for the folder's name.
    pub(super) what: String,
}

/// Offered load and clients of a point on a curve.
pub(super) struct PointLoad {
    /// Operations/s; `None`: as fast as possible.
    pub(super) target: Option<f64>,
    pub(super) clients: u64,
    /// Description for people and the folder's name.
    pub(super) what: String,
}

/// Conductor of a sweep or search, with its state.
pub(super) struct SweepConductor<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) journal: ExperimentJournal,
    pub(super) stores: &'a dyn Stores,
    /// The group that performs the runs, if several processes do.
    pub(super) team: Option<&'a Team>,
    pub(super) control: &'a Control,
    pub(super) watcher: &'a mut dyn Watcher,
    pub(super) records: Vec<DatasetInUse>,
    /// Curves whose store failed.
    pub(super) lost: Vec<bool>,
    /// Throughput of each curve's last run without a target.
    rates: Vec<Option<f64>>,
    /// Seconds spent, by activity.
    pub(super) spent: BTreeMap<&'static str, f64>,
}

/// Adds seconds to the time spent on an activity.
pub(super) fn spend(spent: &mut BTreeMap<&'static str, f64>, what: &'static str, seconds: f64) {
    *spent.entry(what).or_default() += seconds;
}

impl Experiment {
    /// The same, with this seed if the file has none.
    #[must_use]
    pub fn or_seed(&self, seed: Option<u64>) -> Experiment {
        let mut same = self.clone();
        same.file.run.seed = same.file.run.seed.or(seed);
        same
    }

    /// Makes the document of the experiment before its first run.
    pub fn document(&self, command_line: Vec<String>) -> ExperimentDocument {
        let mut file = self.file.clone();
        let seed = file.run.seed.unwrap_or_else(fresh_seed);
        file.run.seed = Some(seed);
        let question = &file.question;
        let points = match question {
            CurveObjective::Sweep(points) => points.len(),
            CurveObjective::Max(_) => REPEATED_RATES,
        };
        let curves = self.curves.iter().map(|curve| Curve {
            name: curve.name.clone(),
            store: curve.store.clone(),
            binding: curve.info.name.to_owned(),
            workload: curve.workload.clone(),
            at: curve.at,
            saturation: None,
            highest: None,
        });
        let kind = match question {
            CurveObjective::Sweep(_) => ExperimentKind::Sweep,
            CurveObjective::Max(_) => ExperimentKind::Max,
        };
        ExperimentDocument {
            plan: file.to_toml(),
            seed,
            axis: file.axis.clone(),
            curves: curves.collect(),
            runs_planned: self.curves.len() as u64 * points as u64 * file.run.repeats,
            ..experiment_document(kind, &file.heading, command_line, &self.warnings)
        }
    }

    /// Conducts the remaining runs of the experiment, in the journal's folder, with the processes of `team` if given.
    pub fn conduct(
        &self,
        journal: ExperimentJournal,
        stores: &dyn Stores,
        team: Option<&Team>,
        control: &Control,
        watcher: &mut dyn Watcher,
        keep_stores: bool,
    ) -> Result<(ExperimentJournal, Stopped), ConductError> {
        let begun = Instant::now();
        let planned = self.curves.iter().map(|curve| &curve.name);
        if !planned.eq(journal.document.curves.iter().map(|curve| &curve.name)) {
            let problem = "its curves are not those of its plan".to_owned();
            let path = journal.path().join(serval_report::stored::EXPERIMENT);
            return Err(JournalError::State { path, problem }.into());
        }
        let records = self.datasets.iter().map(|dataset| DatasetInUse::new(dataset, &journal));
        let records = records.collect::<Result<Vec<_>, _>>()?;
        let mut conductor = SweepConductor {
            experiment: self,
            journal,
            stores,
            team,
            control,
            watcher,
            records,
            lost: vec![false; self.curves.len()],
            rates: vec![None; self.curves.len()],
            spent: BTreeMap::new(),
        };
        // Drop the notes of curves that an earlier process gave up: they are tried again.
        let document = &mut conductor.journal.document;
        document.notes = plan_notes(&self.warnings);
        document.warnings = lines(&document.notes);
        conductor.watcher.experiment(&conductor.journal.document);
        let outcome = conductor.refuse().and_then(|()| conductor.all());
        let stopped = match outcome {
            Ok(()) if conductor.lost.contains(&true) => Stopped::CurvesLost,
            Ok(()) => Stopped::Complete,
            Err(ConductError::Interrupted) => Stopped::Interrupted,
            Err(error) => {
                conductor.account(begun);
                // The first error is the one to return.
                let _ = conductor.journal.write();
                return Err(error);
            }
        };
        conductor.account(begun);
        let SweepConductor { mut journal, records, watcher, .. } = conductor;
        // Stores must close their files before they are removed.
        drop(records);
        journal.document.complete = stopped == Stopped::Complete;
        journal.write()?;
        if journal.document.complete && !keep_stores {
            journal.remove_stores();
        }
        watcher.experiment(&journal.document);
        Ok((journal, stopped))
    }
}

impl SweepConductor<'_> {
    /// Returns whether clients of a curve's store run on threads or on event loops, if the store is open.
    pub(super) fn execution(&self, curve: usize) -> Option<serval_model::Execution> {
        self.records[self.curve(curve).dataset].execution()
    }

    pub(super) fn settings(&self) -> &RunSettings {
        &self.experiment.file.run
    }

    /// Returns the number of processes that share the clients of a run.
    pub(super) fn processes(&self) -> u64 {
        self.team.map_or(1, |team| team.clients().len() as u64)
    }

    /// Returns the number of clients of each process for `clients` in total.
    pub(super) fn threads(&self, clients: u64) -> u64 {
        clients.div_ceil(self.processes()).max(1)
    }

    fn curve(&self, index: usize) -> &CurvePlan {
        &self.experiment.curves[index]
    }

    /// Performs all remaining runs.
    fn all(&mut self) -> Result<(), ConductError> {
        match &self.experiment.file.question {
            CurveObjective::Sweep(points) => self.sweep(points),
            CurveObjective::Max(promise) => self.highest(promise),
        }
    }

    /// Adds the time spent to the document.
    fn account(&mut self, begun: Instant) {
        let all = begun.elapsed().as_secs_f64();
        let known: f64 = self.spent.values().sum();
        spend(&mut self.spent, "other", (all - known).max(0.0));
        for (what, seconds) in std::mem::take(&mut self.spent) {
            *self.journal.document.time_s.entry(what.to_owned()).or_default() += seconds;
        }
    }

    fn sweep(&mut self, points: &[LoadPoint]) -> Result<(), ConductError> {
        let needs = self.settings().clients.is_none() || points.iter().any(|point| point.needs_saturation());
        if needs {
            self.find_saturations()?;
        }
        let jobs = self.point_jobs(points);
        self.run_points(jobs)?;
        self.note_saturations_not_reached();
        Ok(())
    }

    /// Shows a note and adds it to the document.
    pub(super) fn note(&mut self, note: Note) {
        let words = line(&note);
        self.watcher.note(&words);
        self.journal.document.warnings.push(words);
        self.journal.document.notes.push(note);
    }

    /// Performs the runs of points that have not been performed.
    pub(super) fn run_points(&mut self, jobs: Vec<PlannedRun>) -> Result<(), ConductError> {
        for job in jobs {
            let done = |entry: &RunEntry| {
                (entry.kind, entry.curve, entry.point, entry.repeat)
                    == (RunKind::Point, job.curve, job.point, job.repeat)
            };
            if !self.lost[job.curve] && !self.journal.document.runs.iter().any(done) {
                self.attempt(&job)?;
            }
        }
        Ok(())
    }

    /// Returns the runs of all points, in the order of their execution.
    fn point_jobs(&self, points: &[LoadPoint]) -> Vec<PlannedRun> {
        let given = self.settings().clients;
        self.jobs(points.len(), |curve, point| {
            let saturation = self.journal.document.curves[curve].saturation.as_ref();
            let found = saturation.map(|s| s.clients);
            let (target, clients) = match points[point] {
                LoadPoint::Max => (None, given.or(found)),
                LoadPoint::Rate(rate) => (Some(rate), given.or(found.map(paced_clients))),
                // A lost curve has no saturation, and gets no runs.
                LoadPoint::Share(share) => {
                    (Some(share * saturation?.throughput), given.or(found.map(paced_clients)))
                }
            };
            Some(PointLoad { target, clients: clients.unwrap_or(1), what: points[point].to_string() })
        })
    }

    /// Returns the runs of `points` points on every curve, in the order of their execution. `load` returns
    /// the load of a point on a curve; `None` to leave it out.
    pub(super) fn jobs(
        &self,
        points: usize,
        load: impl Fn(usize, usize) -> Option<PointLoad>,
    ) -> Vec<PlannedRun> {
        let RunSettings { time, repeats, .. } = *self.settings();
        let mut jobs = Vec::new();
        for repeat in 0..repeats as u32 {
            for (turn, point) in self.order(points, repeat).into_iter().enumerate() {
                for curve in self.curves_from(turn + repeat as usize) {
                    let Some(PointLoad { target, clients, what }) = load(curve, point) else { continue };
                    let what = format!("{what}, repeat {} of {repeats}", repeat + 1);
                    let kind = RunKind::Point;
                    jobs.push(PlannedRun { curve, kind, point, repeat, target, clients, time, what });
                }
            }
        }
        jobs
    }

    /// Returns the share of the saturation of a point that was given as a share.
    fn share(&self, job: &PlannedRun) -> Option<f64> {
        match (job.kind, &self.experiment.file.question) {
            (RunKind::Point, CurveObjective::Sweep(points)) => match points.get(job.point)? {
                LoadPoint::Share(share) => Some(*share),
                LoadPoint::Rate(_) | LoadPoint::Max => None,
            },
            _ => None,
        }
    }

    /// Returns the indices of all curves, beginning with another curve for each turn.
    fn curves_from(&self, turn: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.experiment.curves.len();
        (0..count).map(move |i| (i + turn) % count)
    }

    /// Returns the order of points in a repeat.
    fn order(&self, points: usize, repeat: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..points).collect();
        if self.settings().order == crate::file::PointOrder::Shuffled {
            let mut state = self.journal.document.seed ^ (u64::from(repeat) << 32) ^ ORDER_STREAM;
            // Fisher and Yates.
            for i in (1..points).rev() {
                order.swap(i, (split_mix(&mut state) % (i as u64 + 1)) as usize);
            }
        }
        order
    }

    /// Performs a run. If its store fails, gives up the curve and returns `None`; the experiment continues.
    pub(super) fn attempt(&mut self, job: &PlannedRun) -> Result<Option<Box<ResultDocument>>, ConductError> {
        let error = match self.run(job) {
            Ok(document) => return Ok(Some(Box::new(document))),
            Err(ConductError::Plan(error)) => error,
            Err(error) => return Err(error),
        };
        if self.control.interrupted() {
            return Err(ConductError::Interrupted);
        }
        match error {
            PlanError::Store(_) | PlanError::Run(RunError::Store(_) | RunError::Panicked(_)) => {
                self.give_up(job.curve, &job.what, &error.to_string())?;
                Ok(None)
            }
            error => Err(error.into()),
        }
    }

    /// Gives up a curve. It is tried again when the experiment is resumed.
    pub(super) fn give_up(&mut self, curve: usize, at: &str, why: &str) -> Result<(), ConductError> {
        let (name, at, why) = (self.curve(curve).name.clone(), at.to_owned(), why.to_owned());
        self.note(Note::CurveGivenUp { curve: name, at, why });
        self.lost[curve] = true;
        Ok(self.journal.write()?)
    }

    fn run(&mut self, job: &PlannedRun) -> Result<ResultDocument, ConductError> {
        let begun = Instant::now();
        let curve = self.curve(job.curve).clone();
        self.prepare_records(job, &curve)?;
        let ready_s = begun.elapsed().as_secs_f64();
        let plan = self.plan(job, &curve)?;
        if let Some(team) = self.team {
            check(&plan, false, team.clients().len())?;
        }
        let records_before = plan.core.is_some().then_some(self.records[curve.dataset].state.next);
        self.watcher.step(&self.step(job, &plan));
        let inserts = plan.workload.demands().iter().any(|demand| demand.kind == OperationKind::Insert);
        self.set_running(curve.dataset, inserts)?;
        let what = format!("{} {}", curve.name, job.what.replace(" of ", "-"));
        let (folder_name, folder) = self.journal.run_folder(&what)?;
        let performed = self.perform(curve.dataset, &plan, Some(&folder))?;
        let Performed { document, record, lost, unwritten, .. } = performed;
        if let Some(core) = plan.core.as_ref().filter(|_| inserts) {
            // Only the clients know the last key that they took. Each has gaps at the other clients' keys.
            match self.team.map_or_else(|| Some(core.unended_inserts()), Team::unended_inserts) {
                Some(range) => {
                    let before = self.records[curve.dataset].state.next;
                    self.fill(curve.dataset, range.start.max(before)..range.end)?;
                }
                None => self.find_end(curve.dataset)?,
            }
        }
        self.set_running(curve.dataset, false)?;
        if let Some(error) = unwritten {
            return Err(error.into());
        }
        if record.ended_by == EndedBy::Interrupted {
            return Err(ConductError::Interrupted);
        }
        if let Some(lost) = lost {
            return Err(lost.into_error(curve.info.name).into());
        }
        run_folder::finish(folder, &plan, &document)?;
        let overall = &document.overall;
        if job.target.is_none() {
            self.rates[job.curve] = Some(overall.throughput);
        }
        let measured = match job.kind {
            RunKind::Point => "measuring",
            RunKind::Search | RunKind::Load => "searching",
        };
        spend(&mut self.spent, "warming up", overall.warm_up_s);
        spend(&mut self.spent, measured, overall.duration_s);
        let entry = RunEntry {
            curve: job.curve,
            point: job.point,
            repeat: job.repeat,
            target: job.target,
            share: self.share(job),
            whole_s: begun.elapsed().as_secs_f64() - ready_s,
            records_before,
            ..RunEntry::of(&document, job.kind, folder_name)
        };
        self.ended(entry, &document)?;
        Ok(document)
    }

    /// Performs a plan on a data set, with the group if there is one.
    pub(super) fn perform(
        &mut self,
        dataset: usize,
        plan: &Plan,
        folder: Option<&ResultFolder>,
    ) -> Result<Performed, ConductError> {
        let local = self.records[dataset].session(self.stores)?;
        let group = self.team.map(|team| GroupSession::new(team, local, plan));
        let session = group.as_ref().map_or(local, |group| group as &dyn Session);
        let files = folder.map(|folder| RunFiles { folder, prefix: "", raw: false });
        let command_line = self.journal.document.command_line.clone();
        Ok(perform(plan, session, self.control, self.watcher, files, command_line)?)
    }

    pub(super) fn ended(&mut self, entry: RunEntry, document: &ResultDocument) -> Result<(), ConductError> {
        self.watcher.ended(&entry, document);
        self.journal.push(entry)?;
        self.watcher.experiment(&self.journal.document);
        Ok(())
    }

    /// Returns the seed of a run. It is the same for all curves, so that all stores get the same operations.
    pub(super) fn seed(&self, kind: RunKind, point: usize, repeat: u32) -> u64 {
        let kind = match kind {
            RunKind::Load => 1u64,
            RunKind::Search => 2,
            RunKind::Point => 3,
        };
        derived_seed(self.journal.document.seed ^ kind << 60 ^ (point as u64) << 32 ^ u64::from(repeat))
    }

    fn plan(&self, job: &PlannedRun, curve: &CurvePlan) -> Result<Plan, ConductError> {
        let settings = self.settings();
        let records = &self.records[curve.dataset];
        let mut properties = curve.properties.clone();
        for (name, setting) in records.dataset.properties.iter() {
            // The path of an embedded store's files.
            if curve.properties.get(name).is_none() && matches!(setting.origin, Origin::Program(_)) {
                properties.set(name, setting.value.clone(), setting.origin.clone());
            }
        }
        set(&mut properties, p::THREAD_COUNT.name, self.threads(job.clients).to_string());
        set(&mut properties, p::MAX_EXECUTION_TIME.name, format_span(job.time));
        set(&mut properties, p::WARM_UP.name, format_span(settings.warm_up));
        set(&mut properties, p::WARM_UP_MAX.name, format_span(settings.warm_up_max));
        set(&mut properties, p::SEED.name, self.seed(job.kind, job.point, job.repeat).to_string());
        if let Some(target) = job.target {
            set(&mut properties, p::TARGET.name, format!("{target}"));
            set(&mut properties, p::TARGET_ARRIVALS.name, settings.arrivals.name().to_owned());
        } else if let Some(rate) = self.rates[job.curve].filter(|_| curve.changes_records)
            && !properties.has(&core::EXPECTED_OPERATIONS)
        {
            let operations = rate * (job.time + settings.warm_up).as_secs_f64();
            set(&mut properties, core::EXPECTED_OPERATIONS.name, (operations as u64).to_string());
        }
        if records.state.next > records.dataset.records {
            set(&mut properties, core::RECORD_COUNT.name, records.state.next.to_string());
        }
        let mut plan = Plan::strict(properties, Phase::Run, curve.info)?;
        plan.label = format!("{} {}", curve.name, job.what);
        Ok(plan)
    }

    pub(super) fn step(&self, job: &PlannedRun, plan: &Plan) -> ExperimentStep {
        let document = &self.journal.document;
        let points = || document.runs.iter().filter(|entry| entry.kind == RunKind::Point);
        let done = points().count() as u64;
        let planned = document.runs_planned;
        let settings = self.settings();
        let each = match done {
            0 => (settings.time + settings.warm_up).as_secs_f64() + 1.0,
            done => points().map(|entry| entry.whole_s).sum::<f64>() / done as f64,
        };
        let is_load = job.kind == RunKind::Load;
        ExperimentStep {
            curve: job.curve,
            kind: job.kind,
            what: job.what.clone(),
            target: job.target,
            clients: plan.options.clients,
            warm_up_max: if is_load { Duration::ZERO } else { settings.warm_up_max.max(settings.warm_up) },
            time: (!is_load).then_some(job.time),
            metrics: plan.workload.metrics(),
            units: plan.workload.units().filter(|_| is_load),
            done,
            planned,
            remaining: Duration::from_secs_f64((each * planned.saturating_sub(done) as f64).min(3e8)),
        }
    }
}

/// Separates the random stream of the order of points from the seeds of runs.
const ORDER_STREAM: u64 = 0x0bde_5eed;

/// Returns the number of clients of paced points: twice the number that saturates the store, so that it does not
/// limit the operations in flight in a burst.
pub(super) fn paced_clients(clients: u64) -> u64 {
    clients.saturating_mul(2)
}

pub(super) fn set(properties: &mut Properties, name: &'static str, value: String) {
    properties.set(name, value, Origin::Program("the experiment"));
}
