//! A full disk: new writes are refused, and what is under way goes on as with a slow disk.

use super::{Server, put, txn};
use crate::Effects;
use yesquel_model::{Refusal, Timestamp};
use yesquel_wire::{Answer, Decision, Reply};

impl Server {
    /// What the replies since the last call need, and whether each finds a value.
    fn found(&mut self) -> Vec<(u64, bool)> {
        let needed: Vec<u64> = self.effects.replies.iter().map(|reply| reply.needs_lsn).collect();
        let answers = self.answers();
        let is_there = |bytes: &[u8]| match Reply::decode(bytes) {
            Ok(Reply::Answers { answers, .. }) => matches!(answers.iter().next(), Some(Answer::Value(_))),
            reply => panic!("{reply:?}"),
        };
        needed.into_iter().zip(answers.iter().map(|(_, bytes)| is_there(bytes))).collect()
    }

    /// Reads a key without a snapshot.
    fn reads(&mut self, key: &[u8]) -> (u64, bool) {
        self.lookup(0, key);
        match self.found()[..] {
            [found] => found,
            ref all => panic!("{all:?}"),
        }
    }
}

/// A copy of a commit that waits for space must not be refused: its client would take it as not
/// committed. A commit that was refused stays refused.
#[test]
fn a_full_disk_refuses_new_commits_only() {
    let mut server = Server::new();
    let synced = server.engine.lsn();
    server.committed(2, &[put(0, b"a")]);
    server.engine.suspend(synced, None);
    assert_eq!(server.refused(3, &[put(0, b"b")]), Refusal::DiskFull);
    server.commit(3, &[put(0, b"b")]);
    assert_eq!(server.effects.replies[0].needs_lsn, 0, "it depends on no record");
    server.answers();
    server.commit(2, &[put(0, b"a")]);
    assert!(server.effects.replies[0].needs_lsn > synced, "it waits for the record");
    assert!(matches!(Reply::decode(&server.answers()[0].1), Ok(Reply::Committed(_))));
    server.engine.end_suspension();
    server.committed(4, &[put(0, b"c")]);
    server.comes_back();
}

/// Reads see what is durable and wait for nothing, however long the disk stays full.
#[test]
fn reads_of_durable_state_wait_for_no_space() {
    let mut server = Server::new();
    server.committed(2, &[put(0, b"a")]);
    let synced = server.engine.lsn();
    server.engine.note_durable(synced);
    let before = server.engine.last_timestamp();
    server.committed(3, &[put(0, b"b")]);
    server.engine.suspend(synced, Some(Timestamp(before.0 + 1)));
    for _ in 0..3 {
        assert_eq!([server.reads(b"a"), server.reads(b"b")], [(0, true), (0, false)]);
        server.time_passes();
    }
    server.engine.end_suspension();
    let (needs_lsn, is_there) = server.reads(b"b");
    assert!(is_there && needs_lsn > synced);
}

/// A transaction that had voted commits while the disk is full, perhaps below what was read already.
#[test]
fn a_commit_during_suspension_is_not_read_before_it_is_durable() {
    let mut server = Server::new();
    let vote = server.prepared(2, &[put(0, b"a")]);
    let synced = server.engine.lsn();
    server.engine.note_durable(synced);
    server.engine.suspend(synced, None);
    server.now.wall_ms += 300;
    server.decide(2, Decision::Commit(vote));
    let (needs_lsn, is_there) = server.reads(b"a");
    assert!(!is_there || needs_lsn > synced, "it depends on the decision");
    // With a snapshot at which it has committed.
    server.lookup_at(Some(vote), 0, b"a");
    let found = server.found();
    assert!(found[0].1 && found[0].0 > synced, "{found:?}");
}

/// A timestamp depends on a durable ceiling above it, also if the log writes for so long that the
/// ceiling is raised twice meanwhile.
#[test]
fn a_ceiling_that_is_not_durable_bounds_no_timestamp() {
    let mut server = Server::new();
    server.engine.note_durable(server.engine.lsn());
    let synced = server.engine.lsn();
    let durable = server.engine.ceiling();
    while server.engine.ceiling().ms() < durable.ms() + 1_500 {
        server.now.wall_ms += 100;
        server.now.uptime_ms += 100;
        server.lookup(0, b"a");
        for reply in &server.effects.replies {
            let bytes = &server.effects.bytes[reply.bytes.clone()];
            let Ok(Reply::Answers { snapshot, .. }) = Reply::decode(bytes) else { panic!() };
            let needs = reply.needs_lsn;
            assert!(snapshot <= durable || needs > synced, "{snapshot} needs record {needs} of {synced}");
        }
        server.answers();
    }
    server.engine.suspend(synced, None);
    server.lookup(0, b"a");
    let Ok(Reply::Answers { snapshot, .. }) = Reply::decode(&server.answers()[0].1) else { panic!() };
    assert!(snapshot <= durable, "{snapshot}");
}

/// What is under way when the disk fills up fails with the disk.
#[test]
fn a_full_disk_may_fail() {
    let mut server = Server::new();
    server.engine.suspend(server.engine.lsn(), None);
    assert_eq!(server.refused(2, &[put(0, b"a")]), Refusal::DiskFull);
    server.engine.freeze(server.engine.lsn(), None, &mut Effects::default());
    assert_eq!(server.refused(3, &[put(0, b"a")]), Refusal::DiskFailed);
    server.engine.suspend(server.engine.lsn(), None);
    server.engine.end_suspension();
    assert_eq!(server.refused(4, &[put(0, b"a")]), Refusal::DiskFailed);
    assert!(!server.engine.undecided().any(|undecided| undecided == txn(4)));
}
