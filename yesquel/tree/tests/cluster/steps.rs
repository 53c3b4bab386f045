//! What a seed has done: what the tasks of clients do, one after the other,
//! and what goes wrong when. Each step may be left out by itself, which is how
//! a failing list is shortened.

use yesquel_seeds::Random;

pub(crate) const SERVERS: usize = 3;
/// Clients, each a process with a cache and connections of its own.
pub(crate) const PROCESSES: usize = 3;
/// Tasks of all processes: two of each share its cache and connections.
pub(crate) const TASKS: usize = 2 * PROCESSES;
/// Trees that are always there, some at each server.
pub(crate) const LASTING: usize = 4;
/// All places of trees; those in the others are dropped and made anew.
pub(crate) const SLOTS: usize = LASTING + 2;
pub(crate) const KEYS: u64 = 30;
/// Microseconds in which things go wrong.
const FAULTS_US: u64 = 8_000_000;

pub(crate) fn process_of(task: usize) -> usize {
    task / 2
}

/// What a task does. A transaction begins where none is open.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Get {
        slot: usize,
        key: u64,
    },
    /// So many steps of a cursor from a key, or from an end.
    Walk {
        slot: usize,
        key: Option<u64>,
        steps: u64,
        down: bool,
    },
    /// Reads all trees.
    Audit,
    Put {
        slot: usize,
        key: u64,
        value: Value,
    },
    Insert {
        slot: usize,
        key: u64,
        value: Value,
    },
    Delete {
        slot: usize,
        key: u64,
    },
    DeleteRange {
        slot: usize,
        from: u64,
        to: u64,
    },
    Guard {
        slot: usize,
        from: u64,
        to: u64,
    },
    /// Drops a tree, and makes another one with a key in its place.
    Replace {
        slot: usize,
        server: usize,
        key: u64,
        value: Value,
    },
    Savepoint,
    RollbackTo,
    Rollback,
    Commit,
}

/// A number and a length: the bytes follow from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) number: u32,
    pub(crate) length: usize,
}

impl Value {
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.number.to_le_bytes().into_iter().cycle().take(self.length).collect()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Messages take different times, one in so many much longer.
    Weather {
        seed: u64,
        late_in: u64,
        late_us: u64,
    },
    /// Bytes of log between checkpoints, and of a segment.
    Log {
        checkpoint_bytes: u64,
        segment_bytes: u64,
    },
    Act {
        task: usize,
        pause_us: u64,
        act: Act,
    },
    /// A client dies as it makes a call, before or after it is sent.
    Die {
        process: usize,
        call: u64,
        sent: bool,
    },
    /// The connections between a client, or another server, and a server are
    /// cut. So many quarters of what is under way each way still arrive, the
    /// requests so much later, perhaps behind those of the next connection.
    Cut {
        at_us: u64,
        peer: usize,
        server: usize,
        requests: u64,
        late_us: u64,
        replies: u64,
    },
    /// The same, so long after a call of a client is sent, on its connection.
    CutCall {
        process: usize,
        call: u64,
        after_us: u64,
        requests: u64,
        late_us: u64,
        replies: u64,
    },
    /// Nothing goes between a server and some of the others and of the clients:
    /// it waits, or connections break.
    Part {
        at_us: u64,
        us: u64,
        server: usize,
        peers: u32,
        breaks: bool,
    },
    /// A server's process ends; with the power what is not synced goes. Its
    /// clock may be another one then.
    Fall {
        at_us: u64,
        server: usize,
        power: Option<u64>,
        down_us: u64,
        ahead_ms: Option<i64>,
    },
    /// The power of a server goes in the operation of its disk after so many.
    PowerGoes {
        at_us: u64,
        server: usize,
        operations: u64,
        seed: u64,
        down_us: u64,
    },
    /// Syncs fail, until the server is started anew.
    SyncFails {
        at_us: u64,
        server: usize,
        power: Option<u64>,
        until_us: u64,
    },
    /// The disk has room for so many bytes, until the server is started anew.
    Full {
        at_us: u64,
        server: usize,
        room: usize,
        until_us: u64,
    },
    /// A server's clock is wrong from then on.
    Clock {
        at_us: u64,
        server: usize,
        ahead_ms: i64,
    },
}

impl Step {
    /// Whether it is something that goes wrong.
    pub(crate) fn is_fault(&self) -> bool {
        match self {
            Step::Act { .. } | Step::Log { .. } => false,
            Step::Weather { late_in, .. } => *late_in > 0,
            _ => true,
        }
    }
}

/// The places of clients and servers in [`Step::Part`] and [`Step::Cut`].
pub(crate) const PEERS: usize = PROCESSES + SERVERS;

pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut steps = Vec::new();
    // Some seeds are calm, so that it is seen that nobody is refused then
    // without a reason.
    let is_calm = random.next(5) == 0;
    if random.next(8) > 0 {
        let late_in = if is_calm { 0 } else { [0, 10, 30, 100][random.next(4) as usize] };
        let late_us = [5_000, 50_000, 400_000][random.next(3) as usize];
        steps.push(Step::Weather { seed: random.next(1 << 30), late_in, late_us });
    }
    if random.next(4) > 0 {
        let checkpoint_bytes = 1_000 + random.next(20_000);
        steps.push(Step::Log { checkpoint_bytes, segment_bytes: 500 + random.next(5_000) });
    }
    if !is_calm {
        faults(random, &mut steps);
    }
    let slow = [1_000, 40_000, 200_000][random.next(3) as usize];
    let load = Load {
        slow,
        has_long: random.next(3) == 0,
        hot: (random.next(3) == 0).then(|| random.next(SLOTS as u64) as usize),
    };
    for _ in 0..20 + random.next(70) {
        transaction(random, load, &mut steps);
    }
    steps
}

fn faults(random: &mut Random, steps: &mut Vec<Step>) {
    let server = |random: &mut Random| random.next(SERVERS as u64) as usize;
    let power = |random: &mut Random| (random.next(3) > 0).then(|| random.next(1 << 20));
    let mut kinds: u64 = random.next(1 << 8);
    let mut some = |random: &mut Random, most: u64| {
        // Not every seed has all kinds: one that hides another is not always there.
        kinds = kinds.rotate_right(1);
        if kinds & 1 == 0 { 0 } else { 1 + random.next(most) }
    };
    for _ in 0..some(random, 4) {
        let (process, call) = (random.next(PROCESSES as u64) as usize, random.next(500));
        steps.push(Step::Die { process, call, sent: random.next(2) == 0 });
    }
    for _ in 0..some(random, 12) {
        let (at_us, peer) = (random.next(FAULTS_US), random.next(PEERS as u64) as usize);
        let (requests, replies) = (random.next(5), random.next(5));
        let late_us = if random.next(2) == 0 { 0 } else { random.next(100_000) };
        steps.push(Step::Cut { at_us, peer, server: server(random), requests, late_us, replies });
    }
    for _ in 0..some(random, 20) {
        let (process, call) = (random.next(PROCESSES as u64) as usize, random.next(500));
        let after_us = if random.next(2) == 0 { 0 } else { random.next(5_000) };
        let (requests, late_us, replies) = (random.next(5), random.next(100_000), random.next(5));
        steps.push(Step::CutCall { process, call, after_us, requests, late_us, replies });
    }
    for _ in 0..some(random, 3) {
        let (at_us, us) = (random.next(FAULTS_US), random.next(1_500_000));
        let all = 1 << PEERS;
        let peers = if random.next(2) == 0 { all - 1 } else { random.next(all) };
        let breaks = random.next(2) == 0;
        steps.push(Step::Part { at_us, us, server: server(random), peers: peers as u32, breaks });
    }
    for _ in 0..some(random, 4) {
        let (at_us, slow) = (random.next(FAULTS_US), random.next(3) == 0);
        let down_us = random.next(if slow { 700_000 } else { 20_000 });
        let ahead_ms = (random.next(2) == 0).then(|| 300 - random.next(600) as i64);
        steps.push(Step::Fall { at_us, server: server(random), power: power(random), down_us, ahead_ms });
    }
    for _ in 0..some(random, 5) {
        let (at_us, down_us) = (random.next(FAULTS_US), random.next(700_000));
        let (operations, seed) = (random.next(60), random.next(1 << 20));
        steps.push(Step::PowerGoes { at_us, server: server(random), operations, seed, down_us });
    }
    for _ in 0..some(random, 2) {
        let (at_us, us) = (random.next(FAULTS_US), random.next(900_000));
        let (server, power) = (server(random), power(random));
        if random.next(2) == 0 {
            steps.push(Step::SyncFails { at_us, server, power, until_us: at_us + us });
        } else {
            steps.push(Step::Full { at_us, server, room: random.next(3_000) as usize, until_us: at_us + us });
        }
    }
    for _ in 0..some(random, 3) {
        let at_us = if random.next(2) == 0 { 0 } else { random.next(FAULTS_US) };
        // One that is far behind refuses the others' stamps.
        let behind_ms = if random.next(4) == 0 { 5_000 } else { 500 };
        let ahead_ms = 300 - random.next(behind_ms) as i64;
        steps.push(Step::Clock { at_us, server: server(random), ahead_ms });
    }
}

/// What transactions are like.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Microseconds that a task waits, about.
    slow: u64,
    has_long: bool,
    /// The tree that is asked for most.
    hot: Option<usize>,
}

fn transaction(random: &mut Random, load: Load, steps: &mut Vec<Step>) {
    let Load { slow, has_long: long, hot } = load;
    let task = random.next(TASKS as u64) as usize;
    let mut push = |random: &mut Random, act: Act| {
        let pause_us = if random.next(4) == 0 { random.next(slow * 4) } else { random.next(slow) };
        steps.push(Step::Act { task, pause_us, act });
    };
    // Some keep to few keys, where they meet.
    let keys = if random.next(3) == 0 { 6 } else { KEYS };
    for _ in 0..1 + random.next(6) {
        let (key, other) = (random.next(keys), random.next(keys));
        let any = random.next(SLOTS as u64) as usize;
        let slot = hot.filter(|_| random.next(4) > 0).unwrap_or(any);
        let length = match random.next(60) {
            0 if long => 600_000,
            1..5 if long => 32_769 + random.next(9_000) as usize,
            _ => 4 + random.next(20) as usize,
        };
        let value = Value { number: random.next(1 << 31) as u32, length };
        let act = match random.next(60) {
            0..8 => Act::Get { slot, key },
            8..14 => {
                let (steps, down) = (random.next(12), random.next(2) == 0);
                Act::Walk { slot, key: (random.next(3) > 0).then_some(key), steps, down }
            }
            14 => Act::Audit,
            15..34 => Act::Put { slot, key, value },
            34..44 => Act::Insert { slot, key, value },
            44..51 => Act::Delete { slot, key },
            51 | 52 => Act::DeleteRange { slot, from: key, to: other },
            53 | 54 => Act::Guard { slot, from: key, to: other },
            55 => Act::Savepoint,
            56 => Act::RollbackTo,
            57 => {
                let (slot, server) =
                    (LASTING + slot % (SLOTS - LASTING), random.next(SERVERS as u64) as usize);
                Act::Replace { slot, server, key, value }
            }
            _ => Act::Put { slot, key, value },
        };
        push(random, act);
    }
    let end = if random.next(12) == 0 { Act::Rollback } else { Act::Commit };
    push(random, end);
}
