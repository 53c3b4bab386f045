//! The statements of [`table_statements`](crate::table_statements) on a simulated cluster, whose
//! processors and network take time by a cost model.

use crate::{
    Result,
    table_statements::{TableLoad, TableStatement, TablesClient},
};
use clap::{Args, ValueEnum};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::{cell::RefCell, path::PathBuf, sync::Arc, time::Duration};
use yesquel::{Addresses, Error, SocketOptions, Store};
use yesquel_engine::Techniques;
use yesquel_virtual_time::{CostModel, LoadError, Quota, VirtualClient, VirtualLoad, VirtualPlan, run};

/// Statements of each connection before those that are measured.
const WARM_UP: u64 = 20;

/// A technique that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OmittedTechnique {
    /// Servers compare transactions by nodes instead of keys.
    CommutativeOperations,
    /// Clients cache no inner nodes.
    Caches,
}

/// The simulated machines.
#[derive(Debug, Clone, Args)]
pub(crate) struct VirtualArguments {
    /// virtual: storage servers, each on a machine with one processor
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// virtual: client processes, each on a machine of its own, with --threads connections
    #[arg(long, default_value_t = 2)]
    client_processes: usize,
    /// virtual: processors of a client's machine
    #[arg(long, default_value_t = 1)]
    client_processors: usize,
    /// virtual: file of the cost model (default: the one measured last)
    #[arg(long)]
    costs: Option<PathBuf>,
    /// virtual: time that a message travels, in microseconds (default: the cost model's)
    #[arg(long)]
    one_way_us: Option<f64>,
    /// virtual: processor time of a server in a period, in microseconds (default: no quota)
    #[arg(long)]
    quota_us: Option<u64>,
    /// virtual: period of the quota, in microseconds
    #[arg(long, default_value_t = 20_000)]
    period_us: u64,
    /// virtual: interval at which the system compares the use with the quota, in microseconds
    #[arg(long, default_value_t = 4_000)]
    tick_us: u64,
    /// virtual: technique to leave out
    #[arg(long, value_enum)]
    without: Vec<OmittedTechnique>,
}

/// Times of a run and its load.
pub(crate) struct VirtualTimes {
    pub(crate) load: TableLoad,
    /// Connections of a process.
    pub(crate) threads: usize,
    pub(crate) ramp: Duration,
    pub(crate) measured: Duration,
    pub(crate) seed: u64,
}

thread_local! {
    /// The store of the process that a thread simulates.
    static STORE: RefCell<Option<Store>> = const { RefCell::new(None) };
}

/// Returns the store of the process that the thread simulates. Other threads connect by sockets.
fn connector(servers: &Addresses, options: SocketOptions) -> std::result::Result<Store, Error> {
    STORE.with_borrow(Clone::clone).map_or_else(|| Store::connect_any(servers, options), Ok)
}

struct SqlLoad(TableLoad);

impl SqlLoad {
    /// Opens a connection, and does something with it.
    fn with_connection(
        client: &VirtualClient,
        act: impl FnOnce(&Connection) -> Result<()>,
    ) -> std::result::Result<(), LoadError> {
        STORE.set(Some(client.store().clone()));
        let name = format!("file:yesquel://{}/tables?placement=tables", client.host());
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let done =
            Connection::open_with_flags(name, flags).map_err(Into::into).and_then(|opened| act(&opened));
        STORE.set(None);
        done
    }
}

impl VirtualLoad for SqlLoad {
    fn set_up(&self, client: &VirtualClient) -> std::result::Result<(), LoadError> {
        SqlLoad::with_connection(client, |connection| self.0.create(connection))
    }

    fn connect(&self, client: &VirtualClient) -> std::result::Result<(), LoadError> {
        SqlLoad::with_connection(client, |connection| {
            let mut statements = TablesClient::prepare(self.0, connection, client.seed())?;
            // The connections of a process share what it knows.
            if client.number() == 0 {
                statements.learn_leaves()?;
            }
            (0..WARM_UP).try_for_each(|_| statements.execute())?;
            client.run(|| statements.execute())
        })
    }
}

fn name_of(statement: TableStatement) -> String {
    statement.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Simulates the statements.
pub(crate) fn simulate(arguments: &VirtualArguments, times: VirtualTimes) -> Result<Value> {
    assert!(yesquel_sqlite::is_linked());
    yesquel_sqlite::set_connector(connector);
    let mut costs = match &arguments.costs {
        Some(path) => CostModel::read(path.clone())?,
        None => CostModel::measured(),
    };
    if let Some(one_way_us) = arguments.one_way_us {
        costs.network.one_way_us = one_way_us;
        costs.check()?;
    }
    let is_without = |technique| arguments.without.contains(&technique);
    let quota = |share_us: u64| Quota {
        period_ns: arguments.period_us.saturating_mul(1_000),
        share_ns: share_us.saturating_mul(1_000),
        tick_ns: arguments.tick_us.saturating_mul(1_000),
    };
    let plan = VirtualPlan {
        servers: arguments.servers,
        processes: arguments.client_processes,
        connections: times.threads,
        client_processors: arguments.client_processors,
        quota: arguments.quota_us.map(quota),
        statement: name_of(times.load.statement),
        techniques: Techniques {
            commutative_operations: !is_without(OmittedTechnique::CommutativeOperations),
            ..Techniques::default()
        },
        caches_inner_nodes: !is_without(OmittedTechnique::Caches),
        ramp: times.ramp,
        measured: times.measured,
        seed: times.seed,
    };
    let result = run(&plan, &costs, Arc::new(SqlLoad(times.load)))?;
    let mean_use = result.server_use.iter().sum::<f64>() / result.server_use.len() as f64;
    Ok(json!({
        "operations": result.statements,
        "seconds": result.seconds,
        "throughput": result.throughput(),
        "mean_us": result.mean_us,
        "p50_us": result.p50_us,
        "p99_us": result.p99_us,
        "connections": result.connections,
        "server_use": mean_use,
        "client_use": result.client_use,
        "busiest": result.busiest(),
        "requests": result.requests.iter().sum::<u64>(),
        "requests_a_look": result.batch,
        "requests_a_connection": result.connection_batch,
        "read_bytes": result.read_bytes,
        "write_bytes": result.write_bytes,
        "costs": costs.measured,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(statement: TableStatement, without: &[OmittedTechnique], seed: u64) -> Value {
        let arguments = VirtualArguments {
            servers: 2,
            client_processes: 2,
            client_processors: 1,
            costs: None,
            one_way_us: Some(50.0),
            quota_us: None,
            period_us: 20_000,
            tick_us: 4_000,
            without: without.to_vec(),
        };
        let times = VirtualTimes {
            load: TableLoad { statement, tables: 2, keys: 400, value_bytes: 100 },
            threads: 3,
            ramp: Duration::from_millis(5),
            measured: Duration::from_millis(50),
            seed,
        };
        simulate(&arguments, times).unwrap()
    }

    fn requests(result: &Value) -> f64 {
        result["requests"].as_f64().unwrap() / result["operations"].as_f64().unwrap()
    }

    #[test]
    fn a_statement_takes_one_request_for_reads_and_one_for_the_commit() {
        for (statement, expected) in
            [(TableStatement::Read, 1.0), (TableStatement::Scan, 1.0), (TableStatement::Update, 2.0)]
        {
            let result = simulated(statement, &[], 1);
            let requests = requests(&result);
            // A scan may go on in the next leaf.
            assert!((expected - 0.02..expected + 0.15).contains(&requests), "{statement:?}: {result}");
        }
    }

    #[test]
    fn a_seed_has_one_result() {
        let [one, same, other] = [1, 1, 2].map(|seed| simulated(TableStatement::Update, &[], seed));
        assert_eq!(one, same);
        assert_ne!(one, other);
    }

    #[test]
    fn without_caches_statements_ask_more() {
        let result = simulated(TableStatement::Read, &[OmittedTechnique::Caches], 1);
        assert!(requests(&result) > 1.9, "{result}");
    }
}
