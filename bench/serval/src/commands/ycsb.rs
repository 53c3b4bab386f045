//! `serval load` and `serval run`: YCSB's commands with YCSB's output.

use super::{
    agent, command_line, export, java_flags, phases, resolved, run_properties, tell_warnings,
    ycsb_client::{YcsbClient, tell_ends, tell_lines},
};
use crate::{
    args::{LoadArgs, YcsbArgs},
    failure::{Exit, Failure},
    interrupt,
    live::{Both, Live},
    render::files,
    show::Show,
    stdout,
};
use serval_experiment::file::asks_for_phases;
use serval_group::conducted;
use serval_measure::recorder::Pair;
use serval_model::{Metric, Status as Ended, properties::Origin};
use serval_plan::{
    Plan, PlanError, PlanRequest,
    folder::{FolderError, ResultFolder},
    perform::{Performed, RunFiles, perform},
    properties as p,
    properties_file::effective_properties,
    session::open,
};
use serval_report::ycsb::{Metrics, StatusLine, client_lines, terms};
use serval_result::note::Note;
use serval_runner::{Control, EndedBy, Interval, Observer, Progress, RunError};
use serval_workload::core::Phase;
use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, SystemTime},
};

/// `serval load STORE`.
pub(crate) fn load(args: &LoadArgs) -> Result<ExitCode, Failure> {
    execute(&args.ycsb, Phase::Load, args.resume)
}

/// `serval run STORE`.
pub(crate) fn run(args: &YcsbArgs) -> Result<ExitCode, Failure> {
    execute(args, Phase::Run, false)
}

fn execute(args: &YcsbArgs, phase: Phase, resume: bool) -> Result<ExitCode, Failure> {
    let mut properties = run_properties(&args.properties)?;
    if asks_for_phases(&properties) {
        agent::group_properties(&args.group, &mut properties);
        let info = resolved(&args.store, &mut properties.clone())?;
        java_flags(info, &args.java, &mut properties);
        let kind = if phase == Phase::Load { "load" } else { "run" };
        return phases::of_command(args, &properties, kind, resume);
    }
    let info = resolved(&args.store, &mut properties)?;
    java_flags(info, &args.java, &mut properties);
    agent::group_properties(&args.group, &mut properties);
    if args.status {
        properties.set(p::STATUS.name, "true", Origin::CommandLine("-s".into()));
    }
    if resume {
        properties.set(p::LOAD_RESUME.name, "true", Origin::CommandLine("--resume".into()));
    }
    let plan = Plan::new(PlanRequest { properties, phase, store: info, strict: false })?;
    run_plan(args, plan)
}

/// Runs a plan. Standard error and output have what YCSB's client would print, and warnings of what
/// was asked for; the rest of Serval's own words is for people, and for those who ask (`--notes`).
fn run_plan(args: &YcsbArgs, mut plan: Plan) -> Result<ExitCode, Failure> {
    let notes = args.notes || std::io::IsTerminal::is_terminal(&std::io::stderr());
    export::check(&plan)?;
    let mut live = Live::of_runs(&args.live)?;
    live.plan(&plan);
    let folder = args.result.as_deref().map(ResultFolder::begin).transpose()?;
    // After all that the arguments can be refused for: one of them may have a password.
    let client = YcsbClient::new(args, &plan);
    client.loading()?;
    tell_warnings(&plan.warnings);
    let local = open(plan.store.name, &client.properties)?;
    if plan.resume && plan.phase == Phase::Load {
        tell!("looking at every record, and loading those that are missing");
    }
    let (control, unfinished) = interrupt::control();
    unfinished.set(folder.as_ref().map(|folder| folder.partial_path().to_owned()));
    let team = agent::gather(&plan, args.raw, &control)?;
    let processes = team.as_ref().map_or(1, |team| team.clients().len());
    client.limit_threads(&mut plan, processes)?;
    let instead = conducted(&*local, &plan, team.as_ref(), agent::say)?;
    let session = instead.as_deref().unwrap_or(&*local);
    if notes {
        tell!("Serval {} {}", env!("CARGO_PKG_VERSION"), plan.describe(processes));
    }
    let mut show = StatusLines::new(&plan, args.live.plain);
    let growing = folder.as_ref().map(|folder| RunFiles { folder, prefix: "", raw: args.raw });
    let performed =
        perform(&plan, session, &control, &mut Both(&mut show, &mut live), growing, command_line());
    drop(live);
    show.bar.finish();
    let performed = performed.map_err(|error| interrupted_or(error, &control))?;
    show.last_lines(&performed);
    drop(instead);
    drop(local);
    let ended = exit_code(&plan, &performed);
    let well = ended == ExitCode::SUCCESS && performed.unwritten.is_none() && performed.record.lost.is_none();
    if notes || !well {
        show.warn_of(&performed);
    }
    let exported = export::export(&plan, &performed);
    let kept = match (folder, &performed.unwritten) {
        (None, _) => Ok(()),
        // A folder is whole or not there.
        (Some(_), Some(FolderError::System { .. })) => Ok(()),
        (Some(folder), _) => keep(folder, &plan, &performed),
    };
    unfinished.set(None);
    if notes || !well {
        tell_missing(&plan, &performed);
    }
    // What could not be written is said after all numbers are out.
    if let Some(error) = performed.unwritten {
        return Err(error.into());
    }
    exported.and(kept)?;
    if let Some(error) = performed.lost {
        return Err(error.into());
    }
    Ok(ended)
}

/// Tells how many records a load has left out, and what to do.
fn tell_missing(plan: &Plan, performed: &Performed) {
    if let Some(missing) = performed.missing(plan) {
        // What ends with the process cannot be gone on with.
        let advice = match plan.store.name {
            "memory" | "noop" | "basic" => "",
            _ => "; the same command with --resume inserts those that the store does not have",
        };
        tell!("{}{advice}", serval_report::notes::line(&Note::LoadIncomplete { missing }));
    }
}

/// Writes the files of a result folder and gives it its name.
fn keep(folder: ResultFolder, plan: &Plan, performed: &Performed) -> Result<(), Failure> {
    for (name, contents) in files(&performed.document)? {
        folder.write(&name, &contents)?;
    }
    let properties = format!("{}.properties", plan.phase_name());
    folder.write(&properties, effective_properties(plan).as_bytes())?;
    let path = folder.finish()?;
    tell!("result: {}", path.display());
    Ok(())
}

/// An error after a signal is the signal's: a system call was interrupted.
pub(crate) fn interrupted_or(error: PlanError, control: &Control) -> Failure {
    match error {
        PlanError::Store(_) | PlanError::Run(_) | PlanError::Group(_) if control.interrupted() => {
            RunError::Interrupted.into()
        }
        error => error.into(),
    }
}

/// The exit status of a phase that has ended.
pub(crate) fn exit_code(plan: &Plan, performed: &Performed) -> ExitCode {
    let overall = &performed.document.overall;
    // What got no answer has not succeeded.
    let unanswered = performed.document.censored.in_flight;
    let done = (overall.operations + unanswered).max(1) as f64;
    let failed = (performed.document.failed() + unanswered) as f64;
    let unfinished_load =
        plan.phase == Phase::Load && plan.workload.units().is_some_and(|units| overall.operations < units);
    if performed.record.ended_by == EndedBy::Interrupted && plan.is_bounded() {
        return Exit::Interrupted.into();
    }
    // What a client learns at its end is printed there: writes that a buffer held
    // and that were not done. How many, only the message says.
    let mut ends = performed.record.totals.measured.keys();
    let unclean = ends.any(|(metric, status)| *metric == Metric::CLEANUP && !status.is_ok());
    let too_many = failed / done > plan.failures_allowed || (unclean && plan.failures_allowed < 1.0);
    // A workload that stops by itself may have nothing to do.
    let nothing = overall.operations == 0 && performed.record.ended_by != EndedBy::Stopped;
    if too_many || unfinished_load || nothing {
        return Exit::OperationsFailed.into();
    }
    ExitCode::SUCCESS
}

/// YCSB's status lines with `-s`, a bar on a terminal without it.
struct StatusLines<'a> {
    plan: &'a Plan,
    bar: Show,
    every: Option<Duration>,
    next: Duration,
    /// Times and operations since the last line.
    since: Metrics,
    seen: BTreeSet<(Metric, Ended)>,
    before: (Duration, u64),
    now: Progress,
    units: Option<u64>,
    /// Warnings that were printed before the run began.
    warned: Vec<String>,
}

impl<'a> StatusLines<'a> {
    fn new(plan: &'a Plan, plain: bool) -> Self {
        let for_people = plain || std::io::IsTerminal::is_terminal(&std::io::stderr());
        StatusLines {
            plan,
            bar: Show::new(plan, plan.status.is_some() || !for_people, plain),
            every: plan.status,
            next: Duration::ZERO,
            since: Metrics::new(),
            seen: BTreeSet::new(),
            before: (Duration::ZERO, 0),
            now: Progress { elapsed: Duration::ZERO, warming_up: false, units: 0, failed: 0 },
            units: plan.workload.units().or(plan.options.units),
            warned: Vec::new(),
        }
    }

    fn line(&mut self) {
        let custom = self.plan.workload.metrics();
        let custom: Vec<&str> = custom.iter().map(String::as_str).collect();
        let (since, before) = self.before;
        let seconds = (self.now.elapsed.saturating_sub(since)).as_secs_f64();
        let seen: Vec<_> = self.seen.iter().copied().collect();
        let line = StatusLine {
            options: self.plan.output.ycsb(&custom, self.plan.options.rate.is_some()),
            label: &self.plan.label,
            now: &jiff::Zoned::now(),
            elapsed: self.now.elapsed,
            operations: self.now.units,
            current_rate: if seconds > 0.0 {
                self.now.units.saturating_sub(before) as f64 / seconds
            } else {
                0.0
            },
            todo: self.units.map_or(0, |units| units.saturating_sub(self.now.units)),
            seen: &seen,
            interval: &self.since,
        }
        .line();
        tell!("{line}");
        if self.plan.output.measurement_type == "timeseries" {
            // As YCSB: its older status goes to standard output as well.
            let _ = stdout(format!("{line}\n").as_bytes());
        }
        self.before = (self.now.elapsed, self.now.units);
        self.since.clear();
    }

    fn last_lines(&mut self, performed: &Performed) {
        tell_ends(self.plan, performed);
        if self.every.is_some() {
            self.now.units = performed.record.totals.units;
            self.line();
        }
    }

    /// Prints the warnings of a result that have not been printed.
    fn warn_of(&self, performed: &Performed) {
        for warning in performed.document.warnings.iter().filter(|text| !self.warned.contains(text)) {
            tell!("warning: {warning}");
        }
    }
}

impl Observer for StatusLines<'_> {
    fn connected(&mut self, clients: usize, of: usize) {
        self.bar.connected(clients, of);
    }

    fn warn(&mut self, warning: &str) {
        tell!("warning: {warning}");
        self.warned.push(warning.to_owned());
    }

    fn started(&mut self, _: SystemTime) {
        let options = self.plan.output.ycsb(&[], self.plan.options.rate.is_some());
        tell_lines(&client_lines::starting(&options, self.plan.options.time));
    }

    fn progress(&mut self, progress: &Progress) {
        self.now = *progress;
        self.bar.progress(progress);
        if let Some(every) = self.every
            && progress.elapsed >= self.next
        {
            self.line();
            self.next += every;
        }
    }

    fn interval(&mut self, interval: &Interval) {
        for (key, pair) in terms::metrics(&interval.pairs) {
            self.seen.insert(key);
            let sum: &mut Pair = self.since.entry(key).or_default();
            sum.merge(&pair);
        }
        self.bar.interval(interval);
    }
}
