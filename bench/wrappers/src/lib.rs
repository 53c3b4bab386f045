//! Layers between clients and any store: a write buffer (`buffer`), and a delay
//! after which other clients see a write (`visibility`). See
//! `docs/write-buffers.md` and `docs/lag.md`.
//!
//! A [`Wrapped`] store holds the store and its clients as trait objects, so that the
//! wrapper and the runner are compiled once instead of once per store. Each verb
//! then costs an allocation. Runs without layers use the store itself, at no cost.

mod buffer;
pub mod delay;
mod erased;
mod hidden_writes;
pub mod settings;
mod visibility;

pub use settings::WrapperSettings;

use buffer::{BUFFERED, Buffer};
use erased::{ErasedClient, ErasedStore, ErasedVerbs, send};
use hidden_writes::HiddenWrites;
use serval_model::{
    Client, Execution, FieldSelection, Flush, OperationKind, OperationKinds, Outcome, Purpose, Record, Reply,
    Schema, Store, StoreError,
};
use std::{
    any::Any,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use visibility::{DelayedClient, DelayedView};

/// The clock of runs, ns.
#[derive(Clone)]
pub struct RunClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl RunClock {
    /// Returns a clock that calls `now`, which must be monotonic, ns.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> RunClock {
        RunClock(Arc::new(now))
    }

    fn now(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for RunClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunClock")
    }
}

/// A store with the layers that its properties ask for.
pub struct Wrapped {
    store: Box<dyn ErasedStore>,
    settings: WrapperSettings,
    clock: RunClock,
    /// Number of writes in each client's buffer, for all clients since the last
    /// call of [`unsent`](Store::unsent).
    held: Mutex<Vec<Arc<AtomicU64>>>,
    /// Writes that are hidden from other clients.
    hidden: Arc<HiddenWrites>,
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wrapped({:?})", self.settings)
    }
}

impl Wrapped {
    /// Wraps a store.
    pub fn new<S: Store>(store: S, settings: WrapperSettings, clock: RunClock) -> Self {
        Wrapped {
            store: Box::new(store),
            settings,
            clock,
            held: Mutex::default(),
            hidden: Arc::new(HiddenWrites::new()),
        }
    }

    fn layers(&self, client: usize) -> Layers {
        let WrapperSettings { buffer, view } = &self.settings;
        let buffer = buffer.as_ref().map(|settings| {
            let held = Arc::<AtomicU64>::default();
            self.held.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&held));
            Buffer::new(settings, self.clock.clone(), held)
        });
        let view = view
            .as_ref()
            .map(|settings| DelayedView::new(settings, Arc::clone(&self.hidden), client, self.clock.clone()));
        Layers { buffer, view, passed_through: false }
    }
}

/// The layers between one client and its store.
#[derive(Debug)]
struct Layers {
    buffer: Option<Buffer>,
    /// Below the buffer: a write counts as acknowledged when the buffer is sent.
    view: Option<DelayedView>,
    /// Whether the last operation went to the store's client directly, so that
    /// the client knows its service time.
    passed_through: bool,
}

/// One client.
pub struct WrappedClient {
    client: Box<dyn ErasedClient>,
    layers: Layers,
}

impl fmt::Debug for WrappedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappedClient({:?})", self.layers)
    }
}

impl Store for Wrapped {
    type Local = Box<dyn Any>;
    type Client = WrappedClient;

    fn execution(&self) -> Execution {
        self.store.execution()
    }

    fn capabilities(&self) -> OperationKinds {
        self.store.capabilities()
    }

    fn times_itself(&self) -> bool {
        self.store.times_itself()
    }

    fn event_loops_max(&self) -> usize {
        self.store.event_loops_max()
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        if let Some(path) = self.settings.view.as_ref().and_then(|view| view.log.as_ref()) {
            self.hidden.log_to(path)?;
        }
        self.store.prepare(schema, purpose)
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut facts = self.store.describe();
        facts.extend(self.settings.describe());
        facts
    }

    fn local(&self) -> Result<Box<dyn Any>, StoreError> {
        self.store.local()
    }

    async fn connect(&self, local: &Box<dyn Any>, client: usize) -> Result<WrappedClient, StoreError> {
        let connected = self.store.connect(&**local, client).await?;
        Ok(WrappedClient { client: connected, layers: self.layers(client) })
    }

    fn explain(&self, lost: StoreError) -> StoreError {
        self.store.explain(lost)
    }

    fn unsent(&self) -> u64 {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent: u64 = held.drain(..).map(|held| held.load(Relaxed)).sum();
        unsent + self.store.unsent()
    }

    fn finish(&self) -> Result<(), StoreError> {
        self.store.finish().and(self.hidden.finish_log())
    }
}

impl Client for WrappedClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.layers.read(&mut *self.client, table, key, fields, reply).await
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        self.layers.write(&mut *self.client, OperationKind::Update, table, key, Some(fields)).await
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.layers.write(&mut *self.client, OperationKind::Insert, table, key, Some(record)).await
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.layers.scan(&mut *self.client, (table, start_key, count), fields, reply).await
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        self.layers.write(&mut *self.client, OperationKind::Delete, table, key, None).await
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        self.layers.insert_batch(&mut *self.client, table, records).await
    }

    fn service_ns(&self) -> Option<u64> {
        if self.layers.passed_through { self.client.service_ns() } else { None }
    }

    fn lost(&self) -> Option<StoreError> {
        self.client.lost()
    }

    fn buffers(&self) -> bool {
        self.layers.buffer.is_some() || self.client.buffers()
    }

    fn send_at(&self) -> Option<u64> {
        let own = self.layers.buffer.as_ref().and_then(Buffer::send_at);
        own.into_iter().chain(self.client.send_at()).min()
    }

    async fn send_buffered(&mut self) {
        self.layers.flush(&mut *self.client).await;
        self.client.send_buffered().await;
    }

    fn flushed(&mut self) -> Option<Flush> {
        let own = self.layers.buffer.as_mut().and_then(Buffer::flushed);
        own.or_else(|| self.client.flushed())
    }

    async fn close(&mut self) -> Outcome {
        self.layers.flush(&mut *self.client).await;
        self.client.close().await
    }
}

impl Layers {
    /// Writes into the buffer, which is sent when it is full, or through the
    /// view. The future that sends the buffer is boxed, to keep the future of the
    /// other writes small.
    async fn write(
        &mut self,
        client: &mut dyn ErasedVerbs,
        kind: OperationKind,
        table: &str,
        key: &str,
        record: Option<&Record>,
    ) -> Outcome {
        self.passed_through = self.buffer.is_none() && self.view.is_none();
        match (&mut self.buffer, &mut self.view) {
            (Some(buffer), view) => {
                if !buffer.has_room_in(table) {
                    Box::pin(flush(buffer, view, client)).await;
                }
                if buffer.put(kind, table, key, record) {
                    Box::pin(flush(buffer, view, client)).await;
                }
                BUFFERED
            }
            (None, Some(view)) => send(&mut DelayedClient { client, view }, kind, table, key, record).await,
            (None, None) => send(client, kind, table, key, record).await,
        }
    }

    async fn insert_batch(
        &mut self,
        client: &mut dyn ErasedVerbs,
        table: &str,
        records: &[(String, Record)],
    ) -> Outcome {
        self.passed_through = self.buffer.is_none() && self.view.is_none();
        match (&self.buffer, &mut self.view) {
            (None, None) => return client.insert_batch(table, records).await,
            (None, Some(view)) => return DelayedClient { client, view }.insert_batch(table, records).await,
            (Some(_), _) => {}
        }
        let mut last = BUFFERED;
        for (key, record) in records {
            last = self.write(client, OperationKind::Insert, table, key, Some(record)).await;
            if !last.is_ok() {
                break;
            }
        }
        last
    }

    async fn read(
        &mut self,
        client: &mut dyn ErasedVerbs,
        table: &str,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.passed_through = true;
        match &mut self.view {
            None => client.read(table, key, fields, reply).await,
            Some(view) => DelayedClient { client, view }.read(table, key, fields, reply).await,
        }
    }

    async fn scan(
        &mut self,
        client: &mut dyn ErasedVerbs,
        (table, start_key, count): (&str, &str, u64),
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.passed_through = true;
        match &mut self.view {
            None => client.scan(table, start_key, count, fields, reply).await,
            Some(view) => DelayedClient { client, view }.scan(table, start_key, count, fields, reply).await,
        }
    }

    /// Sends the buffered writes.
    async fn flush(&mut self, client: &mut dyn ErasedVerbs) {
        if let Some(buffer) = &mut self.buffer {
            flush(buffer, &mut self.view, client).await;
        }
    }
}

async fn flush(buffer: &mut Buffer, view: &mut Option<DelayedView>, client: &mut dyn ErasedVerbs) {
    match view {
        None => buffer.flush(client).await,
        Some(view) => buffer.flush(&mut DelayedClient { client, view }).await,
    }
}
