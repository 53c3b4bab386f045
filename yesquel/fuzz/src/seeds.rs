//! Initial inputs: one of each kind, and random steps.

use crate::disk::MemoryDisk;
use yesquel_engine::LogRecord;
use yesquel_log::{LogIdentity, LogPoint, disk::Disk, open};
use yesquel_model::{
    ClusterId, ClusterMembership, Conflict, GroupEpoch, Key, KeyRange, NodeId, Refusal, ServerId, Timestamp,
    TreeId, TxnId,
};
use yesquel_seeds::Random;
use yesquel_wire::{
    AnswerWriter, Attribute, ByteWriter, CellValue, ClientHeartbeat, Correction, Decision, Destination,
    Direction, Expect, GroupLocation, JoinToken, NewNode, NodeKind, NodeOperation, Operations, Participants,
    Question, Questions, Reply, Request, Scan, SettledReport, TransactionList, TransactionOutcome, ValueUse,
    Vote, WriteOperation,
    frame::Outbox,
    greeting::{Denial, Hello, Role, Welcome},
};

/// Returns inputs by target and name.
pub fn all() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut put = |target, name: String, bytes: Vec<u8>| all.push((target, name, bytes));
    let (requests, replies) = (requests(), replies());
    put("wire", "token".to_owned(), [&[0], &token()[..]].concat());
    for (number, message) in requests.iter().chain(&replies).enumerate() {
        put("wire", format!("message-{number:02}"), [&[0], &message[..]].concat());
    }
    for (number, request) in requests.iter().enumerate() {
        let destination = Destination { group: ServerId(number as u16), epoch: GroupEpoch::FIRST };
        let message = [&[0], destination.encode().bytes(), request].concat();
        put("wire", format!("request-{number:02}"), message);
    }
    for (number, greeting) in greetings().iter().enumerate() {
        put("wire", format!("greeting-{number}"), [&[1, 20, 0], &greeting[..]].concat());
    }
    let mut frames = Vec::new();
    let mut outbox = Outbox::default();
    for (number, message) in requests.iter().enumerate() {
        outbox.push(number as u64 % 3, message);
    }
    outbox.fill(&mut frames);
    put("wire", "frames".to_owned(), [&[2, 1, 7, 0, 50, 0], &frames[..]].concat());
    // Two pieces of one message, and the first of another.
    let mut body = Vec::new();
    for (number, is_last) in [(1, false), (2, false), (1, true)] {
        ByteWriter(&mut body).number(number).flag(is_last).bytes(b"piece");
    }
    let length = (body.len() as u16).to_le_bytes();
    put("wire", "pieces".to_owned(), [&[3, 0, 9, 0, 0], &length[..], &body].concat());
    put(
        "wire",
        "sent".to_owned(),
        vec![4, 0, 255, 0, 9, 0, 0, 1, 3, 0, 9, 1, 2, 3, 3, 0, 48, 7, 2, 200, 0, 5, 0],
    );

    // Some memory, then requests of one connection.
    let steps = requests.iter().flat_map(|message| {
        let length = (message.len() as u16).to_le_bytes();
        [&[0], &length[..], &[1], message].concat()
    });
    put("engine", "requests".to_owned(), std::iter::once(0).chain(steps).collect());
    for number in 0..6 {
        put("engine", format!("steps-{number}"), chance(number, &[], 150 + 60 * number as usize));
        put("log", format!("steps-{number}"), chance(10 + number, &[0], 40 + 20 * number as usize));
        put("checkpoint", format!("steps-{number}"), chance(20 + number, &[1], 80 + 40 * number as usize));
    }
    let segments = [("segment", segment()), ("segment-format-1", OLD_SEGMENT.to_vec())];
    for (name, segment) in segments.into_iter().chain([("checkpoint-format-1", OLD_CHECKPOINT.to_vec())]) {
        let length = (segment.len() as u16).to_le_bytes();
        // A folder with one file of the right name.
        let number = if name == "checkpoint-format-1" { 2 } else { 1 };
        put("log", name.to_owned(), [&[3, 0, 0, 0, 0, number], &length[..], &segment].concat());
    }
    let records = records();
    let mut input = vec![0, 7, records.len() as u8];
    for record in &records {
        input.extend_from_slice(&(record.len() as u16).to_le_bytes());
        input.extend_from_slice(record);
    }
    put("checkpoint", "records".to_owned(), input);
    all
}

fn chance(seed: u64, first: &[u8], length: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    first.iter().copied().chain((0..length).map(|_| random.next(256) as u8)).collect()
}

fn node(local: u64) -> NodeId {
    let mut node = NodeId::root(TreeId::new(1).expect("it is small"), ServerId(0));
    node.local.0 = local;
    node
}

const TXN: TxnId = TxnId { client: 1, number: 2 };
const AT: Timestamp = Timestamp::from_ms(1_000_000);

/// Returns every operation, on nodes that earlier ones have created.
fn operations() -> Vec<u8> {
    let new = |kind| NewNode { kind, fence: KeyRange::all() };
    let low = KeyRange { low: Key::default(), high: Some((*b"k").into()) };
    let writes = [
        (0, WriteOperation::Create(new(NodeKind::Leaf))),
        (0, WriteOperation::Put { key: b"a", value: b"value", expect: Expect::Any, is_large: false }),
        (0, WriteOperation::Put { key: b"z", value: b"", expect: Expect::Absent, is_large: false }),
        (0, WriteOperation::Delete { key: b"z", expect: Expect::Any }),
        (0, WriteOperation::Guard(low.clone())),
        (0, WriteOperation::Set(Attribute { id: 1, value: Some(b"x") })),
        (0, WriteOperation::Set(Attribute { id: 1, value: None })),
        (1, WriteOperation::Create(NewNode { kind: NodeKind::Leaf, fence: low.clone() })),
        (0, WriteOperation::Move { range: low.clone(), to: node(1) }),
        (0, WriteOperation::Reshape(NewNode { kind: NodeKind::Leaf, fence: KeyRange::from(*b"k") })),
        (1, WriteOperation::DeleteRange(low)),
        (2, WriteOperation::Create(new(NodeKind::Inner))),
        (2, WriteOperation::Link { key: b"", child: node(0) }),
        (2, WriteOperation::Unlink { key: b"" }),
        (2, WriteOperation::Drop),
    ];
    let writes = writes.map(|(local, write)| NodeOperation { node: node(local), write });
    Operations::encode(&writes)
}

fn requests() -> Vec<Vec<u8>> {
    let mut questions = Vec::new();
    let scan = Scan {
        range: KeyRange::all(),
        direction: Direction::Down,
        cells_max: 10,
        bytes_max: 100,
        value_bytes_max: 3,
        near: Some((*b"a").into()),
    };
    for question in [
        Question::Lookup { node: node(0), key: b"a" },
        Question::Scan { node: node(1), scan: scan.clone().into() },
        Question::Follow { node: node(1), scan: scan.into(), root: node(2) },
        Question::Proof { node: node(1), key: b"a", value: b"old", other: node(2) },
        Question::Attribute { node: node(0), id: 1 },
    ] {
        question.write(&mut ByteWriter(&mut questions));
    }
    let questions = Questions::decode(&questions).expect("they were written just now");
    let done = operations();
    let operations = |bytes| Operations::decode(bytes).expect("they were written just now");
    let put = NodeOperation {
        node: node(0),
        write: WriteOperation::Put { key: b"z", value: b"new", expect: Expect::Any, is_large: false },
    };
    let put = Operations::encode([&put]);
    let drop_tree = Operations::encode([&NodeOperation { node: node(0), write: WriteOperation::DropTree }]);
    let servers = Participants::encode(&[ServerId(0), ServerId(1)]);
    let participants = Participants::decode(&servers).expect("they are in order");
    let mut list = Vec::new();
    TransactionList::push(&mut list, 3, AT, &[ServerId(0), ServerId(1)]);
    let transactions = TransactionList::decode(&list).expect("it is in order");
    let (seen, other) = (AT, TxnId { client: 1, number: 3 });
    let last = TxnId { client: 1, number: 4 };
    let requests = [
        Request::Commit {
            txn: TXN,
            birth: AT,
            snapshot: None,
            seen,
            lease: 0,
            staged: None,
            operations: operations(&done),
        },
        Request::Prepare {
            txn: other,
            birth: AT,
            waits: true,
            snapshot: Some(AT),
            seen,
            participants,
            lease: 0,
            staged: None,
            operations: operations(&put),
        },
        Request::Read { snapshot: None, seen, questions },
        Request::Resolve { txn: other, birth: AT, participants, is_voter: true },
        Request::Decide {
            txn: other,
            birth: AT,
            participants,
            decision: Decision::Commit(Timestamp(AT.0 + 9)),
        },
        Request::Outcome { txn: TXN, birth: AT },
        Request::Ended { client: 1, transactions },
        Request::Take { node: node(0), count: 100, above: 5 },
        Request::Present { asked: participants, seen, votes_until: None },
        Request::Commit {
            txn: last,
            birth: AT,
            snapshot: None,
            seen,
            lease: 0,
            staged: None,
            operations: operations(&drop_tree),
        },
        Request::Decide { txn: last, birth: AT, participants, decision: Decision::Abort },
        Request::Lease {
            holder: TXN,
            ranges: vec![(node(0).tree, KeyRange::from(*b"a"))],
            ms: 60,
            wait_ms: 60,
            seen,
        },
        Request::Release { holder: TXN },
        Request::DropValue { value: node(3), nodes: 2, since: AT },
        Request::ValueUse { root: node(0), key: b"a", value: node(3) },
        Request::Join { request: b"{}" },
        Request::Manage { command: b"{\"remove\":{\"machine\":2}}" },
    ];
    let written = |request: &Request<'_>| {
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        bytes
    };
    requests.iter().map(written).collect()
}

fn token() -> Vec<u8> {
    let (cluster, secret, proof) = (ClusterId([9; 16]), [1; 16], [2; 32]);
    JoinToken { is_encrypted: true, cluster, secret, expires_ms: 1 << 40, proof }.encode()
}

fn replies() -> Vec<Vec<u8>> {
    let servers = Participants::encode(&[ServerId(0), ServerId(700)]);
    let participants = Participants::decode(&servers).expect("they are in order");
    let conflict = Refusal::Conflict(Conflict::Prepared { node: node(1), by: TXN });
    let old = Refusal::SnapshotTooOld { snapshot: AT, oldest: AT };
    let epoch = GroupEpoch { era: 1, index: 300 };
    let location = GroupLocation { group: ServerId(3), epoch, address: "a:7411" };
    let replies = [
        Reply::Refused { operation: Some(3), refusal: conflict },
        Reply::Refused { operation: None, refusal: old },
        Reply::Committed(AT),
        Reply::Vote(Vote::Yes { at: AT, participants }),
        Reply::Vote(Vote::Decided(Decision::Abort)),
        Reply::Outcome(TransactionOutcome::Forgotten),
        Reply::Forgotten(AT),
        Reply::Vote(Vote::Waiting),
        Reply::Ended(&[0, 1]),
        Reply::Refused { operation: None, refusal: Refusal::NotPrepared(TXN) },
        Reply::Taken(300),
        Reply::ValueUse(ValueUse::Used),
        Reply::ValueUse(ValueUse::Unused { since: AT }),
        Reply::ValueUse(ValueUse::Undecided),
        Reply::Leased(AT),
        Reply::Refused { operation: Some(0), refusal: Refusal::Leased { ms: 60 } },
        Reply::Corrected(Correction::WrongGroup(None)),
        Reply::Corrected(Correction::WrongGroup(Some(location))),
        Reply::Corrected(Correction::NotLeader { term: 4, leader: "b:7411" }),
        Reply::Refused { operation: None, refusal: Refusal::DiskFull },
    ];
    let written = |reply: &Reply<'_>| {
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        bytes
    };
    let (mut cells, mut answers) = (Vec::new(), Vec::new());
    AnswerWriter::cell(&mut cells, b"a", CellValue::Bytes(b"1"));
    AnswerWriter::cell(&mut cells, b"b", CellValue::Length(5000));
    Reply::write_answers(&mut answers, AT, |mut writer| {
        writer.value(b"v");
        writer.absent();
        writer.cells(NodeKind::Inner, &KeyRange::all(), true, &cells);
        writer.moved(Some((&KeyRange::new(*b"a", *b"b"), node(1))));
        let mut rows = Vec::new();
        AnswerWriter(ByteWriter(&mut rows)).value(b"row");
        AnswerWriter(ByteWriter(&mut rows)).moved(None);
        writer.followed(&KeyRange::all(), false, (&cells, &rows));
        writer.same();
        writer.differs(b"now");
        writer.cells(NodeKind::Leaf, &KeyRange::all(), false, &cells);
        writer.differs(b"");
        writer.moved(None);
    });
    let settled = SettledReport { number: 300, birth: AT, exceptions: vec![7, 290] };
    let news = ClientHeartbeat { oldest: [Some(AT), Some(AT)], more: true, settled }.encode();
    replies.iter().map(written).chain([answers, news]).collect()
}

fn greetings() -> Vec<Vec<u8>> {
    let cluster = ClusterId([7; 16]);
    let (versions, client, role) = ((1, 300), u64::MAX, Role::Peer);
    let served = Welcome::Served {
        version: 1,
        server: ServerId(3),
        requests_max: 4096,
        now: AT,
        membership: ClusterMembership { cluster, home_group: ServerId(300) },
        epoch: GroupEpoch { era: 1, index: 300 },
        others: vec![(ServerId(301), GroupEpoch::FIRST)],
    };
    vec![
        Hello { versions, client, credential: b"secret", role, cluster: Some(cluster) }.encode(),
        Hello { versions, client, credential: &token(), role: Role::Joiner, cluster: Some(cluster) }.encode(),
        served.encode(),
        Welcome::Refused(Denial::OtherCluster(cluster)).encode(),
        Welcome::Refused(Denial::Version { lowest: 2, highest: 3 }).encode(),
        Welcome::Refused(Denial::TooManyConnections(1_000)).encode(),
        Welcome::Refused(Denial::NotReady("its disk is full".to_owned())).encode(),
    ]
}

fn records() -> Vec<Vec<u8>> {
    let (operations, participants) = (operations(), Participants::encode(&[ServerId(0), ServerId(1)]));
    let operations = Operations::decode(&operations).expect("they were written just now");
    let participants = Participants::decode(&participants).expect("they are in order");
    let other = TxnId { client: 1, number: 3 };
    let records = [
        LogRecord::Ceiling(AT),
        LogRecord::Horizon(Timestamp(1)),
        LogRecord::Settled {
            client: 1,
            report: SettledReport { number: 9, birth: AT, exceptions: vec![2, 3] },
        },
        LogRecord::Commit { txn: TXN, birth: Timestamp(7), at: AT, staged: None, operations },
        LogRecord::Prepare {
            txn: other,
            birth: AT,
            waits: true,
            at: AT,
            participants,
            staged: None,
            operations: Operations::NONE,
        },
        LogRecord::Decide { txn: other, birth: AT, participants, decision: Decision::Commit(AT) },
        LogRecord::Refuse { txn: other, birth: AT, participants },
        LogRecord::GiveUp { txn: TXN, birth: AT },
        LogRecord::Group { epoch: GroupEpoch { era: 0, index: 9 } },
        LogRecord::Forget { txn: other },
        LogRecord::Counter { node: node(0), next: 700 },
        LogRecord::DropValue { value: node(3), nodes: 2, since: AT },
        LogRecord::ValueDropped { value: node(3) },
        LogRecord::ValueOrphaned { value: node(4), nodes: 1, since: AT },
    ];
    let written = |record: &LogRecord<'_>| {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    };
    records.iter().map(written).collect()
}

/// Files of format 1.
const OLD_SEGMENT: &[u8] =
    include_bytes!("../../server/tests/data/format-1/server-3/log-00000000000000000001");
const OLD_CHECKPOINT: &[u8] =
    include_bytes!("../../server/tests/data/format-1/server-3/checkpoint-00000000000000000002");

/// Returns a log of one file, whose name ends in 1.
fn segment() -> Vec<u8> {
    let disk = MemoryDisk::default();
    let opened = open(disk.clone(), LogIdentity::default(), LogPoint::default(), |_| Ok(()));
    let Ok(opened) = opened else { panic!("the folder is empty") };
    let mut writer = opened.writer;
    for record in records() {
        let index = writer.last().index + 1;
        writer.append(1, index, &record, &[record.len() / 2, record.len()]).expect("the disk takes it");
        writer.sync().expect("the disk takes it");
    }
    let names = disk.names().expect("the disk has them");
    disk.read(&names[0]).expect("the disk has it")
}
