//! A storage server: an engine, its log on a simulated disk, checkpoints, and
//! replies that wait for the disk, as `yesquel-server` has them on threads.

use crate::{
    disk::SimulatedDisk,
    network::OWN,
    world::{Event, World},
};
use std::{mem::take, sync::Weak, task::Waker};
use yesquel_engine::{Ask, Asker, Checkpoint, Effects, Engine, Record, Settings};
use yesquel_log::{LogError, Writer, checkpoint, open};
use yesquel_model::{Refusal, ServerId, Timestamp, TxnId};
use yesquel_seeds::Random;
use yesquel_transport::Holdings;
use yesquel_wire::{Decision, News, Reply};

const TICK_US: u64 = 50_000;

/// What a record of a log says of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    Committed(TxnId, Timestamp),
    VotedYes(TxnId, Vec<ServerId>),
    Decided(TxnId, Decision),
}

struct Held {
    needs_lsn: u64,
    asker: Asker,
    reply: Vec<u8>,
}

/// A server that is up.
pub(crate) struct Running {
    pub(crate) engine: Engine,
    writer: Writer<SimulatedDisk>,
    /// Records for the disk, and where each ends.
    log: Vec<u8>,
    ends: Vec<usize>,
    /// From when on somebody may read what is on its way to the disk.
    writing: Option<Timestamp>,
    held: Vec<Held>,
    synced: u64,
    pub(crate) failed: bool,
    is_writing: bool,
    /// Bytes of log since the last checkpoint.
    grown: u64,
    checkpoint: Option<Checkpoint>,
    /// Whoever splits nodes, when there are none to be split.
    pub(crate) helper: Option<Waker>,
    pub(crate) holdings: Option<Weak<dyn Holdings>>,
}

pub(crate) struct Server {
    number: usize,
    pub(crate) disk: SimulatedDisk,
    pub(crate) running: Option<Running>,
    /// Counts its lives.
    pub(crate) epoch: u64,
    pub(crate) started_us: u64,
    pub(crate) ahead_ms: i64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) segment_bytes: u64,
    /// What becomes of the disk when the power goes, and how long it is gone.
    pub(crate) outage: (u64, u64),
    /// What its log says, with the records' numbers.
    facts: Vec<(u64, Fact)>,
    /// What was on disk once.
    synced: u64,
}

impl Server {
    pub(crate) fn new(number: usize) -> Server {
        Server {
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

    fn settings(&self) -> Settings {
        Settings {
            server: ServerId(self.number as u16),
            recover_after_ms: 200,
            // Of two a node with many is split in parts of one each.
            node_cells_max: 4 - self.number % 3,
            node_load_max: 6,
            ..Settings::default()
        }
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().map(|(_, fact)| fact)
    }

    /// As `Core::open` does it.
    fn recover(&self) -> Result<(Engine, Writer<SimulatedDisk>, u64), LogError> {
        let mut engine = Engine::new(self.settings());
        let replay = |engine: &mut Engine, bytes: &[u8]| match Record::decode(bytes) {
            Ok(record) => engine.replay(&record),
            Err(malformed) => panic!("a record is none: {malformed}"),
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
        // Of some servers: zeros behind what is written.
        opened.writer.ahead(self.segment_bytes % 3 * 300);
        engine.replayed();
        Ok((engine, opened.writer, grown))
    }
}

/// What is said for a reply that nobody may see any more.
fn refused() -> Vec<u8> {
    let mut bytes = Vec::new();
    Reply::Refused { operation: None, refusal: Refusal::DiskLost }.write(&mut bytes);
    bytes
}

fn fact(record: &[u8]) -> Option<Fact> {
    match Record::decode(record) {
        Ok(Record::Commit { txn, at, .. }) => Some(Fact::Committed(txn, at)),
        Ok(Record::Prepare { txn, participants, .. }) => {
            Some(Fact::VotedYes(txn, participants.iter().collect()))
        }
        Ok(Record::Decide { txn, decision }) => Some(Fact::Decided(txn, decision)),
        _ => None,
    }
}

impl World {
    pub(crate) fn is_up(&self, server: usize, epoch: u64) -> bool {
        self.servers[server].running.is_some() && self.servers[server].epoch == epoch
    }

    /// A step of an engine, and what it brings.
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
                running.held.push(Held { needs_lsn: reply.needs_lsn, asker: reply.asker, reply: bytes });
            } else {
                out.push((reply.asker, if waits { refused() } else { bytes }));
            }
        }
        if !running.failed && !effects.record_ends.is_empty() {
            let before = running.log.len();
            running.log.extend_from_slice(&effects.log);
            running.ends.extend(effects.record_ends.iter().map(|end| before + end));
        }
        if running.engine.has_work() {
            running.helper.take().into_iter().for_each(Waker::wake);
        }
        out.into_iter().for_each(|(asker, reply)| self.reply(asker, reply));
        effects.asks.iter().for_each(|ask| self.ask(at, *ask));
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
        self.after(us, Event::Write { server: at, epoch });
    }

    pub(crate) fn handle(&mut self, at: usize, asker: Asker, request: &[u8]) {
        let now = self.clock(at);
        self.step(at, |engine, effects| {
            if let Err(malformed) = engine.handle(now, asker, request, effects) {
                panic!("a request is none: {malformed}");
            }
        });
    }

    pub(crate) fn hear(&mut self, at: usize, connection: u64, client: u64, news: News) {
        let now = self.clock(at);
        if let Some(running) = &mut self.servers[at].running {
            running.engine.hold(connection, news.oldest, news.more);
            running.engine.known(now, client, news.known);
        }
    }

    pub(crate) fn learn(&mut self, at: usize, ask: Ask, vote: &[u8]) {
        let now = self.clock(at);
        // One whose disk has failed says nothing.
        let Ok(Reply::Vote(vote)) = Reply::decode(vote) else { return };
        let Some(running) = &self.servers[at].running else { return };
        if running.failed {
            return;
        }
        let before = running.engine.undecided().count();
        self.step(at, |engine, effects| engine.learn(now, ask, &vote, effects));
        let after = self.servers[at].running.as_ref().map_or(0, |running| running.engine.undecided().count());
        self.counts.recovered += u64::from(after < before);
    }

    pub(crate) fn tick(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let holdings =
            self.servers[at].running.as_ref().and_then(|running| running.holdings.as_ref()?.upgrade());
        if let Some(holdings) = holdings {
            self.hear(at, OWN, holdings.client(), holdings.news());
        }
        let now = self.clock(at);
        self.step(at, |engine, effects| engine.tick(now, effects));
        self.after(TICK_US, Event::Tick { server: at, epoch });
    }

    /// Whether its clock is ahead of the time.
    pub(crate) fn is_ahead(&mut self, at: usize) -> bool {
        let now = self.clock(at);
        self.servers[at].running.as_mut().is_none_or(|running| running.engine.clock(now).ms() > now.wall_ms)
    }

    /// The undecided are asked about, as somebody who waits for them would
    /// have it done.
    pub(crate) fn recover_all(&mut self, at: usize) {
        let now = self.clock(at);
        self.step(at, |engine, effects| {
            let undecided: Vec<TxnId> = engine.undecided().collect();
            undecided.into_iter().for_each(|txn| engine.recover(now, txn, effects));
        });
    }

    pub(crate) fn write(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let Some(running) = &mut self.servers[at].running else { return };
        let (log, ends) = (take(&mut running.log), take(&mut running.ends));
        running.writing = Record::first_seen(&log, &ends);
        let written = running.writer.append(&log, &ends);
        running.grown += log.len() as u64;
        let next = running.writer.next_lsn();
        if self.went_wrong(at, written) {
            return;
        }
        let us = self.takes([5, at as u64, epoch, next]);
        self.after(us, Event::Sync { server: at, epoch });
    }

    pub(crate) fn sync(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let Some(running) = &mut self.servers[at].running else { return };
        let synced = running.writer.sync();
        if self.went_wrong(at, synced) {
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
            self.after(us, Event::Checkpoint { server: at, epoch });
        }
        for Held { asker, reply, .. } in ready {
            self.reply(asker, reply);
        }
        self.begin_write(at);
    }

    pub(crate) fn write_checkpoint(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let server = &mut self.servers[at];
        let Some(running) = &mut server.running else { return };
        let Some(mut state) = running.checkpoint.take() else { return };
        let written = checkpoint::write(&server.disk, state.lsn(), |take| state.write(take));
        let forgotten =
            written.and_then(|_| running.writer.forget_up_to(state.lsn().min(running.writer.synced_lsn())));
        if self.servers[at].disk.is_gone() {
            return self.lose_power(at);
        }
        // The log is whole without it.
        self.counts.checkpoints += u64::from(forgotten.is_ok());
    }

    /// Whether the disk has failed, and what follows then.
    fn went_wrong(&mut self, at: usize, done: Result<(), LogError>) -> bool {
        if done.is_ok() {
            return false;
        }
        if self.servers[at].disk.is_gone() {
            self.lose_power(at);
            return true;
        }
        self.counts.disk_failures += 1;
        let Some(running) = &mut self.servers[at].running else { return true };
        running.failed = true;
        let (synced, held) = (running.synced, take(&mut running.held));
        let lost =
            [running.writing, Record::first_seen(&running.log, &running.ends)].into_iter().flatten().min();
        self.step(at, |engine, effects| engine.freeze(synced, lost, effects));
        held.into_iter().for_each(|held| self.reply(held.asker, refused()));
        true
    }

    fn lose_power(&mut self, at: usize) {
        self.counts.power_cuts += 1;
        let (seed, down_us) = self.servers[at].outage;
        self.fall(at, Some(seed), down_us);
    }

    /// A server's process ends; with the power what is not synced goes.
    pub(crate) fn fall(&mut self, at: usize, power: Option<u64>, down_us: u64) {
        let server = &mut self.servers[at];
        server.disk.repair();
        if server.running.take().is_none() {
            return;
        }
        if let Some(seed) = power {
            server.disk.crash(&mut Random::new(seed));
        }
        self.changed.push(at);
        // What it has sent may come; nothing that it was sent is done.
        self.cut_all(|_, server| server == at, 0, power.unwrap_or(at as u64) % 5);
        self.cut_all(|peer, _| peer == crate::steps::PROCESSES + at, 4, 0);
        self.after(down_us, Event::Rise { server: at });
    }

    pub(crate) fn rise(&mut self, at: usize) {
        let server = &mut self.servers[at];
        if server.running.is_some() {
            return;
        }
        let (engine, writer, grown) = match server.recover() {
            Ok(recovered) => recovered,
            Err(_) if server.disk.is_gone() => {
                let (seed, down_us) = server.outage;
                server.disk.repair();
                server.disk.crash(&mut Random::new(seed));
                return self.after(down_us, Event::Rise { server: at });
            }
            // It is tried until somebody has mended the disk.
            Err(_) if server.disk.is_faulty() => {
                return self.after(100_000, Event::Rise { server: at });
            }
            Err(error) => panic!("server {at} does not start: {error}"),
        };
        let synced = writer.synced_lsn();
        assert!(
            synced >= server.synced,
            "server {at}: of {} synced records {synced} are left",
            server.synced
        );
        assert_eq!(synced, engine.lsn(), "server {at}");
        if let Err(wrong) = engine.audit() {
            panic!("server {at} after its restart: {wrong}");
        }
        server.facts.retain(|(lsn, _)| *lsn <= synced);
        server.synced = synced;
        server.epoch += 1;
        server.started_us = self.now_us;
        server.running = Some(Running {
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
            helper: None,
            holdings: None,
        });
        let epoch = server.epoch;
        self.counts.restarts += u64::from(epoch > 1);
        self.changed.push(at);
        self.after(TICK_US, Event::Tick { server: at, epoch });
    }
}
