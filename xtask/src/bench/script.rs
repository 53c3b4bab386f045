//! Cost of a script: workload C in Lua against the core workload.

use std::process::Command;

use super::BenchContext;
use super::figures::{line_value, workload_c};
use super::measure::{self, MedianRange, ResultTable, alternate};
use crate::Result;

/// Operations of a run against the no-op store, which take a few seconds, also in Lua.
const OPERATIONS: &str = "5000000";

/// Compares workload C as a script with the core workload on the no-op store, one client: the whole
/// client cost of an operation.
pub(super) fn script(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let script = crate::root().join("workloads/scripts/workloadc.lua");
    let per_operation = |more: &[String]| {
        let mut command = Command::new(&serval);
        command.args(["run", "noop", "-p", "recordcount=1000"]).args(more);
        command.args(["-p", &format!("operationcount={OPERATIONS}")]);
        let measured = measure::run(bench.children, &mut command)?;
        Ok(1e9 / line_value(&measured.stdout, "[OVERALL], Throughput(ops/sec),")?)
    };
    let lua = |more: &[&str]| {
        let mut arguments = vec!["-p".to_owned(), format!("workload={}", script.display())];
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        per_operation(&arguments)
    };
    let bounded = alternate(bench.pairs, || lua(&[]), || per_operation(&workload_c()))?;
    let unbounded =
        alternate(bench.pairs, || lua(&["-p", "script.budget=0"]), || per_operation(&workload_c()))?;
    let mut table = ResultTable::new(["workload C, noop, 1 client", "ns an operation", "over the core"]);
    let mut row = |name: &str, time: MedianRange, ratio: String| {
        table.row([name.to_owned(), format!("{time:.0}"), ratio]);
    };
    row("core workload", bounded.b(), "1".into());
    row("Lua", bounded.a(), format!("{:.2}", bounded.ratio()));
    row("Lua, script.budget=0", unbounded.a(), format!("{:.2}", unbounded.ratio()));
    print!("{table}");
    Ok(())
}
