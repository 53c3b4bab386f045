//! The records of an experiment's runs: loading, removing and restoring them, and filling the gaps of runs.

use super::conduct::{PlannedRun, SweepConductor, set, spend};
use super::{
    curves::{CurvePlan, Renewal},
    refusals::NO_DELETE,
};
use crate::{error::ConductError, file::StatePolicy, run_folder};
use serval_model::{OperationKind, properties::units::counted};
use serval_plan::{Plan, perform::Performed, properties as p};
use serval_result::experiment::{RunEntry, RunKind};
use serval_runner::{Control, EndedBy};
use serval_workload::{
    Workload,
    core::{Eraser, Phase, properties as core},
};
use std::{ops::Range, sync::Arc, time::Instant};

/// Default number of clients of a load.
const LOADING_CLIENTS: u64 = 16;

impl SweepConductor<'_> {
    pub(super) fn set_running(&mut self, dataset: usize, running: bool) -> Result<(), ConductError> {
        let records = &mut self.records[dataset];
        records.state.running = running;
        let (name, state) = (records.dataset.name.clone(), records.state);
        self.journal.set_records(&name, state)?;
        Ok(())
    }

    /// Brings the records into the state that the state policy requires before a run.
    pub(super) fn prepare_records(
        &mut self,
        job: &PlannedRun,
        curve: &CurvePlan,
    ) -> Result<(), ConductError> {
        let policy = self.settings().state;
        let dataset = curve.dataset;
        if !self.settings().load && !self.records[dataset].state.loaded {
            let records = &mut self.records[dataset];
            records.state.loaded = true;
            records.state.next = records.state.next.max(records.dataset.records);
            // Earlier runs may have inserted more.
            records.state.running = curve.changes_records;
        }
        let unverified = std::mem::take(&mut self.records[dataset].unverified);
        // Records that are restored or loaded again need not be verified.
        let set = &self.records[dataset].dataset;
        let stays = policy == StatePolicy::Continue
            || (matches!(set.renewal, Renewal::Server) && set.restore.is_none());
        if unverified && stays && self.settings().load {
            self.check_records_lost(dataset)?;
        }
        if self.records[dataset].state.loaded {
            if self.records[dataset].state.running {
                self.find_end(dataset)?;
            }
            // Trials of a search need not begin with the same records.
            if job.kind != RunKind::Point || policy == StatePolicy::Continue {
                return Ok(());
            }
            let begun = Instant::now();
            let restored = policy == StatePolicy::Snapshot || self.records[dataset].dataset.restore.is_some();
            if restored && self.records[dataset].restore()? {
                spend(&mut self.spent, "restoring", begun.elapsed().as_secs_f64());
                return self.records_written(dataset);
            }
            if !self.records[dataset].start_anew()? {
                self.erase(job, dataset)?;
            }
            spend(&mut self.spent, "restoring", begun.elapsed().as_secs_f64());
        }
        self.load(job, dataset)
    }

    fn records_written(&mut self, dataset: usize) -> Result<(), ConductError> {
        let running = self.records[dataset].state.running;
        self.set_running(dataset, running)
    }

    /// Returns the plan of the load of a data set. With `resumed` it inserts only the missing records.
    fn load_plan(&self, dataset: usize, resumed: bool) -> Result<Plan, ConductError> {
        let records = &self.records[dataset];
        let mut properties = records.dataset.properties.clone();
        if resumed {
            set(&mut properties, p::LOAD_RESUME.name, "true".to_owned());
            set(&mut properties, core::BATCH_SIZE.name, "1".to_owned());
        }
        let clients = self.settings().clients.unwrap_or(LOADING_CLIENTS);
        set(&mut properties, p::THREAD_COUNT.name, self.threads(clients).to_string());
        set(&mut properties, p::SEED.name, self.seed(RunKind::Load, 0, 0).to_string());
        let store = records.dataset.info;
        Ok(Plan::strict(properties, Phase::Load, store)?)
    }

    /// Checks whether the server of a resumed experiment has lost its records.
    fn check_records_lost(&mut self, dataset: usize) -> Result<(), ConductError> {
        let Some(core) = self.load_plan(dataset, false)?.core else { return Ok(()) };
        if self.records[dataset].has_lost_records(&core, self.stores)? {
            let name = &self.records[dataset].dataset.name;
            self.watcher.note(&format!("{name}: the store has lost its records; they are loaded again"));
            let state = &mut self.records[dataset].state;
            (state.loaded, state.next) = (false, 0);
            self.set_running(dataset, true)?;
        }
        Ok(())
    }

    /// Finds the end of the records that an interrupted run inserted, and fills its gaps.
    pub(super) fn find_end(&mut self, dataset: usize) -> Result<(), ConductError> {
        let plan = self.load_plan(dataset, false)?;
        if let Some(core) = &plan.core {
            let before = self.records[dataset].state.next;
            let processes = self.processes();
            let end = self.records[dataset].find_end(core, self.stores, processes)?;
            if end > before {
                self.watcher
                    .note(&format!("found {} of an interrupted run", counted(end - before, "record")));
            }
            self.fill(dataset, before..end)?;
        }
        self.set_running(dataset, false)
    }

    /// Inserts the missing records of a range; the next run inserts from its end. At the end of a run each client may
    /// have taken a key without inserting it, and a later run would count its absence as a failure of the store.
    pub(super) fn fill(&mut self, dataset: usize, range: Range<u64>) -> Result<(), ConductError> {
        let state = &mut self.records[dataset].state;
        state.next = range.end.max(state.next);
        if range.is_empty() {
            return Ok(());
        }
        let mut properties = self.records[dataset].dataset.properties.clone();
        let count = range.end - range.start;
        set(&mut properties, core::RECORD_COUNT.name, range.end.to_string());
        set(&mut properties, core::INSERT_START.name, range.start.to_string());
        set(&mut properties, core::INSERT_COUNT.name, count.to_string());
        set(&mut properties, core::BATCH_SIZE.name, "1".to_owned());
        set(&mut properties, p::LOAD_RESUME.name, "true".to_owned());
        set(&mut properties, p::THREAD_COUNT.name, LOADING_CLIENTS.min(count).to_string());
        let store = self.records[dataset].dataset.info;
        let plan = Plan::strict(properties, Phase::Load, store)?;
        let session = self.records[dataset].session(self.stores)?;
        // An interrupted run must not leave gaps either.
        let control = Control::default();
        let ran = session.run(&plan.workload, &plan.options, &control, &mut ())?;
        if let Some(lost) = ran.lost {
            return Err(lost.into_error(store.name).into());
        }
        Ok(())
    }

    fn load(&mut self, job: &PlannedRun, dataset: usize) -> Result<(), ConductError> {
        let begun = Instant::now();
        // An interrupted load has inserted some of its records.
        let interrupted = self.records[dataset].state.running;
        let resumed = interrupted && !self.records[dataset].start_anew()?;
        let plan = self.load_plan(dataset, resumed)?;
        let load = PlannedRun { kind: RunKind::Load, what: "load".into(), target: None, ..job.clone() };
        self.watcher.step(&self.step(&load, &plan));
        self.set_running(dataset, true)?;
        let first = !self.journal.document.runs.iter().any(|entry| {
            entry.kind == RunKind::Load && self.experiment.curves[entry.curve].dataset == dataset
        });
        let what = format!("{} load", self.records[dataset].dataset.name);
        // Later loads repeat the first one, and no figure shows them.
        let mut folder = if first { Some(self.journal.run_folder(&what)?) } else { None };
        let performed = self.perform(dataset, &plan, folder.as_ref().map(|(_, folder)| folder))?;
        let failure = performed.load_failure();
        let Performed { document, record, lost, unwritten, .. } = performed;
        if let Some(error) = unwritten {
            return Err(error.into());
        }
        if record.ended_by == EndedBy::Interrupted {
            return Err(ConductError::Interrupted);
        }
        let overall = &document.overall;
        let store = self.records[dataset].dataset.info.name;
        if let Some(lost) = lost {
            return Err(lost.into_error(store).into());
        }
        if let Some(failure) = failure {
            // If no insert succeeded, the table has records of another program, and there is no load to resume.
            if overall.failed >= overall.operations && !resumed {
                self.set_running(dataset, false)?;
            }
            let problem =
                format!("{failure}. If they are there from before, remove them or take another table");
            return Err(ConductError::store(store, problem));
        }
        let records = &mut self.records[dataset];
        records.state.loaded = true;
        records.state.next = plan.core.as_ref().map_or(overall.operations, |core| core.load_range().1);
        if self.settings().state == StatePolicy::Snapshot {
            self.records[dataset].save()?;
        }
        self.set_running(dataset, false)?;
        spend(&mut self.spent, "loading", begun.elapsed().as_secs_f64());
        if let Some((name, folder)) = folder.take() {
            run_folder::finish(folder, &plan, &document)?;
            let entry = RunEntry::of(&document, RunKind::Load, name);
            let entry = RunEntry {
                curve: job.curve,
                warm_up_s: 0.0,
                whole_s: begun.elapsed().as_secs_f64(),
                records_before: Some(0),
                ..entry
            };
            self.ended(entry, &document)?;
        }
        Ok(())
    }

    /// Deletes all records of a data set, one by one.
    fn erase(&mut self, job: &PlannedRun, dataset: usize) -> Result<(), ConductError> {
        let plan = self.load_plan(dataset, false)?;
        let store = self.records[dataset].dataset.info.name;
        let Some(core) = plan.core.clone() else {
            let problem =
                "Serval cannot remove the records of this workload: give the store a 'restore' command";
            return Err(ConductError::store(store, problem));
        };
        let able = self.records[dataset].session(self.stores)?.store().capabilities();
        if !able.contains(OperationKind::Delete) {
            return Err(ConductError::store(store, format!("it {NO_DELETE}")));
        }
        let step = PlannedRun {
            kind: RunKind::Load,
            what: "remove the records".into(),
            target: None,
            ..job.clone()
        };
        let first = core.load_range().0;
        let end = self.records[dataset].state.next;
        let mut step = self.step(&step, &plan);
        step.units = Some(end.saturating_sub(first));
        self.watcher.step(&step);
        let eraser: Arc<dyn Workload> = Arc::new(Eraser::new(core, first..end));
        let session = self.records[dataset].session(self.stores)?;
        let record = session.run(&eraser, &plan.options, self.control, self.watcher)?.record;
        if record.ended_by == EndedBy::Interrupted {
            return Err(ConductError::Interrupted);
        }
        let failed = record.totals.units_failed + record.totals.buffered.not_done();
        if failed > 0 {
            let problem = format!("{failed} of its records could not be removed");
            return Err(ConductError::store(store, problem));
        }
        let state = &mut self.records[dataset].state;
        (state.loaded, state.next) = (false, 0);
        self.records_written(dataset)
    }
}
