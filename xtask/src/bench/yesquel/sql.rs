//! Section 6.2 on one server: a table of a million rows through SQLite's interface, compared with
//! the equivalent Redis commands.
//!
//! | load | Yesquel | Redis |
//! |---|---|---|
//! | read | `SELECT value WHERE key = ?` | GET |
//! | update | `UPDATE SET value = ? WHERE key = ?` | GET, SET |
//! | scan | 95 of 100: `SELECT key, value WHERE key >= ? LIMIT 1..5`; 5: an update | ZRANGEBYSCORE; GET, SET |
//!
//! As Redis's keys have no order, its ranges read a sorted set of the keys, without values, as in
//! the paper. Nothing is stored on disk. The modules below contain the other SQL benchmarks.

use std::path::Path;

use super::half_load::{Load, half_load};
use super::side::{LoadResult, ServerStorage, SystemUnderTest};
use super::{Programs, THREADS, compare, median, options, turns};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{PairedMeasurements, ResultTable};
use crate::setup;

pub(in crate::bench) mod bulk;
pub(in crate::bench) mod mariadb;
pub(in crate::bench) mod open;
pub(in crate::bench) mod sqlite;

/// Rows of the paper's table.
const ROWS: u64 = 1_000_000;

/// Rows of a transaction, or of a batch of requests, of the load.
const BATCH: u64 = 1_000;

/// The paper's names of the loads, and the names of the clients' workloads.
const LOADS: [(&str, &str); 3] = [("read", "read"), ("update", "update"), ("scan", "range")];

/// Seconds of a measurement.
fn seconds(bench: &BenchContext) -> f64 {
    if bench.quick { 0.5 } else { 4.0 }
}

/// Rows of the table.
fn rows(bench: &BenchContext) -> u64 {
    if bench.quick { ROWS / 20 } else { ROWS }
}

fn both([ours, theirs]: &[Vec<LoadResult>; 2], of: fn(&LoadResult) -> f64) -> String {
    format!("{:.1} ({:.1})", median(ours, of), median(theirs, of))
}

/// Returns the requests to the server per operation.
fn requests(seen: &LoadResult) -> f64 {
    seen.requests / seen.operations
}

/// Creates the table, or the keys in Redis.
fn fill(bench: &BenchContext, program: &Path, sides: &[(&SystemUnderTest, &str)]) -> Result<()> {
    let filling = options(&[
        ("threads", "2".to_owned()),
        ("keys", rows(bench).to_string()),
        ("warm-up", "0".to_owned()),
        ("batch", BATCH.to_string()),
    ]);
    for (side, workload) in sides {
        let seen = side.load_by(bench, program, workload, &filling, 1)?;
        let kind = side.target.split(':').next().unwrap_or_default();
        println!("{workload} of {kind}: {:.0} rows/s", seen.throughput);
    }
    Ok(())
}

/// Measures the loads of section 6.2 on both sides alternately. Returns the peer's results.
fn section(
    bench: &BenchContext,
    program: &Path,
    (yesquel, peer, name): (&SystemUnderTest, &SystemUnderTest, &str),
    wanted: &str,
) -> Result<Vec<Load>> {
    let peers = |head: &str| format!("{head} ({name}'s)");
    let closed = options(&[
        ("threads", THREADS.to_string()),
        ("seconds", seconds(bench).to_string()),
        ("keys", rows(bench).to_string()),
    ]);
    let mut table = ResultTable::new([
        "2 x 32 threads",
        "Yesquel/s",
        &format!("{name}/s"),
        "ratio",
        "wanted",
        &peers("p99 us"),
        &peers("client CPU us"),
        &peers("server CPU us"),
        "requests",
    ]);
    let mut loads = Vec::new();
    for (name, workload) in LOADS {
        eprintln!("{name}: {} pairs", bench.pairs);
        let (pairs, seen) =
            compare(bench, program, (yesquel, peer), workload, &closed, |seen| seen.throughput)?;
        table.row([
            name.to_owned(),
            format!("{:.0}", pairs.a()),
            format!("{:.0}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            wanted.to_owned(),
            both(&seen, |seen| seen.p99_us),
            both(&seen, |seen| seen.client_cpu_us),
            both(&seen, |seen| seen.server_cpu_us),
            format!("{:.2}", median(&seen[0], requests)),
        ]);
        loads.push(Load { name, workload, saturation: pairs.b().median });
    }
    print!("{table}");
    Ok(loads)
}

pub(in crate::bench) fn sql(bench: &BenchContext) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let load = programs.load.as_path();
    let (yesquel, redis) = (SystemUnderTest::sql(bench, &programs)?, SystemUnderTest::redis(bench, false)?);
    fill(bench, load, &[(&yesquel, "load"), (&redis, "load"), (&redis, "index")])?;
    let sides = (&yesquel, &redis, "Redis");
    let loads = section(bench, load, sides, "0.9 or more")?;
    half_load(bench, load, sides, &loads, (rows(bench), seconds(bench)), "1.2 or less")?;
    for (name, workload) in LOADS {
        let pipelined = options(&[
            ("threads", "1".to_owned()),
            ("pipeline", THREADS.to_string()),
            ("seconds", seconds(bench).to_string()),
            ("keys", rows(bench).to_string()),
        ]);
        let seen = redis.load(bench, load, workload, &pipelined)?;
        println!(
            "{name}, Redis, 2 clients that send {THREADS} at once on one connection each: {:.0}/s, client CPU {:.2} us, server CPU {:.2} us",
            seen.throughput, seen.client_cpu_us, seen.server_cpu_us
        );
    }
    Ok(())
}

/// Creates a table of measurements compared with SQLite's own file.
type BesideSqlite = ResultTable<9>;

fn beside_sqlite(what: &str) -> BesideSqlite {
    ResultTable::new([
        what,
        "Yesquel/s",
        "SQLite/s",
        "ratio",
        "wanted",
        "p99 us (SQLite's)",
        "client CPU us (SQLite's)",
        "server CPU us",
        "requests",
    ])
}

fn row(
    table: &mut BesideSqlite,
    name: &str,
    wanted: &str,
    (pairs, seen): &(PairedMeasurements, [Vec<LoadResult>; 2]),
) {
    table.row([
        name.to_owned(),
        format!("{:.0}", pairs.a()),
        format!("{:.0}", pairs.b()),
        format!("{:.2}", pairs.ratio()),
        wanted.to_owned(),
        both(seen, |seen| seen.p99_us),
        both(seen, |seen| seen.client_cpu_us),
        format!("{:.1}", median(&seen[0], |seen| seen.server_cpu_us)),
        format!("{:.2}", median(&seen[0], requests)),
    ]);
}

/// Measures a Yesquel server or folder and an SQLite file, both created empty for each measurement,
/// so that the time of an insert does not depend on the rows of the other side.
fn anew(
    bench: &BenchContext,
    program: &Path,
    ours: &dyn Fn() -> Result<SystemUnderTest>,
    (workload, processes): (&str, u64),
    more: &[String],
) -> Result<(PairedMeasurements, [Vec<LoadResult>; 2])> {
    let measure = |which| {
        let side = if which == 0 { ours()? } else { SystemUnderTest::in_clients("sqlite", "")? };
        if processes > 1 {
            // Switching a file to WAL mode needs exclusive access.
            side.fill(bench, program, 1)?;
        }
        side.load_by(bench, program, workload, more, processes)
    };
    turns(bench, measure, |seen| seen.throughput)
}
