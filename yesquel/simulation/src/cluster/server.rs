//! A storage server: an engine, its log on a simulated disk, checkpoints, and replies that wait for
//! the disk. `yesquel-server` does the same with threads.

use super::{Cluster, SharedCluster, SimulationEvent, network::OWN, peer_of_server};
use crate::disk::SimulatedDisk;
use std::{
    future::poll_fn,
    mem::take,
    sync::Weak,
    task::{Poll, Waker},
};
use yesquel_engine::{Caller, Checkpoint, Effects, Engine, EngineSettings, LogRecord, VoteQuery};
use yesquel_log::{LogError, SegmentWriter, checkpoint, open};
use yesquel_model::{Key, NodeId, Refusal, ServerId, Timestamp, TxnId};
use yesquel_seeds::Random;
use yesquel_transport::HeartbeatSource;
use yesquel_wire::{ClientHeartbeat, Decision, Reply};

const TICK_US: u64 = 50_000;

/// What a log record states about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFact {
    /// It committed at this server alone.
    Committed(TxnId, Timestamp),
    /// This server voted yes; the participants.
    VotedYes(TxnId, Vec<ServerId>),
    /// Its outcome.
    Decided(TxnId, Decision),
}

/// A reply that waits for the disk.
struct DelayedReply {
    needs_lsn: u64,
    caller: Caller,
    reply: Vec<u8>,
}

/// A running server.
pub(crate) struct RunningServer {
    pub(super) engine: Engine,
    writer: SegmentWriter<SimulatedDisk>,
    /// Records that are not written yet, and where each ends.
    log: Vec<u8>,
    ends: Vec<usize>,
    /// First timestamp at which a read may see what is being written.
    writing: Option<Timestamp>,
    held: Vec<DelayedReply>,
    synced: u64,
    pub(super) failed: bool,
    is_writing: bool,
    /// Log bytes since the last checkpoint.
    grown: u64,
    checkpoint: Option<Checkpoint>,
    /// The background task, while it waits for work.
    background: Option<Waker>,
    pub(super) heartbeats: Option<Weak<dyn HeartbeatSource>>,
}

pub(crate) struct SimulatedServer {
    number: usize,
    pub(super) disk: SimulatedDisk,
    pub(super) running: Option<RunningServer>,
    /// Number of its starts.
    pub(super) epoch: u64,
    pub(super) started_us: u64,
    pub(super) ahead_ms: i64,
    pub(super) checkpoint_bytes: u64,
    pub(super) segment_bytes: u64,
    /// Of the next power failure: seed of what is lost, time until the restart.
    pub(super) outage: (u64, u64),
    /// What its log states, with the records' numbers.
    facts: Vec<(u64, LogFact)>,
    /// Highest record that was ever synced.
    synced: u64,
}

impl SimulatedServer {
    pub(super) fn new(number: usize) -> SimulatedServer {
        SimulatedServer {
            number,
            disk: SimulatedDisk::new(),
            running: None,
            epoch: 0,
            started_us: 0,
            ahead_ms: 0,
            checkpoint_bytes: u64::MAX,
            segment_bytes: u64::MAX,
            outage: (0, 0),
            facts: Vec::new(),
            synced: 0,
        }
    }

    fn settings(&self) -> EngineSettings {
        EngineSettings {
            server: ServerId(self.number as u16),
            recover_after_ms: 200,
            // At two cells a node with many is split into parts of one.
            node_cells_max: 4 - self.number % 3,
            node_load_max: 6,
            ..EngineSettings::default()
        }
    }

    /// What its log states.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &LogFact> {
        self.facts.iter().map(|(_, fact)| fact)
    }

    /// Loads the checkpoint and the log, as `yesquel_server::Core::open` does.
    fn recover(&self) -> Result<(Engine, SegmentWriter<SimulatedDisk>, u64), LogError> {
        let mut engine = Engine::new(self.settings());
        let replay = |engine: &mut Engine, bytes: &[u8]| match LogRecord::decode(bytes) {
            Ok(record) => engine.replay(&record),
            Err(malformed) => panic!("malformed log record: {malformed}"),
        };
        let last = checkpoint::list(&self.disk)?.last().copied();
        if let Some(lsn) = last {
            checkpoint::read(&self.disk, lsn, |record| {
                replay(&mut engine, record);
                Ok(())
            })?;
            engine.restored(lsn);
        }
        let mut grown = 0;
        let mut opened = open(self.disk.clone(), last.unwrap_or(0), |_, record| {
            grown += record.len() as u64;
            replay(&mut engine, record);
            Ok(())
        })?;
        opened.writer.segment_bytes_max(self.segment_bytes);
        // Some servers preallocate the log.
        opened.writer.preallocate(self.segment_bytes % 3 * 300);
        engine.replayed();
        Ok((engine, opened.writer, grown))
    }
}

/// The reply in place of one that depends on lost records.
fn refused() -> Vec<u8> {
    let mut bytes = Vec::new();
    Reply::Refused { operation: None, refusal: Refusal::DiskLost }.write(&mut bytes);
    bytes
}

fn fact(record: &[u8]) -> Option<LogFact> {
    match LogRecord::decode(record) {
        Ok(LogRecord::Commit { txn, at, .. }) => Some(LogFact::Committed(txn, at)),
        Ok(LogRecord::Prepare { txn, participants, .. }) => {
            Some(LogFact::VotedYes(txn, participants.iter().collect()))
        }
        Ok(LogRecord::Decide { txn, decision, .. }) => Some(LogFact::Decided(txn, decision)),
        _ => None,
    }
}

impl Cluster {
    pub(super) fn is_up(&self, server: usize, epoch: u64) -> bool {
        self.servers[server].running.is_some() && self.servers[server].epoch == epoch
    }

    /// Steps an engine and handles its effects.
    fn step(&mut self, at: usize, act: impl FnOnce(&mut Engine, &mut Effects)) {
        let server = &mut self.servers[at];
        let Some(running) = &mut server.running else { return };
        let mut effects = Effects::default();
        let before = running.engine.lsn();
        act(&mut running.engine, &mut effects);
        let facts = (before + 1..).zip(effects.records().map(fact));
        server.facts.extend(facts.filter_map(|(lsn, fact)| Some((lsn, fact?))));
        let mut out = Vec::new();
        for reply in &effects.replies {
            let bytes = effects.bytes[reply.bytes.clone()].to_vec();
            let waits = reply.needs_lsn > running.synced;
            if waits && !running.failed {
                running.held.push(DelayedReply {
                    needs_lsn: reply.needs_lsn,
                    caller: reply.caller,
                    reply: bytes,
                });
            } else {
                out.push((reply.caller, if waits { refused() } else { bytes }));
            }
        }
        if !running.failed && !effects.record_ends.is_empty() {
            let before = running.log.len();
            running.log.extend_from_slice(&effects.log);
            running.ends.extend(effects.record_ends.iter().map(|end| before + end));
        }
        if running.engine.has_work() {
            running.background.take().into_iter().for_each(Waker::wake);
        }
        out.into_iter().for_each(|(caller, reply)| self.reply(caller, reply));
        effects.vote_queries.iter().for_each(|ask| self.ask(at, ask));
        self.begin_write(at);
    }

    fn begin_write(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let Some(running) = &mut server.running else { return };
        if running.is_writing || running.failed || running.ends.is_empty() {
            return;
        }
        running.is_writing = true;
        let (epoch, lsn) = (server.epoch, running.engine.lsn());
        let us = self.takes([4, at as u64, epoch, lsn]) / 4;
        self.after(us, SimulationEvent::Write { server: at, epoch });
    }

    pub(super) fn handle(&mut self, at: usize, caller: Caller, request: &[u8]) {
        let now = self.clock(at);
        self.step(at, |engine, effects| {
            if let Err(malformed) = engine.handle(now, caller, request, effects) {
                panic!("malformed request: {malformed}");
            }
        });
    }

    pub(super) fn on_news(&mut self, at: usize, connection: u64, client: u64, heartbeat: ClientHeartbeat) {
        if let Some(running) = &mut self.servers[at].running {
            running.engine.hold(connection, heartbeat.oldest, heartbeat.more);
            running.engine.on_settled(connection, client, &heartbeat.settled);
        }
    }

    pub(super) fn on_vote(&mut self, at: usize, ask: &VoteQuery, vote: &[u8]) {
        let now = self.clock(at);
        // A server whose disk has failed does not vote.
        let Ok(Reply::Vote(vote)) = Reply::decode(vote) else { return };
        let Some(running) = &self.servers[at].running else { return };
        if running.failed {
            return;
        }
        let before = running.engine.undecided().count();
        self.step(at, |engine, effects| engine.on_vote(now, ask, &vote, effects));
        let after = self.servers[at].running.as_ref().map_or(0, |running| running.engine.undecided().count());
        self.counts.recovered += u64::from(after < before);
    }

    pub(super) fn tick(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let heartbeats =
            self.servers[at].running.as_ref().and_then(|running| running.heartbeats.as_ref()?.upgrade());
        if let Some(heartbeats) = heartbeats {
            self.on_news(at, OWN, heartbeats.client(), heartbeats.heartbeat());
        }
        let now = self.clock(at);
        self.step(at, |engine, effects| engine.tick(now, effects));
        self.after(TICK_US, SimulationEvent::Tick { server: at, epoch });
    }

    /// Whether a server's logical clock is ahead of physical time.
    pub(crate) fn is_ahead(&mut self, at: usize) -> bool {
        let now = self.clock(at);
        self.servers[at].running.as_mut().is_none_or(|running| running.engine.clock(now).ms() > now.wall_ms)
    }

    /// Recovers all undecided transactions of a server, as a reader that waits for them would.
    pub(crate) fn recover_all(&mut self, at: usize) {
        let now = self.clock(at);
        self.step(at, |engine, effects| {
            let undecided: Vec<TxnId> = engine.undecided().collect();
            undecided.into_iter().for_each(|txn| engine.recover(now, txn, effects));
        });
    }

    pub(super) fn write(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let Some(running) = &mut self.servers[at].running else { return };
        let (log, ends) = (take(&mut running.log), take(&mut running.ends));
        running.writing = LogRecord::first_seen(&log, &ends);
        let written = running.writer.append(&log, &ends);
        running.grown += log.len() as u64;
        let next = running.writer.next_lsn();
        if self.disk_failed(at, written) {
            return;
        }
        let us = self.takes([5, at as u64, epoch, next]);
        self.after(us, SimulationEvent::Sync { server: at, epoch });
    }

    pub(super) fn sync(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let Some(running) = &mut self.servers[at].running else { return };
        let synced = running.writer.sync();
        if self.disk_failed(at, synced) {
            return;
        }
        let server = &mut self.servers[at];
        let Some(running) = &mut server.running else { return };
        running.synced = running.writer.synced_lsn();
        server.synced = running.synced;
        running.is_writing = false;
        let (ready, held) =
            take(&mut running.held).into_iter().partition(|held| held.needs_lsn <= running.synced);
        running.held = held;
        if running.grown >= server.checkpoint_bytes && running.checkpoint.is_none() {
            running.grown = 0;
            running.checkpoint = Some(running.engine.checkpoint());
            let us = self.takes([6, at as u64, epoch, 0]) * 4;
            self.after(us, SimulationEvent::Checkpoint { server: at, epoch });
        }
        for DelayedReply { caller, reply, .. } in ready {
            self.reply(caller, reply);
        }
        self.begin_write(at);
    }

    pub(super) fn write_checkpoint(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let server = &mut self.servers[at];
        let Some(running) = &mut server.running else { return };
        let Some(mut state) = running.checkpoint.take() else { return };
        let written = checkpoint::write(&server.disk, state.lsn(), |take| state.write(take));
        let forgotten =
            written.and_then(|_| running.writer.delete_up_to(state.lsn().min(running.writer.synced_lsn())));
        if self.servers[at].disk.power_is_lost() {
            return self.lose_power(at);
        }
        // The log is complete without the checkpoint.
        self.counts.checkpoints += u64::from(forgotten.is_ok());
    }

    /// Handles a failed disk operation. Returns whether it failed.
    fn disk_failed(&mut self, at: usize, done: Result<(), LogError>) -> bool {
        if done.is_ok() {
            return false;
        }
        if self.servers[at].disk.power_is_lost() {
            self.lose_power(at);
            return true;
        }
        self.counts.disk_failures += 1;
        let Some(running) = &mut self.servers[at].running else { return true };
        running.failed = true;
        let (synced, held) = (running.synced, take(&mut running.held));
        let lost =
            [running.writing, LogRecord::first_seen(&running.log, &running.ends)].into_iter().flatten().min();
        self.step(at, |engine, effects| engine.freeze(synced, lost, effects));
        held.into_iter().for_each(|held| self.reply(held.caller, refused()));
        true
    }

    fn lose_power(&mut self, at: usize) {
        self.counts.power_losses += 1;
        let (seed, down_us) = self.servers[at].outage;
        self.stop(at, Some(seed), down_us);
    }

    /// Ends a server process; a power failure also loses unsynced bytes.
    pub(crate) fn stop(&mut self, at: usize, power: Option<u64>, down_us: u64) {
        let server = &mut self.servers[at];
        server.disk.repair();
        if server.running.take().is_none() {
            return;
        }
        if let Some(seed) = power {
            server.disk.crash(&mut Random::new(seed));
        }
        self.changed.push(at);
        // Replies in flight may arrive; requests in flight are lost.
        self.cut_all(|_, server| server == at, 0, power.unwrap_or(at as u64) % 5);
        self.cut_all(|peer, _| peer == peer_of_server(at), 4, 0);
        self.after(down_us, SimulationEvent::Start { server: at });
    }

    pub(crate) fn start(&mut self, at: usize) {
        let server = &mut self.servers[at];
        if server.running.is_some() {
            return;
        }
        let (engine, writer, grown) = match server.recover() {
            Ok(recovered) => recovered,
            Err(_) if server.disk.power_is_lost() => {
                let (seed, down_us) = server.outage;
                server.disk.repair();
                server.disk.crash(&mut Random::new(seed));
                return self.after(down_us, SimulationEvent::Start { server: at });
            }
            // Try again until the disk is repaired.
            Err(_) if server.disk.is_faulty() => {
                return self.after(100_000, SimulationEvent::Start { server: at });
            }
            Err(error) => panic!("server {at} does not start: {error}"),
        };
        let synced = writer.synced_lsn();
        assert!(
            synced >= server.synced,
            "server {at}: {synced} of {} synced records are left",
            server.synced
        );
        assert_eq!(synced, engine.lsn(), "server {at}");
        if let Err(wrong) = engine.audit() {
            panic!("server {at} after its restart: {wrong}");
        }
        server.facts.retain(|(lsn, _)| *lsn <= synced);
        server.synced = synced;
        server.epoch += 1;
        server.started_us = self.schedule.now_us();
        server.running = Some(RunningServer {
            engine,
            writer,
            log: Vec::new(),
            writing: None,
            ends: Vec::new(),
            held: Vec::new(),
            synced,
            failed: false,
            is_writing: false,
            grown,
            checkpoint: None,
            background: None,
            heartbeats: None,
        });
        let epoch = server.epoch;
        self.counts.restarts += u64::from(epoch > 1);
        self.changed.push(at);
        self.after(TICK_US, SimulationEvent::Tick { server: at, epoch });
    }
}

/// Background work that a server's engine asks for.
#[derive(Debug, Default)]
pub struct BackgroundWork {
    /// Whether the task had to wait for it.
    pub waited: bool,
    /// Nodes over the size limit.
    pub full: Vec<NodeId>,
    /// Nodes over the load limit, and the keys to split them at.
    pub hot: Vec<(NodeId, Key)>,
    /// Empty leaves.
    pub empty: Vec<NodeId>,
}

/// Waits until a server's engine asks for background work, and takes it.
pub async fn next_work(cluster: &SharedCluster, server: usize) -> BackgroundWork {
    let mut waited = false;
    poll_fn(|context| {
        let mut cluster = cluster.borrow_mut();
        let Some(running) = &mut cluster.servers[server].running else { return Poll::Pending };
        if !running.engine.has_work() {
            running.background = Some(context.waker().clone());
            waited = true;
            return Poll::Pending;
        }
        let engine = &mut running.engine;
        let (full, hot, empty) = (engine.take_full(), engine.take_hot(), engine.take_empty());
        Poll::Ready(BackgroundWork { waited, full, hot, empty })
    })
    .await
}
