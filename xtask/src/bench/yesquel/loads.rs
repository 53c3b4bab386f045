//! Section 6.1.3 on one server: reads of 200 keys, which size splits keep in a few leaves and load
//! splits spread over many.

use super::{LoadResult, Programs, SystemUnderTest, THREADS, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, ResultTable};
use std::process::Command;
use std::thread;

const KEYS: u64 = 200;

/// Returns the accesses of each leaf second by second, in falling order.
type Seconds = Vec<Vec<u64>>;

fn survey(
    bench: &BenchContext,
    programs: &Programs,
    side: &SystemUnderTest,
    seconds: u64,
) -> Result<Seconds> {
    let mut command = Command::new(&programs.load);
    command.args(["survey", "--target", &side.target, "--seconds", &seconds.to_string()]);
    let json = measure::run(bench.children, &mut command)?.stdout;
    let mut value: serde_json::Value =
        serde_json::from_str(&json).map_err(|error| format!("{error} in {json}"))?;
    serde_json::from_value(value["seconds"].take()).map_err(|error| format!("{error} in {json}"))
}

/// Runs the load, and returns its effect on the leaves.
fn measure(
    bench: &BenchContext,
    programs: &Programs,
    side: &SystemUnderTest,
    seconds: u64,
) -> Result<(LoadResult, Seconds)> {
    side.fill(bench, &programs.load, KEYS)?;
    let more = options(&[
        ("threads", THREADS.to_string()),
        ("keys", KEYS.to_string()),
        ("warm-up", "0".to_owned()),
        ("seconds", seconds.to_string()),
    ]);
    let (seen, loads) = thread::scope(|scope| {
        let survey = scope.spawn(|| survey(bench, programs, side, seconds));
        let seen = side.load(bench, &programs.load, "read", &more);
        (seen, survey.join().map_err(|_panic| "a survey panicked".to_owned()))
    });
    Ok((seen?, loads??))
}

/// Compares leaves and their load with size splits and with load splits.
pub(in crate::bench) fn loads(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let seconds = if bench.quick { 3 } else { 10 };
    let mut table = ResultTable::new([
        "splits",
        "second",
        "leaves asked for",
        "reads/s",
        "busiest leaf/s",
        "share of all",
        "least",
    ]);
    let mut rates = Vec::new();
    for (name, max) in [("by size", "0"), ("by load", "10000")] {
        eprintln!("splits {name}, {seconds} s");
        let side = SystemUnderTest::yesquel_with(bench, &programs, false, &["--node-load-max", max])?;
        let (seen, loads) = measure(bench, &programs, &side, seconds)?;
        rates.push(seen.throughput);
        for (second, loads) in (1..).zip(&loads) {
            let (all, asked) = (loads.iter().sum::<u64>(), loads.iter().filter(|load| **load > 0));
            let most = loads.first().copied().unwrap_or_default();
            table.row([
                name.to_owned(),
                second.to_string(),
                asked.clone().count().to_string(),
                all.to_string(),
                most.to_string(),
                format!("{:.3}", most as f64 / all.max(1) as f64),
                asked.min().copied().unwrap_or_default().to_string(),
            ]);
        }
    }
    print!("{table}");
    if let [size, load] = rates[..] {
        println!("reads/s by load splits over by size splits, on one server: {:.2}", load / size);
    }
    println!("wanted: the busiest leaf ends under 10,000/s, which is when it would be split again");
    Ok(())
}
