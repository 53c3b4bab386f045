//! `cargo xtask bench`: named measurements on this machine.
//!
//! A benchmark is a row of [`BENCHMARKS`] and a function in a module of this folder. [`measure`]
//! has the shared parts.

use std::env;
use std::path::PathBuf;

use clap::Args;

use crate::Result;
use crate::children::Children;

mod baseline;
mod bindings;
mod coordination;
pub(crate) mod driver;
mod figures;
mod instructions;
mod lag;
pub(crate) mod latencies;
pub(crate) mod measure;
mod report;
mod script;
mod sweep;
mod yesquel;

#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Benchmarks to run [default: all]
    names: Vec<String>,
    /// List the benchmarks with descriptions, without running them
    #[arg(long)]
    list: bool,
    /// Number of pairs of measurements where two sides are compared
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Run briefly with few keys, as a check; the numbers are not meaningful (sweep, coordination,
    /// lag, and those of Yesquel and its SQL)
    #[arg(long)]
    quick: bool,
}

/// A named measurement.
struct Benchmark {
    name: &'static str,
    measures: &'static str,
    run: fn(&BenchContext) -> Result<()>,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "noise",
        measures: "the same program against itself: smaller differences are noise",
        run: baseline::noise,
    },
    Benchmark {
        name: "redis-ceiling",
        measures: "redis-benchmark's reads a second of one YCSB record, by 1 and 50 connections",
        run: baseline::redis_ceiling,
    },
    Benchmark {
        name: "noop",
        measures: "the client alone: workload C on the no-op store, against YCSB's client with BasicDB",
        run: figures::noop,
    },
    Benchmark {
        name: "instructions",
        measures: "instructions of an operation (callgrind); compared with the build in SERVAL_BASELINE, if set",
        run: instructions::instructions,
    },
    Benchmark {
        name: "load",
        measures: "making records: 1,000 bytes each into the no-op store by one thread",
        run: figures::load,
    },
    Benchmark {
        name: "keyspace",
        measures: "time and memory of a start over 10^12 records, by distribution",
        run: figures::key_space,
    },
    Benchmark {
        name: "redis",
        measures: "reads of 1 KB records by 32 clients, against redis-benchmark",
        run: figures::redis,
    },
    Benchmark {
        name: "pacing",
        measures: "a paced run on Redis at half of saturation: rate, lateness, CPU",
        run: figures::pacing,
    },
    Benchmark {
        name: "driver",
        measures: "the hop to a driver in another process, its rate, and a Java store of known speed",
        run: driver::driver,
    },
    Benchmark {
        name: "bindings",
        measures: "client CPU of built-in bindings, against bare loops over their driver crates",
        run: bindings::bindings,
    },
    Benchmark {
        name: "script",
        measures: "workload C in Lua on the no-op store, against the core's own",
        run: script::script,
    },
    Benchmark {
        name: "report",
        measures: "time to make the pages of an experiment of 48 runs and of a run of an hour",
        run: report::report,
    },
    Benchmark {
        name: "sweep",
        measures: "a sweep of two stores: the time besides loading, warming up and measuring",
        run: sweep::sweep,
    },
    Benchmark {
        name: "coordination",
        measures: "one process and four agents at the same load on Redis; start skew of groups",
        run: coordination::coordination,
    },
    Benchmark {
        name: "coordination-saturated",
        measures: "the same work at saturation, with and without coordination",
        run: coordination::saturated,
    },
    Benchmark {
        name: "lag",
        measures: "staleness of reads: Redis, PostgreSQL, their replicas, a Cassandra ring, HBase's write buffers; and known delays",
        run: lag::lag,
    },
    Benchmark {
        name: "yesquel-inserts",
        measures: "6.1.4: increasing-key inserts at one group and four, and without right splits, delegated splits, commutative operations",
        run: yesquel::inserts::inserts,
    },
    Benchmark {
        name: "yesquel-transactions",
        measures: "6.1.5: transactions that scan 2, 10, 100 keys and update one, at one group and four, against Redis",
        run: yesquel::transactions::transactions,
    },
    Benchmark {
        name: "yesquel-scan",
        measures: "6.1.6: throughput that updates lose during scans of a tenth of 10^6 keys, at one group and four",
        run: yesquel::snapshots::snapshots,
    },
    Benchmark {
        name: "yesquel-load",
        measures: "6.1.3: reads of 200 keys, and how load splits spread them",
        run: yesquel::loads::loads,
    },
    Benchmark {
        name: "yesquel-roots",
        measures: "figure 10: fetches of the root by 1 to 50 caches, at one group and four, in 5 million operations of each kind",
        run: yesquel::roots::roots,
    },
    Benchmark {
        name: "yesquel",
        measures: "Yesquel's ordered maps against Redis: reads, updates, inserts, in memory and on disk",
        run: yesquel::yesquel,
    },
    Benchmark {
        name: "sql",
        measures: "6.2: a million rows through SQLite's interface against Redis: reads, updates, short ranges",
        run: yesquel::sql::sql,
    },
    Benchmark {
        name: "sql-mariadb",
        measures: "the statements of 6.2 against MariaDB's, nothing synced on either side",
        run: yesquel::sql::mariadb::mariadb,
    },
    Benchmark {
        name: "sql-bulk",
        measures: "a million rows into a server in transactions of 100, beside SQLite's own file",
        run: yesquel::sql::bulk::bulk,
    },
    Benchmark {
        name: "sql-sqlite",
        measures: "against SQLite's own file (WAL, NORMAL): point reads, inserts by 8 threads and by 8 processes",
        run: yesquel::sql::sqlite::sqlite,
    },
    Benchmark {
        name: "sql-open",
        measures: "opening a connection with its first SELECT, and memory of idle connections, beside SQLite's own file",
        run: yesquel::sql::open::open,
    },
    Benchmark {
        name: "yesquel-embedded",
        measures: "Yesquel in the process beside redb and fjall: point reads, durable inserts",
        run: yesquel::embedded::embedded,
    },
    Benchmark {
        name: "yesquel-groups",
        measures: "a commit over two groups, over one of one group: CPU time, instructions (callgrind)",
        run: yesquel::groups::groups,
    },
    Benchmark {
        name: "yesquel-scale",
        measures: "statements of SQL at 1, 2, 4 and 8 groups: CPU time, instructions, how evenly the groups are used",
        run: yesquel::scale::scale,
    },
    Benchmark {
        name: "yesquel-two-rows",
        measures: "UPDATE of a row at one of two groups, and of a row at each, against GET and SET of Redis",
        run: yesquel::two_rows::two_rows,
    },
    Benchmark {
        name: "yesquel-quota",
        measures: "statements of SQL at 1, 2 and 4 servers, each held to 6 % of a processor",
        run: yesquel::quota::quota,
    },
    Benchmark {
        name: "yesquel-wikipedia",
        measures: "6.3: page views and edits of a wiki beside MariaDB; CPU time of a page at 1, 2, 4 and 8 groups",
        run: yesquel::wikipedia::wikipedia,
    },
    Benchmark {
        name: "yesquel-costs",
        measures: "processor time of messages and statements: the cost model of yesquel-virtual, a file in the repository",
        run: yesquel::costs::costs,
    },
    Benchmark {
        name: "yesquel-virtual",
        measures: "6.1.2, 6.2: statements of SQL at 1 to 48 simulated servers; with quotas beside real servers",
        run: yesquel::virtual_time::virtual_time,
    },
    Benchmark {
        name: "yesquel-memory",
        measures: "memory of a stored key, compared with Redis",
        run: yesquel::memory::memory_per_key,
    },
    Benchmark {
        name: "yesquel-restart",
        measures: "start with 1 GB of data, beside Redis with its append-only file",
        run: yesquel::restart::restart,
    },
];

/// Context of a benchmark.
struct BenchContext<'a> {
    children: &'a Children,
    /// Number of pairs where two sides are compared.
    pairs: u32,
    /// Whether to run briefly, only as a check.
    quick: bool,
}

impl BenchContext<'_> {
    /// Builds serval for release and returns its path.
    fn serval(&self) -> Result<PathBuf> {
        self.children.check(crate::cargo().args(["build", "--release", "--package", "serval"]))?;
        Self::built("serval")
    }

    fn built(name: &str) -> Result<PathBuf> {
        // Cargo puts profiles side by side, so the path relative to this program is valid for any
        // target folder or triple.
        let ours = env::current_exe().map_err(|error| format!("where are we? {error}"))?;
        let program = ours
            .ancestors()
            .nth(2)
            .map(|target| target.join("release").join(name))
            .filter(|program| program.is_file());
        program.ok_or_else(|| format!("no release/{name} beside the folder of {}", ours.display()))
    }
}

/// Runs the named benchmarks, or lists all.
pub(crate) fn bench(arguments: &BenchArguments, children: &Children) -> Result<()> {
    if arguments.list {
        print!("{}", listing());
        return Ok(());
    }
    let chosen = choose(&arguments.names)?;
    println!("{}", measure::MachineDescription::read());
    let bench = BenchContext { children, pairs: arguments.pairs, quick: arguments.quick };
    for benchmark in chosen {
        println!("\n==> {}: {}", benchmark.name, benchmark.measures);
        (benchmark.run)(&bench).map_err(|error| format!("{}: {error}", benchmark.name))?;
    }
    Ok(())
}

fn listing() -> String {
    let mut table = measure::ResultTable::new(["benchmark", "measures"]);
    for benchmark in BENCHMARKS {
        table.row([benchmark.name.to_owned(), benchmark.measures.to_owned()]);
    }
    table.to_string()
}

/// Returns the named benchmarks in the given order, or all if none is named. The error lists all
/// unknown names.
fn choose(names: &[String]) -> Result<Vec<&'static Benchmark>> {
    if names.is_empty() {
        return Ok(BENCHMARKS.iter().collect());
    }
    let by_name = |name: &String| BENCHMARKS.iter().find(|benchmark| benchmark.name == name);
    let unknown: Vec<&str> =
        names.iter().filter(|name| by_name(name).is_none()).map(String::as_str).collect();
    if unknown.is_empty() {
        Ok(names.iter().filter_map(by_name).collect())
    } else {
        Err(format!("no benchmark named {}; there are:\n{}", unknown.join(", "), listing()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_are_chosen_by_name() {
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            choose(&names).map(|chosen| chosen.iter().map(|b| b.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["redis-ceiling"]), Ok(vec!["redis-ceiling"]));
        assert_eq!(chosen(&[]).map(|all| all.len()), Ok(BENCHMARKS.len()));
        let error = chosen(&["bogus", "noise", "nonsense"]).unwrap_err();
        assert!(error.starts_with("no benchmark named bogus, nonsense; there are:"));
    }
}
