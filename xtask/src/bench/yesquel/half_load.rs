//! Response times with an offered load of half of the peer's throughput.
//!
//! Each thread has a schedule, the same for both sides, and response times start at the intended
//! start, so that an operation delayed by a slow one counts its wait. An operation that was due but
//! not sent at the end counts the time it waited. Percentiles are of the merged response times of
//! all processes. Sides alternate, and the ratio is the median of the pairs' ratios. As the machine
//! itself affects the slowest hundredth of a measurement, the ratio of all merged measurements is
//! printed too; one disturbed pair can change it.

use std::cell::RefCell;
use std::path::Path;

use super::{LoadResult, PROCESSES, SystemUnderTest, THREADS, median, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::latencies::Latencies;
use crate::bench::measure::{ResultTable, alternate};

/// Operations of the offered load.
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) workload: &'static str,
    /// The peer's throughput in a closed loop, operations/s.
    pub(super) saturation: f64,
}

/// Seconds in which new clients fill their caches.
const WARM_UP: &str = "2";

/// Offers both sides half of the peer's throughput, for each load.
pub(super) fn half_load(
    bench: &BenchContext,
    program: &Path,
    (yesquel, peer, name): (&SystemUnderTest, &SystemUnderTest, &str),
    loads: &[Load],
    (keys, seconds): (u64, f64),
    wanted: &str,
) -> Result<()> {
    let peers = |head: &str| format!("{head} ({name}'s)");
    let mut table = ResultTable::new([
        "at half load, open loop",
        "offered/s",
        &peers("p99 us"),
        "ratio",
        "of all pairs together",
        "wanted",
        &peers("p50 us"),
        &peers("done of offered"),
    ]);
    for load in loads {
        eprintln!("{} at half load: {} pairs", load.name, bench.pairs);
        let offered = load.saturation / 2.0;
        let more = options(&[
            ("threads", THREADS.to_string()),
            ("keys", keys.to_string()),
            ("seconds", seconds.to_string()),
            ("warm-up", WARM_UP.to_owned()),
            ("rate", format!("{:.0}", offered / PROCESSES as f64)),
        ]);
        let all: RefCell<[Vec<(LoadResult, Latencies)>; 2]> = RefCell::default();
        let measure = |which: usize, side: &SystemUnderTest| {
            let seen = side.load_and_times(bench, program, load.workload, &more, PROCESSES)?;
            let p99_us = seen.0.p99_us;
            all.borrow_mut()[which].push(seen);
            Ok(p99_us)
        };
        let pairs = alternate(bench.pairs, || measure(0, yesquel), || measure(1, peer))?;
        let all = all.into_inner().map(|mut seen| {
            // The discarded pair.
            seen.remove(0);
            seen
        });
        let together = |side: &[(LoadResult, Latencies)]| {
            let mut together = Latencies::default();
            side.iter().for_each(|(_, times)| together.add(times));
            together.quantile(0.99)
        };
        let seen = [&all[0], &all[1]].map(|side| side.iter().map(|(seen, _)| *seen).collect::<Vec<_>>());
        let done = |side: &[LoadResult]| median(side, |seen| seen.throughput) / offered;
        table.row([
            load.name.to_owned(),
            format!("{offered:.0}"),
            format!("{:.0} ({:.0})", pairs.a(), pairs.b()),
            format!("{:.2}", pairs.ratio()),
            format!("{:.2}", together(&all[0]) / together(&all[1])),
            wanted.to_owned(),
            format!(
                "{:.0} ({:.0})",
                median(&seen[0], |seen| seen.p50_us),
                median(&seen[1], |seen| seen.p50_us)
            ),
            format!("{:.3} ({:.3})", done(&seen[0]), done(&seen[1])),
        ]);
    }
    print!("{table}");
    Ok(())
}
