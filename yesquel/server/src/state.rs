//! State that the threads of a server share: engine, replies that wait for the disk, and records
//! for the log thread.

use crate::{ReplySink, Time, options::Durability, socket_counters::SocketCounters, wake_flag::WakeFlag};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, OnceLock, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use yesquel_engine::{Caller, Effects, EndQuery, Engine, LogRecord, Now, ReplyDurability, VoteQuery};
use yesquel_model::{Refusal, Timestamp};
use yesquel_wire::{
    Malformed, Reply, Request,
    status::{CheckpointStatus, ConnectionStatus, LogStatus, ServerStatus},
};

/// Reply that waits for the disk.
struct HeldReply {
    needs_lsn: u64,
    caller: Caller,
    reply: Box<[u8]>,
}

/// Size in bytes above which a reply that waits for the disk is reported to the sink. Most replies
/// only say that something committed.
const REPORTED_REPLY_BYTES: usize = 1 << 10;

/// Records for the log thread.
#[derive(Default)]
pub(crate) struct PendingRecords {
    pub(crate) log: Vec<u8>,
    /// End offset of each record.
    pub(crate) ends: Vec<usize>,
}

impl PendingRecords {
    /// Timestamp of the first record, from which on readers may see its writes.
    fn first(&self) -> Option<Timestamp> {
        LogRecord::first_seen(&self.log, &self.ends)
    }
}

/// Disk usage, for the status.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskUsage {
    /// Bytes of the log's files.
    pub(crate) log_bytes: u64,
    pub(crate) checkpoint: Option<LastCheckpoint>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LastCheckpoint {
    pub(crate) lsn: u64,
    pub(crate) bytes: u64,
    /// Time when it was finished, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

/// When the log must be synced at the latest, under a durability that does not sync each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncWanted {
    WithinASecond,
    Now,
}

pub(crate) struct CoreState {
    pub(crate) engine: Engine,
    pub(crate) effects: Effects,
    pub(crate) time: Box<dyn Time>,
    /// Time of the last step.
    pub(crate) now: Now,
    pub(crate) pending_records: PendingRecords,
    /// Roughly in the order of the records that they need.
    held: VecDeque<HeldReply>,
    pub(crate) synced: u64,
    /// What the held replies want of a server that does not sync each record.
    pub(crate) sync_wanted: Option<SyncWanted>,
    disk_usage: DiskUsage,
    pub(crate) vote_queries: Vec<VoteQuery>,
    pub(crate) end_queries: Vec<EndQuery>,
    /// Set to wake the thread that waits for work.
    pub(crate) is_woken: bool,
    pub(crate) ticked_at_ms: u64,
    pub(crate) ending: bool,
    /// Error after which nothing becomes durable any more.
    pub(crate) failed: Option<String>,
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
    pub(crate) reply_sink: Box<dyn ReplySink>,
    /// None: there is no disk.
    pub(crate) durability: Option<Durability>,
    pub(crate) sockets: OnceLock<Arc<SocketCounters>>,
}

impl fmt::Debug for CoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl CoreState {
    pub(crate) fn read_clock(&mut self) -> Now {
        self.now = self.time.now();
        self.now
    }

    pub(crate) fn tick(&mut self, now: Now) {
        self.ticked_at_ms = now.uptime_ms;
        self.engine.tick(now, &mut self.effects);
    }
}

/// Where the replies of a step went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplyOutcome {
    /// The caller's own reply is in its buffer.
    pub(crate) own: bool,
    /// Replies to other callers were delivered.
    pub(crate) others: bool,
}

/// Returns the reply that replaces those whose effects cannot become durable.
fn refused() -> Vec<u8> {
    let mut bytes = Vec::new();
    Reply::Refused { operation: None, refusal: Refusal::DiskLost }.write(&mut bytes);
    bytes
}

impl SharedState {
    pub(crate) fn new(
        engine: Engine,
        time: Box<dyn Time>,
        reply_sink: Box<dyn ReplySink>,
        log: Option<(u64, Durability, DiskUsage)>,
    ) -> SharedState {
        let state = CoreState {
            engine,
            effects: Effects::default(),
            time,
            now: Now::default(),
            pending_records: PendingRecords::default(),
            held: VecDeque::new(),
            synced: log.map_or(0, |(synced, ..)| synced),
            disk_usage: log.map(|(.., disk_usage)| disk_usage).unwrap_or_default(),
            vote_queries: Vec::new(),
            end_queries: Vec::new(),
            sync_wanted: None,
            is_woken: false,
            ticked_at_ms: 0,
            ending: false,
            failed: None,
        };
        SharedState {
            state: RwLock::new(state),
            written: WakeFlag::default(),
            ended: WakeFlag::default(),
            work: WakeFlag::default(),
            reply_sink,
            durability: log.map(|(_, durability, _)| durability),
            sockets: OnceLock::new(),
        }
    }

    /// Passes on the effects of a step. The reply to `own` is put into its buffer.
    pub(crate) fn settle(
        &self,
        state: &mut CoreState,
        mut own: Option<(Caller, &mut Vec<u8>)>,
    ) -> ReplyOutcome {
        let CoreState {
            engine,
            effects,
            pending_records,
            held,
            synced,
            vote_queries,
            end_queries,
            failed,
            ..
        } = state;
        let mut settled = ReplyOutcome::default();
        for reply in &effects.replies {
            let bytes = &effects.bytes[reply.bytes.clone()];
            let is_configured = reply.durability == ReplyDurability::Configured;
            let is_synced = match self.durability {
                Some(Durability::Sync) => true,
                Some(_) => !is_configured,
                None => false,
            };
            let waits = is_synced && reply.needs_lsn > *synced;
            if waits && failed.is_none() {
                if !is_configured && self.durability != Some(Durability::Sync) {
                    self.want_sync(&mut state.sync_wanted, reply.durability);
                }
                if bytes.len() > REPORTED_REPLY_BYTES {
                    self.reply_sink.reply_held(reply.caller, bytes.len());
                }
                held.push_back(HeldReply {
                    needs_lsn: reply.needs_lsn,
                    caller: reply.caller,
                    reply: bytes.into(),
                });
                continue;
            }
            // After a disk failure no reply may reveal what is not durable.
            let refused = if waits { Some(refused()) } else { None };
            let bytes = refused.as_deref().unwrap_or(bytes);
            match &mut own {
                Some((caller, place)) if *caller == reply.caller => {
                    **place = bytes.to_vec();
                    settled.own = true;
                }
                _ => {
                    self.reply_sink.deliver(reply.caller, bytes);
                    settled.others = true;
                }
            }
        }
        vote_queries.append(&mut effects.vote_queries);
        end_queries.append(&mut effects.end_queries);
        if self.durability.is_some() && !effects.record_ends.is_empty() && failed.is_none() {
            let is_first = pending_records.ends.is_empty();
            let before = pending_records.log.len();
            pending_records.log.extend_from_slice(&effects.log);
            pending_records.ends.extend(effects.record_ends.iter().map(|end| before + end));
            if is_first {
                self.written.wake();
            }
        }
        if engine.has_work() || !vote_queries.is_empty() || !end_queries.is_empty() {
            self.work.wake();
        }
        effects.clear();
        settled
    }

    /// Asks the log thread for a sync, although the server's durability does not need one.
    fn want_sync(&self, wanted: &mut Option<SyncWanted>, durability: ReplyDurability) {
        if durability == ReplyDurability::SyncedNow {
            *wanted = Some(SyncWanted::Now);
            // It may let records accumulate, or have written them already.
            self.ended.wake();
            self.written.wake();
        } else if wanted.is_none() {
            *wanted = Some(SyncWanted::WithinASecond);
            self.written.wake();
        }
    }

    /// Returns the reply to a status request.
    pub(crate) fn inspect(
        &self,
        state: &mut CoreState,
        now: Now,
        request: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        let report = match Request::decode(request)? {
            Request::Inspect { tree: Some(tree) } => serde_json::to_vec(&state.engine.nodes_of(tree, None)),
            Request::InspectAfter { node } => {
                serde_json::to_vec(&state.engine.nodes_of(node.tree, Some(node)))
            }
            _ => serde_json::to_vec(&self.status(state, now)),
        };
        let mut reply = Vec::new();
        // Numbers and strings always convert to JSON.
        Reply::Report(&report.unwrap_or_default()).write(&mut reply);
        Ok(reply)
    }

    pub(crate) fn status(&self, state: &mut CoreState, now: Now) -> ServerStatus {
        let count = |of: fn(&SocketCounters) -> &AtomicU64| {
            self.sockets.get().map_or(0, |counters| of(counters).load(Relaxed))
        };
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            durability: self
                .durability
                .map_or_else(|| "memory".to_owned(), |durability| durability.to_string()),
            log: LogStatus {
                lsn: state.engine.lsn(),
                synced_lsn: if self.durability.is_some() { state.synced } else { 0 },
                bytes: state.disk_usage.log_bytes,
                checkpoint: state.disk_usage.checkpoint.map(|last| CheckpointStatus {
                    lsn: last.lsn,
                    bytes: last.bytes,
                    age_ms: now.wall_ms.saturating_sub(last.at_ms),
                }),
                failed: state.failed.clone(),
            },
            connections: ConnectionStatus {
                open: count(|counters| &counters.open),
                accepted: count(|counters| &counters.accepted),
                refused: count(|counters| &counters.refused),
                paused: count(|counters| &counters.paused),
                queued_most: count(|counters| &counters.queued_most),
                unfinished: count(|counters| &counters.unfinished),
            },
            ..state.engine.status(now)
        }
    }

    /// Notes that a checkpoint is on disk.
    pub(crate) fn note_checkpoint(&self, lsn: u64, bytes: u64) {
        let mut state = self.lock();
        let at_ms = state.read_clock().wall_ms;
        state.disk_usage.checkpoint = Some(LastCheckpoint { lsn, bytes, at_ms });
    }

    /// Releases the replies whose records are on disk; `log_bytes` is the size of the log.
    pub(crate) fn release(&self, synced: u64, log_bytes: u64) {
        let mut state = self.lock();
        let state = &mut *state;
        (state.synced, state.disk_usage.log_bytes) = (synced, log_bytes);
        // Replies that need later records stay, in order.
        for _ in 0..state.held.len() {
            let Some(held) = state.held.pop_front() else { break };
            if held.needs_lsn <= synced {
                self.reply_released(&held);
                self.reply_sink.deliver(held.caller, &held.reply);
            } else {
                state.held.push_back(held);
            }
        }
    }

    fn reply_released(&self, held: &HeldReply) {
        if held.reply.len() > REPORTED_REPLY_BYTES {
            self.reply_sink.reply_released(held.caller, held.reply.len());
        }
    }

    /// Ends the batch of released replies.
    pub(crate) fn released(&self) {
        self.reply_sink.flush();
    }

    /// Records that nothing becomes durable any more.
    pub(crate) fn fail(&self, error: String, reached: u64, lost: &PendingRecords) {
        let mut state = self.lock();
        let state = &mut *state;
        state.failed = Some(error);
        let lost = lost.first().into_iter().chain(state.pending_records.first()).min();
        state.engine.freeze(reached, lost, &mut state.effects);
        let refused = refused();
        for held in std::mem::take(&mut state.held) {
            self.reply_released(&held);
            self.reply_sink.deliver(held.caller, &refused);
        }
        self.settle(state, None);
    }
}
