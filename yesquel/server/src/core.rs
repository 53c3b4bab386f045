//! The engine, its log and its time, for callers on any thread.

use crate::{
    DataFolder, Deliver, FolderError, Time,
    keeper::Keeper,
    options::{CoreError, Options},
    recovery::{Recovered, recover},
    socket_counters::SocketCounters,
    state::{Inner, Shared},
};
use std::{
    fmt,
    sync::{Arc, RwLockWriteGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_engine::{Ask, Asker, Engine, Now, Settings};
use yesquel_fork as fork;
use yesquel_model::{Key, NodeId, Timestamp};
use yesquel_wire::{Malformed, News, Request, status::Status};

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
        let shared = Shared::new(Engine::new(settings), Box::new(time), Box::new(deliver), None);
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
            Shared::new(engine, Box::new(time), Box::new(deliver), Some((synced, durability, on_disk)));
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
