//! Fuzzes Yesquel's input from the network and the disk: builds the targets of `yesquel/fuzz` with
//! libFuzzer and runs them.
//!
//! The stable compiler is enough because the targets run without a sanitizer:
//! our code has nothing unsafe, and a sanitizer makes them four times slower.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use clap::Args;
use serde_json::json;

use crate::Result;
use crate::children::Children;
use crate::setup::{self, Missing, ProgramPurpose};
use crate::unchanged::{InputDigest, Passed};

/// The crate of the targets, from the workspace's root.
const FOLDER: &str = "yesquel/fuzz";

/// Compiler flags of a fuzzing build, as cargo-fuzz sets them: LLVM's coverage counters for
/// libFuzzer, and assertions.
const RUSTFLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Clink-dead-code";

/// A target and its maximum input length: enough for a frame and more, or for some hundred steps.
struct FuzzTarget {
    name: &'static str,
    bytes_max: usize,
}

const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "wire", bytes_max: 80 << 10 },
    FuzzTarget { name: "engine", bytes_max: 2 << 10 },
    FuzzTarget { name: "log", bytes_max: 4 << 10 },
    FuzzTarget { name: "checkpoint", bytes_max: 2 << 10 },
];

#[derive(Args)]
pub(crate) struct FuzzArguments {
    /// Only this target; may be given several times
    #[arg(long, value_name = "TARGET", value_parser = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>())]
    target: Vec<String>,
    /// Duration of each target
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    seconds: u64,
    /// Run this input alone, and print what it does
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
}

/// Fuzzes; returns whether no failure was found.
pub(crate) fn fuzz(arguments: &FuzzArguments, children: &Children) -> Result<bool> {
    provide(children, Missing::Install)?;
    let targets = Targets::build(children)?;
    let is_meant = |target: &&FuzzTarget| {
        arguments.target.is_empty() || arguments.target.iter().any(|name| name == target.name)
    };
    let meant: Vec<&FuzzTarget> = TARGETS.iter().filter(is_meant).collect();
    if let Some(input) = &arguments.replay {
        // The targets run in the workspace's root, this process perhaps elsewhere.
        let input = fs::canonicalize(input).map_err(|error| format!("{}: {error}", input.display()))?;
        for target in meant {
            let mut command = targets.command(target);
            command.arg(&input).arg("-timeout=10").env("YESQUEL_FUZZ_SHOW", "1");
            children.check(&mut command)?;
        }
        return Ok(true);
    }
    targets.each(&meant, arguments.seconds, children).map(|_summary| true)
}

/// Runs every target for this number of seconds; returns a summary with the number of inputs. With
/// `passed`, targets that passed before and have not changed are not run.
pub(crate) fn all(seconds: u64, passed: Option<&Passed>, children: &Children) -> Result<String> {
    let targets = Targets::build(children)?;
    let all: Vec<&FuzzTarget> = TARGETS.iter().collect();
    let Some(passed) = passed else { return targets.each(&all, seconds, children) };
    let mut stamp = InputDigest::new();
    all.iter().for_each(|target| stamp.content(&targets.programs.join(target.name), &|_| false));
    stamp.content(&crate::root().join(FOLDER).join("seeds"), &|_| false);
    let stamp = stamp.finish();
    if let Some(before) = passed.unchanged("fuzz", stamp.as_deref()) {
        return Ok(format!("not run, unchanged since {}", before.as_str().unwrap_or_default()));
    }
    let outcome = targets.each(&all, seconds, children);
    passed.set("fuzz", outcome.is_ok(), stamp.as_deref(), &json!(outcome.as_deref().unwrap_or_default()));
    outcome
}

/// How many batches `all` runs: its time is that many times `seconds`.
pub(crate) fn batches() -> u64 {
    TARGETS.len().div_ceil(beside()) as u64
}

/// Targets that run side by side.
fn beside() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The built targets.
struct Targets {
    /// The folder of their programs.
    programs: PathBuf,
}

impl Targets {
    fn build(children: &Children) -> Result<Targets> {
        // A named target keeps the flags away from build scripts and macros.
        let host = host(children)?;
        let mut command = crate::cargo();
        command.args(["build", "--release", "--package", "yesquel-fuzz", "--features", "fuzzer", "--bins"]);
        command.args([
            "--config",
            "profile.release.lto='off'",
            "--config",
            "profile.release.codegen-units=16",
        ]);
        command.args(["--target", &host, "--target-dir"]).arg(folder()).env("RUSTFLAGS", RUSTFLAGS);
        children.check(&mut command)?;
        Ok(Targets { programs: folder().join(host).join("release") })
    }

    /// Runs one target per processor at a time. A failure of one does not stop the others.
    fn each(&self, targets: &[&FuzzTarget], seconds: u64, children: &Children) -> Result<String> {
        let (mut counts, mut problems) = (Vec::new(), Vec::new());
        let outcomes = targets.chunks(beside()).flat_map(|targets| {
            thread::scope(|scope| {
                let run = |target| scope.spawn(move || self.one(target, seconds, children));
                let running: Vec<_> = targets.iter().map(|target| (*target, run(*target))).collect();
                let ended = running.into_iter().map(|(target, running)| {
                    let died = || Err(format!("{}: the thread that ran it died", target.name));
                    (target, running.join().unwrap_or_else(|_| died()))
                });
                ended.collect::<Vec<_>>()
            })
        });
        for (target, outcome) in outcomes {
            match outcome {
                Ok(count) => {
                    let rate = count / seconds.max(1);
                    println!("    {}: {count} inputs, {rate} a second", target.name);
                    counts.push(format!("{} {count} inputs", target.name));
                }
                Err(reason) if children.interrupted().is_some() => return Err(reason),
                Err(reason) => {
                    println!("    {reason}");
                    problems.push(reason);
                }
            }
        }
        if problems.is_empty() { Ok(counts.join(", ")) } else { Err(problems.join("; ")) }
    }

    /// Returns the number of inputs, all without failure.
    fn one(&self, target: &FuzzTarget, seconds: u64, children: &Children) -> Result<u64> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("{path}: {error}")
        };
        let corpus = folder().join("corpus").join(target.name);
        fs::create_dir_all(&corpus).map_err(failed(&corpus))?;
        let artifacts = crate::root().join(FOLDER).join("artifacts").join(target.name);
        fs::create_dir_all(&artifacts).map_err(failed(&artifacts))?;
        let told = folder().join(format!("{}.log", target.name));
        let file = File::create(&told).map_err(failed(&told))?;
        let mut command = self.command(target);
        // libFuzzer keeps the inputs that reach new code in the first folder.
        command.arg(&corpus).arg(format!("{FOLDER}/seeds/{}", target.name)).args([
            "-rss_limit_mb=2048",
            "-timeout=10",
            "-print_final_stats=1",
        ]);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={}", target.bytes_max));
        // It prints every step.
        command.stderr(Stdio::from(file));
        let status = children.run(&mut command)?;
        let text = fs::read(&told).map_err(failed(&told))?;
        let text = String::from_utf8_lossy(&text);
        if status.success() {
            return executions(&text)
                .ok_or_else(|| format!("{}: it does not say what it did", told.display()));
        }
        if children.interrupted().is_some() {
            return Err("interrupted".to_owned());
        }
        println!("{}", failure(&text));
        Err(match input(&text) {
            Some(input) => format!(
                "{} found {input}: see it again with `cargo xtask fuzz --target {} --replay {input}`",
                target.name, target.name
            ),
            None => format!("{} failed: {status}; {} has all that it said", target.name, told.display()),
        })
    }

    /// The command of a target's program; failing inputs go to the folder of artifacts.
    fn command(&self, target: &FuzzTarget) -> Command {
        let mut command = Command::new(self.programs.join(target.name));
        let artifacts = format!("{FOLDER}/artifacts/{}/", target.name);
        command.current_dir(crate::root()).arg(format!("-artifact_prefix={artifacts}"));
        command
    }
}

/// The compiler's host triple.
fn host(children: &Children) -> Result<String> {
    let told = children.printed(Command::new("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

/// Parses the number of inputs.
fn executions(text: &str) -> Option<u64> {
    let told = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    told.trim().parse().ok()
}

/// Parses the path of the failing input.
fn input(text: &str) -> Option<&str> {
    let (_, file) = text.lines().find_map(|line| line.split_once("Test unit written to "))?;
    let file = file.trim();
    // Relative to the workspace's root, if below it.
    Some(file.find(FOLDER).map_or(file, |start| &file[start..]))
}

/// Returns the message of the failure, without the lines before it.
fn failure(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.contains("panicked at") || line.contains("ERROR:"));
    let start = start.unwrap_or(lines.len().saturating_sub(20));
    let end = lines.len().min(start + 60);
    lines[start..end].join("\n")
}

/// Folder of the builds and the corpus.
fn folder() -> PathBuf {
    crate::target().join("fuzz")
}

/// Makes sure that a compiler for libFuzzer's sources is installed.
pub(crate) fn provide(children: &Children, missing: Missing) -> Result<()> {
    setup::provide(children, ProgramPurpose::Fuzz, missing).map(|_where| ())
}
