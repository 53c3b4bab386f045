//! Costs of the driver protocol: the hop compared with a bare round trip over a Unix socket, the
//! rate of one driver, and a Java store of known speed.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::BenchContext;
use super::figures::{json_number, line_value, workload_c};
use super::measure::{self, MedianRange, ResultTable, alternate};
use crate::Result;
use crate::setup::{self, Missing, ProgramPurpose};

/// Operations of one client of the hop's measurement.
const HOP_OPERATIONS: &str = "200000";
/// Number of bare round trips.
const BARE_TRIPS: usize = 200_000;
/// Bytes of a read request and of its answer without records, headers included, as the driver of
/// the no-op store exchanges them.
const REQUEST_BYTES: usize = 62;
const ANSWER_BYTES: usize = 26;
/// Operations of 32 clients through one driver, which take a few seconds.
const RATE_OPERATIONS: &str = "4000000";
/// Operations on the Java store, which take a few seconds.
const JAVA_OPERATIONS: &str = "200000";

/// A YCSB binding in which every operation sleeps for a millisecond.
const SLEEPER: &str = r#"
import java.util.*;
import site.ycsb.*;

public class Sleeper extends DB {
  private Status sleep() {
    try {
      Thread.sleep(1);
    } catch (InterruptedException error) {
      return Status.ERROR;
    }
    return Status.OK;
  }

  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    result.put("field0", new StringByteIterator("x"));
    return sleep();
  }

  public Status scan(String t, String k, int n, Set<String> f, Vector<HashMap<String, ByteIterator>> r) {
    return sleep();
  }

  public Status update(String t, String k, Map<String, ByteIterator> v) {
    return sleep();
  }

  public Status insert(String t, String k, Map<String, ByteIterator> v) {
    return sleep();
  }

  public Status delete(String t, String k) {
    return sleep();
  }
}
"#;

/// Both ends of a bare round trip, each a process of its own: `cargo xtask round-trips [--answer]`.
pub(crate) fn round_trips(answer: bool) -> Result<()> {
    if answer {
        return echo();
    }
    println!("{}", ask()?);
    Ok(())
}

fn echo() -> Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut request = [0; REQUEST_BYTES];
    while input.read_exact(&mut request).is_ok() {
        if output.write_all(&request[..ANSWER_BYTES]).and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

/// Returns the median of bare round trips over a Unix socket, us.
fn ask() -> Result<f64> {
    let failed = |error: std::io::Error| format!("bare round trips: {error}");
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    let output = theirs.try_clone().map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["round-trips", "--answer"]);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(OwnedFd::from(output)));
    let mut child = command.spawn().map_err(failed)?;
    drop(command);
    let mut trips = Vec::with_capacity(BARE_TRIPS);
    let mut answer = [0; ANSWER_BYTES];
    for _ in 0..BARE_TRIPS {
        let start = Instant::now();
        ours.write_all(&[7; REQUEST_BYTES]).and_then(|()| ours.read_exact(&mut answer)).map_err(failed)?;
        trips.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    drop(ours);
    child.wait().map_err(failed)?;
    trips.sort_by(f64::total_cmp);
    Ok(trips[BARE_TRIPS / 2])
}

/// Returns a command, on one processor if `pinned`; its children stay on it.
fn command(program: &Path, pinned: bool) -> Command {
    if !pinned {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program);
    command
}

/// Returns a run through a driver of the no-op store.
fn driven(serval: &Path, pinned: bool, clients: &str, operations: &str) -> Command {
    let mut command = command(serval, pinned);
    command.args(["run", "driver", "-threads", clients]).args(workload_c());
    command.args(["-p", &format!("operationcount={operations}"), "-p", "exporter=json"]);
    command.args(["-p", &format!("driver.command='{}' driver serve noop", serval.display())]);
    command
}

/// Returns the median of the hop, us.
fn hop(result: &str) -> Result<f64> {
    let metric = result.split_once("\"DRIVER-HOP\"").ok_or("no DRIVER-HOP in the result")?.1;
    let median = metric.split_once("\"percentile\": 50.0").ok_or("no median of the hop")?.1;
    Ok(json_number(median, "", "ns")? / 1e3)
}

/// Measures the driver protocol.
pub(super) fn driver(bench: &BenchContext) -> Result<()> {
    let serval = bench.serval()?;
    let own = std::env::current_exe().map_err(|error| format!("where are we? {error}"))?;
    let mut table = ResultTable::new(["driver protocol", "value", "wanted"]);
    for pinned in [false, true] {
        let bare = || {
            let mut command = command(&own, pinned);
            let measured = measure::run(bench.children, command.arg("round-trips"))?;
            measured.stdout.trim().parse().map_err(|_| "no median of bare round trips".to_owned())
        };
        let ours = || {
            let measured = measure::run(bench.children, &mut driven(&serval, pinned, "1", HOP_OPERATIONS))?;
            hop(&measured.stdout)
        };
        let pairs = alternate(bench.pairs, ours, bare)?;
        let place = if pinned { "both on one processor" } else { "free" };
        table.row([format!("hop, median us, {place}"), format!("{:.1}", pairs.a()), wanted(pinned).into()]);
        table.row([
            format!("bare round trip, median us, {place}"),
            format!("{:.1}", pairs.b()),
            String::new(),
        ]);
        table.row([format!("hop over bare, {place}"), format!("{:.2}", pairs.ratio()), "1.2".into()]);
    }
    let mut rates = Vec::new();
    for _ in 0..bench.pairs {
        let measured = measure::run(bench.children, &mut driven(&serval, false, "32", RATE_OPERATIONS))?;
        rates.push(json_number(&measured.stdout, "overall", "throughput")?);
    }
    let rate = MedianRange::of(&rates).ok_or("nothing measured")?;
    table.row(["operations/s, 32 clients, one driver".into(), format!("{rate:.0}"), "300000".into()]);
    let java = java(bench, &serval)?;
    table.row(["operations/s, 32 clients, Java store of 1 ms".into(), format!("{java:.0}"), "27000".into()]);
    print!("{table}");
    Ok(())
}

fn wanted(pinned: bool) -> &'static str {
    if pinned { "under 15" } else { "" }
}

/// Returns the throughput of 32 clients of a Java store that sleeps for a millisecond.
fn java(bench: &BenchContext, serval: &Path) -> Result<MedianRange> {
    setup::provide(bench.children, ProgramPurpose::Java, Missing::Report)?;
    let driver = crate::ycsb::java_driver(bench.children)?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let source = folder.path().join("Sleeper.java");
    fs::write(&source, SLEEPER).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut compile = Command::new("javac");
    compile.arg("-cp").arg(driver.join("lib/*")).arg("-d").arg(folder.path()).arg(&source);
    bench.children.check(&mut compile)?;
    let mut rates = Vec::new();
    for _ in 0..bench.pairs {
        let mut command = Command::new(serval);
        command
            .args(["run", "java", "-threads", "32", "--class", "Sleeper", "--classpath"])
            .arg(folder.path());
        command.args(workload_c()).args(["-p", &format!("operationcount={JAVA_OPERATIONS}")]);
        command.args(["-p", &format!("java.driver={}", driver.display())]);
        let measured = measure::run(bench.children, &mut command)?;
        rates.push(line_value(&measured.stdout, "[OVERALL], Throughput(ops/sec),")?);
    }
    MedianRange::of(&rates).ok_or_else(|| "nothing measured".to_owned())
}
