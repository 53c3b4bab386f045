//! Cost of a connection: time from its opening to the result of its first SELECT, and memory when
//! idle. The database is at a server on its Unix socket, in a folder, or SQLite's own file.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Programs, ServerStorage, SystemUnderTest, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};

/// Rows of the tables. The first connection to a folder reads the folder, which takes time
/// proportional to its size.
const FEW: u64 = 1_000;
const MANY: u64 = 100_000;

/// Connections of a measurement.
const OPENED: u64 = 300;
const IDLE: u64 = 100;

const TIME_WANTED_MS: f64 = 3.0;
const MEMORY_WANTED_MB: f64 = 3.0;

/// A database to open.
struct OpenTarget {
    name: String,
    side: SystemUnderTest,
    /// Whether a target applies. The first connection to a folder reads all of it and keeps it in
    /// memory.
    is_wanted: bool,
}

fn places(bench: &BenchContext, programs: &Programs) -> Result<Vec<OpenTarget>> {
    let mut places = Vec::new();
    for rows in [FEW, MANY] {
        let sides = [
            ("a server", SystemUnderTest::sql_on_a_socket(bench, programs, ServerStorage::InMemory)?, true),
            ("a folder", SystemUnderTest::in_clients("folder", "")?, rows == FEW),
            ("SQLite's file", SystemUnderTest::in_clients("sqlite", "")?, false),
        ];
        for (name, side, is_wanted) in sides {
            side.fill(bench, &programs.load, rows)?;
            places.push(OpenTarget { name: format!("{name}, {rows} rows"), side, is_wanted });
        }
    }
    Ok(places)
}

/// Runs a process that measures one value, and returns its output.
fn ask(
    bench: &BenchContext,
    program: &Path,
    workload: &str,
    side: &SystemUnderTest,
    count: u64,
) -> Result<Value> {
    let mut command = Command::new(program);
    command.args([workload, "--target", &side.target]);
    command.args(options(&[("operations", count.to_string())]));
    if let Some(server) = side.server() {
        command.args(["--server-process", &server.to_string()]);
    }
    let json = measure::run(bench.children, &mut command)?.stdout;
    serde_json::from_str(&json).map_err(|error| format!("{error} in {json}"))
}

/// Returns a number of each round.
fn numbers(rounds: &[Value], path: &str) -> Result<Vec<f64>> {
    let number = |round: &Value| round.pointer(path).and_then(Value::as_f64);
    rounds.iter().map(|round| number(round).ok_or_else(|| format!("no {path} in {round}"))).collect()
}

fn spread(values: &[f64]) -> Result<MedianRange> {
    MedianRange::of(values).ok_or_else(|| "nothing was measured".to_owned())
}

/// Returns the ratio to SQLite's numbers of the same round.
fn ratio(ours: &[f64], theirs: &[f64]) -> Result<MedianRange> {
    spread(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

pub(in crate::bench) fn open(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let places = places(bench, &programs)?;
    let count = if bench.quick { OPENED / 10 } else { OPENED };
    let mut times: Vec<Vec<Value>> = places.iter().map(|_| Vec::new()).collect();
    let mut sizes = times.clone();
    // Alternate, as the machine drifts.
    for round in 1..=bench.pairs {
        eprintln!("round {round} of {}", bench.pairs);
        for ((place, times), sizes) in places.iter().zip(&mut times).zip(&mut sizes) {
            times.push(ask(bench, &programs.load, "open", &place.side, count)?);
            sizes.push(ask(bench, &programs.load, "idle", &place.side, IDLE)?);
        }
    }
    print_times(&places, &times)?;
    println!(
        "each has its first SELECT; without another: of the same process, at the same store; {count} a round"
    );
    print_sizes(&places, &sizes)?;
    println!(
        "growth of the resident memory by a connection that has had its first SELECT; {IDLE} more stay open"
    );
    Ok(())
}

fn print_times(places: &[OpenTarget], times: &[Vec<Value>]) -> Result<()> {
    let mut table = ResultTable::new([
        "opening, ms",
        "first of a process",
        "without another: p50",
        "p99",
        "closing: p50",
        "over SQLite's p50",
        "wanted",
        "beside another: p50",
        "p99",
        "over SQLite's p50",
    ]);
    for (at, (place, rounds)) in places.iter().zip(times).enumerate() {
        // SQLite's file with the same number of rows is the last of three.
        let sqlite = times.get(at / 3 * 3 + 2).ok_or("SQLite's is missing")?;
        let ms = |path: &str| -> Result<String> {
            let values: Vec<f64> = numbers(rounds, path)?.iter().map(|us| us / 1_000.0).collect();
            Ok(format!("{:.3}", spread(&values)?.median))
        };
        let over = |path: &str| -> Result<String> {
            Ok(format!("{:.2}", ratio(&numbers(rounds, path)?, &numbers(sqlite, path)?)?.median))
        };
        table.row([
            place.name.clone(),
            ms("/first_us")?,
            ms("/alone/p50_us")?,
            ms("/alone/p99_us")?,
            ms("/alone/close_p50_us")?,
            over("/alone/p50_us")?,
            if place.is_wanted { format!("under {TIME_WANTED_MS}") } else { "-".to_owned() },
            ms("/beside/p50_us")?,
            ms("/beside/p99_us")?,
            over("/beside/p50_us")?,
        ]);
    }
    print!("{table}");
    Ok(())
}

fn print_sizes(places: &[OpenTarget], sizes: &[Vec<Value>]) -> Result<()> {
    let mut table = ResultTable::new([
        "memory, MB",
        "the first",
        "without the program",
        "each more",
        "over SQLite's",
        "wanted",
        "server: the first",
        "each more",
    ]);
    for (at, (place, rounds)) in places.iter().zip(sizes).enumerate() {
        let sqlite = sizes.get(at / 3 * 3 + 2).ok_or("SQLite's is missing")?;
        let mb = |path: &str| -> Result<String> {
            Ok(format!("{:.3}", spread(&numbers(rounds, path)?)?.median / 1e6))
        };
        let more = "/more_bytes";
        table.row([
            place.name.clone(),
            mb("/first_bytes")?,
            mb("/first_own_bytes")?,
            mb(more)?,
            format!("{:.2}", ratio(&numbers(rounds, more)?, &numbers(sqlite, more)?)?.median),
            if place.is_wanted { format!("under {MEMORY_WANTED_MB}") } else { "-".to_owned() },
            mb("/server_first_bytes")?,
            mb("/server_more_bytes")?,
        ]);
    }
    print!("{table}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ratios_are_within_a_round() {
        let rounds = |values: [f64; 3]| values.map(|us| json!({ "alone": { "p50_us": us } }));
        let path = "/alone/p50_us";
        let (ours, theirs) = (rounds([10.0, 20.0, 90.0]), rounds([5.0, 5.0, 30.0]));
        let ratio = ratio(&numbers(&ours, path).unwrap(), &numbers(&theirs, path).unwrap()).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 3.0, 4.0));
        assert!(numbers(&ours, "/alone/p99_us").is_err());
    }
}
