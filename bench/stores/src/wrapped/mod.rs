//! What may stand between clients and any store: a write buffer
//! (`buffer`), and a delay after which others see a write
//! (`visibility`). `docs/write-buffers.md` and `docs/lag.md` say what for.
//!
//! A [`Wrapped`] store is what runs are made on, whether anything stands between
//! or not, so that the runner is compiled once a store. Where nothing does, a
//! verb costs one branch more, which is always taken the same way. What is
//! between knows the store's client as `Under`, and is compiled once.

mod buffer;
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
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use under::{Under, send};
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
#[derive(Debug)]
pub struct Wrapped<S> {
    store: S,
    settings: Settings,
    clock: Clock,
    /// How many writes each client holds, of all clients since
    /// [`unsent`](Store::unsent) was last asked.
    held: Mutex<Vec<Arc<AtomicU64>>>,
    /// What is held back from others.
    shared: Arc<Shared>,
}

impl<S> Wrapped<S> {
    /// A store with these settings.
    pub fn new(store: S, settings: Settings, clock: Clock) -> Self {
        Wrapped { store, settings, clock, held: Mutex::default(), shared: Arc::new(Shared::new()) }
    }

    fn between(&self, client: usize) -> Option<Box<Between>> {
        let Settings { buffer, view } = &self.settings;
        let buffer = buffer.as_ref().map(|settings| {
            let held = Arc::<AtomicU64>::default();
            self.held.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&held));
            Buffer::new(settings, self.clock.clone(), held)
        });
        let view = view
            .as_ref()
            .map(|settings| View::new(settings, Arc::clone(&self.shared), client, self.clock.clone()));
        (buffer.is_some() || view.is_some()).then(|| Box::new(Between { buffer, view, own: false }))
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
#[derive(Debug)]
pub struct WrappedClient<C> {
    client: C,
    between: Option<Box<Between>>,
}

impl<S: Store> Store for Wrapped<S> {
    type Local = S::Local;
    type Client = WrappedClient<S::Client>;

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

    fn local(&self) -> Result<S::Local, StoreError> {
        self.store.local()
    }

    async fn connect(&self, local: &S::Local, client: usize) -> Result<Self::Client, StoreError> {
        let connected = self.store.connect(local, client).await?;
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

impl<C: Client> Client for WrappedClient<C> {
    #[inline]
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        match &mut self.between {
            None => self.client.read(table, key, fields, reply).await,
            Some(between) => Box::pin(between.read(&mut self.client, table, key, fields, reply)).await,
        }
    }

    #[inline]
    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        match &mut self.between {
            None => self.client.update(table, key, fields).await,
            Some(between) => {
                Box::pin(between.write(&mut self.client, OperationKind::Update, table, key, Some(fields)))
                    .await
            }
        }
    }

    #[inline]
    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        match &mut self.between {
            None => self.client.insert(table, key, record).await,
            Some(between) => {
                Box::pin(between.write(&mut self.client, OperationKind::Insert, table, key, Some(record)))
                    .await
            }
        }
    }

    #[inline]
    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        match &mut self.between {
            None => self.client.scan(table, start_key, count, fields, reply).await,
            Some(between) => {
                Box::pin(between.scan(&mut self.client, (table, start_key, count), fields, reply)).await
            }
        }
    }

    #[inline]
    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        match &mut self.between {
            None => self.client.delete(table, key).await,
            Some(between) => {
                Box::pin(between.write(&mut self.client, OperationKind::Delete, table, key, None)).await
            }
        }
    }

    #[inline]
    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        match &mut self.between {
            None => self.client.insert_batch(table, records).await,
            Some(between) => Box::pin(between.insert_batch(&mut self.client, table, records)).await,
        }
    }

    #[inline]
    fn service_ns(&self) -> Option<u64> {
        match &self.between {
            Some(between) if !between.own => None,
            _ => self.client.service_ns(),
        }
    }

    #[inline]
    fn lost(&self) -> Option<StoreError> {
        self.client.lost()
    }

    #[inline]
    fn buffers(&self) -> bool {
        self.between.as_ref().is_some_and(|between| between.buffer.is_some()) || self.client.buffers()
    }

    fn send_at(&self) -> Option<u64> {
        let own = self.between.as_ref().and_then(|between| between.buffer.as_ref()?.send_at());
        own.into_iter().chain(self.client.send_at()).min()
    }

    async fn send_buffered(&mut self) {
        if let Some(between) = &mut self.between {
            between.flush(&mut self.client).await;
        }
        self.client.send_buffered().await;
    }

    fn flushed(&mut self) -> Option<Flush> {
        let own = self.between.as_mut().and_then(|between| between.buffer.as_mut()?.flushed());
        own.or_else(|| self.client.flushed())
    }

    async fn close(&mut self) -> Outcome {
        if let Some(between) = &mut self.between {
            between.flush(&mut self.client).await;
        }
        self.client.close().await
    }
}

impl Between {
    /// A write: into the buffer, which is sent when that fills it, or through the
    /// view. What is sent is boxed, for the state of a client without either shall
    /// have no room for that future.
    async fn write(
        &mut self,
        client: &mut dyn Under,
        kind: OperationKind,
        table: &str,
        key: &str,
        record: Option<&Record>,
    ) -> Outcome {
        self.own = false;
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
        client: &mut dyn Under,
        table: &str,
        records: &[(String, Record)],
    ) -> Outcome {
        self.own = false;
        if let (None, Some(view)) = (&self.buffer, &mut self.view) {
            return Delayed { client, view }.insert_batch(table, records).await;
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
        client: &mut dyn Under,
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
        client: &mut dyn Under,
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
    fn flush<'a>(&'a mut self, client: &'a mut dyn Under) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async move {
            if let Some(buffer) = &mut self.buffer {
                flush(buffer, &mut self.view, client).await;
            }
        })
    }
}

async fn flush(buffer: &mut Buffer, view: &mut Option<View>, client: &mut dyn Under) {
    match view {
        None => buffer.flush(client).await,
        Some(view) => buffer.flush(&mut Delayed { client, view }).await,
    }
}
