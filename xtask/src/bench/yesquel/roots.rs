//! Figure 10: number of fetches of a tree's root by clients with caches.

use super::{KEYS, Programs, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, ResultTable};
use std::process::Command;

/// Numbers of groups over which the leaves are distributed, and of clients with caches of their own.
const CLUSTERS: [(u64, u64); 5] = [(1, 50), (4, 1), (4, 10), (4, 25), (4, 50)];
const OPERATIONS: u64 = 5_000_000;

/// These are counts, so one measurement suffices. Fetches by clients with an empty cache are
/// included, since the paper does not exclude them.
pub(in crate::bench) fn roots(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let operations = if bench.quick { OPERATIONS / 25 } else { OPERATIONS };
    let mut table = ResultTable::new([
        "groups",
        "clients",
        "operations",
        "root fetches",
        "of all, %",
        "wanted",
        "paper's",
        "but for the first of each client",
        "other inner nodes",
        "hints followed",
    ]);
    for (groups, clients) in CLUSTERS {
        eprintln!("{groups} groups, {clients} clients: {operations} reads, updates and inserts");
        let mut command = Command::new(&programs.load);
        command.arg("roots").args(options(&[
            ("groups", groups.to_string()),
            ("clients", clients.to_string()),
            ("threads", "8".to_owned()),
            ("keys", KEYS.to_string()),
            ("operations", operations.to_string()),
        ]));
        let json = measure::run(bench.children, &mut command)?.stdout;
        let value: serde_json::Value =
            serde_json::from_str(&json).map_err(|error| format!("{error} in {json}"))?;
        for (kind, wanted, paper) in
            [("read", "0", "0"), ("update", "0", "0"), ("insert", "at most 0.16", "0.16")]
        {
            let number = |name: &str| {
                value[kind][name].as_u64().ok_or_else(|| format!("no {name} of {kind} in {json}"))
            };
            let (done, fetched) = (number("operations")?, number("root_fetches")?);
            table.row([
                groups.to_string(),
                clients.to_string(),
                format!("{done} {kind}s"),
                fetched.to_string(),
                format!("{:.4}", 100.0 * fetched as f64 / done as f64),
                wanted.to_owned(),
                paper.to_owned(),
                fetched.saturating_sub(number("root_fetches_of_first_operations")?).to_string(),
                number("inner_fetches")?.to_string(),
                number("forward_steps")?.to_string(),
            ]);
        }
    }
    print!("{table}");
    Ok(())
}
