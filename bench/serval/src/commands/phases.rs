//! Experiments of phases: files with `[[phases]]`, and `phases=N` of `serval load` and
//! `serval run`.

use super::{
    agent, command_line,
    experiments::{
        Shown, failed, from_journal, group, interrupted, journal, override_lines, property_lines, report,
        store_named, tell_resumed,
    },
    export, tell_debug_build, tell_warnings,
};
use crate::{
    args::{ExperimentRunArgs, OutcomeArgs, PlaceArgs, YcsbArgs},
    failure::{Exit, Failure},
    format::span,
    interrupt,
    live::{Live, LiveArgs},
    stdout,
};
use serval_experiment::{
    ExperimentJournal, Stopped,
    bench::default_folder,
    file::{PhasesFile, of_properties},
    phases::{LookingOn, Phases, inlined},
    sweep::RealStores,
};
use serval_group::Team;
use serval_model::properties::{Faults, Properties};
use serval_plan::{Plan, perform::Performed};
use serval_report::units::{count, plural};
use serval_result::{
    experiment::{Flag, PhaseEntry},
    note::Note,
};
use serval_runner::Control;
use std::{fmt::Write as _, process::ExitCode, time::Duration};

/// `serval experiment run FILE` of a file of phases.
pub(super) fn run_file(file: PhasesFile, args: &ExperimentRunArgs) -> Result<ExitCode, Failure> {
    let mut faults = Faults::default();
    // Before: what the command line says is not scaled.
    let mut file = scaled(file, args.scale)?;
    // The command line wins over all that the file says.
    let lists = file.phases.iter_mut().flat_map(|phase| {
        let only = phase.only.iter_mut().map(|only| &mut only.properties);
        std::iter::once(&mut phase.properties).chain(only)
    });
    let lists = lists.chain([&mut file.store.properties]);
    override_lines(property_lines(&args.properties, &mut faults), &mut file.properties, lists);
    match &args.stores[..] {
        [] => {}
        [name] if file.store.name == *name => {}
        [name] => file.store = store_named(name, &[]),
        _ => return Err(Failure::usage("--store: phases are of one store: run the file once for each")),
    }
    let of_sweeps = [
        ("--clients", args.run.clients.is_some()),
        ("--time", args.run.time.is_some()),
        ("--repeats", args.run.repeats.is_some()),
        ("--warm-up", args.run.warm_up.is_some()),
        ("--warm-up-max", args.run.warm_up_max.is_some()),
        ("--arrivals", args.run.arrivals.is_some()),
        ("--state", args.run.state.is_some()),
        ("--order", args.run.order.is_some()),
        ("--skip-load", args.run.skip_load),
    ];
    if let Some((flag, _)) = of_sweeps.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "{flag} is for sweeps: phases have properties of their own, and -p NAME=VALUE sets one for all of them"
        )));
    }
    if let Some(seed) = args.run.seed {
        file.seed = Some(seed);
    }
    group(&args.run, &mut file.group);
    faults.or(())?;
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    carry_out(file, &name, &args.place)
}

/// The file, `--scale` times smaller.
pub(super) fn scaled(file: PhasesFile, scale: Option<f64>) -> Result<PhasesFile, Failure> {
    match scale {
        None => Ok(file),
        Some(by) if by.is_finite() && by >= 1.0 => {
            // What workloads' files say is scaled too.
            let (file, faults) = inlined(file);
            Ok(faults.or(file)?.scaled(by))
        }
        Some(_) => Err(Failure::usage("--scale: must be 1 or more: how many times smaller?")),
    }
}

fn carry_out(file: PhasesFile, name: &str, place: &PlaceArgs) -> Result<ExitCode, Failure> {
    let phases = Phases::new(file)?;
    if place.dry_run {
        return stdout(plan_text(&phases).as_bytes()).map(|()| ExitCode::SUCCESS);
    }
    phases.refuse()?;
    let journal = journal(place, name, |seed| phases.or_seed(seed).document(command_line()))?;
    let args = &place.outcome;
    conduct(&phases, journal, Shown::of(args), args.keep_stores, &args.live)
}

/// `serval experiment resume` of phases.
pub(super) fn resume(
    file: PhasesFile,
    journal: ExperimentJournal,
    args: &OutcomeArgs,
) -> Result<ExitCode, Failure> {
    let phases = Phases::new(file)?;
    conduct(&phases, journal, Shown::of(args), args.keep_stores, &args.live)
}

/// `serval load` and `serval run` with `phases=N`, as in YCSB++: YCSB's output of each phase.
pub(super) fn of_command(
    args: &YcsbArgs,
    properties: &Properties,
    default: &'static str,
    resume: bool,
) -> Result<ExitCode, Failure> {
    if args.raw || resume {
        let flag = if args.raw { "--raw" } else { "--resume" };
        return Err(Failure::usage(format!("{flag} does not go with phases=N")));
    }
    let title = format!("Phases on {}", args.store);
    let file = of_properties(properties, default, &store_named(&args.store, &[]), &title)?;
    let phases = Phases::new(file)?;
    phases.refuse()?;
    let folder = args.result.clone().unwrap_or_else(|| default_folder(&args.store, "phases"));
    let journal = ExperimentJournal::begin(&folder, phases.document(command_line())).map_err(from_journal)?;
    conduct(&phases, journal, Shown::Aside, false, &args.live)
}

fn gather(phases: &Phases, control: &Control) -> Result<Option<Team>, Failure> {
    phases.leading()?.map(|leading| agent::lead(leading, control)).transpose()
}

/// YCSB's output of a phase, after a line that says which it is.
fn ycsb(number: usize, plan: &Plan, performed: &Performed) -> Result<(), Failure> {
    if plan.output.export_file.is_none() {
        stdout(format!("[PHASE], Measured, {number}\n[PHASE], Name, {}\n", plan.label).as_bytes())?;
    }
    export::export(plan, performed)
}

/// Carries phases out. Standard output gets YCSB's output of each phase if the summary is shown [aside](Shown::Aside).
fn conduct(
    phases: &Phases,
    journal: ExperimentJournal,
    shown: Shown,
    keep_stores: bool,
    live: &LiveArgs,
) -> Result<ExitCode, Failure> {
    tell_warnings(&phases.warnings);
    tell_debug_build();
    let folder = journal.path().to_owned();
    let (control, unfinished) = interrupt::control();
    let team = gather(phases, &control)?;
    tell!("{}: {}", phases.file.heading.title, in_short(phases));
    let begun = &journal.document.phases;
    if !begun.is_empty() {
        let done = begun.iter().filter(|phase| phase.incomplete.is_none()).count();
        tell_resumed(done, phases.file.phases.len() as u64, "phase");
    }
    tell!("result: {} (it can be interrupted and resumed)", folder.display());
    let mut live = Live::begin(live, &control, &unfinished)?;
    let (mut number, mut exported) = (0, Ok(()));
    let mut each = |plan: &Plan, performed: &Performed| {
        number += 1;
        if shown == Shown::Aside && exported.is_ok() {
            exported = ycsb(number, plan, performed);
        }
    };
    let looking_on = LookingOn { watcher: &mut live, each: &mut each };
    let outcome = phases.conduct(journal, &RealStores, team.as_ref(), &control, looking_on, keep_stores);
    drop(live);
    drop(team);
    exported?;
    let (journal, stopped) = outcome.map_err(|error| failed(error, &folder, "resumes with this phase"))?;
    if stopped != Stopped::Complete {
        return Err(interrupted(&folder));
    }
    report(&journal, shown)?;
    let bad = |phase: &PhaseEntry| {
        let is_incomplete = |note: &Note| matches!(note, Note::LoadIncomplete { .. });
        phase.flags.contains(&Flag::Failures) || phase.notes.iter().any(is_incomplete)
    };
    Ok(match journal.document.phases.iter().any(bad) {
        true => Exit::OperationsFailed.into(),
        false => ExitCode::SUCCESS,
    })
}

fn in_short(phases: &Phases) -> String {
    let least = phases.least();
    let time = if least > Duration::ZERO { format!(", {} or more", span(least)) } else { String::new() };
    format!("{} on {}{time}", plural(phases.file.phases.len() as u64, "phase"), phases.file.store.name)
}

/// The plan for people.
pub(super) fn plan_text(phases: &Phases) -> String {
    let file = &phases.file;
    let mut text = format!("{}\n", file.heading.title);
    for (label, words) in file.heading.description() {
        let _ = writeln!(text, "  {label}: {words}");
    }
    let _ = writeln!(text, "\nstore\n  {} ({})", file.store.name, phases.store.name);
    if let Ok(Some(leading)) = phases.leading() {
        let clients = count(leading.settings.clients as u64);
        let _ = writeln!(
            text,
            "\ngroup\n  {clients} client processes, found by ZooKeeper at {}",
            leading.cluster
        );
    }
    text.push_str("\nphases\n");
    for (nth, (name, words)) in phases.describe().into_iter().enumerate() {
        let _ = writeln!(text, "  {}. {name}\n     {words}", nth + 1);
    }
    let _ = writeln!(text, "\nexpect\n  {}, loading not counted", in_short(phases));
    if let Err(faults) = phases.refuse() {
        for fault in faults.0 {
            let _ = writeln!(text, "\n! {fault}");
        }
    }
    for warning in &phases.warnings {
        let _ = writeln!(text, "\n! {warning}");
    }
    text
}
