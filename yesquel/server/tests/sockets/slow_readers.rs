//! A client that does not read its replies affects only itself: its queue is bounded, other clients
//! are served meanwhile, and when it continues no reply is missing.

use crate::support::{Raw, Served, lookup, root, serve};
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    thread,
};
use yesquel_engine::EngineSettings;
use yesquel_model::{KeyRange, Timestamp, TxnId};
use yesquel_server::{Core, DataFolder, LogOptions, WallTime};
use yesquel_wire::{
    Answer, ByteWriter, Expect, NewNode, NodeKind, NodeOperation, Operations, Question, Questions, Reply,
    Request, Scan, WriteOperation,
};

/// Size in bytes of a scan's reply.
pub(crate) const LEAF: usize = 512 << 10;
/// Bytes that may be queued for a connection, by `docs/yesquel/wire.md`, plus one reply.
const QUEUED_MAX: u64 = (16 << 20) + 2 * LEAF as u64;

pub(crate) fn scan() -> Vec<u8> {
    let mut questions = Vec::new();
    Question::Scan { node: root(), scan: Scan::all().into() }.write(&mut ByteWriter(&mut questions));
    let questions = Questions::decode(&questions).unwrap();
    let mut request = Vec::new();
    Request::Read { snapshot: None, seen: Timestamp::ZERO, questions }.write(&mut ByteWriter(&mut request));
    request
}

pub(crate) fn commit(client: u64, number: u64, operations: &[NodeOperation<'_>]) -> Vec<u8> {
    let bytes = Operations::encode(operations);
    let operations = Operations::decode(&bytes).unwrap();
    let (txn, seen) = (TxnId { client, number }, Timestamp::ZERO);
    let mut request = Vec::new();
    Request::Commit {
        txn,
        birth: crate::support::birth(),
        snapshot: None,
        seen,
        lease: 0,
        staged: None,
        operations,
    }
    .write(&mut ByteWriter(&mut request));
    request
}

/// Fills a leaf with half a megabyte.
pub(crate) fn fill<S: Read + Write>(raw: &mut Raw<S>) {
    let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
    let create = NodeOperation { node: root(), write: WriteOperation::Create(new) };
    let value = vec![7; 16 << 10];
    let puts = (0..32u8).map(|key| WriteOperation::Put {
        key: Vec::leak(vec![key]),
        value: &value,
        expect: Expect::Any,
        is_large: false,
    });
    let puts = puts.map(|write| NodeOperation { node: root(), write });
    let all: Vec<_> = [create].into_iter().chain(puts).collect();
    let reply = raw.ask(commit(1, 1, &all));
    assert!(matches!(Reply::decode(&reply), Ok(Reply::Committed(_))));
}

fn is_scan(reply: &[u8]) -> bool {
    let Ok(Reply::Answers { answers, .. }) = Reply::decode(reply) else { return false };
    matches!(answers.iter().next(), Some(Answer::Cells(cells)) if cells.iter().count() == 32)
}

/// Requests a gigabyte without reading while another client is served; then reads everything.
fn check(served: &Served) {
    const SCANS: u64 = 2_000;
    let mut other = Raw::new(served.address, 1);
    fill(&mut other);
    let mut slow = Raw::new(served.address, 2);
    slow.send((1..=SCANS).map(|number| (number, scan())));
    // The server's status shows when it pauses the connection.
    while served.connections().paused == 0 {
        thread::yield_now();
    }
    for _ in 0..2_000 {
        let reply = other.ask(lookup());
        assert!(matches!(Reply::decode(&reply), Ok(Reply::Answers { .. })));
    }
    let status = served.connections();
    assert!(status.queued_most <= QUEUED_MAX, "{status:?}");
    // It continues, and no reply is missing.
    let mut missing: BTreeSet<u64> = (1..=SCANS).collect();
    slow.replies(SCANS as usize, |number, reply| {
        assert!(missing.remove(&number) && is_scan(reply), "{number}");
    });
    assert!(missing.is_empty());
    let status = served.connections();
    assert!(status.queued_most <= QUEUED_MAX && status.queued_most > QUEUED_MAX / 2, "{status:?}");
    assert!(status.paused > 1 && status.refused == 0, "{status:?}");
}

#[test]
fn a_slow_reader_affects_no_other_client() {
    check(&serve(|sink| Core::in_memory(EngineSettings::default(), WallTime::default(), sink)));
}

/// Replies that wait for the disk count as queued.
#[test]
fn replies_that_wait_for_the_disk_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let served = serve(|sink| {
        let folder = DataFolder::take(place.path()).unwrap();
        Core::open(folder, EngineSettings::default(), LogOptions::default(), WallTime::default(), sink)
            .unwrap()
    });
    let mut writer = Raw::new(served.address, 1);
    fill(&mut writer);
    let mut slow = Raw::new(served.address, 2);
    // Each scan follows a write that it sees, so that its reply needs the record.
    let value = [8; 16 << 10];
    for round in 0..20u64 {
        let write = WriteOperation::Put { key: &[3], value: &value, expect: Expect::Any, is_large: false };
        let write = NodeOperation { node: root(), write };
        let number = round * 100;
        let scans = (number + 2..number + 100).map(|number| (number, scan()));
        slow.send([(number + 1, commit(2, number + 2, &[write]))].into_iter().chain(scans));
    }
    let mut missing: BTreeSet<u64> = (0..2_000).filter(|number| number % 100 > 0).collect();
    slow.replies(1_980, |number, reply| {
        assert!(missing.remove(&number), "{number}");
        assert!(number % 100 == 1 || is_scan(reply));
    });
    let status = served.connections();
    assert!(status.queued_most <= QUEUED_MAX, "{status:?}");
}

/// A slow reader that disconnects leaves nothing behind.
#[test]
fn a_slow_reader_that_disconnects_frees_its_replies() {
    let served = serve(|sink| Core::in_memory(EngineSettings::default(), WallTime::default(), sink));
    let mut other = Raw::new(served.address, 1);
    fill(&mut other);
    let mut slow = Raw::new(served.address, 2);
    slow.send((1..=500).map(|number| (number, scan())));
    while served.connections().paused == 0 {
        thread::yield_now();
    }
    let mut byte = [0];
    slow.stream.read_exact(&mut byte).unwrap();
    drop(slow);
    while served.connections().open > 1 {
        thread::yield_now();
    }
    assert!(matches!(Reply::decode(&other.ask(lookup())), Ok(Reply::Answers { .. })));
}
