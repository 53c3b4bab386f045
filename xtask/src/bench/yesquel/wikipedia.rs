//! Section 6.3: a wiki as Wikipedia's, by the statements that MediaWiki makes for a page view and for
//! an edit (`yesquel/bench/wikipedia`).
//!
//! First on one server beside MariaDB: pages a second, by two client processes of 32 threads. Then at
//! 1, 2, 4 and 8 groups: processor time of a page, clients and servers together. The load grows with
//! the groups, some connections for each; the wiki stays the same, and its tables are distributed
//! over the groups.

use std::process::Command;

use serde_json::Value;

use super::groups::{Hosting, ServerGroup};
use super::side::{LoadResult, SystemUnderTest};
use super::{Programs, THREADS, compare, median, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MedianRange, ResultTable};
use crate::setup::{self, Missing, ProgramPurpose};

/// Pages of Simple English Wikipedia in the paper: 430 MB.
const PAGES: u64 = 190_000;
/// Pages where the groups are compared: each number of groups has a wiki of its own.
const PAGES_OF_GROUPS: u64 = 20_000;
/// The same for a brief check.
const PAGES_QUICK: u64 = 1_000;

/// Numbers of groups. The first one is compared with.
const GROUPS: [usize; 4] = [1, 2, 4, 8];
/// Connections for each group, each with a thread of the one client process.
const CONNECTIONS: usize = 4;
/// Pages of a connection in the two runs whose costs are subtracted, so that the cost of opening the
/// connections and of filling their caches is not counted.
const PAGES_OF_CONNECTION: [usize; 2] = [200, 1_200];

/// Settings for speed without durability: MariaDB keeps all pages in memory.
const SETTINGS: [(&str, &str); 6] = [
    ("innodb-flush-log-at-trx-commit", "0"),
    ("innodb-doublewrite", "0"),
    ("innodb-buffer-pool-size", "4G"),
    ("innodb-log-file-size", "1G"),
    // Connections of clients that have just ended.
    ("max-connections", "500"),
    ("max-prepared-stmt-count", "200000"),
];

/// Loads with their names and the client's arguments.
const LOADS: [(&str, &[&str]); 3] = [
    ("views, uniform (the paper's)", &["--uniform"]),
    ("views, Zipf", &[]),
    ("90 % views, 10 % edits, Zipf", &["--edits", "0.1"]),
];

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// Runs the client once, and returns its result.
fn client(bench: &BenchContext, command: &mut Command) -> Result<(Value, measure::Measured)> {
    let measured = measure::run(bench.children, command)?;
    let result = serde_json::from_str(&measured.stdout);
    Ok((result.map_err(|error| format!("{error} in {}", measured.stdout))?, measured))
}

fn number(result: &Value, name: &str) -> Result<f64> {
    result[name].as_f64().ok_or_else(|| format!("the client printed no {name}: {result}"))
}

/// Creates the wiki at a target.
fn fill(bench: &BenchContext, programs: &Programs, target: &str, pages: u64) -> Result<()> {
    let mut load = Command::new(&programs.load);
    load.args(["wikipedia-load", "--target", target, "--pages", &pages.to_string()]);
    let (result, _) = client(bench, &mut load)?;
    let kind = target.split(':').next().unwrap_or_default();
    println!(
        "load of {kind}: {:.0} pages in {:.1} s",
        number(&result, "pages")?,
        number(&result, "seconds")?
    );
    Ok(())
}

/// Compares one server with MariaDB.
fn beside_mariadb(bench: &BenchContext, programs: &Programs) -> Result<()> {
    let (yesquel, maria) =
        (SystemUnderTest::sql(bench, programs)?, SystemUnderTest::mariadb(bench, &SETTINGS)?);
    let pages = if bench.quick { PAGES_QUICK } else { PAGES };
    for side in [&yesquel, &maria] {
        fill(bench, programs, &side.target, pages)?;
    }
    let (seconds, warm_up) = if bench.quick { (1.0, 1.0) } else { (10.0, 10.0) };
    let mut table = ResultTable::new([
        "2 x 32 threads",
        "Yesquel pages/s",
        "MariaDB pages/s",
        "ratio",
        "p50 ms (MariaDB's)",
        "p99 ms (MariaDB's)",
        "client CPU us (MariaDB's)",
        "server CPU us (MariaDB's)",
        "requests",
    ]);
    for (name, arguments) in LOADS {
        eprintln!("{name}: {} pairs", bench.pairs);
        let mut more = options(&[
            ("threads", THREADS.to_string()),
            ("seconds", seconds.to_string()),
            ("warm-up", warm_up.to_string()),
            ("pages", pages.to_string()),
        ]);
        more.extend(owned(arguments));
        let sides = (&yesquel, &maria);
        let (pairs, seen) =
            compare(bench, &programs.load, sides, "wikipedia", &more, |seen| seen.throughput)?;
        let both = |of: fn(&LoadResult) -> f64, digits: usize| {
            format!("{:.digits$} ({:.digits$})", median(&seen[0], of), median(&seen[1], of))
        };
        table.row([
            name.to_owned(),
            format!("{:.0}", pairs.a()),
            format!("{:.0}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            both(|seen| seen.p50_us / 1e3, 1),
            both(|seen| seen.p99_us / 1e3, 1),
            both(|seen| seen.client_cpu_us, 0),
            both(|seen| seen.server_cpu_us, 0),
            format!("{:.2}", median(&seen[0], |seen| seen.requests / seen.operations)),
        ]);
    }
    print!("{table}");
    println!("the paper: 2,301 views/s beside MySQL's 913, ratio 2.52; p99 54 ms (102)");
    let settings: Vec<String> = SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    println!("{pages} articles; MariaDB: {}", settings.join(" "));
    Ok(())
}

/// A run of the client at some groups.
#[derive(Debug)]
struct GroupsRun {
    /// Processor time of the client and of all servers, us.
    cpu_us: f64,
    /// Requests to each group.
    requests: Vec<f64>,
    /// Statements of a view and of an edit; none if there was none.
    statements: [Option<f64>; 2],
}

/// Cost of a page, and the requests to the busiest group over the mean.
#[derive(Debug, Clone, Copy)]
struct PageCost {
    cpu_us: f64,
    requests: f64,
    busiest: f64,
    statements: [Option<f64>; 2],
}

/// A cluster with a wiki.
struct WikiGroups {
    groups: usize,
    servers: ServerGroup,
    pages: u64,
    /// Number of runs so far, each of which chooses other pages.
    runs: std::cell::Cell<u64>,
}

impl WikiGroups {
    fn start(bench: &BenchContext, programs: &Programs, groups: usize) -> Result<WikiGroups> {
        let servers = ServerGroup::start(
            bench,
            Hosting::Processes(groups),
            || Command::new(&programs.yesquel),
            &["--in-memory"],
        )?;
        let pages = if bench.quick { PAGES_QUICK } else { PAGES_OF_GROUPS };
        fill(bench, programs, &format!("sql:{}", servers.target), pages)?;
        Ok(WikiGroups { groups, servers, pages, runs: std::cell::Cell::new(0) })
    }

    /// Views and edits a number of pages by each connection.
    fn run(
        &self,
        bench: &BenchContext,
        programs: &Programs,
        arguments: &[&str],
        pages: usize,
    ) -> Result<GroupsRun> {
        let connections = CONNECTIONS * self.groups;
        self.runs.set(self.runs.get() + 1);
        let mut command = Command::new(&programs.load);
        command.args(["wikipedia", "--counted", "--target", &format!("sql:{}", self.servers.target)]);
        command.args(options(&[
            ("threads", connections.to_string()),
            ("operations", (pages * connections).to_string()),
            ("pages", self.pages.to_string()),
            ("process", self.runs.get().to_string()),
        ]));
        let before = self.servers.cpu_us()?;
        let (result, measured) = client(bench, command.args(arguments))?;
        let cpu_us = self.servers.cpu_us()? - before + measured.cpu_seconds() * 1e6;
        let requests = result["requests_by_group"].as_array();
        let requests = requests.ok_or("the client printed no requests")?;
        Ok(GroupsRun {
            cpu_us,
            requests: requests.iter().filter_map(Value::as_f64).collect(),
            statements: ["statements_of_view", "statements_of_edit"].map(|name| result[name].as_f64()),
        })
    }

    /// Returns the cost of a page, as the difference of two runs.
    fn cost(&self, bench: &BenchContext, programs: &Programs, arguments: &[&str]) -> Result<PageCost> {
        let pages = PAGES_OF_CONNECTION.map(|pages| if bench.quick { pages / 10 } else { pages });
        let few = self.run(bench, programs, arguments, pages[0])?;
        let many = self.run(bench, programs, arguments, pages[1])?;
        let counted = ((pages[1] - pages[0]) * CONNECTIONS * self.groups) as f64;
        let (all, before): (f64, f64) = (many.requests.iter().sum(), few.requests.iter().sum());
        let most = many.requests.iter().fold(0.0, |most: f64, of| most.max(*of));
        Ok(PageCost {
            cpu_us: (many.cpu_us - few.cpu_us) / counted,
            requests: (all - before) / counted,
            busiest: most / (all / self.groups as f64),
            statements: many.statements,
        })
    }
}

/// Compares the costs of a page at several groups with those at one.
fn by_groups(bench: &BenchContext, programs: &Programs) -> Result<()> {
    let clusters: Vec<WikiGroups> =
        GROUPS.iter().map(|groups| WikiGroups::start(bench, programs, *groups)).collect::<Result<_>>()?;
    let mut table = ResultTable::new([
        "page",
        "groups",
        "CPU us",
        "over one group",
        "requests",
        "busiest over mean",
        "statements of a view, an edit",
    ]);
    for (name, arguments) in LOADS {
        eprintln!("{name}: {} rounds", bench.pairs);
        let mut costs: [Vec<PageCost>; GROUPS.len()] = Default::default();
        // The numbers of groups take turns.
        for _ in 0..bench.pairs {
            for (cluster, costs) in clusters.iter().zip(&mut costs) {
                costs.push(cluster.cost(bench, programs, arguments)?);
            }
        }
        let range = |values: Vec<f64>| MedianRange::of(&values).ok_or("nothing was measured");
        for (groups, at) in GROUPS.iter().zip(&costs) {
            let over_one = at.iter().zip(&costs[0]).map(|(many, one)| many.cpu_us / one.cpu_us);
            let statements = |which: usize| {
                let seen: Vec<f64> = at.iter().filter_map(|cost| cost.statements[which]).collect();
                MedianRange::of(&seen).map_or("-".to_owned(), |seen| format!("{:.1}", seen.median))
            };
            table.row([
                name.to_owned(),
                groups.to_string(),
                format!("{:.0}", range(at.iter().map(|cost| cost.cpu_us).collect())?),
                format!("{:.2}", range(over_one.collect())?),
                format!("{:.2}", range(at.iter().map(|cost| cost.requests).collect())?.median),
                format!("{:.2}", range(at.iter().map(|cost| cost.busiest).collect())?.median),
                format!("{}, {}", statements(0), statements(1)),
            ]);
        }
    }
    print!("{table}");
    println!(
        "one client process, {CONNECTIONS} connections for each group; {} articles, whose tables are \
         distributed over the groups",
        clusters[0].pages
    );
    Ok(())
}

/// Measures the wiki on one server beside MariaDB, and at several groups.
pub(in crate::bench) fn wikipedia(bench: &BenchContext) -> Result<()> {
    setup::provide(bench.children, ProgramPurpose::Mysql, Missing::Report)?;
    let programs = Programs::build_with(bench, &["--features", "yesquel-bench/mariadb"])?;
    beside_mariadb(bench, &programs)?;
    by_groups(bench, &programs)
}
