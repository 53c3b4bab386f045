//! An UPDATE of a row at one of two groups, and a transaction that updates a row at each, beside Redis
//! with GET and SET for each row, which are not a transaction. Nothing is stored on disk.

use super::groups::{Hosting, ServerGroup};
use super::tables::TablesLoad;
use super::{LoadResult, Programs, SystemUnderTest, median, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, ResultTable, alternate};
use crate::setup;
use serde_json::Value;
use std::cell::RefCell;
use std::process::Command;

/// Threads of the one client process: with Yesquel each has a SQL connection, with Redis a socket.
const THREADS: usize = 64;
/// Rows of each of the two tables, and half of Redis's keys.
const KEYS: usize = 10_000;
/// Transactions of a measurement.
const TRANSACTIONS: usize = 200_000;
/// Seconds of a measurement of Redis.
const SECONDS: f64 = 4.0;

/// Statements by the client's names, with the rows that they update and the ratio to Redis that is
/// wanted.
const LOADS: [(&str, &str, f64, &str); 2] = [
    ("update", "a row at one of two groups", 1.0, "1.5 or more"),
    ("update-two", "a row at each of two groups", 2.0, "0.9 or more"),
];

/// Result of Yesquel's client.
#[derive(Clone, Copy)]
struct UpdateCost {
    throughput: f64,
    cpu_us: f64,
    requests: f64,
}

fn updates(
    bench: &BenchContext,
    programs: &Programs,
    servers: &ServerGroup,
    statement: &str,
) -> Result<UpdateCost> {
    let operations = if bench.quick { TRANSACTIONS / 20 } else { TRANSACTIONS };
    let load = TablesLoad { statement, tables: 2, connections: THREADS, operations, keys: KEYS };
    let mut client = load.command(Command::new(&programs.load), servers);
    let before = servers.cpu_us()?;
    let measured = measure::run(bench.children, &mut client)?;
    let cpu_us = servers.cpu_us()? - before + measured.cpu_seconds() * 1e6;
    let result: Value = serde_json::from_str(&measured.stdout).map_err(|error| error.to_string())?;
    let number = |value: &Value| value.as_f64().ok_or_else(|| format!("not a figure: {result}"));
    let by_group = result["requests_by_group"].as_array().ok_or("the client printed no requests")?;
    let requests: f64 = by_group.iter().filter_map(Value::as_f64).sum();
    let operations = number(&result["operations"])?;
    Ok(UpdateCost {
        throughput: number(&result["throughput"])?,
        // With opening and warming up, whose work is a small part.
        cpu_us: cpu_us / operations,
        requests: requests / operations,
    })
}

/// Compares updates over two groups with Redis.
pub(in crate::bench) fn two_rows(bench: &BenchContext) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let command = || Command::new(&programs.yesquel);
    let servers = ServerGroup::start(bench, Hosting::Processes(2), command, &["--in-memory"])?;
    let redis = SystemUnderTest::redis(bench, false)?;
    redis.fill(bench, &programs.load, 2 * KEYS as u64)?;
    let more = options(&[
        ("threads", THREADS.to_string()),
        ("seconds", if bench.quick { 0.5 } else { SECONDS }.to_string()),
        ("keys", (2 * KEYS).to_string()),
    ]);
    let mut table = ResultTable::new([
        "update of",
        "Yesquel/s",
        "Redis/s",
        "ratio",
        "wanted",
        "CPU us (Redis's)",
        "requests (Redis's)",
    ]);
    for (statement, name, rows, wanted) in LOADS {
        eprintln!("{name}: {} pairs", bench.pairs);
        let (ours, theirs): (RefCell<Vec<UpdateCost>>, RefCell<Vec<LoadResult>>) = Default::default();
        let yesquels = || {
            let cost = updates(bench, &programs, &servers, statement)?;
            ours.borrow_mut().push(cost);
            Ok(cost.throughput)
        };
        let of_redis = || {
            let seen = redis.load_by(bench, &programs.load, "update", &more, 1)?;
            theirs.borrow_mut().push(seen);
            // A thread that updates several rows does so one after the other.
            Ok(seen.throughput / rows)
        };
        let pairs = alternate(bench.pairs, yesquels, of_redis)?;
        let (ours, theirs) = (ours.into_inner(), theirs.into_inner());
        let of = |figure: fn(&UpdateCost) -> f64| {
            measure::MedianRange::of(&ours.iter().map(figure).collect::<Vec<_>>())
                .ok_or("nothing was measured")
        };
        let redis_cpu_us = rows * median(&theirs, |seen| seen.client_cpu_us + seen.server_cpu_us);
        table.row([
            name.to_owned(),
            format!("{:.0}", pairs.a()),
            format!("{:.0}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            wanted.to_owned(),
            format!("{:.1} ({redis_cpu_us:.1})", of(|cost| cost.cpu_us)?.median),
            format!("{:.2} ({:.0})", of(|cost| cost.requests)?.median, 2.0 * rows),
        ]);
    }
    print!("{table}");
    println!("CPU time of the client and all servers; {THREADS} threads of one client process");
    Ok(())
}
