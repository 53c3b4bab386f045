//! Throughput of SQL at 1 to 48 simulated servers (SOSP'15, sections 6.1.2 and 6.2), by the cost model
//! of `yesquel-costs`: the production code on machines whose processors and network take time. Beside
//! it, at 1, 2 and 4 servers with quotas, the simulated and the real throughput.
//!
//! `docs/yesquel/cluster/virtual-time.md` describes the model.

use std::process::Command;

use serde_json::Value;

use super::quota::{self, LimitedClusters, LimitedRate};
use super::{Programs, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};

/// Numbers of servers. The first one is compared with.
const SERVERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 48];
/// Numbers of servers where techniques are left out.
const SERVERS_WITHOUT: [usize; 3] = [1, 8, 48];
/// Client processes for each server, each on a machine with one processor: as many as one server needs
/// to be busy, which the paper's two do not suffice for.
const PROCESSES: usize = 8;
/// Connections of each, together as many for each server as in the paper.
const CONNECTIONS: usize = 8;
/// Rows of a table; there is one for each server.
const KEYS: usize = 1_000;
/// Half of the paper's time of a ping, us.
const ONE_WAY_US: f64 = 70.0;
/// Simulated time before and in a measurement, s.
const RAMP: f64 = 0.05;
const MEASURED: f64 = 0.2;
/// The same with quotas, whose periods are long.
const RAMP_LIMITED: f64 = 0.2;
const MEASURED_LIMITED: f64 = 2.0;
/// Difference of simulated and real results that is accepted.
const ACCEPTED: f64 = 0.15;

/// The systems of the paper's section 6.1, by the techniques that they lack.
const SYSTEMS: [(&str, &[&str], &[usize]); 3] = [
    ("YDBT", &[], &SERVERS),
    ("BASE+", &["commutative-operations"], &SERVERS_WITHOUT),
    ("BASE", &["commutative-operations", "caches"], &SERVERS_WITHOUT),
];

/// Figures of a simulated run.
#[derive(Debug, Clone, Copy)]
struct SimulatedRate {
    throughput: f64,
    p50_us: f64,
    p99_us: f64,
    server_use: f64,
    client_use: f64,
}

/// Simulates a load.
fn simulate(bench: &BenchContext, programs: &Programs, arguments: &[String]) -> Result<SimulatedRate> {
    let mut command = Command::new(&programs.load);
    command.arg("virtual").args(arguments);
    let measured = measure::run(bench.children, &mut command)?;
    let result: Value = serde_json::from_str(&measured.stdout).map_err(|error| error.to_string())?;
    let number =
        |name: &str| result[name].as_f64().ok_or_else(|| format!("the simulation printed no {name}"));
    Ok(SimulatedRate {
        throughput: number("throughput")?,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        server_use: number("server_use")?,
        client_use: number("client_use")?,
    })
}

/// Simulates up to 48 servers.
fn curve(bench: &BenchContext, programs: &Programs) -> Result<ResultTable<9>> {
    let mut table = ResultTable::new([
        "statement",
        "system",
        "servers",
        "statements/s",
        "efficiency",
        "p50, ms",
        "p99, ms",
        "server use",
        "client use",
    ]);
    for (load, name, _) in quota::LOADS {
        for (system, without, servers) in SYSTEMS {
            let servers = if bench.quick { &servers[..2] } else { servers };
            let mut one = None;
            for count in servers {
                eprintln!("{name}, {system}: {count} servers");
                let mut arguments = options(&[
                    ("statement", load.to_owned()),
                    ("servers", count.to_string()),
                    ("tables", count.to_string()),
                    ("keys", KEYS.to_string()),
                    ("client-processes", (PROCESSES * count).to_string()),
                    ("threads", CONNECTIONS.to_string()),
                    ("one-way-us", ONE_WAY_US.to_string()),
                    ("warm-up", RAMP.to_string()),
                    ("seconds", if bench.quick { MEASURED / 10.0 } else { MEASURED }.to_string()),
                ]);
                arguments.extend(without.iter().map(|technique| format!("--without={technique}")));
                let rate = simulate(bench, programs, &arguments)?;
                let first = *one.get_or_insert(rate.throughput);
                table.row([
                    name.to_owned(),
                    system.to_owned(),
                    count.to_string(),
                    format!("{:.0}", rate.throughput),
                    format!("{:.2}", rate.throughput / first / *count as f64),
                    format!("{:.2}", rate.p50_us / 1e3),
                    format!("{:.2}", rate.p99_us / 1e3),
                    format!("{:.2}", rate.server_use),
                    format!("{:.2}", rate.client_use),
                ]);
            }
        }
    }
    Ok(table)
}

/// Compares simulated servers with quotas with real ones. Returns the table, and whether all results
/// differ by less than what is accepted.
fn comparison(bench: &BenchContext, programs: &Programs) -> Result<(ResultTable<8>, bool)> {
    let clusters = LimitedClusters::start(bench, programs)?;
    let mut table = ResultTable::new([
        "statement",
        "servers",
        "statements/s, real",
        "simulated",
        "ratio",
        "p99, ms, real",
        "simulated",
        "ratio",
    ]);
    let mut is_near = true;
    for load in quota::LOADS {
        let rates = clusters.measure(bench, programs, load)?;
        for (count, real) in quota::SERVERS.iter().zip(&rates) {
            let seconds = if bench.quick { MEASURED_LIMITED / 10.0 } else { MEASURED_LIMITED };
            let simulated = simulate(
                bench,
                programs,
                &options(&[
                    ("statement", load.0.to_owned()),
                    ("servers", count.to_string()),
                    ("tables", count.to_string()),
                    ("keys", quota::KEYS.to_string()),
                    ("client-processes", "1".to_owned()),
                    ("client-processors", "2".to_owned()),
                    ("threads", (quota::CONNECTIONS * count).to_string()),
                    ("quota-us", quota::QUOTA_US.to_string()),
                    ("period-us", quota::PERIOD_US.to_string()),
                    ("warm-up", RAMP_LIMITED.to_string()),
                    ("seconds", seconds.to_string()),
                ]),
            )?;
            let median = |of: fn(&LimitedRate) -> f64| {
                let values: Vec<f64> = real.iter().map(of).collect();
                MedianRange::of(&values).ok_or("nothing was measured")
            };
            let (throughput, p99_us) = (median(|rate| rate.throughput)?, median(|rate| rate.p99_us)?);
            let ratios = [simulated.throughput / throughput.median, simulated.p99_us / p99_us.median];
            is_near &= ratios.iter().all(|ratio| (ratio - 1.0).abs() <= ACCEPTED);
            table.row([
                load.1.to_owned(),
                count.to_string(),
                format!("{throughput:.0}"),
                format!("{:.0}", simulated.throughput),
                format!("{:.2}", ratios[0]),
                format!("{:.1}", p99_us.median / 1e3),
                format!("{:.1}", simulated.p99_us / 1e3),
                format!("{:.2}", ratios[1]),
            ]);
        }
    }
    Ok((table, is_near))
}

/// Simulates up to 48 servers, and compares simulated servers with real ones.
pub(in crate::bench) fn virtual_time(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    print!("{}", curve(bench, &programs)?);
    println!(
        "simulated: machines with one processor, {PROCESSES} client processes of {CONNECTIONS} connections and one table of \
         {KEYS} rows for each server"
    );
    let (table, is_near) = comparison(bench, &programs)?;
    print!("\n{table}");
    let verdict = if is_near { "all ratios are" } else { "some ratios are not" };
    println!("with quotas, beside real servers: {verdict} within {:.0} %", ACCEPTED * 100.0);
    Ok(())
}
