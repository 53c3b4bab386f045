//! Yesquel compared with Redis: section 6.1 of its paper on one server, with two client processes
//! of 32 threads, keys of 64 bits and values of 100 bytes.
//!
//! Both servers run all the time, and measurements alternate. As is usual for each system, every
//! thread of Redis's clients has a connection of its own, and all threads of a Yesquel process
//! share one.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use self::half_load::{Load, half_load};
use self::processes::{folder, free_port, options, wait_for};
use self::side::{LoadResult, SystemUnderTest};
use super::BenchContext;
use super::measure::{MedianRange, PairedMeasurements, ResultTable, alternate};
use crate::Result;
use crate::setup;

pub(super) mod costs;
pub(super) mod embedded;
pub(super) mod groups;
mod half_load;
pub(super) mod inserts;
pub(super) mod loads;
pub(super) mod memory;
mod processes;
pub(super) mod quota;
pub(super) mod restart;
pub(super) mod roots;
pub(super) mod scale;
mod side;
pub(super) mod snapshots;
pub(super) mod sql;
mod tables;
pub(super) mod transactions;
pub(super) mod two_rows;
pub(super) mod virtual_time;
pub(super) mod wikipedia;

/// Numbers of groups over which the leaves of section 6.1's loads are distributed.
const GROUPS: [usize; 2] = [1, 4];
/// Client processes.
const PROCESSES: u64 = 2;
/// Threads of each process, unless the benchmark varies their number.
const THREADS: u64 = 32;
/// Keys of the paper's smaller loads.
const KEYS: u64 = 10_000;
/// Seconds of a measurement.
const SECONDS: f64 = 4.0;

/// The programs under test.
struct Programs {
    yesquel: PathBuf,
    load: PathBuf,
}

impl Programs {
    fn build(bench: &BenchContext) -> Result<Programs> {
        Programs::build_with(bench, &[])
    }

    /// Builds the programs with these additional arguments.
    fn build_with(bench: &BenchContext, more: &[&str]) -> Result<Programs> {
        let build = ["build", "--release", "--package", "yesquel-cli", "--package", "yesquel-bench"];
        bench.children.check(crate::cargo().args(build).args(more))?;
        Ok(Programs { yesquel: BenchContext::built("yesquel")?, load: BenchContext::built("yesquel-bench")? })
    }
}

fn closed_loop(threads: u64) -> Vec<String> {
    options(&[("threads", threads.to_string()), ("seconds", SECONDS.to_string()), ("keys", KEYS.to_string())])
}

/// Measures both sides alternately. Returns all results of the clients.
fn compare(
    bench: &BenchContext,
    program: &Path,
    (yesquel, redis): (&SystemUnderTest, &SystemUnderTest),
    workload: &str,
    more: &[String],
    figure: fn(&LoadResult) -> f64,
) -> Result<(PairedMeasurements, [Vec<LoadResult>; 2])> {
    turns(bench, |which| [yesquel, redis][which].load(bench, program, workload, more), figure)
}

/// Alternates between the measurements of two sides.
fn turns(
    bench: &BenchContext,
    measure: impl Fn(usize) -> Result<LoadResult>,
    figure: fn(&LoadResult) -> f64,
) -> Result<(PairedMeasurements, [Vec<LoadResult>; 2])> {
    let all: RefCell<[Vec<LoadResult>; 2]> = RefCell::default();
    let measure = |which: usize| {
        let seen = measure(which)?;
        all.borrow_mut()[which].push(seen);
        Ok(figure(&seen))
    };
    let pairs = alternate(bench.pairs, || measure(0), || measure(1))?;
    // Without the discarded pair.
    Ok((pairs, all.into_inner().map(|seen| seen[1..].to_vec())))
}

fn median(seen: &[LoadResult], of: fn(&LoadResult) -> f64) -> f64 {
    MedianRange::of(&seen.iter().map(of).collect::<Vec<_>>()).map_or(f64::NAN, |spread| spread.median)
}

type Figures = ResultTable<7>;

fn heads() -> Figures {
    ResultTable::new([
        "2 x 32 threads",
        "Yesquel/s",
        "Redis/s",
        "ratio",
        "wanted",
        "client CPU us (Redis's)",
        "server CPU us (Redis's)",
    ])
}

fn row(
    table: &mut Figures,
    name: &str,
    wanted: &str,
    (pairs, seen): &(PairedMeasurements, [Vec<LoadResult>; 2]),
) {
    let cpu =
        |of: fn(&LoadResult) -> f64| format!("{:.2} ({:.2})", median(&seen[0], of), median(&seen[1], of));
    table.row([
        name.to_owned(),
        format!("{:.0}", pairs.a()),
        format!("{:.0}", pairs.b()),
        format!("{:.2}", pairs.ratio()),
        wanted.to_owned(),
        cpu(|seen| seen.client_cpu_us),
        cpu(|seen| seen.server_cpu_us),
    ]);
}

/// Section 6.1.2 on one server, in memory and with a sync for each commit, and the increasing keys
/// of section 6.1.4.
pub(super) fn yesquel(bench: &BenchContext) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let load = programs.load.as_path();
    let (yesquel, redis) =
        (SystemUnderTest::yesquel(bench, &programs, false)?, SystemUnderTest::redis(bench, false)?);
    let sides = (&yesquel, &redis);
    for side in [&yesquel, &redis] {
        side.fill(bench, load, KEYS)?;
    }
    let rate = |seen: &LoadResult| seen.throughput;
    let more = closed_loop(THREADS);
    let mut table = heads();
    let reads = compare(bench, load, sides, "read", &more, rate)?;
    row(&mut table, "reads", "1.1 or more", &reads);
    let updates = compare(bench, load, sides, "update", &more, rate)?;
    row(&mut table, "updates (GET+SET)", "1.0 or more", &updates);
    print!("{table}");
    println!(
        "aborts an update: {:.5}",
        median(&updates.1[0], |seen| seen.aborts / seen.throughput / SECONDS)
    );
    pipelined(bench, load, &redis)?;
    let reads = [Load { name: "reads", workload: "read", saturation: reads.0.b().median }];
    half_load(bench, load, (&yesquel, &redis, "Redis"), &reads, (KEYS, SECONDS), "1.0 or less")?;
    increasing(bench, load, &yesquel)?;
    drop((yesquel, redis));
    durable(bench, &programs)
}

/// Prints Redis's throughput with pipelined reads.
fn pipelined(bench: &BenchContext, load: &Path, redis: &SystemUnderTest) -> Result<()> {
    let mut more = closed_loop(1);
    more.extend(options(&[("pipeline", THREADS.to_string())]));
    let seen = redis.load(bench, load, "read", &more)?;
    println!(
        "Redis, 2 clients of one thread that send {THREADS} reads at once: {:.0}/s, client CPU {:.2} us, server CPU {:.2} us",
        seen.throughput, seen.client_cpu_us, seen.server_cpu_us
    );
    Ok(())
}

/// Insert-mono: every insert has the largest key so far, so that all go to one leaf.
fn increasing(bench: &BenchContext, load: &Path, yesquel: &SystemUnderTest) -> Result<()> {
    let mut table =
        ResultTable::new(["clients, increasing keys", "inserts/s", "of the best before", "aborts"]);
    let mut best = f64::NAN;
    for threads in [1, 2, 4, 8, 16, 32] {
        let seen = yesquel.load_by(bench, load, "insert-mono", &closed_loop(threads), 1)?;
        table.row([
            threads.to_string(),
            format!("{:.0}", seen.throughput),
            if best.is_nan() { "-".to_owned() } else { format!("{:.2}", seen.throughput / best) },
            format!("{:.0}", seen.aborts),
        ]);
        best = best.max(seen.throughput);
    }
    print!("{table}");
    println!("wanted: each at least 0.9 of the best before, no aborts");
    Ok(())
}

/// Every commit is synced to disk before it is acknowledged.
fn durable(bench: &BenchContext, programs: &Programs) -> Result<()> {
    let (yesquel, redis) =
        (SystemUnderTest::yesquel(bench, programs, true)?, SystemUnderTest::redis(bench, true)?);
    let mut table = heads();
    let measured =
        compare(bench, &programs.load, (&yesquel, &redis), "insert", &closed_loop(THREADS), |seen| {
            seen.throughput
        })?;
    row(&mut table, "inserts, each on disk", "1.0 or more", &measured);
    print!("{table}");
    Ok(())
}
