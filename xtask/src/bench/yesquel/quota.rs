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
const SERVERS: [usize; 3] = [1, 2, 4];
/// Connections for each server, each with a thread of the one client process.
const CONNECTIONS: usize = 16;
/// Rows of a table.
const KEYS: usize = 10_000;
/// Period of a quota, us. A server that has used its share waits for the next one, so a short one
/// disturbs response times less; the system allows shares of 1 ms at least.
const PERIOD_US: u64 = 20_000;
/// Processor time of a server in a period, us.
const QUOTA_US: u64 = 1_200;

/// Statements by the names that the client has for them, their names in the table, and their number
/// for each server in a measurement.
const LOADS: [(&str, &str, usize); 3] = [
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

/// Statements/s, and the part of their quotas that the servers have used.
#[derive(Debug, Clone, Copy)]
struct LimitedRate {
    throughput: f64,
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
    let throughput = result["throughput"].as_f64().ok_or("the client printed no throughput")?;
    let share = QUOTA_US as f64 / PERIOD_US as f64 * measured.wall_seconds * 1e6;
    Ok(LimitedRate { throughput, used: used_us / (share * count as f64) })
}

/// Compares the throughput of several servers with that of one.
pub(in crate::bench) fn quota(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let clusters: Vec<LimitedServers> =
        SERVERS.iter().map(|count| LimitedServers::start(bench, &programs, *count)).collect::<Result<_>>()?;
    let mut table = ResultTable::new(["statement", "servers", "statements/s", "efficiency", "quota used"]);
    for (load, name, statements) in LOADS {
        eprintln!("{name}: {} rounds", bench.pairs);
        let statements = if bench.quick { statements / 20 } else { statements };
        let mut rates: [Vec<LimitedRate>; SERVERS.len()] = Default::default();
        // The numbers of servers take turns.
        for _ in 0..bench.pairs {
            for ((count, limited), rates) in SERVERS.iter().zip(&clusters).zip(&mut rates) {
                rates.push(run(bench, &programs, &limited.servers, (*count, load, statements))?);
            }
        }
        let range = |values: Vec<f64>| MedianRange::of(&values).ok_or("nothing was measured");
        for (count, at) in SERVERS.iter().zip(&rates) {
            let efficiency =
                |(many, one): (&LimitedRate, &LimitedRate)| many.throughput / one.throughput / *count as f64;
            table.row([
                name.to_owned(),
                count.to_string(),
                format!("{:.0}", range(at.iter().map(|rate| rate.throughput).collect())?),
                format!("{:.2}", range(at.iter().zip(&rates[0]).map(efficiency).collect())?),
                format!("{:.2}", range(at.iter().map(|rate| rate.used).collect())?),
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
