//! State that the threads of a server share: the group's core, and what wakes them.

use crate::{Time, management::ManagementQueue, socket_counters::SocketCounters, wake_flag::WakeFlag};
use std::{
    fmt,
    sync::{
        Arc, OnceLock, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel_engine::{Caller, Now};
use yesquel_node::{GroupCore, ReplySink, Settled, SyncWanted};
use yesquel_secrets::PresentSecrets;
use yesquel_wire::{
    Malformed, Reply, Request,
    status::{ConnectionStatus, SecretsStatus, ServerStatus},
};

/// Receiver of replies, from any thread.
pub(crate) type SharedSink = Box<dyn ReplySink + Send + Sync>;

pub(crate) struct CoreState {
    pub(crate) core: GroupCore,
    pub(crate) time: Box<dyn Time>,
    /// Time of the last step.
    pub(crate) now: Now,
    /// Set to wake the thread that waits for work.
    pub(crate) is_woken: bool,
    pub(crate) ticked_at_ms: u64,
    pub(crate) ending: bool,
    pub(crate) management: ManagementQueue,
}

pub(crate) struct SharedState {
    /// Reads that change nothing share it.
    pub(crate) state: RwLock<CoreState>,
    /// There are records for the log thread.
    pub(crate) written: WakeFlag,
    /// There will be no more records. Separate from `written`, which would wake a thread that lets
    /// records accumulate.
    pub(crate) ended: WakeFlag,
    /// There is work that the engine cannot do itself.
    pub(crate) work: WakeFlag,
    /// There are commands for the cluster's machines, or another version of the directory.
    pub(crate) managed: WakeFlag,
    pub(crate) reply_sink: SharedSink,
    pub(crate) sockets: OnceLock<Arc<SocketCounters>>,
    pub(crate) secrets: OnceLock<Arc<PresentSecrets>>,
}

impl fmt::Debug for CoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreState").finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl CoreState {
    pub(crate) fn read_clock(&mut self) -> Now {
        self.now = self.core.machine_time(self.time.now());
        self.now
    }
}

impl SharedState {
    pub(crate) fn new(core: GroupCore, time: Box<dyn Time>, reply_sink: SharedSink) -> SharedState {
        let state = CoreState {
            core,
            time,
            now: Now::default(),
            is_woken: false,
            ticked_at_ms: 0,
            ending: false,
            management: ManagementQueue::default(),
        };
        SharedState {
            state: RwLock::new(state),
            written: WakeFlag::default(),
            ended: WakeFlag::default(),
            work: WakeFlag::default(),
            managed: WakeFlag::default(),
            reply_sink,
            sockets: OnceLock::new(),
            secrets: OnceLock::new(),
        }
    }

    /// Locks the core for a step that leaves nothing for other threads.
    pub(crate) fn with_core<T>(&self, act: impl FnOnce(&mut GroupCore, &dyn ReplySink) -> T) -> T {
        act(&mut self.lock().core, &*self.reply_sink)
    }

    /// Wakes the threads for which a step has left something.
    pub(crate) fn notify(&self, settled: Settled) -> Settled {
        if settled.has_records {
            self.written.wake();
        }
        if settled.has_work {
            self.work.wake();
        }
        match settled.sync_wanted {
            // The log thread may let records accumulate, or have written them already.
            Some(SyncWanted::Now) => {
                self.ended.wake();
                self.written.wake();
            }
            Some(SyncWanted::WithinASecond) => self.written.wake(),
            None => {}
        }
        settled
    }

    /// Handles a request, whose reply goes to `own` if it is ready and there is such a buffer.
    pub(crate) fn handle(
        &self,
        state: &mut CoreState,
        now: Now,
        caller: Caller,
        request: &[u8],
        own: Option<&mut Vec<u8>>,
    ) -> Result<Settled, Malformed> {
        let handled = state.core.handle(now, caller, request, own, &*self.reply_sink);
        handled.map(|settled| self.notify(settled))
    }

    pub(crate) fn tick(&self, state: &mut CoreState, now: Now) -> Settled {
        state.ticked_at_ms = now.uptime_ms;
        self.notify(state.core.tick(now, &*self.reply_sink))
    }

    /// Advances time.
    pub(crate) fn advance(&self) {
        let mut state = self.lock();
        let now = state.read_clock();
        let settled = self.tick(&mut state, now);
        drop(state);
        if settled.others {
            self.released();
        }
    }

    /// Takes a command for the cluster's machines, which is answered later, or an answer at once if
    /// none is taken.
    pub(crate) fn manage(
        &self,
        state: &mut CoreState,
        caller: Caller,
        request: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        Request::decode(request)?;
        let refusal = state.management.push(caller, request);
        if refusal.is_none() {
            self.managed.wake();
        }
        Ok(refusal)
    }

    /// Returns the reply to a status request.
    pub(crate) fn inspect(
        &self,
        state: &mut CoreState,
        now: Now,
        request: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        let report = match state.core.inspect(request)? {
            Some(report) => report,
            // Numbers and strings always convert to JSON.
            None => serde_json::to_vec(&self.status(state, now)).unwrap_or_default(),
        };
        let mut reply = Vec::new();
        Reply::Report(&report).write(&mut reply);
        Ok(reply)
    }

    pub(crate) fn status(&self, state: &mut CoreState, now: Now) -> ServerStatus {
        let count = |of: fn(&SocketCounters) -> &AtomicU64| {
            self.sockets.get().map_or(0, |counters| of(counters).load(Relaxed))
        };
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            connections: ConnectionStatus {
                open: count(|counters| &counters.open),
                accepted: count(|counters| &counters.accepted),
                refused: count(|counters| &counters.refused),
                revoked: count(|counters| &counters.revoked),
                paused: count(|counters| &counters.paused),
                queued_most: count(|counters| &counters.queued_most),
                unfinished: count(|counters| &counters.unfinished),
            },
            secrets: self.secrets.get().map_or_else(SecretsStatus::default, |secrets| SecretsStatus {
                reloads: secrets.reloads(),
                failed_reloads: secrets.failed_reloads(),
                certificate_expires_s: secrets.get().certificate_expires_s,
                admitted: self.sockets.get().map_or_else(Vec::new, |counters| counters.admitted()),
            }),
            ..state.core.status(now)
        }
    }

    /// Ends the batch of released replies.
    pub(crate) fn released(&self) {
        self.reply_sink.flush();
    }
}
