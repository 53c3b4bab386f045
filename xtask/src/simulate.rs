//! Seeds by the million: Yesquel's tests against plain references, failing
//! disks and bad networks, which `cargo xtask test` runs with some thousand.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::Result;
use crate::children::Children;

#[derive(Args)]
pub(crate) struct Arguments {
    /// How many seeds each test is given [default: 1000000, or 1 where a seed is named]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "SEED", alias = "from")]
    seed: Option<u64>,
    /// Only this test
    #[arg(long, value_name = "TEST", value_parser = PossibleValuesParser::new(TESTS.iter().map(|test| test.name)))]
    only: Option<String>,
}

/// A test that takes seeds.
struct Test {
    name: &'static str,
    package: &'static str,
    test: &'static str,
}

const TESTS: &[Test] = &[
    Test { name: "engine", package: "yesquel-engine", test: "model" },
    Test { name: "budget", package: "yesquel-engine", test: "budget" },
    Test { name: "clocks", package: "yesquel-engine", test: "clocks" },
    Test { name: "leases", package: "yesquel-engine", test: "leases" },
    Test { name: "tree", package: "yesquel-tree", test: "model" },
    Test { name: "log", package: "yesquel-log", test: "crash" },
    Test { name: "accounts", package: "yesquel-client", test: "several_servers" },
    Test { name: "cluster", package: "yesquel-tree", test: "cluster" },
    Test { name: "sql", package: "yesquel-differential", test: "random" },
    Test { name: "sqllogictest", package: "yesquel-differential", test: "logic" },
];

/// Parts in which the seeds go, so that it can be said how far it is.
const PARTS: u64 = 20;

/// Whether all seeds passed. A test prints the seed that fails and the fewest
/// steps that fail; how to run it again is said below it.
pub(crate) fn simulate(arguments: &Arguments, children: &Children) -> Result<bool> {
    let first = arguments.seed.unwrap_or(0);
    let count = arguments.seeds.unwrap_or(if arguments.seed.is_some() { 1 } else { 1_000_000 });
    let end = first.saturating_add(count);
    let part = count.div_ceil(PARTS);
    let meant = |test: &&Test| arguments.only.as_ref().is_none_or(|only| only == test.name);
    for test in TESTS.iter().filter(meant) {
        let start = Instant::now();
        let mut from = first;
        while from < end {
            let to = from.saturating_add(part).min(end);
            if let Some(output) = failure(test, from..to, children)? {
                print!("{output}");
                if let Some(seed) = failing_seed(&output) {
                    println!("again: cargo xtask simulate --only {} --seed {seed}", test.name);
                }
                return Ok(false);
            }
            from = to;
            let done = from - first;
            let passed = start.elapsed().as_secs_f64();
            let left = passed / done as f64 * (count - done) as f64;
            println!("{}: {done} of {count} seeds, {passed:.0} s, {left:.0} s to go", test.name);
        }
    }
    Ok(true)
}

/// What a test says of some seeds, if one of them fails.
fn failure(test: &Test, seeds: std::ops::Range<u64>, children: &Children) -> Result<Option<String>> {
    let mut command = crate::cargo();
    command.args(["test", "--quiet", "--release", "--package", test.package, "--test", test.test]);
    command.env("SEEDS", format!("{}..{}", seeds.start, seeds.end)).stdout(Stdio::piped());
    let mut running = children.start(&mut command)?;
    let mut output = String::new();
    if let Some(mut stdout) = running.child().and_then(|child| child.stdout.take()) {
        stdout.read_to_string(&mut output).map_err(|error| format!("{}: its output: {error}", test.name))?;
    }
    Ok(if running.wait()?.status.success() { None } else { Some(output) })
}

/// The seed that a test has named as the one that fails.
fn failing_seed(output: &str) -> Option<u64> {
    let (_, after) = output.split_once("(SEEDS=")?;
    let (seed, _) = after.split_once("..")?;
    seed.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_fails_is_found_in_what_a_test_says() {
        assert_eq!(failing_seed("thread panicked:\nseed 7 (SEEDS=7..8): met 3\nafter\n  3\n"), Some(7));
        assert_eq!(failing_seed("error: no such test"), None);
    }
}
