//! Memory per stored key: growth of the processes of Yesquel and Redis.

use super::{Programs, SystemUnderTest, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, ResultTable};
use crate::setup;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const KEYS: [u64; 2] = [1_000_000, 5_000_000];
/// Time for a server to collect garbage.
const SETTLES: Duration = Duration::from_secs(4);

/// Returns a line of /proc/PID/status, in bytes.
pub(super) fn memory(pid: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
    kib.map(|kib| kib * 1_024.0).ok_or_else(|| format!("/proc/{pid}/status is not understood"))
}

/// Stores keys, and returns the growth of the server's memory.
fn growth(bench: &BenchContext, load: &Path, side: &SystemUnderTest, more: &[String]) -> Result<f64> {
    let server = side.server().ok_or("this system has no server process")?;
    let before = memory(server, "VmRSS")?;
    let mut command = Command::new(load);
    command.args(["load", "--target", &side.target, "--warm-up", "0"]).args(more);
    measure::run(bench.children, &mut command)?;
    thread::sleep(SETTLES);
    Ok(memory(server, "VmRSS")? - before)
}

/// Returns the memory that the server itself reports.
fn reported_memory(bench: &BenchContext, programs: &Programs, side: &SystemUnderTest) -> Result<f64> {
    let address = side.target.trim_start_matches("yesquel:");
    let mut command = Command::new(&programs.yesquel);
    let json = measure::run(bench.children, command.args(["status", address, "--json"]))?.stdout;
    let value: serde_json::Value =
        serde_json::from_str(&json).map_err(|error| format!("{error} in {json}"))?;
    value["memory"]["bytes"].as_f64().ok_or_else(|| format!("no memory in {json}"))
}

pub(in crate::bench) fn memory_per_key(bench: &BenchContext) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let mut table = ResultTable::new([
        "bytes a key of 8 with a value of 100",
        "keys",
        "Yesquel",
        "it counts itself",
        "Redis",
        "ratio",
        "wanted",
    ]);
    for keys in KEYS.map(|keys| if bench.quick { keys / 10 } else { keys }) {
        for (order, shuffled) in [("increasing", false), ("in no order", true)] {
            let load = |threads: u64, batch: u64| {
                let mut more = options(&[
                    ("keys", keys.to_string()),
                    ("threads", threads.to_string()),
                    ("batch", batch.to_string()),
                ]);
                more.extend(shuffled.then(|| "--shuffled".to_owned()));
                more
            };
            // New servers, since a server reuses freed memory.
            let yesquel = SystemUnderTest::yesquel(bench, &programs, false)?;
            let grown = growth(bench, &programs.load, &yesquel, &load(16, 20))? / keys as f64;
            let counted = reported_memory(bench, &programs, &yesquel)? / keys as f64;
            drop(yesquel);
            let redis = SystemUnderTest::redis(bench, false)?;
            let theirs = growth(bench, &programs.load, &redis, &load(2, 100))? / keys as f64;
            table.row([
                order.to_owned(),
                keys.to_string(),
                format!("{grown:.0}"),
                format!("{counted:.0}"),
                format!("{theirs:.0}"),
                format!("{:.2}", grown / theirs),
                "under 220".to_owned(),
            ]);
        }
    }
    print!("{table}");
    println!("growth of the process, in memory only, some seconds after the last key was stored");
    Ok(())
}
