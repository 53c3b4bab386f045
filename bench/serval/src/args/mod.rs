//! The command line. YCSB's own commands take YCSB's flags, which have single
//! dashes; these are put into the common form before they are read.

mod experiment;

pub(crate) use experiment::{
    ExperimentCommand, ExperimentRunArgs, MaxArgs, PlaceArgs, ResumeArgs, RunSettingArgs, SeriesArgs,
    ShowArgs, SweepArgs,
};

use crate::live::LiveArgs;
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use std::{ffi::OsString, path::PathBuf};

const ABOUT: &str = "Serval measures cloud serving stores: the YCSB client, whole.";

const START: &str = "\
Start here:
  serval bench workloads/workloada         an embedded store: load, warm up, measure, report
  serval bench workloads/workloada --store redis -p redis.host=10.0.0.5 --threads 32

As with YCSB:
  serval load redis -s -P workloads/workloada -p redis.host=127.0.0.1 -threads 16
  serval run redis -s -P workloads/workloada -p redis.host=127.0.0.1 -threads 16 -target 10000

What changed:
  serval compare before/ after/            which metrics differ, by how much, how surely

What there is:
  serval stores, serval workloads, serval properties [NAME]

Exit status: 0 all well, 1 operations failed, or compare found something worse, 2 wrong usage or
configuration, 3 the store cannot be used, 4 the result cannot be written, 5 compare has too few
runs to say, 130 interrupted before its end (a run without end ends so with 0).";

/// Serval's command line.
#[derive(Debug, Parser)]
#[command(name = "serval", version, about = ABOUT, after_help = START, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Benchmark a store with a workload file: load, warm up, measure, report
    Bench(BenchArgs),
    /// Load a workload's records into a store, as YCSB's load
    Load(LoadArgs),
    /// Run a workload's operations on a store, as YCSB's run
    Run(YcsbArgs),
    /// Read, write and scan single records by hand, as YCSB's shell
    Shell(ShellArgs),
    /// Latency against throughput, up to saturation and past it, of stores side by side
    Sweep(SweepArgs),
    /// The highest rate that keeps a promise such as "read.p99 < 10ms"
    Max(MaxArgs),
    /// Show, run or go on with an experiment file (docs/experiments.md)
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// List the stores, or explain one
    Stores(NameArgs),
    /// List the workloads, or explain one
    Workloads(NameArgs),
    /// List the properties, or explain those of a name
    Properties(NameArgs),
    /// Make the report of stored results and experiments again, of several together
    Report(ReportArgs),
    /// Compare two sides of repeated runs: what differs, by how much, and how surely
    Compare(CompareArgs),
    /// Merge the results of clients that ran side by side
    Merge(MergeArgs),
    /// Wait for work on a load machine, as one of several clients (docs/coordination.md)
    Agent(AgentArgs),
    /// Test a driver, or serve a store as one (docs/driver-protocol.md)
    #[command(subcommand)]
    Driver(DriverCommand),
    /// Print the JSON schema of result.json, or of experiment.json
    Schema {
        /// Which document
        #[arg(value_enum, default_value_t = Document::Result)]
        document: Document,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
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
    /// Property file; of several the later wins
    #[arg(short = 'P', long = "property-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Property, over what files say
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub(crate) properties: Vec<String>,
}

/// Properties of a single run: those that are set most have flags, YCSB's.
#[derive(Debug, Args)]
pub(crate) struct RunPropertyArgs {
    #[command(flatten)]
    pub(crate) named: PropertyArgs,
    /// Clients (-threads N, threadcount)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) threads: Option<String>,
    /// Offered load in operations/s, all clients together (-target N, target)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) target: Option<String>,
    /// Name of this run, shown in status lines and results
    #[arg(short = 'l', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) label: Option<String>,
    /// Class of a YCSB binding, for the store java (java.class)
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub(crate) class: Option<String>,
    /// Class path of a YCSB binding, for the store java (java.classpath)
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub(crate) classpath: Option<String>,
}

/// `serval bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Workload file, or a script (file.lua)
    #[arg(value_name = "WORKLOAD", value_hint = ValueHint::FilePath)]
    pub(crate) workload: PathBuf,
    /// Store ('serval stores' lists them)
    #[arg(long, default_value = "yesquel", value_name = "STORE")]
    pub(crate) store: String,
    /// Result folder; must not exist [default: results/TIME-WORKLOAD-STORE]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Measured time (maxexecutiontime) [default: 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
    /// Warm-up before it (warmup) [default: 3s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) warm_up: Option<String>,
    /// Records to load (recordcount)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) records: Option<String>,
    /// Operations to measure, instead of a time (operationcount)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) operations: Option<String>,
    /// Do not load: the records are there
    #[arg(long)]
    pub(crate) skip_load: bool,
    /// Keep the embedded store's records in the result folder
    #[arg(long)]
    pub(crate) keep_store: bool,
    /// Write every single time to raw.csv
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
    /// Store, by its name or YCSB class ('serval stores' lists them)
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
    /// Status lines on standard error
    #[arg(short = 's')]
    pub(crate) status: bool,
    /// Write a result folder too; must not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) result: Option<PathBuf>,
    /// Serval's remarks on the run too, which YCSB does not print: always on a terminal
    #[arg(long)]
    pub(crate) notes: bool,
    /// Write every single time to raw.csv in the result folder
    #[arg(long, requires = "result")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) java: JavaArgs,
}

/// Several client processes as one.
#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// Client processes that divide the work: agents (coordination.clients)
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<String>,
    /// ZooKeeper by which they find each other (coordination.zookeeper)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) coordination: Option<String>,
}

/// `serval agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// ZooKeeper by which coordinators find it: HOST:2181, several with commas between
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: String,
    /// Node of ZooKeeper that everything is below (coordination.root)
    #[arg(long, value_name = "NODE", default_value = "serval")]
    pub(crate) root: String,
    /// Silence after which ZooKeeper's session is over
    #[arg(long, value_name = "TIME", default_value = "6s")]
    pub(crate) timeout: String,
    /// End after one group
    #[arg(long)]
    pub(crate) once: bool,
    /// Run programs that phases of an experiment ask for: whoever can write to this ZooKeeper can then run programs here
    #[arg(long)]
    pub(crate) allow_commands: bool,
}

/// `serval load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Go on with a load that was interrupted (load.resume)
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) ycsb: YcsbArgs,
}

/// Flags of YCSB that mean something to Java only, or repeat what the command says.
#[derive(Debug, Args)]
pub(crate) struct JavaArgs {
    /// Java class path: java.classpath for the store java, without effect for others
    #[arg(long = "cp", value_name = "PATH", hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) class_path: Option<String>,
    /// Java arguments: java.args for the store java, without effect for others
    #[arg(long = "jvm-args", value_name = "ARGS", hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) jvm_args: Option<String>,
    /// Store's class: java.class for the store java, else the STORE wins
    #[arg(long = "db", value_name = "CLASS", hide_short_help = true)]
    pub(crate) db: Option<String>,
    /// YCSB's flag of its load phase: accepted in 'load'
    #[arg(long = "load", hide = true)]
    pub(crate) load: bool,
    /// YCSB's flag of its transaction phase: accepted in 'run'
    #[arg(short = 't', hide = true)]
    pub(crate) transactions: bool,
}

/// `serval shell`.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Store, by its name or YCSB class
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
    /// Table to begin with (table)
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// Status lines: accepted, without effect
    #[arg(short = 's', hide = true)]
    pub(crate) status: bool,
    #[command(flatten)]
    pub(crate) java: JavaArgs,
}

/// `serval driver`.
#[derive(Debug, Subcommand)]
pub(crate) enum DriverCommand {
    /// Test whether a program keeps to the driver protocol
    Check(CheckArgs),
    /// Serve a store as a driver on standard input and output
    Serve(ServeArgs),
}

/// `serval driver check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The driver's program and its arguments, after --
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<String>,
    /// Property passed to the driver
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE")]
    pub(crate) properties: Vec<String>,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serval driver serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Store
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) properties: RunPropertyArgs,
}

/// A name to explain.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name; without it all are listed
    pub(crate) name: Option<String>,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serval report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders of results or experiments, or their result.json or experiment.json; several are shown together
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) results: Vec<PathBuf>,
    /// Write the HTML report here instead of printing the summary; must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Write the numbers here as CSV: a result's series, that of phases, else all points; must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,
    /// Write the curves of read-after-write lag here as CSV, of a result or of phases; must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) lag_csv: Option<PathBuf>,
    /// Write every plot into this folder as SVG and as PNG; made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) plots: Option<PathBuf>,
}

const COMPARE: &str = "\
A side is a result folder, a folder with result folders below it, an experiment's folder, DIR:CURVE
for one curve or phase of an experiment, or a quoted pattern such as 'results/*-redis'. Repeat each
run at least 5 times, those of A and B in turn. docs/comparing.md has the law.

Exit status: 0 nothing is worse in B, 1 something is, 2 wrong usage or nothing to compare, 5 too
few runs.";

/// `serval compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE)]
pub(crate) struct CompareArgs {
    /// Side A, what was, and side B, what is
    #[arg(value_name = "A B", num_args = 0..=2, value_hint = ValueHint::AnyPath)]
    pub(crate) sides: Vec<PathBuf>,
    /// More of side A, or all of it
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub(crate) a: Vec<PathBuf>,
    /// More of side B, or all of it
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub(crate) b: Vec<PathBuf>,
    /// Repeated runs of one and the same, whose differences are the noise [default: within A and B]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) aa: Vec<PathBuf>,
    /// Chance of any false alarm at most, over all metrics together
    #[arg(long, value_name = "SHARE", default_value = "0.05")]
    pub(crate) alpha: String,
    /// Ignore changes smaller than this
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub(crate) threshold: String,
    /// As JSON, for programs
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    /// As Markdown, for a pull request
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Seed of the resampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `serval merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Result folders or result.json files
    #[arg(value_name = "RESULT", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub(crate) results: Vec<PathBuf>,
    /// The results came one after the other: durations are added, not throughputs
    #[arg(long)]
    pub(crate) one_after_another: bool,
    /// Merge results of different stores or workloads too
    #[arg(long)]
    pub(crate) force: bool,
    /// Write the merged document here instead of printing it; must not exist
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
}

/// YCSB's long flags with a single dash.
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

/// Puts YCSB's single-dash flags into the common form, for YCSB's commands
/// only.
pub(crate) fn normalized(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let ycsb = arguments.get(1).is_some_and(|command| ["load", "run", "shell"].iter().any(|c| command == c));
    if !ycsb {
        return arguments;
    }
    let mut is_value = false;
    for argument in arguments.iter_mut().skip(2) {
        let Some(text) = argument.to_str() else {
            is_value = false;
            continue;
        };
        if is_value {
            is_value = false;
            continue;
        }
        let name = text.split('=').next().unwrap_or(text);
        if SINGLE_DASH.contains(&name) {
            is_value = !text.contains('=') && !["-load", "-help"].contains(&name);
            *argument = format!("-{text}").into();
        } else {
            is_value = ["-p", "-P", "-l"].contains(&text) || (text.starts_with("--") && takes_value(text));
        }
    }
    arguments
}

fn takes_value(flag: &str) -> bool {
    [
        "--threads",
        "--target",
        "--label",
        "--property",
        "--property-file",
        "--cp",
        "--jvm-args",
        "--db",
        "--class",
        "--classpath",
        "--result",
        "--clients",
        "--coordination",
        "--prometheus",
    ]
    .contains(&flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn ycsb(words: &str) -> YcsbArgs {
        let arguments = std::iter::once("serval").chain(words.split(' ')).map(OsString::from);
        match Cli::try_parse_from(normalized(arguments)).unwrap_or_else(|e| panic!("{e}")).command {
            Command::Run(args) => args,
            Command::Load(args) => args.ycsb,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ycsbs_command_lines_are_read_unchanged() {
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
