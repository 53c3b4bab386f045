//! What may stand between clients and any store: a write buffer
//! (`buffer`), and a delay after which others see a write
//! (`visibility`). `docs/write-buffers.md` and `docs/lag.md` say what for.
//!
//! A [`Wrapped`] store is what runs are made on where something stands between; where nothing does
//! they are made on the store itself, and it costs nothing. It knows the store
//! and its clients by pointers, so that it, and the runner on it, are compiled
//! once and not once a store: each verb then costs an allocation.

mod buffer;
pub mod delay;
mod held;
pub mod settings;
mod under;
mod visibility;

pub use settings::Settings;

use buffer::{Buffer, TAKEN};
use held::Shared;
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
use under::{Below, Handle, Verbs, send};
use visibility::{Delayed, View};

/// The time as what is between has it: ns of the clock that runs have.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// A clock that this function reads, ns, never backwards.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    fn now(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// A store with what its properties put before it.
pub struct Wrapped {
    store: Box<dyn Below>,
    settings: Settings,
    clock: Clock,
    /// How many writes each client holds, of all clients since
    /// [`unsent`](Store::unsent) was last asked.
    held: Mutex<Vec<Arc<AtomicU64>>>,
    /// What is held back from others.
    shared: Arc<Shared>,
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wrapped({:?})", self.settings)
    }
}

impl Wrapped {
    /// A store with these settings.
    pub fn new<S: Store>(store: S, settings: Settings, clock: Clock) -> Self {
        Wrapped {
            store: Box::new(store),
            settings,
            clock,
            held: Mutex::default(),
            shared: Arc::new(Shared::new()),
        }
    }

    fn between(&self, client: usize) -> Between {
        let Settings { buffer, view } = &self.settings;
        let buffer = buffer.as_ref().map(|settings| {
            let held = Arc::<AtomicU64>::default();
            self.held.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&held));
            Buffer::new(settings, self.clock.clone(), held)
        });
        let view = view
            .as_ref()
            .map(|settings| View::new(settings, Arc::clone(&self.shared), client, self.clock.clone()));
        Between { buffer, view, own: false }
    }
}

/// What stands between one client and its store.
#[derive(Debug)]
struct Between {
    buffer: Option<Buffer>,
    /// Before the buffer, seen from the store: what is sent is acknowledged then.
    view: Option<View>,
    /// Whether the store's client did the last operation itself, so that it
    /// knows the service time.
    own: bool,
}

/// One client.
pub struct WrappedClient {
    client: Box<dyn Handle>,
    between: Between,
}

impl fmt::Debug for WrappedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappedClient({:?})", self.between)
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
            self.shared.log_to(path)?;
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
        Ok(WrappedClient { client: connected, between: self.between(client) })
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
        self.store.finish().and(self.shared.finish_log())
    }
}

impl Client for WrappedClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.between.read(&mut *self.client, table, key, fields, reply).await
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        self.between.write(&mut *self.client, OperationKind::Update, table, key, Some(fields)).await
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        self.between.write(&mut *self.client, OperationKind::Insert, table, key, Some(record)).await
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.between.scan(&mut *self.client, (table, start_key, count), fields, reply).await
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        self.between.write(&mut *self.client, OperationKind::Delete, table, key, None).await
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        self.between.insert_batch(&mut *self.client, table, records).await
    }

    fn service_ns(&self) -> Option<u64> {
        if self.between.own { self.client.service_ns() } else { None }
    }

    fn lost(&self) -> Option<StoreError> {
        self.client.lost()
    }

    fn buffers(&self) -> bool {
        self.between.buffer.is_some() || self.client.buffers()
    }

    fn send_at(&self) -> Option<u64> {
        let own = self.between.buffer.as_ref().and_then(Buffer::send_at);
        own.into_iter().chain(self.client.send_at()).min()
    }

    async fn send_buffered(&mut self) {
        self.between.flush(&mut *self.client).await;
        self.client.send_buffered().await;
    }

    fn flushed(&mut self) -> Option<Flush> {
        let own = self.between.buffer.as_mut().and_then(Buffer::flushed);
        own.or_else(|| self.client.flushed())
    }

    async fn close(&mut self) -> Outcome {
        self.between.flush(&mut *self.client).await;
        self.client.close().await
    }
}

impl Between {
    /// A write: into the buffer, which is sent when that fills it, or through the
    /// view. Sending the buffer is boxed, for the state of most writes shall have no
    /// room for that.
    async fn write(
        &mut self,
        client: &mut dyn Verbs,
        kind: OperationKind,
        table: &str,
        key: &str,
        record: Option<&Record>,
    ) -> Outcome {
        self.own = self.buffer.is_none() && self.view.is_none();
        match (&mut self.buffer, &mut self.view) {
            (Some(buffer), view) => {
                if !buffer.has_room_in(table) {
                    Box::pin(flush(buffer, view, client)).await;
                }
                if buffer.put(kind, table, key, record) {
                    Box::pin(flush(buffer, view, client)).await;
                }
                TAKEN
            }
            (None, Some(view)) => send(&mut Delayed { client, view }, kind, table, key, record).await,
            (None, None) => send(client, kind, table, key, record).await,
        }
    }

    async fn insert_batch(
        &mut self,
        client: &mut dyn Verbs,
        table: &str,
        records: &[(String, Record)],
    ) -> Outcome {
        self.own = self.buffer.is_none() && self.view.is_none();
        match (&self.buffer, &mut self.view) {
            (None, None) => return client.insert_batch(table, records).await,
            (None, Some(view)) => return Delayed { client, view }.insert_batch(table, records).await,
            (Some(_), _) => {}
        }
        let mut last = TAKEN;
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
        client: &mut dyn Verbs,
        table: &str,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.own = true;
        match &mut self.view {
            None => client.read(table, key, fields, reply).await,
            Some(view) => Delayed { client, view }.read(table, key, fields, reply).await,
        }
    }

    async fn scan(
        &mut self,
        client: &mut dyn Verbs,
        (table, start_key, count): (&str, &str, u64),
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        self.own = true;
        match &mut self.view {
            None => client.scan(table, start_key, count, fields, reply).await,
            Some(view) => Delayed { client, view }.scan(table, start_key, count, fields, reply).await,
        }
    }

    /// Sends what is buffered.
    async fn flush(&mut self, client: &mut dyn Verbs) {
        if let Some(buffer) = &mut self.buffer {
            flush(buffer, &mut self.view, client).await;
        }
    }
}

async fn flush(buffer: &mut Buffer, view: &mut Option<View>, client: &mut dyn Verbs) {
    match view {
        None => buffer.flush(client).await,
        Some(view) => buffer.flush(&mut Delayed { client, view }).await,
    }
}
