//! `serval driver`: for those who write one.

use super::{properties, run_properties, store};
use crate::{
    args::{CheckArgs, PropertyArgs, ServeArgs},
    failure::{Exit, Failure},
    stdout,
};
use anstyle::{AnsiColor, Style};
use rustix::event::{PollFd, PollFlags, poll};
use serval_driver::{
    Driver,
    check::{self, CheckReport, CheckResult},
    serve::{self, ServeError},
};
use serval_model::properties::Faults;
use serval_stores::Opener;
use serval_wrappers::WrapperSettings;
use std::{fmt::Write, process::ExitCode, time::Duration};

/// A word as a shell needs it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn shown(verdict: &CheckResult) -> (&'static str, Style, &str) {
    let style = |colour: AnsiColor| colour.on_default();
    match verdict {
        CheckResult::Passed => ("passed", style(AnsiColor::Green), ""),
        CheckResult::Failed(why) => ("FAILED", style(AnsiColor::Red).bold(), why),
        CheckResult::Remarked(what) => ("remark", style(AnsiColor::Yellow), what),
        CheckResult::Skipped(why) => ("skipped", Style::new().dimmed(), why),
    }
}

fn json(report: &CheckReport) -> String {
    let checks = report.checks.iter().map(|check| {
        let (word, _, why) = shown(&check.verdict);
        serde_json::json!({ "name": check.name, "result": word.to_lowercase(), "why": why })
    });
    let document = serde_json::json!({
        "store": report.store,
        "passed": report.passed(),
        "capabilities": report.capabilities.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "hop_ns": report.hop_ns,
        "checks": checks.collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

/// `serval driver check PROGRAM`.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let line: Vec<String> = args.program.iter().map(|word| quoted(word)).collect();
    let command = format!("driver.command={}", line.join(" "));
    let given = PropertyArgs {
        files: Vec::new(),
        properties: args.properties.iter().cloned().chain([command]).collect(),
    };
    let report = check::check(Driver::open(&properties(&given)?)?)?;
    if args.json {
        stdout(json(&report).as_bytes())?;
    } else {
        let verbs: Vec<&str> = report.capabilities.iter().map(|kind| kind.name()).collect();
        let verbs = if verbs.is_empty() { "no verbs".to_owned() } else { verbs.join(", ") };
        anstream::println!("driver of '{}' with {verbs}", report.store.escape_debug());
        for check in &report.checks {
            let (word, style, why) = shown(&check.verdict);
            let mut line = format!("  {style}{word:<8}{style:#} {}", check.name);
            if !why.is_empty() {
                let _ = write!(line, "\n           {why}");
            }
            anstream::println!("{line}");
        }
        if let Some(ns) = report.hop_ns {
            let hop = Duration::from_nanos(ns);
            anstream::println!(
                "the way to it and back, without its own time: {hop:.1?} (median, one client)"
            );
        }
        let words = if report.passed() { "It keeps" } else { "It does not keep" };
        anstream::println!("{words} to the protocol.");
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { Exit::OperationsFailed.into() })
}

/// `serval driver serve STORE`.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let (info, properties) = (store(&args.store)?, run_properties(&args.properties)?);
    if let Some(name) = WrapperSettings::asked_for(&properties) {
        let problem = format!("{name} has no effect in a driver: give it to the run that asks the driver");
        return Err(Faults::one(problem).into());
    }
    let served = serve::input().and_then(|input| {
        serve::serve(&Opener(info), &properties, input, serve::output()?, end_when_left_alone)
    });
    served.map_err(|error| match error {
        ServeError::Faults(faults) => faults.into(),
        ServeError::Store(error) => error.into(),
        error @ (ServeError::Io(_) | ServeError::Protocol(_)) => Failure::store(error.to_string()),
    })
}

/// How much longer than Serval waits for its driver's end this one waits: Serval, if it
/// lives, comes first and says so.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends the process some time after its client has closed the connection, even if the store
/// has not answered.
fn end_when_left_alone(grace: Duration) {
    std::thread::spawn(move || {
        let stdin = std::io::stdin();
        // Requests no events: the end of the other side is always reported.
        let mut files = [PollFd::new(&stdin, PollFlags::empty())];
        while !matches!(poll(&mut files, None), Ok(count) if count > 0) {
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(grace + PATIENCE);
        tell!("Serval has hung up, and the store does not let go: ended");
        std::process::exit(i32::from(Exit::Store.code()));
    });
}
