//! Section 6.1.5: transactions that scan some keys and update one.

use super::{GROUPS, KEYS, Programs, SystemUnderTest, THREADS, compare, median, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::ResultTable;
use crate::setup;
use std::path::Path;

/// The paper's names of the loads, and the number of keys that a transaction scans.
const SIZES: [(&str, u64); 3] = [("small", 2), ("medium", 10), ("large", 100)];

/// Compares with Redis commands for the same keys: MGET and the update, which are not a
/// transaction.
pub(in crate::bench) fn transactions(bench: &BenchContext) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let load = programs.load.as_path();
    let redis = SystemUnderTest::redis(bench, false)?;
    redis.fill(bench, load, KEYS)?;
    for groups in GROUPS {
        let yesquel = SystemUnderTest::cluster(bench, &programs, groups, &[])?;
        yesquel.fill(bench, load, KEYS)?;
        println!("{groups} groups");
        print!("{}", beside_redis(bench, load, (&yesquel, &redis))?);
    }
    println!("an update aborts if another transaction updates the same key; a scan blocks no update");
    Ok(())
}

fn beside_redis(
    bench: &BenchContext,
    load: &Path,
    sides: (&SystemUnderTest, &SystemUnderTest),
) -> Result<ResultTable<9>> {
    let mut table = ResultTable::new([
        "scan and update, 2 x 32 threads",
        "Yesquel/s",
        "Redis (MGET, SET)/s",
        "ratio",
        "aborts",
        "waits",
        "p99 us (Redis's)",
        "client CPU us (Redis's)",
        "server CPU us (Redis's)",
    ]);
    for (name, scan) in SIZES {
        eprintln!("{name}: {} pairs", bench.pairs);
        let more = options(&[
            ("threads", THREADS.to_string()),
            ("seconds", if bench.quick { "0.3" } else { "1.5" }.to_owned()),
            ("warm-up", "0.3".to_owned()),
            ("keys", KEYS.to_string()),
            ("scan", scan.to_string()),
        ]);
        let (pairs, seen) = compare(bench, load, sides, "scan-update", &more, |seen| seen.throughput)?;
        let both = |of: fn(&super::LoadResult) -> f64| {
            format!("{:.1} ({:.1})", median(&seen[0], of), median(&seen[1], of))
        };
        table.row([
            format!("{name}: {scan} keys"),
            format!("{:.0}", pairs.a()),
            format!("{:.0}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            format!("{:.5}", median(&seen[0], |seen| seen.aborts / seen.operations)),
            format!("{:.0}", seen[0].iter().map(|seen| seen.waits).sum::<f64>()),
            both(|seen| seen.p99_us),
            both(|seen| seen.client_cpu_us),
            both(|seen| seen.server_cpu_us),
        ]);
    }
    Ok(table)
}
