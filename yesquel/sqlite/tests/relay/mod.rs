//! Relay between clients and a server that can hold back their messages.

#![allow(dead_code, reason = "each test file uses another part of it")]

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
    thread,
};
use yesquel_wire::{ClientHeartbeat, frame::Inbox, greeting::Hello};

#[derive(Default)]
struct State {
    is_shut: bool,
    /// Whether a client has sent a request since.
    has_asked: bool,
    /// Bytes sent by the clients.
    sent: usize,
    /// Number of sent bytes at which the gate shuts.
    shuts_at: Option<usize>,
    /// Number of times it was opened: a thread blocked before an opening may continue even if the
    /// relay is closed again.
    opened: u64,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// Path to a server with a gate.
pub(crate) struct Relay {
    pub(crate) socket: PathBuf,
    gate: Arc<Gate>,
}

/// Parser of a client's messages: a greeting, then requests and heartbeats.
#[derive(Default)]
struct Asked {
    inbox: Inbox,
    has_greeted: bool,
}

impl Asked {
    /// Returns whether the bytes contain a request or the beginning of one.
    fn hears(&mut self, bytes: &[u8]) -> bool {
        self.inbox.feed(bytes);
        let mut asks = !self.has_greeted;
        if !self.has_greeted
            && let Some((_, length)) = Hello::decode(self.inbox.unread()).unwrap()
        {
            self.inbox.skip(length);
            self.has_greeted = true;
        }
        if self.has_greeted {
            self.inbox.take(|number, _| asks |= number != ClientHeartbeat::NUMBER).unwrap();
            asks |= self.inbox.is_amid();
        }
        asks
    }
}

/// Forwards one direction.
fn pump(mut from: UnixStream, mut to: UnixStream, gate: &Gate, mut asked: Option<Asked>) {
    let (mut room, mut kept) = (vec![0; 1 << 16], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut room) {
        kept.extend_from_slice(&room[..count]);
        let mut state = gate.state.lock().unwrap();
        if let Some(asked) = &mut asked {
            let asks = asked.hears(&room[..count]);
            state.sent += count;
            state.is_shut |= state.shuts_at.is_some_and(|shuts_at| shuts_at < state.sent);
            if state.is_shut && !asks {
                continue;
            }
            if state.is_shut {
                state.has_asked = true;
                gate.changed.notify_all();
            }
        }
        let opened = state.opened;
        drop(gate.changed.wait_while(state, |state| state.is_shut && state.opened == opened).unwrap());
        if to.write_all(&kept).is_err() {
            break;
        }
        kept.clear();
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}

impl Relay {
    /// Creates a relay to a server's socket. Its threads end with the connections, or with the
    /// process.
    pub(crate) fn new(socket: PathBuf, server: &Path) -> Relay {
        let (gate, server) = (Arc::<Gate>::default(), server.to_owned());
        let relay = Relay { socket, gate: Arc::clone(&gate) };
        let listener = UnixListener::bind(&relay.socket).unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else { continue };
                let (asks, answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (one, other) = (Arc::clone(&gate), Arc::clone(&gate));
                thread::spawn(move || pump(asks, server, &one, Some(Asked::default())));
                thread::spawn(move || pump(answers, client, &other, None));
            }
        });
        relay
    }

    /// Holds all messages back until it is opened.
    pub(crate) fn shut(&self) {
        let mut state = self.gate.state.lock().unwrap();
        (state.is_shut, state.has_asked) = (true, false);
    }

    /// Bytes that clients have sent since it was opened.
    pub(crate) fn sent(&self) -> usize {
        self.gate.state.lock().unwrap().sent
    }

    /// Shuts when clients have sent so many more bytes.
    pub(crate) fn shut_after(&self, bytes: usize) {
        let mut state = self.gate.state.lock().unwrap();
        *state = State { shuts_at: Some(bytes), opened: state.opened, ..State::default() };
    }

    /// Waits until a client has sent a request that is held back.
    pub(crate) fn wait_for_request(&self) {
        let state = self.gate.state.lock().unwrap();
        drop(self.gate.changed.wait_while(state, |state| !state.has_asked).unwrap());
    }

    pub(crate) fn open(&self) {
        let mut state = self.gate.state.lock().unwrap();
        *state = State { opened: state.opened + 1, ..State::default() };
        drop(state);
        self.gate.changed.notify_all();
    }
}
