//! Clients that watch nodes: a notice is in the client's socket before any reply that reveals the
//! change is sent.

use crate::{
    slow_readers::{LEAF, commit, fill, scan},
    support::{Raw, lookup, root, serve_unix},
};
use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
};
use tempfile::TempDir;
use yesquel_model::Timestamp;
use yesquel_wire::{
    Answer, ByteWriter, Expect, NodeOperation, Notice, Question, Questions, Reply, Request, WriteOperation,
    greeting::LANE,
};

fn watch() -> Vec<u8> {
    let mut questions = Vec::new();
    Question::Watch { node: root() }.write(&mut ByteWriter(&mut questions));
    let (questions, seen) = (Questions::decode(&questions).unwrap(), Timestamp::ZERO);
    let mut request = Vec::new();
    Request::Read { snapshot: None, seen, questions }.write(&mut ByteWriter(&mut request));
    request
}

fn is_granted(reply: &[u8]) -> bool {
    match Reply::decode(reply) {
        Ok(Reply::Answers { answers, .. }) => answers.iter().next() == Some(Answer::Same),
        reply => panic!("{reply:?}"),
    }
}

/// Writes a key, and returns when the server has acknowledged it, and the time.
fn write(writer: &mut Raw<UnixStream>, number: u64) -> Timestamp {
    let write = WriteOperation::Put { key: &[0], value: &[8], expect: Expect::Any, is_large: false };
    let reply = writer.ask(commit(1, number, &[NodeOperation { node: root(), write }]));
    match Reply::decode(&reply) {
        Ok(Reply::Committed(at)) => at,
        reply => panic!("{reply:?}"),
    }
}

/// Takes the notices that are in the socket now.
fn notices(watcher: &mut Raw<UnixStream>) -> Vec<Notice> {
    watcher.stream.set_nonblocking(true).unwrap();
    let mut found = Vec::new();
    loop {
        match watcher.inbox.read_from(&mut watcher.stream) {
            Ok((bytes, _)) => assert!(bytes > 0, "the server has closed the connection"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
        let taken = watcher.inbox.take(|number, message| {
            assert_eq!(number, Notice::NUMBER);
            found.push(Notice::decode(message).unwrap());
        });
        taken.unwrap();
    }
    watcher.stream.set_nonblocking(false).unwrap();
    found
}

#[test]
fn a_notice_is_there_before_the_change_is_acknowledged() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let (_sockets, _core) = serve_unix(&path);
    let mut writer = Raw::unix(&path, 1);
    fill(&mut writer);
    let mut watchers: Vec<_> = (1..=3).map(|number| Raw::watcher(&path, number, false)).collect();
    for round in 2..300 {
        watchers.iter_mut().for_each(|watcher| assert!(is_granted(&watcher.ask(watch()))));
        let at = write(&mut writer, round);
        for watcher in &mut watchers {
            assert_eq!(notices(watcher), [Notice { node: root(), at }]);
        }
    }
    assert!(!is_granted(&writer.ask(watch())), "by a connection for other requests");
    assert!(!is_granted(&Raw::unix(&path, LANE | 4).ask(watch())), "by a lane");
    let mut relayed = Raw::watcher(&path, 5, true);
    assert!(!is_granted(&relayed.ask(watch())), "the server sees the socket of another program");
}

/// A watcher whose socket is full cannot get its notice: its connection ends, before the change is
/// acknowledged.
#[test]
fn a_watcher_without_room_for_a_notice_is_closed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let (_sockets, _core) = serve_unix(&path);
    let mut writer = Raw::unix(&path, 1);
    fill(&mut writer);
    let mut watcher = Raw::watcher(&path, 1, false);
    assert!(is_granted(&watcher.ask(watch())));
    watcher.send((1..=8).map(|number| (number, scan())));
    // In a later round than these, the server has sent as much as the socket takes.
    writer.ask(lookup());
    write(&mut writer, 2);
    let mut rest = Vec::new();
    // A reset discards what was not read.
    let _ = watcher.stream.read_to_end(&mut rest);
    assert!(rest.len() < 8 * LEAF, "{}", rest.len());
    assert!(watcher.stream.write_all(&[0; 64]).is_err());
}
