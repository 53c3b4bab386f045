//! The arguments of `sweep`, `max` and `experiment`.

use super::PropertyArgs;
use crate::live::LiveArgs;
use clap::{Args, Subcommand, ValueHint, value_parser};
use serval_experiment::file::REPEATS_MAX;
use serval_model::share::SHARES_MAX;
use std::path::PathBuf;

/// How every run of an experiment is made.
#[derive(Debug, Args)]
pub(crate) struct RunSettingArgs {
    /// Clients, or auto for as many as saturate the store [default: auto]
    #[arg(long, value_name = "N", alias = "threads")]
    pub(crate) clients: Option<String>,
    /// Measured time of each run [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Runs of each point [default: 3]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=REPEATS_MAX))]
    pub(crate) repeats: Option<u64>,
    /// Warm-up of each run, at least [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub(crate) warm_up: Option<String>,
    /// Warm-up at most, until steady; 0: exactly --warm-up [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) warm_up_max: Option<String>,
    /// Spacing of intended starts: poisson, uniform or client [default: poisson]
    #[arg(long, value_name = "KIND")]
    pub(crate) arrivals: Option<String>,
    /// The records between runs: continue, reload or snapshot [default: continue]
    #[arg(long, value_name = "POLICY")]
    pub(crate) state: Option<String>,
    /// Order of points: shuffled or rising [default: shuffled]
    #[arg(long, value_name = "ORDER")]
    pub(crate) order: Option<String>,
    /// Seed that those of all runs come from [default: drawn]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(0..1 << 53))]
    pub(crate) seed: Option<u64>,
    /// Do not load: the records are there
    #[arg(long)]
    pub(crate) skip_load: bool,
    /// Client processes that divide the work of each run: agents (coordination.clients)
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=SHARES_MAX))]
    pub(crate) agents: Option<u64>,
    /// ZooKeeper by which they find each other (coordination.zookeeper)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) coordination: Option<String>,
}

/// Where an experiment's result goes.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Result folder; must not exist, or with --resume must [default: results/TIME-NAME-experiment]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the interrupted experiment in the result folder
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print the plan and what to expect, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep embedded stores' records in the result folder
    #[arg(long)]
    pub(crate) keep_stores: bool,
    /// Print the experiment's document on standard output instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

/// What `serval sweep` and `serval max` share.
#[derive(Debug, Args)]
pub(crate) struct SeriesArgs {
    /// Workload files, or scripts (file.lua); a curve a workload and store
    #[arg(value_name = "WORKLOAD", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) workloads: Vec<PathBuf>,
    /// Store; repeat it for several side by side [default: yesquel]
    #[arg(long = "store", value_name = "STORE")]
    pub(crate) stores: Vec<String>,
    /// Process of the store whose costs are wanted: its id, or a part of its command line
    #[arg(long, value_name = "PROCESS")]
    pub(crate) watch: Vec<String>,
    #[command(flatten)]
    pub(crate) run: RunSettingArgs,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) properties: PropertyArgs,
}

/// `serval sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Points: how many, or a list of loads: 25%,50%,20000,max [default: 8]
    #[arg(long, value_name = "POINTS")]
    pub(crate) points: Option<String>,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
}

/// `serval max`.
#[derive(Debug, Args)]
pub(crate) struct MaxArgs {
    /// The promise: "read.p99 < 10ms", "update.service.mean < 2ms and failed < 0.1%"
    #[arg(long, value_name = "PROMISE", required = true)]
    pub(crate) slo: String,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
}

/// `serval experiment`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    /// Print the plan of an experiment file, how long it takes and how much it writes
    Show(ShowArgs),
    /// Run an experiment file
    Run(Box<ExperimentRunArgs>),
    /// Go on with an interrupted experiment
    Resume(ResumeArgs),
}

/// `serval experiment show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Experiment file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Of phases: so many times fewer records and operations, shorter key ranges, runs and pauses
    #[arg(long, value_name = "N")]
    pub(crate) scale: Option<f64>,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serval experiment run`.
#[derive(Debug, Args)]
pub(crate) struct ExperimentRunArgs {
    /// Experiment file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Store, instead of those of the file: by its name there, or as 'serval stores' calls it; may be repeated
    #[arg(long = "store", value_name = "STORE")]
    pub(crate) stores: Vec<String>,
    /// Of phases: so many times fewer records and operations, shorter key ranges, runs and pauses
    #[arg(long, value_name = "N")]
    pub(crate) scale: Option<f64>,
    #[command(flatten)]
    pub(crate) run: RunSettingArgs,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) properties: PropertyArgs,
}

/// `serval experiment resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Result folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Keep embedded stores' records in the result folder
    #[arg(long)]
    pub(crate) keep_stores: bool,
    /// Print the experiment's document on standard output instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}
