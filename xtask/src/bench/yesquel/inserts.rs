//! Section 6.1.4: inserts of increasing keys into one leaf, with and without each technique against
//! conflicts of inserts.

use super::{GROUPS, KEYS, LoadResult, Programs, SystemUnderTest, median, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::ResultTable;

/// Clients, each with one thread, connection and cache, as in the paper.
const CLIENTS: u64 = 32;

/// The omitted technique, and the share of throughput that remains in the paper.
const WITHOUT: [(&str, &str, f64); 4] = [
    ("(nothing)", "", 1.0),
    ("right splits", "right-splits", 0.193),
    ("delegated splits", "delegated-splits", 0.45),
    ("commutative operations", "commutative-operations", 0.2),
];

/// The loads, with their descriptions.
const LOADS: [(&str, &str); 2] = [
    ("insert-mono-read", "each transaction looks for its key and inserts it"),
    ("insert-mono", "each transaction inserts its key at once"),
];

/// Prints throughput and aborts of increasing-key inserts, with and without each technique.
pub(in crate::bench) fn inserts(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    for groups in GROUPS {
        inserts_at(bench, &programs, groups)?;
    }
    println!("wanted: with all of them no aborts; the paper's share is of its own clients, which read first");
    Ok(())
}

/// The same at so many groups, over which the leaves are distributed.
fn inserts_at(bench: &BenchContext, programs: &Programs, groups: usize) -> Result<()> {
    let mut sides = Vec::new();
    for (name, option, _) in WITHOUT {
        let more = ["--without", option];
        let more = if option.is_empty() { &[] } else { &more[..] };
        let side = SystemUnderTest::cluster(bench, programs, groups, more)?;
        side.fill(bench, &programs.load, KEYS)?;
        sides.push((name, side));
    }
    let seconds = if bench.quick { 0.3 } else { 1.5 };
    let more = options(&[
        ("threads", CLIENTS.to_string()),
        ("clients", CLIENTS.to_string()),
        ("seconds", seconds.to_string()),
        ("warm-up", "0.3".to_owned()),
        ("keys", KEYS.to_string()),
    ]);
    for (load, what) in LOADS {
        let mut seen: [Vec<LoadResult>; WITHOUT.len()] = Default::default();
        // Alternate, as the machine drifts.
        for round in 1..=bench.pairs {
            for ((name, side), seen) in sides.iter().zip(&mut seen) {
                eprintln!("{load} without {name}, {round} of {}", bench.pairs);
                seen.push(side.load_by(bench, &programs.load, load, &more, 1)?);
            }
        }
        print(what, groups, &seen);
    }
    Ok(())
}

fn print(what: &str, groups: usize, seen: &[Vec<LoadResult>]) {
    let mut table = ResultTable::new([
        "without",
        "inserts/s",
        "of all",
        "paper's",
        "aborts an insert",
        "aborts",
        "moved an insert",
        "p99 us",
    ]);
    let rate = |seen: &[LoadResult]| median(seen, |seen| seen.throughput);
    for ((name, _, paper), of) in WITHOUT.iter().zip(seen) {
        table.row([
            (*name).to_owned(),
            format!("{:.0}", rate(of)),
            format!("{:.2}", rate(of) / rate(&seen[0])),
            format!("{paper:.2}"),
            format!("{:.4}", median(of, |seen| seen.aborts / seen.operations)),
            format!("{:.0}", of.iter().map(|seen| seen.aborts).sum::<f64>()),
            format!("{:.3}", median(of, |seen| seen.moved / seen.operations)),
            format!("{:.0}", median(of, |seen| seen.p99_us)),
        ]);
    }
    println!("increasing keys by {CLIENTS} clients, {groups} groups; {what}");
    print!("{table}");
}
