//! Seeds by the million for Yesquel's seeded tests: against plain references, on failing disks and
//! bad networks. `cargo xtask test` runs some thousand.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::Result;
use crate::children::Children;

#[derive(Args)]
pub(crate) struct SimulateArguments {
    /// Number of seeds for each test [default: 1000000, or 1 where a seed is named]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "SEED", alias = "from")]
    seed: Option<u64>,
    /// Run only this test
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
    Test { name: "replication", package: "yesquel-replication", test: "group" },
    Test { name: "sql", package: "yesquel-differential", test: "random" },
    Test { name: "sqllogictest", package: "yesquel-differential", test: "logic" },
];

/// Number of parts in which a fixed number of seeds runs, each followed by a line of progress.
const PARTS: u64 = 20;

/// Seeds of the first part where a time limits them.
const FIRST_PART: u64 = 100;

/// If a part takes less time than this, the next one has twice as many seeds.
const PART_MIN: Duration = Duration::from_secs(10);

/// Runs the seeds; returns whether all passed. A test prints the failing seed with a minimal list
/// of steps, and a line below it says how to repeat it.
pub(crate) fn simulate(arguments: &SimulateArguments, children: &Children) -> Result<bool> {
    let count = arguments.seeds.unwrap_or(if arguments.seed.is_some() { 1 } else { 1_000_000 });
    let first = arguments.seed.unwrap_or(0);
    let plan = SeedPlan { first, end: first.saturating_add(count), part: count.div_ceil(PARTS), limit: None };
    arguments.run(&plan, children)
}

/// Runs seeds for this time, in equal shares for the tests; returns whether all passed. A requested
/// number of seeds ends it earlier. The clock gives the first seed, so that each soak runs others.
pub(crate) fn simulate_for(
    arguments: &SimulateArguments,
    limit: Duration,
    children: &Children,
) -> Result<bool> {
    let by_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() << 20);
    let first = arguments.seed.unwrap_or_else(by_clock);
    let end = arguments.seeds.map_or(u64::MAX, |count| first.saturating_add(count));
    let tests = u32::try_from(arguments.meant().count()).unwrap_or(u32::MAX).max(1);
    println!("    seeds from {first} (--seed {first} begins there again)");
    arguments.run(&SeedPlan { first, end, part: FIRST_PART, limit: Some(limit / tests) }, children)
}

/// The seeds of each test.
struct SeedPlan {
    first: u64,
    end: u64,
    /// Seeds of the first part.
    part: u64,
    /// After this time no part begins.
    limit: Option<Duration>,
}

impl SimulateArguments {
    fn meant(&self) -> impl Iterator<Item = &'static Test> {
        let only = self.only.as_deref();
        TESTS.iter().filter(move |test| only.is_none_or(|only| only == test.name))
    }

    fn run(&self, plan: &SeedPlan, children: &Children) -> Result<bool> {
        for test in self.meant() {
            if !plan.run(test, children)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl SeedPlan {
    fn run(&self, test: &Test, children: &Children) -> Result<bool> {
        // Not part of the time limit.
        test.build(children)?;
        let start = Instant::now();
        let is_over = || self.limit.is_some_and(|limit| start.elapsed() >= limit);
        let (mut from, mut part) = (self.first, self.part);
        while from < self.end && (from == self.first || !is_over()) {
            let began = Instant::now();
            let to = from.saturating_add(part).min(self.end);
            if let Some(output) = failure(test, from..to, children)? {
                print!("{output}");
                if let Some(seed) = failing_seed(&output) {
                    println!("again: cargo xtask simulate --only {} --seed {seed}", test.name);
                }
                return Ok(false);
            }
            from = to;
            let done = from - self.first;
            let passed = start.elapsed().as_secs_f64();
            match self.limit {
                Some(limit) => {
                    let left = (limit.as_secs_f64() - passed).max(0.0);
                    println!("{}: {done} seeds, {passed:.0} s, {left:.0} s to go", test.name);
                    if began.elapsed() < PART_MIN {
                        part = part.saturating_mul(2);
                    }
                }
                None => {
                    let count = self.end - self.first;
                    let left = passed / done as f64 * (count - done) as f64;
                    println!("{}: {done} of {count} seeds, {passed:.0} s, {left:.0} s to go", test.name);
                }
            }
        }
        Ok(true)
    }
}

impl Test {
    fn command(&self) -> Command {
        let mut command = crate::cargo();
        command.args(["test", "--quiet", "--release", "--package", self.package, "--test", self.test]);
        command
    }

    fn build(&self, children: &Children) -> Result<()> {
        children.check(self.command().arg("--no-run"))
    }
}

/// Runs some seeds of a test; returns its output if one fails.
fn failure(test: &Test, seeds: std::ops::Range<u64>, children: &Children) -> Result<Option<String>> {
    let mut command = test.command();
    command.env("SEEDS", format!("{}..{}", seeds.start, seeds.end)).stdout(Stdio::piped());
    let mut running = children.start(&mut command)?;
    let mut output = String::new();
    if let Some(mut stdout) = running.child().and_then(|child| child.stdout.take()) {
        stdout.read_to_string(&mut output).map_err(|error| format!("{}: its output: {error}", test.name))?;
    }
    Ok(if running.wait()?.status.success() { None } else { Some(output) })
}

/// Parses the failing seed.
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
