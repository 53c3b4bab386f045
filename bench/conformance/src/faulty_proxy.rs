//! A proxy between client and server that injects faults.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Forwards connections to a server. Can cut them, delay answers, and refuse
/// connections like a server that restarts.
#[derive(Debug)]
pub struct FaultyProxy {
    /// Address for clients.
    pub address: String,
    gate: Arc<ProxyGate>,
}

#[derive(Debug, Default)]
struct ProxyGate {
    open: Mutex<Vec<TcpStream>>,
    /// Locked while answers are delayed.
    answers: Mutex<()>,
    /// Answers until all connections are cut; 0: never.
    until_cut: AtomicU64,
    /// Number of connections to refuse after that.
    to_refuse: AtomicU64,
    refused: AtomicU64,
    /// Word whose occurrences in requests are counted.
    word: &'static [u8],
    asked: AtomicU64,
}

impl FaultyProxy {
    /// Starts a proxy of a server that counts the requests with a word.
    pub fn new(server: &str, word: &'static [u8]) -> FaultyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Arc::new(ProxyGate { word, ..ProxyGate::default() });
        let proxy = FaultyProxy { address: listener.local_addr().unwrap().to_string(), gate };
        let (server, gate) = (server.to_owned(), Arc::clone(&proxy.gate));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if gate.refuses() {
                    continue;
                }
                let upstream = TcpStream::connect(&server).unwrap();
                // As without the proxy, small packets are not delayed.
                client.set_nodelay(true).unwrap();
                upstream.set_nodelay(true).unwrap();
                lock(&gate.open).extend([client.try_clone().unwrap(), upstream.try_clone().unwrap()]);
                let (from, to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                let (asking, answering) = (Arc::clone(&gate), Arc::clone(&gate));
                thread::spawn(move || pass(from, to, |request| asking.asked(request)));
                thread::spawn(move || pass(upstream, client, |_| answering.answered()));
            }
        });
        proxy
    }

    /// Drops the next answer and cuts all connections: the server executes the request, but
    /// the client gets no answer.
    pub fn lose_the_next_answer(&self) {
        self.go_away_after(0, 0);
    }

    /// Cuts all connections after `answers` answers, then refuses the next `refused`
    /// connections, like a server that restarts.
    pub fn go_away_after(&self, answers: u64, refused: u64) {
        self.gate.to_refuse.store(refused, Ordering::SeqCst);
        self.gate.until_cut.store(answers + 1, Ordering::SeqCst);
    }

    /// Delays answers until the guard is dropped.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.gate.answers)
    }

    /// Returns the number of the word's occurrences in requests.
    pub fn asked(&self) -> u64 {
        self.gate.asked.load(Ordering::SeqCst)
    }

    /// Returns the number of refused connections.
    pub fn refused(&self) -> u64 {
        self.gate.refused.load(Ordering::SeqCst)
    }
}

impl ProxyGate {
    /// Returns whether to refuse a connection; only after the connections were cut.
    fn refuses(&self) -> bool {
        let gone = self.until_cut.load(Ordering::SeqCst) == 0;
        let one_less = |left: u64| left.checked_sub(1);
        let refuses =
            gone && self.to_refuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        self.refused.fetch_add(u64::from(refuses), Ordering::SeqCst);
        refuses
    }

    /// Counts the word in a request. Returns true: requests are always forwarded.
    fn asked(&self, request: &[u8]) -> bool {
        let count = request.windows(self.word.len().max(1)).filter(|part| *part == self.word).count();
        self.asked.fetch_add(count as u64, Ordering::SeqCst);
        true
    }

    /// Returns whether to forward an answer.
    fn answered(&self) -> bool {
        drop(lock(&self.answers));
        let one_less = |left: u64| left.checked_sub(1);
        let cut = self.until_cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(1);
        if cut {
            for stream in lock(&self.open).drain(..) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        !cut
    }
}

/// Locks a mutex, even if another test panicked with it locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 1 << 14];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !may(&buffer[..length]) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
