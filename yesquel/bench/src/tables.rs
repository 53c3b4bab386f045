//! Statements of SQL on tables that are distributed over the groups of a cluster, one table a group.

use crate::{
    Result, cluster,
    table_statements::{TableLoad, TablesClient},
};
use hdrhistogram::Histogram;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use yesquel::Store;

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements of each connection before those that are measured.
const WARM_UP: u64 = 100;
/// Longest response time that the histogram records, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Parameters of the statements.
pub(crate) struct TablesPlan {
    /// Addresses of the servers, separated by commas.
    pub(crate) target: String,
    pub(crate) load: TableLoad,
    /// Connections, each with a thread.
    pub(crate) threads: u64,
    /// Number of statements or transactions.
    pub(crate) operations: u64,
    /// Seed of the random numbers.
    pub(crate) process: u64,
}

fn open(plan: &TablesPlan) -> Result<Connection> {
    assert!(yesquel_sqlite::is_linked());
    let connection = Connection::open(format!("yesquel://{}/tables?placement=tables", plan.target))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Requests of clients to each group so far, in the order of the groups.
fn requests(store: &Store) -> Result<Vec<u64>> {
    let of = |group| -> Result<u64> {
        let requests = store.status_of(group)?.requests;
        Ok(requests.reads + requests.commits + requests.prepares)
    };
    cluster::groups(store)?.into_iter().map(of).collect()
}

/// Prepares a client and warms it up.
fn ready<'a>(plan: &TablesPlan, connection: &'a Connection, thread: u64) -> Result<TablesClient<'a>> {
    let seed = plan.process.wrapping_mul(1 << 20).wrapping_add(thread);
    let mut client = TablesClient::prepare(plan.load, connection, seed)?;
    client.learn_leaves()?;
    (0..WARM_UP).try_for_each(|_| client.execute())?;
    Ok(client)
}

/// Executes statements. Returns their response times in nanoseconds.
fn execute(client: &mut TablesClient<'_>, operations: u64) -> Result<Histogram<u64>> {
    let mut latencies = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?;
    for _ in 0..operations {
        let begun = Instant::now();
        client.execute()?;
        latencies.saturating_record(begun.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}

/// Runs the statements.
pub(crate) fn run(plan: &TablesPlan) -> Result<Value> {
    plan.load.create(&open(plan)?)?;
    let store = cluster::connect(&plan.target)?;
    let (arrived, begin) = (Barrier::new(plan.threads as usize + 1), Barrier::new(plan.threads as usize + 1));
    let operations = plan.operations / plan.threads;
    thread::scope(|scope| {
        let work = |thread: u64| {
            let (arrived, begin) = (&arrived, &begin);
            scope.spawn(move || {
                let opened = open(plan);
                let client = opened.as_ref().map_err(ToString::to_string);
                let client = client.and_then(|connection| {
                    ready(plan, connection, thread).map_err(|error| error.to_string())
                });
                arrived.wait();
                begin.wait();
                client.and_then(|mut client| {
                    execute(&mut client, operations).map_err(|error| error.to_string())
                })
            })
        };
        let threads: Vec<_> = (0..plan.threads).map(work).collect();
        arrived.wait();
        let (requests_before, begun) = (requests(&store), Instant::now());
        begin.wait();
        let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let seconds = begun.elapsed().as_secs_f64();
        let mut latencies = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?;
        for outcome in ended {
            latencies.add(outcome.map_err(|_| "a thread has panicked")??)?;
        }
        let requests_before = requests_before?;
        let by_group: Vec<u64> =
            requests(&store)?.iter().zip(requests_before).map(|(after, before)| after - before).collect();
        let operations = operations * plan.threads;
        Ok(json!({
            "operations": operations,
            "seconds": seconds,
            "throughput": operations as f64 / seconds,
            "p50_us": latencies.value_at_quantile(0.5) as f64 / 1e3,
            "p99_us": latencies.value_at_quantile(0.99) as f64 / 1e3,
            "requests_by_group": by_group,
        }))
    })
}
