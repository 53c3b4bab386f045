//! Overhead of a sweep besides loading, warming up and measuring.

use std::fs;
use std::process::Command;

use super::BenchContext;
use super::measure::ResultTable;
use crate::Result;
use crate::servers::{ServerOptions, redis::RedisServer};
use crate::setup::{self, Missing, ProgramPurpose};

/// Names in `time_s` of loading, warming up and measuring, including the measuring of a search.
const WANTED: [&str; 4] = ["loading", "warming up", "measuring", "searching"];

/// Measures two stores, 8 points, 3 repeats of 10 s (2 s with `--quick`).
pub(super) fn sweep(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    setup::provide(bench.children, ProgramPurpose::Redis, Missing::Install)?;
    let server = RedisServer::start(bench.children, &ServerOptions::default())?;
    let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let out = place.path().join("sweep");
    let time = if bench.quick { "2s" } else { "10s" };
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloada");
    let mut command = Command::new(&serval);
    command.arg("sweep").arg(workload).arg("--out").arg(&out);
    command.args(["--store", "redis", "--store", "yesquel", "--plain", "--points", "8", "--repeats", "3"]);
    command.args(["--time", time, "--warm-up-max", "10s", "-p", "recordcount=100000"]);
    command.args(["-p", "redis.host=127.0.0.1"]);
    command.args(["-p", &format!("redis.port={}", server.port())]);
    bench.children.check(&mut command)?;
    let path = out.join("experiment.json");
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let document: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let times = document["time_s"].as_object().ok_or("no time_s in the experiment")?;
    let seconds = |name: &str| times.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    let all: f64 = times.keys().map(|name| seconds(name)).sum();
    let wanted: f64 = WANTED.iter().map(|name| seconds(name)).sum();
    let mut table = ResultTable::new(["a sweep of 2 stores, 8 points, 3 repeats", "s", "share of all"]);
    for name in times.keys() {
        let share = format!("{:.1} %", 100.0 * seconds(name) / all);
        table.row([name.clone(), format!("{:.1}", seconds(name)), share]);
    }
    let overhead = all - wanted;
    let share = format!("{:.1} % (wanted: under 10 %)", 100.0 * overhead / all);
    table.row(["beside loading, warming up and measuring".to_owned(), format!("{overhead:.1}"), share]);
    print!("{table}");
    Ok(())
}
