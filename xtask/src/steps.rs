//! `cargo xtask test`: the checks that a change must pass, in steps.
//!
//! The other steps run even when one fails, so that one run lists all failures.
//! A step that cannot run is listed as skipped, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::Result;
use crate::children::{Children, line};
use crate::docs;
use crate::features::{PROTOC, features, libraries};
use crate::fuzz;
use crate::house;
use crate::network;
use crate::programs;
use crate::room;
use crate::servers::{self, Fixture, ServerKind};
use crate::setup::{self, Missing, ProgramPurpose};
use crate::tcl;
use crate::test_programs::{self, TestProgram, Variable};
use crate::unchanged::Passed;
use crate::ycsb;

/// Features of the systems that benchmarks compare with. Nothing else needs them.
const MEASURED: &str = "yesquel-bench/embedded,yesquel-bench/mariadb";

/// Duration of each fuzz target; `cargo xtask soak` runs them longer.
const FUZZ_SECONDS: u64 = 20;

/// Duration of SQLite's own tests, minutes; tests of SQL run first.
/// `cargo xtask soak` runs the rest.
const TCL_MINUTES: f64 = 1.4;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Skip installs, downloads, regenerated golden files, fuzzing and documentation
    #[arg(long)]
    quick: bool,
    /// Also run tests that passed before and are unchanged
    #[arg(long)]
    all: bool,
    /// Leave this step out; may be given several times
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<TestStep>,
    /// Leave this server and the tests against it out; may be given several times
    #[arg(long, value_name = "SERVER",
        value_parser = servers::KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>())]
    without: Vec<String>,
}

/// The steps, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TestStep {
    /// Set-up: the servers that stores are tested against, installed when missing
    Servers,
    /// Set-up: a JDK, Maven, YCSB's classes to regenerate golden files, and the Java drivers
    Java,
    /// Set-up: strace, to check that Yesquel's server syncs before it answers
    Trace,
    /// Set-up: programs that run on the shared library
    Programs,
    /// Set-up: network namespaces and wrong clocks, for Yesquel's cluster
    Network,
    /// Set-up: Chromium, to open reports
    Browser,
    /// cargo fmt --check
    Fmt,
    /// cargo xtask house --check
    House,
    /// cargo clippy with all stores, warnings denied
    Clippy,
    /// cargo test --no-run with all stores
    Build,
    /// The tests, with all servers running
    Test,
    /// The examples in the documentation of the crates
    Examples,
    /// SQLite's own tests on Yesquel's trees, for 84 seconds
    Tcl,
    /// Fuzzing of Yesquel's decoders, 20 seconds a target
    Fuzz,
    /// cargo doc, warnings denied; docs/reference must match the tables
    Doc,
}

impl TestStep {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn help(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// The tests that do not run without this step, where no other row of the
    /// summary shows that.
    fn leaves_out(self) -> &'static str {
        match self {
            TestStep::Servers => "; tests against servers are not run",
            TestStep::Java => "; golden files are not regenerated, and the Java drivers are not tested",
            TestStep::Fuzz => "; Yesquel's decoders are not fuzzed",
            TestStep::Tcl => "; SQLite's own tests are not run",
            TestStep::Trace => "; the order of fsync and answer in Yesquel's server is not tested",
            TestStep::Programs => "; the shared library is not tested with other programs",
            TestStep::Network => "; Yesquel's servers are not tested in network namespaces",
            TestStep::Browser => "; reports are not opened in a browser",
            TestStep::Build => "; no test is run",
            TestStep::Fmt
            | TestStep::House
            | TestStep::Clippy
            | TestStep::Test
            | TestStep::Examples
            | TestStep::Doc => "",
        }
    }
}

enum StepResult {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl StepResult {
    fn words(&self) -> (&'static str, &str) {
        match self {
            StepResult::Passed(note) => ("passed", note),
            StepResult::Failed(reason) => ("failed", reason),
            StepResult::Skipped(reason) => ("skipped", reason),
        }
    }
}

struct StepRow {
    name: String,
    outcome: StepResult,
    seconds: f64,
    /// CPU time of the step's processes, s.
    cpu: f64,
}

/// Results of earlier steps that later steps use.
#[derive(Default)]
struct StepFindings {
    servers: Vec<&'static ServerKind>,
    ycsb_class_path: Option<String>,
    java_drivers: Option<ycsb::JavaDrivers>,
    strace: Option<PathBuf>,
    /// The shared library under its own name, and under the name of SQLite's.
    libraries: Option<(PathBuf, PathBuf)>,
    programs: Option<PathBuf>,
    browser: Option<PathBuf>,
    /// The built test programs.
    tests: Vec<TestProgram>,
    /// The thread that starts the servers.
    starting: Option<JoinHandle<Fixtures>>,
}

/// The running servers, and the errors of those that did not start.
///
/// An installed server that does not start fails the step. The other tests run.
#[derive(Default)]
struct Fixtures {
    running: Vec<(&'static ServerKind, Fixture)>,
    problems: Vec<String>,
}

impl Fixtures {
    /// Starts servers on a thread of their own. This takes minutes, while the tests
    /// are built.
    fn start(kinds: Vec<&'static ServerKind>, children: &Children) -> JoinHandle<Fixtures> {
        let children = children.clone();
        thread::spawn(move || {
            let mut fixtures = Fixtures::default();
            for kind in kinds {
                match (kind.fixture)(&children) {
                    Ok(fixture) => fixtures.running.push((kind, fixture)),
                    Err(reason) => fixtures.problems.push(not_run(kind, &reason)),
                }
            }
            fixtures
        })
    }

    /// Waits until all servers are ready; drops those that fail.
    fn ready(mut self) -> Fixtures {
        let problems = &mut self.problems;
        self.running.retain(|(kind, fixture)| {
            let ready = fixture.servers.iter().try_for_each(|server| server.wait_until_ready());
            ready.map_err(|reason| problems.push(not_run(kind, &reason))).is_ok()
        });
        self
    }
}

fn not_run(kind: &ServerKind, reason: &str) -> String {
    format!("{reason}; tests against {} were not run", kind.name)
}

/// Runs the steps. Returns whether none failed or was interrupted.
pub(crate) fn test(arguments: &Arguments, children: &Children) -> Result<bool> {
    let mut found = StepFindings::default();
    room::check(&crate::target())?;
    let passed = Passed::read(&crate::root().join("target/tests"), arguments.all);
    let mut rows = Vec::new();
    for &step in TestStep::value_variants() {
        println!("\n==> {}: {}", step.name(), step.help());
        let started = Started::now();
        let outcome = if children.interrupted().is_some() {
            StepResult::Skipped("interrupted".to_owned())
        } else if arguments.skip.contains(&step) {
            StepResult::Skipped(format!("--skip{}", step.leaves_out()))
        } else if step == TestStep::Servers {
            // One row a server.
            rows.extend(servers::KINDS.iter().map(|kind| provide(kind, arguments, &mut found, children)));
            continue;
        } else {
            run(step, arguments.quick, &mut found, &passed, children)
        };
        rows.push(row(step.name(), outcome, started));
    }
    print!("\n{}", summary(&rows));
    let failed = |row: &StepRow| matches!(row.outcome, StepResult::Failed(_));
    // If the set-up was interrupted, no step failed: all were skipped.
    Ok(children.interrupted().is_none() && !rows.iter().any(failed))
}

/// Start of a step.
struct Started {
    at: Instant,
    /// CPU time of the children that had ended, s.
    cpu: f64,
}

impl Started {
    fn now() -> Started {
        Started { at: Instant::now(), cpu: cpu_of_children() }
    }
}

/// CPU time of all children that have been waited for, and of their children, s.
fn cpu_of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // `cutime` and `cstime` of proc(5), counted after the name, which may contain
    // spaces.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Prints the result of a step and returns its row.
fn row(name: String, outcome: StepResult, started: Started) -> StepRow {
    let (seconds, cpu) = (started.at.elapsed().as_secs_f64(), cpu_of_children() - started.cpu);
    let (result, note) = outcome.words();
    println!("<== {name} {result} in {seconds:.1} s, {cpu:.1} s CPU{}", after_colon(note));
    StepRow { name, outcome, seconds, cpu }
}

/// Makes sure that a server is installed.
fn provide(
    kind: &'static ServerKind,
    arguments: &Arguments,
    found: &mut StepFindings,
    children: &Children,
) -> StepRow {
    let started = Started::now();
    let missing = if arguments.quick { Missing::Report } else { Missing::Install };
    let leaves_out = format!("; tests against {} are not run", kind.name);
    let outcome = if arguments.without.iter().any(|name| name == kind.name) {
        StepResult::Skipped(format!("--without{leaves_out}"))
    } else {
        match setup::provide(children, kind.purpose, missing) {
            Ok(note) => {
                found.servers.push(kind);
                StepResult::Passed(kind.stand_in().map_or(note.clone(), |what| format!("{what}: {note}")))
            }
            Err(reason) => StepResult::Skipped(format!("{reason}{leaves_out}")),
        }
    };
    row(kind.name.to_owned(), outcome, started)
}

fn after_colon(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {note}") }
}

fn summary(rows: &[StepRow]) -> String {
    let mut text = format!("{:<18} {:<8} {:>8} {:>8}\n", "step", "result", "seconds", "CPU");
    let mut counts = BTreeMap::from([("passed", 0), ("failed", 0), ("skipped", 0)]);
    for row in rows {
        let (result, note) = row.outcome.words();
        *counts.entry(result).or_default() += 1;
        let cells = format!("{:<18} {result:<8} {:>8.1} {:>8.1}  {note}", row.name, row.seconds, row.cpu);
        text += cells.trim_end();
        text.push('\n');
    }
    let (seconds, cpu) = rows.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.seconds, sum.1 + row.cpu));
    text += &format!("{:<18} {:<8} {seconds:>8.1} {cpu:>8.1}\n", "all", "");
    text += &format!(
        "steps: {} passed, {} failed, {} skipped\n",
        counts["passed"], counts["failed"], counts["skipped"]
    );
    text
}

fn run(
    step: TestStep,
    quick: bool,
    found: &mut StepFindings,
    passed: &Passed,
    children: &Children,
) -> StepResult {
    let missing = if quick { Missing::Report } else { Missing::Install };
    match step {
        TestStep::Java | TestStep::Tcl | TestStep::Fuzz | TestStep::Doc if quick => skipped(step, "--quick"),
        TestStep::Servers => StepResult::Passed(String::new()),
        TestStep::Java => java(missing, found, children),
        TestStep::Trace => trace(missing, found, children),
        TestStep::Programs => match programs::provide(children, missing) {
            Ok(folder) => {
                found.programs = Some(folder);
                StepResult::Passed(String::new())
            }
            Err(reason) => skipped(step, &reason),
        },
        TestStep::Network => match network::provide(children, missing) {
            Ok(note) => StepResult::Passed(note),
            Err(reason) => skipped(step, &reason),
        },
        TestStep::Browser => browser(missing, found, children),
        TestStep::Fmt => cargo_step(children, &["fmt", "--all", "--check"], &[]),
        TestStep::House => match house::check() {
            Ok(0) => StepResult::Passed(String::new()),
            Ok(problems) => StepResult::Failed(format!("{problems} problems, listed above")),
            Err(reason) => StepResult::Failed(reason),
        },
        TestStep::Clippy => clippy(children),
        TestStep::Build => build(found, children),
        TestStep::Test if found.tests.is_empty() => StepResult::Skipped("no test was built".to_owned()),
        TestStep::Test => run_tests(found, passed, children),
        TestStep::Examples => {
            let (features, without) = features();
            let arguments = ["test", "--workspace", "--no-fail-fast", "--features", &features, "--doc"];
            noting(cargo_step(children, &arguments, &[]), without)
        }
        TestStep::Tcl => sqlite_tests(missing, passed, children),
        TestStep::Fuzz => match fuzz::provide(children, missing) {
            Ok(()) => match fuzz::all(FUZZ_SECONDS, Some(passed), children) {
                Ok(counts) => StepResult::Passed(counts),
                Err(reason) => StepResult::Failed(reason),
            },
            Err(reason) => skipped(step, &reason),
        },
        TestStep::Doc => documentation(children),
    }
}

/// YCSB's class path, and the drivers for Java.
fn java(missing: Missing, found: &mut StepFindings, children: &Children) -> StepResult {
    let class_path =
        setup::provide(children, ProgramPurpose::Java, missing).and_then(|_where| ycsb::class_path(children));
    match class_path {
        Ok(class_path) => found.ycsb_class_path = Some(class_path),
        Err(reason) => return skipped(TestStep::Java, &reason),
    }
    // All tools are present, so an error is a failure of the drivers.
    match ycsb::java_drivers(children) {
        Ok(drivers) => {
            found.java_drivers = Some(drivers);
            StepResult::Passed(String::new())
        }
        Err(reason) => StepResult::Failed(reason),
    }
}

fn trace(missing: Missing, found: &mut StepFindings, children: &Children) -> StepResult {
    let strace = setup::provide(children, ProgramPurpose::Trace, missing)
        .and_then(|_where| strace_that_may_trace(children));
    match strace {
        Ok(strace) => {
            let note = strace.display().to_string();
            found.strace = Some(strace);
            StepResult::Passed(note)
        }
        Err(reason) => skipped(TestStep::Trace, &reason),
    }
}

fn browser(missing: Missing, found: &mut StepFindings, children: &Children) -> StepResult {
    let browser = setup::provide(children, ProgramPurpose::Browser, missing)
        .and_then(|_where| setup::find("chromium").ok_or_else(|| "there is no chromium".to_owned()));
    match browser {
        Ok(browser) => {
            let note = browser.display().to_string();
            found.browser = Some(browser);
            StepResult::Passed(note)
        }
        Err(reason) => skipped(TestStep::Browser, &reason),
    }
}

fn clippy(children: &Children) -> StepResult {
    let (features, without) = features();
    // No other step compiles the features for benchmarks.
    let features = format!("{features},{MEASURED}");
    let arguments =
        ["clippy", "--workspace", "--all-targets", "--features", &features, "--", "-D", "warnings"];
    noting(cargo_step(children, &arguments, &[]), without)
}

/// Builds the test programs while the servers start.
fn build(found: &mut StepFindings, children: &Children) -> StepResult {
    found.starting = Some(Fixtures::start(std::mem::take(&mut found.servers), children));
    let (features, without) = features();
    // Without examples: linking them, and the driver of each store again, takes
    // minutes, and clippy checks them.
    let arguments = ["--workspace", "--features", &features, "--lib", "--bins", "--tests"];
    let libraries = libraries(&features);
    let built = test_programs::build(&arguments, children)
        .and_then(|programs| Ok((programs, programs::build(children, &libraries)?)));
    match built {
        Ok((programs, libraries)) => {
            let note = format!("{} programs", programs.len());
            found.tests = programs;
            found.libraries = Some(libraries);
            noting(StepResult::Passed(note), without)
        }
        Err(_) if children.interrupted().is_some() => StepResult::Failed("interrupted".to_owned()),
        Err(reason) => StepResult::Failed(reason),
    }
}

/// Runs SQLite's own tests. If their sources cannot be fetched, for example because
/// Debian has removed the archive, the step is skipped.
fn sqlite_tests(missing: Missing, passed: &Passed, children: &Children) -> StepResult {
    let sources = match tcl::provide(children, missing) {
        Ok(sources) => sources,
        Err(reason) => return skipped(TestStep::Tcl, &reason),
    };
    let (features, _) = features();
    let limit = tcl::TclArguments::within(TCL_MINUTES, Some(&libraries(&features)));
    match tcl::run(&limit, &sources, Some(passed), children) {
        Ok((true, summary)) => StepResult::Passed(summary),
        Ok((false, summary)) => StepResult::Failed(summary),
        Err(reason) => StepResult::Failed(reason),
    }
}

/// Builds the crates' documentation and compares the reference with the tables.
fn documentation(children: &Children) -> StepResult {
    let (features, without) = features();
    let arguments = ["doc", "--workspace", "--no-deps", "--features", &features];
    let documented = cargo_step(children, &arguments, &[("RUSTDOCFLAGS", "-D warnings")]);
    match (noting(documented, without), without) {
        (StepResult::Passed(note), None) => match docs::check(None, children) {
            Ok(true) => StepResult::Passed(note),
            Ok(false) => StepResult::Failed("docs/reference differs from the tables".to_owned()),
            Err(reason) => StepResult::Failed(reason),
        },
        (outcome, _) => outcome,
    }
}

/// Returns the path of strace if it works: a container may forbid ptrace.
fn strace_that_may_trace(children: &Children) -> Result<PathBuf> {
    let strace = setup::find("strace").ok_or("there is no strace")?;
    let mut command = Command::new(&strace);
    command.args(["-f", "-o", "/dev/null", "true"]).stderr(Stdio::null());
    if children.run(&mut command)?.success() {
        Ok(strace)
    } else {
        Err("ptrace is not permitted here".to_owned())
    }
}

/// Notes in a passed step that one store was left out.
fn noting(outcome: StepResult, without: Option<&str>) -> StepResult {
    match (outcome, without) {
        (StepResult::Passed(note), Some(store)) => {
            let comma = if note.is_empty() { "" } else { ", " };
            StepResult::Passed(format!("{note}{comma}without the store {store}: {} is missing", PROTOC.0))
        }
        (outcome, _) => outcome,
    }
}

fn skipped(step: TestStep, reason: &str) -> StepResult {
    StepResult::Skipped(format!("{reason}{}", step.leaves_out()))
}

fn cargo_step(children: &Children, arguments: &[&str], variables: &[(&str, &str)]) -> StepResult {
    let mut command = crate::cargo();
    command.args(arguments).envs(variables.iter().copied());
    finish(children, &mut command)
}

/// Runs the test programs while the servers run. Environment variables hold the
/// servers' addresses.
fn run_tests(found: &mut StepFindings, passed: &Passed, children: &Children) -> StepResult {
    let started = Instant::now();
    let mut variables = Vec::new();
    let mut set =
        |name: &str, value: String| variables.push(Variable { name: name.to_owned(), value, is_input: true });
    let text = |path: &PathBuf| path.display().to_string();
    if let Some(class_path) = &found.ycsb_class_path {
        set("SERVAL_YCSB_CLASSPATH", class_path.clone());
    }
    if let Some(drivers) = &found.java_drivers {
        set("SERVAL_TEST_JAVA_DRIVER", text(&drivers.plain));
        set("SERVAL_TEST_HBASE_DRIVER", text(&drivers.hbase));
    }
    if let Some(strace) = &found.strace {
        set("YESQUEL_TEST_STRACE", text(strace));
    }
    if let Some((own, stand_in)) = &found.libraries {
        set("YESQUEL_TEST_LIBRARY", text(own));
        set("YESQUEL_TEST_STAND_IN", text(stand_in));
    }
    if let Some(folder) = &found.programs {
        set("YESQUEL_TEST_PROGRAMS", text(folder));
    }
    if let Some(browser) = &found.browser {
        set("SERVAL_TEST_BROWSER", text(browser));
    }
    let starting = found.starting.take().map(JoinHandle::join);
    let Ok(fixtures) = starting.unwrap_or_else(|| Ok(Fixtures::default())) else {
        return StepResult::Failed("the thread that starts the servers panicked".to_owned());
    };
    let Fixtures { running: fixtures, mut problems } = fixtures.ready();
    let servers: usize = fixtures.iter().map(|(_, fixture)| fixture.servers.len()).sum();
    println!("    {servers} servers run after {:.1} s", started.elapsed().as_secs_f64());
    for (_, fixture) in &fixtures {
        let of_server = |(name, value): &(_, _)| Variable {
            name: String::from(*name),
            value: String::clone(value),
            is_input: false,
        };
        variables.extend(fixture.variables.iter().map(of_server));
    }
    let programs = std::mem::take(&mut found.tests);
    let folder = crate::root().join("target/tests");
    let counts = match test_programs::run(programs, &variables, &folder, passed, children) {
        Ok(counts) => counts,
        Err(reason) => {
            problems.push(reason);
            return StepResult::Failed(problems.join("; "));
        }
    };
    let missing =
        counts.missing.iter().map(|(what, count)| format!(", {count} not run without {}", servers_of(what)));
    let ignored = if counts.ignored > 0 { format!(", {} ignored", counts.ignored) } else { String::new() };
    let unchanged = match counts.unchanged {
        0 => String::new(),
        count => format!(", {count} more passed before and have not changed (--all runs them)"),
    };
    let run = counts.passed + counts.failed;
    let note = format!("{run} tests{unchanged}{}{ignored}", missing.collect::<String>());
    if counts.failed > 0 {
        let programs = counts.programs.into_iter().collect::<Vec<_>>().join(", ");
        problems.push(format!("{} of {note} failed, in {programs}", counts.failed));
    }
    if problems.is_empty() { StepResult::Passed(note) } else { StepResult::Failed(problems.join("; ")) }
}

/// The servers whose addresses these variables hold, or the variables themselves.
fn servers_of(variables: &str) -> String {
    let named = |variable: &str| {
        let kind = servers::KINDS.iter().find(|kind| kind.variables.contains(&variable));
        kind.map_or(variable, |kind| kind.name).to_owned()
    };
    variables.split(' ').map(named).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

fn finish(children: &Children, command: &mut Command) -> StepResult {
    println!("    {}", line(command));
    match children.check(command) {
        Ok(()) => StepResult::Passed(String::new()),
        Err(_) if children.interrupted().is_some() => StepResult::Failed("interrupted".to_owned()),
        Err(reason) => StepResult::Failed(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_steps_and_gives_reasons() {
        let row = |name: &str, outcome, seconds| StepRow {
            name: name.to_owned(),
            outcome,
            seconds,
            cpu: 2.0 * seconds,
        };
        let rows = [
            row("redis", StepResult::Skipped("no apt-get".to_owned()), 0.04),
            row("fmt", StepResult::Passed(String::new()), 1.26),
            row("test", StepResult::Failed("exit 101".to_owned()), 100.0),
            row("doc", StepResult::Passed(String::new()), 2.0),
        ];
        assert_eq!(
            summary(&rows),
            "step               result    seconds      CPU\n\
             redis              skipped       0.0      0.1  no apt-get\n\
             fmt                passed        1.3      2.5\n\
             test               failed      100.0    200.0  exit 101\n\
             doc                passed        2.0      4.0\n\
             all                            103.3    206.6\n\
             steps: 2 passed, 1 failed, 1 skipped\n"
        );
    }
}
