//! The load of one client process: threads in a closed loop, or, with a rate,
//! on a schedule. `cargo xtask bench yesquel` starts servers and several of
//! these, and compares.

mod cluster;
mod connections;
#[cfg(feature = "embedded")]
mod embedded;
mod groups;
mod load;
#[cfg(feature = "mariadb")]
mod mariadb;
mod measure;
mod plan;
mod redis;
mod roots;
mod sql;
mod survey;
mod table_statements;
mod tables;
mod target;
mod virtual_cluster;
mod wikipedia;
mod worker;

use clap::{Parser, ValueEnum};
use std::{error::Error, process::ExitCode, time::Duration};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What every thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadWorkload {
    /// Inserts all keys once.
    Load,
    /// Reads a random key.
    Read,
    /// Reads a random key and writes it, in a transaction.
    Update,
    /// Inserts a new random key.
    Insert,
    /// Inserts the largest key so far; by SQL a row whose key the database chooses.
    InsertMono,
    /// The same, in a transaction that has looked for the key.
    InsertMonoRead,
    /// Scans keys from a random one on and writes a random key, in a
    /// transaction.
    ScanUpdate,
    /// Scans keys from a random one on; each key is an operation.
    Scan,
    /// Looks for one to five keys from a random one on, and each twentieth time
    /// updates one.
    Range,
    /// Puts all keys into Redis's sorted set, as an index for ranges.
    Index,
    /// Reports the accesses of each leaf by the second.
    Survey,
    /// Counts how often clients with caches of their own fetch a root; they
    /// and the server are in this process, which needs no other server.
    Roots,
    /// Asks for the first key until there is an answer.
    Ready,
    /// Commits transactions that write two trees, of one or of two groups.
    Commit,
    /// Runs statements of SQL on tables that are distributed over the groups of a cluster.
    Tables,
    /// The same on a simulated cluster, whose processors and network take time by a cost model.
    Virtual,
    /// Creates the tables of a wiki, with its pages.
    WikipediaLoad,
    /// Views and edits pages of a wiki by the statements of MediaWiki.
    Wikipedia,
    /// Opens connections by SQL, each with its first SELECT, and closes them.
    Open,
    /// Opens connections by SQL and says what memory they take.
    Idle,
    /// Makes a folder of a store in this process, with all keys.
    EmbeddedLoad,
    /// Opens such a folder, reads and inserts.
    EmbeddedServer,
}

/// One client process of Yesquel's benchmarks.
#[derive(Debug, Parser)]
#[command(version)]
struct LoadArguments {
    /// What to do
    workload: LoadWorkload,
    /// Whom to ask: yesquel:ADDRESSES (separated by commas), redis:ADDRESS or mariadb:ADDRESS; by SQLite's interface: sql:ADDRESSES, folder:FOLDER, sqlite:FILE or sqlite-cached:FILE; for embedded: yesquel:FOLDER, redb:FOLDER or fjall:FOLDER
    #[arg(long, default_value = "")]
    target: String,
    /// Threads
    #[arg(long, default_value_t = 32)]
    threads: u32,
    /// Connections to Yesquel, each with a cache of its own, that the threads share
    #[arg(long, default_value_t = 1)]
    clients: u32,
    /// Seconds that are measured
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Keys that there are
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Operations a second of all threads together; 0: as fast as answers come
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Redis: operations that each thread sends in one go
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Keys that a load stores in one transaction, or in one going to and fro
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Whether a load stores keys in no order, and keys of 64 bits
    #[arg(long)]
    shuffled: bool,
    /// Whether the rows of a load by SQL get their keys from the database
    #[arg(long)]
    numbered: bool,
    /// The server's process, for its memory
    #[arg(long)]
    server_process: Option<u32>,
    /// Keys of a scan
    #[arg(long, default_value_t = 10)]
    scan: u64,
    /// Threads of all processes, each of which then writes keys of its own; 0: they share all
    #[arg(long, default_value_t = 0)]
    apart: u64,
    /// Groups that each transaction of `commit` writes to, 1 or 2; groups of the server of `roots`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    groups: u8,
    /// Statement of `tables`
    #[arg(long, value_enum, default_value_t = table_statements::TableStatement::Read)]
    statement: table_statements::TableStatement,
    /// Number of tables of `tables`
    #[arg(long, default_value_t = 1)]
    tables: u64,
    /// Articles of the wiki
    #[arg(long, default_value_t = 190_000, value_parser = clap::value_parser!(u64).range(1..=wikipedia::ARTICLES_MAX))]
    pages: u64,
    /// Part of the wiki's pages that are edited and not viewed, 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = wikipedia::part)]
    edits: f64,
    /// Whether all articles of the wiki are equally popular; otherwise by Zipf's law
    #[arg(long)]
    uniform: bool,
    /// Whether the wiki's threads end after --operations pages, and not after --seconds
    #[arg(long)]
    counted: bool,
    /// Seed of the wiki's texts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operations of each kind, or connections, where they are counted and not timed
    #[arg(long, default_value_t = 5_000_000)]
    operations: u64,
    /// Which of several processes it is: its random numbers follow from it
    #[arg(long, default_value_t = 0)]
    process: u64,
    #[command(flatten)]
    machines: virtual_cluster::VirtualArguments,
}

impl LoadArguments {
    fn table_load(&self) -> table_statements::TableLoad {
        table_statements::TableLoad {
            statement: self.statement,
            tables: self.tables.max(1),
            keys: self.keys.max(1),
            value_bytes: self.value_bytes,
        }
    }
}

/// Stores in this process; their crates are optional.
fn embedded(arguments: &LoadArguments) -> Result<serde_json::Value> {
    #[cfg(feature = "embedded")]
    {
        let (store, folder) = arguments.target.split_once(':').ok_or("the target is no store:FOLDER")?;
        let plan = embedded::EmbeddedPlan {
            store: store.to_owned(),
            folder: folder.into(),
            measured: Duration::from_secs_f64(arguments.seconds.max(0.1)),
            keys: arguments.keys.max(1),
            value_bytes: arguments.value_bytes,
            process: arguments.process,
        };
        if arguments.workload == LoadWorkload::EmbeddedLoad {
            embedded::load(&plan)
        } else {
            embedded::run(&plan)
        }
    }
    #[cfg(not(feature = "embedded"))]
    Err(format!("{}: this program was built without its feature 'embedded'", arguments.target).into())
}

fn run(arguments: &LoadArguments) -> Result<serde_json::Value> {
    let measured = Duration::from_secs_f64(arguments.seconds.max(0.1));
    match arguments.workload {
        LoadWorkload::EmbeddedLoad | LoadWorkload::EmbeddedServer => return embedded(arguments),
        LoadWorkload::Open | LoadWorkload::Idle => {
            let place =
                arguments.target.split_once(':').and_then(|(kind, rest)| sql::SqlLocation::of(kind, rest));
            let plan = connections::ConnectionPlan {
                place: place.ok_or_else(|| format!("'{}' is nothing that SQLite opens", arguments.target))?,
                count: arguments.operations.max(1),
                server: arguments.server_process,
            };
            let is_open = arguments.workload == LoadWorkload::Open;
            return if is_open { connections::times(&plan) } else { connections::memory(&plan) };
        }
        LoadWorkload::Commit => {
            return groups::run(&groups::GroupsPlan {
                target: arguments.target.clone(),
                groups: arguments.groups.into(),
                threads: arguments.threads.max(1).into(),
                operations: arguments.operations,
                value_bytes: arguments.value_bytes,
            });
        }
        LoadWorkload::Tables => {
            return tables::run(&tables::TablesPlan {
                target: arguments.target.clone(),
                load: arguments.table_load(),
                threads: arguments.threads.max(1).into(),
                operations: arguments.operations,
                process: arguments.process,
            });
        }
        LoadWorkload::WikipediaLoad | LoadWorkload::Wikipedia => {
            let plan = wikipedia::WikipediaPlan {
                target: arguments.target.clone(),
                pages: arguments.pages,
                seed: arguments.seed,
                edits: arguments.edits,
                uniform: arguments.uniform,
                threads: arguments.threads.max(1),
                warm_up: Duration::from_secs_f64(arguments.warm_up.max(0.0)),
                end: if arguments.counted {
                    wikipedia::RunEnd::Pages(arguments.operations)
                } else {
                    wikipedia::RunEnd::After(measured)
                },
                rate: arguments.rate,
                process: arguments.process,
            };
            let is_load = arguments.workload == LoadWorkload::WikipediaLoad;
            return if is_load { wikipedia::load(&plan) } else { wikipedia::run(&plan) };
        }
        LoadWorkload::Virtual => {
            let times = virtual_cluster::VirtualTimes {
                load: arguments.table_load(),
                threads: arguments.threads.max(1) as usize,
                ramp: Duration::from_secs_f64(arguments.warm_up.max(0.0)),
                measured: Duration::from_secs_f64(arguments.seconds.max(0.001)),
                seed: arguments.process,
            };
            return virtual_cluster::simulate(&arguments.machines, times);
        }
        LoadWorkload::Survey => return survey::run(&arguments.target, measured),
        LoadWorkload::Roots => {
            return roots::run(&roots::RootsPlan {
                groups: arguments.groups.into(),
                operations: arguments.operations,
                clients: arguments.clients.max(1),
                threads: arguments.threads.max(1),
                keys: arguments.keys.max(1),
                value_bytes: arguments.value_bytes,
            });
        }
        _ => {}
    }
    let plan = plan::LoadPlan {
        workload: arguments.workload,
        target: arguments.target.clone(),
        threads: arguments.threads.max(1),
        clients: arguments.clients,
        measured,
        warm_up: Duration::from_secs_f64(arguments.warm_up.max(0.0)),
        keys: arguments.keys.max(1),
        value_bytes: arguments.value_bytes,
        rate: arguments.rate,
        pipeline: arguments.pipeline.max(1),
        process: arguments.process,
        batch: arguments.batch.max(1),
        scan: arguments.scan.max(1),
        apart: arguments.apart,
        shuffled: arguments.shuffled,
        numbered: arguments.numbered,
    };
    if arguments.workload == LoadWorkload::Ready { load::wait(&plan) } else { load::run(&plan) }
}

fn main() -> ExitCode {
    match run(&LoadArguments::parse()) {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("yesquel-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
