//! Runs in which transactions of several servers meet at few cells, so that they ask for their votes
//! in group order and wait for each other, and runs in which disks are full while servers commit.

use crate::steps::{Act, KEYS as ALL_KEYS, SLOTS, Step, Value};
use yesquel_seeds::Random;
use yesquel_simulation::{InjectedFault, TASKS, draw_full_disks, draw_stops};

/// Keys that they write.
const KEYS: u64 = 2;
/// Longest pause between two acts in microseconds.
const PAUSE_US: u64 = 3_000;
/// The same, of transactions that do not meet.
const LONE_PAUSE_US: u64 = 60_000;

/// What the transactions of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionMix {
    Usual,
    /// Most are of several servers and meet, and their clients are often stopped.
    Meeting,
    /// Most are of one server, and the disks are often full.
    FullDisks,
}

impl TransactionMix {
    pub(crate) fn draw(random: &mut Random, is_calm: bool) -> TransactionMix {
        match random.next(8) {
            0 | 1 => TransactionMix::Meeting,
            2 if !is_calm => TransactionMix::FullDisks,
            _ => TransactionMix::Usual,
        }
    }

    /// The faults of such a run, beside those that each run may have.
    pub(crate) fn faults(self, random: &mut Random, servers: usize, is_calm: bool) -> Vec<InjectedFault> {
        match self {
            TransactionMix::Meeting if !is_calm => draw_stops(random),
            TransactionMix::FullDisks => draw_full_disks(random, servers),
            _ => Vec::new(),
        }
    }

    /// Adds a transaction in place of the steps of the last one, or leaves those.
    pub(crate) fn replace(self, random: &mut Random, place: usize, steps: &mut Vec<Step>) {
        if self == TransactionMix::Usual || random.next(8) == 0 {
            return;
        }
        steps.truncate(place);
        match self {
            TransactionMix::FullDisks => lone(random, steps),
            _ => meeting(random, steps),
        }
    }
}

/// Adds the steps of a transaction of several servers.
fn meeting(random: &mut Random, steps: &mut Vec<Step>) {
    let task = random.next(TASKS as u64) as usize;
    let mut push = |random: &mut Random, act: Act| {
        steps.push(Step::Act { task, pause_us: random.next(PAUSE_US), act });
    };
    let first = random.next(SLOTS as u64) as usize;
    for slot in first..first + 2 + random.next(3) as usize {
        let (slot, key) = (slot % SLOTS, random.next(KEYS));
        let value = Value { number: random.next(1 << 31) as u32, length: 4 };
        let reads = random.next(8) == 0;
        push(random, if reads { Act::Get { slot, key } } else { Act::Put { slot, key, value } });
    }
    push(random, Act::Commit);
}

/// Adds the steps of a transaction of one server, which few others meet.
fn lone(random: &mut Random, steps: &mut Vec<Step>) {
    let (task, slot) = (random.next(TASKS as u64) as usize, random.next(SLOTS as u64) as usize);
    let mut push = |random: &mut Random, act: Act| {
        steps.push(Step::Act { task, pause_us: random.next(LONE_PAUSE_US), act });
    };
    for _ in 0..1 + random.next(2) {
        let value = Value { number: random.next(1 << 31) as u32, length: 4 + random.next(60) as usize };
        let key = random.next(ALL_KEYS);
        push(random, Act::Put { slot, key, value });
    }
    push(random, Act::Commit);
}
