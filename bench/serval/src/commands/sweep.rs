//! `serval sweep`, `serval max` and `serval experiment`: many runs, one
//! question.

use super::{
    agent, command_line,
    experiments::{
        Shown, failed, from_journal, group, interrupted, journal, override_lines, property_lines, report,
        resume_with, store_named, tell_resumed,
    },
    phases, tell_debug_build, tell_warnings,
};
use crate::{
    args::{
        ExperimentCommand, ExperimentRunArgs, MaxArgs, OutcomeArgs, PlaceArgs, ResumeArgs, RunSettingArgs,
        SeriesArgs, ShowArgs, SweepArgs,
    },
    failure::{Exit, Failure},
    format::span,
    interrupt,
    live::Live,
    stdout,
};
use serval_experiment::{
    ExperimentJournal, Stopped,
    file::{
        ARRIVALS, AnyFile, CurveObjective, ExperimentFile, Heading, LoadPoint, POINTS, PointOrder,
        RunSettings, StatePolicy, WorkloadEntry, name_of, parse_points, read_any, read_file, value_of,
    },
    phases::Phases,
    promise::Promise,
    sweep::{Estimate, Experiment, RealStores},
};
use serval_model::properties::{Fault, Faults, Origin, units::parse_duration};
use serval_report::units::{bytes, count, plural};
use serval_result::experiment::{ExperimentDocument, Flag, RunKind};
use std::{fmt::Write as _, path::Path, process::ExitCode, time::Duration};

/// `serval sweep WORKLOAD...`.
pub(crate) fn sweep(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let mut faults = Faults::default();
    let points = match &args.points {
        None => LoadPoint::even(POINTS),
        Some(text) => parse_points(text).unwrap_or_else(|problem| {
            faults.0.push(fault("--points", problem));
            Vec::new()
        }),
    };
    series(&args.series, CurveObjective::Sweep(points), faults)
}

/// `serval max WORKLOAD --slo SLO`.
pub(crate) fn max(args: &MaxArgs) -> Result<ExitCode, Failure> {
    let mut faults = Faults::default();
    let question = match Promise::parse(&args.slo) {
        Ok(promise) => CurveObjective::Max(promise),
        Err(problem) => {
            faults.0.push(fault("--slo", problem));
            CurveObjective::Sweep(Vec::new())
        }
    };
    series(&args.series, question, faults)
}

/// `serval experiment ...`.
pub(crate) fn experiment(command: &ExperimentCommand) -> Result<ExitCode, Failure> {
    match command {
        ExperimentCommand::Show(args) => show(args).map(|()| ExitCode::SUCCESS),
        ExperimentCommand::Run(args) => run_file(args),
        ExperimentCommand::Resume(args) => resume(args),
    }
}

fn fault(flag: &str, problem: impl Into<String>) -> Fault {
    Fault { origin: Some(Origin::CommandLine(flag.into())), problem: problem.into() }
}

fn run_file(args: &ExperimentRunArgs) -> Result<ExitCode, Failure> {
    let mut file = match read_file(&args.file)? {
        AnyFile::Phases(file) => return phases::run_file(*file, args),
        AnyFile::Series(file) => *file,
    };
    if args.scale.is_some() {
        return Err(Failure::usage("--scale is for experiments of phases"));
    }
    let mut faults = Faults::default();
    // The command line wins over all that the file says.
    let entries = file.stores.iter_mut().map(|store| &mut store.properties);
    let entries = entries.chain(file.workloads.iter_mut().map(|w| &mut w.properties));
    override_lines(property_lines(&args.properties, &mut faults), &mut file.properties, entries);
    if !args.stores.is_empty() {
        let own = std::mem::take(&mut file.stores);
        file.stores = args
            .stores
            .iter()
            .map(|name| {
                let known = own.iter().find(|store| store.name == *name);
                known.cloned().unwrap_or_else(|| store_named(name, &[]))
            })
            .collect();
        faults.0.extend(twice(&args.stores));
    }
    run_settings(&args.run, &mut file.run, &mut faults);
    group(&args.run, &mut file.group);
    faults.or(())?;
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    carry_out(file, &name, &args.place)
}

fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    let journal = ExperimentJournal::resume(&args.folder, None).map_err(from_journal)?;
    let file = match read_any(&journal.document.plan, &args.folder.join("plan.toml"))? {
        AnyFile::Series(file) => *file,
        AnyFile::Phases(file) => return phases::resume(*file, journal, &args.outcome),
    };
    let experiment = Experiment::new(file)?;
    conduct(&experiment, journal, &args.outcome)
}

/// Fills in what flags say of every run.
fn run_settings(args: &RunSettingArgs, run: &mut RunSettings, faults: &mut Faults) {
    let time = |flag: &str, text: &Option<String>, to: &mut Duration, faults: &mut Faults| {
        let Some(text) = text else { return };
        match parse_duration(text, 1_000_000_000) {
            Ok(ns) => *to = Duration::from_nanos(ns),
            Err(problem) => faults.0.push(fault(flag, format!("'{text}' {problem}"))),
        }
    };
    time("--time", &args.time, &mut run.time, faults);
    time("--warm-up", &args.warm_up, &mut run.warm_up, faults);
    time("--warm-up-max", &args.warm_up_max, &mut run.warm_up_max, faults);
    if let Some(repeats) = args.repeats {
        run.repeats = repeats;
    }
    if let Some(seed) = args.seed {
        run.seed = Some(seed);
    }
    fn choose<T: Copy>(
        flag: &str,
        text: &Option<String>,
        names: &[(&'static str, T)],
        faults: &mut Faults,
    ) -> Option<T> {
        value_of(names, text.as_ref()?).map_err(|problem| faults.0.push(fault(flag, problem))).ok()
    }
    if let Some(arrivals) = choose("--arrivals", &args.arrivals, &ARRIVALS, faults) {
        run.arrivals = arrivals;
    }
    if let Some(state) = choose("--state", &args.state, &StatePolicy::NAMES, faults) {
        run.state = state;
    }
    if let Some(order) = choose("--order", &args.order, &PointOrder::NAMES, faults) {
        run.order = order;
    }
    if args.skip_load {
        run.load = false;
    }
    if let Some(text) = &args.clients {
        match (text.as_str(), text.parse::<u64>()) {
            ("auto", _) => run.clients = None,
            (_, Ok(clients)) if (1..=1_000_000).contains(&clients) => run.clients = Some(clients),
            _ => faults
                .0
                .push(fault("--clients", format!("'{text}' is not 'auto' or a number from 1 to 1,000,000"))),
        }
    }
    if faults.0.is_empty()
        && let Err((key, problem)) = run.check()
    {
        faults.0.push(fault(key, problem));
    }
}

/// Stores that the command line has twice.
fn twice(names: &[String]) -> Vec<Fault> {
    let again = names.iter().enumerate().filter(|(index, store)| names[..*index].contains(store));
    again
        .map(|(_, store)| {
            fault(
                "--store",
                format!("'{store}' twice: for two set-ups of one store write an experiment file"),
            )
        })
        .collect()
}

/// The experiment that a command line asks for.
fn series(args: &SeriesArgs, question: CurveObjective, mut faults: Faults) -> Result<ExitCode, Failure> {
    let lines = property_lines(&args.properties, &mut faults);
    let mut run = RunSettings { time: Duration::from_secs(10), ..RunSettings::default() };
    run_settings(&args.run, &mut run, &mut faults);
    let names: &[String] = if args.stores.is_empty() { &["yesquel".to_owned()] } else { &args.stores };
    let stores = names.iter().map(|name| store_named(name, &args.watch));
    let file_name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let workloads = args.workloads.iter().map(|path| WorkloadEntry {
        name: file_name(path),
        file: Some(path.clone()),
        at: None,
        properties: Vec::new(),
        origin: Some(Origin::CommandLine("WORKLOAD".into())),
    });
    let all: Vec<String> = args.workloads.iter().map(|path| file_name(path)).collect();
    let name = all.join("-");
    let title = match &question {
        CurveObjective::Sweep(_) => format!("{} on {}", all.join(", "), names.join(", ")),
        CurveObjective::Max(promise) => format!("{} on {}: {promise}", all.join(", "), names.join(", ")),
    };
    let mut file = ExperimentFile {
        heading: Heading::titled(title),
        axis: None,
        run,
        question,
        group: None,
        properties: lines,
        stores: stores.collect(),
        workloads: workloads.collect(),
    };
    group(&args.run, &mut file.group);
    faults.0.extend(twice(names));
    faults.or(())?;
    carry_out(file, &name, &args.place)
}

/// Checks, begins or goes on, and carries out.
fn carry_out(file: ExperimentFile, name: &str, place: &PlaceArgs) -> Result<ExitCode, Failure> {
    let experiment = Experiment::new(file)?;
    if place.dry_run {
        return stdout(plan_text(&experiment).as_bytes()).map(|()| ExitCode::SUCCESS);
    }
    let journal = journal(place, name, |seed| experiment.or_seed(seed).document(command_line()))?;
    conduct(&experiment, journal, &place.outcome)
}

fn conduct(
    experiment: &Experiment,
    journal: ExperimentJournal,
    args: &OutcomeArgs,
) -> Result<ExitCode, Failure> {
    tell_warnings(&experiment.warnings);
    tell_debug_build();
    let folder = journal.path().to_owned();
    let (control, unfinished) = interrupt::control();
    tell!("{}: {}", experiment.file.heading.title, in_short(&experiment.estimate()));
    let points = journal.document.runs.iter().filter(|run| run.kind == RunKind::Point).count();
    if !journal.document.runs.is_empty() {
        tell_resumed(points, journal.document.runs_planned, "run");
    }
    tell!("result: {} (it can be interrupted and resumed)", folder.display());
    let mut live = Live::begin(&args.live, &control, &unfinished)?;
    let team = experiment.group.clone().map(|leading| agent::lead(leading, &control)).transpose()?;
    let team = team.as_ref();
    let outcome = experiment.conduct(journal, &RealStores, team, &control, &mut live, args.keep_stores);
    drop(live);
    let (journal, stopped) = outcome.map_err(|error| failed(error, &folder, "resumes it"))?;
    match stopped {
        Stopped::Interrupted => Err(interrupted(&folder)),
        Stopped::CurvesLost => {
            let problems = journal.document.warnings.join("; ");
            Err(Failure::store(format!("{problems}. '{}' tries again", resume_with(&folder))))
        }
        Stopped::Complete => {
            report(&journal, Shown::of(args))?;
            Ok(exit_code(&journal.document))
        }
    }
}

/// Failed operations are failures here as in a single run.
fn exit_code(document: &ExperimentDocument) -> ExitCode {
    if document.runs.iter().any(|entry| entry.flags.contains(&Flag::Failures)) {
        return Exit::OperationsFailed.into();
    }
    ExitCode::SUCCESS
}

fn in_short(estimate: &Estimate) -> String {
    let (least, most) = (span(estimate.least), span(estimate.most));
    let time = if least == most { least } else { format!("{least} to {most}") };
    format!(
        "{} and about {} of searching, {time} without loading",
        plural(estimate.runs, "run"),
        count(estimate.searches)
    )
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let file = match read_file(&args.file)? {
        AnyFile::Series(file) => *file,
        AnyFile::Phases(file) => {
            let phases = Phases::new(phases::scaled(*file, args.scale)?)?;
            if args.json {
                let text = serde_json::json!({
                    "document": phases.document(Vec::new()),
                    "phases": phases.describe(),
                    "estimate": {
                        "runs": phases.file.phases.iter().filter(|phase| phase.work.measures()).count(),
                        "least_s": phases.least().as_secs_f64(),
                    },
                });
                return stdout(format!("{text:#}\n").as_bytes());
            }
            return stdout(phases::plan_text(&phases).as_bytes());
        }
    };
    let experiment = Experiment::new(file)?;
    if args.json {
        let document = experiment.document(Vec::new());
        let estimate = experiment.estimate();
        let text = serde_json::json!({
            "document": document,
            "estimate": {
                "searches": estimate.searches,
                "runs": estimate.runs,
                "least_s": estimate.least.as_secs_f64(),
                "most_s": estimate.most.as_secs_f64(),
                "loads": estimate.loads,
                "records": estimate.records,
                "bytes": estimate.bytes,
                "result_bytes": estimate.result_bytes,
            },
        });
        return stdout(format!("{text:#}\n").as_bytes());
    }
    stdout(plan_text(&experiment).as_bytes())
}

/// The plan for people.
fn plan_text(experiment: &Experiment) -> String {
    let (file, run, estimate) = (&experiment.file, &experiment.file.run, experiment.estimate());
    let mut text = format!("{}\n", file.heading.title);
    for (label, words) in file.heading.description() {
        let _ = writeln!(text, "  {label}: {words}");
    }
    text.push_str("\ncurves\n");
    for curve in &experiment.curves {
        let at = curve.at.map_or(String::new(), |at| format!(", at {at}"));
        let _ = writeln!(text, "  {} ({}{at})", curve.name, curve.info.name);
    }
    match &file.question {
        CurveObjective::Sweep(points) => {
            let points: Vec<String> = points.iter().map(LoadPoint::to_string).collect();
            let shares = points.iter().any(|point| point.ends_with('%'));
            let of = if shares { " (percent of each curve's saturation)" } else { "" };
            let _ = writeln!(text, "\npoints\n  {}{of}", points.join(", "));
        }
        CurveObjective::Max(promise) => {
            let _ = writeln!(text, "\nSLO\n  {promise}");
        }
    }
    let clients = run.clients.map_or("as many as saturate the store".to_owned(), count);
    let clients = match &experiment.group {
        Some(group) => format!("{clients}, divided by {} processes", group.settings.clients),
        None => clients,
    };
    let warm_up = match run.warm_up_max.is_zero() {
        true => span(run.warm_up),
        false => format!("until steady, {} to {}", span(run.warm_up), span(run.warm_up_max)),
    };
    let _ = writeln!(
        text,
        "\neach run\n  clients: {clients}\n  arrivals: {}\n  warm-up: {warm_up}\n  measured: {}, {} of each point, points {}\n  \
         records between runs: {}{}",
        name_of(&ARRIVALS, &run.arrivals),
        span(run.time),
        plural(run.repeats, "run"),
        name_of(&PointOrder::NAMES, &run.order),
        name_of(&StatePolicy::NAMES, &run.state),
        if run.load { "" } else { "; they are there already" },
    );
    let data = match estimate.loads {
        0 => "nothing is loaded".to_owned(),
        loads => format!(
            "{} in {}, about {} of values",
            plural(estimate.records, "record"),
            plural(loads, "load"),
            bytes(estimate.bytes as u64)
        ),
    };
    let _ = writeln!(
        text,
        "\nexpect\n  {}, and about {} of searching\n  {} (every warm-up steady at once) to {} (each cut off), without loading\n  \
         data: {data}\n  results: about {}",
        plural(estimate.runs, "run"),
        count(estimate.searches),
        span(estimate.least),
        span(estimate.most),
        bytes(estimate.result_bytes as u64)
    );
    for warning in &experiment.warnings {
        let _ = writeln!(text, "\n! {warning}");
    }
    text
}
