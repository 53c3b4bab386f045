//! Yesquel against Redis: section 6.1 of its paper on one server, two client
//! processes of 32 threads, keys of 64 bits and values of 100 bytes.
//!
//! Both servers run the whole time; loads go to them in turn. A thread of
//! Redis's clients has a connection of its own, as Redis's clients have; those
//! of Yesquel's share one a process, as Yesquel's do.

use std::cell::RefCell;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::Bench;
use super::measure::{self, Pairs, Spread, Table, alternate};
use crate::Result;
use crate::children::Running;
use crate::setup;

pub(super) mod embedded;
pub(super) mod inserts;
pub(super) mod loads;
pub(super) mod memory;
pub(super) mod restart;
pub(super) mod roots;
pub(super) mod snapshots;
pub(super) mod sql;
pub(super) mod transactions;

/// Client processes.
const PROCESSES: u64 = 2;
/// Threads of each, unless a figure is about their number.
const THREADS: u64 = 32;
/// Keys of the paper's smaller loads.
const KEYS: u64 = 10_000;
/// Seconds of a measurement.
const SECONDS: f64 = 4.0;

/// A server under load.
struct Side {
    target: String,
    running: Running,
    /// Processes that have loaded it: each has a number, and by that keys, of
    /// its own.
    processes: AtomicU64,
    /// What it stores on disk goes with it.
    _folder: Option<tempfile::TempDir>,
}

/// What the clients of one measurement saw together.
#[derive(Debug, Clone, Copy)]
struct Seen {
    throughput: f64,
    client_cpu_us: f64,
    server_cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
    aborts: f64,
    operations: f64,
    /// Refusals by the server because a key had moved, of all processes.
    moved: f64,
    /// Requests that waited at the server, of all processes.
    waits: f64,
    /// Requests to the server, of all processes.
    requests: f64,
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no port is free: {error}"))
}

fn folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))
}

/// Processor time that a process has used, in microseconds.
fn cpu_us(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| error.to_string())?;
    // Behind the name, which is in brackets.
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    let ticks = |at: usize| after.split(' ').nth(at).and_then(|field| field.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        // A tick is a hundredth of a second.
        (Some(user), Some(system)) => Ok((user + system) * 10_000.0),
        _ => Err(format!("/proc/{pid}/stat is not understood")),
    }
}

/// The programs that are measured.
struct Programs {
    yesquel: PathBuf,
    load: PathBuf,
}

impl Programs {
    fn build(bench: &Bench) -> Result<Programs> {
        let build = ["build", "--release", "--package", "yesquel-cli", "--package", "yesquel-bench"];
        bench.children.check(crate::cargo().args(build))?;
        Ok(Programs { yesquel: Bench::built("yesquel")?, load: Bench::built("yesquel-bench")? })
    }
}

/// Waits until somebody listens.
fn wait_for(running: &Running, port: u16) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if running.ended()? || Instant::now() > until {
            return Err(format!("no server came up at port {port}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn start(bench: &Bench, command: &mut Command, kind: &str, port: u16) -> Result<Side> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = bench.children.start(command)?;
    wait_for(&running, port)?;
    let target = format!("{kind}:127.0.0.1:{port}");
    Ok(Side { target, running, processes: AtomicU64::new(1), _folder: None })
}

impl Side {
    fn yesquel(bench: &Bench, programs: &Programs, durable: bool) -> Result<Side> {
        Side::yesquel_with(bench, programs, durable, &[])
    }

    /// A server with options of its own.
    fn yesquel_with(bench: &Bench, programs: &Programs, durable: bool, more: &[&str]) -> Result<Side> {
        let (port, folder) = (free_port()?, folder()?);
        let mut command = Command::new(&programs.yesquel);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]).args(more);
        if durable {
            command.arg("--data").arg(folder.path().join("data"));
        } else {
            command.arg("--in-memory");
        }
        Ok(Side { _folder: Some(folder), ..start(bench, &mut command, "yesquel", port)? })
    }

    fn redis(bench: &Bench, durable: bool) -> Result<Side> {
        let (port, folder) = (free_port()?, folder()?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", ""]);
        if durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(folder.path());
        }
        Ok(Side { _folder: Some(folder), ..start(bench, &mut command, "redis", port)? })
    }

    /// Stores so many keys.
    fn fill(&self, bench: &Bench, program: &Path, keys: u64) -> Result<()> {
        let more = options(&[
            ("threads", "8".to_owned()),
            ("keys", keys.to_string()),
            ("warm-up", "0".to_owned()),
            ("batch", "100".to_owned()),
        ]);
        self.load_by(bench, program, "load", &more, 1).map(drop)
    }

    /// Loads it by the client processes together.
    fn load(&self, bench: &Bench, program: &Path, workload: &str, more: &[String]) -> Result<Seen> {
        self.load_by(bench, program, workload, more, PROCESSES)
    }

    fn load_by(
        &self,
        bench: &Bench,
        program: &Path,
        workload: &str,
        more: &[String],
        processes: u64,
    ) -> Result<Seen> {
        let first = self.processes.fetch_add(processes, Relaxed);
        let before = cpu_us(self.running.pid())?;
        let begun = Instant::now();
        let outputs: Vec<Result<String>> = thread::scope(|scope| {
            let run = |process: u64| {
                let mut command = Command::new(program);
                command.args([workload, "--target", &self.target, "--process", &process.to_string()]);
                command.args(more);
                measure::run(bench.children, &mut command).map(|measured| measured.stdout)
            };
            let threads: Vec<_> =
                (first..first + processes).map(|process| scope.spawn(move || run(process))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|joined| joined.map_err(|_panic| "a load panicked".to_owned())?).collect()
        });
        let (took, after) = (begun.elapsed().as_secs_f64(), cpu_us(self.running.pid())?);
        let mut seen: Option<Seen> = None;
        for output in outputs {
            let own = Seen::of(&output?)?;
            seen = Some(seen.map_or(own, |seen| seen.with(own)));
        }
        let seen = seen.ok_or("no process was run")?;
        // Its warm-up is in both.
        Ok(Seen { server_cpu_us: (after - before) / (seen.throughput * took), ..seen })
    }
}

impl Seen {
    fn of(json: &str) -> Result<Seen> {
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(|error| format!("{error} in {json}"))?;
        let number = |name: &str| value[name].as_f64().ok_or_else(|| format!("no {name} in {json}"));
        let of_server = |name: &str| {
            value["server"][name].as_f64().ok_or_else(|| format!("no server's {name} in {json}"))
        };
        Ok(Seen {
            throughput: number("throughput")?,
            client_cpu_us: number("cpu_us")?,
            server_cpu_us: 0.0,
            p50_us: number("p50_us")?,
            p99_us: number("p99_us")?,
            aborts: number("aborts")?,
            operations: number("operations")?,
            moved: of_server("moved")?,
            waits: of_server("waits")?,
            requests: of_server("reads")? + of_server("commits")? + of_server("prepares")?,
        })
    }

    /// Two processes as one: percentiles of the worse of them.
    fn with(self, other: Seen) -> Seen {
        let throughput = self.throughput + other.throughput;
        let mean = |a: f64, b: f64| (a * self.throughput + b * other.throughput) / throughput;
        Seen {
            throughput,
            client_cpu_us: mean(self.client_cpu_us, other.client_cpu_us),
            server_cpu_us: 0.0,
            p50_us: self.p50_us.max(other.p50_us),
            p99_us: self.p99_us.max(other.p99_us),
            aborts: self.aborts + other.aborts,
            operations: self.operations + other.operations,
            // Both have seen those of both.
            moved: self.moved.max(other.moved),
            waits: self.waits.max(other.waits),
            requests: self.requests.max(other.requests),
        }
    }
}

fn options(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}

fn closed_loop(threads: u64) -> Vec<String> {
    options(&[("threads", threads.to_string()), ("seconds", SECONDS.to_string()), ("keys", KEYS.to_string())])
}

/// Measurements of both sides in turn, with all that the clients saw.
fn compare(
    bench: &Bench,
    program: &Path,
    (yesquel, redis): (&Side, &Side),
    workload: &str,
    more: &[String],
    figure: fn(&Seen) -> f64,
) -> Result<(Pairs, [Vec<Seen>; 2])> {
    let all: RefCell<[Vec<Seen>; 2]> = RefCell::default();
    let measure = |which: usize, side: &Side| {
        let seen = side.load(bench, program, workload, more)?;
        all.borrow_mut()[which].push(seen);
        Ok(figure(&seen))
    };
    let pairs = alternate(bench.pairs, || measure(0, yesquel), || measure(1, redis))?;
    Ok((pairs, all.into_inner()))
}

fn median(seen: &[Seen], of: fn(&Seen) -> f64) -> f64 {
    Spread::of(&seen.iter().map(of).collect::<Vec<_>>()).map_or(f64::NAN, |spread| spread.median)
}

type Figures = Table<7>;

fn heads() -> Figures {
    Table::new([
        "2 x 32 threads",
        "Yesquel/s",
        "Redis/s",
        "ratio",
        "wanted",
        "client CPU us (Redis's)",
        "server CPU us (Redis's)",
    ])
}

fn row(table: &mut Figures, name: &str, wanted: &str, (pairs, seen): &(Pairs, [Vec<Seen>; 2])) {
    let cpu = |of: fn(&Seen) -> f64| format!("{:.2} ({:.2})", median(&seen[0], of), median(&seen[1], of));
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

/// Section 6.1.2 on one server, in memory and with a sync a commit; 6.1.4's
/// increasing keys.
pub(super) fn yesquel(bench: &Bench) -> Result<()> {
    if setup::find("redis-server").is_none() {
        return Err("redis-server is not installed: apt-get install redis-server".to_owned());
    }
    let programs = Programs::build(bench)?;
    let load = programs.load.as_path();
    let (yesquel, redis) = (Side::yesquel(bench, &programs, false)?, Side::redis(bench, false)?);
    let sides = (&yesquel, &redis);
    for side in [&yesquel, &redis] {
        side.fill(bench, load, KEYS)?;
    }
    let rate = |seen: &Seen| seen.throughput;
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
    half_load(bench, load, sides, reads.0.b().median)?;
    increasing(bench, load, &yesquel)?;
    drop((yesquel, redis));
    durable(bench, &programs)
}

/// What Redis does for clients that send many reads at once.
fn pipelined(bench: &Bench, load: &Path, redis: &Side) -> Result<()> {
    let mut more = closed_loop(1);
    more.extend(options(&[("pipeline", THREADS.to_string())]));
    let seen = redis.load(bench, load, "read", &more)?;
    println!(
        "Redis, 2 clients of one thread that send {THREADS} reads at once: {:.0}/s, client CPU {:.2} us, server CPU {:.2} us",
        seen.throughput, seen.client_cpu_us, seen.server_cpu_us
    );
    Ok(())
}

/// The 99th percentile where both are offered half of what Redis can do.
fn half_load(bench: &Bench, load: &Path, sides: (&Side, &Side), saturation: f64) -> Result<()> {
    let mut more = closed_loop(THREADS);
    let rate = saturation / 2.0 / PROCESSES as f64;
    more.extend(options(&[("rate", format!("{rate:.0}"))]));
    let (pairs, seen) = compare(bench, load, sides, "read", &more, |seen| seen.p99_us)?;
    let (ours, theirs) = (median(&seen[0], |seen| seen.p50_us), median(&seen[1], |seen| seen.p50_us));
    println!(
        "response time of reads at {:.0}/s, open loop, p99 us: Yesquel {:.0}, Redis {:.0}, ratio {:.2}, wanted 1.0 or less; p50 {ours:.0} and {theirs:.0}",
        saturation / 2.0,
        pairs.a(),
        pairs.b(),
        pairs.ratio()
    );
    Ok(())
}

/// Insert-mono: every insert is of the largest key so far, all into one leaf.
fn increasing(bench: &Bench, load: &Path, yesquel: &Side) -> Result<()> {
    let mut table = Table::new(["clients, increasing keys", "inserts/s", "of the best before", "aborts"]);
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

/// Every commit on disk before it is acknowledged.
fn durable(bench: &Bench, programs: &Programs) -> Result<()> {
    let (yesquel, redis) = (Side::yesquel(bench, programs, true)?, Side::redis(bench, true)?);
    let mut table = heads();
    let measured =
        compare(bench, &programs.load, (&yesquel, &redis), "insert", &closed_loop(THREADS), |seen| {
            seen.throughput
        })?;
    row(&mut table, "inserts, each on disk", "1.0 or more", &measured);
    print!("{table}");
    Ok(())
}
