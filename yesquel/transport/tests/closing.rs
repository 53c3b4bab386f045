//! Closing right after requests that no caller waits for: a process may exit after a commit.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::channel,
    thread,
    time::Duration,
};
use yesquel_model::{ClusterMembership, GroupEpoch, ServerId, Timestamp};
use yesquel_transport::{Address, SocketOptions, SocketTransport, Transport};
use yesquel_wire::{
    Reply,
    frame::{Inbox, Outbox},
    greeting::{Hello, VERSIONS, Welcome},
};

/// More than the server's receive buffer takes, and less than the client's send buffer.
const REQUESTS: usize = 10;
const REQUEST_BYTES: usize = 50_000;

/// Reads the greeting and welcomes the client.
fn greet(stream: &mut TcpStream) {
    let (mut bytes, mut room) = (Vec::new(), [0; 1024]);
    while Hello::decode(&bytes).unwrap().is_none() {
        let count = stream.read(&mut room).unwrap();
        bytes.extend_from_slice(&room[..count]);
    }
    let (server, requests_max, now) = (ServerId(0), 100, Timestamp::from_ms(1_000));
    let (membership, epoch) = (ClusterMembership::default(), GroupEpoch::FIRST);
    let welcome = Welcome::Served { version: VERSIONS.1, server, requests_max, now, membership, epoch };
    stream.write_all(&welcome.encode()).unwrap();
}

/// The server has answered the first request, and the client has not read that: closing such a
/// connection resets it, and what is still in the client's send buffer would be lost.
#[test]
fn requests_without_a_waiting_caller_arrive_although_the_client_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4 << 10).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answered, was_answered) = channel();
    let (closing, is_closing) = channel();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        greet(&mut stream);
        let (mut outbox, mut reply, mut bytes) = (Outbox::default(), Vec::new(), Vec::new());
        Reply::Done.write(&mut reply);
        outbox.push(1, &reply);
        outbox.fill(&mut bytes);
        let mut is_first = true;
        let (mut inbox, mut room, mut requests) = (Inbox::default(), vec![0; 1 << 10], 0);
        loop {
            let count = match stream.read(&mut room) {
                Ok(0) => return Ok(requests),
                Ok(count) => count,
                Err(error) => return Err(error),
            };
            inbox.feed(&room[..count]);
            inbox.take(|number, _| requests += usize::from(number > 0)).unwrap();
            if std::mem::take(&mut is_first) {
                stream.write_all(&bytes).unwrap();
                answered.send(()).unwrap();
                // Reads no more before the client closes.
                is_closing.recv().unwrap();
            }
        }
    });
    let address: Address = format!("127.0.0.1:{port}").parse().unwrap();
    let close_timeout = Duration::from_secs(60);
    let options = SocketOptions { close_timeout, lanes: 0, ..SocketOptions::default() };
    let transport = SocketTransport::connect(&[address], 1, options).unwrap();
    for _ in 0..REQUESTS {
        transport.send(ServerId(0), &[7; REQUEST_BYTES], Box::new(|_| ()));
    }
    was_answered.recv().unwrap();
    closing.send(()).unwrap();
    drop(transport);
    assert_eq!(server.join().unwrap().map_err(|error| error.to_string()), Ok(REQUESTS));
}
