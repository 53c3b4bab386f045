//! Instructions of an operation, counted by callgrind.
//!
//! Load on the machine changes times but not counts, so this benchmark finds differences between
//! two versions of the client that other benchmarks lose in noise. Two runs of `n` and `m`
//! operations execute `I(n)` and `I(m)` instructions; `(I(m) - I(n)) / (m - n)` is the cost of one
//! operation, without the start and end of the process.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::BenchContext;
use super::measure::ResultTable;
use crate::Result;
use crate::servers::{ServerOptions, redis::RedisServer};

/// Path of a program to compare with: `SERVAL_BASELINE=/path/to/serval`.
const BASELINE: &str = "SERVAL_BASELINE";

const RECORDS: &str = "10000";

/// A row of the table.
struct Case<'a> {
    what: &'static str,
    store: &'static str,
    workload: &'static str,
    properties: &'a [String],
    /// The two numbers of operations.
    operations: [u64; 2],
}

/// Counts workloads A and C on the no-op store, and reads of Redis.
pub(super) fn instructions(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let baseline = env::var_os(BASELINE).map(PathBuf::from);
    let server = RedisServer::start(bench.children, &ServerOptions::default())?;
    let redis = ["redis.host=127.0.0.1".to_owned(), format!("redis.port={}", server.port())];
    let mut load = Command::new(&serval);
    load.args(["load", "redis", "-P", "workloads/workloadc", "-p", &format!("recordcount={RECORDS}")]);
    bench.children.check(with(&mut load, &redis))?;
    let cases = [
        Case {
            what: "noop, workload C",
            store: "noop",
            workload: "workloads/workloadc",
            properties: &[],
            operations: [20_000, 220_000],
        },
        Case {
            what: "noop, workload A",
            store: "noop",
            workload: "workloads/workloada",
            properties: &[],
            operations: [20_000, 220_000],
        },
        Case {
            what: "redis, workload C",
            store: "redis",
            workload: "workloads/workloadc",
            properties: &redis,
            operations: [10_000, 60_000],
        },
    ];
    let mut table = ResultTable::new(["instructions an operation", "now", "baseline", "ratio"]);
    for case in &cases {
        let now = of_one(bench, &serval, case)?;
        let before = baseline.as_deref().map(|program| of_one(bench, program, case)).transpose()?;
        table.row([
            case.what.to_owned(),
            format!("{now:.0}"),
            before.map_or_else(String::new, |before| format!("{before:.0}")),
            before.map_or_else(String::new, |before| format!("{:.3}", now / before)),
        ]);
    }
    print!("{table}");
    Ok(())
}

/// Returns the instructions of one more operation.
fn of_one(bench: &BenchContext, serval: &Path, case: &Case) -> Result<f64> {
    let [few, many] = case.operations;
    let counted = |operations: u64| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(serval);
        command.args(["run", case.store, "-P", case.workload, "-p", "threadcount=1", "-p", "seed=1"]);
        command.args(["-p", &format!("recordcount={RECORDS}")]);
        command.args(["-p", &format!("operationcount={operations}")]);
        let run = super::measure::run(bench.children, with(&mut command, case.properties))?;
        collected(&run.stderr).ok_or_else(|| format!("callgrind printed no count:\n{}", run.stderr))
    };
    Ok((counted(many)? as f64 - counted(few)? as f64) / (many - few) as f64)
}

fn with<'a>(command: &'a mut Command, properties: &[String]) -> &'a mut Command {
    properties.iter().fold(command, |command, property| command.args(["-p", property]))
}

/// Returns the number in callgrind's line `==123== Collected : 2287563`.
pub(super) fn collected(stderr: &str) -> Option<u64> {
    stderr.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_count_is_parsed() {
        assert_eq!(collected("==1== Events    : Ir\n==1== Collected : 2287563\n"), Some(2_287_563));
        assert_eq!(collected("==1== Events    : Ir\n"), None);
    }
}
