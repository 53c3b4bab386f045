//! Embedded Yesquel, compared with redb and fjall.
//!
//! The folder of each store is created once. A round opens the stores one after the other, each in
//! a process of its own, reads every key once, and measures.

use super::{folder, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};
use std::path::Path;
use std::process::Command;

const STORES: [&str; 3] = ["yesquel", "redb", "fjall"];
const KEYS: u64 = 1_000_000;
const SECONDS: f64 = 1.5;

/// Name in the output of a process, description, and the wanted ratio to the other stores.
const FIGURES: [(&str, &str, &str); 6] = [
    ("read_1", "reads, 1 thread", "1.0 or more of both"),
    ("read_2", "reads, 2 threads", ""),
    ("snapshot_1", "reads of one snapshot, 1 thread", ""),
    ("snapshot_2", "reads of one snapshot, 2 threads", ""),
    ("insert_1", "durable inserts, 1 thread", "1.0 or more of one"),
    ("insert_2", "durable inserts, 2 threads", ""),
];

fn run(bench: &BenchContext, program: &Path, workload: &str, more: &[String]) -> Result<serde_json::Value> {
    let mut command = Command::new(program);
    command.arg(workload).args(more);
    let json = measure::run(bench.children, &mut command)?.stdout;
    serde_json::from_str(&json).map_err(|error| format!("{error} in {json}"))
}

pub(in crate::bench) fn embedded(bench: &BenchContext) -> Result<()> {
    let build = ["build", "--release", "--package", "yesquel-bench", "--features", "yesquel-bench/embedded"];
    bench.children.check(crate::cargo().args(build))?;
    let load = BenchContext::built("yesquel-bench")?;
    let folder = folder()?;
    let keys = if bench.quick { KEYS / 10 } else { KEYS };
    let target = |store: &str| format!("{store}:{}", folder.path().join(store).display());
    for store in STORES {
        let more = options(&[("target", target(store)), ("keys", keys.to_string())]);
        run(bench, &load, "embedded-load", &more)?;
    }
    let mut rounds = Vec::new();
    for round in 0..=bench.pairs {
        let mut seen = Vec::new();
        for store in STORES {
            let more = options(&[
                ("target", target(store)),
                ("keys", keys.to_string()),
                ("seconds", SECONDS.to_string()),
                ("process", round.to_string()),
            ]);
            seen.push(run(bench, &load, "embedded", &more)?);
        }
        // The first round fills the system's caches.
        if round > 0 {
            rounds.push(seen);
        }
    }
    let mut table = ResultTable::new([
        "in one process",
        "Yesquel/s",
        "redb/s",
        "fjall/s",
        "over redb",
        "over fjall",
        "wanted",
    ]);
    for (name, says, wanted) in FIGURES {
        let rates = |store: usize| -> Result<Vec<f64>> {
            let rate = |seen: &Vec<serde_json::Value>| seen[store][name].as_f64();
            rounds.iter().map(|seen| rate(seen).ok_or_else(|| format!("no {name}"))).collect()
        };
        let (ours, redb, fjall) = (rates(0)?, rates(1)?, rates(2)?);
        let spread = |values: &[f64]| MedianRange::of(values).ok_or("nothing was measured");
        let over = |theirs: &[f64]| {
            let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
            spread(&ratios)
        };
        table.row([
            says.to_owned(),
            format!("{:.0}", spread(&ours)?),
            format!("{:.0}", spread(&redb)?),
            format!("{:.0}", spread(&fjall)?),
            format!("{:.2}", over(&redb)?),
            format!("{:.2}", over(&fjall)?),
            wanted.to_owned(),
        ]);
    }
    print!("{table}");
    println!("{keys} keys of 64 bits, stored in no order, values of 100 bytes");
    Ok(())
}
