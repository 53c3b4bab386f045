//! Seeds by the million for Yesquel's seeded tests: against plain references, on failing disks and
//! bad networks. `cargo xtask test` runs some thousand.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::Result;
use crate::children::{Children, line};

#[derive(Args)]
pub(crate) struct SimulateArguments {
    /// Number of seeds for each test [default: 1000000, or 1 where a seed is named]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "SEED", alias = "from")]
    seed: Option<u64>,
    /// Run long seeds of `cluster` and `sql-cluster`: at least 1,000 operations and 3 faults
    #[arg(long)]
    long: bool,
    /// Run only this test
    #[arg(long, value_name = "TEST", value_parser = PossibleValuesParser::new(TESTS.iter().map(|test| test.name)))]
    only: Option<String>,
}

/// A test that takes seeds.
pub(crate) struct SeededTest {
    name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) test: &'static str,
}

const TESTS: &[SeededTest] = &[
    SeededTest { name: "engine", package: "yesquel-engine", test: "model" },
    SeededTest { name: "budget", package: "yesquel-engine", test: "budget" },
    SeededTest { name: "clocks", package: "yesquel-engine", test: "clocks" },
    SeededTest { name: "leases", package: "yesquel-engine", test: "leases" },
    SeededTest { name: "tree", package: "yesquel-tree", test: "model" },
    SeededTest { name: "log", package: "yesquel-log", test: "crash" },
    SeededTest { name: "accounts", package: "yesquel-client", test: "several_servers" },
    SeededTest { name: "cluster", package: "yesquel-simulation", test: "cluster" },
    SeededTest { name: "sql-cluster", package: "yesquel-simulation", test: "sql" },
    SeededTest { name: "replication", package: "yesquel-replication", test: "group" },
    SeededTest { name: "sql", package: "yesquel-differential", test: "random" },
    SeededTest { name: "sqllogictest", package: "yesquel-differential", test: "logic" },
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
    let part = count.div_ceil(PARTS);
    let long = arguments.long;
    let plan = SeedPlan { first, end: first.saturating_add(count), part, limit: None, long };
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
    let limit = Some(limit / tests);
    arguments.run(&SeedPlan { first, end, part: FIRST_PART, limit, long: true }, children)
}

/// The seeds of each test.
struct SeedPlan {
    first: u64,
    end: u64,
    /// Seeds of the first part.
    part: u64,
    /// After this time no part begins.
    limit: Option<Duration>,
    /// Seeds are long.
    long: bool,
}

impl SimulateArguments {
    fn meant(&self) -> impl Iterator<Item = &'static SeededTest> {
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
    fn run(&self, test: &SeededTest, children: &Children) -> Result<bool> {
        // Not part of the time limit.
        test.build(children)?;
        let start = Instant::now();
        let is_over = || self.limit.is_some_and(|limit| start.elapsed() >= limit);
        let (mut from, mut part) = (self.first, self.part);
        while from < self.end && (from == self.first || !is_over()) {
            let began = Instant::now();
            let to = from.saturating_add(part).min(self.end);
            let mut command = test.command();
            command.env("SEEDS", format!("{from}..{to}"));
            if self.long {
                command.env("LONG_SEEDS", "1");
            }
            if let Some(output) = failing_output(&mut command, children)? {
                print!("{output}");
                if let Some((seed, _)) = failure_of(&output) {
                    let long = if self.long { " --long" } else { "" };
                    println!("again: cargo xtask simulate --only {} --seed {seed}{long}", test.name);
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

impl SeededTest {
    fn command(&self) -> Command {
        let mut command = crate::cargo();
        command.args(["test", "--quiet", "--release", "--package", self.package, "--test", self.test]);
        command
    }

    fn build(&self, children: &Children) -> Result<()> {
        children.check(self.command().arg("--no-run"))
    }
}

/// The test of a name.
pub(crate) fn test(name: &str) -> Option<&'static SeededTest> {
    TESTS.iter().find(|test| test.name == name)
}

/// Runs some seeds of a test; returns its output if one fails.
pub(crate) fn failing_output(command: &mut Command, children: &Children) -> Result<Option<String>> {
    let mut running = children.start(command.stdout(Stdio::piped()))?;
    let mut output = String::new();
    if let Some(mut stdout) = running.child().and_then(|child| child.stdout.take()) {
        stdout
            .read_to_string(&mut output)
            .map_err(|error| format!("cannot hear `{}`: {error}", line(command)))?;
    }
    Ok(if running.wait()?.status.success() { None } else { Some(output) })
}

/// Parses the failing seed, and the first line of the message.
pub(crate) fn failure_of(output: &str) -> Option<(u64, &str)> {
    let (_, after) = output.split_once("(SEEDS=")?;
    let (seed, after) = after.split_once("..")?;
    let message = after.lines().next()?.split_once(')')?.1;
    Some((seed.parse().ok()?, message.trim_start_matches(": ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_fails_is_found_in_what_a_test_says() {
        let output = "thread panicked:\nseed 7 (SEEDS=7..8): met 3\nafter\n  3\n";
        assert_eq!(failure_of(output), Some((7, "met 3")));
        assert_eq!(failure_of("error: no such test"), None);
    }
}
