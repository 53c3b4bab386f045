//! A Redis whose new records become visible late for all clients: a proxy in front of a real one.
//! Its delays follow a known law, and it knows the instant at which each record becomes visible, so
//! the measurements of independent processes can be compared with it.

use serval_runner::clock;
use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// The law of the delays, ns.
#[derive(Debug, Clone, Copy)]
pub enum Law {
    Constant(u64),
    /// Exponential, with its mean.
    Exponential(u64),
}

struct State {
    random: u64,
    /// By key: when it becomes visible, ns of the system's monotonic clock; `u64::MAX` until Redis has
    /// it.
    seen_at: HashMap<Vec<u8>, u64>,
}

/// The proxy. Its threads end with their connections, and with the test.
pub struct LateRedis {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl LateRedis {
    /// Starts a proxy in front of the Redis at `address`.
    pub fn start(address: &str, law: Law, seed: u64) -> LateRedis {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { random: seed, seen_at: HashMap::new() }));
        let (shared, address) = (Arc::clone(&state), address.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (state, redis) = (Arc::clone(&shared), TcpStream::connect(&address).unwrap());
                // Ends when either side disconnects.
                thread::spawn(move || drop(pass(&client, &redis, law, &state)));
            }
        });
        LateRedis { port, state }
    }

    /// Returns when an inserted record became visible, ns of the system's monotonic clock.
    pub fn seen_at(&self, key: &str) -> u64 {
        lock(&self.state).seen_at[key.as_bytes()]
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn draw(&mut self, law: Law) -> u64 {
        // SplitMix64; a number above 0 and at most 1.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        match law {
            Law::Constant(ns) => ns,
            Law::Exponential(mean) => (-uniform.ln() * mean as f64) as u64,
        }
    }
}

/// Forwards requests and answers, one at a time.
fn pass(client: &TcpStream, redis: &TcpStream, law: Law, state: &Mutex<State>) -> io::Result<()> {
    client.set_nodelay(true)?;
    redis.set_nodelay(true)?;
    let (mut requests, mut answers) = (BufReader::new(client), BufReader::new(redis));
    loop {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        take(&mut requests, &mut request)?;
        let words: Vec<&[u8]> = request.split(|byte| *byte == b'\n').collect();
        // *N, then $LENGTH and the word in turn.
        let word = |nth: usize| words.get(2 + 2 * nth).map_or(&[][..], |word| word.trim_ascii_end());
        let (name, key) = (word(0), word(1).to_vec());
        let writes = name.eq_ignore_ascii_case(b"HMSET");
        if writes {
            // Redis may make it visible before it answers.
            lock(state).seen_at.insert(key.clone(), u64::MAX);
        }
        (&mut &*redis).write_all(&request)?;
        take(&mut answers, &mut answer)?;
        if writes {
            let mut state = lock(state);
            let seen_at = clock::now() + state.draw(law);
            state.seen_at.insert(key, seen_at);
        } else if name.eq_ignore_ascii_case(b"HGETALL") {
            let seen_at = lock(state).seen_at.get(&key).copied();
            if seen_at.is_some_and(|seen_at| seen_at > clock::now()) {
                answer = b"*0\r\n".to_vec();
            }
        }
        (&mut &*client).write_all(&answer)?;
    }
}

/// Returns one request or answer (RESP 2) unchanged.
fn take(from: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<()> {
    let start = into.len();
    if from.read_until(b'\n', into)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = std::str::from_utf8(&into[start..]).unwrap_or_default().trim_end();
    let (kind, number) = line.split_at(1);
    let count = || number.parse::<i64>().ok().and_then(|count| u64::try_from(count).ok());
    match kind {
        "$" => {
            if let Some(length) = count() {
                from.take(length + 2).read_to_end(into)?;
            }
        }
        "*" => {
            for _ in 0..count().unwrap_or(0) {
                take(from, into)?;
            }
        }
        _ => {}
    }
    Ok(())
}
