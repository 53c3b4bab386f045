//! `cargo xtask test`: what a change must pass, step by step.
//!
//! A failed step does not keep the others from running: one run tells all
//! there is to mend. What could not run is listed as skipped, with the reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::Result;
use crate::children::{Children, line};
use crate::fuzz;
use crate::house;
use crate::programs;
use crate::servers::{self, Fixture, Kind};
use crate::setup::{self, Missing, Purpose};
use crate::tcl;
use crate::ycsb;

/// All stores, also those that the default build leaves out.
const FULL: &str = "serval/full";

/// What benchmarks compare with, and nothing else needs.
const MEASURED: &str = "yesquel-bench/embedded,yesquel-bench/mariadb";

/// How long each target of the fuzzer is run.
const FUZZ_SECONDS: u64 = 45;

/// How long SQLite's own tests are run: those that test SQL come first.
const TCL_MINUTES: f64 = 5.0;

/// The program without which one store cannot be built, and the store.
const PROTOC: (&str, &str) = ("protoc", "etcd");

/// The features of all stores that can be built here; the one that cannot is
/// named.
fn features() -> (String, Option<&'static str>) {
    let (program, without) = PROTOC;
    if setup::find(program).is_some() {
        return (FULL.to_owned(), None);
    }
    let manifest = include_str!("../../bench/serval/Cargo.toml");
    (all_but(without, manifest), Some(without))
}

/// The features of `full` in a manifest but one.
fn all_but(without: &str, manifest: &str) -> String {
    let full = manifest.lines().find_map(|line| line.strip_prefix("full = ["));
    let names = full.unwrap_or_default().trim_end_matches(']').split(", ").map(|name| name.trim_matches('"'));
    names.filter(|name| *name != without).map(|name| format!("serval/{name}")).collect::<Vec<_>>().join(",")
}

#[derive(Args)]
pub(crate) struct Arguments {
    /// Install and fetch nothing, regenerate no goldens, fuzz nothing, build no documentation
    #[arg(long)]
    quick: bool,
    /// Leave this step out; may be given several times
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
    /// Leave this server and the tests against it out; may be given several times
    #[arg(long, value_name = "SERVER",
        value_parser = servers::KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>())]
    without: Vec<String>,
}

/// The steps, in the order they run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Set-up: the servers that stores are tested against, installed when missing
    Servers,
    /// Set-up: a JDK, Maven, YCSB's classes to regenerate the goldens, and the Java drivers
    Java,
    /// Set-up: strace, which sees when Yesquel's server answers and when it syncs
    Trace,
    /// Set-up: the shared library, and real programs that are run on it
    Programs,
    /// Set-up: Chromium, in which reports are opened
    Browser,
    /// cargo fmt --check
    Fmt,
    /// cargo xtask house --check
    House,
    /// cargo clippy with all stores and with the default ones, warnings denied
    Clippy,
    /// cargo test, with the servers up
    Test,
    /// SQLite's own tests on Yesquel's trees, as many as five minutes allow
    Tcl,
    /// Bytes of anybody against what Yesquel reads, 45 seconds for each target
    Fuzz,
    /// cargo doc, warnings denied
    Doc,
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn help(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// What is not tested when this step is left out, as far as another step
    /// would hide it.
    fn leaves_out(self) -> &'static str {
        match self {
            Step::Servers => "; tests against servers are not run",
            Step::Java => {
                "; the committed goldens are used without being regenerated, and the Java drivers are not tested"
            }
            Step::Fuzz => "; what Yesquel reads is not fuzzed",
            Step::Tcl => "; SQLite's own tests are not run",
            Step::Trace => "; that Yesquel's server answers after its fsync is not tested",
            Step::Programs => "; the shared library is not tested under real programs",
            Step::Browser => "; reports are not opened in a browser",
            Step::Fmt | Step::House | Step::Clippy | Step::Test | Step::Doc => "",
        }
    }
}

enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Outcome {
    /// What comes next, if this passed.
    fn then(self, next: impl FnOnce() -> Outcome) -> Outcome {
        match self {
            Outcome::Passed(_) => next(),
            outcome => outcome,
        }
    }

    fn words(&self) -> (&'static str, &str) {
        match self {
            Outcome::Passed(note) => ("passed", note),
            Outcome::Failed(reason) => ("failed", reason),
            Outcome::Skipped(reason) => ("skipped", reason),
        }
    }
}

struct Row {
    name: String,
    outcome: Outcome,
    seconds: f64,
}

/// What earlier steps found, for later ones.
#[derive(Default)]
struct Found {
    servers: Vec<&'static Kind>,
    ycsb_class_path: Option<String>,
    java_drivers: Option<ycsb::JavaDrivers>,
    strace: Option<PathBuf>,
    /// The shared library by its own name, and as it stands in for SQLite's.
    libraries: Option<(PathBuf, PathBuf)>,
    programs: Option<PathBuf>,
    browser: Option<PathBuf>,
}

/// Runs the steps; true if none failed and nothing interrupted them.
pub(crate) fn test(arguments: &Arguments, children: &Children) -> Result<bool> {
    let mut found = Found::default();
    let mut rows = Vec::new();
    for &step in Step::value_variants() {
        println!("\n==> {}: {}", step.name(), step.help());
        let started = Instant::now();
        let outcome = if children.interrupted().is_some() {
            Outcome::Skipped("interrupted".to_owned())
        } else if arguments.skip.contains(&step) {
            Outcome::Skipped(format!("--skip{}", step.leaves_out()))
        } else if step == Step::Servers {
            // A row for each of them.
            rows.extend(servers::KINDS.iter().map(|kind| provide(kind, arguments, &mut found, children)));
            continue;
        } else {
            run(step, arguments.quick, &mut found, children)
        };
        rows.push(row(step.name(), outcome, started));
    }
    print!("\n{}", summary(&rows));
    let failed = |row: &Row| matches!(row.outcome, Outcome::Failed(_));
    // Interrupted in its set-up, a run has only skipped steps.
    Ok(children.interrupted().is_none() && !rows.iter().any(failed))
}

/// Tells how a step ended.
fn row(name: String, outcome: Outcome, started: Instant) -> Row {
    let seconds = started.elapsed().as_secs_f64();
    let (result, note) = outcome.words();
    println!("<== {name} {result} in {seconds:.1} s{}", after_colon(note));
    Row { name, outcome, seconds }
}

/// Sees to it that a server can be started.
fn provide(kind: &'static Kind, arguments: &Arguments, found: &mut Found, children: &Children) -> Row {
    let started = Instant::now();
    let missing = if arguments.quick { Missing::Report } else { Missing::Install };
    let leaves_out = format!("; tests against {} are not run", kind.name);
    let outcome = if arguments.without.iter().any(|name| name == kind.name) {
        Outcome::Skipped(format!("--without{leaves_out}"))
    } else {
        match setup::provide(children, kind.purpose, missing) {
            Ok(note) => {
                found.servers.push(kind);
                Outcome::Passed(kind.stand_in().map_or(note.clone(), |what| format!("{what}: {note}")))
            }
            Err(reason) => Outcome::Skipped(format!("{reason}{leaves_out}")),
        }
    };
    row(kind.name.to_owned(), outcome, started)
}

fn after_colon(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {note}") }
}

fn summary(rows: &[Row]) -> String {
    let mut text = format!("{:<10} {:<8} {:>8}\n", "step", "result", "seconds");
    let mut counts = BTreeMap::from([("passed", 0), ("failed", 0), ("skipped", 0)]);
    for row in rows {
        let (result, note) = row.outcome.words();
        *counts.entry(result).or_default() += 1;
        let cells = format!("{:<10} {result:<8} {:>8.1}  {note}", row.name, row.seconds);
        text += cells.trim_end();
        text.push('\n');
    }
    text += &format!(
        "steps: {} passed, {} failed, {} skipped\n",
        counts["passed"], counts["failed"], counts["skipped"]
    );
    text
}

fn run(step: Step, quick: bool, found: &mut Found, children: &Children) -> Outcome {
    let missing = if quick { Missing::Report } else { Missing::Install };
    match step {
        Step::Servers => Outcome::Passed(String::new()),
        Step::Java if quick => skipped(step, "--quick"),
        Step::Java => {
            let class_path = setup::provide(children, Purpose::Java, missing)
                .and_then(|_where| ycsb::class_path(children));
            match class_path {
                Ok(class_path) => {
                    found.ycsb_class_path = Some(class_path);
                    // With all it takes at hand, a failure is one of the drivers'.
                    match ycsb::java_drivers(children) {
                        Ok(drivers) => {
                            found.java_drivers = Some(drivers);
                            Outcome::Passed(String::new())
                        }
                        Err(reason) => Outcome::Failed(reason),
                    }
                }
                Err(reason) => skipped(step, &reason),
            }
        }
        Step::Trace => match setup::provide(children, Purpose::Trace, missing)
            .and_then(|_where| strace_that_may_trace(children))
        {
            Ok(strace) => {
                let note = strace.display().to_string();
                found.strace = Some(strace);
                Outcome::Passed(note)
            }
            Err(reason) => skipped(step, &reason),
        },
        // It belongs to the workspace: that it cannot be built is a failure.
        Step::Programs => match programs::build(children) {
            Ok(libraries) => {
                found.libraries = Some(libraries);
                match programs::provide(children, missing) {
                    Ok(folder) => {
                        found.programs = Some(folder);
                        Outcome::Passed(String::new())
                    }
                    Err(reason) => skipped(step, &reason),
                }
            }
            Err(reason) => Outcome::Failed(reason),
        },
        Step::Browser => {
            let there = setup::provide(children, Purpose::Browser, missing);
            match there
                .and_then(|_where| setup::find("chromium").ok_or_else(|| "there is no chromium".to_owned()))
            {
                Ok(browser) => {
                    let note = browser.display().to_string();
                    found.browser = Some(browser);
                    Outcome::Passed(note)
                }
                Err(reason) => skipped(step, &reason),
            }
        }
        Step::Fmt => cargo_step(children, &["fmt", "--all", "--check"], &[])
            .then(|| finish(children, &mut fuzz::format_check())),
        Step::House => match house::check() {
            Ok(0) => Outcome::Passed(String::new()),
            Ok(problems) => Outcome::Failed(format!("{problems} problems, listed above")),
            Err(reason) => Outcome::Failed(reason),
        },
        Step::Clippy => {
            let lint = |more: &[&str]| {
                let arguments = [&["clippy", "--workspace"], more, &["--", "-D", "warnings"]].concat();
                cargo_step(children, &arguments, &[])
            };
            let (features, without) = features();
            // What is only measured nobody else compiles.
            let features = format!("{features},{MEASURED}");
            let mut fuzz = fuzz::cargo_without_fuzzer("clippy");
            fuzz.args(["--all-targets", "--", "-D", "warnings"]);
            // What only stores behind features use is unused without them.
            let outcome = lint(&["--all-targets", "--features", &features])
                .then(|| lint(&[]))
                .then(|| finish(children, &mut fuzz));
            noting(outcome, without)
        }
        Step::Test => cargo_test(found, children),
        Step::Tcl if quick => skipped(step, "--quick"),
        Step::Tcl => {
            // What cannot be had, as an archive of Debian's that has moved on,
            // is no failure of ours.
            match tcl::provide(children, missing) {
                Err(reason) => skipped(step, &reason),
                Ok(sources) => match tcl::told(&tcl::Arguments::within(TCL_MINUTES), &sources, children) {
                    Ok((true, summary)) => Outcome::Passed(summary),
                    Ok((false, summary)) => Outcome::Failed(summary),
                    Err(reason) => Outcome::Failed(reason),
                },
            }
        }
        Step::Fuzz if quick => skipped(step, "--quick"),
        Step::Fuzz => match fuzz::provide(children, missing) {
            Ok(()) => finish(children, fuzz::cargo_without_fuzzer("test").arg("--lib")).then(|| {
                match fuzz::all(FUZZ_SECONDS, children) {
                    Ok(counts) => Outcome::Passed(counts),
                    Err(reason) => Outcome::Failed(reason),
                }
            }),
            Err(reason) => skipped(step, &reason),
        },
        Step::Doc if quick => skipped(step, "--quick"),
        Step::Doc => {
            let (features, without) = features();
            let arguments = ["doc", "--workspace", "--no-deps", "--features", &features];
            noting(cargo_step(children, &arguments, &[("RUSTDOCFLAGS", "-D warnings")]), without)
        }
    }
}

/// Where strace is. A container may forbid it to look at other processes.
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

/// What passed without a store says so.
fn noting(outcome: Outcome, without: Option<&str>) -> Outcome {
    match (outcome, without) {
        (Outcome::Passed(_), Some(store)) => {
            Outcome::Passed(format!("without the store {store}, for there is no {}", PROTOC.0))
        }
        (outcome, _) => outcome,
    }
}

fn skipped(step: Step, reason: &str) -> Outcome {
    Outcome::Skipped(format!("{reason}{}", step.leaves_out()))
}

fn cargo_step(children: &Children, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let mut command = crate::cargo();
    command.args(arguments).envs(variables.iter().copied());
    finish(children, &mut command)
}

/// Runs the tests between the start and the stop of the servers, and tells
/// them by environment variables where these are.
fn cargo_test(found: &Found, children: &Children) -> Outcome {
    let mut command = crate::cargo();
    let (features, without) = features();
    // One failing crate must not hide another's failures.
    // Examples are seen by clippy: to link them, and with them the driver of each
    // store once more, takes minutes.
    command.args(["test", "--workspace", "--no-fail-fast", "--features", &features]);
    command.args(["--lib", "--bins", "--tests"]);
    // A variable from outside would make a step run that the summary says was
    // skipped.
    for variable in [
        "SERVAL_YCSB_CLASSPATH",
        "SERVAL_TEST_JAVA_DRIVER",
        "SERVAL_TEST_HBASE_DRIVER",
        "YESQUEL_TEST_STRACE",
        "YESQUEL_TEST_LIBRARY",
        "YESQUEL_TEST_STAND_IN",
        "YESQUEL_TEST_PROGRAMS",
        "SERVAL_TEST_BROWSER",
    ] {
        command.env_remove(variable);
    }
    servers::KINDS.iter().flat_map(|kind| kind.variables).for_each(|variable| {
        command.env_remove(variable);
    });
    if let Some(class_path) = &found.ycsb_class_path {
        command.env("SERVAL_YCSB_CLASSPATH", class_path);
    }
    if let Some(drivers) = &found.java_drivers {
        command.env("SERVAL_TEST_JAVA_DRIVER", &drivers.plain);
        command.env("SERVAL_TEST_HBASE_DRIVER", &drivers.hbase);
    }
    if let Some(strace) = &found.strace {
        command.env("YESQUEL_TEST_STRACE", strace);
    }
    if let Some((own, stand_in)) = &found.libraries {
        command.env("YESQUEL_TEST_LIBRARY", own).env("YESQUEL_TEST_STAND_IN", stand_in);
    }
    if let Some(folder) = &found.programs {
        command.env("YESQUEL_TEST_PROGRAMS", folder);
    }
    if let Some(browser) = &found.browser {
        command.env("SERVAL_TEST_BROWSER", browser);
    }
    let started = Instant::now();
    let (mut fixtures, mut problems): (Vec<(&Kind, Fixture)>, Vec<String>) = Default::default();
    // It is installed and does not start: a failure, but no reason to leave all other tests out.
    let problem = |kind: &Kind, reason| format!("{reason}; tests against {} were not run", kind.name);
    for &kind in &found.servers {
        match (kind.fixture)(children) {
            Ok(fixture) => fixtures.push((kind, fixture)),
            Err(reason) => problems.push(problem(kind, reason)),
        }
    }
    fixtures.retain(|(kind, fixture)| {
        let ready = fixture.servers.iter().try_for_each(|server| server.wait_until_ready());
        ready.map_err(|reason| problems.push(problem(kind, reason))).is_ok()
    });
    let servers: usize = fixtures.iter().map(|(_, fixture)| fixture.servers.len()).sum();
    println!("    {servers} servers run after {:.1} s", started.elapsed().as_secs_f64());
    command.envs(fixtures.iter().flat_map(|(_, fixture)| fixture.variables.iter().cloned()));
    let documented = ["test", "--workspace", "--no-fail-fast", "--features", &features, "--doc"];
    let outcome = finish(children, &mut command).then(|| cargo_step(children, &documented, &[]));
    if problems.is_empty() {
        return noting(outcome, without);
    }
    if let Outcome::Failed(also) = outcome {
        problems.push(also);
    }
    Outcome::Failed(problems.join("; "))
}

fn finish(children: &Children, command: &mut Command) -> Outcome {
    println!("    {}", line(command));
    match children.check(command) {
        Ok(()) => Outcome::Passed(String::new()),
        Err(_) if children.interrupted().is_some() => Outcome::Failed("interrupted".to_owned()),
        Err(reason) => Outcome::Failed(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_stores_but_one() {
        let manifest = "fjall = []\nfull = [\"cassandra\", \"etcd\", \"fjall\"]\n";
        assert_eq!(all_but("etcd", manifest), "serval/cassandra,serval/fjall");
        let ours = all_but(PROTOC.1, include_str!("../../bench/serval/Cargo.toml"));
        assert!(ours.contains("serval/cassandra,") && !ours.contains("etcd"), "{ours}");
    }

    #[test]
    fn the_summary_counts_steps_and_says_why() {
        let row = |name: &str, outcome, seconds| Row { name: name.to_owned(), outcome, seconds };
        let rows = [
            row("redis", Outcome::Skipped("no apt-get".to_owned()), 0.04),
            row("fmt", Outcome::Passed(String::new()), 1.26),
            row("test", Outcome::Failed("exit 101".to_owned()), 100.0),
            row("doc", Outcome::Passed(String::new()), 2.0),
        ];
        assert_eq!(
            summary(&rows),
            "step       result    seconds\n\
             redis      skipped       0.0  no apt-get\n\
             fmt        passed        1.3\n\
             test       failed      100.0  exit 101\n\
             doc        passed        2.0\n\
             steps: 2 passed, 1 failed, 1 skipped\n"
        );
    }
}
