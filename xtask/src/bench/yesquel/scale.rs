//! Cost of a statement of SQL at 1, 2, 4 and 8 groups: processor time and instructions of the client
//! and all servers together, and how evenly the groups are used. The load grows with the groups: some
//! rows and connections for each. What stays flat here scales when the groups have machines of their
//! own. The groups have processes of their own, or share one; each has a table, or leaves of one.
//!
//! Processor time grows also because more processes and threads share the caches of one machine;
//! instructions do not. A counted program is some fifty times slower, so the messages that servers
//! exchange at all times would have the fiftyfold part: they are counted without load, and
//! subtracted.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Programs;
use super::groups::{Hosting, ServerGroup, counted, counting};
use super::tables::TablesLoad;
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};

/// Numbers of groups. The first one is compared with.
const GROUPS: [usize; 4] = [1, 2, 4, 8];
/// Connections for each group, each with a thread of the one client process.
const CONNECTIONS: usize = 4;
/// Statements of a connection in the two runs whose costs are subtracted, so that the cost of opening
/// the connections is not counted.
const STATEMENTS: [usize; 2] = [500, 5_500];
/// The same where instructions are counted.
const COUNTED: [usize; 2] = [50, 550];
/// Rows of a table.
const KEYS: usize = 10_000;
/// The same where instructions are counted.
const KEYS_COUNTED: usize = 500;
/// Times without load whose instructions are subtracted, seconds.
const IDLE: [u64; 2] = [2, 12];

/// Statements by the names that the client has for them, and their names in the table.
const LOADS: [(&str, &str); 4] = [
    ("read", "SELECT of a row"),
    ("update", "UPDATE of a row"),
    ("scan", "SELECT of ten rows"),
    ("update-two", "transaction with UPDATE of two rows"),
];

/// Cost of a statement, and the requests to the busiest group over the mean.
#[derive(Debug, Clone, Copy)]
struct StatementCost {
    cpu_us: f64,
    busiest: f64,
}

/// Distribution of rows and groups.
struct Arrangement {
    name: &'static str,
    hosting: fn(usize) -> Hosting,
    /// Whether all groups have leaves of one table, rather than a table each.
    is_spread: bool,
}

const ARRANGEMENTS: [Arrangement; 3] = [
    Arrangement {
        name: "a process and a table for each group",
        hosting: Hosting::Processes,
        is_spread: false,
    },
    Arrangement {
        name: "one process, a table for each group",
        hosting: Hosting::OneProcess,
        is_spread: false,
    },
    Arrangement {
        name: "a process for each group, one table whose leaves are at all groups",
        hosting: Hosting::Processes,
        is_spread: true,
    },
];

impl Arrangement {
    fn start(
        &self,
        bench: &BenchContext,
        groups: usize,
        command: impl Fn() -> Command,
    ) -> Result<ServerGroup> {
        let placement = if self.is_spread { "spread" } else { "local" };
        let more = ["--in-memory", "--placement", placement];
        ServerGroup::start(bench, (self.hosting)(groups), command, &more)
    }

    /// Load of some connections and rows for each group.
    fn load<'a>(
        &self,
        groups: usize,
        (statement, statements): (&'a str, usize),
        keys: usize,
    ) -> TablesLoad<'a> {
        let connections = CONNECTIONS * groups;
        let (tables, keys) = if self.is_spread { (1, keys * groups) } else { (groups, keys) };
        TablesLoad { statement, tables, connections, operations: statements * connections, keys }
    }
}

/// Measurements of an arrangement.
struct ScaleBench<'a> {
    bench: &'a BenchContext<'a>,
    programs: &'a Programs,
    arrangement: &'a Arrangement,
}

impl ScaleBench<'_> {
    fn start(&self, groups: usize) -> Result<ServerGroup> {
        self.arrangement.start(self.bench, groups, || Command::new(&self.programs.yesquel))
    }

    fn start_counting(&self, groups: usize) -> Result<ServerGroup> {
        self.arrangement.start(self.bench, groups, || counting(&self.programs.yesquel))
    }

    /// Runs statements of each connection once. Returns the CPU time of the client and the servers, us,
    /// and the requests to each group.
    fn run(
        &self,
        servers: &ServerGroup,
        groups: usize,
        (load, statements): (&str, usize),
    ) -> Result<(f64, Vec<f64>)> {
        let load = self.arrangement.load(groups, (load, statements), KEYS);
        let mut client = load.command(Command::new(&self.programs.load), servers);
        let before = servers.cpu_us()?;
        let measured = measure::run(self.bench.children, &mut client)?;
        let cpu_us = servers.cpu_us()? - before + measured.cpu_seconds() * 1e6;
        let result: Value = serde_json::from_str(&measured.stdout).map_err(|error| error.to_string())?;
        let requests = result["requests_by_group"].as_array().ok_or("the client printed no requests")?;
        Ok((cpu_us, requests.iter().filter_map(Value::as_f64).collect()))
    }

    fn cost(&self, servers: &ServerGroup, groups: usize, load: &str) -> Result<StatementCost> {
        let statements = if self.bench.quick { STATEMENTS.map(|count| count / 10) } else { STATEMENTS };
        let (few, _) = self.run(servers, groups, (load, statements[0]))?;
        let (many, requests) = self.run(servers, groups, (load, statements[1]))?;
        let mean = requests.iter().sum::<f64>() / groups as f64;
        let busiest = requests.iter().fold(0.0, |most: f64, of| most.max(*of)) / mean;
        let counted = (statements[1] - statements[0]) * CONNECTIONS * groups;
        Ok(StatementCost { cpu_us: (many - few) / counted as f64, busiest })
    }

    /// Compares the costs at several groups with those at one.
    fn compare_cpu(&self) -> Result<ResultTable<5>> {
        let mut table =
            ResultTable::new(["statement", "groups", "CPU us", "over one group", "busiest over mean"]);
        let clusters: Vec<ServerGroup> =
            GROUPS.iter().map(|groups| self.start(*groups)).collect::<Result<_>>()?;
        for (groups, servers) in GROUPS.iter().zip(&clusters) {
            // Creates the tables.
            self.run(servers, *groups, ("read", 0))?;
        }
        for (load, name) in LOADS {
            eprintln!("{name}: {} rounds", self.bench.pairs);
            let mut costs: [Vec<StatementCost>; GROUPS.len()] = Default::default();
            // The numbers of groups take turns.
            for _ in 0..self.bench.pairs {
                for ((groups, servers), costs) in GROUPS.iter().zip(&clusters).zip(&mut costs) {
                    costs.push(self.cost(servers, *groups, load)?);
                }
            }
            let range = |values: Vec<f64>| MedianRange::of(&values).ok_or("nothing was measured");
            for (groups, at) in GROUPS.iter().zip(&costs) {
                let over_one = at.iter().zip(&costs[0]).map(|(many, one)| many.cpu_us / one.cpu_us);
                table.row([
                    name.to_owned(),
                    groups.to_string(),
                    format!("{:.1}", range(at.iter().map(|cost| cost.cpu_us).collect())?),
                    format!("{:.2}", range(over_one.collect())?),
                    format!("{:.3}", range(at.iter().map(|cost| cost.busiest).collect())?),
                ]);
            }
        }
        Ok(table)
    }

    /// Returns the instructions of a statement at so many groups.
    fn instructions(&self, groups: usize, (load, idle_rate): (&str, f64)) -> Result<f64> {
        let statements = if self.bench.quick { COUNTED.map(|count| count / 10) } else { COUNTED };
        let count = |statements: usize| -> Result<(f64, f64)> {
            let begun = Instant::now();
            let servers = self.start_counting(groups)?;
            let load = self.arrangement.load(groups, (load, statements), KEYS_COUNTED);
            let mut client = load.command(counting(&self.programs.load), &servers);
            let client = measure::run(self.bench.children, &mut client)?;
            let mut reports = servers.end()?;
            reports.push(client.stderr);
            Ok((counted(&reports)?, begun.elapsed().as_secs_f64()))
        };
        let [(few, few_seconds), (many, many_seconds)] = [count(statements[0])?, count(statements[1])?];
        let idle = idle_rate * (many_seconds - few_seconds);
        Ok((many - few - idle) / ((statements[1] - statements[0]) * CONNECTIONS * groups) as f64)
    }

    /// Returns the instructions/s of all servers without load.
    fn idle_rate(&self, groups: usize) -> Result<f64> {
        let count = |seconds: u64| -> Result<f64> {
            let servers = self.start_counting(groups)?;
            thread::sleep(Duration::from_secs(seconds));
            counted(&servers.end()?)
        };
        Ok((count(IDLE[1])? - count(IDLE[0])?) / (IDLE[1] - IDLE[0]) as f64)
    }

    /// Compares the instructions at the most groups with those at one.
    fn compare_instructions(&self) -> Result<ResultTable<4>> {
        let most = GROUPS[GROUPS.len() - 1];
        let (at_one, at_most) = (self.idle_rate(1)?, self.idle_rate(most)?);
        let mut table = ResultTable::new(["instructions", "one group", "eight groups", "ratio"]);
        for (load, name) in LOADS {
            eprintln!("{name}: instructions");
            let one = self.instructions(1, (load, at_one))?;
            let many = self.instructions(most, (load, at_most))?;
            let ratio = format!("{:.3}", many / one);
            table.row([name.to_owned(), format!("{one:.0}"), format!("{many:.0}"), ratio]);
        }
        Ok(table)
    }
}

/// Compares the costs at several groups with those at one.
pub(in crate::bench) fn scale(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let of = |arrangement| ScaleBench { bench, programs: &programs, arrangement };
    for arrangement in &ARRANGEMENTS {
        println!("{}", arrangement.name);
        print!("{}", of(arrangement).compare_cpu()?);
    }
    // Other work on the machine does not change these.
    for arrangement in &ARRANGEMENTS {
        println!("{}", arrangement.name);
        print!("{}", of(arrangement).compare_instructions()?);
    }
    println!("one client process, {CONNECTIONS} connections and {KEYS} rows for each group");
    Ok(())
}
