//! Time from the restart of a killed server to its first answer, with 1 GB of keys and values:
//! Yesquel's checkpoint and log, Redis's append-only file as written, and the same file rewritten,
//! when it begins with a snapshot.

use super::memory::memory;
use super::{Programs, folder, free_port, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};
use crate::children::Running;
use crate::setup;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BYTES: u64 = 1_000_000_000;
/// Bytes of a key and its value.
const ENTRY_BYTES: u64 = 108;
/// Most rounds; each starts every server.
const ROUNDS_MAX: u32 = 3;

/// A server restarted on its data.
struct RestartedServer {
    running: Running,
    port: u16,
    seconds: f64,
}

/// Starts a server and waits until it returns a value.
fn start(
    bench: &BenchContext,
    load: &Path,
    kind: &str,
    command: &mut Command,
    port: u16,
) -> Result<RestartedServer> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let running = bench.children.start(command)?;
    let target = format!("{kind}:127.0.0.1:{port}");
    let mut ready = Command::new(load);
    measure::run(bench.children, ready.args(["ready", "--target", &target]))?;
    Ok(RestartedServer { running, port, seconds: begun.elapsed().as_secs_f64() })
}

fn yesquel(programs: &Programs, data: &Path, port: u16) -> Command {
    let mut command = Command::new(&programs.yesquel);
    command.args(["serve", "--durability", "none", "--listen", &format!("127.0.0.1:{port}")]);
    command.arg("--data").arg(data);
    command
}

fn redis(data: &Path, port: u16) -> Command {
    let mut command = Command::new("redis-server");
    // Rewrites only on request.
    command.args(["--port", &port.to_string(), "--save", "", "--auto-aof-rewrite-percentage", "0"]);
    command.args(["--appendonly", "yes", "--dir"]).arg(data);
    command
}

/// Stores all keys in an empty server, and kills it.
fn fill(
    bench: &BenchContext,
    load: &Path,
    kind: &str,
    command: &mut Command,
    port: u16,
    more: &[String],
) -> Result<()> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = bench.children.start(command)?;
    super::wait_for(&running, port)?;
    let mut loading = Command::new(load);
    loading.args(["load", "--target", &format!("{kind}:127.0.0.1:{port}"), "--warm-up", "0"]).args(more);
    measure::run(bench.children, &mut loading)?;
    // A checkpoint may be in progress, and Redis writes within a second.
    thread::sleep(Duration::from_secs(3));
    Ok(())
}

fn redis_cli(bench: &BenchContext, port: u16, words: &[&str]) -> Result<String> {
    let mut command = Command::new("redis-cli");
    Ok(measure::run(bench.children, command.args(["-p", &port.to_string()]).args(words))?.stdout)
}

/// Makes Redis rewrite its file, and waits for the end.
fn rewrite(bench: &BenchContext, port: u16) -> Result<()> {
    redis_cli(bench, port, &["bgrewriteaof"])?;
    while redis_cli(bench, port, &["info", "persistence"])?.contains("aof_rewrite_in_progress:1") {
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Times of restarts, s, and the process's memory after the restart and at its peak, MB.
#[derive(Default)]
struct RestartTimes {
    seconds: Vec<f64>,
    memory: Vec<f64>,
    memory_max: Vec<f64>,
}

impl RestartTimes {
    fn add(&mut self, started: &RestartedServer) -> Result<()> {
        self.seconds.push(started.seconds);
        self.memory.push(memory(started.running.pid(), "VmRSS")? / 1e6);
        self.memory_max.push(memory(started.running.pid(), "VmHWM")? / 1e6);
        Ok(())
    }
}

pub(in crate::bench) fn restart(bench: &BenchContext) -> Result<()> {
    for program in ["redis-server", "redis-cli"] {
        if setup::find(program).is_none() {
            return Err(format!("{program} is not installed: apt-get install redis-server redis-tools"));
        }
    }
    let programs = Programs::build(bench)?;
    let load = programs.load.as_path();
    let keys = if bench.quick { BYTES / ENTRY_BYTES / 10 } else { BYTES / ENTRY_BYTES };
    let more = |threads: u64, batch: u64| {
        options(&[("keys", keys.to_string()), ("threads", threads.to_string()), ("batch", batch.to_string())])
    };
    let (ours, written, rewritten) = (folder()?, folder()?, folder()?);
    let (port, data) = (free_port()?, ours.path().join("data"));
    let mut serving = yesquel(&programs, &data, port);
    fill(bench, load, "yesquel", serving.args(["--checkpoint-every", "256M"]), port, &more(16, 20))?;
    for folder in [&written, &rewritten] {
        let port = free_port()?;
        fill(bench, load, "redis", &mut redis(folder.path(), port), port, &more(2, 100))?;
    }
    let mut times: [RestartTimes; 3] = Default::default();
    let begin = |command: &mut Command, kind: &str, port: u16| start(bench, load, kind, command, port);
    let port = free_port()?;
    rewrite(bench, begin(&mut redis(rewritten.path(), port), "redis", port)?.port)?;
    for _ in 0..bench.pairs.min(ROUNDS_MAX) {
        let port = free_port()?;
        times[0].add(&begin(&mut yesquel(&programs, &data, port), "yesquel", port)?)?;
        for (place, folder) in [&written, &rewritten].into_iter().enumerate() {
            let port = free_port()?;
            times[place + 1].add(&begin(&mut redis(folder.path(), port), "redis", port)?)?;
        }
    }
    let spread = |values: &[f64]| MedianRange::of(values).ok_or("nothing was measured");
    let mut table = ResultTable::new([
        "start with 1 GB",
        "seconds",
        "Yesquel's over it",
        "wanted",
        "memory at most, MB",
        "memory then, MB",
    ]);
    let names = ["Yesquel: checkpoint and log", "Redis: append-only file", "Redis: rewritten, with preamble"];
    for (name, of) in names.into_iter().zip(&times) {
        let ratios: Vec<f64> = times[0].seconds.iter().zip(&of.seconds).map(|(a, b)| a / b).collect();
        table.row([
            name.to_owned(),
            format!("{:.2}", spread(&of.seconds)?),
            format!("{:.2}", spread(&ratios)?),
            if name.starts_with("Redis") { "1.0 or less".to_owned() } else { "-".to_owned() },
            format!("{:.0}", spread(&of.memory_max)?),
            format!("{:.0}", spread(&of.memory)?),
        ]);
    }
    print!("{table}");
    println!("{keys} keys of 8 bytes, values of 100; from the start of the process to the first value");
    Ok(())
}
