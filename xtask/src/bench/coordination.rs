//! Several client processes as one against one, and against the same processes
//! without coordination.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Bench;
use super::measure::{Spread, Table};
use crate::Result;
use crate::children::Running;
use crate::servers::zookeeper::ZookeeperServer;
use crate::servers::{Options, Server, redis::RedisServer};
use crate::setup::{self, Missing, Purpose};

/// Client processes of a group.
const AGENTS: usize = 4;

/// Clients in all, each with a connection.
const CLIENTS: usize = 32;

/// Pairs at least: intervals of fewer say little.
const PAIRS_MIN: u32 = 10;

/// What is offered, operations/s: about a third of what Redis does here.
const OFFERED: f64 = 12_000.0;

/// The 97.5th percentile of Student's t for the pairs' degrees of freedom, 9 and
/// more: that of 9, which is the widest.
const T_975: f64 = 2.262;

/// How the work is done.
#[derive(Clone, Copy)]
enum Way {
    /// By one process.
    One,
    /// By agents that a coordinator leads.
    Group,
    /// By processes that are started one after the other, each with its part.
    ByHand,
}

struct Numbers {
    throughput: f64,
    target: f64,
    p50: f64,
    p99: f64,
    skew_ms: Option<f64>,
}

struct Course<'a> {
    bench: &'a Bench<'a>,
    serval: std::path::PathBuf,
    redis: RedisServer,
    zookeeper: String,
    place: tempfile::TempDir,
    runs: std::cell::Cell<usize>,
}

impl Course<'_> {
    fn command(&self, clients: usize, more: &[String]) -> Command {
        let mut command = Command::new(&self.serval);
        command.args(["run", "redis", "-P", concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloadb")]);
        command.args(["-p", "redis.host=127.0.0.1", "-p", &format!("redis.port={}", self.redis.port())]);
        command.args(["-p", "recordcount=100000", "-p", &format!("threadcount={clients}")]);
        command.args(more).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn folder(&self) -> String {
        self.runs.set(self.runs.get() + 1);
        self.place.path().join(self.runs.get().to_string()).display().to_string()
    }

    fn run(&self, way: Way, work: &[String]) -> Result<Numbers> {
        let folder = self.folder();
        match way {
            Way::One => {
                let more = [work, &["--result".to_owned(), folder.clone()]].concat();
                self.bench.children.check(&mut self.command(CLIENTS, &more))?;
            }
            Way::Group => {
                let group = [
                    "--clients",
                    &AGENTS.to_string(),
                    "--coordination",
                    &self.zookeeper,
                    "--result",
                    &folder,
                ];
                let more = [work, &group.map(str::to_owned)].concat();
                self.bench.children.check(&mut self.command(CLIENTS / AGENTS, &more))?;
            }
            Way::ByHand => {
                let parts: Vec<String> = (0..AGENTS).map(|_| self.folder()).collect();
                let mut running = Vec::new();
                for (number, part) in parts.iter().enumerate() {
                    let share = format!("share={}/{AGENTS}", number + 1);
                    let own = ["-p".to_owned(), share, "--result".to_owned(), part.clone()];
                    running.push(
                        self.bench
                            .children
                            .start(&mut self.command(CLIENTS / AGENTS, &[work, &own].concat()))?,
                    );
                }
                running.iter().try_for_each(Running::wait_for_end)?;
                let mut merge = Command::new(&self.serval);
                merge.arg("merge").args(&parts).args(["--out", &folder]).stdout(Stdio::null());
                self.bench.children.check(&mut merge)?;
            }
        }
        read(Path::new(&folder))
    }
}

fn read(folder: &Path) -> Result<Numbers> {
    let path = folder.join("result.json");
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let document: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let read = document["metrics"].as_array().into_iter().flatten().find(|metric| metric["name"] == "READ");
    let times =
        read.and_then(|metric| metric["ok"]["response"]["percentiles"].as_array()).ok_or("no reads")?;
    let percentile = |wanted: f64| {
        let found = times.iter().find(|entry| entry["percentile"].as_f64() == Some(wanted));
        found.and_then(|entry| entry["ns"].as_f64()).ok_or("no such percentile")
    };
    let skew = document["group"]["start_skew_ns"].as_f64();
    Ok(Numbers {
        throughput: document["overall"]["throughput"].as_f64().ok_or("no throughput")?,
        target: document["pacing"]["target"].as_f64().unwrap_or(0.0),
        p50: percentile(50.0)? / 1e3,
        p99: percentile(99.0)? / 1e3,
        skew_ms: skew.map(|ns| ns / 1e6),
    })
}

/// The mean of values, and half the width of its 95 % interval.
fn interval(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, T_975 * (variance / n).sqrt())
}

/// One and four agents at one offered load; the same work with and without
/// coordination.
pub(super) fn coordination(bench: &Bench) -> Result<()> {
    let serval = bench.serval()?;
    setup::provide(bench.children, Purpose::Redis, Missing::Install)?;
    setup::provide(bench.children, Purpose::Zookeeper, Missing::Install)?;
    let redis = RedisServer::start(bench.children, &Options::default())?;
    let zookeeper = ZookeeperServer::start(bench.children, &Options::default())?;
    let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        let mut agent = Command::new(&serval);
        agent.args(["agent", "--join", &zookeeper.address()]).stdout(Stdio::null()).stderr(Stdio::null());
        agents.push(bench.children.start(&mut agent)?);
    }
    let zookeeper_address = zookeeper.address();
    let course = Course { bench, serval, redis, zookeeper: zookeeper_address, place, runs: 0.into() };
    let mut load = course.command(CLIENTS, &[]);
    let words: Vec<_> = load.get_args().skip(1).map(ToOwned::to_owned).collect();
    load = Command::new(&course.serval);
    load.arg("load").args(words).stdout(Stdio::null()).stderr(Stdio::null());
    bench.children.check(&mut load)?;
    let pairs = bench.pairs.max(PAIRS_MIN);
    let seconds = if bench.quick { 2 } else { 5 };
    let timed = |more: &[&str]| -> Vec<String> {
        let words = ["-p", "operationcount=0", "-p", "warmup=1"];
        let time = format!("maxexecutiontime={seconds}");
        words.iter().chain(more).map(|word| (*word).to_owned()).chain(["-p".to_owned(), time]).collect()
    };
    let offered = format!("target={OFFERED}");
    let paced = timed(&["-p", &offered, "-p", "target.arrivals=poisson"]);
    let mut one_one = (Vec::new(), Vec::new());
    let mut one_four = (Vec::new(), Vec::new(), Vec::new());
    let mut skews = Vec::new();
    for _ in 0..pairs {
        let (a, b, four) =
            (course.run(Way::One, &paced)?, course.run(Way::One, &paced)?, course.run(Way::Group, &paced)?);
        one_one.0.push((b.p50 / a.p50).ln().abs());
        one_one.1.push((b.p99 / a.p99).ln().abs());
        one_four.0.push(100.0 * ((four.throughput / four.target) / (a.throughput / a.target) - 1.0));
        one_four.1.push((four.p50 / a.p50).ln());
        one_four.2.push((four.p99 / a.p99).ln());
        skews.extend(four.skew_ms);
    }
    let mut differences = Vec::new();
    let free = timed(&[]);
    for _ in 0..pairs {
        let (by_hand, group) = (course.run(Way::ByHand, &free)?, course.run(Way::Group, &free)?);
        differences.push(100.0 * (group.throughput / by_hand.throughput - 1.0));
    }
    drop(agents);
    let spread = |values: &[f64]| Spread::of(values).ok_or("nothing measured");
    let percent = |values: &[f64]| -> Result<String> {
        let spread = spread(values)?;
        let of = |log: f64| 100.0 * log.exp_m1();
        Ok(format!("{:.1} % ({:.1} to {:.1})", of(spread.median), of(spread.min), of(spread.max)))
    };
    let (mean, half) = interval(&differences);
    let mut table = Table::new(["32 clients on Redis", "value", "wanted"]);
    let mut row = |name: &str, value: String, wanted: &str| table.row([name.into(), value, wanted.into()]);
    row("rate of offered, four agents beside one, %", format!("{:.2}", spread(&one_four.0)?), "within 0.5");
    row("read p50, four agents over one", percent(&one_four.1)?, "within the noise");
    row("read p50, one over one (noise, absolute)", percent(&one_one.0)?, "");
    row("read p99, four agents over one", percent(&one_four.2)?, "within the noise");
    row("read p99, one over one (noise, absolute)", percent(&one_one.1)?, "");
    row("start skew, ms", format!("{:.3}", spread(&skews)?), "below 2");
    row(
        "throughput with coordination beside without, %",
        format!("{mean:.2} +- {half:.2} (95 %, {pairs} pairs)"),
        "within 2",
    );
    print!("{table}");
    Ok(())
}
