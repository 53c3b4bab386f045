//! Groups with one table each, whose questions reach each other at once.

use std::collections::BTreeMap;
use yesquel_engine::{Caller, Effects, Engine, EngineSettings, LogRecord, Now, ReplyDurability, ValueQuery};
use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    ByteWriter, Decision, Expect, NewNode, NodeKind, NodeOperation, Operations, Participants, Question,
    Questions, Reply, Request, Vote, WriteOperation,
};

/// A reply, and whether it waits for a sync.
pub(crate) type Answer = (Vec<u8>, ReplyDurability);

pub(crate) struct Group {
    pub(crate) engine: Engine,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) replies: BTreeMap<u64, Answer>,
    /// It does not answer other groups.
    pub(crate) is_down: bool,
}

pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
    pub(crate) now: Now,
    requests: u64,
    /// Requests that each connection waits for.
    callers: BTreeMap<u64, u64>,
    /// Requests handled, and questions between groups.
    pub(crate) messages: u64,
    memory_bytes_max: usize,
}

pub(crate) fn txn(client: u64, number: u64) -> TxnId {
    TxnId { client, number }
}

pub(crate) fn node(group: usize) -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(group as u16))
}

fn settings(group: usize, memory_bytes_max: usize) -> EngineSettings {
    let server = ServerId(group as u16);
    EngineSettings { server, grace_ms: 100, memory_bytes_max, ..EngineSettings::default() }
}

/// The reply of a request.
pub(crate) fn decoded(answer: &Answer) -> Reply<'_> {
    Reply::decode(&answer.0).unwrap()
}

impl Groups {
    pub(crate) fn new(count: usize) -> Groups {
        Groups::with_memory(count, usize::MAX)
    }

    /// Groups with a memory budget.
    pub(crate) fn with_memory(count: usize, memory_bytes_max: usize) -> Groups {
        let group = |number: usize| Group {
            engine: Engine::new(settings(number, memory_bytes_max)),
            log: Vec::new(),
            replies: BTreeMap::new(),
            is_down: false,
        };
        let mut groups = Groups {
            groups: (0..count).map(group).collect(),
            now: Now { wall_ms: 10_000_000, uptime_ms: 0 },
            requests: 0,
            callers: BTreeMap::new(),
            messages: 0,
            memory_bytes_max,
        };
        for group in 0..count {
            let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
            let create = NodeOperation { node: node(group), write: WriteOperation::Create(new) };
            let operations = Operations::encode(&[create]);
            let operations = Operations::decode(&operations).unwrap();
            let (txn, birth, seen) = (txn(1_000, 1), groups.birth(), Timestamp::ZERO);
            let (snapshot, lease, staged) = (None, 0, None);
            let request = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
            assert!(matches!(decoded(&groups.ask(group, 0, &request)), Reply::Committed(_)));
        }
        groups
    }

    /// The birth of a transaction that begins to commit now.
    pub(crate) fn birth(&self) -> Timestamp {
        Timestamp::from_ms(self.now.wall_ms)
    }

    /// Sends a request on a connection and returns its number.
    pub(crate) fn send(&mut self, group: usize, connection: u64, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.requests += 1;
        self.messages += 1;
        let caller = Caller { connection, request: self.requests };
        self.callers.insert(self.requests, connection);
        let mut effects = Effects::default();
        self.groups[group].engine.handle(self.now, caller, &bytes, &mut effects).unwrap();
        self.settle(group, effects);
        caller.request
    }

    /// Sends a request that is answered at once.
    pub(crate) fn ask(&mut self, group: usize, connection: u64, request: &Request<'_>) -> Answer {
        let number = self.send(group, connection, request);
        self.groups[group].replies.remove(&number).expect("an answer")
    }

    /// Takes the answer to a request, if it has come.
    pub(crate) fn answer(&mut self, group: usize, request: u64) -> Option<Answer> {
        self.groups[group].replies.remove(&request)
    }

    /// Logs the records of a step, and lets the other groups answer its questions.
    fn settle(&mut self, group: usize, effects: Effects) {
        let of = &mut self.groups[group];
        of.log.extend(effects.records().map(<[u8]>::to_vec));
        assert_eq!(of.engine.lsn(), of.log.len() as u64);
        for reply in &effects.replies {
            let answer = (effects.bytes[reply.bytes.clone()].to_vec(), reply.durability);
            assert!(of.replies.insert(reply.caller.request, answer).is_none());
        }
        let mut bytes = Vec::new();
        for query in effects.vote_queries {
            bytes.clear();
            query.write(&mut bytes);
            let Some(answer) = self.relay(usize::from(query.server.0), &bytes) else { continue };
            let Reply::Vote(vote) = decoded(&answer) else { panic!("{:?}", decoded(&answer)) };
            let mut effects = Effects::default();
            self.groups[group].engine.on_vote(self.now, &query, &vote, &mut effects);
            self.settle(group, effects);
        }
        self.relay_value_queries(group, effects.value_queries);
        for query in effects.end_queries {
            bytes.clear();
            query.write(&mut bytes);
            let Some(answer) = self.relay(usize::from(query.server.0), &bytes) else { continue };
            let Reply::Ended(flags) = decoded(&answer) else { panic!("{:?}", decoded(&answer)) };
            let mut effects = Effects::default();
            self.groups[group].engine.on_ended(&query, flags, &mut effects);
            self.settle(group, effects);
        }
    }

    /// Lets the other groups answer messages about long values.
    fn relay_value_queries(&mut self, group: usize, queries: Vec<ValueQuery>) {
        for query in queries {
            let mut bytes = Vec::new();
            query.write(&mut bytes);
            let Some(answer) = self.relay(usize::from(query.server.0), &bytes) else { continue };
            let mut effects = Effects::default();
            self.groups[group].engine.on_value_reply(&query, &decoded(&answer), &mut effects);
            self.settle(group, effects);
        }
    }

    /// Lets a group answer another one.
    fn relay(&mut self, to: usize, bytes: &[u8]) -> Option<Answer> {
        if self.groups[to].is_down {
            return None;
        }
        let request = Request::decode(bytes).unwrap();
        Some(self.ask(to, 1_000_000, &request))
    }

    /// Lets time pass in steps of 50 ms.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 50 {
            self.now.uptime_ms += 50;
            self.now.wall_ms += 50;
            for group in 0..self.groups.len() {
                let mut effects = Effects::default();
                self.groups[group].engine.tick(self.now, &mut effects);
                self.settle(group, effects);
            }
        }
    }

    /// Groups tell each other their horizons.
    pub(crate) fn exchange_reports(&mut self) {
        for from in 0..self.groups.len() {
            let (report, _) = self.groups[from].engine.report();
            for to in (0..self.groups.len()).filter(|to| *to != from) {
                self.groups[to].engine.on_report(ServerId(from as u16), report.clone());
            }
        }
    }

    /// Starts a group anew from its log, of which `lost` records are missing.
    pub(crate) fn restart(&mut self, group: usize, lost: usize) {
        let of = &mut self.groups[group];
        of.log.truncate(of.log.len() - lost);
        let mut engine = Engine::new(settings(group, self.memory_bytes_max));
        of.log.iter().for_each(|record| engine.replay(&LogRecord::decode(record).unwrap()));
        engine.replayed();
        of.engine = engine;
    }

    /// Starts a group anew from a checkpoint of the present.
    pub(crate) fn restart_from_checkpoint(&mut self, group: usize) {
        let of = &mut self.groups[group];
        let written = crate::common::write(&mut of.engine.checkpoint());
        of.engine = crate::common::start(settings(group, self.memory_bytes_max), &written, &of.log);
    }

    /// Makes a group's engine again, from its log or from a checkpoint of the present.
    pub(crate) fn made_again(&self, group: usize, from_checkpoint: bool) -> Engine {
        let of = &self.groups[group];
        let settings = settings(group, self.memory_bytes_max);
        if from_checkpoint {
            return crate::common::restore(settings, &crate::common::write(&mut of.engine.checkpoint()));
        }
        let mut engine = Engine::new(settings);
        of.log.iter().for_each(|record| engine.replay(&LogRecord::decode(record).unwrap()));
        engine
    }

    pub(crate) fn disconnect(&mut self, connection: u64) {
        for group in &mut self.groups {
            group.engine.disconnected(connection);
        }
    }

    /// Sends a prepare of one cell.
    pub(crate) fn prepare(
        &mut self,
        group: usize,
        txn: TxnId,
        key: &[u8],
        waits: bool,
        participants: &[usize],
    ) -> u64 {
        let birth = self.birth();
        self.prepare_born(group, (txn, birth), key, waits, participants)
    }

    pub(crate) fn prepare_born(
        &mut self,
        group: usize,
        (txn, birth): (TxnId, Timestamp),
        key: &[u8],
        waits: bool,
        participants: &[usize],
    ) -> u64 {
        self.prepare_keys(group, (txn, birth), &[key], waits, participants)
    }

    /// Sends a prepare of two cells, at groups 0 and 1.
    pub(crate) fn prepare_two(&mut self, group: usize, txn: TxnId, keys: [&[u8]; 2], waits: bool) -> u64 {
        let birth = self.birth();
        self.prepare_keys(group, (txn, birth), &keys, waits, &[0, 1])
    }

    fn prepare_keys(
        &mut self,
        group: usize,
        (txn, birth): (TxnId, Timestamp),
        keys: &[&[u8]],
        waits: bool,
        participants: &[usize],
    ) -> u64 {
        self.prepare_operations(group, (txn, birth), &put(group, keys), waits, participants)
    }

    /// Sends a prepare of encoded operations.
    pub(crate) fn prepare_operations(
        &mut self,
        group: usize,
        (txn, birth): (TxnId, Timestamp),
        operations: &[u8],
        waits: bool,
        participants: &[usize],
    ) -> u64 {
        let participants = encoded(participants);
        let request = Request::Prepare {
            txn,
            birth,
            waits,
            snapshot: None,
            seen: Timestamp::ZERO,
            participants: Participants::decode(&participants).unwrap(),
            lease: 0,
            staged: None,
            operations: Operations::decode(operations).unwrap(),
        };
        self.send(group, txn.client, &request)
    }

    /// Prepares, and expects a yes.
    pub(crate) fn voted(
        &mut self,
        group: usize,
        txn: TxnId,
        key: &[u8],
        participants: &[usize],
    ) -> Timestamp {
        let request = self.prepare(group, txn, key, false, participants);
        self.vote_of(group, request)
    }

    /// Takes the answer to a prepare, a yes.
    pub(crate) fn vote_of(&mut self, group: usize, request: u64) -> Timestamp {
        let answer = self.answer(group, request).expect("a vote");
        let Reply::Voted(at) = decoded(&answer) else { panic!("{:?}", decoded(&answer)) };
        at
    }

    /// Sends a commit of one cell at one group.
    pub(crate) fn commit(&mut self, group: usize, txn: TxnId, key: &[u8]) -> u64 {
        let birth = self.birth();
        self.commit_born(group, (txn, birth), key)
    }

    pub(crate) fn commit_born(&mut self, group: usize, (txn, birth): (TxnId, Timestamp), key: &[u8]) -> u64 {
        let operations = put(group, &[key]);
        let operations = Operations::decode(&operations).unwrap();
        let (snapshot, seen, lease, staged) = (None, Timestamp::ZERO, 0, None);
        let request = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
        self.send(group, txn.client, &request)
    }

    pub(crate) fn decide(
        &mut self,
        group: usize,
        txn: TxnId,
        decision: Decision,
        participants: &[usize],
    ) -> Answer {
        let birth = self.birth();
        self.decide_born(group, (txn, birth), decision, participants)
    }

    pub(crate) fn decide_born(
        &mut self,
        group: usize,
        (txn, birth): (TxnId, Timestamp),
        decision: Decision,
        participants: &[usize],
    ) -> Answer {
        let participants = encoded(participants);
        let participants = Participants::decode(&participants).unwrap();
        self.ask(group, txn.client, &Request::Decide { txn, birth, participants, decision })
    }

    /// Asks for a vote, as a client or as a participant.
    pub(crate) fn vote(&mut self, group: usize, txn: TxnId, birth: Timestamp, is_voter: bool) -> Answer {
        let participants = encoded(&[0, 1]);
        let participants = Participants::decode(&participants).unwrap();
        self.ask(group, 500, &Request::Resolve { txn, birth, participants, is_voter })
    }

    pub(crate) fn outcome(&mut self, group: usize, txn: TxnId, birth: Timestamp) -> Answer {
        self.ask(group, txn.client, &Request::Outcome { txn, birth })
    }

    /// Sends a lookup.
    pub(crate) fn lookup(&mut self, group: usize, connection: u64, key: &[u8]) -> u64 {
        let mut questions = Vec::new();
        Question::Lookup { node: node(group), key }.write(&mut ByteWriter(&mut questions));
        let questions = Questions::decode(&questions).unwrap();
        let seen = Timestamp::ZERO;
        self.send(group, connection, &Request::Read { snapshot: None, seen, questions })
    }

    pub(crate) fn ends(&mut self, group: usize) -> u64 {
        self.groups[group].engine.status(self.now).transactions.ends
    }
}

/// Operations that write some cells.
pub(crate) fn put(group: usize, keys: &[&[u8]]) -> Vec<u8> {
    let write = |key| WriteOperation::Put { key, value: b"value", expect: Expect::Any, is_large: false };
    let operations = keys.iter().map(|key| NodeOperation { node: node(group), write: write(key) });
    Operations::encode(&operations.collect::<Vec<_>>())
}

fn encoded(groups: &[usize]) -> Vec<u8> {
    let servers: Vec<ServerId> = groups.iter().map(|group| ServerId(*group as u16)).collect();
    Participants::encode(&servers)
}

/// Whether a reply is a vote of this kind.
pub(crate) fn is_vote(answer: &Answer, vote: &Vote<'_>) -> bool {
    decoded(answer) == Reply::Vote(*vote)
}
