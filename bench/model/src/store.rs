//! What a store must do: the database interface layer of the YCSB paper
//! (section 5.2) as a trait.
//!
//! Dispatch over stores is static: the runner is compiled once a store, so
//! that a client of the no-op store pays nothing for what asynchronous
//! drivers need. A verb returns a future; an embedded engine's is ready at
//! once, and the compiler then sees straight-line code.

use crate::{
    flush::Flush,
    operation::{FieldSelection, OperationKinds},
    outcome::Outcome,
    record::{Record, Reply},
};
use std::future::Future;

/// Where a store's clients run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// A client is a thread. For embedded engines and blocking drivers, whose
    /// futures are ready when first polled.
    Threads,
    /// Clients are tasks on a few event loops, each a single-threaded Tokio
    /// runtime. For asynchronous drivers.
    EventLoops,
}

/// Why a store could not be opened or connected to: what was wrong, where,
/// and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {problem}")]
pub struct StoreError {
    /// The store's name, with its address or file where it has one.
    pub store: String,
    /// What was wrong and what to do.
    pub problem: String,
}

impl StoreError {
    /// An error of the store (with its address) and what was wrong.
    pub fn new(store: impl Into<String>, problem: impl Into<String>) -> Self {
        StoreError { store: store.into(), problem: problem.into() }
    }
}

/// The shape of the records that a workload uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The table.
    pub table: String,
    /// The names of the fields that records may have.
    pub fields: Vec<String>,
}

/// Why a store is being prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Records will be inserted: make the table if it is not there.
    Load,
    /// Records should be there: say so if the table is missing.
    Run,
}

/// A serving store, opened from its properties and shared by all clients.
pub trait Store: Send + Sync + 'static {
    /// What the clients of one event loop share (connections, say); made once
    /// a loop, or once a client under [`Execution::Threads`].
    type Local: 'static;
    /// One client's handle.
    type Client: Client + 'static;

    /// Where clients of this store run.
    fn execution(&self) -> Execution;

    /// The verbs that this store can do.
    fn capabilities(&self) -> OperationKinds {
        OperationKinds::ALL
    }

    /// Whether clients tell service times of their own
    /// ([`Client::service_ns`]): a store behind another process.
    fn times_itself(&self) -> bool {
        false
    }

    /// Event loops that the store can serve at most.
    fn event_loops_max(&self) -> usize {
        usize::MAX
    }

    /// Makes ready for, or checks against, the records to come. Runs once,
    /// before any client connects and on whatever thread; may block.
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let _ = (schema, purpose);
        Ok(())
    }

    /// Facts for the result document: version, address, settings in force.
    fn describe(&self) -> Vec<(String, String)>;

    /// Makes what the clients of one event loop share.
    fn local(&self) -> Result<Self::Local, StoreError>;

    /// Connects one client. Runs on the thread or loop that will use it, and
    /// is not in the measured time.
    fn connect(
        &self,
        local: &Self::Local,
        client: usize,
    ) -> impl Future<Output = Result<Self::Client, StoreError>>;

    /// Says more of why the store was lost, which may take a moment: it is
    /// called when nothing is measured any more.
    fn explain(&self, lost: StoreError) -> StoreError {
        lost
    }

    /// Writes that were acknowledged to clients that are gone and never sent, nor
    /// told of by [`Client::flushed`]: asked once a run, when it is over.
    fn unsent(&self) -> u64 {
        0
    }

    /// Called once when all clients are closed.
    fn finish(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// One client's handle on a store: the verbs.
///
/// Failures are outcomes, not errors: the run goes on and counts them.
pub trait Client {
    /// Reads the record under `key` into `reply`. [`Outcome::NOT_FOUND`] when
    /// there is none.
    fn read(
        &mut self,
        table: &str,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> impl Future<Output = Outcome>;

    /// Overwrites the fields given of the record under `key`.
    fn update(&mut self, table: &str, key: &str, fields: &Record) -> impl Future<Output = Outcome>;

    /// Writes a new record.
    fn insert(&mut self, table: &str, key: &str, record: &Record) -> impl Future<Output = Outcome>;

    /// Reads up to `count` records in key order from `start_key` on.
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

    /// Writes several new records in one go, if the store has a faster way
    /// than one by one. Returns the first failure; the records before it may
    /// have been written.
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

    /// How long the last operation took inside the store's own client
    /// library, in ns, when that is not where this client runs; `None` when the
    /// time around the verb is the service time.
    #[inline]
    fn service_ns(&self) -> Option<u64> {
        None
    }

    /// Asked after a failure: why no later operation can succeed, if so. Ends
    /// the run. Stores that may come back are not lost.
    #[inline]
    fn lost(&self) -> Option<StoreError> {
        None
    }

    /// Whether this client holds writes that it has acknowledged, or can tell of
    /// some that it held. Asked after each operation; the next three only if so.
    #[inline]
    fn buffers(&self) -> bool {
        false
    }

    /// When the writes that it holds are to be sent, ns of the run's clock.
    /// Whoever waits with this client then calls
    /// [`send_buffered`](Self::send_buffered).
    fn send_at(&self) -> Option<u64> {
        None
    }

    /// Sends the writes that it holds.
    fn send_buffered(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// The next flush that nobody has been told of.
    fn flushed(&mut self) -> Option<Flush> {
        None
    }

    /// Closes the handle; measured as CLEANUP.
    fn close(&mut self) -> impl Future<Output = Outcome> {
        std::future::ready(Outcome::OK)
    }
}
