//! Statements of SQL on tables that are distributed over the groups of a cluster, one table a group.
//! Each connection chooses a table and a key at random for each statement.

use crate::{Result, cluster};
use clap::ValueEnum;
use rusqlite::{Connection, Statement};
use serde_json::{Value, json};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use yesquel::Store;
use yesquel_seeds::Random;

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows inserted in one transaction.
const BATCH: u64 = 1_000;

/// Statement on the tables, of the paper's section 6.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableStatement {
    /// SELECT of a row by its key.
    Read,
    /// UPDATE of a row by its key.
    Update,
    /// SELECT of up to ten rows from a key on.
    Scan,
    /// Two UPDATEs in a transaction, of rows of two tables.
    UpdateTwo,
}

/// Parameters of the statements.
pub(crate) struct TablesPlan {
    /// Addresses of the servers, separated by commas.
    pub(crate) target: String,
    /// Number of tables.
    pub(crate) tables: u64,
    pub(crate) statement: TableStatement,
    /// Connections, each with a thread.
    pub(crate) threads: u64,
    /// Number of statements or transactions.
    pub(crate) operations: u64,
    /// Rows of a table.
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// Seed of the random numbers.
    pub(crate) process: u64,
}

fn open(plan: &TablesPlan) -> Result<Connection> {
    assert!(yesquel_sqlite::is_linked());
    let connection = Connection::open(format!("yesquel://{}/tables?placement=tables", plan.target))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Creates the tables with their rows, unless they exist.
fn create(plan: &TablesPlan) -> Result<()> {
    let connection = open(plan)?;
    let value = vec![b'v'; plan.value_bytes];
    for table in 0..plan.tables {
        let exists: bool = connection.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name='t' || ?",
            [table.cast_signed()],
            |row| row.get(0),
        )?;
        if exists {
            continue;
        }
        connection.execute_batch(&format!("CREATE TABLE t{table}(key INTEGER PRIMARY KEY, value BLOB)"))?;
        let mut insert = connection.prepare(&format!("INSERT INTO t{table} VALUES(?, ?)"))?;
        for first in (0..plan.keys).step_by(BATCH as usize) {
            connection.execute_batch("BEGIN")?;
            for key in first..plan.keys.min(first + BATCH) {
                insert.execute((key.cast_signed(), &value))?;
            }
            connection.execute_batch("COMMIT")?;
        }
    }
    Ok(())
}

/// Requests of clients to each group so far, in the order of the groups.
fn requests(store: &Store) -> Result<Vec<u64>> {
    let of = |group| -> Result<u64> {
        let requests = store.status_of(group)?.requests;
        Ok(requests.reads + requests.commits + requests.prepares)
    };
    cluster::groups(store)?.into_iter().map(of).collect()
}

/// Runs the statements.
pub(crate) fn run(plan: &TablesPlan) -> Result<Value> {
    create(plan)?;
    let store = cluster::connect(&plan.target)?;
    let (ready, begin) = (Barrier::new(plan.threads as usize + 1), Barrier::new(plan.threads as usize + 1));
    thread::scope(|scope| {
        let work = |thread: u64| {
            let (ready, begin) = (&ready, &begin);
            scope.spawn(move || {
                let opened = open(plan);
                let connection = opened.as_ref().map_err(ToString::to_string);
                let mut client = connection.and_then(|connection| {
                    TablesClient::prepare(plan, connection, thread).map_err(|error| error.to_string())
                });
                if let Ok(client) = &mut client
                    && let Err(error) = client.warm_up()
                {
                    ready.wait();
                    begin.wait();
                    return Err(error.to_string());
                }
                ready.wait();
                begin.wait();
                let operations = plan.operations / plan.threads;
                client.and_then(|mut client| client.run(operations).map_err(|error| error.to_string()))
            })
        };
        let threads: Vec<_> = (0..plan.threads).map(work).collect();
        ready.wait();
        let (requests_before, begun) = (requests(&store), Instant::now());
        begin.wait();
        let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let seconds = begun.elapsed().as_secs_f64();
        for outcome in ended {
            outcome.map_err(|_| "a thread has panicked")??;
        }
        let requests_before = requests_before?;
        let by_group: Vec<u64> =
            requests(&store)?.iter().zip(requests_before).map(|(after, before)| after - before).collect();
        let operations = plan.operations / plan.threads * plan.threads;
        Ok(json!({
            "operations": operations,
            "seconds": seconds,
            "throughput": operations as f64 / seconds,
            "requests_by_group": by_group,
        }))
    })
}

/// A connection with its statements, by table.
struct TablesClient<'a> {
    plan: &'a TablesPlan,
    connection: &'a Connection,
    reads: Vec<Statement<'a>>,
    updates: Vec<Statement<'a>>,
    scans: Vec<Statement<'a>>,
    random: Random,
    value: Vec<u8>,
}

impl<'a> TablesClient<'a> {
    fn prepare(plan: &'a TablesPlan, connection: &'a Connection, thread: u64) -> Result<TablesClient<'a>> {
        let all = |sql: &dyn Fn(u64) -> String| -> rusqlite::Result<Vec<Statement<'a>>> {
            (0..plan.tables).map(|table| connection.prepare(&sql(table))).collect()
        };
        Ok(TablesClient {
            plan,
            connection,
            reads: all(&|table| format!("SELECT value FROM t{table} WHERE key=?"))?,
            updates: all(&|table| format!("UPDATE t{table} SET value=? WHERE key=?"))?,
            scans: all(&|table| format!("SELECT key, value FROM t{table} WHERE key>=? LIMIT 10"))?,
            random: Random::new(plan.process.wrapping_mul(1 << 20).wrapping_add(thread)),
            value: vec![b'v'; plan.value_bytes.max(8)],
        })
    }

    /// Learns the leaves of all tables.
    fn warm_up(&mut self) -> Result<()> {
        for table in 0..self.plan.tables as usize {
            for key in (0..self.plan.keys).step_by(10) {
                rows(&mut self.reads[table], key)?;
            }
        }
        self.run(100)
    }

    fn table(&mut self) -> usize {
        self.random.next(self.plan.tables) as usize
    }

    fn update(&mut self, table: usize) -> Result<()> {
        let key = self.random.next(self.plan.keys).cast_signed();
        let number = self.random.next(u64::MAX);
        self.value[..8].copy_from_slice(&number.to_le_bytes());
        match self.updates[table].execute((&self.value, key))? {
            1 => Ok(()),
            changed => Err(format!("an update has changed {changed} rows").into()),
        }
    }

    /// Updates rows of two tables, or of one if there is only one; again after a conflict.
    fn update_two(&mut self) -> Result<()> {
        let first = self.table();
        let second = (first + 1) % self.plan.tables as usize;
        loop {
            self.connection.execute_batch("BEGIN")?;
            self.update(first)?;
            self.update(second)?;
            match self.connection.execute_batch("COMMIT") {
                Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                    self.connection.execute_batch("ROLLBACK")?;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    fn run(&mut self, operations: u64) -> Result<()> {
        for _ in 0..operations {
            let (table, key) = (self.table(), self.random.next(self.plan.keys));
            match self.plan.statement {
                TableStatement::Read => {
                    if rows(&mut self.reads[table], key)? != 1 {
                        return Err(format!("row {key} of t{table} is missing").into());
                    }
                }
                TableStatement::Update => self.update(table)?,
                TableStatement::Scan => {
                    rows(&mut self.scans[table], key)?;
                }
                TableStatement::UpdateTwo => self.update_two()?,
            }
        }
        Ok(())
    }
}

/// Runs a query by a key, and returns the number of its rows.
fn rows(statement: &mut Statement<'_>, key: u64) -> Result<u64> {
    let mut rows = statement.query([key.cast_signed()])?;
    let mut count = 0;
    while rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}
