//! Fuzz target for the engine: arbitrary requests, with ticks and restarts between them.

use crate::{input::Input, show};
use std::collections::{BTreeMap, BTreeSet};
use yesquel_engine::{
    Caller, Effects, EndQuery, Engine, EngineSettings, LogRecord, Now, ReplyDurability, ValueQuery, VoteQuery,
};
use yesquel_model::{DepartedContent, KeyRange, LocalId, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    Attribute, ByteWriter, Decision, Direction, Expect, HorizonReport, LargeValue, NewNode, NodeKind,
    NodeOperation, Operations, Participants, Question, Questions, Reply, Request, Scan, SettledReport,
    Staged, TransactionList, ValueOwner, ValueUse, Vote, WriteOperation,
};

/// Each request must have one answer, the nodes must be intact, and the log and the checkpoints
/// must reproduce the engine.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut run = EngineRun::new(&mut input);
    while !input.is_done() {
        run.step(&mut input);
    }
    run.end();
}

/// Servers: this one, one that answers, and a participant that does not.
const US: ServerId = ServerId(0);

/// Keys that collide or are prefixes of one another.
const KEYS: [&[u8]; 8] = [b"", b"a", b"a\0", b"ab", b"b", b"key", b"key\xff", b"z"];

/// State of a run. Few trees and few transactions, so that requests conflict.
pub(crate) struct EngineRun {
    settings: EngineSettings,
    engine: Engine,
    effects: Effects,
    now: Now,
    /// Content of the last departure.
    content: Option<DepartedContent>,
    /// All records; the records of the last checkpoint, and the length of the log at that time.
    log: Vec<Vec<u8>>,
    checkpoint: (Vec<Vec<u8>>, u64),
    /// Connections of unanswered requests, by number.
    unanswered: BTreeMap<u64, u64>,
    requests: u64,
    /// Timestamps given recently.
    known: Vec<Timestamp>,
    vote_queries: Vec<VoteQuery>,
    end_queries: Vec<EndQuery>,
    value_queries: Vec<ValueQuery>,
    frozen: bool,
}

impl EngineRun {
    pub(crate) fn new(input: &mut Input<'_>) -> EngineRun {
        let settings = EngineSettings {
            server: US,
            grace_ms: 100,
            snapshot_age_ms_max: 5_000,
            recover_after_ms: 50,
            outcomes_kept_ms: 3_000,
            memory_bytes_max: input.one_of(&[usize::MAX, usize::MAX, usize::MAX, 8 << 10]),
            node_cells_max: 4,
            node_bytes_max: 1 << 10,
            node_load_max: 20,
            ..EngineSettings::default()
        };
        EngineRun {
            settings,
            engine: Engine::new(settings),
            effects: Effects::default(),
            now: Now { wall_ms: 1_000_000, uptime_ms: 0 },
            content: None,
            log: Vec::new(),
            checkpoint: (Vec::new(), 0),
            unanswered: BTreeMap::new(),
            requests: 0,
            known: Vec::new(),
            vote_queries: Vec::new(),
            end_queries: Vec::new(),
            value_queries: Vec::new(),
            frozen: false,
        }
    }

    pub(crate) fn step(&mut self, input: &mut Input<'_>) {
        match input.below(24) {
            0 => {
                let length = input.short();
                self.handle(input.byte(), input.bytes(length));
            }
            1..8 => {
                let (txn, bytes) = (txn(input), self.operations(input));
                let (snapshot, seen, birth) = (self.snapshot(input), self.seen(input), self.birth(input));
                let lease = input.below(4) as u64;
                let (staged, operations) = (staged(input), decoded(&bytes));
                self.send(input, &Request::Commit { txn, birth, snapshot, seen, lease, staged, operations });
            }
            8..11 => self.prepare(input),
            11 | 12 => {
                let txn = txn(input);
                let decision =
                    if input.flag() { Decision::Commit(self.time(input)) } else { Decision::Abort };
                let (birth, servers) = (self.birth(input), servers(input));
                let participants = participants(&servers);
                self.send(input, &Request::Decide { txn, birth, participants, decision });
            }
            13..16 => {
                let bytes = self.questions(input);
                let questions = Questions::decode(&bytes).expect("they were written just now");
                let (snapshot, seen) = (self.snapshot(input), self.seen(input));
                self.send(input, &Request::Read { snapshot, seen, questions });
            }
            16 => self.other_request(input),
            17 => self.split(input),
            18 => self.tick(input),
            19 => {
                let connection = input.below(3) as u64;
                match input.below(3) {
                    0 => {
                        let oldest = [self.snapshot(input), self.snapshot(input)];
                        self.engine.hold(connection, oldest, input.below(2) == 1);
                    }
                    1 => self.report(input, connection),
                    _ => {
                        self.engine.disconnected(connection);
                        self.unanswered.retain(|_, of| *of != connection);
                    }
                }
            }
            20 => self.on_vote(input),
            21 => {
                self.checkpoint = (written(&self.engine), self.engine.lsn());
                same(&self.restored(), &self.engine);
            }
            22 => self.restart(),
            _ => {
                let kind = input.byte();
                if kind == 0xfd {
                    self.engine.end_suspension();
                } else if kind >= 0xfe {
                    let synced = self.log.len() as u64 - input.below(self.log.len().min(200) + 1) as u64;
                    let lost = self.log[synced as usize..].iter();
                    let lost = lost.filter_map(|record| LogRecord::decode(record).ok()?.seen_from()).min();
                    if kind == 0xfe {
                        self.engine.suspend(synced, lost);
                    } else {
                        // Rare, for only a restart ends it.
                        self.engine.freeze(synced, lost, &mut self.effects);
                        self.frozen = true;
                    }
                }
            }
        }
        self.settle();
        if let Err(wrong) = self.engine.audit() {
            panic!("{wrong}");
        }
    }

    /// Sends a prepare.
    fn prepare(&mut self, input: &mut Input<'_>) {
        let (txn, bytes) = (txn(input), self.operations(input));
        let (snapshot, seen) = (self.snapshot(input), self.seen(input));
        let (birth, servers, waits) = (self.birth(input), servers(input), input.flag());
        let participants = participants(&servers);
        let lease = input.below(4) as u64;
        let (staged, operations) = (staged(input), decoded(&bytes));
        let request =
            Request::Prepare { txn, birth, waits, snapshot, seen, participants, lease, staged, operations };
        self.send(input, &request);
    }

    /// Reports what a client has settled, or what another group states.
    fn report(&mut self, input: &mut Input<'_>, connection: u64) {
        if input.flag() {
            let (number, birth) = (input.byte().into(), self.birth(input));
            let exceptions = if number > 2 && input.flag() { vec![number / 2] } else { Vec::new() };
            let report = SettledReport { number, birth, exceptions };
            self.engine.on_settled(connection, input.below(4) as u64, &report);
        } else {
            let (horizon, prepared) = (self.birth(input), vec![txn(input)]);
            let prepared = if input.flag() { prepared } else { Vec::new() };
            self.engine.on_report(ServerId(1 + input.below(2) as u16), HorizonReport { horizon, prepared });
            let (own, lsn) = self.engine.report();
            assert_eq!(HorizonReport::decode(&own.encode()), Ok(own));
            assert_eq!(lsn, self.engine.lsn());
        }
    }

    /// Sends one of the rarer requests.
    fn other_request(&mut self, input: &mut Input<'_>) {
        let (txn, bytes) = (txn(input), self.operations(input));
        let (birth, servers, mut list) = (self.birth(input), servers(input), Vec::new());
        let participants = participants(&servers);
        let request = match input.below(10) {
            0 => Request::Resolve { txn, birth, participants, is_voter: input.flag() },
            1 => {
                TransactionList::push(&mut list, txn.number, birth, &servers);
                TransactionList::push(&mut list, txn.number + 1, birth, &servers);
                let transactions = TransactionList::decode(&list).expect("it is in order");
                Request::Ended { client: txn.client, transactions }
            }
            2 => Request::Outcome { txn, birth },
            3 => Request::Unstage { name: txn },
            4 => {
                let (part, operations) = (input.below(3) as u64, decoded(&bytes));
                Request::Stage { name: txn, part, operations }
            }
            // With the numbers that transactions use as lease holders.
            5 => {
                let holder = TxnId { number: input.below(4) as u64, ..txn };
                let ms = input.one_of(&[0, 1, 60, u64::MAX]);
                let ranges = (0..input.below(3)).map(|_| (node(input).tree, range(input))).collect();
                let seen = self.seen(input);
                let wait_ms = input.one_of(&[0, 1, 60, u64::MAX]);
                Request::Lease { holder, ranges, ms, wait_ms, seen }
            }
            8 => {
                let (value, nodes, since) = (node(input), 1 + input.below(2) as u64, self.time(input));
                Request::DropValue { value, nodes, since }
            }
            9 => {
                let (root, key, value) = (node(input), input.one_of(&KEYS), node(input));
                Request::ValueUse { root: NodeId { local: LocalId::ROOT, ..root }, key, value }
            }
            7 => {
                let votes_until = Some(self.time(input)).filter(|_| input.below(2) == 0);
                Request::Present { asked: participants, seen: self.seen(input), votes_until }
            }
            6 => Request::Release { holder: TxnId { number: input.below(4) as u64, ..txn } },
            _ => Request::Take { node: node(input), count: input.long(), above: input.long() },
        };
        self.send(input, &request);
    }

    /// Advances the time.
    fn tick(&mut self, input: &mut Input<'_>) {
        self.now.uptime_ms += input.one_of(&[0, 1, 49, 60, 200, 6_000]);
        let jump = input.one_of(&[0, 0, 1, 60, 2_000, -3_000i64]);
        self.now.wall_ms = self.now.wall_ms.saturating_add_signed(jump);
        show(|| format!("{:?}", self.now));
        self.engine.tick(self.now, &mut self.effects);
        let has_work = self.engine.has_work();
        let work = [
            self.engine.take_full().is_empty(),
            self.engine.take_hot().is_empty(),
            self.engine.take_empty().is_empty(),
        ];
        assert!(has_work || work == [true; 3]);
        assert!(!self.engine.has_work());
    }

    /// Returns the engine's records.
    pub(crate) fn records(&self) -> (u64, Vec<Vec<u8>>) {
        (self.engine.lsn(), written(&self.engine))
    }

    fn handle(&mut self, connection: u8, bytes: &[u8]) {
        self.requests += 1;
        let caller = Caller { connection: u64::from(connection % 3), request: self.requests };
        let (lsn, replies) = (self.engine.lsn(), self.effects.replies.len());
        show(|| {
            let asked = |of: String, each: Vec<String>| format!("{caller:?} {of}: {}", each.join("\n    "));
            match Request::decode(bytes) {
                Ok(Request::Commit { txn, snapshot, operations, .. }) => {
                    asked(format!("commits {txn} at {snapshot:?}"), operations.iter().map(line).collect())
                }
                Ok(Request::Prepare { txn, snapshot, operations, .. }) => {
                    asked(format!("prepares {txn} at {snapshot:?}"), operations.iter().map(line).collect())
                }
                Ok(Request::Read { snapshot, questions, .. }) => {
                    asked(format!("reads at {snapshot:?}"), questions.iter().map(line).collect())
                }
                request => format!("{caller:?}: {request:?}"),
            }
        });
        let handled = self.engine.handle(self.now, caller, bytes, &mut self.effects);
        assert_eq!(handled, Request::decode(bytes).map(drop));
        if handled.is_ok() {
            self.unanswered.insert(caller.request, caller.connection);
        } else {
            assert_eq!((self.engine.lsn(), self.effects.replies.len()), (lsn, replies));
        }
    }

    fn send(&mut self, input: &mut Input<'_>, request: &Request<'_>) {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        self.handle(input.byte(), &bytes);
    }

    /// Splits a node as the server does, if the engine requests it.
    fn split(&mut self, input: &mut Input<'_>) {
        let (from, to, key) = (node(input), node(input), input.one_of(&KEYS));
        let new = |fence: &KeyRange| NewNode { kind: NodeKind::Leaf, fence: fence.clone() };
        let (low, high) = (KeyRange { low: [].into(), high: Some(key.into()) }, KeyRange::from(key));
        let (moves, stays) = if input.flag() { (low, high) } else { (high, low) };
        let bytes = Operations::encode(&[
            NodeOperation { node: to, write: WriteOperation::Create(new(&moves)) },
            NodeOperation { node: from, write: WriteOperation::Move { range: moves, to } },
            NodeOperation { node: from, write: WriteOperation::Reshape(new(&stays)) },
        ]);
        let (txn, birth, seen) = (txn(input), self.birth(input), Timestamp::ZERO);
        let (snapshot, lease, staged, operations) = (None, 0, None, decoded(&bytes));
        self.send(input, &Request::Commit { txn, birth, snapshot, seen, lease, staged, operations });
    }

    /// Delivers the vote of another server.
    fn on_vote(&mut self, input: &mut Input<'_>) {
        let ask = match self.vote_queries.pop() {
            Some(ask) => ask,
            None => {
                let participants = servers(input).into();
                VoteQuery { server: ServerId(1), txn: txn(input), birth: self.birth(input), participants }
            }
        };
        if let Some(query) = self.end_queries.pop() {
            let mut bytes = Vec::new();
            query.write(&mut bytes);
            assert!(matches!(Request::decode(&bytes), Ok(Request::Ended { .. })));
            if !self.frozen {
                let flags = vec![u8::from(input.flag()); query.transactions.len()];
                self.engine.on_ended(&query, &flags, &mut self.effects);
            }
        }
        if let Some(query) = self.value_queries.pop() {
            let mut bytes = Vec::new();
            query.write(&mut bytes);
            let request = Request::decode(&bytes);
            assert!(matches!(request, Ok(Request::DropValue { .. } | Request::ValueUse { .. })));
            let uses = [ValueUse::Used, ValueUse::Unused { since: self.time(input) }, ValueUse::Undecided];
            let reply = if input.flag() { Reply::Done } else { Reply::ValueUse(input.one_of(&uses)) };
            if !self.frozen {
                self.engine.on_value_reply(&query, &reply, &mut self.effects);
            }
        }
        let at = self.time(input).min(Timestamp::DECIDED_MAX);
        let vote = match input.below(6) {
            4 => Vote::Waiting,
            5 => Vote::Forgotten,
            0 | 1 => Vote::Yes { at, participants: Participants::NONE },
            2 => Vote::No,
            _ => Vote::Decided(if input.flag() { Decision::Commit(at) } else { Decision::Abort }),
        };
        if !self.frozen {
            self.engine.on_vote(self.now, &ask, &vote, &mut self.effects);
        }
    }

    /// Handles the effects of a step.
    fn settle(&mut self) {
        let effects = &mut self.effects;
        for record in effects.records() {
            let decoded = LogRecord::decode(record).expect("a record that was written");
            let mut again = Vec::new();
            decoded.write(&mut again);
            assert_eq!(again, record, "{decoded:?}");
            self.log.push(record.to_vec());
        }
        assert_eq!(self.engine.lsn(), self.log.len() as u64);
        for reply in &effects.replies {
            let connection = self.unanswered.remove(&reply.caller.request);
            assert_eq!(
                connection,
                Some(reply.caller.connection),
                "each request is answered once, at its connection"
            );
            assert!(
                reply.needs_lsn <= self.engine.lsn() || self.frozen,
                "it needs a record that is not logged"
            );
            let bytes = &effects.bytes[reply.bytes.clone()];
            let decoded = Reply::decode(bytes).expect("a reply that was written");
            show(|| format!("{:?} is answered {decoded:?}", reply.caller));
            if matches!(decoded, Reply::Voted(_)) {
                assert_eq!(reply.durability, ReplyDurability::SyncedNow);
            }
            let (Reply::Answers { snapshot: at, .. } | Reply::Committed(at) | Reply::Voted(at)) = decoded
            else {
                continue;
            };
            self.known.push(at);
        }
        if self.known.len() > 4 {
            self.known.drain(..self.known.len() - 4);
        }
        self.vote_queries.append(&mut effects.vote_queries);
        self.vote_queries.truncate(4);
        self.end_queries.append(&mut effects.end_queries);
        self.end_queries.truncate(4);
        self.value_queries.append(&mut effects.value_queries);
        self.value_queries.truncate(4);
        effects.clear();
    }

    /// Returns an engine restored from the last checkpoint and the log after it.
    fn restored(&self) -> Engine {
        let (records, lsn) = &self.checkpoint;
        let mut engine = Engine::new(self.settings);
        records.iter().for_each(|record| replay(&mut engine, record));
        engine.restored(*lsn);
        self.log[*lsn as usize..].iter().for_each(|record| replay(&mut engine, record));
        engine.replayed();
        assert_eq!(engine.lsn(), self.log.len() as u64);
        if let Err(wrong) = engine.audit() {
            panic!("after replay: {wrong}");
        }
        engine
    }

    /// Restarts the engine; waiting callers are gone.
    fn restart(&mut self) {
        show(|| "It falls".to_owned());
        let engine = self.restored();
        same(&engine, &self.engine);
        self.engine = engine;
        self.unanswered.clear();
        self.frozen = false;
    }

    fn end(mut self) {
        if self.frozen {
            assert!(self.unanswered.is_empty(), "{:?}", self.unanswered);
            self.restart();
        }
        same(&self.restored(), &self.engine);
        // Every waiting caller waits for physical time, a lease or an undecided transaction.
        self.now.wall_ms += 1_000_000;
        self.now.uptime_ms += 1_000_000;
        self.engine.tick(self.now, &mut self.effects);
        self.settle();
        while let Some(txn) = self.engine.undecided().min() {
            let mut bytes = Vec::new();
            let (birth, participants) = (Timestamp::MAX, Participants::NONE);
            let decision = Decision::Abort;
            Request::Decide { txn, birth, participants, decision }.write(&mut ByteWriter(&mut bytes));
            self.handle(0, &bytes);
            self.settle();
        }
        assert!(self.unanswered.is_empty(), "{:?} wait for nobody", self.unanswered);
        // Move the low-water mark above everything.
        for connection in 0..3 {
            self.engine.disconnected(connection);
        }
        for _ in 0..4 {
            self.now.uptime_ms += 60;
            self.engine.tick(self.now, &mut self.effects);
            self.settle();
            if let Err(wrong) = self.engine.audit() {
                panic!("at the end: {wrong}");
            }
        }
    }

    /// Draws a timestamp.
    fn time(&mut self, input: &mut Input<'_>) -> Timestamp {
        let kind = input.byte();
        let last = self.known.get(usize::from(kind >> 4) % self.known.len().max(1)).copied();
        let last = last.unwrap_or(Timestamp::from_ms(self.now.wall_ms));
        match kind & 0xf {
            0..8 => last,
            8 => Timestamp(last.0 + 1),
            9 => Timestamp(last.0.saturating_sub(1)),
            10 => Timestamp::from_ms(last.ms() + 400),
            11 => Timestamp::from_ms(last.ms().saturating_sub(60)),
            12 => Timestamp(last.0 + 2),
            13 => Timestamp(input.long()),
            14 => Timestamp::MAX,
            _ => Timestamp(1),
        }
    }

    /// Draws a birth: mostly now, and sometimes long ago.
    fn birth(&mut self, input: &mut Input<'_>) -> Timestamp {
        match input.below(8) {
            6 => Timestamp::from_ms(self.now.wall_ms.saturating_sub(self.settings.outcomes_kept_ms)),
            7 => self.time(input),
            _ => Timestamp::from_ms(self.now.wall_ms),
        }
    }

    fn snapshot(&mut self, input: &mut Input<'_>) -> Option<Timestamp> {
        if input.flag() { Some(self.time(input)).filter(|at| *at != Timestamp::ZERO) } else { None }
    }

    fn seen(&mut self, input: &mut Input<'_>) -> Timestamp {
        if input.below(4) == 3 { self.time(input) } else { Timestamp::ZERO }
    }

    fn operations(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (mut bytes, mut last) = (Vec::new(), None);
        for _ in 0..1 + input.below(5) {
            // Mostly on the previous node.
            let node = last.filter(|_| input.below(3) > 0).unwrap_or_else(|| node(input));
            let value;
            let write = match input.below(18) {
                0..4 => {
                    value = vec![input.byte(); input.one_of(&[1, 0, 16, 300])];
                    let (key, expect) = (input.one_of(&KEYS), expect(input));
                    WriteOperation::Put { key, value: &value, expect, is_large: false }
                }
                4 => WriteOperation::Delete { key: input.one_of(&KEYS), expect: expect(input) },
                5 => WriteOperation::DeleteRange(range(input)),
                6 => WriteOperation::Guard(range(input)),
                7 => WriteOperation::Link { key: input.one_of(&KEYS), child: self::node(input) },
                8 => WriteOperation::Unlink { key: input.one_of(&KEYS) },
                9 if input.flag() => {
                    let server = input.one_of(&[US, ServerId(1), ServerId(1)]);
                    let (nodes, key) = (1 + input.below(2) as u64, input.one_of(&KEYS).into());
                    let attributes = ValueOwner { server, nodes, key }.attributes();
                    let Some((id, name)) = attributes.into_iter().next() else { continue };
                    value = name;
                    WriteOperation::Set(Attribute { id, value: Some(&value) })
                }
                9 => {
                    let value: Option<&[u8]> = input.one_of(&[Some(b"x"), Some(b""), None]);
                    WriteOperation::Set(Attribute { id: input.below(3) as u16, value })
                }
                10 | 11 => WriteOperation::Create(new_node(input)),
                12 => WriteOperation::Drop,
                13 if input.flag() => {
                    // Any node, not only pieces of a value.
                    let (length, first) = (40_000 + 600_000 * input.below(2) as u64, self::node(input).local);
                    let first = LocalId(first.0.max(1));
                    let server = input.one_of(&[US, ServerId(1)]);
                    value = LargeValue { length, server, first }.encode();
                    let (key, expect) = (input.one_of(&KEYS), expect(input));
                    WriteOperation::Put { key, value: &value, expect, is_large: true }
                }
                13 => WriteOperation::DropTree,
                14 => WriteOperation::Move { range: range(input), to: self::node(input) },
                // A move to another group, usually after its departure has begun.
                15 => {
                    let (range, to) = (range(input), NodeId { server: ServerId(1), ..self::node(input) });
                    if input.below(4) > 0 {
                        let begun = self.engine.begin_departure(self.now, node, &[(range.clone(), to)]);
                        self.content =
                            begun.ok().and_then(|mut contents| contents.pop()).or(self.content.take());
                    }
                    WriteOperation::Move { range, to }
                }
                16 => match &self.content {
                    Some(DepartedContent { floor, items, .. }) if input.below(4) > 0 => {
                        value = items.clone();
                        WriteOperation::Adopt { floor: *floor, items: &value }
                    }
                    _ => {
                        value = vec![input.byte(); input.one_of(&[1, 0, 16])];
                        WriteOperation::Adopt { floor: self.time(input), items: &value }
                    }
                },
                _ => WriteOperation::Reshape(new_node(input)),
            };
            Operations::push(&mut bytes, &mut last, &NodeOperation { node, write });
        }
        bytes
    }

    fn questions(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..1 + input.below(3) {
            let node = node(input);
            let question = match input.below(6) {
                0 | 1 => Question::Lookup { node, key: input.one_of(&KEYS) },
                2 => Question::Attribute { node, id: input.below(3) as u16 },
                3 => {
                    let (key, value) = (input.one_of(&KEYS), input.one_of(&KEYS));
                    Question::Proof { node, key, value, other: self::node(input) }
                }
                kind => {
                    let most = [0, 1, 3, u64::MAX];
                    let scan = Scan {
                        range: range(input),
                        direction: if input.flag() { Direction::Up } else { Direction::Down },
                        cells_max: input.one_of(&most),
                        bytes_max: input.one_of(&most),
                        value_bytes_max: input.one_of(&most),
                        near: if input.flag() { Some(input.one_of(&KEYS).into()) } else { None },
                    };
                    match kind {
                        4 => Question::Follow { node, scan: scan.into(), root: self::node(input) },
                        _ => Question::Scan { node, scan: scan.into() },
                    }
                }
            };
            question.write(&mut ByteWriter(&mut bytes));
        }
        bytes
    }
}

/// Draws participants.
fn servers(input: &mut Input<'_>) -> Vec<ServerId> {
    let servers: [&[ServerId]; 5] =
        [&[US, ServerId(1)], &[US], &[], &[ServerId(1)], &[US, ServerId(1), ServerId(2)]];
    input.one_of(&servers).to_vec()
}

fn participants(servers: &[ServerId]) -> Participants<'static> {
    let bytes = Participants::encode(servers);
    // Few and short: an input is small.
    Participants::decode(bytes.leak()).expect("they are in order")
}

fn staged(input: &mut Input<'_>) -> Option<Staged> {
    let (number, parts) = (1 + input.below(3) as u64, 1 + input.below(2) as u64);
    (input.below(4) == 3).then_some(Staged { number, parts })
}

fn decoded(bytes: &[u8]) -> Operations<'_> {
    Operations::decode(bytes).expect("they were written just now")
}

fn node(input: &mut Input<'_>) -> NodeId {
    let number = input.below(12) as u64;
    let tree = TreeId::new(1 + number / 6).expect("it is small");
    NodeId { tree, server: US, local: LocalId(number % 6) }
}

fn txn(input: &mut Input<'_>) -> TxnId {
    let byte = input.byte();
    // Zero and zero is reserved for checkpoints.
    TxnId { client: u64::from(byte >> 6), number: u64::from(byte & 0x3f) }
}

fn range(input: &mut Input<'_>) -> KeyRange {
    let low = input.one_of(&KEYS).into();
    KeyRange { low, high: if input.flag() { Some(input.one_of(&KEYS).into()) } else { None } }
}

fn expect(input: &mut Input<'_>) -> Expect {
    input.one_of(&[Expect::Any, Expect::Any, Expect::Absent, Expect::Present])
}

fn new_node(input: &mut Input<'_>) -> NewNode {
    let kind = input.one_of(&[NodeKind::Leaf, NodeKind::Leaf, NodeKind::Inner, NodeKind::Value]);
    NewNode { kind, fence: if input.flag() { range(input) } else { KeyRange::all() } }
}

/// Formats a value, with long byte strings shortened.
fn line(what: impl std::fmt::Debug) -> String {
    format!("{what:?}").chars().take(400).collect()
}

pub(crate) fn replay(engine: &mut Engine, record: &[u8]) {
    engine.replay(&LogRecord::decode(record).expect("a record that was written"));
}

/// Returns the records of a checkpoint.
fn written(engine: &Engine) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let outcome: Result<(), ()> = engine.checkpoint().write(|record| {
        all.push(record.to_vec());
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
    all
}

/// The records of a canonical form.
fn records(mut canonical: &[u8]) -> BTreeSet<String> {
    let mut records = BTreeSet::new();
    while let Some((length, rest)) = canonical.split_first_chunk() {
        let (record, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        records.insert(format!("{:?}", LogRecord::decode(record)));
        canonical = rest;
    }
    records
}

/// Checks that two engines have the same replicated state.
fn same(new: &Engine, old: &Engine) {
    let (new, old) = (new.canonical(), old.canonical());
    if new != old {
        let (new, old) = (records(&new), records(&old));
        let shown = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
        panic!("made again there is {:#?}, and not {:#?}", shown(&new, &old), shown(&old, &new));
    }
}
