//! The engine of a group with what surrounds it: held replies, pending records, questions to other
//! groups.

mod destination;
mod disk;
mod peer_query;
mod reports;

pub use peer_query::PeerQuery;

use crate::{
    ClockState, GroupWork, MachineClock, ReplySink,
    clock_watch::ClockWatch,
    group_loads::GroupLoads,
    group_locations::GroupLocations,
    options::Durability,
    records::RecordBatch,
    replies::{HeldReplies, refused},
};
use disk::FullDisk;
use std::fmt;
use yesquel_engine::{Caller, Checkpoint, Effects, Engine, Now, ReplyDurability};
use yesquel_model::{Refusal, ServerId};
use yesquel_tree::GroupLoad;
use yesquel_wire::{
    ClientHeartbeat, HorizonReport, Malformed, PeerReport, Reply, Request,
    status::{CheckpointStatus, LogStatus, PeerClock, PeersStatus, RequestStatus, ServerStatus},
};

/// Connection number of calls from the server's own process.
pub const LOCAL_CONNECTION: u64 = yesquel_engine::OWN_CONNECTION;

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

/// When the log must be synced at the latest, although the durability does not sync each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncWanted {
    /// A decision waits for it.
    WithinASecond,
    /// A vote waits for it.
    Now,
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
    /// Replies wait for a sync that the durability does not make by itself.
    pub sync_wanted: Option<SyncWanted>,
    /// There is work of [`GroupCore::take_work`] or [`GroupCore::take_queries`].
    pub has_work: bool,
}

/// State machine of one group: engine, held replies, pending records, questions to other groups.
pub struct GroupCore {
    engine: Engine,
    /// The driver's clocks at the last step.
    clocks: Now,
    clock: MachineClock,
    watch: ClockWatch,
    /// The state that the last tick has acted on.
    noted_state: ClockState,
    /// Whether requests of clients are handled; otherwise they are held.
    admits_clients: bool,
    /// Requests that came before the clock was compared or clients were admitted.
    early: Vec<(Caller, Box<[u8]>)>,
    effects: Effects,
    /// `None`: there is no disk.
    durability: Option<Durability>,
    records: RecordBatch,
    held: HeldReplies,
    synced: u64,
    /// Whether the group has begun to serve since its start.
    has_begun: bool,
    /// No reply leaves before this record is on disk: it says that later ones may leave earlier than
    /// the records that they depend on.
    unsynced_lsn: u64,
    /// Error after which nothing becomes durable any more.
    failed: Option<String>,
    /// The disk is full.
    full: Option<FullDisk>,
    /// How often it has become full.
    full_count: u64,
    sync_wanted: Option<SyncWanted>,
    queries: Vec<PeerQuery>,
    /// What this group tells the others about its horizon, and what it will tell them once a record
    /// is on disk.
    horizon: HorizonReport,
    next_horizon: Option<(HorizonReport, u64)>,
    locations: GroupLocations,
    loads: GroupLoads,
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
        mut engine: Engine,
        durability: Option<Durability>,
        synced: u64,
        log_bytes: u64,
    ) -> GroupCore {
        if durability.is_some() {
            engine.note_synced(synced);
        }
        GroupCore {
            watch: ClockWatch::new(engine.server(), 0),
            noted_state: ClockState::Agrees,
            engine,
            clocks: Now::default(),
            clock: MachineClock::default(),
            admits_clients: true,
            early: Vec::new(),
            effects: Effects::default(),
            durability,
            records: RecordBatch::default(),
            held: HeldReplies::default(),
            synced,
            has_begun: durability.is_none(),
            unsynced_lsn: 0,
            failed: None,
            full: None,
            full_count: 0,
            sync_wanted: None,
            queries: Vec::new(),
            horizon: HorizonReport::default(),
            next_horizon: None,
            locations: GroupLocations::default(),
            loads: GroupLoads::default(),
            log_bytes,
            last_checkpoint: None,
        }
    }

    /// Sets the first group of the machine, and how many other machines it compares its clock with. The
    /// group serves nothing until it has.
    pub fn compare_with(&mut self, own: ServerId, peers: usize) {
        self.watch = ClockWatch::new(own, peers);
    }

    /// Limits the time in milliseconds after the start for which the group waits for the clocks of
    /// other servers.
    pub fn wait_for_clocks(&mut self, wait_ms: u64) {
        self.watch.wait_for(wait_ms);
    }

    /// Sets whether requests of clients are handled; otherwise they are held. Those of
    /// [`LOCAL_CONNECTION`] always are.
    pub fn admit_clients(&mut self, admits: bool) {
        self.admits_clients = admits;
    }

    /// Returns what the comparison of clocks says.
    pub fn clock_state(&self) -> ClockState {
        self.watch.state()
    }

    /// Returns how far each peer's clock is ahead of the own one.
    pub fn clock_offsets(&self) -> impl Iterator<Item = PeerClock> {
        self.watch.offsets(self.clocks)
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

    /// Returns machine time by the driver's clocks; all other methods take this time. A clock that
    /// has been found right is taken as it is.
    pub fn machine_time(&mut self, clocks: Now) -> Now {
        self.clocks = clocks;
        if self.watch.is_due(clocks) && self.watch.judge(clocks) == ClockState::Agrees {
            self.clock.set(clocks);
        }
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
        self.begin(now);
        let handled = match self.watch.state() {
            _ if PeerReport::is_report(request) => self.exchange(now, caller, request),
            ClockState::Agrees | ClockState::Alone
                if self.admits_clients || caller.connection == LOCAL_CONNECTION =>
            {
                self.engine.handle(now, caller, request, &mut self.effects)
            }
            ClockState::Agrees | ClockState::Alone | ClockState::Comparing => {
                Request::decode(request).map(|_| self.early.push((caller, request.into())))
            }
            ClockState::Differs { ahead_ms } => {
                let refusal = Refusal::ClockDiffers { ahead_ms };
                self.engine.refuse_request(now, caller, request, refusal, &mut self.effects)
            }
        };
        let settled = self.settle(own.map(|buffer| (caller, buffer)), sink);
        handled.map(|()| settled)
    }

    /// Begins to serve, once the clock is known to be right.
    fn begin(&mut self, now: Now) {
        if self.has_begun || !self.watch.state().serves() {
            return;
        }
        self.has_begun = true;
        let is_synced = self.durability == Some(Durability::Sync);
        self.engine.begin(now, is_synced, &mut self.effects);
        if !is_synced {
            self.unsynced_lsn = self.engine.lsn();
            self.sync_wanted = Some(SyncWanted::Now);
        }
    }

    /// Whether replies may leave before the records that they depend on are on disk.
    fn answers_early(&self) -> bool {
        match self.durability {
            None => true,
            Some(Durability::Sync) => false,
            Some(Durability::Interval(_) | Durability::None) => self.unsynced_lsn <= self.synced,
        }
    }

    /// Refuses the requests that wait, once the clock differs.
    fn note_clock_state(&mut self, now: Now) {
        let state = self.watch.state();
        if std::mem::replace(&mut self.noted_state, state) == state {
            return;
        }
        if let ClockState::Differs { ahead_ms } = state {
            let refusal = Refusal::ClockDiffers { ahead_ms };
            self.engine.refuse_waiting(refusal, &mut self.effects);
            for (caller, request) in std::mem::take(&mut self.early) {
                // The request was checked when it arrived.
                let refused = self.engine.refuse_request(now, caller, &request, refusal, &mut self.effects);
                debug_assert!(refused.is_ok());
            }
        }
    }

    /// Handles the requests that were held.
    fn handle_early(&mut self, now: Now) {
        let admits = self.admits_clients;
        let is_ready = |(caller, _): &(Caller, Box<[u8]>)| admits || caller.connection == LOCAL_CONNECTION;
        let (ready, held) = std::mem::take(&mut self.early).into_iter().partition(is_ready);
        self.early = held;
        let ready: Vec<(Caller, Box<[u8]>)> = ready;
        for (caller, request) in ready {
            // The request was checked when it arrived.
            let handled = self.engine.handle(now, caller, &request, &mut self.effects);
            debug_assert!(handled.is_ok());
        }
    }

    /// Appends the answer to `reply` if the request is a read that changes nothing and need not
    /// wait. Returns whether it is.
    pub fn peek(&self, now: Now, request: &[u8], reply: &mut Vec<u8>) -> bool {
        if !self.has_begun || !self.watch.state().serves() {
            return false;
        }
        match self.engine.peek(now, request, reply) {
            Some(needs_lsn) if needs_lsn <= self.synced || self.answers_early() => true,
            Some(_) => {
                reply.clear();
                false
            }
            None => false,
        }
    }

    /// Advances time. Call it about every 50 ms.
    pub fn tick(&mut self, now: Now, sink: &dyn ReplySink) -> Settled {
        let has_refused = self.refuse_late(sink);
        self.note_clock_state(now);
        if self.watch.state().serves() {
            self.begin(now);
            self.handle_early(now);
            self.engine.tick(now, &mut self.effects);
            self.loads.count(now, self.engine.requests());
        }
        let settled = self.settle(None, sink);
        Settled { others: settled.others || has_refused, ..settled }
    }

    /// Takes a client's heartbeat.
    pub fn on_heartbeat(&mut self, connection: u64, client: u64, heartbeat: &ClientHeartbeat) {
        self.engine.hold(connection, heartbeat.oldest, heartbeat.more);
        self.engine.on_settled(connection, client, &heartbeat.settled);
    }

    /// Lets a connection watch nodes. Its notices go to [`ReplySink::notify`].
    pub fn admit_watcher(&mut self, connection: u64) {
        self.engine.admit_watcher(connection);
    }

    /// Ends all watches, and grants none any more.
    pub fn close_watches(&mut self, sink: &dyn ReplySink) -> Settled {
        self.engine.close_watches();
        self.settle(None, sink)
    }

    /// Releases what a connection held, which has ended.
    pub fn disconnected(&mut self, connection: u64) {
        self.early.retain(|(caller, _)| caller.connection != connection);
        self.engine.disconnected(connection);
    }

    /// Takes the answer of another group to a question. Other replies mean that it did not answer.
    pub fn on_peer_reply(
        &mut self,
        now: Now,
        query: &PeerQuery,
        reply: &[u8],
        sink: &dyn ReplySink,
    ) -> Settled {
        // A group whose disk has failed decides nothing, nor does one whose clock is wrong.
        if self.failed.is_none() && self.watch.state().serves() {
            match (query, Reply::decode(reply)) {
                (PeerQuery::Vote(query), Ok(Reply::Vote(vote))) => {
                    self.engine.on_vote(now, query, &vote, &mut self.effects);
                }
                (PeerQuery::Ended(query), Ok(Reply::Ended(flags))) => {
                    self.engine.on_ended(query, flags, &mut self.effects);
                }
                (PeerQuery::Value(query), Ok(reply)) => {
                    self.engine.on_value_reply(query, &reply, &mut self.effects);
                }
                _ => {}
            }
        }
        self.settle(None, sink)
    }

    /// Shuts down in order: no more timestamps are given out.
    pub fn end(&mut self, sink: &dyn ReplySink) -> Settled {
        // Before that, nothing was given out.
        if self.has_begun {
            self.engine.end(&mut self.effects);
        }
        self.settle(None, sink)
    }

    /// Passes on the effects of a step. The reply to `own` is put into its buffer.
    fn settle(&mut self, mut own: Option<(Caller, &mut Vec<u8>)>, sink: &dyn ReplySink) -> Settled {
        let answers_early = self.answers_early();
        let is_refused = self.failed.is_some() || self.full.as_ref().is_some_and(|full| full.has_lasted);
        let GroupCore { engine, effects, records, held, synced, queries, failed, .. } = self;
        let mut settled = Settled::default();
        for (connection, notice) in engine.take_notices() {
            sink.notify(connection, &notice.encode());
            settled.others = true;
        }
        for reply in &effects.replies {
            let bytes = &effects.bytes[reply.bytes.clone()];
            let is_configured = reply.durability == ReplyDurability::Configured;
            let is_early = self.durability.is_none() || (is_configured && answers_early);
            let waits = reply.needs_lsn > *synced && !is_early;
            if waits && !is_refused {
                let wanted = match reply.durability {
                    _ if self.durability == Some(Durability::Sync) => None,
                    // Until it is on disk that replies will not wait.
                    ReplyDurability::Configured => Some(SyncWanted::Now),
                    ReplyDurability::Synced => Some(SyncWanted::WithinASecond),
                    ReplyDurability::SyncedNow => Some(SyncWanted::Now),
                };
                if wanted > self.sync_wanted {
                    (self.sync_wanted, settled.sync_wanted) = (wanted, wanted);
                }
                held.push(reply.caller, reply.needs_lsn, bytes, sink);
                continue;
            }
            // No reply may reveal what is not durable.
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
        queries.extend(effects.vote_queries.drain(..).map(PeerQuery::Vote));
        queries.extend(effects.end_queries.drain(..).map(PeerQuery::Ended));
        for query in effects.value_queries.drain(..) {
            if self.durability.is_none() || query.needs_lsn <= *synced {
                queries.push(PeerQuery::Value(query));
            } else if self.sync_wanted < Some(SyncWanted::WithinASecond) && failed.is_none() {
                // The engine repeats the message.
                let wanted = Some(SyncWanted::WithinASecond);
                (self.sync_wanted, settled.sync_wanted) = (wanted, wanted);
            }
        }
        if self.durability.is_some() && !effects.record_ends.is_empty() && failed.is_none() {
            settled.has_records = records.is_empty();
            records.push(effects);
        }
        settled.has_work = engine.has_work() || !queries.is_empty();
        effects.clear();
        settled
    }

    /// Whether there is work of [`take_work`](Self::take_work) or
    /// [`take_queries`](Self::take_queries).
    pub fn has_work(&self) -> bool {
        self.engine.has_work() || !self.queries.is_empty()
    }

    /// Takes the work for a [`Maintainer`](crate::Maintainer).
    pub fn take_work(&mut self) -> GroupWork {
        let engine = &mut self.engine;
        GroupWork { full: engine.take_full(), hot: engine.take_hot(), empty: engine.take_empty() }
    }

    /// Returns the loads of this group and of those that have reported in the last second.
    pub fn loads(&self, now: Now) -> Vec<(ServerId, GroupLoad)> {
        let memory_bytes = self.engine.memory() as u64;
        let own = (self.engine.server(), GroupLoad { memory_bytes, requests: self.loads.requests() });
        std::iter::once(own).chain(self.loads.others(now)).collect()
    }

    /// Whether replies wait for a sync that the durability does not make.
    pub fn is_sync_wanted(&self) -> bool {
        self.sync_wanted.is_some()
    }

    /// Takes the wish of replies for a sync.
    pub(crate) fn take_sync_wanted(&mut self) -> Option<SyncWanted> {
        self.sync_wanted.take()
    }

    /// Takes the questions to other groups.
    pub fn take_queries(&mut self) -> Vec<PeerQuery> {
        std::mem::take(&mut self.queries)
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

    /// Returns the present state, to be written while the group goes on.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.engine.checkpoint()
    }

    /// Returns the status, without what only the driver knows.
    pub fn status(&mut self, now: Now) -> ServerStatus {
        let status = self.engine.status(now);
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
                full: self.full_status(),
                full_count: self.full_count,
            },
            peers: PeersStatus {
                not_serving: Some(self.clock_state())
                    .filter(|state| !state.serves())
                    .map(|state| state.to_string()),
                clocks: self.clock_offsets().collect(),
            },
            requests: RequestStatus { wrong_group: self.locations.corrected, ..status.requests },
            ..status
        }
    }
}
