//! Baselines: the noise of the machine, and the rate of Redis with a minimal client.

use std::cell::Cell;
use std::process::Command;

use super::BenchContext;
use super::measure::{self, Measured, ResultTable, alternate};
use crate::Result;
use crate::servers::{ServerOptions, redis::RedisServer};

/// A loop of additions that takes about half a second.
const NOISE_SCRIPT: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

/// Compares a program with itself.
pub(super) fn noise(bench: &BenchContext) -> Result<()> {
    let mut table = ResultTable::new(["of two equal sides", "seconds a run", "ratio"]);
    let script = |seconds: fn(&Measured) -> f64| {
        let mut command = Command::new("sh");
        command.args(["-c", NOISE_SCRIPT]);
        measure::run(bench.children, &mut command).map(|measured| seconds(&measured))
    };
    let wall = |measured: &Measured| measured.wall_seconds;
    for (name, seconds) in
        [("wall time", wall as fn(&Measured) -> f64), ("processor time", Measured::cpu_seconds)]
    {
        let pairs = alternate(bench.pairs, || script(seconds), || script(seconds))?;
        table.row([name.to_owned(), pairs.a().to_string(), pairs.ratio().to_string()]);
    }
    print!("{table}");
    // The shell loop uses no sockets or threads. `serval --version` is the shortest run of serval.
    let serval = bench.serval()?;
    let memory_kib = Cell::new(0);
    let start = || {
        let mut command = Command::new(&serval);
        let measured = measure::run(bench.children, command.arg("--version"))?;
        memory_kib.set(measured.memory_bytes_max >> 10);
        Ok(measured.wall_seconds * 1e3)
    };
    let pairs = alternate(bench.pairs, start, start)?;
    println!("serval's start: {} ms, ratio {}, {} KiB", pairs.a(), pairs.ratio(), memory_kib.get());
    Ok(())
}

/// YCSB's default record: ten fields of a hundred bytes.
const FIELDS: usize = 10;
const FIELD_BYTES: usize = 100;

const CEILING_KEY: &str = "user1";
const CEILING_REQUESTS: u32 = 100_000;

/// Reads of one record by redis-benchmark, a client that does almost no work between two reads.
pub(super) fn redis_ceiling(bench: &BenchContext) -> Result<()> {
    let server = RedisServer::start(bench.children, &ServerOptions::default())?;
    let value = "x".repeat(FIELD_BYTES);
    for field in 0..FIELDS {
        server.command(&["HSET", CEILING_KEY, &format!("field{field}"), &value])?;
    }
    let port = server.port().to_string();
    let requests = CEILING_REQUESTS.to_string();
    let rate = |connections: &str| {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &port, "-n", &requests]).args([
            "-c",
            connections,
            "--csv",
            "HGETALL",
            CEILING_KEY,
        ]);
        let measured = measure::run(bench.children, &mut command)?;
        requests_a_second(&measured.stdout)
    };
    let pairs = alternate(bench.pairs, || rate("50"), || rate("1"))?;
    let mut table = ResultTable::new(["connections", "reads a second"]);
    table.row(["1".to_owned(), format!("{:.0}", pairs.b())]);
    table.row(["50".to_owned(), format!("{:.0}", pairs.a())]);
    print!("{table}");
    println!("50 connections over 1: {:.2}", pairs.ratio());
    Ok(())
}

/// Returns the rate in redis-benchmark's CSV: a header line, then a line of values that starts with
/// the command's name and its rate.
fn requests_a_second(csv: &str) -> Result<f64> {
    csv.lines()
        .filter_map(|line| line.rsplit_once(&format!("{CEILING_KEY}\",\"")))
        .find_map(|(_, values)| values.split('"').next()?.parse().ok())
        .ok_or_else(|| format!("redis-benchmark printed no rate:\n{csv}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmarks_rate_is_parsed() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"HGETALL user1\",\"12345.68\",\"0.05\"\n";
        assert_eq!(requests_a_second(csv), Ok(12345.68));
        assert!(requests_a_second("").is_err());
    }
}
