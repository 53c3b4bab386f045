//! Performance targets of the client, compared with another program in the same run if there is
//! one. `docs/benchmarks.md` has the results, with date and machine.

use std::cell::{Cell, RefCell};
use std::process::Command;

use super::BenchContext;
use super::measure::{self, Measured, MedianRange, ResultTable, alternate};
use crate::Result;
use crate::servers::{ServerOptions, redis::RedisServer};
use crate::setup::{self, Missing, ProgramPurpose};

/// Operations of a run against the no-op store, which take a few seconds.
const NOOP_OPERATIONS: &str = "40000000";
/// Operations for YCSB's client, which is slower, for about the same time.
const YCSB_OPERATIONS: u64 = 20_000_000;
/// Records that one thread loads into the no-op store.
const NOOP_RECORDS: &str = "10000000";
/// Records in Redis: 12 MB, more than the processor's caches.
const REDIS_RECORDS: &str = "10000";
/// Reads of a run against Redis, which take a few seconds.
const REDIS_OPERATIONS: u64 = 400_000;
/// Clients against Redis.
const REDIS_CLIENTS: &str = "32";
/// Seconds of the measured part of a paced run.
const PACED_SECONDS: u64 = 10;

/// Properties of the keys in Redis: `redis-benchmark -r` makes keys of twelve digits.
const REDIS_KEYS: [&str; 8] = [
    "-p",
    "insertorder=ordered",
    "-p",
    "zeropadding=12",
    "-p",
    "requestdistribution=uniform",
    "-p",
    "recordcount=10000",
];

/// Returns the value of a `[METRIC], name, value` line.
pub(super) fn line_value(text: &str, start: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| format!("no line '{start}' in:\n{text}"))
}

/// Returns the number after a name in a JSON document, from the first `section` on.
pub(super) fn json_number(text: &str, section: &str, name: &str) -> Result<f64> {
    let from = text.find(&format!("\"{section}\"")).unwrap_or_default();
    let rest = text[from..].split_once(&format!("\"{name}\":")).map(|(_, rest)| rest.trim_start());
    let number = rest.and_then(|rest| rest.split([',', '\n', '}']).next());
    number
        .and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| format!("no {section}.{name} in the result"))
}

pub(super) fn workload_c() -> Vec<String> {
    vec!["-P".into(), crate::root().join("workloads/workloadc").display().to_string()]
}

/// Compares workload C on the no-op store with YCSB's BasicDB, two clients each.
pub(super) fn noop(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let ours = || {
        let mut command = Command::new(&serval);
        command.args(["run", "noop", "-threads", "2"]).args(workload_c());
        command.args(["-p", &format!("operationcount={NOOP_OPERATIONS}")]);
        let measured = measure::run(bench.children, &mut command)?;
        line_value(&measured.stdout, "[OVERALL], Throughput(ops/sec),")
    };
    let class_path = match setup::provide(bench.children, ProgramPurpose::Java, Missing::Install) {
        Ok(_) => crate::ycsb::class_path(bench.children),
        Err(why) => Err(why),
    };
    match class_path {
        Ok(class_path) => {
            let java = || {
                let mut command = Command::new("java");
                command.args(["-cp", &class_path, "site.ycsb.Client", "-t", "-db", "site.ycsb.BasicDB"]);
                command.args(workload_c()).args(["-threads", "2", "-p", "basicdb.verbose=false"]);
                command.args(["-p", &format!("operationcount={YCSB_OPERATIONS}")]);
                let measured = measure::run(bench.children, &mut command)?;
                line_value(&measured.stdout, "[OVERALL], Throughput(ops/sec),")
            };
            let pairs = alternate(bench.pairs, ours, java)?;
            let mut table = ResultTable::new(["workload C, 2 clients", "operations/s"]);
            table.row(["serval, noop".into(), format!("{:.0}", pairs.a())]);
            table.row(["YCSB 0.17.0, BasicDB".into(), format!("{:.0}", pairs.b())]);
            print!("{table}");
            println!(
                "serval over YCSB: {:.2} (wanted: 12 million where YCSB does 2.9 million, 4.14)",
                pairs.ratio()
            );
        }
        Err(why) => {
            println!("without YCSB's client beside it: {why}");
            println!("serval, noop: {:.0} operations/s", ours()?);
        }
    }
    Ok(())
}

/// Measures one thread that makes records of 1,000 bytes and loads them into the no-op store.
pub(super) fn load(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let mut rates = Vec::new();
    for _ in 0..bench.pairs {
        let mut command = Command::new(&serval);
        command.args(["load", "noop", "-threads", "1"]).args(workload_c());
        command.args(["-p", &format!("recordcount={NOOP_RECORDS}")]);
        let measured = measure::run(bench.children, &mut command)?;
        rates.push(line_value(&measured.stdout, "[OVERALL], Throughput(ops/sec),")?);
    }
    let spread = MedianRange::of(&rates).ok_or("nothing measured")?;
    println!("records of ten fields of 100 bytes, one thread: {spread:.0} records/s (wanted: 2,000,000)");
    Ok(())
}

/// Measures the start of every distribution over 10^12 records.
pub(super) fn key_space(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let mut table = ResultTable::new(["10^12 records", "ms from start to end", "MiB"]);
    for distribution in
        ["uniform", "zipfian", "exactzipfian", "latest", "hotspot", "sequential", "exponential"]
    {
        let (mut times, mut memory) = (Vec::new(), 0);
        for _ in 0..bench.pairs {
            let mut command = Command::new(&serval);
            command.args(["run", "noop"]).args(workload_c());
            command.args(["-p", "recordcount=1000000000000", "-p", "operationcount=1"]);
            command.args(["-p", &format!("requestdistribution={distribution}")]);
            let measured = measure::run(bench.children, &mut command)?;
            times.push(measured.wall_seconds * 1e3);
            memory = memory.max(measured.memory_bytes_max);
        }
        let spread = MedianRange::of(&times).ok_or("nothing measured")?;
        table.row([
            distribution.into(),
            format!("{spread:.1}"),
            format!("{:.1}", memory as f64 / f64::from(1 << 20)),
        ]);
    }
    print!("{table}");
    println!("the whole process: start, one operation, end (wanted: under 50 ms and 64 MiB)");
    Ok(())
}

/// Starts a Redis server with the records of these benchmarks.
fn loaded_redis(bench: &BenchContext, serval: &std::path::Path) -> Result<RedisServer> {
    setup::provide(bench.children, ProgramPurpose::Redis, Missing::Install)?;
    let server = RedisServer::start(bench.children, &ServerOptions::default())?;
    let mut command = Command::new(serval);
    command.args(["load", "redis", "-threads", "8"]).args(workload_c()).args(REDIS_KEYS);
    command.args(["-p", "redis.host=127.0.0.1", "-p", &format!("redis.port={}", server.port())]);
    measure::run(bench.children, &mut command)?;
    Ok(server)
}

/// Returns a run of reads by serval with its result document on standard output.
fn read_redis(
    bench: &BenchContext,
    serval: &std::path::Path,
    server: &RedisServer,
    more: &[String],
) -> Result<Measured> {
    let mut command = Command::new(serval);
    command.args(["run", "redis", "-threads", REDIS_CLIENTS]).args(workload_c()).args(REDIS_KEYS);
    command.args(["-p", "redis.host=127.0.0.1", "-p", &format!("redis.port={}", server.port())]);
    command.args(["-p", "exporter=json"]).args(more);
    measure::run(bench.children, &mut command)
}

fn operations(count: u64) -> Vec<String> {
    vec!["-p".into(), format!("operationcount={count}")]
}

/// Compares reads of 1 KB records with `redis-benchmark -c 32` over the same keys.
pub(super) fn redis(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let server = loaded_redis(bench, &serval)?;
    let per_operation = |measured: &Measured| measured.cpu_seconds() * 1e6 / REDIS_OPERATIONS as f64;
    let cpu: RefCell<[Vec<f64>; 3]> = RefCell::default();
    let note = |row: usize, measured: &Measured| cpu.borrow_mut()[row].push(per_operation(measured));
    let ours = |row: usize, more: &[&str]| {
        let mut arguments = operations(REDIS_OPERATIONS);
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        let measured = read_redis(bench, &serval, &server, &arguments)?;
        note(row, &measured);
        json_number(&measured.stdout, "overall", "throughput")
    };
    let port = server.port().to_string();
    let requests = REDIS_OPERATIONS.to_string();
    let theirs = || {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &port, "-c", REDIS_CLIENTS, "-n", &requests]);
        command.args(["-r", REDIS_RECORDS, "--csv", "HGETALL", "user__rand_int__"]);
        let measured = measure::run(bench.children, &mut command)?;
        note(1, &measured);
        csv_rate(&measured.stdout)
    };
    let pairs = alternate(bench.pairs, || ours(0, &[]), theirs)?;
    let shared = alternate(bench.pairs, || ours(2, &["-p", "redis.connections=2"]), theirs)?;
    let cpu = cpu.into_inner();
    let median = |row: usize| MedianRange::of(&cpu[row]).map_or(f64::NAN, |spread| spread.median);
    let mut table = ResultTable::new([
        "HGETALL, 32 clients",
        "operations/s",
        "CPU us/operation",
        "rate ratio",
        "CPU ratio",
    ]);
    let mut row = |name: &str, index: usize, rate: MedianRange, ratio: f64| {
        table.row([
            name.to_owned(),
            format!("{:.0}", rate.median),
            format!("{:.2}", median(index)),
            format!("{ratio:.2}"),
            format!("{:.2}", median(index) / median(1)),
        ]);
    };
    row("redis-benchmark -c 32", 1, pairs.b(), 1.0);
    row("serval, a connection each", 0, pairs.a(), pairs.ratio().median);
    row("serval, 2 shared connections", 2, shared.a(), shared.ratio().median);
    print!("{table}");
    println!("wanted: rate 0.9 or more at CPU 1.3 or less; with shared connections CPU 0.6 or less");
    Ok(())
}

/// Returns the rate in redis-benchmark's CSV, the second value.
fn csv_rate(csv: &str) -> Result<f64> {
    let values = csv.lines().last().and_then(|line| line.split("\",\"").nth(1));
    values
        .and_then(|rate| rate.parse().ok())
        .ok_or_else(|| format!("redis-benchmark printed no rate:\n{csv}"))
}

/// Returns the share of time, in per cent, in which busy threads on every processor do not run. The
/// hypervisor and the kernel take this time in pieces of 100 us and more.
fn stolen_share() -> f64 {
    let span = std::time::Duration::from_secs(2);
    let spin = || {
        let start = std::time::Instant::now();
        let (mut last, mut stolen) = (start, std::time::Duration::ZERO);
        while last - start < span {
            let now = std::time::Instant::now();
            if now - last > std::time::Duration::from_micros(100) {
                stolen += now - last;
            }
            last = now;
        }
        stolen.as_secs_f64()
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let stolen: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(spin)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    });
    100.0 * stolen / (span.as_secs_f64() * processors as f64)
}

/// Returns the 99th percentile of lateness in the median second of a result's series, so that a
/// stall of the machine affects one second only.
fn lateness_of_seconds(result: &str) -> Result<f64> {
    let series = result.split_once("\"series\"").map_or("", |(_, series)| series);
    let seconds = series.split("\"lateness\"").skip(1);
    let late: Vec<f64> = seconds.filter_map(|second| json_number(second, "", "p99_ns").ok()).collect();
    // Seconds of the warm-up and at the end have no lateness.
    let late: Vec<f64> = late.into_iter().filter(|ns| *ns > 0.0).map(|ns| ns / 1e3).collect();
    Ok(MedianRange::of(&late).ok_or("no lateness in the series")?.median)
}

/// Measures a paced run at half of saturation.
pub(super) fn pacing(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let stolen_before = stolen_share();
    let server = loaded_redis(bench, &serval)?;
    let saturation = Cell::new(0.0);
    let unpaced = || {
        let measured = read_redis(bench, &serval, &server, &operations(REDIS_OPERATIONS))?;
        saturation.set(json_number(&measured.stdout, "overall", "throughput")?);
        let cpu = json_number(&measured.stdout, "overall", "client_cpu_s")?;
        Ok(cpu * 1e6 / json_number(&measured.stdout, "overall", "operations")?)
    };
    let results: RefCell<[Vec<f64>; 5]> = RefCell::default();
    let paced = || {
        let target = (saturation.get() / 2.0).round();
        let arguments = ["-target", &target.to_string(), "-p", &format!("maxexecutiontime={PACED_SECONDS}")];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
        arguments.extend(operations(0));
        let measured = read_redis(bench, &serval, &server, &arguments)?;
        let text = &measured.stdout;
        let done = json_number(text, "overall", "operations")?;
        let achieved = json_number(text, "overall", "throughput")?;
        let lateness = &text[text.find("\"lateness\"").ok_or("no lateness in the result")?..];
        let late = |percentile: &str| -> Result<f64> {
            let from =
                lateness.find(&format!("\"percentile\": {percentile},")).ok_or("no such percentile")?;
            Ok(json_number(&lateness[from..], "ns", "ns")? / 1e3)
        };
        let mut results = results.borrow_mut();
        let values = [
            target,
            100.0 * (achieved / target - 1.0),
            late("50.0")?,
            late("99.0")?,
            lateness_of_seconds(text)?,
        ];
        for (all, value) in results.iter_mut().zip(values) {
            all.push(value);
        }
        Ok(json_number(text, "overall", "client_cpu_s")? * 1e6 / done)
    };
    // Unpaced first, which sets the target.
    let pairs = alternate(bench.pairs, unpaced, paced)?;
    let results = results.into_inner();
    let spread = |index: usize| MedianRange::of(&results[index]).ok_or("nothing measured");
    let mut table = ResultTable::new(["at half of saturation, 32 clients, 10 s", "value", "wanted"]);
    let mut row = |name: &str, value: String, wanted: &str| table.row([name.into(), value, wanted.into()]);
    row("target, operations/s", format!("{:.0}", spread(0)?), "");
    row("achieved beside the target, %", format!("{:.3}", spread(1)?), "within 0.5");
    row("lateness p50, us", format!("{:.0}", spread(2)?), "");
    row("lateness p99, us", format!("{:.0}", spread(3)?), "under 300");
    row("lateness p99 of the median second, us", format!("{:.0}", spread(4)?), "");
    row("CPU us/operation, unpaced", format!("{:.2}", pairs.a()), "");
    row("CPU us/operation, paced", format!("{:.2}", pairs.b()), "");
    let ratio = pairs.ratio();
    let ratio = MedianRange { median: 1.0 / ratio.median, min: 1.0 / ratio.max, max: 1.0 / ratio.min };
    row("CPU paced over unpaced", format!("{ratio:.2}"), "1.5 or less");
    let stolen = format!("{stolen_before:.2} before, {:.2} after", stolen_share());
    row("time that the machine takes from a spinning thread, %", stolen, "");
    print!("{table}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_outputs_are_parsed() {
        assert_eq!(line_value("[A], x, 1\n[B], y, 2.5\n", "[B], y,"), Ok(2.5));
        let json = "{\"overall\": {\"a\": 1,\n\"throughput\": 12.5\n}}";
        assert_eq!(json_number(json, "overall", "throughput"), Ok(12.5));
        assert!(json_number(json, "overall", "nothing").is_err());
        let series = "\"lateness\": {\"p99_ns\": 1},\"series\": [{\"lateness\": {\"p99_ns\": 0}}, {\"lateness\": \
                      {\"p99_ns\": 7000,\n\"max_ns\": 5}}]";
        assert_eq!(lateness_of_seconds(series), Ok(7.0));
        assert_eq!(csv_rate("\"test\",\"rps\"\n\"HGETALL user__rand_int__\",\"100.5\",\"0.2\"\n"), Ok(100.5));
    }
}
