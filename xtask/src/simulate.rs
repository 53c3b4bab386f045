//! Seeds by the million: Yesquel's tests against plain references and failing
//! disks, which `cargo xtask test` runs with some thousand.

use std::process::Stdio;
use std::time::Instant;

use clap::Args;

use crate::Result;
use crate::children::Children;

#[derive(Args)]
pub(crate) struct Arguments {
    /// How many seeds each test is given
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
}

/// The tests that take seeds: package and test.
const TESTS: &[(&str, &str)] = &[
    ("yesquel-engine", "model"),
    ("yesquel-tree", "model"),
    ("yesquel-log", "crash"),
    ("yesquel-client", "several_servers"),
];

/// Parts in which the seeds go, so that it can be said how far it is.
const PARTS: u64 = 20;

/// Whether all seeds passed. A test prints the seed that fails, how to run it
/// again, and the fewest steps that fail.
pub(crate) fn simulate(arguments: &Arguments, children: &Children) -> Result<bool> {
    let end = arguments.from.saturating_add(arguments.seeds);
    let part = arguments.seeds.div_ceil(PARTS).max(1);
    for (package, test) in TESTS {
        let start = Instant::now();
        let mut from = arguments.from;
        while from < end {
            let to = from.saturating_add(part).min(end);
            let run = |shown: bool| {
                let mut command = crate::cargo();
                command.args(["test", "--quiet", "--release", "--package", package, "--test", test]);
                command.env("SEEDS", format!("{from}..{to}"));
                if !shown {
                    command.stdout(Stdio::null()).stderr(Stdio::null());
                }
                children.run(&mut command)
            };
            // Again, to be seen: a seed does the same each time.
            if !run(false)?.success() && !run(true)?.success() {
                return Ok(false);
            }
            from = to;
            let (done, all) = (from - arguments.from, arguments.seeds);
            let passed = start.elapsed().as_secs_f64();
            let left = passed / done as f64 * (all - done) as f64;
            println!("{package} {test}: {done} of {all} seeds, {passed:.0} s, {left:.0} s to go");
        }
    }
    Ok(true)
}
