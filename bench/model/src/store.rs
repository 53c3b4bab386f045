//! The store interface: the database interface layer of the YCSB paper
//! (section 5.2) as a trait.
//!
//! Dispatch over stores is static: the runner is compiled once per store, so
//! a client of the no-op store does not pay for the needs of asynchronous
//! drivers. An operation returns a future. The future of an embedded engine is
//! ready when first polled, and the compiler sees straight-line code.

use crate::{
    flush::Flush,
    operation::{FieldSelection, OperationKinds},
    outcome::Outcome,
    record::{Record, Reply},
};
use std::future::Future;

/// How a store's clients are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// Each client is a thread. For embedded engines and blocking drivers, whose
    /// futures are ready when first polled.
    Threads,
    /// Clients are tasks on a few event loops, each a single-threaded Tokio
    /// runtime. For asynchronous drivers.
    EventLoops,
}

/// Why a store could not be opened or connected to: the problem, its place and
/// the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {problem}")]
pub struct StoreError {
    /// The store's name, with its address or file if it has one.
    pub store: String,
    /// The problem and the remedy.
    pub problem: String,
}

impl StoreError {
    /// Returns an error of a store (with its address) and its problem.
    pub fn new(store: impl Into<String>, problem: impl Into<String>) -> Self {
        StoreError { store: store.into(), problem: problem.into() }
    }
}

/// Table and fields of a workload's records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The table.
    pub table: String,
    /// Names of the fields that records may have.
    pub fields: Vec<String>,
}

/// Purpose of a store's preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Records will be inserted: create the table if it is missing.
    Load,
    /// Records should exist: fail if the table is missing.
    Run,
}

/// A store, opened from its properties and shared by all clients.
pub trait Store: Send + Sync + 'static {
    /// State shared by the clients of one event loop (connections, say). Created once per loop,
    /// or once per client under [`Execution::Threads`].
    type Local: 'static;
    /// One client's handle.
    type Client: Client + 'static;

    /// Returns how clients of this store are executed.
    fn execution(&self) -> Execution;

    /// Returns the operations that this store supports.
    fn capabilities(&self) -> OperationKinds {
        OperationKinds::ALL
    }

    /// Whether clients report service times of their own
    /// ([`Client::service_ns`]): a store in another process.
    fn times_itself(&self) -> bool {
        false
    }

    /// Returns the most event loops that the store supports.
    fn event_loops_max(&self) -> usize {
        usize::MAX
    }

    /// Prepares the store for the records, or checks that they can exist. Runs
    /// once, before any client connects, on any thread; may block.
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let _ = (schema, purpose);
        Ok(())
    }

    /// Returns facts for the result document: version, address, settings in force.
    fn describe(&self) -> Vec<(String, String)>;

    /// Creates the shared state of one event loop.
    fn local(&self) -> Result<Self::Local, StoreError>;

    /// Connects one client. Runs on the client's own thread or loop, outside of
    /// the measured time.
    fn connect(
        &self,
        local: &Self::Local,
        client: usize,
    ) -> impl Future<Output = Result<Self::Client, StoreError>>;

    /// Adds details to the error of a lost store. May take a moment: it is called
    /// after the measurement.
    fn explain(&self, lost: StoreError) -> StoreError {
        lost
    }

    /// Returns the number of acknowledged writes of closed clients that were never
    /// sent and that [`Client::flushed`] did not report. Called once, after the run.
    fn unsent(&self) -> u64 {
        0
    }

    /// Called once after all clients are closed.
    fn finish(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// One client's handle on a store: the operations.
///
/// Failures are outcomes, not errors: the run continues and counts them.
pub trait Client {
    /// Reads the record under `key` into `reply`. Returns [`Outcome::NOT_FOUND`]
    /// if there is none.
    fn read(
        &mut self,
        table: &str,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> impl Future<Output = Outcome>;

    /// Overwrites the given fields of the record under `key`.
    fn update(&mut self, table: &str, key: &str, fields: &Record) -> impl Future<Output = Outcome>;

    /// Writes a new record.
    fn insert(&mut self, table: &str, key: &str, record: &Record) -> impl Future<Output = Outcome>;

    /// Reads up to `count` records in key order from `start_key`.
    fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> impl Future<Output = Outcome>;

    /// Removes a record.
    fn delete(&mut self, table: &str, key: &str) -> impl Future<Output = Outcome>;

    /// Writes several new records at once, if the store has a faster way than
    /// single inserts. Returns the first failure; the records before it may be
    /// written.
    fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> impl Future<Output = Outcome> {
        async move {
            for (key, record) in records {
                let outcome = self.insert(table, key, record).await;
                if !outcome.is_ok() {
                    return outcome;
                }
            }
            Outcome::OK
        }
    }

    /// Returns the time that the last operation took in the store's own client
    /// library, ns, if that library runs in another process. `None` if the time
    /// around the call is the service time.
    #[inline]
    fn service_ns(&self) -> Option<u64> {
        None
    }

    /// Returns why no later operation can succeed, if so. Called after a failure;
    /// ends the run. A store that may recover is not lost.
    #[inline]
    fn lost(&self) -> Option<StoreError> {
        None
    }

    /// Whether this client holds acknowledged writes, or has flushes to report.
    /// Called after each operation; the next three only if true.
    #[inline]
    fn buffers(&self) -> bool {
        false
    }

    /// Returns when the buffered writes must be sent, ns of the run's clock. A
    /// runner that waits with this client calls
    /// [`send_buffered`](Self::send_buffered) at that time.
    fn send_at(&self) -> Option<u64> {
        None
    }

    /// Sends the buffered writes.
    fn send_buffered(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Returns the next flush that has not been reported.
    fn flushed(&mut self) -> Option<Flush> {
        None
    }

    /// Closes the handle; measured as CLEANUP.
    fn close(&mut self) -> impl Future<Output = Outcome> {
        std::future::ready(Outcome::OK)
    }
}
