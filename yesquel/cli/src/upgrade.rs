//! `yesquel upgrade`: converts a data folder of an older release.

use crate::{failure::CliError, interrupt::Interrupt, progress::CopyProgress, show};
use clap::Args;
use serde_json::{Value, json};
use std::{
    io::Write,
    ops::ControlFlow,
    path::PathBuf,
    time::{Duration, Instant},
};
use yesquel::UpgradeOutcome;

const ABOUT: &str = "The folder must not be in use. The command may be interrupted at any moment, also by a power \
    failure: run it again, and it continues. It needs as much free space as the databases have bytes, and as much memory \
    as a server of the folder. Older releases cannot open the folder afterwards.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct UpgradeArguments {
    /// Data folder of a server, or of an embedded store
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(arguments: &UpgradeArguments) -> Result<(), CliError> {
    let UpgradeArguments { data, json, quiet } = arguments;
    if !data.is_dir() {
        return Err(CliError::Absent(format!("{}: there is no such folder", data.display())));
    }
    let (interrupt, began) = (Interrupt::listen(), Instant::now());
    let progress = CopyProgress::new("upgrade", *quiet || *json);
    let upgraded = yesquel::upgrade(data, &mut |done, all| {
        progress.at(done, all);
        if interrupt.is_pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.end();
    let outcome = upgraded?;
    let mut out = anstream::stdout();
    if *json {
        let mut summary = summary(outcome, began.elapsed());
        summary["folder"] = data.display().to_string().into();
        writeln!(out, "{summary}")?;
    } else if !quiet {
        writeln!(out, "{}: {}", data.display(), text(outcome, began.elapsed()))?;
    }
    Ok(())
}

fn summary(outcome: UpgradeOutcome, time: Duration) -> Value {
    match outcome {
        UpgradeOutcome::Empty => json!({ "upgraded": false, "deleted_files": 0 }),
        UpgradeOutcome::Current { deleted } => json!({ "upgraded": false, "deleted_files": deleted }),
        UpgradeOutcome::Upgraded { cluster, group, records, nodes, bytes } => json!({
            "upgraded": true, "cluster": cluster.to_string(), "group": group.0, "records": records, "nodes": nodes,
            "bytes": bytes, "seconds": (time.as_secs_f64() * 1e3).round() / 1e3 }),
    }
}

fn text(outcome: UpgradeOutcome, time: Duration) -> String {
    match outcome {
        UpgradeOutcome::Empty => "nothing to do: the folder is empty".to_owned(),
        UpgradeOutcome::Current { deleted: 0 } => "nothing to do: the folder has format 2".to_owned(),
        UpgradeOutcome::Current { deleted } => {
            format!(
                "deleted {} that an interrupted upgrade had left",
                show::things(deleted, "old file", "old files")
            )
        }
        UpgradeOutcome::Upgraded { cluster, group, records, nodes, bytes } => format!(
            "upgraded to format 2 in {}: group {} of cluster {cluster}, {} and {} in a checkpoint of {}",
            show::duration(time.as_millis().try_into().unwrap_or(u64::MAX)),
            group.0,
            show::things(nodes, "node", "nodes"),
            show::things(records, "log record", "log records"),
            show::bytes(bytes)
        ),
    }
}
