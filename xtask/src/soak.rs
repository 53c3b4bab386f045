//! `cargo xtask soak`: tests that take too long for each change, within a time limit.
//!
//! | part | share of the time after lints and pairs | part in `cargo xtask test` |
//! |---|---|---|
//! | lints of the default build | as long as they take | those of the full build |
//! | `compare` of a hundred real A/A pairs | as long as they take | sixteen |
//! | SQLite's own tests on Yesquel's trees | 30 % | 84 s, tests of SQL first |
//! | the same at three servers, tests of SQL first | 10 % | none |
//! | fuzzing of Yesquel's decoders | 15 % | 20 s a target |
//! | Yesquel's server, killed | 10 % | 100 kills |
//! | faults in Yesquel's protocols, which simulations must find | 10 % | that they apply |
//! | four servers in network namespaces | 10 % | two rounds of faults |
//! | MediaWiki on three servers | 5 % | |
//! | seeded tests | the rest | the first seeds |

use std::time::{Duration, Instant};

use clap::Args;

use crate::Result;
use crate::children::{Children, line};
use crate::fuzz;
use crate::mediawiki;
use crate::mutants;
use crate::network;
use crate::setup::Missing;
use crate::simulate;
use crate::tcl;

/// Kills per run of the test program; the time limit is checked between runs.
const KILLS_A_RUN: u64 = 100;
/// Groups of the server that is killed: the first run has one, the second one three, and so on.
const KILLED_GROUPS: [u64; 2] = [1, 3];

// Without an argument group: its name would clash with that of the seeds.
#[derive(Args)]
#[group(skip)]
pub(crate) struct SoakArguments {
    /// Total time; a running part is not interrupted
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = minutes)]
    minutes: f64,
    /// Number of kills of the server, if its share of the time allows that
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    kills: u64,
    #[command(flatten)]
    seeds: simulate::SimulateArguments,
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 100_000.0 => Ok(minutes),
        _ => Err("a number of minutes above 0".to_owned()),
    }
}

/// Returns whether all parts passed. A failing part does not stop the others.
pub(crate) fn soak(arguments: &SoakArguments, children: &Children) -> Result<bool> {
    let started = Instant::now();
    let whole = Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut failed = Vec::new();
    let mut part = |name: &str, run: &mut dyn FnMut() -> Result<bool>| -> Result<()> {
        println!("\n==> {name}");
        let began = Instant::now();
        let outcome = run();
        if children.interrupted().is_some() {
            return Err("interrupted".to_owned());
        }
        let passed = match outcome {
            Ok(passed) => passed,
            Err(reason) => {
                println!("    {reason}");
                false
            }
        };
        let word = if passed { "passed" } else { "failed" };
        println!("<== {name} {word} in {:.0} s", began.elapsed().as_secs_f64());
        if !passed {
            failed.push(name.to_owned());
        }
        Ok(())
    };
    part("lints", &mut || {
        // Code that only the stores of the full build use is unused in this one.
        let mut lints = crate::cargo();
        lints.args(["clippy", "--workspace", "--", "-D", "warnings"]);
        println!("    {}", line(&lints));
        Ok(children.run(&mut lints)?.success())
    })?;
    part("pairs", &mut || {
        let mut pairs = crate::cargo();
        pairs.args(["test", "--release", "--package", "serval", "--test", "compare_aa", "--", "--nocapture"]);
        println!("    PAIRS=50 {}", line(&pairs));
        Ok(children.run(pairs.env("PAIRS", "50"))?.success())
    })?;
    // Lints and pairs would otherwise take the time of the seeds. A short soak reaches each part.
    let shared = whole.saturating_sub(started.elapsed()).max(whole.mul_f64(0.25));
    let scripts = |share: f64, is_at_cluster: bool| {
        let sources = tcl::provide(children, Missing::Install)?;
        let limit = tcl::TclArguments::within(shared.mul_f64(share).as_secs_f64() / 60.0, None);
        let limit = if is_at_cluster { limit.at_cluster() } else { limit };
        let (passed, summary) = tcl::run(&limit, &sources, None, children)?;
        println!("    {summary}");
        Ok(passed)
    };
    part("tcl", &mut || scripts(0.3, false))?;
    part("tcl at three servers", &mut || scripts(0.1, true))?;
    part("fuzz", &mut || {
        fuzz::provide(children, Missing::Install)?;
        let seconds = shared.mul_f64(0.15).as_secs() / fuzz::batches();
        fuzz::all(seconds.max(1), None, children).map(|_counts| true)
    })?;
    part("kills", &mut || kills(arguments.kills, shared.mul_f64(0.1), children))?;
    part("mutants", &mut || mutants::mutants_for(shared.mul_f64(0.1), children))?;
    part("network", &mut || {
        network::part(&network::NetworkArguments::within(shared.mul_f64(0.1)), children)
    })?;
    part("mediawiki", &mut || mediawiki::part(shared.mul_f64(0.05), children))?;
    part("seeds", &mut || {
        let rest = whole.saturating_sub(started.elapsed());
        simulate::simulate_for(&arguments.seeds, rest, children)
    })?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    if failed.is_empty() {
        println!("\nsoak passed in {minutes:.1} min");
    } else {
        println!("\nsoak failed in {minutes:.1} min: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

/// Kills Yesquel's server this number of times, or until the time limit. A failing test prints how
/// to repeat it.
fn kills(count: u64, limit: Duration, children: &Children) -> Result<bool> {
    let started = Instant::now();
    let (mut done, mut groups) = (0, KILLED_GROUPS.into_iter().cycle());
    while done < count && (done == 0 || started.elapsed() < limit) {
        let now = KILLS_A_RUN.min(count - done);
        let mut kill = crate::cargo();
        kill.args(["test", "--release", "--package", "yesquel-cli", "--test", "kill", "--", "--nocapture"]);
        let groups = groups.next().unwrap_or(1).to_string();
        kill.env("KILLS", now.to_string()).env("SERVER_GROUPS", &groups);
        println!("    KILLS={now} SERVER_GROUPS={groups} {}", line(&kill));
        if !children.run(&mut kill)?.success() {
            return Ok(false);
        }
        done += now;
    }
    println!("    {done} kills");
    Ok(true)
}
