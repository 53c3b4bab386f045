//! Section 6.2 on one server: a table of a million rows through SQLite's
//! interface, against Redis's commands of the same meaning.
//!
//! | load | Yesquel | Redis |
//! |---|---|---|
//! | read | `SELECT value WHERE key = ?` | GET |
//! | update | `UPDATE SET value = ? WHERE key = ?` | GET, SET |
//! | scan | 95 of 100: `SELECT key, value WHERE key >= ? LIMIT 1..5`; 5: an update | ZRANGEBYSCORE; GET, SET |
//!
//! Redis's keys have no order, so that its ranges are of a sorted set of the
//! keys, which brings no values, as in the paper. Nothing is stored on disk.

use super::{PROCESSES, Programs, Seen, Side, THREADS, compare, median, options};
use crate::Result;
use crate::bench::Bench;
use crate::bench::measure::Table;
use crate::setup;

/// Rows of the paper's table.
const ROWS: u64 = 1_000_000;

/// Rows of a transaction, or of one going to and fro, of the load.
const BATCH: u64 = 1_000;

/// What the paper calls them, and what the clients do.
const LOADS: [(&str, &str); 3] = [("read", "read"), ("update", "update"), ("scan", "range")];

/// What is wanted of each load's throughput, of Redis's.
const WANTED: &str = "0.9 or more";

fn both([ours, theirs]: &[Vec<Seen>; 2], of: fn(&Seen) -> f64) -> String {
    format!("{:.1} ({:.1})", median(ours, of), median(theirs, of))
}

pub(in crate::bench) fn sql(bench: &Bench) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let load = programs.load.as_path();
    let (yesquel, redis) = (Side::yesquel(bench, &programs, false)?, Side::redis(bench, false)?);
    let yesquel = Side { target: yesquel.target.replacen("yesquel:", "sql:", 1), ..yesquel };
    let rows = if bench.quick { ROWS / 20 } else { ROWS };
    let seconds = if bench.quick { "0.5" } else { "4" };
    let filling = options(&[
        ("threads", "2".to_owned()),
        ("keys", rows.to_string()),
        ("warm-up", "0".to_owned()),
        ("batch", BATCH.to_string()),
    ]);
    for (side, workload) in [(&yesquel, "load"), (&redis, "load"), (&redis, "index")] {
        let seen = side.load_by(bench, load, workload, &filling, 1)?;
        println!("{workload} of {}: {:.0} rows/s", side.target, seen.throughput);
    }
    let more = |pairs: &[(&str, String)]| {
        let mut all = options(&[("seconds", seconds.to_owned()), ("keys", rows.to_string())]);
        all.extend(options(pairs));
        all
    };
    let mut table = Table::new([
        "2 x 32 threads",
        "Yesquel/s",
        "Redis/s",
        "ratio",
        "wanted",
        "p99 us (Redis's)",
        "client CPU us (Redis's)",
        "server CPU us (Redis's)",
        "requests",
    ]);
    let mut saturated = Vec::new();
    for (name, workload) in LOADS {
        eprintln!("{name}: {} pairs", bench.pairs);
        let closed = more(&[("threads", THREADS.to_string())]);
        let (pairs, seen) =
            compare(bench, load, (&yesquel, &redis), workload, &closed, |seen| seen.throughput)?;
        table.row([
            name.to_owned(),
            format!("{:.0}", pairs.a()),
            format!("{:.0}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            WANTED.to_owned(),
            both(&seen, |seen| seen.p99_us),
            both(&seen, |seen| seen.client_cpu_us),
            both(&seen, |seen| seen.server_cpu_us),
            format!("{:.2}", median(&seen[0], |seen| seen.requests / seen.operations)),
        ]);
        saturated.push((name, workload, pairs.b().median));
    }
    print!("{table}");
    for (name, workload, saturation) in saturated {
        let rate = format!("{:.0}", saturation / 2.0 / PROCESSES as f64);
        let paced = more(&[("threads", THREADS.to_string()), ("rate", rate)]);
        let (pairs, seen) = compare(bench, load, (&yesquel, &redis), workload, &paced, |seen| seen.p99_us)?;
        println!(
            "{name} at {:.0}/s, half of what Redis does, open loop: p99 us {:.0}, Redis's {:.0}, ratio {:.2}; p50 {}; done/s {}",
            saturation / 2.0,
            pairs.a(),
            pairs.b(),
            pairs.ratio(),
            both(&seen, |seen| seen.p50_us),
            both(&seen, |seen| seen.throughput),
        );
    }
    for (name, workload) in LOADS {
        let pipelined = more(&[("threads", "1".to_owned()), ("pipeline", THREADS.to_string())]);
        let seen = redis.load(bench, load, workload, &pipelined)?;
        println!(
            "{name}, Redis, 2 clients that send {THREADS} at once on one connection each: {:.0}/s, client CPU {:.2} us, server CPU {:.2} us",
            seen.throughput, seen.client_cpu_us, seen.server_cpu_us
        );
    }
    Ok(())
}
