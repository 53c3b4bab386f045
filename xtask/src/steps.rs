//! `cargo xtask test`: what a change must pass, step by step.
//!
//! A failed step does not keep the others from running: one run tells all
//! there is to mend. What could not run is listed as skipped, with the reason.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::Result;
use crate::children::{Children, line};
use crate::servers::redis::{Options, RedisServer, generated_password};
use crate::setup::{self, Missing, Purpose};
use crate::ycsb;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Install and fetch nothing, regenerate no goldens, build no documentation
    #[arg(long)]
    quick: bool,
    /// Leave this step out; may be given several times
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
}

/// The steps, in the order they run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Set-up: redis-server, installed with apt-get when missing
    Redis,
    /// Set-up: a JDK, Maven and YCSB's classes, to regenerate the goldens
    Java,
    /// cargo fmt --check
    Fmt,
    /// cargo clippy, warnings denied
    Clippy,
    /// cargo test, with the servers up
    Test,
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
            Step::Redis => "; tests against Redis are not run",
            Step::Java => "; the committed goldens are used without being regenerated",
            Step::Fmt | Step::Clippy | Step::Test | Step::Doc => "",
        }
    }
}

enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Outcome {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Outcome::Passed(note) => ("passed", note),
            Outcome::Failed(reason) => ("failed", reason),
            Outcome::Skipped(reason) => ("skipped", reason),
        }
    }
}

struct Row {
    step: Step,
    outcome: Outcome,
    seconds: f64,
}

/// What earlier steps found, for later ones.
#[derive(Default)]
struct Found {
    redis: bool,
    ycsb_class_path: Option<String>,
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
        } else {
            run(step, arguments.quick, &mut found, children)
        };
        let seconds = started.elapsed().as_secs_f64();
        let (result, note) = outcome.words();
        println!("<== {} {result} in {seconds:.1} s{}", step.name(), after_colon(note));
        rows.push(Row { step, outcome, seconds });
    }
    print!("\n{}", summary(&rows));
    let failed = |row: &Row| matches!(row.outcome, Outcome::Failed(_));
    // Interrupted in its set-up, a run has only skipped steps.
    Ok(children.interrupted().is_none() && !rows.iter().any(failed))
}

fn after_colon(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {note}") }
}

fn summary(rows: &[Row]) -> String {
    let mut text = format!("{:<8} {:<8} {:>8}\n", "step", "result", "seconds");
    let mut counts = BTreeMap::from([("passed", 0), ("failed", 0), ("skipped", 0)]);
    for row in rows {
        let (result, note) = row.outcome.words();
        *counts.entry(result).or_default() += 1;
        let name = row.step.name();
        let cells = format!("{name:<8} {result:<8} {:>8.1}  {note}", row.seconds);
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
        Step::Redis => match setup::provide(children, Purpose::Redis, missing) {
            Ok(note) => {
                found.redis = true;
                Outcome::Passed(note)
            }
            Err(reason) => skipped(step, &reason),
        },
        Step::Java if quick => skipped(step, "--quick"),
        Step::Java => {
            let class_path = setup::provide(children, Purpose::Java, missing)
                .and_then(|_where| ycsb::class_path(children));
            match class_path {
                Ok(class_path) => {
                    found.ycsb_class_path = Some(class_path);
                    Outcome::Passed(String::new())
                }
                Err(reason) => skipped(step, &reason),
            }
        }
        Step::Fmt => cargo_step(children, &["fmt", "--all", "--check"], &[]),
        Step::Clippy => {
            let lint = ["clippy", "--workspace", "--all-targets"];
            let deny = ["--", "-D", "warnings"];
            cargo_step(children, &[&lint[..], &deny[..]].concat(), &[])
        }
        Step::Test => cargo_test(found, children),
        Step::Doc if quick => skipped(step, "--quick"),
        Step::Doc => {
            cargo_step(children, &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
        }
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
    // One failing crate must not hide another's failures.
    command.args(["test", "--workspace", "--no-fail-fast"]);
    // A variable from outside would make a step run that the summary says was
    // skipped.
    for variable in
        ["SERVAL_TEST_REDIS", "SERVAL_TEST_REDIS_AUTH", "SERVAL_TEST_REDIS_PASSWORD", "SERVAL_YCSB_CLASSPATH"]
    {
        command.env_remove(variable);
    }
    if let Some(class_path) = &found.ycsb_class_path {
        command.env("SERVAL_YCSB_CLASSPATH", class_path);
    }
    if !found.redis {
        return finish(children, &mut command);
    }
    match start_redis_servers(children) {
        Ok((open, guarded)) => {
            command
                .env("SERVAL_TEST_REDIS", open.address())
                .env("SERVAL_TEST_REDIS_AUTH", guarded.address())
                .env("SERVAL_TEST_REDIS_PASSWORD", guarded.password().unwrap_or_default());
            finish(children, &mut command)
        }
        // Redis is installed and does not start: a failure, but no reason to
        // leave all other tests out.
        Err(reason) => {
            let reason = format!("{reason}; tests against Redis were not run");
            match finish(children, &mut command) {
                Outcome::Failed(also) => Outcome::Failed(format!("{reason}; {also}")),
                Outcome::Passed(_) | Outcome::Skipped(_) => Outcome::Failed(reason),
            }
        }
    }
}

/// A Redis for anyone, and one that asks for a password.
fn start_redis_servers(children: &Children) -> Result<(RedisServer, RedisServer)> {
    let open = RedisServer::start(children, &Options::default())?;
    let guarded = RedisServer::start(
        children,
        &Options { password: Some(generated_password()?), ..Options::default() },
    )?;
    Ok((open, guarded))
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
    fn the_summary_counts_steps_and_says_why() {
        let row = |step, outcome, seconds| Row { step, outcome, seconds };
        let rows = [
            row(Step::Redis, Outcome::Skipped("no apt-get".to_owned()), 0.04),
            row(Step::Fmt, Outcome::Passed(String::new()), 1.26),
            row(Step::Test, Outcome::Failed("exit 101".to_owned()), 100.0),
            row(Step::Doc, Outcome::Passed(String::new()), 2.0),
        ];
        assert_eq!(
            summary(&rows),
            "step     result    seconds\n\
             redis    skipped       0.0  no apt-get\n\
             fmt      passed        1.3\n\
             test     failed      100.0  exit 101\n\
             doc      passed        2.0\n\
             steps: 2 passed, 1 failed, 1 skipped\n"
        );
    }
}
