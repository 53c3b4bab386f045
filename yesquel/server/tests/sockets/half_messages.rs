//! Clients that begin messages and do not complete them.

use crate::support::{GROUP, Raw, in_memory, lookup, root};
use std::{
    io::{Read, Write},
    thread,
};
use yesquel_model::{Timestamp, TxnId};
use yesquel_server::ManualTime;
use yesquel_wire::{
    ByteWriter, Expect, NodeOperation, Operations, Request, WriteOperation,
    frame::{Outbox, UNFINISHED_BYTES_MAX},
};

/// Returns a request of a client, of slightly more than `bytes` bytes, which is refused.
fn long(client: u64, bytes: usize) -> Vec<u8> {
    let value = [7; 32 << 10];
    let write = WriteOperation::Put { key: &[3], value: &value, expect: Expect::Any, is_large: false };
    let put = NodeOperation { node: root(), write };
    let bytes = Operations::encode(&vec![put; bytes / value.len()]);
    let operations = Operations::decode(&bytes).unwrap();
    let (txn, seen) = (TxnId { client, number: 1 }, Timestamp::ZERO);
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

/// Returns a frame with a piece of a message that is not its last.
fn piece(number: u64, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    ByteWriter(&mut body).number(number).flag(false).bytes(&vec![0; bytes]);
    let (length, crc) = (body.len() as u32, crc32fast::hash(&body));
    [&length.to_le_bytes()[..], &crc.to_le_bytes(), &body].concat()
}

/// The system reports the end of a connection once, here together with the last bytes: after them
/// there is more to read.
#[test]
fn an_end_that_arrives_with_the_last_bytes_is_seen() {
    const CLIENTS: u64 = 9;
    let served = in_memory(&ManualTime::default());
    let mut first = Raw::new(served.address, 1);
    for bytes in [1, 100, 16 << 10] {
        let clients: Vec<Raw> = (0..CLIENTS).map(|client| Raw::new(served.address, 2 + client)).collect();
        // Block the server's thread as soon as it has read something.
        let session = served.core.session();
        first.send([(1, lookup())]);
        for mut client in clients {
            client.stream.write_all(&piece(1, bytes)).unwrap();
        }
        drop(session);
        first.replies(1, |_, _| {});
        served.until("connections were closed and are still open", |status| status.open == 1);
    }
}

/// Waits for a round of the server's thread: what it has read is handled.
fn go_round(raw: &mut Raw) {
    for _ in 0..3 {
        raw.ask(lookup());
    }
}

#[test]
fn a_client_that_stalls_within_a_message_is_closed() {
    let clock = ManualTime::default();
    let served = in_memory(&clock);
    let mut other = Raw::new(served.address, 1);
    for cut in [0, 5] {
        let mut client = Raw::new(served.address, 2);
        for bytes in [1_000, 2_000] {
            let piece = piece(1, 1_000);
            // With the second one a frame is incomplete, too.
            let piece = &piece[..piece.len() - if bytes > 1_000 { cut } else { 0 }];
            client.stream.write_all(piece).unwrap();
            let so_far = if cut > 0 { 1_000 } else { bytes };
            served.until("a message is begun", |status| status.unfinished == so_far);
            go_round(&mut other);
            clock.pass(59_000);
            go_round(&mut other);
            let status = served.connections();
            assert_eq!(status.open, 2, "{cut} {bytes} {status:?}");
        }
        clock.pass(1_000);
        go_round(&mut other);
        served.until("it did not go on", |status| (status.open, status.unfinished) == (1, 0));
        assert!(matches!(client.stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    assert_eq!(served.connections().refused, 2);
    // An idle client may be silent.
    clock.pass(600_000);
    go_round(&mut other);
}

#[test]
fn a_client_with_too_many_long_messages_is_closed() {
    let served = in_memory(&ManualTime::default());
    let mut client = Raw::new(served.address, 1);
    let pieces: Vec<Vec<u8>> = (1..=5).map(|number| piece(number, 16 << 10)).collect();
    // More than the limit of a connection, in messages of valid length.
    let sent = (0..(UNFINISHED_BYTES_MAX + (4 << 20)) / (16 << 10))
        .try_for_each(|at| client.stream.write_all(&pieces[at % pieces.len()]));
    served.until("it has too much in pieces", |status| (status.open, status.refused) == (0, 1));
    assert!(sent.is_err() || matches!(client.stream.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(served.connections().unfinished, 0);
}

/// They continue one at a time, and short messages pass.
#[test]
fn clients_beyond_the_common_limit_take_turns() {
    const LENGTH: usize = 15 << 20;
    let served = in_memory(&ManualTime::default());
    let mut other = Raw::new(served.address, 1);
    let mut clients: Vec<Raw> = (2..4).map(|client| Raw::new(served.address, client)).collect();
    let three_of = |client| {
        let (mut wire, mut outbox) = (Vec::new(), Outbox::default());
        (1..=3).for_each(|number| outbox.push_after(number, GROUP.encode().bytes(), &long(client, LENGTH)));
        while outbox.fill(&mut wire) {}
        wire
    };
    let (wire, other_wire) = (three_of(2), three_of(3));
    // Each holds 42 MiB, and their common limit is 80.
    let (begun, rest) = wire.split_at(42 << 20);
    let [first, second] = &mut clients[..] else { unreachable!() };
    first.stream.write_all(begun).unwrap();
    served.until("messages come", |status| status.unfinished >= 40 << 20);
    thread::scope(|scope| {
        // In parallel with the rest, as the system's buffers take an unknown number of bytes.
        scope.spawn(|| {
            second.stream.write_all(&other_wire).unwrap();
            second.replies(3, |_, _| {});
        });
        served.until("messages come", |status| status.unfinished >= 80 << 20);
        go_round(&mut other);
        let held = served.connections().unfinished;
        for _ in 0..300 {
            other.ask(lookup());
            assert_eq!(served.connections().unfinished, held);
        }
        first.stream.write_all(rest).unwrap();
        first.replies(3, |_, _| {});
    });
    assert_eq!((served.connections().unfinished, served.connections().refused), (0, 0));
}
