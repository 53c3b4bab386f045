//! Conducting the phases of an experiment in order.

use super::Phases;
use crate::{
    document::experiment_document,
    error::{ConductError, Stopped},
    file::{At, PhaseWork},
    journal::{ExperimentJournal, JournalError, RecordsState},
    run_folder,
    sweep::Stores,
    watcher::{ExperimentStep, Watcher},
};
use serval_group::{
    CommandWire, GroupError, GroupSession, Team,
    program::{self, CommandEnd, CommandOutcome, ShellCommand},
};
use serval_model::properties::Origin;
use serval_plan::{
    Plan, PlanError, fresh_seed,
    perform::{Performed, RunFiles, perform},
    properties as p,
    session::{RunLost, Session},
    timestamp,
};
use serval_report::notes::lines;
use serval_result::{
    experiment::{Curve, ExperimentDocument, ExperimentKind, PhaseEntry, RunEntry, RunKind},
    note::Note,
};
use serval_runner::{AbortCause, Control, EndedBy, Observer};
use serval_workload::core::Phase;
use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Interval at which a pause polls for a stop request.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Environment variables of a phase's program.
const STORE: &str = "SERVAL_STORE";
const TABLE: &str = "SERVAL_TABLE";
const NUMBER: &str = "SERVAL_PHASE";
const NAME: &str = "SERVAL_PHASE_NAME";

/// Name of the folder of an embedded store's files, in the folder of stores.
const STORE_FOLDER: &str = "store";

/// Observers of an experiment of phases.
pub struct LookingOn<'a> {
    /// Receives the events of the experiment.
    pub watcher: &'a mut dyn Watcher,
    /// Receives each load and run that has ended.
    pub each: &'a mut dyn FnMut(&Plan, &Performed),
}

impl Phases {
    /// The same, with this seed if the file has none.
    #[must_use]
    pub fn or_seed(&self, seed: Option<u64>) -> Phases {
        let mut same = self.clone();
        same.file.seed = same.file.seed.or(seed);
        same
    }

    /// The document before the first phase.
    pub fn document(&self, command_line: Vec<String>) -> ExperimentDocument {
        let mut file = self.file.clone();
        let seed = file.seed.unwrap_or_else(fresh_seed);
        file.seed = Some(seed);
        let curve = Curve {
            name: file.store.name.clone(),
            store: file.store.name.clone(),
            binding: self.store.name.to_owned(),
            workload: String::new(),
            at: None,
            saturation: None,
            highest: None,
        };
        ExperimentDocument {
            plan: file.to_toml(),
            seed,
            curves: vec![curve],
            runs_planned: file.phases.len() as u64,
            ..experiment_document(ExperimentKind::Phases, &file.heading, command_line, &self.warnings)
        }
    }

    /// Conducts the remaining phases, in the journal's folder, with the clients of `team` if the file has a group.
    ///
    /// # Errors
    ///
    /// The failure of a phase. Earlier phases are in the journal's folder, and the experiment can be resumed.
    pub fn conduct(
        &self,
        mut journal: ExperimentJournal,
        stores: &dyn Stores,
        team: Option<&Team>,
        control: &Control,
        looking_on: LookingOn<'_>,
        keep_stores: bool,
    ) -> Result<(ExperimentJournal, Stopped), ConductError> {
        self.refuse()?;
        let done = journal.document.phases.iter().filter(|phase| phase.incomplete.is_none()).count();
        if done > 0 && self.in_process() {
            let path = journal.path().join(serval_report::stored::EXPERIMENT);
            let problem =
                format!("{} keeps records in memory, and they ended with their process", self.store.name);
            return Err(JournalError::State { path, problem }.into());
        }
        journal.forget_incomplete()?;
        let mut conductor = PhaseConductor {
            phases: self,
            // If another process began the experiment, the time axis continues by the wall clock.
            before: journal.document.phases.first().map_or(Duration::ZERO, |first| since(&first.started)),
            begun: Instant::now(),
            journal,
            stores,
            team,
            control,
            watcher: looking_on.watcher,
            each: looking_on.each,
            session: None,
        };
        conductor.watcher.experiment(&conductor.journal.document);
        for nth in done..self.file.phases.len() {
            match conductor.phase(nth) {
                Err(ConductError::Interrupted) => {
                    conductor.journal.write()?;
                    return Ok((conductor.journal, Stopped::Interrupted));
                }
                outcome => outcome?,
            }
        }
        let PhaseConductor { mut journal, session, watcher, .. } = conductor;
        // The store must close its files before they are removed.
        drop(session);
        journal.document.complete = true;
        journal.write()?;
        if !keep_stores {
            journal.remove_stores();
        }
        watcher.experiment(&journal.document);
        Ok((journal, Stopped::Complete))
    }
}

/// Returns the time since an RFC 3339 timestamp; zero if it is invalid or in the future.
fn since(timestamp: &str) -> Duration {
    let then = timestamp.parse::<jiff::Timestamp>().ok().map(SystemTime::from);
    then.and_then(|then| SystemTime::now().duration_since(then).ok()).unwrap_or_default()
}

/// The identity of an open store, and its session.
type StoreInUse = (Vec<(String, String)>, Box<dyn Session>);

struct PhaseConductor<'a> {
    phases: &'a Phases,
    journal: ExperimentJournal,
    stores: &'a dyn Stores,
    team: Option<&'a Team>,
    control: &'a Control,
    watcher: &'a mut dyn Watcher,
    each: &'a mut dyn FnMut(&Plan, &Performed),
    session: Option<StoreInUse>,
    begun: Instant,
    /// Position of `begun` on the time axis.
    before: Duration,
}

fn of_group(error: GroupError) -> ConductError {
    PlanError::Group(error.to_string()).into()
}

impl PhaseConductor<'_> {
    /// Returns the present position on the time axis, s.
    fn now(&self) -> f64 {
        (self.before + self.begun.elapsed()).as_secs_f64()
    }

    fn failed(&self, nth: usize, problem: impl Display) -> ConductError {
        let phase = &self.phases.file.phases[nth];
        ConductError::store(self.phases.store.name, format!("phase '{}': {problem}", phase.name))
    }

    /// Performs a phase and adds it to the document.
    fn phase(&mut self, nth: usize) -> Result<(), ConductError> {
        if self.control.interrupted() {
            return Err(ConductError::Interrupted);
        }
        let phase = &self.phases.file.phases[nth];
        let mut entry = PhaseEntry {
            name: phase.name.clone(),
            kind: phase.work.kind().to_owned(),
            command: phase.work.command().map(str::to_owned),
            clients: phase.clients.clone().unwrap_or_default(),
            started: timestamp(SystemTime::now()),
            start_s: self.now(),
            ..PhaseEntry::default()
        };
        if !phase.work.measures() {
            let count = self.phases.file.phases.len();
            let (_, words) = &self.phases.describe()[nth];
            self.watcher.note(&format!("phase {} of {count}, {}: {words}", nth + 1, phase.name));
        }
        let lost = self.work(nth, &phase.work, &mut entry)?;
        entry.end_s = self.now();
        self.journal.document.phases.push(entry);
        self.journal.write()?;
        self.watcher.experiment(&self.journal.document);
        lost.map_or(Ok(()), |lost| Err(self.failed(nth, lost)))
    }

    /// Performs the work of a phase. Returns the reason if it ended early.
    fn work(
        &mut self,
        nth: usize,
        work: &PhaseWork,
        entry: &mut PhaseEntry,
    ) -> Result<Option<RunLost>, ConductError> {
        match work {
            PhaseWork::Load | PhaseWork::Run => return self.measured(nth, entry),
            PhaseWork::Pause(time) => self.rest(*time)?,
            PhaseWork::Presplit { command, timeout, .. } => {
                let points = self.phases.points(nth)?;
                let input = points.iter().flat_map(|point| [point.as_bytes(), b"\n"]).flatten();
                let command = command.as_deref().unwrap_or_default();
                entry.output = self.program(nth, command, *timeout, input.copied().collect())?;
            }
            PhaseWork::Command { command, at: At::Coordinator, timeout } => {
                entry.output = self.program(nth, command, *timeout, Vec::new())?;
            }
            PhaseWork::Command { command, at: At::Clients, timeout } => {
                self.at_clients(nth, command, *timeout, entry)?;
            }
            PhaseWork::Wait { command, every, timeout } => {
                self.wait(nth, command, *every, *timeout, entry)?;
            }
            // `refuse` rejects these before the first phase.
            PhaseWork::Later(_) => return Err(ConductError::Interrupted),
        }
        Ok(None)
    }

    /// Sleeps for a time. Returns an error if the experiment is interrupted.
    fn rest(&self, span: Duration) -> Result<(), ConductError> {
        if let Some(team) = self.team {
            return match team.rest(span, self.control).map_err(of_group)? {
                true => Ok(()),
                false => Err(ConductError::Interrupted),
            };
        }
        let until = Instant::now() + span;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.control.interrupted() {
                return Err(ConductError::Interrupted);
            }
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(STOP_POLL));
        }
    }

    fn environment(&self, nth: usize) -> Vec<(&'static str, String)> {
        let phase = &self.phases.file.phases[nth];
        let properties = self.phases.properties(nth, None);
        let table = properties.get("table").map_or_else(|| "usertable".to_owned(), |set| set.value.clone());
        vec![
            (STORE, self.phases.store.name.to_owned()),
            (TABLE, table),
            (NUMBER, (nth + 1).to_string()),
            (NAME, phase.name.clone()),
        ]
    }

    fn run(
        &self,
        nth: usize,
        command: &str,
        timeout: Duration,
        input: Vec<u8>,
    ) -> Result<CommandOutcome, ConductError> {
        let environment = self.environment(nth);
        let program = ShellCommand { command, environment: &environment, input, timeout };
        let outcome = program::run(program, &|| self.control.interrupted())
            .map_err(|error| self.failed(nth, format!("'{command}' cannot be started: {error}")))?;
        match outcome.ended {
            CommandEnd::Interrupted => Err(ConductError::Interrupted),
            _ => Ok(outcome),
        }
    }

    /// Runs a program that must succeed. Returns its output.
    fn program(
        &self,
        nth: usize,
        command: &str,
        timeout: Duration,
        input: Vec<u8>,
    ) -> Result<Vec<String>, ConductError> {
        let outcome = self.run(nth, command, timeout, input)?;
        match outcome.failure(timeout) {
            Some(how) => Err(self.failed(nth, format!("'{command}' {how}"))),
            None => Ok(outcome.output),
        }
    }

    fn at_clients(
        &self,
        nth: usize,
        command: &str,
        timeout: Duration,
        entry: &mut PhaseEntry,
    ) -> Result<(), ConductError> {
        let Some(team) = self.team else {
            return Err(self.failed(nth, "there are no clients to run its command"));
        };
        let environment: Vec<(String, String)> =
            self.environment(nth).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let parts = self.phases.parts(nth);
        let outcomes =
            team.command(command, timeout, &environment, &parts, self.control).map_err(of_group)?;
        if self.control.interrupted() {
            return Err(ConductError::Interrupted);
        }
        let ran = |client: usize| outcomes.iter().any(|(other, _)| *other == client);
        for client in (0..parts.len()).filter(|client| parts[*client].is_some() && !ran(*client)) {
            entry.notes.push(Note::CommandNotRun { client: client as u64 + 1 });
        }
        entry.warnings = lines(&entry.notes);
        for (client, CommandWire { failure, output }) in outcomes {
            let name = team.clients().get(client).map(|facts| facts.name()).unwrap_or_default();
            if let Some(how) = failure {
                return Err(self.failed(nth, format!("'{command}' of client {} {name} {how}", client + 1)));
            }
            entry.output.extend(output.into_iter().map(|line| format!("{}: {line}", client + 1)));
        }
        Ok(())
    }

    fn wait(
        &self,
        nth: usize,
        command: &str,
        every: Duration,
        timeout: Duration,
        entry: &mut PhaseEntry,
    ) -> Result<(), ConductError> {
        let begun = Instant::now();
        for attempts in 1.. {
            // The time limit bounds an attempt that hangs, too.
            let left = timeout.saturating_sub(begun.elapsed()).max(STOP_POLL);
            let outcome = self.run(nth, command, left, Vec::new())?;
            let Some(how) = outcome.failure(left) else {
                (entry.attempts, entry.output) = (Some(attempts), outcome.output);
                break;
            };
            if begun.elapsed() + every >= timeout {
                let problem = format!(
                    "the condition did not hold within {timeout:?}: '{command}' {how} ({attempts} attempts)"
                );
                return Err(self.failed(nth, problem));
            }
            self.rest(every)?;
        }
        Ok(())
    }

    /// Makes the plan of a load or run.
    fn plan(&self, nth: usize) -> Result<Plan, ConductError> {
        let mut properties = self.phases.properties(nth, None);
        if let Some(embedded) = self.phases.embedded {
            let folder = self.journal.store_folder(STORE_FOLDER)?;
            embedded.place(&mut properties, &folder, "the experiment's folder");
        }
        if !properties.has(&p::SEED) {
            let seed = self.phases.seed(nth, self.journal.document.seed).to_string();
            properties.set(p::SEED.name, seed, Origin::Program("the experiment"));
        }
        let is_load = self.phases.kind(nth) == Phase::Load;
        if is_load && self.journal.records(&nth.to_string()).running {
            // An interrupted load has inserted some of its records.
            properties.set(p::LOAD_RESUME.name, "true", Origin::Program("the experiment"));
        }
        let mut plan = self.phases.plan_of(nth, properties)?;
        plan.label = self.phases.file.phases[nth].name.clone();
        Ok(plan)
    }

    fn step(&self, nth: usize, plan: &Plan) -> ExperimentStep {
        let is_load = plan.phase == Phase::Load;
        let options = &plan.options;
        let rest = self.phases.file.phases.iter().skip(nth + 1).map(|phase| match &phase.work {
            PhaseWork::Pause(time) => *time,
            _ => Duration::ZERO,
        });
        ExperimentStep {
            curve: 0,
            kind: if is_load { RunKind::Load } else { RunKind::Point },
            what: self.phases.file.phases[nth].name.clone(),
            target: options.rate.as_ref().map(|rate| rate.rate_max()),
            clients: options.clients,
            warm_up_max: options.warm_up_max(),
            time: options.time,
            metrics: plan.workload.metrics(),
            units: plan.workload.units().or(options.units),
            done: nth as u64,
            planned: self.phases.file.phases.len() as u64,
            remaining: options.time.unwrap_or_default() + options.warm_up + rest.sum::<Duration>(),
        }
    }

    fn measured(&mut self, nth: usize, entry: &mut PhaseEntry) -> Result<Option<RunLost>, ConductError> {
        let plan = self.plan(nth)?;
        self.watcher.step(&self.step(nth, &plan));
        let identity = self.phases.identity(&plan.properties);
        if self.session.as_ref().is_none_or(|(known, _)| *known != identity) {
            // The new store may have the same files, so close the old one first.
            self.session = None;
            let session = self.stores.open(self.phases.store, &plan.properties);
            self.session = Some((identity, session?));
        }
        let Some((_, local)) = &self.session else { return Err(ConductError::Interrupted) };
        let parts = |team| GroupSession::with_parts(team, &**local, &plan, self.phases.parts(nth));
        let group = self.team.map(parts);
        let session = group.as_ref().map_or(&**local, |group| group as &dyn Session);
        let key = nth.to_string();
        let running = RecordsState { running: true, ..RecordsState::default() };
        self.journal.set_records(&key, running)?;
        let (folder_name, folder) = self.journal.run_folder(&entry.name)?;
        let files = RunFiles { folder: &folder, prefix: "", raw: false };
        let command_line = self.journal.document.command_line.clone();
        let (begun, before) = (self.begun, self.before);
        let mut noting = StartObserver { watcher: self.watcher, began: None, begun, before };
        let performed = perform(&plan, session, self.control, &mut noting, Some(files), command_line);
        entry.series_start_s = noting.began;
        let performed = match performed {
            Err(_) if self.control.interrupted() => return Err(ConductError::Interrupted),
            performed => performed?,
        };
        if performed.record.ended_by != EndedBy::Interrupted && performed.lost.is_none() {
            (self.each)(&plan, &performed);
        }
        let missing = performed.missing(&plan);
        let Performed { document, record, lost, unwritten, .. } = performed;
        if let Some(error) = unwritten {
            return Err(PlanError::from(error).into());
        }
        if record.ended_by == EndedBy::Interrupted {
            return Err(ConductError::Interrupted);
        }
        let gave_up =
            || RunLost::Run(AbortCause::Workload("all its clients gave up after failures".to_owned()));
        let lost = lost.or_else(|| (record.ended_by == EndedBy::Failed).then(gave_up));
        entry.incomplete = lost.as_ref().map(ToString::to_string);
        entry.notes.extend(missing.map(|missing| Note::LoadIncomplete { missing }));
        run_folder::finish(folder, &plan, &document)?;
        if entry.incomplete.is_none() {
            self.journal.set_records(&key, RecordsState { loaded: true, ..RecordsState::default() })?;
        }
        let overall = &document.overall;
        entry.folder = Some(folder_name);
        (entry.operations, entry.failed) = (Some(overall.operations), Some(overall.failed));
        entry.throughput = Some(overall.throughput);
        let kind = if plan.phase == Phase::Load { RunKind::Load } else { RunKind::Point };
        let run = RunEntry {
            point: nth,
            target: plan.options.rate.as_ref().map(|rate| rate.rate_max()),
            ..RunEntry::of(&document, kind, entry.folder.clone().unwrap_or_default())
        };
        entry.flags = run.flags.clone();
        entry.notes.extend(document.notes.iter().cloned());
        entry.warnings = lines(&entry.notes);
        self.watcher.ended(&run, &document);
        Ok(lost)
    }
}

/// Observer that records the start of a run and passes all events on.
struct StartObserver<'a> {
    watcher: &'a mut dyn Watcher,
    /// Start of the run on the time axis, s.
    began: Option<f64>,
    begun: Instant,
    before: Duration,
}

impl Observer for StartObserver<'_> {
    fn pass_on(&mut self, event: &mut dyn FnMut(&mut dyn Observer)) {
        event(self.watcher);
    }

    fn started(&mut self, at: SystemTime) {
        // A group announces a start in the future; a single process has just started.
        let now = SystemTime::now();
        let axis = (self.before + self.begun.elapsed()).as_secs_f64();
        let later = at.duration_since(now).map_or_else(|e| -e.duration().as_secs_f64(), |d| d.as_secs_f64());
        self.began = Some((axis + later).max(0.0));
        self.watcher.started(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Observer for Heard {
        fn warn(&mut self, warning: &str) {
            self.0.push(warning.to_owned());
        }
        fn connected(&mut self, clients: usize, of: usize) {
            self.0.push(format!("{clients} of {of}"));
        }
    }

    impl Watcher for Heard {}

    #[test]
    fn a_phase_passes_on_the_events_of_its_run() {
        let mut heard = Heard::default();
        let (begun, before) = (Instant::now(), Duration::ZERO);
        let mut start = StartObserver { watcher: &mut heard, began: None, begun, before };
        start.connected(1, 2);
        start.warn("no records");
        assert_eq!(heard.0, ["1 of 2", "no records"]);
    }
}
