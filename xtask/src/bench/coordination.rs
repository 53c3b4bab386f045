//! A group of client processes (`docs/coordination.md`), compared with one process and with the
//! same processes without coordination; and the start skew of groups.
//!
//! The order of the sides in a round is drawn from a printed seed, so that the machine's drift
//! affects all sides. A difference is the mean over rounds of ln(b / a), with its 95 % interval by
//! Student's t; small differences read as shares.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::BenchContext;
use super::measure::ResultTable;
use crate::Result;
use crate::children::Running;
use crate::servers::zookeeper::ZookeeperServer;
use crate::servers::{ServerHandle, ServerOptions, redis::RedisServer};
use crate::setup::{self, Missing, ProgramPurpose};

/// Client processes of a group.
const AGENTS: usize = 4;

/// Clients in total, each with a connection.
const CLIENTS: usize = 32;

/// Fewest rounds: with fewer, the interval is too wide.
const PAIRS_MIN: u32 = 10;

/// Pairs at saturation. On two processors shared with Redis and other load, a single pair varies by
/// several per cent.
const SATURATED_PAIRS: u32 = 40;

/// Starts whose skew is measured.
const STARTS: usize = 100;

/// Offered load, operations/s: less than half of Redis' throughput with its clients on two
/// processors.
const OFFERED: u32 = 12_000;

/// Percentiles of reads to compare.
const PERCENTILES: [f64; 3] = [50.0, 95.0, 99.0];

const SEED: u64 = 4;

/// Ways of running the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExecutionMode {
    /// One process.
    One,
    /// Agents that a coordinator leads.
    Group,
    /// Processes started one after the other, each with its share.
    ByHand,
}

/// Results of a run.
struct Numbers {
    throughput: f64,
    /// Percentiles of response times of reads, ns, in the order of [`PERCENTILES`].
    percentiles: Vec<f64>,
    /// Start skew and its error, ms.
    skew: Option<(f64, f64)>,
}

struct CoordinationBenchmark<'a> {
    bench: &'a BenchContext<'a>,
    serval: PathBuf,
    redis: RedisServer,
    zookeeper: ZookeeperServer,
    place: tempfile::TempDir,
    /// Number of folders created.
    folders: Cell<usize>,
}

impl CoordinationBenchmark<'_> {
    fn command(&self, phase: &str, clients: usize, more: &[String]) -> Command {
        let mut command = Command::new(&self.serval);
        command.args([phase, "redis", "-P", concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloadb")]);
        command.args(["-p", "redis.host=127.0.0.1", "-p", &format!("redis.port={}", self.redis.port())]);
        command.args(["-p", "recordcount=100000", "-p", &format!("threadcount={clients}")]);
        command.args(more).stdout(Stdio::null());
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

    /// Runs a command to its end. The error of a failed command contains its standard error.
    fn check(&self, command: &mut Command) -> Result<()> {
        let errors = self.place.path().join("errors");
        let file = fs::File::create(&errors).map_err(|error| format!("{}: {error}", errors.display()))?;
        self.bench.children.check(command.stderr(file)).map_err(|error| {
            format!("{error}\n{}", fs::read_to_string(&errors).unwrap_or_default().trim_end())
        })
    }

    fn run(&self, mode: ExecutionMode, work: &[String]) -> Result<Numbers> {
        let folder = self.folder();
        let into = |folder: &Path| ["--result".to_owned(), folder.display().to_string()];
        let check = |command: &mut Command| self.check(command);
        match mode {
            ExecutionMode::One => {
                // As many event loops as the group has processes, so that only the coordination
                // differs.
                let loops = ["-p".to_owned(), format!("eventloops={AGENTS}")];
                check(&mut self.command("run", CLIENTS, &[work, &loops, &into(&folder)].concat()))?;
            }
            ExecutionMode::Group => {
                check(&mut self.command("run", CLIENTS / AGENTS, &[work, &self.led(&folder)].concat()))?;
            }
            ExecutionMode::ByHand => {
                let parts: Vec<PathBuf> = (0..AGENTS).map(|_| self.folder()).collect();
                let mut running = Vec::new();
                for (number, part) in parts.iter().enumerate() {
                    let share = ["-p".to_owned(), format!("share={}/{AGENTS}", number + 1)];
                    let words = [work, &share, &into(part)].concat();
                    let mut command = self.command("run", CLIENTS / AGENTS, &words);
                    running.push(self.bench.children.start(command.stderr(Stdio::null()))?);
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

    /// Returns the start skew of a group with little load.
    fn start(&self) -> Result<(f64, f64)> {
        let folder = self.folder();
        let mut command = Command::new(&self.serval);
        command.args(["run", "noop", "-P", concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloadc")]);
        // Paced, so that the processes do not compete for the processors at the start.
        command
            .args(["-p", "operationcount=1000", "-p", "target=4000", "-p", "threadcount=8"])
            .args(self.led(&folder));
        self.check(command.stdout(Stdio::null()))?;
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

/// Returns the 97.5th percentile of Student's t.
fn t_975(degrees: usize) -> f64 {
    // From 30 degrees on, the first terms of the expansion about the normal distribution
    // (Abramowitz and Stegun, 26.7.5), exact to 0.0002.
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

/// Differences of pairs: the mean, half the width of its 95 % interval, and the distance from the
/// mean that 95 of 100 pairs keep.
struct PairedDifference {
    mean: f64,
    half: f64,
    stray: f64,
}

impl PairedDifference {
    /// Computes the differences of at least two values.
    fn of(values: &[f64]) -> PairedDifference {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let t = t_975(values.len().saturating_sub(1));
        PairedDifference { mean, half: t * deviation / n.sqrt(), stray: t * deviation }
    }

    fn percent(&self) -> String {
        format!("{:+.2} % +- {:.2}", 100.0 * self.mean, 100.0 * self.half)
    }
}

/// Shuffles the sides of a round (Fisher and Yates; xorshift).
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

/// Runs the sides of a round in a random order. Returns them in the order given.
fn round<const N: usize>(
    benchmark: &CoordinationBenchmark,
    modes: [ExecutionMode; N],
    work: &[String],
    order: &mut u64,
) -> Result<Vec<Numbers>> {
    let mut results: Vec<(usize, Numbers)> = Vec::new();
    for (place, mode) in shuffle(std::array::from_fn::<_, N, _>(|place| (place, modes[place])), order) {
        results.push((place, benchmark.run(mode, work)?));
    }
    results.sort_by_key(|(place, _)| *place);
    Ok(results.into_iter().map(|(_, numbers)| numbers).collect())
}

/// Returns the spread of wake-up times of plain threads, one an agent, that sleep until the same
/// instant, ms. This is the machine's share of the start skew.
fn wake_up_spread() -> f64 {
    let at = Instant::now() + Duration::from_millis(50);
    let sleep = || {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        Instant::now()
    };
    let woken: Vec<Instant> = thread::scope(|scope| {
        let threads: Vec<_> = (0..AGENTS).map(|_| scope.spawn(sleep)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    match (woken.iter().min(), woken.iter().max()) {
        (Some(first), Some(last)) => last.duration_since(*first).as_secs_f64() * 1e3,
        _ => 0.0,
    }
}

/// Starts Redis with records, a ZooKeeper, and agents that wait for work.
fn set_up<'a>(bench: &'a BenchContext) -> Result<(CoordinationBenchmark<'a>, Vec<Running>)> {
    let serval = bench.serval()?;
    setup::provide(bench.children, ProgramPurpose::Redis, Missing::Install)?;
    setup::provide(bench.children, ProgramPurpose::Zookeeper, Missing::Install)?;
    let redis = RedisServer::start(bench.children, &ServerOptions::default())?;
    let zookeeper = ZookeeperServer::start(bench.children, &ServerOptions::default())?;
    let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        let mut agent = Command::new(&serval);
        agent.args(["agent", "--join", &zookeeper.address()]).stdout(Stdio::null()).stderr(Stdio::null());
        agents.push(bench.children.start(&mut agent)?);
    }
    let benchmark = CoordinationBenchmark { bench, serval, redis, zookeeper, place, folders: 0.into() };
    benchmark.check(&mut benchmark.command("load", CLIENTS, &[]))?;
    Ok((benchmark, agents))
}

/// Returns the number of rounds and the seconds of a run; few and short for a quick check.
fn length(bench: &BenchContext, rounds: u32) -> (u32, u32) {
    if bench.quick { (bench.pairs.clamp(2, 5), 1) } else { (bench.pairs.max(rounds), 5) }
}

fn timed(seconds: u32, more: &[String]) -> Vec<String> {
    let time = format!("maxexecutiontime={seconds}");
    let words = ["operationcount=0", "warmup=1", &time].map(str::to_owned);
    words.iter().chain(more).flat_map(|word| ["-p".to_owned(), word.clone()]).collect()
}

/// Adds the row of start skew.
fn skew_rows(table: &mut ResultTable<3>, what: &str, skews: &[(f64, f64)]) -> Result<()> {
    let mut sorted: Vec<f64> = skews.iter().map(|(skew, _)| *skew).collect();
    sorted.sort_by(f64::total_cmp);
    let error = skews.iter().map(|(_, error)| *error).fold(0.0, f64::max);
    let value = quantiles(&sorted).ok_or("nothing measured")?;
    table.row([
        format!("start skew of {} starts {what}, ms", skews.len()),
        format!("{value}, clocks known to {error:.3}"),
        "below 2".to_owned(),
    ]);
    Ok(())
}

/// Formats sorted values in ms: median, 90th percentile, largest, and the number above 2 ms.
fn quantiles(sorted: &[f64]) -> Option<String> {
    let at = |share: usize| sorted.get((sorted.len() - 1) * share / 100).copied();
    let above = sorted.iter().filter(|value| **value >= 2.0).count();
    Some(format!("{:.3}, p90 {:.3}, max {:.3}; {above} above 2", at(50)?, at(90)?, sorted.last()?))
}

/// Compares one process and four agents at one offered load, and measures start skew.
pub(super) fn coordination(bench: &BenchContext) -> Result<()> {
    let (benchmark, agents) = set_up(bench)?;
    let (rounds, seconds) = length(bench, PAIRS_MIN);
    let mut order = SEED;
    let (mut noise, mut beside): (Vec<Vec<f64>>, Vec<Vec<f64>>) = Default::default();
    let (mut rates, mut loaded, mut short, mut alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // Uniform arrivals, so that both sides are offered the same number of operations.
    let paced = timed(seconds, &[format!("target={OFFERED}"), "target.arrivals=uniform".to_owned()]);
    for _ in 0..rounds {
        let results = round(
            &benchmark,
            [ExecutionMode::One, ExecutionMode::One, ExecutionMode::Group],
            &paced,
            &mut order,
        )?;
        let [one, again, four] = &results[..] else {
            return Err("a round of three sides has another number of results".to_owned());
        };
        let ratio = |a: &Numbers, b: &Numbers| -> Vec<f64> {
            b.percentiles.iter().zip(&a.percentiles).map(|(b, a)| (b / a).ln()).collect()
        };
        noise.push(ratio(one, again));
        beside.push(ratio(one, four));
        rates.push((four.throughput / one.throughput).ln());
        loaded.extend(four.skew);
    }
    for _ in 0..if bench.quick { 5 } else { STARTS } {
        short.push(benchmark.start()?);
        alone.push(wake_up_spread());
    }
    drop(agents);

    let mut table = ResultTable::new(["32 clients on Redis", "value", "wanted"]);
    let rate = PairedDifference::of(&rates);
    let of = format!("rate at {OFFERED}/s, four agents beside one process");
    table.row([of, rate.percent(), "within 0.5 %".to_owned()]);
    for (index, percentile) in PERCENTILES.iter().enumerate() {
        let column =
            |rows: &[Vec<f64>]| PairedDifference::of(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
        let (noise, beside) = (column(&noise), column(&beside));
        let wanted = format!("within {:.1} % (one beside one: {})", 100.0 * noise.stray, noise.percent());
        table.row([format!("read p{percentile}, four agents beside one process"), beside.percent(), wanted]);
    }
    skew_rows(&mut table, "under load", &loaded)?;
    skew_rows(&mut table, "of short runs", &short)?;
    alone.sort_by(f64::total_cmp);
    let value = quantiles(&alone).ok_or("nothing measured")?;
    table.row([
        format!("beside them: {AGENTS} threads that sleep until one instant, ms"),
        value,
        String::new(),
    ]);
    println!(
        "{rounds} rounds of {seconds} s, in an order drawn from seed {SEED}; +- is half the 95 % interval"
    );
    print!("{table}");
    Ok(())
}

/// Compares the same work at saturation with and without coordination.
pub(super) fn saturated(bench: &BenchContext) -> Result<()> {
    let (benchmark, agents) = set_up(bench)?;
    let (rounds, seconds) = length(bench, SATURATED_PAIRS);
    let mut order = SEED;
    let (mut differences, mut skews) = (Vec::new(), Vec::new());
    let free = timed(seconds, &[]);
    for _ in 0..rounds {
        let results = round(&benchmark, [ExecutionMode::ByHand, ExecutionMode::Group], &free, &mut order)?;
        let [by_hand, group] = &results[..] else {
            return Err("a round of two sides has another number of results".to_owned());
        };
        differences.push((group.throughput / by_hand.throughput).ln());
        skews.extend(group.skew);
    }
    drop(agents);
    let mut table = ResultTable::new(["32 clients on Redis", "value", "wanted"]);
    table.row([
        "throughput, with coordination beside without".to_owned(),
        PairedDifference::of(&differences).percent(),
        "within 2 %".to_owned(),
    ]);
    skew_rows(&mut table, "at saturation", &skews)?;
    println!(
        "{rounds} pairs of {seconds} s, in an order drawn from seed {SEED}; +- is half the 95 % interval"
    );
    print!("{table}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_uses_students_t() {
        // Computed by hand: mean 2, deviation 1, t of two degrees 4.303.
        let of = PairedDifference::of(&[1.0, 2.0, 3.0]);
        assert_eq!((of.mean, (of.half * 1000.0).round(), of.stray), (2.0, 2484.0, 4.303));
        assert!((t_975(30) - 2.0423).abs() < 0.0002 && (t_975(120) - 1.9799).abs() < 0.0002);
    }

    #[test]
    fn shuffling_reaches_every_order() {
        let mut state = SEED;
        let orders: std::collections::BTreeSet<[u8; 3]> =
            (0..100).map(|_| shuffle([1, 2, 3], &mut state)).collect();
        assert_eq!(orders.len(), 6);
    }
}
