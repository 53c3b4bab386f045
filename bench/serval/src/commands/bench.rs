//! `serval bench`: one command from nothing to a result.

use super::{
    agent, command_line, resolved, run_properties, set_flags, tell_debug_build, tell_warnings,
    ycsb::{exit_code, interrupted_or},
};
use crate::{
    args::BenchArgs,
    failure::{Exit, Failure},
    interrupt,
    live::{Both, Live},
    render,
    show::Show,
    stdout,
};
use serval_experiment::bench::{Bench, BenchRequest};
use serval_model::properties::{Faults, Origin, Properties};
use serval_plan::properties as p;
use serval_runner::EndedBy;
use serval_scripts::is_script;
use serval_workload::core::properties as core;
use std::{io::IsTerminal, process::ExitCode};

fn request(args: &BenchArgs) -> Result<BenchRequest, Failure> {
    let mut faults = Faults::default();
    // The workload file comes before other files, so that these win.
    let mut all = Properties::new();
    if is_script(&args.workload.to_string_lossy()) {
        let origin = Origin::CommandLine("WORKLOAD".into());
        all.set(p::WORKLOAD.name, args.workload.to_string_lossy(), origin);
    } else {
        faults.take(all.load_file(&args.workload));
    }
    let over = faults.take(run_properties(&args.properties)).unwrap_or_default();
    for (name, setting) in over.iter() {
        all.set(name, &setting.value, setting.origin.clone());
    }
    faults.or(())?;
    let info = resolved(&args.store, &mut all)?;
    let flags = [
        (&p::MAX_EXECUTION_TIME, &args.time, "--time"),
        (&p::WARM_UP, &args.warm_up, "--warm-up"),
        (&core::RECORD_COUNT, &args.records, "--records"),
        (&p::OPERATION_COUNT, &args.operations, "--operations"),
    ];
    set_flags(&mut all, &flags);
    agent::group_properties(&args.group, &mut all);
    let name = args.workload.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(BenchRequest {
        properties: all,
        store: info,
        out: args.out.clone(),
        keep_store: args.keep_store,
        skip_load: args.skip_load,
        raw: args.raw,
        command_line: command_line(),
        name,
    })
}

fn interrupted(bench: &Bench) -> Failure {
    let message = format!("interrupted while loading: there is nothing to report, and {}", left(bench));
    Failure::new(Exit::Interrupted, message)
}

/// What becomes of records whose load did not end well.
fn left(bench: &Bench) -> &'static str {
    if bench.leaves_records() {
        "the store keeps the records that were loaded: 'serval load' with --resume loads the rest, and --skip-load then \
         measures them"
    } else {
        "nothing was left behind"
    }
}

/// `serval bench WORKLOAD`.
pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let mut bench = Bench::new(request(args)?)?;
    tell_warnings(&bench.run.warnings);
    tell_debug_build();
    let mut live = Live::of_runs(&args.live)?;
    let (control, unfinished) = interrupt::control();
    unfinished.set(Some(bench.folder.partial_path().to_owned()));
    let team = agent::gather(&bench.run, args.raw, &control)?;
    let processes = team.as_ref().map_or(1, |team| team.clients().len());
    let shown = bench.load.as_ref().map(|plan| {
        tell!("{}", plan.describe(processes));
        live.plan(plan);
        Show::new(plan, false, args.live.plain)
    });
    let loaded = match shown {
        None => None,
        Some(mut show) => {
            let loaded = bench.load(team.as_ref(), agent::say, &control, &mut Both(&mut show, &mut live));
            show.finish();
            let mut loaded = match loaded {
                Err(_) if control.interrupted() => return Err(interrupted(&bench)),
                loaded => loaded?,
            };
            if let Some(loaded) = &mut loaded {
                let overall = &loaded.document.overall;
                if loaded.record.ended_by == EndedBy::Interrupted {
                    return Err(interrupted(&bench));
                }
                tell!(
                    "loaded {} in {:.1} s, {}/s",
                    serval_report::units::plural(overall.operations - overall.failed, "record"),
                    overall.duration_s,
                    serval_report::units::count(overall.throughput as u64)
                );
                if let Some(error) = loaded.unwritten.take() {
                    return Err(error.into());
                }
                if let Some(error) = &loaded.lost {
                    return Err(error.clone().into());
                }
                if let Some(failure) = loaded.load_failure() {
                    let message = format!("{failure}. Nothing was measured, and {}", left(&bench));
                    return Err(Failure::new(Exit::OperationsFailed, message));
                }
            }
            loaded
        }
    };
    tell!("{}", bench.run.describe(processes));
    live.plan(&bench.run);
    let mut show = Show::new(&bench.run, false, args.live.plain);
    let performed = bench.run(team.as_ref(), agent::say, &control, &mut Both(&mut show, &mut live));
    drop(live);
    show.finish();
    let performed = performed.map_err(|error| interrupted_or(error, &control))?;
    let code = exit_code(&bench.run, &performed);
    let text = if args.json {
        render::json(&performed.document)?
    } else {
        render::summary(&performed.document, std::io::stdout().is_terminal())
    };
    let shown = stdout(&text);
    if let Some(error) = performed.unwritten {
        return Err(error.into());
    }
    let made = render::files(&performed.document)?;
    let made_load = loaded.as_ref().map(|loaded| render::json(&loaded.document)).transpose()?;
    let path = bench.finish(made_load, made)?;
    unfinished.set(None);
    tell!("result: {}", path.display());
    shown?;
    if let Some(error) = performed.lost {
        return Err(error.into());
    }
    Ok(code)
}
