//! Systems under test, and results of their clients.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use super::groups::{Hosting, ServerGroup};
use super::processes::{cpu_us, folder, free_port, options, wait_for, wait_until};
use super::{PROCESSES, Programs};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::latencies::Latencies;
use crate::bench::measure;
use crate::children::Running;
use crate::servers::mysql::MariaServer;
use crate::servers::{self, ServerHandle};

/// Processes of a system under test.
enum SystemProcess {
    Server(Running),
    Cluster(ServerGroup),
    Maria(MariaServer),
    /// No server: the clients share files.
    Clients,
}

/// Storage of a Yesquel server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerStorage {
    InMemory,
    /// In a folder, with this durability.
    Durability(&'static str),
}

/// A system under test.
pub(super) struct SystemUnderTest {
    pub(super) target: String,
    host: SystemProcess,
    /// Number of load processes so far. Each has a number and keys of its own.
    processes: AtomicU64,
    /// Folder of the data, removed with the system.
    _folder: Option<tempfile::TempDir>,
}

/// Result of all clients of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadResult {
    pub(super) throughput: f64,
    pub(super) client_cpu_us: f64,
    pub(super) server_cpu_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) aborts: f64,
    pub(super) operations: f64,
    /// Refusals by the server because a key had moved, in all processes.
    pub(super) moved: f64,
    /// Requests that waited at the server, of all processes.
    pub(super) waits: f64,
    /// Requests to the server, of all processes.
    pub(super) requests: f64,
}

fn start(bench: &BenchContext, command: &mut Command, kind: &str, port: u16) -> Result<SystemUnderTest> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = bench.children.start(command)?;
    wait_for(&running, port)?;
    Ok(SystemUnderTest::new(format!("{kind}:127.0.0.1:{port}"), SystemProcess::Server(running), None))
}

impl SystemUnderTest {
    fn new(target: String, host: SystemProcess, folder: Option<tempfile::TempDir>) -> SystemUnderTest {
        SystemUnderTest { target, host, processes: AtomicU64::new(1), _folder: folder }
    }

    pub(super) fn yesquel(
        bench: &BenchContext,
        programs: &Programs,
        durable: bool,
    ) -> Result<SystemUnderTest> {
        SystemUnderTest::yesquel_with(bench, programs, durable, &[])
    }

    /// Starts a server with these options.
    pub(super) fn yesquel_with(
        bench: &BenchContext,
        programs: &Programs,
        durable: bool,
        more: &[&str],
    ) -> Result<SystemUnderTest> {
        let (port, folder) = (free_port()?, folder()?);
        let mut command = Command::new(&programs.yesquel);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]).args(more);
        if durable {
            command.arg("--data").arg(folder.path().join("data"));
        } else {
            command.arg("--in-memory");
        }
        Ok(SystemUnderTest { _folder: Some(folder), ..start(bench, &mut command, "yesquel", port)? })
    }

    /// Starts a cluster in memory with a process for each group, over which leaves are distributed, with
    /// these options.
    pub(super) fn cluster(
        bench: &BenchContext,
        programs: &Programs,
        groups: usize,
        more: &[&str],
    ) -> Result<SystemUnderTest> {
        let more = [&["--in-memory", "--placement", "spread"], more].concat();
        let command = || Command::new(&programs.yesquel);
        let servers = ServerGroup::start(bench, Hosting::Processes(groups), command, &more)?;
        let target = format!("yesquel:{}", servers.target);
        Ok(SystemUnderTest::new(target, SystemProcess::Cluster(servers), None))
    }

    /// Starts a server for SQL in memory, over TCP.
    pub(super) fn sql(bench: &BenchContext, programs: &Programs) -> Result<SystemUnderTest> {
        let side = SystemUnderTest::yesquel(bench, programs, false)?;
        Ok(SystemUnderTest { target: side.target.replacen("yesquel:", "sql:", 1), ..side })
    }

    /// Starts a server for SQL, over a Unix socket.
    pub(super) fn sql_on_a_socket(
        bench: &BenchContext,
        programs: &Programs,
        kept: ServerStorage,
    ) -> Result<SystemUnderTest> {
        let folder = folder()?;
        let socket = folder.path().join("socket");
        let mut command = Command::new(&programs.yesquel);
        command.args(["serve", "--listen"]).arg(&socket);
        match kept {
            ServerStorage::InMemory => command.arg("--in-memory"),
            ServerStorage::Durability(durability) => {
                command.args(["--durability", durability, "--data"]).arg(folder.path().join("data"))
            }
        };
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let running = bench.children.start(&mut command)?;
        let place = socket.display().to_string();
        wait_until(&running, &place, || UnixStream::connect(&socket).is_ok())?;
        Ok(SystemUnderTest::new(format!("sql:{place}"), SystemProcess::Server(running), Some(folder)))
    }

    /// Returns files that the clients open themselves, by the load's name of their kind, with
    /// options.
    pub(super) fn in_clients(kind: &str, options: &str) -> Result<SystemUnderTest> {
        let folder = folder()?;
        let target = format!("{kind}:{}{options}", folder.path().join("bench").display());
        Ok(SystemUnderTest::new(target, SystemProcess::Clients, Some(folder)))
    }

    pub(super) fn redis(bench: &BenchContext, durable: bool) -> Result<SystemUnderTest> {
        let (port, folder) = (free_port()?, folder()?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", ""]);
        if durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(folder.path());
        }
        Ok(SystemUnderTest { _folder: Some(folder), ..start(bench, &mut command, "redis", port)? })
    }

    /// Starts a MariaDB with these settings.
    pub(super) fn mariadb(bench: &BenchContext, settings: &[(&str, &str)]) -> Result<SystemUnderTest> {
        let server = MariaServer::start_with(bench.children, &servers::ServerOptions::default(), settings)?;
        Ok(SystemUnderTest::new(format!("mariadb:{}", server.address()), SystemProcess::Maria(server), None))
    }

    /// Returns the CPU time of all servers.
    fn cpu_us(&self) -> Result<f64> {
        match &self.host {
            SystemProcess::Cluster(servers) => servers.cpu_us(),
            _ => self.server().map_or(Ok(0.0), cpu_us),
        }
    }

    /// Returns the server's process, if there is one.
    pub(super) fn server(&self) -> Option<u32> {
        match &self.host {
            SystemProcess::Server(running) => Some(running.pid()),
            SystemProcess::Maria(server) => Some(server.pid()),
            SystemProcess::Cluster(_) | SystemProcess::Clients => None,
        }
    }

    /// Returns the same files for another kind of client. The files are removed with the system
    /// that created them.
    pub(super) fn same_files(&self, kind: &str) -> SystemUnderTest {
        let rest = self.target.split_once(':').map_or("", |(_, rest)| rest);
        SystemUnderTest::new(format!("{kind}:{rest}"), SystemProcess::Clients, None)
    }

    /// Stores this number of keys.
    pub(super) fn fill(&self, bench: &BenchContext, program: &Path, keys: u64) -> Result<()> {
        let more = options(&[
            ("threads", "8".to_owned()),
            ("keys", keys.to_string()),
            ("warm-up", "0".to_owned()),
            ("batch", "100".to_owned()),
        ]);
        self.load_by(bench, program, "load", &more, 1).map(drop)
    }

    /// Runs a load on all client processes.
    pub(super) fn load(
        &self,
        bench: &BenchContext,
        program: &Path,
        workload: &str,
        more: &[String],
    ) -> Result<LoadResult> {
        self.load_by(bench, program, workload, more, PROCESSES)
    }

    pub(super) fn load_by(
        &self,
        bench: &BenchContext,
        program: &Path,
        workload: &str,
        more: &[String],
        processes: u64,
    ) -> Result<LoadResult> {
        self.load_and_times(bench, program, workload, more, processes).map(|(seen, _)| seen)
    }

    /// Runs a load, and returns all response times too.
    pub(super) fn load_and_times(
        &self,
        bench: &BenchContext,
        program: &Path,
        workload: &str,
        more: &[String],
        processes: u64,
    ) -> Result<(LoadResult, Latencies)> {
        let first = self.processes.fetch_add(processes, Relaxed);
        let before = self.cpu_us()?;
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
        let (took, after) = (begun.elapsed().as_secs_f64(), self.cpu_us()?);
        let mut seen: Option<LoadResult> = None;
        let mut times = Latencies::default();
        for output in outputs {
            let (own, own_times) = LoadResult::of(&output?)?;
            seen = Some(seen.map_or(own, |seen| seen.with(own)));
            times.add(&own_times);
        }
        let seen = seen.ok_or("no process was run")?;
        let seen = LoadResult {
            client_cpu_us: seen.client_cpu_us / seen.operations,
            // Numerator and denominator both include the warm-up.
            server_cpu_us: (after - before) / (seen.throughput * took),
            p50_us: times.quantile(0.5),
            p99_us: times.quantile(0.99),
            ..seen
        };
        Ok((seen, times))
    }
}

impl LoadResult {
    /// Parses the output of a process. Percentiles and CPU time per operation are of all processes.
    fn of(json: &str) -> Result<(LoadResult, Latencies)> {
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(|error| format!("{error} in {json}"))?;
        let number = |name: &str| value[name].as_f64().ok_or_else(|| format!("no {name} in {json}"));
        let of_server = |name: &str| {
            value["server"][name].as_f64().ok_or_else(|| format!("no server's {name} in {json}"))
        };
        let seen = LoadResult {
            throughput: number("throughput")?,
            client_cpu_us: number("cpu_us_total")?,
            server_cpu_us: 0.0,
            p50_us: f64::NAN,
            p99_us: f64::NAN,
            aborts: number("aborts")?,
            operations: number("operations")?,
            moved: of_server("moved")?,
            waits: of_server("waits")?,
            requests: of_server("reads")? + of_server("commits")? + of_server("prepares")?,
        };
        let times = Latencies::of(&value["latencies_us"]);
        Ok((seen, times.ok_or_else(|| format!("no response times in {json}"))?))
    }

    /// Merges the results of two processes.
    fn with(self, other: LoadResult) -> LoadResult {
        LoadResult {
            throughput: self.throughput + other.throughput,
            client_cpu_us: self.client_cpu_us + other.client_cpu_us,
            aborts: self.aborts + other.aborts,
            operations: self.operations + other.operations,
            // Both processes read the same counters of the server.
            moved: self.moved.max(other.moved),
            waits: self.waits.max(other.waits),
            requests: self.requests.max(other.requests),
            ..self
        }
    }
}
