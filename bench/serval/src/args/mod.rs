//! The command line. YCSB's commands take YCSB's single-dash flags, which are normalized before
//! parsing.

mod experiment;

pub(crate) use experiment::{
    ExperimentCommand, ExperimentRunArgs, MaxArgs, OutcomeArgs, PlaceArgs, ResumeArgs, RunSettingArgs,
    SeriesArgs, ShowArgs, SweepArgs,
};

use crate::live::LiveArgs;
use clap::{Arg, Args, CommandFactory, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use std::{ffi::OsString, path::PathBuf};

const ABOUT: &str = "Serval benchmarks cloud serving stores, as a complete and compatible YCSB client.";

const START: &str = "\
Start here:
  serval bench workloads/workloada         load, warm up, measure, report, with an embedded store
  serval bench workloads/workloada --store redis -p redis.host=10.0.0.5 --threads 32

As with YCSB:
  serval load redis -s -P workloads/workloada -p redis.host=127.0.0.1 -threads 16
  serval run redis -s -P workloads/workloada -p redis.host=127.0.0.1 -threads 16 -target 10000

Compare:
  serval compare before/ after/            differences per metric, with confidence intervals

Reference:
  serval stores, serval workloads, serval properties [NAME]

Exit status: 0 success, 1 operations failed, or compare found a regression, 2 wrong usage or
configuration, 3 the store cannot be used, 4 the result cannot be written, 5 compare has too few
runs, 130 interrupted before the end (0 for a run without a limit).";

/// Serval's command line.
#[derive(Debug, Parser)]
#[command(name = "serval", version, about = ABOUT, after_help = START, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Benchmark a store with a workload file: load, warm up, measure, report
    Bench(BenchArgs),
    /// Load a workload's records into a store, like YCSB's load
    Load(LoadArgs),
    /// Run a workload's operations on a store, like YCSB's run
    Run(YcsbArgs),
    /// Read, write and scan single records interactively, like YCSB's shell
    Shell(ShellArgs),
    /// Measure latency against throughput of one or several stores, up to saturation and beyond
    Sweep(SweepArgs),
    /// Find the highest rate that keeps an SLO such as "read.p99 < 10ms"
    Max(MaxArgs),
    /// Show or run an experiment file, or resume one (docs/experiments.md)
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// List the stores, or explain one
    Stores(NameArgs),
    /// List the workloads, explain one, or print a ready-made file
    Workloads(NameArgs),
    /// List the properties, or explain one
    Properties(NameArgs),
    /// Report one or several stored results and experiments
    Report(ReportArgs),
    /// Compare repeated runs of a baseline and a candidate, metric by metric
    Compare(CompareArgs),
    /// Merge the results of clients that ran at the same time
    Merge(MergeArgs),
    /// Run one agent of a group of client processes, on a load machine (docs/coordination.md)
    Agent(AgentArgs),
    /// Test a driver, or serve a store as one (docs/driver-protocol.md)
    #[command(subcommand)]
    Driver(DriverCommand),
    /// Print the JSON schema of result.json, or of experiment.json
    Schema {
        /// Document whose schema is printed
        #[arg(value_enum, default_value_t = Document::Result)]
        document: Document,
    },
    /// Print the completion script of a shell
    Completions {
        /// Name of the shell
        shell: Shell,
    },
}

/// A document that has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Document {
    /// A run's result.
    Result,
    /// An experiment.
    Experiment,
}

/// Properties, from files and one by one.
#[derive(Debug, Args)]
pub(crate) struct PropertyArgs {
    /// Property file; may be repeated, later files override earlier ones
    #[arg(short = 'P', long = "property-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Property; may be repeated, overrides property files
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub(crate) properties: Vec<String>,
}

/// Properties of a single run; the most frequent ones have YCSB's flags.
#[derive(Debug, Args)]
pub(crate) struct RunPropertyArgs {
    #[command(flatten)]
    pub(crate) named: PropertyArgs,
    /// Number of clients (-threads N, threadcount) [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) threads: Option<String>,
    /// Offered load of all clients together, operations/s (-target N, target) [default: no limit]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) target: Option<String>,
    /// Label of the run in status lines and results
    #[arg(short = 'l', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) label: Option<String>,
    /// Class of a YCSB binding, for store java (java.class)
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub(crate) class: Option<String>,
    /// Class path of a YCSB binding, for store java (java.classpath)
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub(crate) classpath: Option<String>,
}

/// `serval bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Workload file, or script (file.lua)
    #[arg(value_name = "WORKLOAD", value_hint = ValueHint::FilePath)]
    pub(crate) workload: PathBuf,
    /// Store name; 'serval stores' lists all
    #[arg(long, default_value = "yesquel", value_name = "STORE")]
    pub(crate) store: String,
    /// Result folder, which must not exist [default: results/TIME-WORKLOAD-STORE]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Measured time, such as 30s (maxexecutiontime) [default: 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
    /// Warm-up before the measured time (warmup) [default: 3s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) warm_up: Option<String>,
    /// Number of records to load (recordcount)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) records: Option<String>,
    /// Number of operations to measure, instead of --time (operationcount)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) operations: Option<String>,
    /// Skip the load: the records exist
    #[arg(long)]
    pub(crate) skip_load: bool,
    /// Keep the embedded store's records in the result folder
    #[arg(long)]
    pub(crate) keep_store: bool,
    /// Write the time of every operation to raw.csv
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print the result document on standard output instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

/// `serval run`, and most of `load`.
#[derive(Debug, Args)]
pub(crate) struct YcsbArgs {
    /// Store name or YCSB class; 'serval stores' lists all
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
    /// Print status lines on standard error
    #[arg(short = 's')]
    pub(crate) status: bool,
    /// Also write a result folder, which must not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) result: Option<PathBuf>,
    /// Also print Serval's remarks on the run, which YCSB does not print; on a terminal always
    #[arg(long)]
    pub(crate) notes: bool,
    /// Write the time of every operation to raw.csv in the result folder
    #[arg(long, requires = "result")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) java: JavaArgs,
}

/// Several client processes that act as one.
#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// Number of processes (agents) that take part and divide the work (coordination.clients)
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<String>,
    /// ZooKeeper server through which the agents find each other (coordination.zookeeper)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) coordination: Option<String>,
}

/// `serval agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// ZooKeeper servers through which coordinators find the agent, separated by commas
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: String,
    /// ZooKeeper node that holds all state (coordination.root)
    #[arg(long, value_name = "NODE", default_value = "serval")]
    pub(crate) root: String,
    /// Timeout of the ZooKeeper session
    #[arg(long, value_name = "TIME", default_value = "6s")]
    pub(crate) timeout: String,
    /// Exit after one group
    #[arg(long)]
    pub(crate) once: bool,
    /// Run programs for the phases of an experiment; lets anyone with write access to ZooKeeper run
    /// programs here
    #[arg(long)]
    pub(crate) allow_commands: bool,
}

/// `serval load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Continue an interrupted load (load.resume)
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) ycsb: YcsbArgs,
}

/// Flags of YCSB that only concern Java or repeat the command.
#[derive(Debug, Args)]
pub(crate) struct JavaArgs {
    /// Java class path for store java (java.classpath); ignored for other stores
    #[arg(long = "cp", value_name = "PATH", hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) class_path: Option<String>,
    /// Java arguments for store java (java.args); ignored for other stores
    #[arg(long = "jvm-args", value_name = "ARGS", hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) jvm_args: Option<String>,
    /// Class of the binding for store java (java.class); ignored for other stores
    #[arg(long = "db", value_name = "CLASS", hide_short_help = true)]
    pub(crate) db: Option<String>,
    /// YCSB's flag for the load phase; accepted by 'load'
    #[arg(long = "load", hide = true)]
    pub(crate) load: bool,
    /// YCSB's flag for the transaction phase; accepted by 'run'
    #[arg(short = 't', hide = true)]
    pub(crate) transactions: bool,
}

/// `serval shell`.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Store name or YCSB class
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
    /// Initial table (table)
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// Status lines; accepted and ignored
    #[arg(short = 's', hide = true)]
    pub(crate) status: bool,
    #[command(flatten)]
    pub(crate) java: JavaArgs,
}

/// `serval driver`.
#[derive(Debug, Subcommand)]
pub(crate) enum DriverCommand {
    /// Test a program against the driver protocol
    Check(CheckArgs),
    /// Serve a store as a driver on standard input and output
    Serve(ServeArgs),
}

/// `serval driver check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Driver program and its arguments, after --
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<String>,
    /// Property passed to the driver; may be repeated
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE")]
    pub(crate) properties: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serval driver serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Store name
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
}

/// A name to explain.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name; all are listed if omitted
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serval report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders of results or experiments, or their result.json or experiment.json
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) results: Vec<PathBuf>,
    /// File for the HTML report, instead of printing the summary; must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// File for the series of a result or of phases, or for all points, as CSV; must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,
    /// File for the curves of read-after-write lag, as CSV; must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) lag_csv: Option<PathBuf>,
    /// Folder for all plots, as SVG and PNG; created if missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) plots: Option<PathBuf>,
}

const COMPARE: &str = "\
A side is a result folder, a folder with result folders below it, an experiment's folder, DIR:CURVE
for one curve or phase of an experiment, or a quoted pattern such as 'results/*-redis'. Repeat each
run at least 5 times, alternating between A and B. docs/comparing.md explains the method.

Exit status: 0 nothing is worse in B, 1 some metric is, 2 wrong usage or nothing to compare, 5 too
few runs.";

/// `serval compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE)]
pub(crate) struct CompareArgs {
    /// Baseline (A) and candidate (B) results
    #[arg(value_name = "A B", num_args = 0..=2, value_hint = ValueHint::AnyPath)]
    pub(crate) sides: Vec<PathBuf>,
    /// Results of the baseline (A), in addition to or instead of the argument
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub(crate) a: Vec<PathBuf>,
    /// Results of the candidate (B), in addition to or instead of the argument
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub(crate) b: Vec<PathBuf>,
    /// Repeated runs of one configuration, from which noise is estimated [default: within A and B]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) aa: Vec<PathBuf>,
    /// Largest probability of a false alarm over all metrics, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.05")]
    pub(crate) alpha: String,
    /// Smallest change that counts
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub(crate) threshold: String,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    /// Print Markdown, for a pull request
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Seed of resampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `serval merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Result folders or result.json files
    #[arg(value_name = "RESULT", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub(crate) results: Vec<PathBuf>,
    /// Merge runs made one after another: add durations, not throughputs
    #[arg(long)]
    pub(crate) one_after_another: bool,
    /// Also merge results of different stores or workloads
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the merged document, as in a pipe; a terminal otherwise gets the summary
    #[arg(long, conflicts_with = "out")]
    pub(crate) json: bool,
    /// File for the merged document, instead of printing it; must not exist
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
}

/// YCSB's single-dash long flags.
const SINGLE_DASH: [&str; 11] = [
    "-threads",
    "-target",
    "-label",
    "-cp",
    "-jvm-args",
    "-db",
    "-load",
    "-table",
    "-help",
    "-class",
    "-classpath",
];

/// Whether a word is meant as a long flag with a single dash: letters only, and not a short flag with
/// its value. clap would otherwise read `-thread` as `-t -h`, and print the help.
fn is_long_with_one_dash(name: &str) -> bool {
    let letters = name.strip_prefix('-').unwrap_or_default();
    letters.len() > 2
        && letters.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
        && !letters.starts_with(['-', 'p', 'l'])
}

/// Gives YCSB's single-dash flags a second dash, in YCSB's commands and `bench`. In YCSB's commands
/// also unknown ones, which are then refused by name.
pub(crate) fn normalized(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let takes = |command: &&str| ["load", "run", "shell", "bench"].contains(command);
    let Some(command) = arguments.get(1).and_then(|command| command.to_str()).filter(takes) else {
        return arguments;
    };
    let is_ycsb = command != "bench";
    let mut cli = Cli::command();
    cli.build();
    let Some(command) = cli.find_subcommand(command) else { return arguments };
    let mut is_value = false;
    for argument in arguments.iter_mut().skip(2) {
        if std::mem::take(&mut is_value) {
            continue;
        }
        let Some(text) = argument.to_str() else { continue };
        let name = text.split('=').next().unwrap_or(text);
        let is_flag = SINGLE_DASH.contains(&name) || is_ycsb && is_long_with_one_dash(name);
        let flag = if is_flag { format!("-{text}") } else { text.to_owned() };
        is_value = needs_value(command, &flag);
        *argument = flag.into();
    }
    arguments
}

/// Whether a flag of a command needs the next argument as its value.
fn needs_value(command: &clap::Command, flag: &str) -> bool {
    let is_flag = |arg: &&Arg| {
        let is_short = |short: char| flag.strip_prefix('-').is_some_and(|flag| flag.chars().eq([short]));
        let is_long = |long: &str| flag.strip_prefix("--") == Some(long);
        arg.get_short().is_some_and(is_short) || arg.get_long().is_some_and(is_long)
    };
    let values = command.get_arguments().find(is_flag).and_then(Arg::get_num_args);
    values.is_some_and(|values| values.min_values() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ycsb(words: &str) -> YcsbArgs {
        let arguments = std::iter::once("serval").chain(words.split(' ')).map(OsString::from);
        match Cli::try_parse_from(normalized(arguments)).unwrap_or_else(|e| panic!("{e}")).command {
            Command::Run(args) => args,
            Command::Load(args) => args.ycsb,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_of_arguments_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_a_flag_with_a_value_is_left_alone() {
        let normal = |words: &str| {
            let arguments = normalized(std::iter::once("serval").chain(words.split(' ')).map(OsString::from));
            let words: Vec<&str> = arguments[1..].iter().map(|word| word.to_str().unwrap()).collect();
            words.join(" ")
        };
        for (words, wanted) in [
            ("run x -p -load -threads 4", "run x -p -load --threads 4"),
            ("run x -s -threads=4 -target 5", "run x -s --threads=4 --target 5"),
            ("run x --result -load -load", "run x --result -load --load"),
            ("run x --otlp -load", "run x --otlp --load"),
            ("shell x --table -cp -cp -table", "shell x --table -cp --cp -table"),
            ("bench x -threads 4", "bench x --threads 4"),
            ("sweep x -threads 4", "sweep x -threads 4"),
            // Misspelt: refused by name.
            ("run x -thread 4", "run x --thread 4"),
            ("run x -pa=b -Pfile -st -n 5", "run x -pa=b -Pfile -st -n 5"),
        ] {
            assert_eq!(normal(words), wanted);
        }
    }

    #[test]
    fn ycsbs_command_lines_are_accepted_unchanged() {
        let args = ycsb("run redis -s -P workloads/a -P b -p x=-1 -p y=z=w -threads 4 -target 100 -l name");
        assert!(args.status);
        assert_eq!(args.properties.named.files.len(), 2);
        assert_eq!(args.properties.named.properties, ["x=-1", "y=z=w"]);
        assert_eq!(args.properties.threads.as_deref(), Some("4"));
        assert_eq!(args.properties.target.as_deref(), Some("100"));
        assert_eq!(args.properties.label.as_deref(), Some("name"));
        let args =
            ycsb("load redis -cp /x:/y -jvm-args=-Xmx4g -db site.ycsb.db.RedisClient -load --threads 2");
        assert_eq!(args.java.jvm_args.as_deref(), Some("-Xmx4g"));
        assert_eq!(args.properties.threads.as_deref(), Some("2"));
        let args = ycsb("run redis -jvm-args -Xmx4g -p -target=3 -t");
        assert_eq!(args.java.jvm_args.as_deref(), Some("-Xmx4g"));
        assert_eq!(args.properties.named.properties, ["-target=3"], "a value is left alone");
    }
}
