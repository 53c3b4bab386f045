//! Throughput of SQL at 1, 2 and 4 servers, each held to a share of a processor (SOSP'15, section
//! 6.2, figure 11): the curve of a cluster on a machine that has not as many processors. The clients
//! are not held; tables and connections grow with the servers.
//!
//! A share of 6 % is the most at which the clients still fit: a read takes 4 to 5 times as long at
//! the client as at the server. With four servers that is 1.3 processors in all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Programs;
use super::groups::{Hosting, ServerGroup};
use super::tables::TablesLoad;
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};

/// Numbers of servers. The first one is compared with.
pub(super) const SERVERS: [usize; 3] = [1, 2, 4];
/// Connections for each server, each with a thread of the one client process.
pub(super) const CONNECTIONS: usize = 16;
/// Rows of a table.
pub(super) const KEYS: usize = 10_000;
/// Period of a quota, us. A server that has used its share waits for the next one, so a short one
/// disturbs response times less; the system allows shares of 1 ms at least.
pub(super) const PERIOD_US: u64 = 20_000;
/// Processor time of a server in a period, us.
pub(super) const QUOTA_US: u64 = 1_200;

/// Statements by the names that the client has for them, their names in the table, and their number
/// for each server in a measurement.
pub(super) const LOADS: [(&str, &str, usize); 3] = [
    ("read", "SELECT of a row", 6_000),
    ("update", "UPDATE of a row", 2_000),
    ("scan", "SELECT of ten rows", 4_000),
];

/// Group of processes that share a quota of processor time.
struct QuotaGroup(PathBuf);

impl QuotaGroup {
    /// Creates one with a name, below the system's group of the processor, of either version.
    fn create(name: &str) -> Result<QuotaGroup> {
        let root = Path::new("/sys/fs/cgroup");
        let is_unified = fs::read_to_string(root.join("cgroup.subtree_control"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "cpu"));
        let (root, limits) = if is_unified {
            (root.to_owned(), vec![("cpu.max", format!("{QUOTA_US} {PERIOD_US}"))])
        } else {
            let limits = [("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", QUOTA_US)];
            (root.join("cpu"), limits.map(|(file, value)| (file, value.to_string())).to_vec())
        };
        let group = QuotaGroup(root.join(name));
        let failed = |error| format!("{}: no control group of the processor: {error}", group.0.display());
        fs::create_dir(&group.0).map_err(failed)?;
        for (file, value) in limits {
            fs::write(group.0.join(file), value).map_err(failed)?;
        }
        Ok(group)
    }

    /// Moves a process with all its threads into it.
    fn admit(&self, pid: u32) -> Result<()> {
        let file = self.0.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // Its processes have ended.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Servers with a quota each. The processes end before their groups are removed.
struct LimitedServers {
    servers: ServerGroup,
    _quotas: Vec<QuotaGroup>,
}

impl LimitedServers {
    fn start(bench: &BenchContext, programs: &Programs, count: usize) -> Result<LimitedServers> {
        let (hosting, command) = (Hosting::Processes(count), || Command::new(&programs.yesquel));
        let servers = ServerGroup::start(bench, hosting, command, &["--in-memory"])?;
        // The tables are created without a quota.
        run(bench, programs, &servers, (count, "read", 0))?;
        let quotas = servers.pids().map(|pid| {
            let quota = QuotaGroup::create(&format!("yesquel-quota-{pid}"))?;
            quota.admit(pid)?;
            Ok(quota)
        });
        let quotas = quotas.collect::<Result<_>>()?;
        Ok(LimitedServers { servers, _quotas: quotas })
    }
}

/// What a run at limited servers has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitedRate {
    /// Statements/s.
    pub(super) throughput: f64,
    /// Response times.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Part of their quotas that the servers have used.
    used: f64,
}

/// Runs this number of statements for each server.
fn run(
    bench: &BenchContext,
    programs: &Programs,
    servers: &ServerGroup,
    (count, load, statements): (usize, &str, usize),
) -> Result<LimitedRate> {
    let load = TablesLoad {
        statement: load,
        tables: count,
        connections: CONNECTIONS * count,
        operations: statements * count,
        keys: KEYS,
    };
    let mut client = load.command(Command::new(&programs.load), servers);
    let before = servers.cpu_us()?;
    let measured = measure::run(bench.children, &mut client)?;
    let used_us = servers.cpu_us()? - before;
    let result: Value = serde_json::from_str(&measured.stdout).map_err(|error| error.to_string())?;
    let number = |name: &str| result[name].as_f64().ok_or_else(|| format!("the client printed no {name}"));
    let share = QUOTA_US as f64 / PERIOD_US as f64 * measured.wall_seconds * 1e6;
    Ok(LimitedRate {
        throughput: number("throughput")?,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        used: used_us / (share * count as f64),
    })
}

/// Servers of all numbers, each with a quota.
pub(super) struct LimitedClusters(Vec<LimitedServers>);

impl LimitedClusters {
    pub(super) fn start(bench: &BenchContext, programs: &Programs) -> Result<LimitedClusters> {
        let clusters = SERVERS.iter().map(|count| LimitedServers::start(bench, programs, *count));
        Ok(LimitedClusters(clusters.collect::<Result<_>>()?))
    }

    /// Measures a load in rounds. Returns the results by number of servers.
    pub(super) fn measure(
        &self,
        bench: &BenchContext,
        programs: &Programs,
        (load, name, statements): (&str, &str, usize),
    ) -> Result<[Vec<LimitedRate>; SERVERS.len()]> {
        eprintln!("{name}: {} rounds", bench.pairs);
        let statements = if bench.quick { statements / 20 } else { statements };
        let mut rates: [Vec<LimitedRate>; SERVERS.len()] = Default::default();
        // The numbers of servers take turns.
        for _ in 0..bench.pairs {
            for ((count, limited), rates) in SERVERS.iter().zip(&self.0).zip(&mut rates) {
                rates.push(run(bench, programs, &limited.servers, (*count, load, statements))?);
            }
        }
        Ok(rates)
    }
}

/// Compares the throughput of several servers with that of one.
pub(in crate::bench) fn quota(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let clusters = LimitedClusters::start(bench, &programs)?;
    let mut table = ResultTable::new([
        "statement",
        "servers",
        "statements/s",
        "efficiency",
        "quota used",
        "p50, ms",
        "p99, ms",
    ]);
    for load in LOADS {
        let rates = clusters.measure(bench, &programs, load)?;
        let range = |values: Vec<f64>| MedianRange::of(&values).ok_or("nothing was measured");
        for (count, at) in SERVERS.iter().zip(&rates) {
            let efficiency =
                |(many, one): (&LimitedRate, &LimitedRate)| many.throughput / one.throughput / *count as f64;
            table.row([
                load.1.to_owned(),
                count.to_string(),
                format!("{:.0}", range(at.iter().map(|rate| rate.throughput).collect())?),
                format!("{:.2}", range(at.iter().zip(&rates[0]).map(efficiency).collect())?),
                format!("{:.2}", range(at.iter().map(|rate| rate.used).collect())?),
                format!("{:.1}", range(at.iter().map(|rate| rate.p50_us / 1e3).collect())?),
                format!("{:.1}", range(at.iter().map(|rate| rate.p99_us / 1e3).collect())?),
            ]);
        }
    }
    print!("{table}");
    let share = QUOTA_US as f64 / PERIOD_US as f64 * 100.0;
    println!(
        "each server held to {share:.0} % of a processor; one client process, {CONNECTIONS} connections and one table \
         of {KEYS} rows for each server"
    );
    Ok(())
}
