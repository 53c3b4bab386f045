//! The engine of a group with what surrounds it: held replies, pending records, questions to other
//! groups.

use crate::{
    GroupWork, MachineClock, ReplySink,
    options::Durability,
    records::RecordBatch,
    replies::{HeldReplies, refused},
};
use std::fmt;
use yesquel_engine::{Caller, Checkpoint, Effects, Engine, Now, VoteQuery};
use yesquel_wire::{
    ByteWriter, ClientHeartbeat, Malformed, Reply, Request,
    status::{CheckpointStatus, LogStatus, ServerStatus},
};

/// The last checkpoint, for the status.
#[derive(Debug, Clone, Copy)]
pub struct LastCheckpoint {
    /// Last log record that it covers.
    pub lsn: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Time when it was finished, in milliseconds since 1970.
    pub at_ms: u64,
}

/// What a step left for its driver.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settled {
    /// The reply to the caller's own request is in its buffer.
    pub own: bool,
    /// Replies to other callers were delivered.
    pub others: bool,
    /// There are records to write, and before there were none.
    pub has_records: bool,
    /// There is work of [`GroupCore::take_work`] or [`GroupCore::take_vote_queries`].
    pub has_work: bool,
}

/// State machine of one group: engine, held replies, pending records, questions to other groups.
pub struct GroupCore {
    engine: Engine,
    clock: MachineClock,
    effects: Effects,
    /// `None`: there is no disk.
    durability: Option<Durability>,
    records: RecordBatch,
    held: HeldReplies,
    synced: u64,
    /// Error after which nothing becomes durable any more.
    failed: Option<String>,
    vote_queries: Vec<VoteQuery>,
    log_bytes: u64,
    pub(crate) last_checkpoint: Option<LastCheckpoint>,
}

impl fmt::Debug for GroupCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCore").finish_non_exhaustive()
    }
}

impl GroupCore {
    /// Creates a group that has no disk.
    pub fn in_memory(engine: Engine) -> GroupCore {
        GroupCore::new(engine, None, 0, 0)
    }

    pub(crate) fn new(
        engine: Engine,
        durability: Option<Durability>,
        synced: u64,
        log_bytes: u64,
    ) -> GroupCore {
        GroupCore {
            engine,
            clock: MachineClock::default(),
            effects: Effects::default(),
            durability,
            records: RecordBatch::default(),
            held: HeldReplies::default(),
            synced,
            failed: None,
            vote_queries: Vec::new(),
            log_bytes,
            last_checkpoint: None,
        }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the engine for calls that have no effects.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns the durability; `None`: there is no disk.
    pub fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Returns the number of log records on disk.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Returns the disk's error, if it has failed.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Returns the last checkpoint.
    pub fn last_checkpoint(&self) -> Option<LastCheckpoint> {
        self.last_checkpoint
    }

    /// Returns machine time by the driver's clocks; all other methods take this time.
    pub fn machine_time(&mut self, clocks: Now) -> Now {
        self.clock.read(clocks)
    }

    /// Handles a request. The reply to it goes to `own`, if there is such a buffer and the reply is
    /// ready, and otherwise to the sink, now or later. Malformed bytes are an error and change
    /// nothing.
    pub fn handle(
        &mut self,
        now: Now,
        caller: Caller,
        request: &[u8],
        own: Option<&mut Vec<u8>>,
        sink: &dyn ReplySink,
    ) -> Result<Settled, Malformed> {
        let handled = self.engine.handle(now, caller, request, &mut self.effects);
        let settled = self.settle(own.map(|buffer| (caller, buffer)), sink);
        handled.map(|()| settled)
    }

    /// Appends the answer to `reply` if the request is a read that changes nothing and need not
    /// wait. Returns whether it is.
    pub fn peek(&self, now: Now, request: &[u8], reply: &mut Vec<u8>) -> bool {
        match self.engine.peek(now, request, reply) {
            Some(needs_lsn) if self.durability != Some(Durability::Sync) || needs_lsn <= self.synced => true,
            Some(_) => {
                reply.clear();
                false
            }
            None => false,
        }
    }

    /// Advances time. Call it about every 50 ms.
    pub fn tick(&mut self, now: Now, sink: &dyn ReplySink) -> Settled {
        self.engine.tick(now, &mut self.effects);
        self.settle(None, sink)
    }

    /// Takes a client's heartbeat.
    pub fn on_heartbeat(&mut self, now: Now, connection: u64, client: u64, heartbeat: ClientHeartbeat) {
        self.engine.hold(connection, heartbeat.oldest, heartbeat.more);
        self.engine.known(now, client, heartbeat.known);
    }

    /// Releases what a connection held, which has ended.
    pub fn disconnected(&mut self, connection: u64) {
        self.engine.disconnected(connection);
    }

    /// Takes the answer of another group to a question. Other replies mean that it did not answer.
    pub fn on_peer_reply(
        &mut self,
        now: Now,
        query: VoteQuery,
        reply: &[u8],
        sink: &dyn ReplySink,
    ) -> Settled {
        // A group whose disk has failed decides nothing.
        if let (Ok(Reply::Vote(vote)), None) = (Reply::decode(reply), &self.failed) {
            self.engine.on_vote(now, query, &vote, &mut self.effects);
        }
        self.settle(None, sink)
    }

    /// Returns the bytes of a question to another group.
    pub fn query_bytes(query: &VoteQuery) -> Vec<u8> {
        let mut bytes = Vec::new();
        Request::Resolve { txn: query.txn }.write(&mut ByteWriter(&mut bytes));
        bytes
    }

    /// Shuts down in order: no more timestamps are given out.
    pub fn end(&mut self, sink: &dyn ReplySink) -> Settled {
        self.engine.end(&mut self.effects);
        self.settle(None, sink)
    }

    /// Passes on the effects of a step. The reply to `own` is put into its buffer.
    fn settle(&mut self, mut own: Option<(Caller, &mut Vec<u8>)>, sink: &dyn ReplySink) -> Settled {
        let GroupCore { engine, effects, records, held, synced, vote_queries, failed, .. } = self;
        let mut settled = Settled::default();
        for reply in &effects.replies {
            let bytes = &effects.bytes[reply.bytes.clone()];
            let waits = self.durability == Some(Durability::Sync) && reply.needs_lsn > *synced;
            if waits && failed.is_none() {
                held.push(reply.caller, reply.needs_lsn, bytes, sink);
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
                    sink.deliver(reply.caller, bytes);
                    settled.others = true;
                }
            }
        }
        vote_queries.append(&mut effects.vote_queries);
        if self.durability.is_some() && !effects.record_ends.is_empty() && failed.is_none() {
            settled.has_records = records.is_empty();
            records.push(effects);
        }
        settled.has_work = engine.has_work() || !vote_queries.is_empty();
        effects.clear();
        settled
    }

    /// Whether there is work of [`take_work`](Self::take_work) or
    /// [`take_vote_queries`](Self::take_vote_queries).
    pub fn has_work(&self) -> bool {
        self.engine.has_work() || !self.vote_queries.is_empty()
    }

    /// Takes the work for a [`Maintainer`](crate::Maintainer).
    pub fn take_work(&mut self) -> GroupWork {
        let engine = &mut self.engine;
        GroupWork { full: engine.take_full(), hot: engine.take_hot(), empty: engine.take_empty() }
    }

    /// Takes the questions to other groups.
    pub fn take_vote_queries(&mut self) -> Vec<VoteQuery> {
        std::mem::take(&mut self.vote_queries)
    }

    /// Returns the records to write.
    pub fn records(&self) -> &RecordBatch {
        &self.records
    }

    /// Swaps the records to write with an empty batch.
    pub(crate) fn take_records(&mut self, batch: &mut RecordBatch) {
        batch.clear();
        std::mem::swap(&mut self.records, batch);
    }

    /// Releases the replies whose records are on disk.
    pub(crate) fn release(&mut self, synced: u64, log_bytes: u64, sink: &dyn ReplySink) {
        (self.synced, self.log_bytes) = (synced, log_bytes);
        self.held.release(synced, sink);
    }

    /// Records that nothing becomes durable any more: the disk has everything up to `reached`, and
    /// `batch` was being written.
    pub(crate) fn fail(&mut self, error: String, reached: u64, batch: &RecordBatch, sink: &dyn ReplySink) {
        self.failed = Some(error);
        let lost = batch.first_seen().into_iter().chain(self.records.first_seen()).min();
        self.engine.freeze(reached, lost, &mut self.effects);
        self.held.refuse(sink);
        self.settle(None, sink);
    }

    /// Returns the present state, to be written while the group goes on.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.engine.checkpoint()
    }

    /// Returns the status, without what only the driver knows.
    pub fn status(&mut self, now: Now) -> ServerStatus {
        ServerStatus {
            durability: self
                .durability
                .map_or_else(|| "memory".to_owned(), |durability| durability.to_string()),
            log: LogStatus {
                lsn: self.engine.lsn(),
                synced_lsn: if self.durability.is_some() { self.synced } else { 0 },
                bytes: self.log_bytes,
                checkpoint: self.last_checkpoint.map(|last| CheckpointStatus {
                    lsn: last.lsn,
                    bytes: last.bytes,
                    age_ms: now.wall_ms.saturating_sub(last.at_ms),
                }),
                failed: self.failed.clone(),
            },
            ..self.engine.status(now)
        }
    }
}
