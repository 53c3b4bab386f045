//! A store that is open, of whatever type: what a plan needs of it.

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

/// An open store, apart from runs on it. Each method is compiled once a store.
pub trait OpenStore {
    /// Where clients of it run.
    fn execution(&self) -> Execution;
    /// Verbs that the store can do.
    fn capabilities(&self) -> OperationKinds;
    /// Makes ready for, or checks against, the records to come.
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError>;
    /// What the store says of itself.
    fn describe(&self) -> Vec<(String, String)>;
    /// How many of these keys have a record.
    fn count_records(&self, table: &str, keys: &[String]) -> Result<usize, StoreError>;
    /// One verb, for the shell. Shows what a read or scan brought back.
    fn ask(
        &self,
        questions: &mut dyn FnMut() -> Option<ShellRequest>,
        answer: &mut dyn FnMut(Outcome, &Reply),
    ) -> Result<(), StoreError>;
}

/// What came of a run: of one process, or of several.
#[derive(Debug)]
pub struct Ran {
    /// What the clients did, together.
    pub record: RunRecord,
    /// What the clients ran on, in words.
    pub execution: String,
    /// Why it could not go on, if it could not.
    pub lost: Option<RunLost>,
    /// The processes that took part, where there were several.
    pub group: Option<GroupResult>,
    /// How stale reads were, where consumers looked.
    pub lag: Option<LagFound>,
}

/// What consumers found.
#[derive(Debug)]
pub struct LagFound {
    /// All keys together.
    pub result: LagResult,
    /// What became of each sampled key that a consumer took from the queue.
    pub keys: Vec<LagKey>,
}

/// Why a run of one process, or of several, could not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunLost {
    /// The store is lost, or the workload cannot go on.
    #[error(transparent)]
    Run(#[from] AbortCause),
    /// Processes of its group are lost, in words.
    #[error("{0}")]
    Clients(String),
}

impl RunLost {
    /// The same as an error of this store.
    pub fn into_error(self, store: &str) -> PlanError {
        match self {
            RunLost::Run(lost) => PlanError::Store(StoreError::new(store, lost.to_string())),
            // It is not the store that failed.
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

/// What a plan is carried out on: an open store, or several processes that have one open. The calls between
/// clients and store inside [`run`](Session::run) are direct.
pub trait Session {
    /// The store as it is open here.
    fn store(&self) -> &dyn OpenStore;
    /// Runs a workload.
    fn run(
        &self,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError>;
    /// The same open store, for another run at the same time; `None` where there can be none.
    fn beside(&self) -> Option<Box<dyn Session + Send>> {
        None
    }
    /// Whether runs of it are those of several processes.
    fn is_group(&self) -> bool {
        false
    }
}

/// What the shell asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellRequest {
    /// Verb, table, key, fields.
    pub operation: ShellVerb,
    /// The table.
    pub table: String,
    /// The key.
    pub key: String,
}

/// The verbs of the shell.
#[derive(Debug, Clone, PartialEq)]
pub enum ShellVerb {
    /// Read these fields, or all.
    Read(Vec<String>),
    /// Scan so many records of these fields, or all.
    Scan(u64, Vec<String>),
    /// Insert.
    Insert(Vec<(String, String)>),
    /// Update.
    Update(Vec<(String, String)>),
    /// Delete.
    Delete,
}

/// An open store.
struct StoreSession<S> {
    store: Arc<S>,
    /// The name that it was asked for by.
    name: String,
    /// Whether it is in virtual time, in which nothing but a run can be performed.
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
    /// Whether a key has a record; the store's words when it cannot say.
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
        // What serves one event loop has it in use.
        if self.store.event_loops_max() < 2 {
            return None;
        }
        let (store, name) = (Arc::clone(&self.store), self.name.clone());
        Some(Box::new(StoreSession { store, name, only_runs: false }))
    }
}

/// A store that is open already, under the name that errors call it by.
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

/// Opens a store by name.
pub fn open(name: &str, properties: &Properties) -> Result<Box<dyn Session>, Faults> {
    open_to_send(name, properties).map(|session| -> Box<dyn Session> { session })
}

/// The same, for another thread.
pub(crate) fn open_to_send(name: &str, properties: &Properties) -> Result<Box<dyn Session + Send>, Faults> {
    struct Boxed(String, WrapperSettings);
    impl Visitor for Boxed {
        type Output = Box<dyn Session + Send>;
        fn visit<S: Store>(self, store: S) -> Box<dyn Session + Send> {
            let Boxed(name, settings) = self;
            // Without anything between clients have the store itself: a wrapper that does nothing takes time too.
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

/// Merges pairs of several statuses.
pub(crate) fn merged<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> Pair {
    let mut sum = Pair::default();
    pairs.into_iter().for_each(|pair| sum.merge(pair));
    sum
}
