//! Cost of a commit over two groups, over that of a commit of one group: processor time and
//! instructions of the client and both servers together. Each transaction writes a cell of two
//! trees, which are of one group, or one of each.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::processes::{cpu_us, folder, free_port, wait_for};
use super::{Programs, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::instructions::collected;
use crate::bench::measure::{self, ResultTable, alternate};
use crate::children::Running;

/// Threads of the client, which share a connection to each server.
const THREADS: u64 = 8;
/// Commits of a measurement of time.
const COMMITS: u64 = 100_000;
/// Commits of the two runs whose instructions are subtracted.
const COUNTED: [u64; 2] = [2_000, 12_000];
/// Time limit for the end of a server.
const END: Duration = Duration::from_secs(60);

/// The processes that host the groups of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hosting {
    /// So many, with one group each.
    Processes(usize),
    /// One, with so many groups.
    OneProcess(usize),
}

/// Servers that share transactions.
pub(super) struct ServerGroup {
    servers: Vec<Running>,
    /// Their addresses, separated by commas.
    pub(super) target: String,
    folder: tempfile::TempDir,
}

impl ServerGroup {
    /// Starts some servers with these options, by a command to which their own arguments are added.
    pub(super) fn start(
        bench: &BenchContext,
        hosting: Hosting,
        command: impl Fn() -> Command,
        more: &[&str],
    ) -> Result<ServerGroup> {
        let folder = folder()?;
        let (count, groups) = match hosting {
            Hosting::Processes(count) => (count, 1),
            Hosting::OneProcess(groups) => (1, groups),
        };
        let ports: Vec<u16> = (0..count).map(|_| free_port()).collect::<Result<_>>()?;
        let mut servers = Vec::new();
        for (number, port) in ports.iter().enumerate() {
            let mut command = command();
            command.args([
                "serve",
                "--listen",
                &format!("127.0.0.1:{port}"),
                "--server",
                &number.to_string(),
                "--groups",
                &groups.to_string(),
            ]);
            for (other, port) in ports.iter().enumerate().filter(|(other, _)| *other != number) {
                command.args(["--peer", &format!("{other}=127.0.0.1:{port}")]);
            }
            command.args(more);
            if !more.contains(&"--in-memory") {
                command.arg("--data").arg(folder.path().join(format!("data-{number}")));
            }
            let log = log_of(folder.path(), number);
            let log = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
            servers.push(bench.children.start(command.stdout(Stdio::null()).stderr(log))?);
        }
        for (running, port) in servers.iter().zip(&ports) {
            wait_for(running, *port)?;
        }
        let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Ok(ServerGroup { servers, target: addresses.join(","), folder })
    }

    /// Commits over some groups, with the client run by a command.
    fn commit(
        &self,
        bench: &BenchContext,
        mut client: Command,
        groups: u64,
        commits: u64,
    ) -> Result<measure::Measured> {
        client.args(["commit", "--target", &self.target]).args(options(&[
            ("groups", groups.to_string()),
            ("threads", THREADS.to_string()),
            ("operations", commits.to_string()),
        ]));
        measure::run(bench.children, &mut client)
    }

    /// Returns the processes' ids.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.servers.iter().map(Running::pid)
    }

    /// Returns the CPU time of all servers.
    pub(super) fn cpu_us(&self) -> Result<f64> {
        self.servers.iter().map(|server| cpu_us(server.pid())).sum()
    }

    /// Ends the servers in order, and returns what they have written to standard error.
    pub(super) fn end(self) -> Result<Vec<String>> {
        for server in &self.servers {
            if let Some(pid) = i32::try_from(server.pid()).ok().and_then(Pid::from_raw) {
                // It is not reaped yet, so the id is still its own.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let until = Instant::now() + END;
        while !self
            .servers
            .iter()
            .map(Running::ended)
            .collect::<Result<Vec<bool>>>()?
            .iter()
            .all(|ended| *ended)
        {
            if Instant::now() > until {
                return Err("a server does not end".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log = |number| fs::read_to_string(log_of(self.folder.path(), number));
        (0..self.servers.len()).map(|number| log(number).map_err(|error| error.to_string())).collect()
    }
}

fn log_of(folder: &Path, server: usize) -> std::path::PathBuf {
    folder.join(format!("log-{server}"))
}

/// Compares commits over two groups with commits of one.
pub(in crate::bench) fn groups(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let commits = if bench.quick { COMMITS / 50 } else { COMMITS };
    let mut table =
        ResultTable::new(["8 threads, one connection a server", "two groups", "one group", "ratio"]);
    for (name, more) in [("in memory", ["--in-memory"].as_slice()), ("each on disk", &[])] {
        eprintln!("{name}: {} pairs", bench.pairs);
        let hosting = Hosting::Processes(2);
        let servers = ServerGroup::start(bench, hosting, || Command::new(&programs.yesquel), more)?;
        let cpu_of = |groups: u64| -> Result<f64> {
            let before = servers.cpu_us()?;
            let client = servers.commit(bench, Command::new(&programs.load), groups, commits)?;
            Ok((servers.cpu_us()? - before + client.cpu_seconds() * 1e6) / commits as f64)
        };
        let pairs = alternate(bench.pairs, || cpu_of(2), || cpu_of(1))?;
        table.row([
            format!("CPU us of a commit, {name}"),
            format!("{:.1}", pairs.a()),
            format!("{:.1}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
        ]);
    }
    let counted = COUNTED.map(|commits| if bench.quick { commits / 10 } else { commits });
    let of = |groups: u64| -> Result<f64> {
        let [few, many] =
            [counted[0], counted[1]].map(|commits| instructions(bench, &programs, groups, commits));
        Ok((many? - few?) / (counted[1] - counted[0]) as f64)
    };
    let (two, one) = (of(2)?, of(1)?);
    table.row([
        "instructions of a commit, in memory".to_owned(),
        format!("{two:.0}"),
        format!("{one:.0}"),
        format!("{:.2}", two / one),
    ]);
    print!("{table}");
    println!("client and both servers together; a commit over two groups takes 4 requests, of one group 1");
    Ok(())
}

/// Returns a command that counts the instructions of a program.
pub(super) fn counting(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command
}

/// Returns the sum of the counts that commands have written to standard error.
pub(super) fn counted(reports: &[String]) -> Result<f64> {
    let counts = reports.iter().map(|report| collected(report).map(|count| count as f64));
    counts.sum::<Option<f64>>().ok_or_else(|| format!("callgrind printed no count:\n{}", reports.concat()))
}

/// Returns the instructions of the client and both servers, with their start and end.
fn instructions(bench: &BenchContext, programs: &Programs, groups: u64, commits: u64) -> Result<f64> {
    let hosting = Hosting::Processes(2);
    let servers = ServerGroup::start(bench, hosting, || counting(&programs.yesquel), &["--in-memory"])?;
    let client = servers.commit(bench, counting(&programs.load), groups, commits)?;
    let mut reports = servers.end()?;
    reports.push(client.stderr);
    self::counted(&reports)
}
