//! Agent: performs the parts of plans that a coordinator sends, and returns the records.

use crate::{
    facts::facts,
    program::{self, ShellCommand},
    wire::{CommandWire, IntervalWire, RecordWire, SamplesWire},
    work::{COMMAND, LOAD, RUN, TIMEOUT},
};
use serval_coordination::{
    agent::{self, AgentEvent, JobHandle, Joining, Quit, Worker},
    directory::DirectoryError,
    message::Work,
};
use serval_model::properties::{Origin, Properties, units::counted};
use serval_plan::{
    Plan, PlanError, PlanRequest,
    perform::{RunFiles, perform},
    session::open,
};
use serval_runner::{Control, Gate, Interval, Observer, Progress, RunError, WarmUpJudge, clock};
use serval_workload::core::Phase;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// ZooKeeper's address.
    pub cluster: String,
    /// The node below which Serval keeps its nodes.
    pub root: String,
    /// Silence after which a coordinator counts as dead.
    pub timeout: std::time::Duration,
    /// Whether the agent ends after one group.
    pub once: bool,
    /// Whether the agent runs programs for a coordinator. Anyone with write access to its ZooKeeper
    /// can then run programs here.
    pub commands: bool,
}

/// Waits for work and performs it, until `quit` is requested. `say` gets messages for the user.
///
/// # Errors
///
/// ZooKeeper's address is not valid, or ZooKeeper refuses to keep Serval's nodes.
pub fn agent(joined: &AgentSettings, quit: &Quit, say: &mut dyn FnMut(&str)) -> Result<(), DirectoryError> {
    let joining = Joining {
        cluster: joined.cluster.clone(),
        root: joined.root.clone(),
        timeout: joined.timeout,
        once: joined.once,
        facts: facts(),
        clock: clock::now,
    };
    agent::serve(&joining, quit, &mut AgentWorker { say, commands: joined.commands })
}

struct AgentWorker<'a> {
    say: &'a mut dyn FnMut(&str),
    commands: bool,
}

impl AgentWorker<'_> {
    /// Runs a program of a phase.
    fn command(&mut self, work: &Work, job: &JobHandle) -> Result<Vec<u8>, String> {
        if !self.commands {
            return Err("it does not run programs for others: start it with --allow-commands".to_owned());
        }
        let command = work.command.clone().unwrap_or_default();
        let timeout = work
            .properties
            .iter()
            .find(|(name, _)| name == TIMEOUT)
            .and_then(|(_, text)| text.parse().ok())
            .map_or(program::TIMEOUT, Duration::from_nanos);
        let variables = work.properties.iter().filter(|(name, _)| name.starts_with("SERVAL_"));
        let environment: Vec<(&str, String)> =
            variables.map(|(name, value)| (name.as_str(), value.clone())).collect();
        let ended = Control::default();
        let ending = ended.clone();
        job.on_end(move |_| ending.interrupt());
        let Some(start) = job.ready() else { return Ok(Vec::new()) };
        // The sleep's error is small against the start of a program.
        std::thread::sleep(Duration::from_nanos(start.saturating_sub(clock::now())));
        job.began(clock::now());
        (self.say)(&format!("command: {command}"));
        let program =
            ShellCommand { command: &command, environment: &environment, input: Vec::new(), timeout };
        let outcome = program::run(program, &|| ended.interrupted())
            .map_err(|error| format!("'{command}' cannot be started: {error}"))?;
        let wire = CommandWire { failure: outcome.failure(timeout), output: outcome.output };
        serde_json::to_vec(&wire).map_err(|error| error.to_string())
    }
}

impl Worker for AgentWorker<'_> {
    fn work(&mut self, work: Work, job: &JobHandle) -> Result<Vec<u8>, String> {
        let phase = match work.kind.as_str() {
            LOAD => Phase::Load,
            RUN => Phase::Run,
            COMMAND => return self.command(&work, job),
            other => return Err(format!("there is no kind of phase '{other}': use one version of Serval")),
        };
        let mut properties = Properties::new();
        for (name, value) in work.properties {
            properties.set(name, value, Origin::Program("sent by the coordinator"));
        }
        let store =
            serval_stores::resolve(&work.store, &mut properties).map_err(|faults| faults.to_string())?;
        let mut plan = Plan::new(PlanRequest { properties, phase, store, strict: false })
            .map_err(|faults| faults.to_string())?;
        (self.say)(&plan.describe(1));
        let session = open(store.name, &plan.properties).map_err(|faults| faults.to_string())?;
        let control = Control::default();
        let gate = job.clone();
        plan.options.gate = Some(Gate::new(move || gate.ready()));
        plan.options.judge = plan.options.steady.is_some().then(|| judge(job));
        let (ending, lag) = (control.clone(), plan.lag.clone());
        job.on_end(move |hurry| {
            // Consumers may finish their keys if time is left.
            if hurry || !lag.as_ref().is_some_and(|lag| lag.close(&ending)) {
                ending.interrupt();
            }
        });
        let mut sending =
            IntervalSender { job, units: (0, 0), writer: plan.lag.as_ref().and_then(|lag| lag.writer()) };
        let none: Option<RunFiles<'_>> = None;
        let performed = match perform(&plan, &*session, &control, &mut sending, none, Vec::new()) {
            Ok(performed) => performed,
            // The run was stopped before it began.
            Err(PlanError::Run(RunError::Interrupted)) => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        if let Some((first, _)) = performed.record.began {
            job.began(first);
        }
        let overall = &performed.document.overall;
        (self.say)(&format!(
            "{}, {} failed, {:.0}/s",
            counted(overall.operations, "operation"),
            overall.failed,
            overall.throughput
        ));
        let mut record = RecordWire::of(&performed.record, performed.lost.as_ref());
        record.load = performed.document.client.clone();
        record.warnings = plan.workload.warnings();
        record.lag = plan.lag.as_ref().map(|lag| lag.notes());
        record.unended =
            plan.core.as_ref().map(|core| core.unended_inserts()).map(|range| (range.start, range.end));
        serde_json::to_vec(&record).map_err(|error| error.to_string())
    }

    fn on_event(&mut self, event: AgentEvent) {
        let text = match event {
            AgentEvent::Waiting => "waiting for work".to_owned(),
            AgentEvent::Joined(client, by) => format!("client {} of a group led by {by}", client + 1),
            AgentEvent::Parted(why) => format!("left the group: {why}"),
            AgentEvent::Trouble(what) => {
                let end = if what.ends_with(['.', '?']) { "" } else { "." };
                format!("{what}{end} Trying again (Ctrl-C ends)")
            }
        };
        (self.say)(&text);
    }
}

/// Samples in a message, so that a message is sent each half second.
const SAMPLES_PER_MESSAGE: usize = 10;

/// Returns a judge that sends samples to the coordinator, which decides when the measured part begins.
fn judge(job: &JobHandle) -> WarmUpJudge {
    let (job, samples) = (job.clone(), Mutex::new(Vec::new()));
    WarmUpJudge::new(move |sample| {
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(sample);
        if samples.len() >= SAMPLES_PER_MESSAGE
            && let Ok(bytes) = serde_json::to_vec(&SamplesWire::of(&std::mem::take(&mut *samples)))
        {
            job.interval(bytes);
        }
        job.measure()
    })
}

/// Sends each interval to the coordinator as it ends.
struct IntervalSender<'a> {
    job: &'a JobHandle,
    units: (u64, u64),
    writer: Option<u64>,
}

impl Observer for IntervalSender<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.units = (progress.units, progress.failed);
    }

    fn interval(&mut self, interval: &Interval) {
        if let Ok(bytes) = serde_json::to_vec(&IntervalWire::of(interval, self.units, self.writer)) {
            self.job.interval(bytes);
        }
    }
}
