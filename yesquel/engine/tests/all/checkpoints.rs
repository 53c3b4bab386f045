//! What a checkpoint carries, and what it costs.

use yesquel_engine::{Caller, Effects, Engine, EngineSettings, LogRecord, Now};
use yesquel_model::{Conflict, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{
    Answer, ByteWriter, Expect, NewNode, NodeKind, NodeOperation, Operations, Participants, Question,
    Questions, Reply, Request, WriteOperation,
};

/// An engine and its log.
struct Server {
    settings: EngineSettings,
    engine: Engine,
    effects: Effects,
    log: Vec<Vec<u8>>,
    now: Now,
    asked: u64,
}

fn node(local: u64) -> NodeId {
    NodeId { tree: TreeId::new(1).unwrap(), server: ServerId(0), local: LocalId(local) }
}

fn create(local: u64, kind: NodeKind, fence: KeyRange) -> NodeOperation<'static> {
    NodeOperation { node: node(local), write: WriteOperation::Create(NewNode { kind, fence }) }
}

fn put<'a>(local: u64, key: &'a [u8], value: &'a [u8]) -> NodeOperation<'a> {
    let write = WriteOperation::Put { key, value, expect: Expect::Any, is_large: false };
    NodeOperation { node: node(local), write }
}

fn of(local: u64, write: WriteOperation<'_>) -> NodeOperation<'_> {
    NodeOperation { node: node(local), write }
}

impl Server {
    fn new(settings: EngineSettings) -> Server {
        Server {
            settings,
            engine: Engine::new(settings),
            effects: Effects::default(),
            log: Vec::new(),
            now: Now { wall_ms: 100_000_000, uptime_ms: 0 },
            asked: 0,
        }
    }

    fn keep(&mut self) {
        self.log.extend(self.effects.records().map(<[u8]>::to_vec));
        self.effects.clear();
    }

    fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        let caller = Caller { connection: 1, request: self.asked };
        self.engine.handle(self.now, caller, &bytes, &mut self.effects).unwrap();
        let reply = self.effects.bytes[self.effects.replies[0].bytes.clone()].to_vec();
        self.keep();
        reply
    }

    fn try_commit(
        &mut self,
        snapshot: Option<Timestamp>,
        operations: &[NodeOperation<'_>],
    ) -> Result<Timestamp, Refusal> {
        let bytes = Operations::encode(operations);
        let operations = Operations::decode(&bytes).unwrap();
        self.asked += 1;
        let (txn, seen) = (TxnId { client: 1, number: self.asked }, Timestamp::ZERO);
        let birth = Timestamp::from_ms(self.now.wall_ms);
        let reply =
            self.ask(&Request::Commit { txn, birth, snapshot, seen, lease: 0, staged: None, operations });
        match Reply::decode(&reply) {
            Ok(Reply::Committed(at)) => Ok(at),
            Ok(Reply::Refused { refusal, .. }) => Err(refusal),
            reply => panic!("{reply:?}"),
        }
    }

    fn commit(&mut self, operations: &[NodeOperation<'_>]) -> Timestamp {
        self.try_commit(None, operations).unwrap()
    }

    /// Returns a value and its snapshot; `None`: it is absent or elsewhere.
    fn read(
        &mut self,
        snapshot: Option<Timestamp>,
        local: u64,
        key: &[u8],
    ) -> Result<(Option<Vec<u8>>, Timestamp), Refusal> {
        let mut bytes = Vec::new();
        Question::Lookup { node: node(local), key }.write(&mut ByteWriter(&mut bytes));
        let questions = Questions::decode(&bytes).unwrap();
        let reply = self.ask(&Request::Read { snapshot, seen: Timestamp::ZERO, questions });
        match Reply::decode(&reply) {
            Ok(Reply::Answers { snapshot, answers }) => match answers.iter().next() {
                Some(Answer::Value(value)) => Ok((Some(value.to_vec()), snapshot)),
                _ => Ok((None, snapshot)),
            },
            Ok(Reply::Refused { refusal, .. }) => Err(refusal),
            reply => panic!("{reply:?}"),
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 50 {
            self.now.wall_ms += 50;
            self.now.uptime_ms += 50;
            self.engine.tick(self.now, &mut self.effects);
            self.keep();
        }
    }

    fn checkpoint(&self) -> crate::common::Written {
        crate::common::write(&mut self.engine.checkpoint())
    }

    /// Restarts from a checkpoint of this moment, or from the log alone.
    fn restart(&mut self, from_checkpoint: bool) {
        let written = if from_checkpoint { self.checkpoint() } else { (Vec::new(), 0) };
        self.engine = crate::common::start(self.settings, &written, &self.log);
        self.now.uptime_ms = 0;
    }

    /// Marks in the log.
    fn marks(&self) -> usize {
        let is_mark = |record: &&Vec<u8>| matches!(LogRecord::decode(record), Ok(LogRecord::LowWater { .. }));
        self.log.iter().filter(is_mark).count()
    }
}

/// Settings of a server whose clients outlive it.
fn returning() -> EngineSettings {
    EngineSettings { return_ms: 10_000, ..EngineSettings::default() }
}

/// Data without old versions: bytes of a checkpoint and of memory stay those of keys and values.
#[test]
fn a_checkpoint_of_data_without_old_versions_is_as_large_as_the_data() {
    let mut server = Server::new(EngineSettings::default());
    let fence = |leaf: u64| KeyRange {
        low: Box::from(leaf.to_be_bytes()),
        high: Some(Box::from((leaf + 1).to_be_bytes())),
    };
    for leaf in 0..100u64 {
        server.commit(&[create(leaf, NodeKind::Leaf, fence(leaf))]);
        for cell in 0..100u64 {
            let key = [&leaf.to_be_bytes()[..], &cell.to_be_bytes()].concat();
            server.commit(&[put(leaf, &key, &[7; 100])]);
        }
        // The upper half of the leaf moves, as in a split.
        let KeyRange { low, high } = fence(leaf);
        let middle: Box<[u8]> = [&leaf.to_be_bytes()[..], &50u64.to_be_bytes()].concat().into();
        let (low, high) = (KeyRange { low, high: Some(middle.clone()) }, KeyRange { low: middle, high });
        let moves = WriteOperation::Move { range: high.clone(), to: node(1_000 + leaf) };
        let reshape = WriteOperation::Reshape(NewNode { kind: NodeKind::Leaf, fence: low });
        server.commit(&[
            create(1_000 + leaf, NodeKind::Leaf, high),
            NodeOperation { node: node(leaf), write: moves },
            NodeOperation { node: node(leaf), write: reshape },
        ]);
        server.pass(50);
    }
    // Until the ends of the transactions are forgotten.
    server.pass(700_000);
    let bytes = |server: &Server| -> usize {
        let (records, _) = server.checkpoint();
        // Outcomes of the transactions are not data.
        records.iter().map(Vec::len).filter(|length| *length > 100).sum()
    };
    // Before versions were written there were 1,203,000 and 1,542,400 of 1,160,000 bytes of data.
    assert!(bytes(&server) < 1_205_000, "{}", bytes(&server));
    assert!(server.engine.memory() <= 1_542_400, "{}", server.engine.memory());
    server.restart(true);
    assert!(server.engine.memory() <= 1_542_400, "{}", server.engine.memory());
}

/// After a crash, snapshots from before it stay readable until their clients have had time to report
/// them; then those that none reports are given up.
#[test]
fn old_snapshots_outlive_a_crash() {
    for from_checkpoint in [true, false] {
        let mut server = Server::new(returning());
        server.commit(&[
            create(0, NodeKind::Leaf, KeyRange::all()),
            put(0, b"a", b"old"),
            put(0, b"b", b"old"),
        ]);
        let (_, snapshot) = server.read(None, 0, b"a").unwrap();
        server.commit(&[put(0, b"a", b"new"), of(0, WriteOperation::DeleteRange(KeyRange::from(*b"b")))]);
        server.restart(from_checkpoint);
        let old = Ok((Some(b"old".to_vec()), snapshot));
        assert_eq!(server.read(Some(snapshot), 0, b"a"), old);
        assert_eq!(server.read(Some(snapshot), 0, b"b"), old);
        assert_eq!(server.read(None, 0, b"a").map(|(value, _)| value), Ok(Some(b"new".to_vec())));
        // A key that the deleted range covers, and that did not exist.
        let refused = server.try_commit(Some(snapshot), &[put(0, b"c", b"late")]);
        assert_eq!(refused, Err(Conflict::Range { node: node(0) }.into()));
        server.pass(9_000);
        server.engine.hold(1, [Some(snapshot), None], false);
        server.pass(20_000);
        assert_eq!(server.read(Some(snapshot), 0, b"b"), old);
        server.engine.hold(1, [None; 2], false);
        server.pass(2_000);
        let refused = server.read(Some(snapshot), 0, b"b");
        assert!(matches!(refused, Err(Refusal::SnapshotTooOld { .. })), "{refused:?}");
        server.engine.audit().unwrap();
    }
}

/// A server whose clients do not outlive it refuses snapshots from before, and keeps nothing for
/// them; the mark follows by the first record.
#[test]
fn no_snapshot_outlives_an_embedded_server() {
    let mut server = Server::new(EngineSettings::default());
    server.commit(&[create(0, NodeKind::Leaf, KeyRange::all()), put(0, b"a", b"old")]);
    let (_, snapshot) = server.read(None, 0, b"a").unwrap();
    server.commit(&[put(0, b"a", b"new")]);
    server.restart(false);
    let refused = server.read(Some(snapshot), 0, b"a");
    assert!(matches!(refused, Err(Refusal::SnapshotTooOld { .. })), "{refused:?}");
    let memory = server.engine.memory();
    server.pass(50);
    assert_eq!(server.marks(), 1);
    assert!(server.engine.memory() < memory, "the old version is collected");
    // The same after an orderly end, whether clients return or not.
    let mut server = Server::new(returning());
    server.commit(&[create(0, NodeKind::Leaf, KeyRange::all()), put(0, b"a", b"old")]);
    let (_, snapshot) = server.read(None, 0, b"a").unwrap();
    server.engine.end(&mut server.effects);
    server.keep();
    server.restart(false);
    let refused = server.read(Some(snapshot), 0, b"a");
    assert!(matches!(refused, Err(Refusal::SnapshotTooOld { .. })), "{refused:?}");
}

/// The cost of the mark: a record a second while there are changes, none without.
#[test]
fn an_idle_server_writes_no_record() {
    let mut server = Server::new(EngineSettings::default());
    server.commit(&[create(0, NodeKind::Leaf, KeyRange::all())]);
    for _ in 0..100 {
        server.commit(&[put(0, b"a", b"value")]);
        server.pass(100);
    }
    let marks = server.marks();
    assert!((9..=11).contains(&marks), "{marks} in ten seconds");
    // Until the ends of the transactions are forgotten.
    server.pass(700_000);
    let (records, memory) = (server.log.len(), server.engine.memory());
    server.pass(3_600_000);
    assert_eq!((server.log.len(), server.engine.memory()), (records, memory));
    // Nor after a restart, whether clients return or not.
    for settings in [EngineSettings::default(), returning()] {
        for from_checkpoint in [true, false] {
            server.settings = settings;
            let records = server.log.len();
            server.restart(from_checkpoint);
            server.pass(60_000);
            // One, to collect what the replay has made again.
            assert!(server.log.len() <= records + 1);
            let records = server.log.len();
            server.pass(3_600_000);
            assert_eq!(server.log.len(), records);
        }
    }
    let marks = server.marks();
    // Reads write ceilings only.
    for _ in 0..50 {
        server.read(None, 0, b"a").unwrap();
        server.pass(100);
    }
    assert_eq!(server.marks(), marks);
}

/// A dropped tree is readable at snapshots before, also after a restart.
#[test]
fn a_dropped_tree_is_in_a_checkpoint_until_the_mark_passes_its_end() {
    let mut server = Server::new(returning());
    server.commit(&[create(0, NodeKind::Leaf, KeyRange::all()), put(0, b"a", b"value")]);
    let (value, snapshot) = server.read(None, 0, b"a").unwrap();
    server.commit(&[of(0, WriteOperation::DropTree)]);
    let live = server.engine.canonical();
    server.restart(true);
    assert!(server.engine.canonical() == live);
    assert_eq!(server.read(Some(snapshot), 0, b"a"), Ok((value, snapshot)));
    assert_eq!(server.read(None, 0, b"a").map(|(value, _)| value), Ok(None));
    assert_eq!(server.try_commit(None, &[put(0, b"a", b"late")]), Err(Refusal::Moved(node(0))));
    server.pass(20_000);
    let (records, _) = server.checkpoint();
    let has_tree = |record: &Vec<u8>| {
        matches!(LogRecord::decode(record), Ok(LogRecord::Node { .. } | LogRecord::TreeDropped { .. }))
    };
    assert!(!records.iter().any(has_tree));
}

/// A checkpoint of an earlier version has the newest versions only: no snapshot from before it is
/// readable.
#[test]
fn a_checkpoint_of_an_earlier_version_is_read() {
    let bytes = Operations::encode(&[create(0, NodeKind::Leaf, KeyRange::all()), put(0, b"a", b"value")]);
    let (at, ceiling) = (Timestamp::from_ms(100), Timestamp::from_ms(200));
    let operations = Operations::decode(&bytes).unwrap();
    let records = [
        LogRecord::Commit { txn: TxnId { client: 0, number: 0 }, birth: at, at, staged: None, operations },
        LogRecord::Ceiling(ceiling),
    ];
    let records = records.map(|record| {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    });
    let mut server = Server::new(returning());
    server.engine = crate::common::start(returning(), &(records.to_vec(), 7), &vec![Vec::new(); 7]);
    assert_eq!(server.engine.oldest_snapshot(), ceiling);
    let old = server.read(Some(Timestamp::from_ms(150)), 0, b"a");
    assert!(matches!(old, Err(Refusal::SnapshotTooOld { .. })), "{old:?}");
    assert_eq!(server.read(None, 0, b"a").map(|(value, _)| value), Ok(Some(b"value".to_vec())));
    let live = server.engine.canonical();
    let again = crate::common::restore(returning(), &server.checkpoint());
    assert!(again.canonical() == live);
}

/// A long history of one cell is written in records of bounded size.
#[test]
fn a_node_with_many_versions_takes_several_records() {
    let mut server = Server::new(EngineSettings::default());
    server.commit(&[create(0, NodeKind::Leaf, KeyRange::all()), put(0, b"a", b"other")]);
    for number in 0..300u64 {
        server.commit(&[put(0, b"b", &[number as u8; 1_000])]);
    }
    let (records, _) = server.checkpoint();
    let of_node = |record: &&Vec<u8>| matches!(LogRecord::decode(record), Ok(LogRecord::Node { .. }));
    let lengths: Vec<usize> = records.iter().filter(of_node).map(Vec::len).collect();
    assert_eq!(lengths.len(), 5);
    assert!(lengths.iter().all(|length| *length < (64 << 10) + 1_100), "{lengths:?}");
    let engine = crate::common::restore(EngineSettings::default(), &server.checkpoint());
    assert!(engine.canonical() == server.engine.canonical());
}

/// Whether a dropped node was collected is not part of the state, also if a transaction is prepared
/// that creates it anew. Replay collects nothing.
#[test]
fn a_collected_node_that_is_created_anew_is_restored() {
    let mut server = Server::new(EngineSettings::default());
    server.commit(&[create(0, NodeKind::Leaf, KeyRange::all())]);
    server.commit(&[of(0, WriteOperation::Drop)]);
    server.pass(5_000);
    let bytes = Operations::encode(&[create(0, NodeKind::Leaf, KeyRange::all())]);
    let participants = Participants::encode(&[ServerId(0), ServerId(1)]);
    let prepare = Request::Prepare {
        txn: TxnId { client: 2, number: 1 },
        birth: Timestamp::from_ms(server.now.wall_ms),
        waits: false,
        snapshot: None,
        seen: Timestamp::ZERO,
        participants: Participants::decode(&participants).unwrap(),
        lease: 0,
        staged: None,
        operations: Operations::decode(&bytes).unwrap(),
    };
    let vote = server.ask(&prepare);
    assert!(matches!(Reply::decode(&vote), Ok(Reply::Voted(_))));
    let live = server.engine.canonical();
    for from_checkpoint in [false, true] {
        server.restart(from_checkpoint);
        assert!(server.engine.canonical() == live, "from a checkpoint: {from_checkpoint}");
    }
}
