//! Several client processes as one (`docs/coordination.md`): against one process, against
//! the same processes without coordination, and how exactly they begin together.
//!
//! All sides of a round are made in an order that is drawn anew for each, from a seed that is
//! printed: a machine that drifts drifts for all. A difference is the mean over rounds of
//! ln(b / a), with its 95 % interval by Student's t; small ones read as shares.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
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

/// Rounds at least: intervals of fewer say little.
const PAIRS_MIN: u32 = 10;

/// Starts whose skew is seen.
const STARTS: usize = 100;

/// What is offered, operations/s: less than half of what Redis does with its clients on
/// two processors.
const OFFERED: u32 = 12_000;

/// Percentiles of reads that are compared.
const PERCENTILES: [f64; 3] = [50.0, 95.0, 99.0];

const SEED: u64 = 4;

/// How the work is done.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// By one process.
    One,
    /// By agents that a coordinator leads.
    Group,
    /// By processes that are started one after the other, each with its part.
    ByHand,
}

/// What a result document says.
struct Numbers {
    throughput: f64,
    /// Of response times of reads, ns, in the order of [`PERCENTILES`].
    percentiles: Vec<f64>,
    /// Start skew and the error that it is known to, ms.
    skew: Option<(f64, f64)>,
}

struct Course<'a> {
    bench: &'a Bench<'a>,
    serval: PathBuf,
    redis: RedisServer,
    zookeeper: ZookeeperServer,
    place: tempfile::TempDir,
    /// Folders given out.
    folders: Cell<usize>,
}

impl Course<'_> {
    fn command(&self, phase: &str, clients: usize, more: &[String]) -> Command {
        let mut command = Command::new(&self.serval);
        command.args([phase, "redis", "-P", concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloadb")]);
        command.args(["-p", "redis.host=127.0.0.1", "-p", &format!("redis.port={}", self.redis.port())]);
        command.args(["-p", "recordcount=100000", "-p", &format!("threadcount={clients}")]);
        command.args(more).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn folder(&self) -> PathBuf {
        self.folders.set(self.folders.get() + 1);
        self.place.path().join(self.folders.get().to_string())
    }

    fn led(&self, folder: &Path) -> Vec<String> {
        let group = ["--clients", &AGENTS.to_string(), "--coordination", &self.zookeeper.address()];
        let mut words: Vec<String> = group.map(str::to_owned).into();
        words.extend(["--result".to_owned(), folder.display().to_string()]);
        words
    }

    fn run(&self, way: Way, work: &[String]) -> Result<Numbers> {
        let folder = self.folder();
        let into = |folder: &Path| ["--result".to_owned(), folder.display().to_string()];
        let check = |command: &mut Command| self.bench.children.check(command);
        match way {
            Way::One => check(&mut self.command("run", CLIENTS, &[work, &into(&folder)].concat()))?,
            Way::Group => {
                check(&mut self.command("run", CLIENTS / AGENTS, &[work, &self.led(&folder)].concat()))?;
            }
            Way::ByHand => {
                let parts: Vec<PathBuf> = (0..AGENTS).map(|_| self.folder()).collect();
                let mut running = Vec::new();
                for (number, part) in parts.iter().enumerate() {
                    let share = ["-p".to_owned(), format!("share={}/{AGENTS}", number + 1)];
                    let words = [work, &share, &into(part)].concat();
                    running.push(self.bench.children.start(&mut self.command(
                        "run",
                        CLIENTS / AGENTS,
                        &words,
                    ))?);
                }
                running.into_iter().try_for_each(succeeded)?;
                fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
                let mut merge = Command::new(&self.serval);
                merge.arg("merge").args(&parts).arg("--out").arg(folder.join("result.json"));
                check(merge.stdout(Stdio::null()).stderr(Stdio::null()))?;
            }
        }
        read(&folder)
    }

    /// A start of a group that does next to nothing.
    fn start(&self) -> Result<(f64, f64)> {
        let folder = self.folder();
        let mut command = Command::new(&self.serval);
        command.args(["run", "noop", "-P", concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloadc")]);
        // Paced, so that processes do not keep each other from the processors at once.
        command
            .args(["-p", "operationcount=1000", "-p", "target=4000", "-p", "threadcount=8"])
            .args(self.led(&folder));
        self.bench.children.check(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        skew(&document(&folder)?).ok_or_else(|| "a group's result has no start skew".to_owned())
    }
}

fn succeeded(process: Running) -> Result<()> {
    let status = process.wait()?.status;
    if status.success() { Ok(()) } else { Err(format!("a process with its part by hand failed: {status}")) }
}

fn document(folder: &Path) -> Result<serde_json::Value> {
    let path = folder.join("result.json");
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn skew(document: &serde_json::Value) -> Option<(f64, f64)> {
    let group = &document["group"];
    Some((group["start_skew_ns"].as_f64()? / 1e6, group["clock_error_ns"].as_f64()? / 1e6))
}

fn read(folder: &Path) -> Result<Numbers> {
    let document = document(folder)?;
    let reads = document["metrics"].as_array().into_iter().flatten().find(|metric| metric["name"] == "READ");
    let times =
        reads.and_then(|metric| metric["ok"]["response"]["percentiles"].as_array()).ok_or("no reads")?;
    let percentile = |wanted: &f64| {
        let found = times.iter().find(|entry| entry["percentile"].as_f64() == Some(*wanted));
        found.and_then(|entry| entry["ns"].as_f64()).ok_or(format!("no percentile {wanted}"))
    };
    Ok(Numbers {
        throughput: document["overall"]["throughput"].as_f64().ok_or("no throughput")?,
        percentiles: PERCENTILES.iter().map(percentile).collect::<Result<_>>()?,
        skew: skew(&document),
    })
}

/// The 97.5th percentile of Student's t.
fn t_975(degrees: usize) -> f64 {
    // From 30 on by the first terms of its expansion about the normal's (Abramowitz and
    // Stegun, 26.7.5), exact to 0.0002.
    const SMALL: [f64; 29] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045,
    ];
    let z = 1.959_964_f64;
    let n = degrees as f64;
    let expanded =
        z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
    degrees.checked_sub(1).and_then(|index| SMALL.get(index).copied()).unwrap_or(expanded)
}

/// Differences of pairs: their mean, half the width of its 95 % interval, and how far a
/// single one strays from the mean in 95 of 100.
struct Difference {
    mean: f64,
    half: f64,
    stray: f64,
}

impl Difference {
    /// Of two values at least.
    fn of(values: &[f64]) -> Difference {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let t = t_975(values.len().saturating_sub(1));
        Difference { mean, half: t * deviation / n.sqrt(), stray: t * deviation }
    }

    fn percent(&self) -> String {
        format!("{:+.2} % +- {:.2}", 100.0 * self.mean, 100.0 * self.half)
    }
}

/// Puts the sides of a round into an order of its own (Fisher and Yates; xorshift).
fn shuffle<T, const N: usize>(sides: [T; N], state: &mut u64) -> [T; N] {
    let mut sides = sides;
    for last in (1..N).rev() {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        sides.swap(last, (*state % (last as u64 + 1)) as usize);
    }
    sides
}

/// Makes the sides of a round, and brings them back in the order in which they are named.
fn round<const N: usize>(
    course: &Course,
    ways: [Way; N],
    work: &[String],
    order: &mut u64,
) -> Result<Vec<Numbers>> {
    let mut made: Vec<(usize, Numbers)> = Vec::new();
    for (place, way) in shuffle(std::array::from_fn::<_, N, _>(|place| (place, ways[place])), order) {
        made.push((place, course.run(way, work)?));
    }
    made.sort_by_key(|(place, _)| *place);
    Ok(made.into_iter().map(|(_, numbers)| numbers).collect())
}

/// One and four agents at one offered load; the same work with and without
/// coordination; start skew.
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
    let course = Course { bench, serval, redis, zookeeper, place, folders: 0.into() };
    bench.children.check(&mut course.command("load", CLIENTS, &[]))?;

    // Quick ones are few and short: they show that it works.
    let (rounds, starts, seconds) =
        if bench.quick { (bench.pairs.max(2), 5, 1) } else { (bench.pairs.max(PAIRS_MIN), STARTS, 5) };
    let timed = |more: &[String]| -> Vec<String> {
        let time = format!("maxexecutiontime={seconds}");
        let words = ["operationcount=0", "warmup=1", &time].map(str::to_owned);
        words.iter().chain(more).flat_map(|word| ["-p".to_owned(), word.clone()]).collect()
    };
    let mut order = SEED;
    let (mut noise, mut beside): (Vec<Vec<f64>>, Vec<Vec<f64>>) = Default::default();
    let (mut rates, mut skews) = (Vec::new(), Vec::new());
    // Even spacing: what is offered is the same to the operation.
    let paced = timed(&[format!("target={OFFERED}"), "target.arrivals=uniform".to_owned()]);
    for _ in 0..rounds {
        let made = round(&course, [Way::One, Way::One, Way::Group], &paced, &mut order)?;
        let [one, again, four] = &made[..] else { return Err("a round of three has three".to_owned()) };
        let ratio = |a: &Numbers, b: &Numbers| -> Vec<f64> {
            b.percentiles.iter().zip(&a.percentiles).map(|(b, a)| (b / a).ln()).collect()
        };
        noise.push(ratio(one, again));
        beside.push(ratio(one, four));
        rates.push((four.throughput / one.throughput).ln());
        skews.extend(four.skew);
    }
    let mut differences = Vec::new();
    let free = timed(&[]);
    for _ in 0..rounds {
        let made = round(&course, [Way::ByHand, Way::Group], &free, &mut order)?;
        let [by_hand, group] = &made[..] else { return Err("a round of two has two".to_owned()) };
        differences.push((group.throughput / by_hand.throughput).ln());
        skews.extend(group.skew);
    }
    let loaded = skews.len();
    for _ in 0..starts {
        skews.push(course.start()?);
    }
    drop(agents);

    let mut table = Table::new(["32 clients on Redis", "value", "wanted"]);
    let mut row = |name: String, value: String, wanted: String| table.row([name, value, wanted]);
    let rate = Difference::of(&rates);
    let of = format!("rate at {OFFERED}/s, four agents beside one");
    row(of, rate.percent(), "within 0.5 %".to_owned());
    for (index, percentile) in PERCENTILES.iter().enumerate() {
        let column =
            |rows: &[Vec<f64>]| Difference::of(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
        let (noise, beside) = (column(&noise), column(&beside));
        let wanted = format!("within {:.1} % (one beside one: {})", 100.0 * noise.stray, noise.percent());
        row(format!("read p{percentile}, four agents beside one"), beside.percent(), wanted);
    }
    let difference = Difference::of(&differences);
    row(
        "throughput, with coordination beside without".to_owned(),
        difference.percent(),
        "within 2 %".to_owned(),
    );
    let spread = |values: Vec<f64>| Spread::of(&values).ok_or("nothing measured");
    for (what, skews) in [("under load", &skews[..loaded]), ("of short runs", &skews[loaded..])] {
        let skew = spread(skews.iter().map(|(skew, _)| *skew).collect())?;
        let error = spread(skews.iter().map(|(_, error)| *error).collect())?;
        row(
            format!("start skew of {} starts {what}, ms", skews.len()),
            format!("{skew:.3}, clocks known to {:.3}", error.max),
            "below 2".to_owned(),
        );
    }
    println!(
        "{rounds} rounds of {seconds} s, in an order drawn from seed {SEED}; +- is half the 95 % interval"
    );
    print!("{table}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        // Worked by hand: mean 2, deviation 1, t of two degrees 4.303.
        let of = Difference::of(&[1.0, 2.0, 3.0]);
        assert_eq!((of.mean, (of.half * 1000.0).round(), of.stray), (2.0, 2484.0, 4.303));
        assert!((t_975(30) - 2.0423).abs() < 0.0002 && (t_975(120) - 1.9799).abs() < 0.0002);
    }

    #[test]
    fn every_order_comes() {
        let mut state = SEED;
        let orders: std::collections::BTreeSet<[u8; 3]> =
            (0..100).map(|_| shuffle([1, 2, 3], &mut state)).collect();
        assert_eq!(orders.len(), 6);
    }
}
