//! What stands between a client and a server and makes trouble.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Passes connections on to a server; they can be cut, answers held back, and
/// the server made to go away and come back.
#[derive(Debug)]
pub struct Between {
    /// Where clients connect to.
    pub address: String,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    open: Mutex<Vec<TcpStream>>,
    /// Held while answers are held back.
    answers: Mutex<()>,
    /// Answers that are still passed on before all connections are cut; 0 for
    /// any number.
    until_cut: AtomicU64,
    /// Connections that are then closed at once.
    to_refuse: AtomicU64,
    refused: AtomicU64,
    /// What is counted in requests.
    word: &'static [u8],
    asked: AtomicU64,
}

impl Between {
    /// Before a server, counting the requests that contain a word.
    pub fn new(server: &str, word: &'static [u8]) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Arc::new(Gate { word, ..Gate::default() });
        let between = Between { address: listener.local_addr().unwrap().to_string(), gate };
        let (server, gate) = (server.to_owned(), Arc::clone(&between.gate));
        thread::spawn(move || {
            for here in listener.incoming() {
                let here = here.unwrap();
                if gate.refuses() {
                    continue;
                }
                let there = TcpStream::connect(&server).unwrap();
                // Small pieces wait for no others, as without us.
                here.set_nodelay(true).unwrap();
                there.set_nodelay(true).unwrap();
                lock(&gate.open).extend([here.try_clone().unwrap(), there.try_clone().unwrap()]);
                let (from, to) = (here.try_clone().unwrap(), there.try_clone().unwrap());
                let (asking, answering) = (Arc::clone(&gate), Arc::clone(&gate));
                thread::spawn(move || pass(from, to, |request| asking.asked(request)));
                thread::spawn(move || pass(there, here, |_| answering.answered()));
            }
        });
        between
    }

    /// The next answer is not passed on, but all connections are cut: the
    /// server has done what was asked, and nobody hears of it.
    pub fn lose_the_next_answer(&self) {
        self.go_away_after(0, 0);
    }

    /// After so many answers all connections are cut, and the next ones, as
    /// many as told, closed at once: a server that goes away and comes back.
    pub fn go_away_after(&self, answers: u64, refused: u64) {
        self.gate.to_refuse.store(refused, Ordering::SeqCst);
        self.gate.until_cut.store(answers + 1, Ordering::SeqCst);
    }

    /// Holds answers back as long as the guard lives.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.gate.answers)
    }

    /// Requests passed on that contain the word.
    pub fn asked(&self) -> u64 {
        self.gate.asked.load(Ordering::SeqCst)
    }

    /// Connections refused.
    pub fn refused(&self) -> u64 {
        self.gate.refused.load(Ordering::SeqCst)
    }
}

impl Gate {
    /// Whether a connection is to be closed at once; none is while the server
    /// has not gone away yet.
    fn refuses(&self) -> bool {
        let gone = self.until_cut.load(Ordering::SeqCst) == 0;
        let one_less = |left: u64| left.checked_sub(1);
        let refuses =
            gone && self.to_refuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        self.refused.fetch_add(u64::from(refuses), Ordering::SeqCst);
        refuses
    }

    /// Counts a request; always passed on.
    fn asked(&self, request: &[u8]) -> bool {
        let count = request.windows(self.word.len().max(1)).filter(|part| *part == self.word).count();
        self.asked.fetch_add(count as u64, Ordering::SeqCst);
        true
    }

    /// Whether an answer is passed on.
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

/// A test that failed with it held is no reason for others to fail.
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
