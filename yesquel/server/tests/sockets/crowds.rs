//! More connections than a server accepts, most of them silent.

use crate::support::{CLIENTS_MAX, Raw, Served, in_memory, lookup};
use std::{
    io::{Read, Write},
    net::TcpStream,
};
use yesquel_server::ManualTime;
use yesquel_wire::greeting::{Denial, Hello, Role, VERSIONS, Welcome};

/// Number of connections that get a refusal, by `docs/yesquel/wire.md`.
const DENIED_MAX: usize = 64;

/// Returns the server's answer to a greeting.
fn greet(served: &Served) -> Welcome {
    let mut stream = TcpStream::connect(served.address).unwrap();
    // It may be closed with the answer before the greeting is sent.
    let _ = stream.write_all(
        &Hello { versions: VERSIONS, client: 99, credential: b"", role: Role::Client, cluster: None }
            .encode(),
    );
    let (mut answer, mut room) = (Vec::new(), [0; 100]);
    loop {
        if let Some((welcome, _)) = Welcome::decode(&answer).unwrap() {
            return welcome;
        }
        let count = stream.read(&mut room).unwrap();
        assert!(count > 0, "closed without an answer");
        answer.extend_from_slice(&room[..count]);
    }
}

#[test]
fn a_greeting_is_answered_among_many_silent_connections() {
    let clock = ManualTime::default();
    let served = in_memory(&clock);
    let mut client = Raw::new(served.address, 1);
    let silent = || TcpStream::connect(served.address).unwrap();
    let many: Vec<TcpStream> = (1..CLIENTS_MAX + DENIED_MAX).map(|_| silent()).collect();
    served.until("they are taken", |status| status.open as usize == CLIENTS_MAX + DENIED_MAX);
    // They may be about to greet.
    for _ in 0..10 {
        let all = CLIENTS_MAX as u32;
        assert_eq!(greet(&served), Welcome::Refused(Denial::TooManyConnections(all)));
    }
    clock.pass(1_000);
    for number in 0..10 {
        assert!(matches!(greet(&served), Welcome::Served { .. }), "{number}");
    }
    assert!(served.connections().refused > 10);
    drop(many);
    client.ask(lookup());
}

#[test]
fn a_silent_connection_is_closed() {
    let clock = ManualTime::default();
    let served = in_memory(&clock);
    let mut client = Raw::new(served.address, 1);
    let mut silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    silent[1].write_all(b"YESQUEL1").unwrap();
    served.until("they are taken", |status| status.open == 4);
    clock.pass(9_000);
    client.ask(lookup());
    client.ask(lookup());
    assert_eq!(served.connections().open, 4);
    // Continuing a greeting does not extend its time limit.
    silent[2].write_all(b"YESQUEL1").unwrap();
    clock.pass(1_000);
    client.ask(lookup());
    served.until("they are closed", |status| (status.open, status.refused) == (1, 3));
}
