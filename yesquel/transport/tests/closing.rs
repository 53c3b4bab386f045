//! Closing right after requests that no caller waits for: a process may exit after a commit.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{self, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
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
    let (version, others) = (VERSIONS.1, Vec::new());
    let welcome = Welcome::Served { version, server, requests_max, now, membership, epoch, others };
    stream.write_all(&welcome.encode()).unwrap();
}

/// A server that answers the first request, and reads no more before the client closes. It counts
/// the requests up to the end of the connection, or to its reset.
struct LazyServer {
    address: Address,
    was_answered: Receiver<()>,
    closing: Sender<()>,
    served: JoinHandle<usize>,
}

impl LazyServer {
    fn start() -> LazyServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4 << 10).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answered, was_answered) = channel();
        let (closing, is_closing) = channel();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            greet(&mut stream);
            let (mut outbox, mut reply, mut bytes) = (Outbox::default(), Vec::new(), Vec::new());
            Reply::Done.write(&mut reply);
            outbox.push(1, &reply);
            outbox.fill(&mut bytes);
            let mut is_first = true;
            let (mut inbox, mut room, mut requests) = (Inbox::default(), vec![0; 1 << 10], 0);
            loop {
                let Ok(count @ 1..) = stream.read(&mut room) else { return requests };
                inbox.feed(&room[..count]);
                inbox.take(|number, _| requests += usize::from(number > 0)).unwrap();
                if std::mem::take(&mut is_first) {
                    stream.write_all(&bytes).unwrap();
                    answered.send(()).unwrap();
                    is_closing.recv().unwrap();
                }
            }
        });
        LazyServer { address: format!("127.0.0.1:{port}").parse().unwrap(), was_answered, closing, served }
    }

    /// Waits until the first request is answered.
    fn wait_for_answer(&self) {
        self.was_answered.recv().unwrap();
    }

    /// The client closes: the server goes on, up to the end of the connection.
    fn on_close(&self) {
        self.closing.send(()).unwrap();
    }

    #[track_caller]
    fn assert_complete(self) {
        assert_eq!(self.served.join().unwrap(), REQUESTS);
    }
}

fn connect(address: Address) -> SocketTransport {
    let close_timeout = Duration::from_secs(60);
    let options = SocketOptions { close_timeout, lanes: 0, ..SocketOptions::default() };
    let transport = SocketTransport::connect(&[address], 1, options).unwrap();
    for _ in 0..REQUESTS {
        transport.send(ServerId(0), &[7; REQUEST_BYTES], Box::new(|_| ()));
    }
    transport
}

/// The server has answered the first request, and the client has not read that: closing such a
/// connection resets it, and what is still in the client's send buffer would be lost.
#[test]
fn requests_without_a_waiting_caller_arrive_although_the_client_closes() {
    let server = LazyServer::start();
    let transport = connect(server.address.clone());
    server.wait_for_answer();
    server.on_close();
    drop(transport);
    server.assert_complete();
}

/// Address for [`exiting_client`].
const ADDRESS: &str = "YESQUEL_TEST_ADDRESS";

/// A process of [`requests_arrive_although_the_process_exits`]; without its variable it does nothing.
#[test]
fn exiting_client() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let transport = connect(address.parse().unwrap());
    // Until the server has answered.
    io::stdin().read_line(&mut String::new()).unwrap();
    io::stderr().write_all(b"exits\n").unwrap();
    let _open = transport;
    process::exit(0);
}

/// The process exits with its connections open, and with threads that still run.
#[test]
fn requests_arrive_although_the_process_exits() {
    let server = LazyServer::start();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "exiting_client", "--nocapture"]).env(ADDRESS, server.address.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = command.spawn().unwrap();
    server.wait_for_answer();
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut said = String::new();
    BufReader::new(client.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "exits\n");
    server.on_close();
    assert!(client.wait().unwrap().success());
    server.assert_complete();
}
