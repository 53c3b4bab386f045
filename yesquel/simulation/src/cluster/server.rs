//! A storage server: the core and the log of a group on a simulated disk, driven by events as
//! `yesquel-server` drives them by threads.

mod writing;

use super::{
    Cluster, SharedCluster, SimulationEvent,
    laws::ServerLaws,
    network::{OWN, link_of},
    outgoing::{ReplyNumbers, StepOutputs},
    peer_of_server,
};
use crate::disk::SimulatedDisk;
use std::{
    future::poll_fn,
    sync::Weak,
    task::{Poll, Waker},
};
use yesquel_engine::{Caller, Engine, EngineSettings, LogRecord, Now};
use yesquel_log::LogIdentity;
use yesquel_model::{GroupEpoch, ServerId, Timestamp, TxnId};
use yesquel_node::{
    CheckpointWriter, Durability, GroupCore, GroupLog, GroupWork, LogOptions, LogSizes, OpenError,
    OpenedGroup, PeerQuery, ReplyQueues, ReplySink, open_group,
};
use yesquel_seeds::Random;
use yesquel_transport::HeartbeatSource;
use yesquel_wire::{ClientHeartbeat, Decision, Destination, Malformed, Reply, Request, SettledReport};

const TICK_US: u64 = 50_000;
/// Ticks from one comparison of a server's engine with the one made again to the next.
const COMPARED_TICKS: u64 = 16;
/// Returns the first record that differs in two canonical states; `None`: one has no more.
fn first_difference<'a>(
    own: &'a [u8],
    other: &'a [u8],
) -> Option<(Option<LogRecord<'a>>, Option<LogRecord<'a>>)> {
    let record = |all: &mut &'a [u8]| {
        let length = all.split_off(..8)?.first_chunk()?;
        all.split_off(..u64::from_le_bytes(*length) as usize)
    };
    let (mut own, mut other) = (own, other);
    while own != other {
        let (one, another) = (record(&mut own), record(&mut other));
        if one != another {
            let decode = |record: Option<&'a [u8]>| LogRecord::decode(record?).ok();
            return Some((decode(one), decode(another)));
        }
    }
    None
}

/// Interval of reports to the other servers.
const REPORT_US: u64 = 400_000;
/// How far a server's clock may be ahead of real time: its machine's error, what others may be ahead
/// of it, and the ceiling at which it may have started.
const AHEAD_MS: u64 = 3_000;
/// How long a queued prepare is not refused by recovery, less what a step may be late.
const QUEUED_MS: u64 = 1_900;

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

/// A running server.
pub(crate) struct RunningServer {
    pub(super) core: GroupCore,
    /// An engine made from a checkpoint at the start and the records since, as a replica's.
    made_again: Engine,
    log: GroupLog<SimulatedDisk>,
    is_writing: bool,
    /// When the next write begins, if none is under way.
    write_at_us: Option<u64>,
    /// Until then records accumulate, unless a reply waits for a sync.
    pause_until_us: u64,
    /// When a sync is due that the durability does not make.
    sync_by_us: Option<u64>,
    /// When the next attempt to write to a full disk begins.
    retry_at_us: Option<u64>,
    checkpoint: Option<CheckpointWriter<SimulatedDisk>>,
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
    /// Its clock was far ahead at some time.
    pub(super) was_ahead: bool,
    /// What the thread of its sockets has not written, and where it is amid connections.
    pub(super) outgoing: ReplyQueues,
    pub(super) unwritten: Vec<u64>,
    pub(super) reply_numbers: ReplyNumbers,
    /// Number of steps that left something for connections.
    pub(super) rounds: u64,
    /// Where it listens.
    pub(super) address: usize,
    /// The thread of its sockets is interrupted, and goes on later.
    pub(super) is_interrupted: bool,
    /// Its process is stopped until then.
    pub(super) frozen_until_us: u64,
    pub(super) checkpoint_bytes: u64,
    pub(super) segment_bytes: u64,
    /// How long ends of transactions are kept.
    pub(super) kept_ms: u64,
    pub(super) durability: Durability,
    /// Of the next power failure: seed of what is lost, time until the restart.
    pub(super) outage: (u64, u64),
    /// What its log states, with the records' numbers.
    facts: Vec<(u64, LogFact)>,
    /// Highest record that was ever synced.
    synced: u64,
    pub(super) laws: ServerLaws,
    /// The state by the records when it stopped: canonical form, number of ends, last record.
    before_stop: Option<(Vec<u8>, usize, u64)>,
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
            was_ahead: false,
            outgoing: ReplyQueues::default(),
            unwritten: Vec::new(),
            reply_numbers: ReplyNumbers::default(),
            rounds: 0,
            address: number,
            is_interrupted: false,
            frozen_until_us: 0,
            checkpoint_bytes: u64::MAX,
            segment_bytes: u64::MAX,
            kept_ms: EngineSettings::default().outcomes_kept_ms,
            durability: Durability::Sync,
            outage: (0, 0),
            facts: Vec::new(),
            synced: 0,
            laws: ServerLaws::default(),
            before_stop: None,
        }
    }

    fn settings(&self) -> EngineSettings {
        EngineSettings {
            server: ServerId(self.number as u16),
            // Some servers recover before those behind them, in group order.
            recover_after_ms: [50, 400, 200][self.number % 3],
            grace_ms: 2_000,
            // Snapshots of some servers outlive a restart.
            return_ms: 1_000 * ((self.number as u64 + 1) % 2),
            // At two cells a node with many is split into parts of one.
            node_cells_max: 4 - self.number % 3,
            node_load_max: 5,
            outcomes_kept_ms: self.kept_ms,
            // At some servers few nodes can be watched.
            watched_nodes_max: 3 + 5 * (self.number % 3),
            watches_max: 5 + 7 * ((self.number + 1) % 3),
            ..EngineSettings::default()
        }
    }

    /// What its log states.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &LogFact> {
        self.facts.iter().map(|(_, fact)| fact)
    }

    /// Loads the checkpoint and the log.
    fn open(&self) -> Result<OpenedGroup<SimulatedDisk>, OpenError> {
        let options = LogOptions { checkpoint_bytes: self.checkpoint_bytes, durability: self.durability };
        // Some servers preallocate the log.
        let preallocated_bytes = self.segment_bytes % 3 * 300;
        let sizes = LogSizes { segment_bytes_max: self.segment_bytes, preallocated_bytes };
        let identity = LogIdentity { group: self.number as u16, ..LogIdentity::default() };
        open_group(self.disk.clone(), identity, self.settings(), options, sizes)
    }
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

/// Makes an engine from a checkpoint of this moment.
fn made_again(engine: &Engine, settings: EngineSettings) -> Engine {
    let (mut checkpoint, mut made) = (engine.checkpoint(), Engine::new(settings));
    let written: Result<(), Malformed> = checkpoint.write(|record| {
        made.replay(&LogRecord::decode(record)?);
        Ok(())
    });
    assert_eq!(written, Ok(()));
    made.restored(checkpoint.lsn());
    made
}

impl Cluster {
    pub(super) fn is_up(&self, server: usize, epoch: u64) -> bool {
        self.servers[server].running.is_some() && self.servers[server].epoch == epoch
    }

    /// Steps a server and passes on what the step has left.
    fn step<T>(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut RunningServer, Now, &dyn ReplySink) -> T,
    ) -> Option<T> {
        let now = self.clock(at);
        let server = &mut self.servers[at];
        let running = server.running.as_mut()?;
        let outputs = StepOutputs::default();
        let before = running.core.engine().lsn();
        let result = act(running, now, &outputs);
        let last = running.core.engine().lsn();
        let made = running.core.records().iter().rev().zip((before + 1..=last).rev());
        let made: Vec<(&[u8], u64)> = made.collect();
        let (mut refused, mut settled) = (Vec::new(), Vec::new());
        for (record, lsn) in made.into_iter().rev() {
            server.facts.extend(fact(record).map(|fact| (lsn, fact)));
            if let Ok(record) = LogRecord::decode(record) {
                let horizon = running.made_again.report().0.horizon;
                server.laws.on_record(at, &record, horizon, |txn| running.core.engine().queued_since_ms(txn));
                if let LogRecord::LowWater { low, next } = &record {
                    server.laws.on_low_water(at, (*low, *next), |held| running.made_again.is_kept(held));
                }
                if let LogRecord::Settled { client, report } = &record {
                    settled.push((*client, report.clone()));
                }
                let is_prepared = |txn| running.made_again.undecided().any(|other| other == txn);
                let is_prepared = matches!(&record, LogRecord::Decide { txn, .. } if is_prepared(*txn));
                server.laws.paths.on_record(&record, is_prepared);
                if let LogRecord::Refuse { txn, participants, .. } = &record {
                    refused.push((*txn, participants.iter().collect::<Vec<ServerId>>()));
                }
                running.made_again.replay(&record);
            }
        }
        if running.core.has_work() {
            running.background.take().into_iter().for_each(Waker::wake);
        }
        let queries = running.core.take_queries();
        self.pass_on(at, outputs);
        settled.into_iter().for_each(|(client, report)| self.check_settled(at, client, &report));
        refused.into_iter().for_each(|(txn, participants)| self.check_refused(at, txn, &participants));
        queries.into_iter().for_each(|query| self.ask(at, query));
        self.begin_write(at);
        Some(result)
    }

    /// Checks that a server was not asked for a vote by recovery while a server before it, in group
    /// order, has the transaction in its queue, of a client that is connected.
    fn check_refused(&self, at: usize, txn: TxnId, participants: &[ServerId]) {
        for before in participants.iter().map(|server| usize::from(server.0)).filter(|before| *before < at) {
            let SimulatedServer { running: Some(running), laws, .. } = &self.servers[before] else {
                continue;
            };
            // A client that has lost the connection asks all of them for the outcome.
            let mut connections = laws.connections_of(txn).peekable();
            if connections.peek().is_none()
                || connections.any(|connection| !self.is_open(link_of(connection)))
            {
                continue;
            }
            let since_ms = running.core.engine().queued_since_ms(txn);
            let is_new = since_ms.is_some_and(|ms| ms + QUEUED_MS > self.wall_clock(before).uptime_ms);
            assert!(!is_new, "server {at} was asked for {txn}, which server {before} has queued");
        }
    }

    /// Checks that a server does not take a transaction as settled that has committed somewhere while
    /// another participant is in doubt, which would be told that there was no vote.
    fn check_settled(&self, at: usize, client: u64, report: &SettledReport) {
        let this = ServerId(at as u16);
        for server in &self.servers {
            let Some(running) = &server.running else { continue };
            let in_doubt = running.core.engine().undecided();
            for txn in in_doubt.filter(|txn| txn.client == client && report.covers(txn.number)) {
                let takes_part = |fact: &LogFact| match fact {
                    LogFact::VotedYes(of, participants) => *of == txn && participants.contains(&this),
                    _ => false,
                };
                let has_committed =
                    |fact: &LogFact| matches!(fact, LogFact::Decided(of, Decision::Commit(_)) if *of == txn);
                let is_half = server.facts().any(takes_part)
                    && self.servers.iter().any(|other| other.facts().any(has_committed));
                let other = server.number;
                assert!(!is_half, "server {at} takes {txn} as settled; server {other} is in doubt about it");
            }
        }
    }

    /// Checks that a server's clock is near real time: what a wrong clock gives out must not reach
    /// others.
    fn check_clock(&mut self, at: usize) {
        // Most clocks must be right for a wrong one to be found.
        let wrong = self.servers.iter().filter(|server| server.was_ahead).count();
        if wrong > 1 || self.servers.len() < 3 {
            return;
        }
        let now_ms = self.real_ms();
        let last = self.engine(at).map_or(0, |engine| engine.last_timestamp().ms());
        assert!(last <= now_ms + AHEAD_MS, "server {at}: its clock is {} ms ahead", last - now_ms);
    }

    pub(super) fn handle(&mut self, at: usize, caller: Caller, request: &[u8]) {
        if let Some(numbers) = &mut self.numbers {
            numbers.note(request);
        }
        if Request::inspects(request) {
            return self.inspect(at, caller, request);
        }
        let now_ms = self.wall_clock(at).uptime_ms;
        self.servers[at].laws.on_request(now_ms, caller, request);
        let waits = self.step(at, |running, now, sink| {
            let before = running.core.engine().waiting_count();
            if let Err(malformed) = running.core.handle(now, caller, request, None, sink) {
                panic!("malformed request: {malformed}");
            }
            let engine = running.core.engine();
            let queued_since_ms = match Request::decode(request) {
                Ok(Request::Prepare { txn, .. }) => engine.queued_since_ms(txn),
                _ => None,
            };
            (engine.waiting_count() > before, queued_since_ms.is_some())
        });
        if let Some((waits, is_queued)) = waits
            && (waits || is_queued)
        {
            self.servers[at].laws.paths.on_wait(request, is_queued);
        }
    }

    /// Answers a question about trees or the directory.
    fn inspect(&mut self, at: usize, caller: Caller, request: &[u8]) {
        self.step(at, |running, _, sink| {
            let Ok(Some(report)) = running.core.inspect(request) else {
                panic!("no report answers {:?}", Request::decode(request))
            };
            let mut reply = Vec::new();
            Reply::Report(&report).write(&mut reply);
            sink.deliver(caller, &reply);
        });
    }

    /// Handles a request of a connection, which names a group.
    pub(super) fn handle_message(&mut self, at: usize, caller: Caller, message: &[u8]) {
        let (destination, request) = match Destination::split(message) {
            Ok(parts) => parts,
            Err(malformed) => panic!("malformed destination: {malformed}"),
        };
        let own = self.servers[at].running.as_ref().map(|running| running.core.destination());
        if own == Some(destination) {
            return self.handle(at, caller, request);
        }
        self.step(at, |running, _, sink| running.core.correct(caller, destination, sink));
    }

    /// The configuration of a server's group changes.
    pub(super) fn raise_epoch(&mut self, at: usize) {
        self.step(at, |running, _, sink| {
            let GroupEpoch { era, .. } = running.core.engine().epoch();
            let index = running.core.engine().lsn() + 1;
            running.core.raise_epoch(GroupEpoch { era, index }, sink);
        });
    }

    pub(super) fn on_news(&mut self, at: usize, connection: u64, client: u64, heartbeat: ClientHeartbeat) {
        self.servers[at].laws.on_hold(connection, heartbeat.oldest);
        self.step(at, |running, _, _| running.core.on_heartbeat(connection, client, &heartbeat));
    }

    /// Takes the answer of another server to a question.
    pub(super) fn on_peer_reply(&mut self, at: usize, query: &PeerQuery, reply: &[u8]) {
        let recovered = self.step(at, |running, now, sink| {
            let before = running.core.engine().undecided().count();
            running.core.on_peer_reply(now, query, reply, sink);
            running.core.engine().undecided().count() < before
        });
        self.counts.recovered += u64::from(recovered == Some(true));
    }

    /// Takes another server's answer to a report.
    pub(super) fn on_report(&mut self, at: usize, sent: Now, reply: &[u8]) {
        self.step(at, |running, now, _| {
            running.core.end_report(now, sent, reply);
        });
    }

    /// Sends reports to the other servers now and then.
    pub(super) fn report(&mut self, at: usize, epoch: u64) {
        if self.is_up(at, epoch) {
            self.send_reports(at);
            self.after(REPORT_US, SimulationEvent::Report { server: at, epoch });
        }
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
        self.step(at, |running, now, sink| running.core.tick(now, sink));
        self.find_closed_notices(at);
        self.check_clock(at);
        // A comparison takes as long as many steps.
        let is_due = (self.schedule.now() / TICK_US).is_multiple_of(COMPARED_TICKS);
        if let Some(running) = self.servers[at].running.as_ref().filter(|_| is_due) {
            // Records after a disk failure reach no disk.
            if running.core.failure().is_none() {
                let (own, again) = (running.core.engine().canonical(), running.made_again.canonical());
                if let Some((own, again)) = first_difference(&own, &again) {
                    panic!("server {at} has {own:?}, and {again:?} made again from checkpoint and log");
                }
            }
        }
        self.after(TICK_US, SimulationEvent::Tick { server: at, epoch });
    }

    /// Whether a server's logical clock is ahead of physical time.
    pub(crate) fn is_ahead(&mut self, at: usize) -> bool {
        let now = self.clock(at);
        self.engine(at).is_none_or(|engine| engine.clock(now).ms() > now.wall_ms)
    }

    /// Whether a server has undecided transactions, or is down.
    pub(crate) fn is_in_doubt(&mut self, at: usize) -> bool {
        self.engine(at).is_none_or(|engine| engine.undecided().next().is_some())
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
        server.frozen_until_us = 0;
        let Some(running) = server.running.take() else { return };
        let made_again = &running.made_again;
        server.before_stop = Some((made_again.canonical(), made_again.ends(), made_again.lsn()));
        if let Some(seed) = power {
            server.disk.crash(&mut Random::new(seed));
        }
        (server.outgoing, server.unwritten, server.is_interrupted) = Default::default();
        self.changed.push(at);
        self.processes[peer_of_server(at)].routes.clear();
        self.close_all_notices(|_, server| server == at);
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
        let OpenedGroup { mut core, log, .. } = match server.open() {
            Ok(opened) => opened,
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
        let clocks = Now { uptime_ms: 0, ..self.wall_clock(at) };
        let wait_ms = core.engine().wait_ms(clocks);
        if wait_ms > 0 {
            return self.after(wait_ms * 1_000, SimulationEvent::Start { server: at });
        }
        core.compare_with(core.engine().server(), self.servers.len() - 1);
        core.set_address(&self.servers[at].address.to_string());
        for other in (0..self.servers.len()).filter(|other| *other != at) {
            // As it is configured: where the other one was first.
            core.set_location(ServerId(other as u16), &other.to_string());
        }
        let server = &mut self.servers[at];
        let synced = core.synced();
        assert!(
            synced >= server.synced,
            "server {at}: {synced} of {} synced records are left",
            server.synced
        );
        assert_eq!(synced, core.engine().lsn(), "server {at}");
        if let Err(wrong) = core.engine().audit() {
            panic!("server {at} after its restart: {wrong}");
        }
        let is_relaxed = server.durability != Durability::Sync;
        let return_ms = server.settings().return_ms;
        server.laws.on_start(at, core.engine().last_timestamp(), is_relaxed, return_ms);
        if let Some((state, ends, _)) = server.before_stop.take_if(|(.., lsn)| *lsn == core.engine().lsn()) {
            let is_same = state == core.engine().canonical() && ends == core.engine().ends();
            assert!(is_same, "server {at}: after its restart its state differs");
        }
        let made_again = made_again(core.engine(), server.settings());
        server.facts.retain(|(lsn, _)| *lsn <= synced);
        server.synced = synced;
        server.epoch += 1;
        server.started_us = self.schedule.now();
        server.running = Some(RunningServer {
            core,
            made_again,
            log,
            is_writing: false,
            write_at_us: None,
            pause_until_us: 0,
            sync_by_us: None,
            retry_at_us: None,
            checkpoint: None,
            background: None,
            heartbeats: None,
        });
        let epoch = server.epoch;
        self.counts.restarts += u64::from(epoch > 1);
        self.changed.push(at);
        self.after(TICK_US, SimulationEvent::Tick { server: at, epoch });
        self.report(at, epoch);
    }
}

/// Waits until a server's engine asks for background work, and takes it. Returns whether it had to
/// wait.
pub async fn next_work(cluster: &SharedCluster, server: usize) -> (GroupWork, bool) {
    let mut waited = false;
    let work = poll_fn(|context| {
        let mut cluster = cluster.borrow_mut();
        let Some(running) = &mut cluster.servers[server].running else { return Poll::Pending };
        if !running.core.has_work() {
            running.background = Some(context.waker().clone());
            waited = true;
            return Poll::Pending;
        }
        Poll::Ready(running.core.take_work())
    })
    .await;
    (work, waited)
}
