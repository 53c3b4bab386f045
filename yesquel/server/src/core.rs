//! The engine, its log and its time, for callers on any thread.

use crate::{
    DataFolder, FolderError, SocketCounters, Time,
    bell::Bell,
    keeper::Keeper,
    options::{CoreError, Durability, Options},
    recovery::{Recovered, recover},
};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, OnceLock, RwLock, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_engine::{Ask, Asker, Effects, Engine, Now, Record, Settings};
use yesquel_fork as fork;
use yesquel_model::{Key, NodeId, Refusal, Timestamp};
use yesquel_wire::{
    Malformed, News, Reply, Request,
    status::{CheckpointStatus, ConnectionStatus, LogStatus, Status},
};

/// Whoever takes replies.
pub trait Deliver: Send + Sync + 'static {
    /// A reply may go out. Called under the core's lock: it must not call the
    /// core.
    fn deliver(&self, asker: Asker, reply: &[u8]);

    /// A reply of so many bytes waits for the disk. Short ones wait untold.
    fn hold(&self, _: Asker, _: usize) {}

    /// It does not any more, and is delivered next.
    fn let_go(&self, _: Asker, _: usize) {}

    /// Those were all for now, from a thread that handles no requests. Called
    /// without the lock.
    fn delivered(&self) {}
}

/// A reply that waits for the disk.
struct Held {
    needs_lsn: u64,
    asker: Asker,
    reply: Box<[u8]>,
}

/// Bytes of a reply that waits for the disk above which whoever takes it is
/// told: most say no more than that something was committed.
const HELD_BYTES_TOLD: usize = 1 << 10;

/// What [`Core::wait_for_work`] brings.
#[derive(Debug, Default)]
pub struct Work {
    /// Nodes that have grown too large.
    pub full: Vec<NodeId>,
    /// Nodes that are asked for too often, and where to split them.
    pub hot: Vec<(NodeId, Key)>,
    /// Leaves in which nothing is left.
    pub empty: Vec<NodeId>,
    /// Other servers to ask for their votes.
    pub asks: Vec<Ask>,
}

/// What the log's thread takes.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) log: Vec<u8>,
    /// Where each record ends.
    pub(crate) ends: Vec<usize>,
}

impl Gathered {
    /// From when on somebody may read the first of it.
    fn first(&self) -> Option<Timestamp> {
        Record::first_seen(&self.log, &self.ends)
    }
}

/// What is on disk, for those who ask how the server does.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OnDisk {
    /// Bytes of the log's files.
    pub(crate) log_bytes: u64,
    pub(crate) checkpoint: Option<LastCheckpoint>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LastCheckpoint {
    pub(crate) lsn: u64,
    pub(crate) bytes: u64,
    /// When it was finished, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    effects: Effects,
    pub(crate) time: Box<dyn Time>,
    /// What it was when it was asked last.
    pub(crate) now: Now,
    pub(crate) gathered: Gathered,
    /// By the record that they need, almost.
    held: VecDeque<Held>,
    pub(crate) synced: u64,
    on_disk: OnDisk,
    asks: Vec<Ask>,
    /// Whoever waits for work is to look up.
    is_woken: bool,
    ticked_at_ms: u64,
    pub(crate) ending: bool,
    /// Why nothing more is durable.
    failed: Option<String>,
}

pub(crate) struct Shared {
    /// Reads that change nothing share it.
    pub(crate) inner: RwLock<Inner>,
    /// There is something for the log's thread.
    pub(crate) written: Bell,
    /// There will be nothing more. Apart from `written`, which would wake a
    /// thread that lets records gather at each of them.
    pub(crate) ended: Bell,
    /// There is something for whoever does what engines cannot.
    work: Bell,
    deliver: Box<dyn Deliver>,
    /// None: there is no disk.
    pub(crate) durability: Option<Durability>,
    sockets: OnceLock<Arc<SocketCounters>>,
}

/// Milliseconds between an engine's ticks.
const TICK_MS: u64 = 50;

/// The heart of a server. Dropping it ends its log in order.
pub struct Core {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has it, see [`fork`].
    made_in: u32,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    /// In memory only: what it knows ends with it.
    pub fn in_memory(settings: Settings, time: impl Time + 'static, deliver: impl Deliver) -> Core {
        let shared = Core::shared(Engine::new(settings), Box::new(time), Box::new(deliver), None);
        Core { shared: Arc::new(shared), thread: None, made_in: fork::generation() }
    }

    /// On a data folder, whose checkpoint and log are read first.
    pub fn open(
        folder: DataFolder,
        settings: Settings,
        options: Options,
        mut time: impl Time + 'static,
        deliver: impl Deliver,
    ) -> Result<Core, CoreError> {
        let Recovered { engine, writer, disk, grown, on_disk } = recover(&folder, settings, &options)?;
        let stood = on_disk.checkpoint.as_ref().map_or(0, |last| last.bytes);
        let wait_ms = engine.wait_ms(time.now());
        if wait_ms > 0 {
            tracing::info!(wait_ms, "waiting for the clock: the server did not end in order");
            // Nobody can be served before, so there is nothing to be woken for.
            thread::sleep(Duration::from_millis(wait_ms));
        }
        let synced = writer.synced_lsn();
        let durability = options.durability;
        let shared =
            Core::shared(engine, Box::new(time), Box::new(deliver), Some((synced, durability, on_disk)));
        let shared = Arc::new(shared);
        let shared_by = Arc::clone(&shared);
        let keeper = Keeper { shared: shared_by, writer, disk, options, grown, stood, checkpoint: None };
        let thread = thread::Builder::new().name("yesquel-log".to_owned()).spawn(move || {
            keeper.run();
            drop(folder);
        });
        let thread =
            thread.map_err(|error| FolderError::Io { path: "a thread for the log".into(), error })?;
        Ok(Core { shared, thread: Some(thread), made_in: fork::generation() })
    }

    fn shared(
        engine: Engine,
        time: Box<dyn Time>,
        deliver: Box<dyn Deliver>,
        log: Option<(u64, Durability, OnDisk)>,
    ) -> Shared {
        let inner = Inner {
            engine,
            effects: Effects::default(),
            time,
            now: Now::default(),
            gathered: Gathered::default(),
            held: VecDeque::new(),
            synced: log.map_or(0, |(synced, ..)| synced),
            on_disk: log.map(|(.., on_disk)| on_disk).unwrap_or_default(),
            asks: Vec::new(),
            is_woken: false,
            ticked_at_ms: 0,
            ending: false,
            failed: None,
        };
        Shared {
            inner: RwLock::new(inner),
            written: Bell::default(),
            ended: Bell::default(),
            work: Bell::default(),
            deliver,
            durability: log.map(|(_, durability, _)| durability),
            sockets: OnceLock::new(),
        }
    }

    /// The core to oneself, for several requests at once.
    pub fn session(&self) -> Session<'_> {
        let mut inner = self.shared.lock();
        let now = inner.look_at_clock();
        if now.uptime_ms >= inner.ticked_at_ms + TICK_MS {
            let inner = &mut *inner;
            inner.tick(now);
            self.shared.settle(inner, None);
        }
        Session { shared: &self.shared, inner, now }
    }

    /// Takes a request. Its reply is delivered now, or later.
    pub fn handle(&self, asker: Asker, request: &[u8]) -> Result<(), Malformed> {
        let handled = self.session().handle(asker, request);
        self.shared.released();
        handled
    }

    /// Takes a request. Whether its reply could be given at once, and then
    /// stands in `reply`, which is empty before; else it is delivered later, for
    /// which `later` gets ready.
    pub fn call(
        &self,
        asker: Asker,
        request: &[u8],
        reply: &mut Vec<u8>,
        later: impl FnOnce(),
    ) -> Result<bool, Malformed> {
        if self.shared.peek(request, reply) {
            return Ok(true);
        }
        let mut session = self.session();
        let inner = &mut *session.inner;
        if Request::inspects(request) {
            *reply = self.shared.inspect(inner, session.now, request)?;
            return Ok(true);
        }
        inner.engine.handle(session.now, asker, request, &mut inner.effects)?;
        let settled = self.shared.settle(inner, Some((asker, reply)));
        if !settled.own {
            later();
        }
        drop(session);
        if settled.others {
            self.shared.released();
        }
        Ok(settled.own)
    }

    /// Time goes on, also when nobody asks for anything: to be called every
    /// 50 ms or so.
    pub fn tick(&self) {
        let mut locked = self.shared.lock();
        let inner = &mut *locked;
        let now = inner.look_at_clock();
        inner.tick(now);
        let settled = self.shared.settle(inner, None);
        drop(locked);
        if settled.others {
            self.shared.released();
        }
    }

    /// Waits until there is something to be done that an engine cannot do
    /// itself, but no longer than that.
    pub fn wait_for_work(&self, timeout: Duration) -> Work {
        let end = Instant::now() + timeout;
        let mut inner = self.shared.lock();
        while !inner.engine.has_work() && inner.asks.is_empty() && !inner.is_woken {
            drop(inner);
            let rang = self.shared.work.wait_until(end);
            inner = self.shared.lock();
            if !rang {
                break;
            }
        }
        inner.is_woken = false;
        let asks = std::mem::take(&mut inner.asks);
        let engine = &mut inner.engine;
        Work { full: engine.take_full(), hot: engine.take_hot(), empty: engine.take_empty(), asks }
    }

    /// Wakes whoever waits for work.
    pub fn wake_work(&self) {
        self.shared.lock().is_woken = true;
        self.shared.work.ring();
    }

    /// Does something with the engine itself, other than changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        act(&mut self.shared.lock().engine)
    }

    /// Whose counts of connections are told with the rest.
    pub(crate) fn count_sockets(&self, counters: Arc<SocketCounters>) {
        // There is one thread of sockets.
        let _ = self.shared.sockets.set(counters);
    }

    /// What the server tells of itself.
    pub fn status(&self) -> Status {
        let mut session = self.session();
        let now = session.now;
        self.shared.status(&mut session.inner, now)
    }

    /// Records of the log that are on disk, and why there will be no more of
    /// them, if so.
    pub fn synced(&self) -> (u64, Option<String>) {
        let inner = self.shared.lock();
        (inner.synced, inner.failed.clone())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.made_in != fork::generation() {
            // It is another process's, and so is its thread.
            std::mem::forget(self.thread.take());
            return;
        }
        let mut locked = self.shared.lock();
        let inner = &mut *locked;
        inner.engine.end(&mut inner.effects);
        self.shared.settle(inner, None);
        inner.ending = true;
        drop(locked);
        self.shared.written.ring();
        self.shared.ended.ring();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that anybody could hear now.
            let _ = thread.join();
        }
    }
}

/// A core that is one's own until this is dropped.
#[derive(Debug)]
pub struct Session<'a> {
    shared: &'a Shared,
    inner: RwLockWriteGuard<'a, Inner>,
    now: Now,
}

impl Session<'_> {
    /// Takes a request. Its reply is delivered now, or later.
    pub fn handle(&mut self, asker: Asker, request: &[u8]) -> Result<(), Malformed> {
        let inner = &mut *self.inner;
        if Request::inspects(request) {
            let reply = self.shared.inspect(inner, self.now, request)?;
            self.shared.deliver.deliver(asker, &reply);
            return Ok(());
        }
        let handled = inner.engine.handle(self.now, asker, request, &mut inner.effects);
        self.shared.settle(inner, None);
        handled
    }

    /// A client says of itself what its server must know.
    pub fn hear(&mut self, connection: u64, client: u64, news: News) {
        self.inner.engine.hold(connection, news.oldest, news.more);
        self.inner.engine.known(self.now, client, news.known);
    }

    /// A connection has ended.
    pub fn disconnected(&mut self, connection: u64) {
        self.inner.engine.disconnected(connection);
    }

    /// What the server's clock says.
    pub fn clock(&mut self) -> Timestamp {
        self.inner.engine.clock(self.now)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Inner {
    fn look_at_clock(&mut self) -> Now {
        self.now = self.time.now();
        self.now
    }

    fn tick(&mut self, now: Now) {
        self.ticked_at_ms = now.uptime_ms;
        self.engine.tick(now, &mut self.effects);
    }
}

/// What became of the replies of a step.
#[derive(Debug, Clone, Copy, Default)]
struct Settled {
    /// The caller's own was put where he wanted it.
    own: bool,
    /// Others were delivered.
    others: bool,
}

/// What is said for a reply that nobody may see any more.
fn refused() -> Vec<u8> {
    let mut bytes = Vec::new();
    Reply::Refused { operation: None, refusal: Refusal::DiskLost }.write(&mut bytes);
    bytes
}

impl Shared {
    /// Sends what a step has brought on its way, but for the reply to `own`,
    /// which is put there.
    fn settle(&self, inner: &mut Inner, mut own: Option<(Asker, &mut Vec<u8>)>) -> Settled {
        let Inner { engine, effects, gathered, held, synced, asks, failed, .. } = inner;
        let mut settled = Settled::default();
        for reply in &effects.replies {
            let bytes = &effects.bytes[reply.bytes.clone()];
            let waits = self.durability == Some(Durability::Sync) && reply.needs_lsn > *synced;
            if waits && failed.is_none() {
                if bytes.len() > HELD_BYTES_TOLD {
                    self.deliver.hold(reply.asker, bytes.len());
                }
                held.push_back(Held { needs_lsn: reply.needs_lsn, asker: reply.asker, reply: bytes.into() });
                continue;
            }
            // After a failure of the disk nobody hears of what is not on it.
            let refused = if waits { Some(refused()) } else { None };
            let bytes = refused.as_deref().unwrap_or(bytes);
            match &mut own {
                Some((asker, place)) if *asker == reply.asker => {
                    **place = bytes.to_vec();
                    settled.own = true;
                }
                _ => {
                    self.deliver.deliver(reply.asker, bytes);
                    settled.others = true;
                }
            }
        }
        asks.append(&mut effects.asks);
        if self.durability.is_some() && !effects.record_ends.is_empty() && failed.is_none() {
            let is_first = gathered.ends.is_empty();
            let before = gathered.log.len();
            gathered.log.extend_from_slice(&effects.log);
            gathered.ends.extend(effects.record_ends.iter().map(|end| before + end));
            if is_first {
                self.written.ring();
            }
        }
        if engine.has_work() || !asks.is_empty() {
            self.work.ring();
        }
        effects.clear();
        settled
    }

    /// The reply to one who asks what the server tells of itself.
    fn inspect(&self, inner: &mut Inner, now: Now, request: &[u8]) -> Result<Vec<u8>, Malformed> {
        let report = match Request::decode(request)? {
            Request::Inspect { tree: Some(tree) } => serde_json::to_vec(&inner.engine.nodes_of(tree, None)),
            Request::InspectAfter { node } => {
                serde_json::to_vec(&inner.engine.nodes_of(node.tree, Some(node)))
            }
            _ => serde_json::to_vec(&self.status(inner, now)),
        };
        let mut reply = Vec::new();
        // Plain numbers and texts: there is nothing in it that JSON has not.
        Reply::Report(&report.unwrap_or_default()).write(&mut reply);
        Ok(reply)
    }

    fn status(&self, inner: &mut Inner, now: Now) -> Status {
        let count = |of: fn(&SocketCounters) -> &AtomicU64| {
            self.sockets.get().map_or(0, |counters| of(counters).load(Relaxed))
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            durability: self
                .durability
                .map_or_else(|| "memory".to_owned(), |durability| durability.to_string()),
            log: LogStatus {
                lsn: inner.engine.lsn(),
                synced_lsn: if self.durability.is_some() { inner.synced } else { 0 },
                bytes: inner.on_disk.log_bytes,
                checkpoint: inner.on_disk.checkpoint.map(|last| CheckpointStatus {
                    lsn: last.lsn,
                    bytes: last.bytes,
                    age_ms: now.wall_ms.saturating_sub(last.at_ms),
                }),
                failed: inner.failed.clone(),
            },
            connections: ConnectionStatus {
                open: count(|counters| &counters.open),
                accepted: count(|counters| &counters.accepted),
                refused: count(|counters| &counters.refused),
                paused: count(|counters| &counters.paused),
                queued_most: count(|counters| &counters.queued_most),
                unfinished: count(|counters| &counters.unfinished),
            },
            ..inner.engine.status(now)
        }
    }

    /// A checkpoint is on disk.
    pub(crate) fn tell_checkpoint(&self, lsn: u64, bytes: u64) {
        let mut inner = self.lock();
        let at_ms = inner.look_at_clock().wall_ms;
        inner.on_disk.checkpoint = Some(LastCheckpoint { lsn, bytes, at_ms });
    }

    /// Lets out the replies whose records are on disk now, in a log of so many
    /// bytes.
    pub(crate) fn release(&self, synced: u64, log_bytes: u64) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        (inner.synced, inner.on_disk.log_bytes) = (synced, log_bytes);
        // Those that need more stay, in their order.
        for _ in 0..inner.held.len() {
            let Some(held) = inner.held.pop_front() else { break };
            if held.needs_lsn <= synced {
                self.let_go(&held);
                self.deliver.deliver(held.asker, &held.reply);
            } else {
                inner.held.push_back(held);
            }
        }
    }

    fn let_go(&self, held: &Held) {
        if held.reply.len() > HELD_BYTES_TOLD {
            self.deliver.let_go(held.asker, held.reply.len());
        }
    }

    /// Those were all replies for now.
    pub(crate) fn released(&self) {
        self.deliver.delivered();
    }

    /// Nothing more will be durable.
    pub(crate) fn fail(&self, error: String, reached: u64, lost: &Gathered) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.failed = Some(error);
        let lost = lost.first().into_iter().chain(inner.gathered.first()).min();
        inner.engine.freeze(reached, lost, &mut inner.effects);
        let refused = refused();
        for held in std::mem::take(&mut inner.held) {
            self.let_go(&held);
            self.deliver.deliver(held.asker, &refused);
        }
        self.settle(inner, None);
    }
}
