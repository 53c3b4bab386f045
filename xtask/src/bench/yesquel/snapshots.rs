//! Section 6.1.6: cost of a long scan for concurrent updates.

use super::{GROUPS, LoadResult, PROCESSES, Programs, SystemUnderTest, THREADS, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{MedianRange, ResultTable};
use std::path::Path;
use std::thread;

const KEYS: u64 = 1_000_000;

/// Updates during a scan.
struct UpdatesBesideScan {
    without: LoadResult,
    with: LoadResult,
    scan: LoadResult,
    /// The scan's share of the total CPU time.
    share: f64,
}

impl UpdatesBesideScan {
    /// Computes the shares. `alone` is a scan without other load, for the server's CPU time per
    /// key.
    fn new(without: LoadResult, with: LoadResult, scan: LoadResult, alone: &LoadResult) -> UpdatesBesideScan {
        let scanning = scan.throughput * (scan.client_cpu_us + alone.server_cpu_us);
        // The server's CPU time per operation includes that of the scan.
        let updating = with.throughput * (with.client_cpu_us + with.server_cpu_us);
        let all = updating + scan.throughput * scan.client_cpu_us;
        UpdatesBesideScan { without, with, scan, share: scanning / all }
    }

    fn lost(&self) -> f64 {
        1.0 - self.with.throughput / self.without.throughput
    }
}

fn spread(pairs: &[UpdatesBesideScan], of: impl Fn(&UpdatesBesideScan) -> f64) -> MedianRange {
    let nothing = MedianRange { median: f64::NAN, min: f64::NAN, max: f64::NAN };
    MedianRange::of(&pairs.iter().map(of).collect::<Vec<_>>()).unwrap_or(nothing)
}

fn scan(
    bench: &BenchContext,
    program: &Path,
    side: &SystemUnderTest,
    more: &[String],
    keys: u64,
) -> Result<LoadResult> {
    let mut more = more.to_vec();
    more.extend(options(&[("threads", "1".to_owned()), ("scan", (keys / 10).to_string())]));
    side.load_by(bench, program, "scan", &more, 1)
}

/// Compares updates without and with a thread that repeatedly scans a tenth of the keys, each time
/// at a new snapshot. No two updates have the same key, so that all aborts are due to the scan.
pub(in crate::bench) fn snapshots(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    GROUPS.into_iter().try_for_each(|groups| snapshots_at(bench, &programs, groups))
}

/// The same at so many groups, over which the leaves are distributed.
fn snapshots_at(bench: &BenchContext, programs: &Programs, groups: usize) -> Result<()> {
    let program = programs.load.as_path();
    let side = SystemUnderTest::cluster(bench, programs, groups, &[])?;
    let keys = if bench.quick { KEYS / 10 } else { KEYS };
    eprintln!("storing {keys} keys");
    side.fill(bench, program, keys)?;
    let seconds = if bench.quick { "0.5" } else { "2.5" };
    let common = options(&[("keys", keys.to_string()), ("seconds", seconds.to_owned())]);
    let mut updates = common.clone();
    updates
        .extend(options(&[("threads", THREADS.to_string()), ("apart", (PROCESSES * THREADS).to_string())]));
    eprintln!("a scan alone");
    let alone = scan(bench, program, &side, &common, keys)?;
    let mut pairs = Vec::new();
    for pair in 0..=bench.pairs {
        eprintln!("pair {pair} of {}", bench.pairs);
        let without = side.load(bench, program, "update", &updates)?;
        let (with, scanned) = thread::scope(|scope| {
            let scan = scope.spawn(|| scan(bench, program, &side, &common, keys));
            let with = side.load(bench, program, "update", &updates);
            let scanned = scan.join().map_err(|_panic| "a scan panicked".to_owned());
            (with, scanned.and_then(|scanned| scanned))
        });
        // The first round fills caches.
        if pair > 0 {
            pairs.push(UpdatesBesideScan::new(without, with?, scanned?, &alone));
        }
    }
    println!("{groups} groups");
    print(&pairs, &alone, keys);
    Ok(())
}

fn print(pairs: &[UpdatesBesideScan], alone: &LoadResult, keys: u64) {
    let mut table = ResultTable::new(["2 x 32 threads that update, one that scans", "value", "wanted"]);
    let mut row = |name: &str, value: String, wanted: &str| {
        table.row([name.to_owned(), value, wanted.to_owned()]);
    };
    let (lost, share) = (spread(pairs, |pair| 100.0 * pair.lost()), spread(pairs, |pair| 100.0 * pair.share));
    row("updates/s without the scan", format!("{:.0}", spread(pairs, |pair| pair.without.throughput)), "");
    row("updates/s with it", format!("{:.0}", spread(pairs, |pair| pair.with.throughput)), "");
    row("lost, %", format!("{lost:.1}"), &format!("{:.1} or less", share.median + 5.0));
    row("the scan's share of processor time, %", format!("{share:.1}"), "");
    let sum = |of: fn(&UpdatesBesideScan) -> f64| format!("{:.0}", pairs.iter().map(of).sum::<f64>());
    row("updates that lost a race", sum(|pair| pair.without.aborts + pair.with.aborts), "0");
    row("requests that waited", sum(|pair| pair.with.waits), "0");
    row("p99 of updates without, us", format!("{:.0}", spread(pairs, |pair| pair.without.p99_us)), "");
    row("p99 of updates with, us", format!("{:.0}", spread(pairs, |pair| pair.with.p99_us)), "");
    let per_scan = keys as f64 / 10.0;
    row(
        "a scan takes, ms",
        format!("{:.0}", spread(pairs, |pair| per_scan / pair.scan.throughput * 1e3)),
        "",
    );
    row("... alone", format!("{:.0}", per_scan / alone.throughput * 1e3), "");
    row(
        "processor time of a key, client, us",
        format!("{:.2}", spread(pairs, |pair| pair.scan.client_cpu_us)),
        "",
    );
    row("... server, alone", format!("{:.2}", alone.server_cpu_us), "");
    print!("{table}");
}
