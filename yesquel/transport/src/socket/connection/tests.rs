//! The receiving role passes from thread to thread: no thread sleeps while a reply can be read and
//! no other thread reads.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use super::{finish::FINISH_STEP, *};
use crate::{Address, CancelCheck, SocketOptions, block_on};
use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    pin::pin,
    sync::{
        atomic::{AtomicU64, AtomicUsize},
        mpsc::channel,
    },
    task::Wake,
};
use yesquel_seeds::Random;
use yesquel_wire::{
    Destination,
    greeting::{Hello, VERSIONS, Welcome},
};

/// Time limit for what must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// The server's side of a connection, by hand.
struct ServerSide {
    stream: UnixStream,
    inbox: Inbox,
}

impl ServerSide {
    /// Returns the numbers of the requests that come next, one or more.
    fn requests(&mut self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        while numbers.is_empty() {
            if self.inbox.read_from(&mut self.stream)?.0 == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.inbox.take(|number, _| numbers.push(number)).unwrap();
        }
        Ok(numbers)
    }

    /// Replies to requests, with their numbers.
    fn reply(&mut self, numbers: &[u64]) -> io::Result<()> {
        let (mut outbox, mut bytes) = (Outbox::default(), Vec::new());
        numbers.iter().for_each(|number| outbox.push(*number, &number.to_be_bytes()));
        outbox.fill(&mut bytes);
        self.stream.write_all(&bytes)
    }
}

fn destination() -> EncodedDestination {
    Destination { group: ServerId(0), epoch: GroupEpoch::FIRST }.encode()
}

/// A connection and the server's side of it.
fn connected() -> (Arc<ServerConnection>, ServerSide) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("yesquel-roles-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let accept = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut bytes, mut room) = (Vec::new(), [0; 1024]);
        while Hello::decode(&bytes).unwrap().is_none() {
            let count = stream.read(&mut room).unwrap();
            bytes.extend_from_slice(&room[..count]);
        }
        let (server, requests_max, now) = (ServerId(0), 256, Timestamp::from_ms(1_000));
        let (membership, epoch) = (ClusterMembership::default(), GroupEpoch::FIRST);
        let (version, others) = (VERSIONS.1, Vec::new());
        let welcome = Welcome::Served { version, server, requests_max, now, membership, epoch, others };
        stream.write_all(&welcome.encode()).unwrap();
        stream
    });
    let address = Address::Unix(path.clone());
    let connection = ServerConnection::connect(&address, 1, &SocketOptions::default(), None).unwrap();
    std::fs::remove_file(path).unwrap();
    (Arc::new(connection), ServerSide { stream: accept.join().unwrap(), inbox: Inbox::default() })
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl CountingWaker {
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// A call of another thread, which has found the role taken and sleeps.
fn sleeping_call(connection: &Arc<ServerConnection>, woken: &Arc<CountingWaker>) -> InFlightCall {
    let mut call = connection.call(&destination(), b"request", None).unwrap();
    // Another receiver, meanwhile.
    let is_free = !connection.has_receiver.swap(true, SeqCst);
    let waker = Waker::from(Arc::clone(woken));
    assert!(pin!(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
    if is_free {
        connection.has_receiver.store(false, SeqCst);
    }
    call
}

#[test]
fn a_receiver_for_handlers_leaves_to_a_waiting_thread() {
    let (connection, mut server) = connected();
    connection
        .send(&destination(), b"decision", None, Box::new(|_| ()))
        .unwrap_or_else(|_| panic!("no slot"));
    let role = connection.take_role(None).unwrap();
    let woken = Arc::default();
    let call = sleeping_call(&connection, &woken);
    // No reply comes, neither to the handler nor to the call.
    connection.receive(role);
    assert_eq!(woken.count(), 1);
    // The thread receives itself.
    server.requests().unwrap();
    server.reply(&[2]).unwrap();
    assert_eq!(block_on(call).unwrap(), 2u64.to_be_bytes());
}

#[test]
fn a_receiver_whose_reply_has_come_wakes_the_next() {
    let (connection, mut server) = connected();
    let woken = Arc::default();
    let own = connection.call(&destination(), b"request", None).unwrap();
    let other = sleeping_call(&connection, &woken);
    server.requests().unwrap();
    server.reply(&[1]).unwrap();
    assert_eq!(block_on(own).unwrap(), 1u64.to_be_bytes());
    assert_eq!(woken.count(), 1);
    server.reply(&[2]).unwrap();
    assert_eq!(block_on(other).unwrap(), 2u64.to_be_bytes());
}

/// A receiver that asks whether it is cancelled may take long for that.
#[test]
fn a_receiver_leaves_the_role_while_its_cancel_check_runs() {
    static WOKEN: OnceLock<Arc<CountingWaker>> = OnceLock::new();
    let (connection, _server) = connected();
    let woken = WOKEN.get_or_init(Arc::default);
    // The first slot is the receiver's own, which it must not wake.
    let own = connection.call(&destination(), b"request", None).unwrap();
    let _other = sleeping_call(&connection, woken);
    let is_cancelled = |_| {
        assert_eq!(WOKEN.get().map(|woken| woken.count()), Some(1));
        true
    };
    let _guard = CancelCheck { is_cancelled, argument: 0 }.begin();
    assert_eq!(block_on(own).unwrap_err().cause, crate::LossCause::Cancelled);
}

#[test]
fn a_call_that_is_dropped_wakes_the_next() {
    let (connection, _server) = connected();
    let (first, second) = (Arc::default(), Arc::default());
    let next_receiver = sleeping_call(&connection, &first);
    let _other = sleeping_call(&connection, &second);
    // It was woken to receive, and is cancelled instead.
    drop(next_receiver);
    assert_eq!((first.count(), second.count()), (0, 1));
}

#[test]
fn all_calls_fail_when_the_connection_ends_under_a_receiver() {
    let (connection, mut server) = connected();
    let woken: Vec<Arc<CountingWaker>> = (0..100).map(|_| Arc::default()).collect();
    let own = connection.call(&destination(), b"request", None).unwrap();
    let others: Vec<InFlightCall> = woken.iter().map(|woken| sleeping_call(&connection, woken)).collect();
    let (handled, is_handled) = channel();
    let handler = Box::new(move |outcome: Result<&[u8], _>| handled.send(outcome.is_err()).unwrap());
    connection.send(&destination(), b"decision", None, handler).unwrap_or_else(|_| panic!("no slot"));
    server.requests().unwrap();
    drop(server);
    assert!(block_on(own).is_err());
    assert!(woken.iter().all(|woken| woken.count() > 0));
    assert!(others.into_iter().all(|call| block_on(call).is_err()));
    assert_eq!(is_handled.recv(), Ok(true));
}

/// Number of a thread's calls in the seeded test.
const CALLS: u64 = 100;
const THREADS: u64 = 6;

/// Replies in a drawn order, some late, until the clients have ended, or ends the connection after
/// a number of requests.
fn serve(mut server: ServerSide, mut random: Random, mut requests_left: usize) {
    server.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut open = Vec::new();
    loop {
        let is_quiet = match server.requests() {
            Ok(numbers) if numbers.len() > requests_left => return,
            Ok(numbers) => {
                requests_left -= numbers.len();
                open.extend(numbers);
                false
            }
            Err(error) if is_late(&error) => true,
            Err(_) => return,
        };
        // When no request comes, the clients wait for these.
        let count = if is_quiet { open.len() as u64 } else { random.next(open.len() as u64 + 1) };
        let reply = |_| open.swap_remove(random.next(open.len() as u64) as usize);
        let replies: Vec<u64> = (0..count).map(reply).collect();
        if !replies.is_empty() && server.reply(&replies).is_err() {
            return;
        }
    }
}

/// Calls of one thread: some are dropped unanswered, some are taken by handlers.
fn work(connection: &Arc<ServerConnection>, mut random: Random, handled: &Arc<AtomicU64>) -> u64 {
    let mut sent = 0;
    for _ in 0..CALLS {
        match random.next(8) {
            0 => drop(connection.call(&destination(), b"dropped", None)),
            1 => {
                let counts = Arc::clone(handled);
                let handler = Box::new(move |_: Result<&[u8], _>| {
                    counts.fetch_add(1, SeqCst);
                });
                sent += u64::from(connection.send(&destination(), b"handled", None, handler).is_ok());
            }
            _ => {
                let Ok(call) = connection.call(&destination(), b"awaited", None) else { return sent };
                let number = u64::from(call.slot) + 1;
                match block_on(call) {
                    Ok(reply) => assert_eq!(reply, number.to_be_bytes()),
                    Err(_) => return sent,
                }
            }
        }
    }
    sent
}

/// Threads call, cancel and send while the server replies in any order, and while the connection
/// ends. Every call returns, and every handler runs once.
#[test]
fn no_thread_sleeps_for_ever() {
    for seed in 0..9 {
        let (connection, server) = connected();
        let requests_left = if seed % 3 == 2 { 100 + seed as usize * 20 } else { usize::MAX };
        let (done, is_done) = channel();
        thread::spawn(move || {
            let handled = Arc::<AtomicU64>::default();
            let serving = thread::spawn(move || serve(server, Random::new(seed), requests_left));
            let sent: u64 = thread::scope(|scope| {
                let work = |thread| {
                    scope.spawn({
                        let (connection, handled) = (&connection, &handled);
                        move || work(connection, Random::new(seed << 8 | thread), handled)
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(work).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            connection.close_with(LostConnection::other("it was closed"));
            serving.join().unwrap();
            done.send((sent, handled.load(SeqCst))).unwrap();
        });
        let (sent, handled) =
            is_done.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("seed {seed}: a thread sleeps"));
        assert_eq!(sent, handled, "seed {seed}");
    }
}

/// While another thread sends or receives, the end of a connection waits, and does not spin.
#[test]
fn the_end_of_a_connection_sleeps_while_another_thread_receives() {
    let (connection, _server) = connected();
    connection
        .send(&destination(), b"decision", None, Box::new(|_| ()))
        .unwrap_or_else(|_| panic!("no slot"));
    let time = 20 * FINISH_STEP;
    let asked = |acts: &dyn Fn() -> bool| {
        let mut count = 0;
        let is_to_wait = || {
            count += 1;
            true
        };
        connection.wait_while(Instant::now() + time, is_to_wait, acts);
        count
    };
    let role = connection.take_role(None).unwrap();
    // A sleep may take longer, not shorter.
    assert!(asked(&|| connection.receive_handled()) <= 21);
    assert!(asked(&|| false) <= 21);
    drop(role);
    // A thread waits that has not got the role yet.
    let woken = Arc::default();
    let call = sleeping_call(&connection, &woken);
    assert!(asked(&|| connection.receive_handled()) <= 21);
    drop(call);
}
