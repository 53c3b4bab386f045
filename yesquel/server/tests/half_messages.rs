//! Clients that begin messages and do not end them.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};
use support::{Raw, Served, lookup, serve};
use yesquel_engine::Settings;
use yesquel_server::{Core, WallTime};
use yesquel_wire::{Writer, status::ConnectionStatus};

fn in_memory() -> Served {
    serve(|sink| Core::in_memory(Settings::default(), WallTime::default(), sink))
}

/// A frame with a piece of a message, and not its last.
fn piece(number: u64, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    Writer(&mut body).number(number).flag(false).bytes(&vec![0; bytes]);
    let (length, crc) = (body.len() as u32, crc32fast::hash(&body));
    [&length.to_le_bytes()[..], &crc.to_le_bytes(), &body].concat()
}

/// Waits for what the server's thread does.
#[track_caller]
fn until(served: &Served, missing: &str, is_done: impl Fn(&ConnectionStatus) -> bool) {
    let begun = Instant::now();
    loop {
        let status = served.core.status().connections;
        if is_done(&status) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{missing}: {status:?}");
        thread::yield_now();
    }
}

/// The system tells once of the end, and here it tells of it together with the
/// last bytes: what is read of them is not all that there was to be read.
#[test]
fn the_end_is_seen_that_came_with_the_last_bytes() {
    const CLIENTS: u64 = 9;
    let served = in_memory();
    let mut first = Raw::new(served.address, 1);
    for bytes in [1, 100, 16 << 10] {
        let clients: Vec<Raw> = (0..CLIENTS).map(|client| Raw::new(served.address, 2 + client)).collect();
        // The server's thread is held up as soon as it has read something.
        let session = served.core.session();
        first.send([(1, lookup())]);
        for mut client in clients {
            client.stream.write_all(&piece(1, bytes)).unwrap();
        }
        drop(session);
        first.replies(1, |_, _| {});
        until(&served, "connections were closed and are still open", |status| status.open == 1);
    }
}
