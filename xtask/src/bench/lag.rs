//! Staleness of reads of real stores (`docs/lag.md`): the same writes at the same offered load,
//! with reads from the primary, from a replica, from a quorum of several replicas, or behind a
//! write buffer; and the accuracy with which known delays are measured.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::BenchContext;
use super::measure::{self, ResultTable};
use crate::servers::{self, ServerHandle, ServerOptions};
use crate::setup::{self, Missing, ProgramPurpose};
use crate::{Result, ycsb};

/// Offered load, writes/s: low for every store on two processors and with three nodes.
const OFFERED: u32 = 1000;

/// Clients that write, and clients that read the writes.
const WRITERS: &str = "threadcount=4";
const CONSUMERS: &str = "lag.consumers=2";

/// Records before the run; half of the writes update records.
const RECORDS: u32 = 1000;

const SEED: &str = "seed=4";

/// Stores that are not in the default build.
const FEATURES: &str = "serval/cassandra,serval/postgres";

/// A way to read or write a store.
struct LagCase {
    name: &'static str,
    properties: &'static [&'static str],
    /// Share of keys that are sampled, and the time between two reads of a key.
    sampling: [&'static str; 2],
}

/// Sampling for lags of milliseconds, and for lags of seconds, where frequent reads of buffered
/// keys would be most of the load.
const OFTEN: [&str; 2] = ["lag.sample=0.5", "lag.poll=1"];
const SELDOM: [&str; 2] = ["lag.sample=0.1", "lag.poll=20"];

const fn case(
    name: &'static str,
    properties: &'static [&'static str],
    sampling: [&'static str; 2],
) -> LagCase {
    LagCase { name, properties, sampling }
}

/// A kind of server, and the ways to use it.
struct ServerCases {
    kind: &'static str,
    cases: &'static [LagCase],
}

const SERVERS: &[ServerCases] = &[
    ServerCases { kind: "redis", cases: &[case("redis", &[], OFTEN)] },
    ServerCases { kind: "redis-replica", cases: &[case("redis, from its replica", &[], OFTEN)] },
    ServerCases { kind: "postgres", cases: &[case("postgres", &[], OFTEN)] },
    ServerCases { kind: "postgres-replica", cases: &[case("postgres, from its standby", &[], OFTEN)] },
    ServerCases {
        kind: "cassandra-ring",
        cases: &[
            case(
                "cassandra, three replicas, ONE",
                &[
                    "cassandra.keyspace=one",
                    "cassandra.readconsistencylevel=ONE",
                    "cassandra.writeconsistencylevel=ONE",
                ],
                OFTEN,
            ),
            case(
                "cassandra, three replicas, QUORUM",
                &[
                    "cassandra.keyspace=quorum",
                    "cassandra.readconsistencylevel=QUORUM",
                    "cassandra.writeconsistencylevel=QUORUM",
                ],
                OFTEN,
            ),
        ],
    },
    ServerCases {
        kind: "hbase",
        cases: &[
            case("hbase", &["table=t0"], OFTEN),
            case("hbase, buffers of 10 KB", &["table=t1", "writebuffer.size=10KB"], SELDOM),
            case("hbase, buffers of 100 KB", &["table=t2", "writebuffer.size=100KB"], SELDOM),
            case("hbase, buffers of 1 MB", &["table=t3", "writebuffer.size=1MB"], SELDOM),
        ],
    },
];

/// Known delays, simulated before a Redis.
const LAWS: [&str; 2] = ["constant:50ms", "exponential:50ms"];

/// State of the benchmark.
struct LagBenchmark<'a> {
    bench: &'a BenchContext<'a>,
    serval: PathBuf,
    place: tempfile::TempDir,
    /// Seconds of a run.
    seconds: u32,
}

impl LagBenchmark<'_> {
    /// Runs a load or run; its result is in the folder `name`.
    fn make(&self, verb: &str, store: &str, properties: &[String], name: Option<&str>) -> Result<()> {
        let mut command = Command::new(&self.serval);
        command.current_dir(self.place.path());
        command.args([verb, store, "-P", concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/workloada")]);
        for property in properties {
            command.args(["-p", property]);
        }
        if let Some(name) = name {
            command.args(["--result", name]);
        }
        measure::run(self.bench.children, &mut command).map(drop)
    }

    /// Measures the lag of updates and inserts.
    fn lag(&self, number: usize, store: &str, place: &[String], case: &LagCase) -> Result<Value> {
        let own = || place.iter().cloned().chain(case.properties.iter().map(|word| (*word).to_owned()));
        let common = [format!("recordcount={RECORDS}"), WRITERS.to_owned(), SEED.to_owned()];
        self.make("load", store, &own().chain(common.clone()).collect::<Vec<_>>(), None)?;
        let run = [
            "readproportion=0".to_owned(),
            "updateproportion=0.5".to_owned(),
            "insertproportion=0.5".to_owned(),
            "operationcount=0".to_owned(),
            format!("maxexecutiontime={}", self.seconds),
            format!("target={OFFERED}"),
            "lag.role=both".to_owned(),
            // Of two buffered updates of a key the later may arrive first; the earlier is then
            // never read.
            "lag.drain=10".to_owned(),
            CONSUMERS.to_owned(),
        ];
        let sampling = case.sampling.map(str::to_owned);
        let name = format!("r{number}");
        let all: Vec<String> = own().chain(common).chain(run).chain(sampling).collect();
        self.make("run", store, &all, Some(&name))?;
        document(&self.place.path().join(name))
    }

    /// Measures inserts with a simulated delay; compares the delays with the measurements of each
    /// key.
    fn delayed(&self, number: usize, place: &[String], law: &str) -> Result<Known> {
        let (name, list) = (format!("k{number}"), format!("k{number}.csv"));
        let settings = [
            format!("recordcount={}", OFFERED * self.seconds),
            format!("target={OFFERED}"),
            format!("visibility.delay={law}"),
            format!("visibility.log={list}"),
            "lag.role=both".to_owned(),
            "lag.sample=0.5".to_owned(),
            "lag.drain=20".to_owned(),
            // A new table without records.
            format!("table=k{number}"),
            format!("insertstart={}", 10_000_000 * (number + 1)),
            WRITERS.to_owned(),
            CONSUMERS.to_owned(),
            SEED.to_owned(),
        ];
        let all: Vec<String> = place.iter().cloned().chain(settings).collect();
        self.make("load", "redis", &all, Some(&name))?;
        let text =
            |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
        Known::of(
            &text(&self.place.path().join(list))?,
            &text(&self.place.path().join(name).join("lag-keys.csv"))?,
        )
    }
}

fn document(folder: &Path) -> Result<Value> {
    let path = folder.join("result.json");
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Accuracy of the measurement of known delays.
#[derive(Debug, PartialEq)]
struct Known {
    /// Number of keys that were found.
    keys: usize,
    /// Found keys whose delay is between the last read in vain and the first read that found the
    /// key.
    in_bracket: usize,
    /// Keys that the first read did not find; and of these, keys whose lag equals the delay less
    /// the hand-over, to within a poll.
    late: usize,
    within_poll: usize,
    /// Excess of these lags, ns, in rising order.
    off: Vec<i64>,
    /// Hand-overs and polls of these keys, ns, in rising order.
    hand_overs: Vec<i64>,
    polls: Vec<i64>,
}

impl Known {
    /// Reads a `visibility.log` and a `lag-keys.csv` of keys that were inserted once.
    fn of(delays: &str, keys: &str) -> Result<Known> {
        let number = |text: &str| text.parse::<i64>().map_err(|_| format!("'{text}' is no number of ns"));
        let mut delay_of = HashMap::new();
        for line in delays.lines().skip(1) {
            let mut parts = line.rsplitn(3, ',');
            let (delay, key) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
            delay_of.insert(key, number(delay)?);
        }
        let mut lines = keys.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let mut known = Known {
            keys: 0,
            in_bracket: 0,
            late: 0,
            within_poll: 0,
            off: Vec::new(),
            hand_overs: Vec::new(),
            polls: Vec::new(),
        };
        for line in lines {
            let of: HashMap<&str, &str> = names.iter().copied().zip(line.split(',')).collect();
            let text = |name: &str| {
                of.get(name).copied().ok_or_else(|| format!("lag-keys.csv has no column {name}"))
            };
            let fate = text("fate")?;
            if !matches!(fate, "at_once" | "later") {
                continue;
            }
            let delay = *delay_of.get(text("key")?).ok_or_else(|| format!("no delay is noted of {line}"))?;
            let value = |name: &str| number(text(name)?);
            known.keys += 1;
            known.in_bracket += usize::from(value("lower_ns")? <= delay && delay <= value("upper_ns")?);
            if fate == "later" {
                let (hand_over, poll) = (value("hand_over_ns")?, value("poll_ns")?);
                let off = value("lag_ns")? - (delay - hand_over);
                known.late += 1;
                known.within_poll += usize::from(off.abs() <= poll);
                known.off.push(off);
                known.hand_overs.push(hand_over);
                known.polls.push(poll);
            }
        }
        for values in [&mut known.off, &mut known.hand_overs, &mut known.polls] {
            values.sort_unstable();
        }
        Ok(known)
    }
}

fn percent(part: usize, of: usize) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.2} %", 100.0 * part as f64 / of as f64) }
}

/// Returns the median of values in rising order, as ms.
fn median_ms(values: &[i64]) -> String {
    values.get(values.len() / 2).map_or("-".to_owned(), |ns| format!("{:.2}", *ns as f64 / 1e6))
}

/// Returns the lag in a result, in the order of [`HEADS`].
fn cells(name: &str, document: &Value) -> [String; 11] {
    let lag = &document["lag"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let (keys, versions) = (&lag["keys"], &lag["versions"]);
    let late = count(&keys["later"]) + count(&keys["censored"]);
    let tried = late + count(&keys["at_once"]);
    let ms = |value: &Value| value.as_f64().map_or("-".to_owned(), |ns| format!("{:.2}", ns / 1e6));
    let percentile = |latency: &Value, wanted: f64| {
        let all = latency["percentiles"].as_array().into_iter().flatten();
        ms(all
            .filter(|entry| entry["percentile"].as_f64() == Some(wanted))
            .map(|entry| &entry["ns"])
            .next()
            .unwrap_or(&Value::Null))
    };
    let behind: Vec<(u64, u64)> = versions["behind"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| (count(&entry["versions"]), count(&entry["reads"])))
        .collect();
    let reads: u64 = behind.iter().map(|(_, reads)| reads).sum();
    let stale: u64 = behind.iter().filter(|(versions, _)| *versions > 0).map(|(_, reads)| reads).sum();
    let most = behind.iter().map(|(versions, _)| *versions).max().unwrap_or(0);
    let broken = |promise: &str| {
        let promise = &versions[promise];
        format!("{} of {}", count(&promise["violations"]), count(&promise["checked"]))
    };
    [
        name.to_owned(),
        tried.to_string(),
        percent(late as usize, tried as usize),
        percentile(&lag["lag"], 50.0),
        percentile(&lag["lag"], 99.0),
        ms(&versions["last_stale"]["max_ns"]),
        format!("{}, {most}", percent(stale as usize, reads as usize)),
        broken("read_your_writes"),
        broken("monotonic_reads"),
        broken("monotonic_writes"),
        format!("{}, {}", count(&lag["writes"]["not_carried"]), count(&keys["censored"])),
    ]
}

const HEADS: [&str; 11] = [
    "reads of",
    "keys",
    "lag not 0",
    "its median, ms",
    "p99, ms",
    "last stale read, ms",
    "reads behind, most versions",
    "own writes not seen",
    "reads back in time",
    "writes out of order",
    "not carried, not found",
];

/// Measures the lag of real stores, and known delays.
pub(super) fn lag(bench: &BenchContext) -> Result<()> {
    let mut build = crate::cargo();
    build.args(["build", "--release", "--package", "serval", "--features", FEATURES]);
    bench.children.check(&mut build)?;
    let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let seconds = if bench.quick { 2 } else { 10 };
    let benchmark = LagBenchmark { bench, serval: BenchContext::built("serval")?, place, seconds };

    let mut table = ResultTable::new(HEADS);
    let mut problems = Vec::new();
    let mut number = 0;
    for server_cases in SERVERS {
        let server = match start(server_cases.kind, bench) {
            Ok(server) => server,
            Err(reason) => {
                println!("{} skipped: {reason}", server_cases.kind);
                continue;
            }
        };
        let mut properties = server.properties();
        if server_cases.kind == "hbase" {
            // A busy machine needs time; the driver ends after 60 s without an answer.
            properties.push("hbase.connecttimeout=50000".to_owned());
            match ycsb::java_drivers(bench.children) {
                Ok(drivers) => properties.push(format!("hbase.driver={}", drivers.hbase.display())),
                Err(reason) => {
                    println!("hbase skipped: its driver cannot be built: {reason}");
                    continue;
                }
            }
        }
        for case in server_cases.cases {
            number += 1;
            match benchmark.lag(number, servers::store(server_cases.kind), &properties, case) {
                Ok(document) => table.row(cells(case.name, &document)),
                Err(_) if bench.children.interrupted().is_some() => return Err("interrupted".to_owned()),
                // Continue with the other cases.
                Err(reason) => problems.push(format!("{}: {reason}", case.name)),
            }
        }
    }
    println!(
        "\n{OFFERED} writes/s for {seconds} s, half of them updates of {RECORDS} records and more, in one process; 50 % of \
         keys sampled, and 10 % behind a buffer"
    );
    print!("{table}");
    match known(&benchmark) {
        Ok(table) => print!("\n{table}"),
        Err(reason) => problems.push(format!("known delays: {reason}")),
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn start(kind: &str, bench: &BenchContext) -> Result<Box<dyn ServerHandle>> {
    let kind = servers::kind(kind).ok_or_else(|| format!("unknown server '{kind}'"))?;
    setup::provide(bench.children, kind.purpose, Missing::Install)?;
    if kind.purpose == ProgramPurpose::Hbase {
        // The driver needs Java too.
        setup::provide(bench.children, ProgramPurpose::Java, Missing::Install)?;
    }
    (kind.serve)(bench.children, &ServerOptions::default())
}

/// Measures known delays on a Redis.
fn known(benchmark: &LagBenchmark) -> Result<ResultTable<7>> {
    let server = start("redis", benchmark.bench)?;
    let mut table = ResultTable::new([
        "redis, seen late by",
        "keys",
        "delay in its bracket",
        "lag = delay - hand-over, to a poll",
        "median of what it is off, ms",
        "hand-over, ms",
        "poll, ms",
    ]);
    for (number, law) in LAWS.iter().enumerate() {
        let known = benchmark.delayed(number, &server.properties(), law)?;
        table.row([
            (*law).to_owned(),
            known.keys.to_string(),
            format!("{} (wanted: 95)", percent(known.in_bracket, known.keys)),
            percent(known.within_poll, known.late),
            median_ms(&known.off),
            median_ms(&known.hand_overs),
            median_ms(&known.polls),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_server_exists() {
        assert!(
            SERVERS
                .iter()
                .all(|server_cases| servers::kind(server_cases.kind).is_some()
                    && !server_cases.cases.is_empty())
        );
    }

    #[test]
    fn known_delays_are_compared_with_measurements() {
        let delays = "key,acknowledged_ns,delay_ns\na,100,50\nb,100,50\nc,100,7\nd,100,9\n";
        let keys = "key,fate,hand_over_ns,lag_ns,poll_ns,lower_ns,upper_ns\n\
                    a,later,10,41,10,42,52\n\
                    b,later,10,70,10,70,80\n\
                    c,at_once,10,0,,0,12\n\
                    d,censored,10,,,5,\n";
        let known = Known::of(delays, keys).unwrap();
        assert_eq!((known.keys, known.in_bracket, known.late, known.within_poll), (3, 2, 2, 1));
        assert_eq!((known.off, known.hand_overs, known.polls), (vec![1, 30], vec![10, 10], vec![10, 10]));
        assert!(Known::of("key,acknowledged_ns,delay_ns\n", keys).is_err());
    }

    #[test]
    fn a_result_becomes_a_row() {
        let document = serde_json::json!({ "lag": {
            "keys": { "at_once": 90, "later": 9, "censored": 1 },
            "lag": { "percentiles": [{ "percentile": 50.0, "ns": 1_500_000 }, { "percentile": 99.0, "ns": 3_000_000 }] },
            "writes": { "not_carried": 2 },
            "versions": {
                "behind": [{ "versions": 0, "reads": 199 }, { "versions": 3, "reads": 1 }],
                "last_stale": { "max_ns": 4_000_000 },
                "read_your_writes": { "checked": 10, "violations": 1 },
                "monotonic_reads": { "checked": 5, "violations": 0 },
                "monotonic_writes": { "checked": 6, "violations": 0 },
            },
        } });
        let wanted = [
            "x",
            "100",
            "10.00 %",
            "1.50",
            "3.00",
            "4.00",
            "0.50 %, 3",
            "1 of 10",
            "0 of 5",
            "0 of 6",
            "2, 1",
        ];
        assert_eq!(cells("x", &document), wanted.map(str::to_owned));
    }
}
