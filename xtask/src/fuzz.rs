//! Bytes of anybody against what Yesquel reads from the network and from its
//! disk: the targets of `yesquel/fuzz`, by cargo-fuzz.
//!
//! They are built by the stable compiler, for they go without a sanitizer:
//! our code has nothing unsafe, and with one they are four times slower.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use clap::Args;

use crate::Result;
use crate::children::Children;
use crate::setup::{self, Missing, Purpose};

/// The version that is installed where there is none.
const CARGO_FUZZ: &str = "0.13.2";

/// Where the targets are, from the workspace's root.
const FOLDER: &str = "yesquel/fuzz";

/// A target, and how long its inputs are at most: long enough for a frame and
/// some more, or for some hundred steps.
struct Target {
    name: &'static str,
    bytes_max: usize,
}

const TARGETS: &[Target] = &[
    Target { name: "wire", bytes_max: 80 << 10 },
    Target { name: "engine", bytes_max: 2 << 10 },
    Target { name: "log", bytes_max: 4 << 10 },
    Target { name: "checkpoint", bytes_max: 2 << 10 },
];

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only this target; may be given several times
    #[arg(long, value_name = "TARGET", value_parser = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>())]
    target: Vec<String>,
    /// How long each of them is run
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    seconds: u64,
    /// Run this input alone, and tell what it does
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
}

/// Whether nothing was found.
pub(crate) fn fuzz(arguments: &Arguments, children: &Children) -> Result<bool> {
    provide(children, Missing::Install)?;
    let is_meant = |target: &&Target| {
        arguments.target.is_empty() || arguments.target.iter().any(|name| name == target.name)
    };
    let meant: Vec<&Target> = TARGETS.iter().filter(is_meant).collect();
    if let Some(input) = &arguments.replay {
        // The targets run in the root, and we may not.
        let input = fs::canonicalize(input).map_err(|error| format!("{}: {error}", input.display()))?;
        for target in meant {
            let mut command = run(target);
            command.arg(&input).args(["--", "-timeout=10"]).env("YESQUEL_FUZZ_SHOW", "1");
            children.check(&mut command)?;
        }
        return Ok(true);
    }
    each(&meant, arguments.seconds, children).map(|_summary| true)
}

/// Runs every target for some seconds; says how many inputs each was given.
pub(crate) fn all(seconds: u64, children: &Children) -> Result<String> {
    each(&TARGETS.iter().collect::<Vec<_>>(), seconds, children)
}

/// As many side by side as there are processors. What one finds does not keep the
/// others from running.
fn each(targets: &[&Target], seconds: u64, children: &Children) -> Result<String> {
    children.check(&mut cargo_fuzz("build"))?;
    let (mut counts, mut problems) = (Vec::new(), Vec::new());
    let beside = thread::available_parallelism().map_or(1, usize::from);
    let outcomes = targets.chunks(beside).flat_map(|targets| {
        thread::scope(|scope| {
            let run = |target| scope.spawn(move || one(target, seconds, children));
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

/// The number of inputs, none of which broke anything.
fn one(target: &Target, seconds: u64, children: &Children) -> Result<u64> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let corpus = folder().join("corpus").join(target.name);
    fs::create_dir_all(&corpus).map_err(failed(&corpus))?;
    let told = folder().join(format!("{}.log", target.name));
    let file = File::create(&told).map_err(failed(&told))?;
    let mut command = run(target);
    // What it finds on its way is kept in the first folder.
    command.arg(&corpus).arg(format!("{FOLDER}/seeds/{}", target.name)).args([
        "--",
        "-rss_limit_mb=2048",
        "-timeout=10",
        "-print_final_stats=1",
    ]);
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={}", target.bytes_max));
    // It tells of every step.
    command.stderr(Stdio::from(file));
    let status = children.run(&mut command)?;
    let text = fs::read(&told).map_err(failed(&told))?;
    let text = String::from_utf8_lossy(&text);
    if status.success() {
        return executions(&text).ok_or_else(|| format!("{}: it does not say what it did", told.display()));
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

/// How many inputs there were.
fn executions(text: &str) -> Option<u64> {
    let told = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    told.trim().parse().ok()
}

/// The file that has the input that failed.
fn input(text: &str) -> Option<&str> {
    let (_, file) = text.lines().find_map(|line| line.split_once("Test unit written to "))?;
    let file = file.trim();
    // Told from the root, if it is there.
    Some(file.find(FOLDER).map_or(file, |start| &file[start..]))
}

/// What it said of the failure, without the many lines before.
fn failure(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.contains("panicked at") || line.contains("ERROR:"));
    let start = start.unwrap_or(lines.len().saturating_sub(20));
    let end = lines.len().min(start + 60);
    lines[start..end].join("\n")
}

fn run(target: &Target) -> Command {
    let mut command = cargo_fuzz("run");
    command.arg(target.name);
    command
}

fn cargo_fuzz(task: &str) -> Command {
    let mut command = crate::cargo();
    command.args(["fuzz", task, "--fuzz-dir", FOLDER, "--sanitizer", "none", "--target-dir"]).arg(folder());
    command
}

/// Where it is built, and where what it has found out is kept.
fn folder() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    crate::root().join(target).join("fuzz")
}

/// What Clippy and the tests do with the crate of the targets, for which there
/// need be no C++ compiler: libFuzzer is left out.
pub(crate) fn cargo_without_fuzzer(task: &str) -> Command {
    let mut command = crate::cargo();
    command.arg(task).args(["--manifest-path", &format!("{FOLDER}/Cargo.toml"), "--no-default-features"]);
    command.arg("--target-dir").arg(folder());
    command
}

/// `cargo fmt --check` of the crate of the targets.
pub(crate) fn format_check() -> Command {
    let mut command = crate::cargo();
    command.args(["fmt", "--manifest-path", &format!("{FOLDER}/Cargo.toml"), "--check"]);
    command
}

/// Sees to it that there is cargo-fuzz, and what it builds libFuzzer with.
pub(crate) fn provide(children: &Children, missing: Missing) -> Result<()> {
    setup::provide(children, Purpose::Fuzz, missing)?;
    let is_there = || {
        let mut command = crate::cargo();
        command.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        children.run(&mut command).map(|status| status.success())
    };
    if is_there()? {
        return Ok(());
    }
    let install = ["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ];
    match missing {
        Missing::Report => return Err(format!("no cargo-fuzz (cargo {})", install.join(" "))),
        Missing::Install => children
            .check(crate::cargo().args(install))
            .map_err(|error| format!("no cargo-fuzz, and {error}"))?,
    }
    if is_there()? { Ok(()) } else { Err("no cargo-fuzz, although it is installed".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_understood() {
        let text = "#99 NEW cov: 5\nstat::number_of_executed_units: 816035\nstat::peak_rss_mb: 30\n";
        assert_eq!((executions(text), input(text)), (Some(816_035), None));
        let text = "#7 NEW cov: 5\n\nthread '<unnamed>' panicked at src/wire.rs:186:9:\n24 held of 22\n\
                    artifact_prefix='/somewhere/yesquel/fuzz/artifacts/wire/'; Test unit written to \
                    /somewhere/yesquel/fuzz/artifacts/wire/crash-1\n";
        assert_eq!(input(text), Some("yesquel/fuzz/artifacts/wire/crash-1"));
        assert!(failure(text).starts_with("thread '<unnamed>' panicked at"), "{}", failure(text));
    }
}
