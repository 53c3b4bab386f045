//! Engine, log and clock of a server, for callers on any thread.

use crate::{
    DataFolder, DataFolderError, ReplySink, Time,
    log_writer::LogWriter,
    options::{CoreError, LogOptions},
    recovery::{Recovered, recover},
    socket_counters::SocketCounters,
    state::{CoreState, SharedState},
};
use std::{
    fmt,
    sync::{Arc, RwLockWriteGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use yesquel_engine::{Caller, EndQuery, Engine, EngineSettings, Now, VoteQuery};
use yesquel_fork as fork;
use yesquel_model::{Key, NodeId, Timestamp};
use yesquel_wire::{ClientHeartbeat, Malformed, Request, status::ServerStatus};

/// Work that [`Core::wait_for_work`] returns.
#[derive(Debug, Default)]
pub struct CoreWork {
    /// Nodes that are too large.
    pub full: Vec<NodeId>,
    /// Nodes under high load, and where to split them.
    pub hot: Vec<(NodeId, Key)>,
    /// Empty leaves.
    pub empty: Vec<NodeId>,
    /// Votes to request from other servers.
    pub vote_queries: Vec<VoteQuery>,
    /// Ends to request from other servers.
    pub end_queries: Vec<EndQuery>,
}

/// Milliseconds between two ticks of the engine.
const TICK_MS: u64 = 50;

/// Core of a server. Dropping it closes the log cleanly.
pub struct Core {
    pub(crate) shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
    /// Fork generation of the process that owns the core, see [`fork`].
    generation: u32,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    /// Creates a core in memory.
    pub fn in_memory(
        settings: EngineSettings,
        time: impl Time + 'static,
        reply_sink: impl ReplySink,
    ) -> Core {
        let shared = SharedState::new(Engine::new(settings), Box::new(time), Box::new(reply_sink), None);
        Core { shared: Arc::new(shared), thread: None, generation: fork::generation() }
    }

    /// Opens a core on a data folder and recovers its checkpoint and log.
    pub fn open(
        folder: DataFolder,
        settings: EngineSettings,
        options: LogOptions,
        mut time: impl Time + 'static,
        reply_sink: impl ReplySink,
    ) -> Result<Core, CoreError> {
        let Recovered { engine, writer, disk, bytes_since_checkpoint, disk_usage } =
            recover(&folder, settings, &options)?;
        let last_checkpoint_bytes = disk_usage.checkpoint.as_ref().map_or(0, |last| last.bytes);
        let wait_ms = engine.wait_ms(time.now());
        if wait_ms > 0 {
            tracing::info!(wait_ms, "waiting for the clock: the server did not end in order");
            // No request can arrive yet, so that nothing needs to interrupt this.
            thread::sleep(Duration::from_millis(wait_ms));
        }
        let synced = writer.synced_lsn();
        let durability = options.durability;
        let shared = SharedState::new(
            engine,
            Box::new(time),
            Box::new(reply_sink),
            Some((synced, durability, disk_usage)),
        );
        let shared = Arc::new(shared);
        let shared_by = Arc::clone(&shared);
        let log_writer = LogWriter {
            shared: shared_by,
            writer,
            disk,
            options,
            sync_by: None,
            bytes_since_checkpoint,
            last_checkpoint_bytes,
            checkpoint: None,
        };
        let thread = thread::Builder::new().name("yesquel-log".to_owned()).spawn(move || {
            log_writer.run();
            drop(folder);
        });
        let thread =
            thread.map_err(|error| DataFolderError::Io { path: "a thread for the log".into(), error })?;
        Ok(Core { shared, thread: Some(thread), generation: fork::generation() })
    }

    /// Locks the core for several requests.
    pub fn session(&self) -> CoreSession<'_> {
        let mut state = self.shared.lock();
        let now = state.read_clock();
        if now.uptime_ms >= state.ticked_at_ms + TICK_MS {
            let state = &mut *state;
            state.tick(now);
            self.shared.settle(state, None);
        }
        CoreSession { shared: &self.shared, state, now }
    }

    /// Handles a request. The reply is delivered now or later.
    pub fn handle(&self, caller: Caller, request: &[u8]) -> Result<(), Malformed> {
        let handled = self.session().handle(caller, request);
        self.shared.released();
        handled
    }

    /// Handles a request. Returns `true` after writing the reply to `reply`, which must be empty
    /// before. Otherwise `later` is called first and the reply is delivered later.
    pub fn call(
        &self,
        caller: Caller,
        request: &[u8],
        reply: &mut Vec<u8>,
        later: impl FnOnce(),
    ) -> Result<bool, Malformed> {
        if self.shared.peek(request, reply) {
            return Ok(true);
        }
        let mut session = self.session();
        let state = &mut *session.state;
        if Request::inspects(request) {
            *reply = self.shared.inspect(state, session.now, request)?;
            return Ok(true);
        }
        state.engine.handle(session.now, caller, request, &mut state.effects)?;
        let settled = self.shared.settle(state, Some((caller, reply)));
        if !settled.own {
            later();
        }
        drop(session);
        if settled.others {
            self.shared.released();
        }
        Ok(settled.own)
    }

    /// Advances time without a request. Call it about every 50 ms.
    pub fn tick(&self) {
        let mut locked = self.shared.lock();
        let state = &mut *locked;
        let now = state.read_clock();
        state.tick(now);
        let settled = self.shared.settle(state, None);
        drop(locked);
        if settled.others {
            self.shared.released();
        }
    }

    /// Waits, for `timeout` at most, until there is work that the engine cannot do itself.
    pub fn wait_for_work(&self, timeout: Duration) -> CoreWork {
        let end = Instant::now() + timeout;
        let mut state = self.shared.lock();
        let has_queries = |state: &CoreState| !state.vote_queries.is_empty() || !state.end_queries.is_empty();
        while !state.engine.has_work() && !has_queries(&state) && !state.is_woken {
            drop(state);
            let was_woken = self.shared.work.wait_until(end);
            state = self.shared.lock();
            if !was_woken {
                break;
            }
        }
        state.is_woken = false;
        let vote_queries = std::mem::take(&mut state.vote_queries);
        let end_queries = std::mem::take(&mut state.end_queries);
        let engine = &mut state.engine;
        CoreWork {
            full: engine.take_full(),
            hot: engine.take_hot(),
            empty: engine.take_empty(),
            vote_queries,
            end_queries,
        }
    }

    /// Wakes the thread that waits for work.
    pub fn wake_work(&self) {
        self.shared.lock().is_woken = true;
        self.shared.work.wake();
    }

    /// Accesses the engine without changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        act(&mut self.shared.lock().engine)
    }

    /// Registers the counters of the sockets, which the status includes.
    pub(crate) fn count_sockets(&self, counters: Arc<SocketCounters>) {
        // There is one socket thread.
        let _ = self.shared.sockets.set(counters);
    }

    /// Returns the status of the server.
    pub fn status(&self) -> ServerStatus {
        let mut session = self.session();
        let now = session.now;
        self.shared.status(&mut session.state, now)
    }

    /// Returns the number of log records on disk, and the disk's error, if it has failed.
    pub fn synced(&self) -> (u64, Option<String>) {
        let state = self.shared.lock();
        (state.synced, state.failed.clone())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The core belongs to the parent process, and so does its thread.
            std::mem::forget(self.thread.take());
            return;
        }
        let mut locked = self.shared.lock();
        let state = &mut *locked;
        state.engine.end(&mut state.effects);
        self.shared.settle(state, None);
        state.ending = true;
        drop(locked);
        self.shared.written.wake();
        self.shared.ended.wake();
        if let Some(thread) = self.thread.take() {
            // Nothing could receive a panic's message now.
            let _ = thread.join();
        }
    }
}

/// Exclusive access to a core until this is dropped.
#[derive(Debug)]
pub struct CoreSession<'a> {
    shared: &'a SharedState,
    state: RwLockWriteGuard<'a, CoreState>,
    now: Now,
}

impl CoreSession<'_> {
    /// Handles a request. The reply is delivered now or later.
    pub fn handle(&mut self, caller: Caller, request: &[u8]) -> Result<(), Malformed> {
        let state = &mut *self.state;
        if Request::inspects(request) {
            let reply = self.shared.inspect(state, self.now, request)?;
            self.shared.reply_sink.deliver(caller, &reply);
            return Ok(());
        }
        let handled = state.engine.handle(self.now, caller, request, &mut state.effects);
        self.shared.settle(state, None);
        handled
    }

    /// Takes a client's heartbeat.
    pub fn on_heartbeat(&mut self, connection: u64, client: u64, heartbeat: ClientHeartbeat) {
        self.state.engine.hold(connection, heartbeat.oldest, heartbeat.more);
        self.state.engine.on_settled(connection, client, &heartbeat.settled);
    }

    /// Releases what a connection held, which has ended.
    pub fn disconnected(&mut self, connection: u64) {
        self.state.engine.disconnected(connection);
    }

    /// Returns the time of the server's clock.
    pub fn clock(&mut self) -> Timestamp {
        self.state.engine.clock(self.now)
    }
}
