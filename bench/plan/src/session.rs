//! Open stores behind one trait, whatever their type.

use crate::error::PlanError;
use serval_measure::recorder::Pair;
use serval_model::{
    Client, Execution, FieldSelection, OperationKinds, Outcome, Purpose, Record, Reply, Schema, Status,
    Store, StoreError,
    properties::{Faults, Properties, Reader},
};
use serval_result::{
    group::GroupResult,
    lag::{LagKey, LagResult},
};
use serval_runner::{
    AbortCause, Control, Observer, RunOptions, RunRecord, clock, probe, run,
    virtual_time::{self, VirtualTime},
};
use serval_stores::Visitor;
use serval_workload::Workload;
use serval_wrappers::{RunClock, Wrapped, WrapperSettings};
use std::sync::Arc;

/// An open store, for everything but runs. Each method is compiled once per store.
pub trait OpenStore {
    /// Returns whether clients run on threads or on event loops.
    fn execution(&self) -> Execution;
    /// Returns the operations that the store supports.
    fn capabilities(&self) -> OperationKinds;
    /// Prepares the store for records of this schema, or checks that it fits them.
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError>;
    /// Returns the store's description of itself, as names and values.
    fn describe(&self) -> Vec<(String, String)>;
    /// Counts the keys that have a record.
    fn count_records(&self, table: &str, keys: &[String]) -> Result<usize, StoreError>;
    /// Performs the requests of the shell until `questions` returns `None`. `answer` gets each outcome with
    /// the records that were read.
    fn ask(
        &self,
        questions: &mut dyn FnMut() -> Option<ShellRequest>,
        answer: &mut dyn FnMut(Outcome, &Reply),
    ) -> Result<(), StoreError>;
}

/// Outcome of a run of one process or of a group.
#[derive(Debug)]
pub struct Ran {
    /// Record of all clients together.
    pub record: RunRecord,
    /// Description of the threads or event loops of the clients.
    pub execution: String,
    /// Reason why the run ended early; `None` if it did not.
    pub lost: Option<RunLost>,
    /// The processes of a group.
    pub group: Option<GroupResult>,
    /// Read-after-write lag, if consumers measured it.
    pub lag: Option<LagFound>,
}

/// Read-after-write lag that consumers measured.
#[derive(Debug)]
pub struct LagFound {
    /// Summary of all keys.
    pub result: LagResult,
    /// Each sampled key that a consumer took from the queue, with its times.
    pub keys: Vec<LagKey>,
}

/// Reason why a run of one process or of a group ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunLost {
    /// The store is lost, or the workload cannot continue.
    #[error(transparent)]
    Run(#[from] AbortCause),
    /// Processes of the group are lost; the text says which and why.
    #[error("{0}")]
    Clients(String),
}

impl RunLost {
    /// Converts the reason into an error. `store` names the store in the error's text.
    pub fn into_error(self, store: &str) -> PlanError {
        match self {
            RunLost::Run(lost) => PlanError::Store(StoreError::new(store, lost.to_string())),
            // A lost process is not a failure of the store.
            RunLost::Clients(why) => PlanError::Group(why),
        }
    }
}

impl From<RunRecord> for Ran {
    fn from(mut record: RunRecord) -> Self {
        let lost = record.lost.take().map(RunLost::Run);
        Ran { execution: record.execution.to_string(), record, lost, group: None, lag: None }
    }
}

/// An open store that performs plans, in this process or in the processes of a group. Inside
/// [`run`](Session::run) clients call the store directly, not through a trait object.
pub trait Session {
    /// Returns the store that this process has open.
    fn store(&self) -> &dyn OpenStore;
    /// Runs a workload.
    fn run(
        &self,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError>;
    /// Returns a session on the same open store for a concurrent run; `None` if the store allows one run only.
    fn beside(&self) -> Option<Box<dyn Session + Send>> {
        None
    }
    /// Returns whether several processes perform the runs.
    fn is_group(&self) -> bool {
        false
    }
}

/// A request of the shell.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellRequest {
    /// The verb with its fields.
    pub operation: ShellVerb,
    /// The table.
    pub table: String,
    /// The key.
    pub key: String,
}

/// The verbs of the shell.
#[derive(Debug, Clone, PartialEq)]
pub enum ShellVerb {
    /// Read these fields; all if empty.
    Read(Vec<String>),
    /// Scan this number of records for these fields; all fields if empty.
    Scan(u64, Vec<String>),
    /// Insert a record with these fields.
    Insert(Vec<(String, String)>),
    /// Update these fields of a record.
    Update(Vec<(String, String)>),
    /// Delete a record.
    Delete,
}

/// A session on an open store in this process.
struct StoreSession<S> {
    store: Arc<S>,
    /// Name by which the store was opened.
    name: String,
    /// Whether the store is in virtual time, in which only runs can be performed.
    only_runs: bool,
}

impl<S> StoreSession<S> {
    fn new(store: S, name: String) -> StoreSession<S> {
        StoreSession { store: Arc::new(store), name, only_runs: false }
    }
}

/// Sends buffered writes and returns the final outcome: a person at the shell does not wait for a buffer to fill.
async fn sent<C: Client>(client: &mut C, outcome: Outcome) -> Outcome {
    if !client.buffers() {
        return outcome;
    }
    client.send_buffered().await;
    let mut outcome = outcome;
    while let Some(flush) = client.flushed() {
        if !flush.outcome.is_ok() {
            outcome = flush.outcome;
        }
    }
    outcome
}

fn record(fields: &[(String, String)]) -> Record {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

fn selection(fields: &[String]) -> FieldSelection {
    let mut selection = FieldSelection::default();
    fields.iter().for_each(|field| selection.push(field));
    selection
}

impl<S: Store> StoreSession<S> {
    /// Returns whether a key has a record. The error carries the store's message.
    async fn has(
        &self,
        client: &mut S::Client,
        table: &str,
        key: &str,
        reply: &mut Reply,
    ) -> Result<bool, StoreError> {
        reply.clear();
        let outcome = client.read(table, key, &FieldSelection::default(), reply).await;
        match outcome.status {
            Status::NotFound => Ok(false),
            _ if outcome.is_ok() => Ok(true),
            status => {
                if let Some(lost) = client.lost() {
                    return Err(self.store.explain(lost));
                }
                let words = outcome.message.unwrap_or_else(|| status.name().into());
                Err(StoreError::new(&self.name, format!("reading the record '{key}' fails: {words}")))
            }
        }
    }
}

impl<S: Store> OpenStore for StoreSession<S> {
    fn execution(&self) -> Execution {
        self.store.execution()
    }

    fn capabilities(&self) -> OperationKinds {
        self.store.capabilities()
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        self.store.prepare(schema, purpose)
    }

    fn describe(&self) -> Vec<(String, String)> {
        self.store.describe()
    }

    fn count_records(&self, table: &str, keys: &[String]) -> Result<usize, StoreError> {
        if self.only_runs {
            return Ok(keys.len());
        }
        probe(&*self.store, async |client| {
            let (mut reply, mut count) = (Reply::new(), 0);
            for key in keys {
                count += usize::from(self.has(client, table, key, &mut reply).await?);
            }
            Ok(count)
        })?
    }

    fn ask(
        &self,
        questions: &mut dyn FnMut() -> Option<ShellRequest>,
        answer: &mut dyn FnMut(Outcome, &Reply),
    ) -> Result<(), StoreError> {
        if self.only_runs {
            return Err(StoreError::new(&self.name, "only runs go in virtual time"));
        }
        probe(&*self.store, async |client| {
            let mut reply = Reply::new();
            while let Some(ShellRequest { operation, table, key }) = questions() {
                reply.clear();
                let outcome = match operation {
                    ShellVerb::Read(fields) => {
                        client.read(&table, &key, &selection(&fields), &mut reply).await
                    }
                    ShellVerb::Scan(count, fields) => {
                        client.scan(&table, &key, count, &selection(&fields), &mut reply).await
                    }
                    ShellVerb::Delete => client.delete(&table, &key).await,
                    ShellVerb::Insert(fields) | ShellVerb::Update(fields) if fields.is_empty() => {
                        Outcome::failed(Status::BadRequest, "no fields are given")
                    }
                    ShellVerb::Insert(ref fields) => client.insert(&table, &key, &record(fields)).await,
                    ShellVerb::Update(ref fields) => client.update(&table, &key, &record(fields)).await,
                };
                let outcome = sent(client, outcome).await;
                answer(outcome, &reply);
            }
        })
    }
}

impl<S: Store> Session for StoreSession<S> {
    fn store(&self) -> &dyn OpenStore {
        self
    }

    fn run(
        &self,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError> {
        Ok(run(&self.store, workload, options, control, observer)?.into())
    }

    fn beside(&self) -> Option<Box<dyn Session + Send>> {
        // The one event loop of such a store is in use by the first run.
        if self.store.event_loops_max() < 2 {
            return None;
        }
        let (store, name) = (Arc::clone(&self.store), self.name.clone());
        Some(Box::new(StoreSession { store, name, only_runs: false }))
    }
}

/// Makes a session on a store that is open already. Errors name the store by `name`.
pub fn over<S: Store>(store: S, name: &str) -> Box<dyn Session> {
    Box::new(StoreSession::new(store, name.to_owned()))
}

/// Opens a store in virtual time, for tests. It claims to have every record that is counted, and refuses everything
/// else outside runs.
pub fn in_virtual_time<S: Store>(store: S, time: &VirtualTime) -> Box<dyn Session> {
    let name = "virtual time".to_owned();
    Box::new(InVirtualTime(StoreSession { store: Arc::new(store), name, only_runs: true }, time.clone()))
}

struct InVirtualTime<S>(StoreSession<S>, VirtualTime);

impl<S: Store> Session for InVirtualTime<S> {
    fn store(&self) -> &dyn OpenStore {
        &self.0
    }

    fn run(
        &self,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError> {
        Ok(virtual_time::run(&self.1, &self.0.store, workload, options, control, observer)?.into())
    }
}

/// Opens a store by its name, with the wrappers that properties ask for.
pub fn open(name: &str, properties: &Properties) -> Result<Box<dyn Session>, Faults> {
    open_to_send(name, properties).map(|session| -> Box<dyn Session> { session })
}

/// Opens a store by its name in a session that may move to another thread.
pub(crate) fn open_to_send(name: &str, properties: &Properties) -> Result<Box<dyn Session + Send>, Faults> {
    struct Boxed(String, WrapperSettings);
    impl Visitor for Boxed {
        type Output = Box<dyn Session + Send>;
        fn visit<S: Store>(self, store: S) -> Box<dyn Session + Send> {
            let Boxed(name, settings) = self;
            // Without settings there is no wrapper: even one that does nothing costs time per operation.
            if settings.is_nothing() {
                return Box::new(StoreSession::new(store, name));
            }
            Box::new(StoreSession::new(Wrapped::new(store, settings, RunClock::new(clock::now)), name))
        }
    }
    let mut settings = WrapperSettings::default();
    if let Some(info) = serval_stores::find(name) {
        let mut reader = Reader::new(properties);
        settings = WrapperSettings::read(&mut reader, info);
        reader.finish()?;
    }
    serval_stores::open(name, properties, Boxed(name.to_owned(), settings))
}

/// Merges several pairs into one.
pub(crate) fn merged<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> Pair {
    let mut sum = Pair::default();
    pairs.into_iter().for_each(|pair| sum.merge(pair));
    sum
}
