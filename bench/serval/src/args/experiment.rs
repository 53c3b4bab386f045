//! The arguments of `sweep`, `max` and `experiment`.

use super::PropertyArgs;
use crate::live::LiveArgs;
use clap::{Args, Subcommand, ValueHint, value_parser};
use serval_experiment::file::REPEATS_MAX;
use serval_model::share::SHARES_MAX;
use std::path::PathBuf;

/// Settings of every run of an experiment.
#[derive(Debug, Args)]
pub(crate) struct RunSettingArgs {
    /// Number of clients of all processes together, or auto to saturate the store [default: auto]
    #[arg(long, value_name = "N", alias = "threads")]
    pub(crate) clients: Option<String>,
    /// Measured time of each run [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Number of runs per point [default: 3]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=REPEATS_MAX))]
    pub(crate) repeats: Option<u64>,
    /// Shortest warm-up of each run [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub(crate) warm_up: Option<String>,
    /// Longest warm-up, which ends when the run is steady; 0: exactly --warm-up [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) warm_up_max: Option<String>,
    /// Spacing of intended starts: poisson, uniform or client [default: poisson]
    #[arg(long, value_name = "KIND")]
    pub(crate) arrivals: Option<String>,
    /// State of the records before each run: continue, reload or snapshot [default: continue]
    #[arg(long, value_name = "POLICY")]
    pub(crate) state: Option<String>,
    /// Order of points: shuffled or rising [default: shuffled]
    #[arg(long, value_name = "ORDER")]
    pub(crate) order: Option<String>,
    /// Seed that determines the seeds of all runs [default: random]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(0..1 << 53))]
    pub(crate) seed: Option<u64>,
    /// Skip the load: the records exist
    #[arg(long)]
    pub(crate) skip_load: bool,
    /// Number of processes (agents) that take part and divide the work (coordination.clients)
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=SHARES_MAX))]
    pub(crate) agents: Option<u64>,
    /// ZooKeeper server through which the agents find each other (coordination.zookeeper)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) coordination: Option<String>,
}

/// Result of an experiment.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Result folder; must not exist, except with --resume [default: results/TIME-NAME-experiment]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Continue the interrupted experiment in the result folder
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print the plan and its estimated duration, without running it
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) outcome: OutcomeArgs,
}

/// What is shown and kept of an experiment.
#[derive(Debug, Args)]
pub(crate) struct OutcomeArgs {
    /// Keep embedded stores' records in the result folder
    #[arg(long)]
    pub(crate) keep_stores: bool,
    /// Print the experiment's document on standard output instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

/// Arguments that `serval sweep` and `serval max` share.
#[derive(Debug, Args)]
pub(crate) struct SeriesArgs {
    /// Workload files or scripts (file.lua); each workload and store is a curve
    #[arg(value_name = "WORKLOAD", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) workloads: Vec<PathBuf>,
    /// Store; may be repeated [default: yesquel]
    #[arg(long = "store", value_name = "STORE")]
    pub(crate) stores: Vec<String>,
    /// Store process whose cost is measured: its id, or part of its command line; may be repeated
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
    /// Number of points, or a list of loads such as 25%,50%,20000,max [default: 8]
    #[arg(long, value_name = "POINTS")]
    pub(crate) points: Option<String>,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
}

/// `serval max`.
#[derive(Debug, Args)]
pub(crate) struct MaxArgs {
    /// SLO, such as "read.p99 < 10ms" or "update.service.mean < 2ms and failed < 0.1%"
    #[arg(long, value_name = "SLO", required = true)]
    pub(crate) slo: String,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
}

/// `serval experiment`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    /// Print the plan of an experiment file, with its estimated duration and disk space
    Show(ShowArgs),
    /// Run an experiment file
    Run(Box<ExperimentRunArgs>),
    /// Continue an interrupted experiment
    Resume(ResumeArgs),
}

/// `serval experiment show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Experiment file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Divisor of an experiment of phases: its records, operations, key ranges, runs and pauses
    #[arg(long, value_name = "N")]
    pub(crate) scale: Option<f64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serval experiment run`.
#[derive(Debug, Args)]
pub(crate) struct ExperimentRunArgs {
    /// Experiment file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Store that replaces those of the file: a name in the file or of 'serval stores'; may be
    /// repeated
    #[arg(long = "store", value_name = "STORE")]
    pub(crate) stores: Vec<String>,
    /// Divisor of an experiment of phases: its records, operations, key ranges, runs and pauses
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
    #[command(flatten)]
    pub(crate) outcome: OutcomeArgs,
}
