//! What a seed draws: conditions, faults and transactions.

use crate::{
    contention::TransactionMix,
    steps::{Act, KEYS, PERMANENT, SLOTS, Step, Value},
    watching::CloseWork,
};
use yesquel_seeds::Random;
use yesquel_simulation::{InjectedFault, SERVERS_MAX, TASKS, draw_faults, draw_watching, server_count};

/// Part of the seed of what is drawn for watches.
const WATCHING: u64 = 0x7761_7463_6865_7321;

/// Part of the seed of what is drawn for transactions that meet, and for full disks.
const MEETING: u64 = 0x6d65_6574_696e_6721;

/// Faults of a long run, and its steps: over 1,000 acts.
const LONG_FAULTS: usize = 3;
const LONG_STEPS: usize = 1_100;

/// Draws the steps of a run. With `LONG_SEEDS` set, a run is at least so long, and never calm.
pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let is_long = std::env::var_os("LONG_SEEDS").is_some();
    let mut faults = draw_faults(random);
    while is_long && faults.iter().filter(|fault| fault.is_adverse()).count() < LONG_FAULTS {
        faults = draw_faults(random);
    }
    // Apart from the other draws, so that these are the same in runs with and without watches.
    let mut watching = Random::new(seed ^ WATCHING);
    let is_calm = !faults.iter().any(InjectedFault::is_adverse);
    let watches = draw_watching(&mut watching, server_count(&faults), is_calm);
    let watches_any = !watches.is_empty();
    faults.extend(watches);
    let slow = [1_000, 40_000, 200_000][random.next(3) as usize];
    let load = Load {
        slow,
        has_long: random.next(3) == 0,
        hot: (random.next(3) == 0).then(|| random.next(SLOTS as u64) as usize),
    };
    let watched = load.hot.unwrap_or_else(|| watching.next(SLOTS as u64) as usize);
    // Few runs have long values; these keep their transactions.
    let is_close = watches_any && !load.has_long && watching.next(3) > 0;
    let mut close = is_close.then(|| CloseWork::new(watched));
    let mut meeting = Random::new(seed ^ MEETING);
    let mix = match watches_any || load.has_long {
        true => TransactionMix::Usual,
        false => TransactionMix::draw(&mut meeting, is_calm),
    };
    faults.extend(mix.faults(&mut meeting, server_count(&faults), is_calm));
    let mut steps: Vec<Step> = faults.into_iter().map(Step::Fault).collect();
    let mut add = |random: &mut Random, steps: &mut Vec<Step>| {
        let place = steps.len();
        transaction(random, load, steps);
        if !watches_any {
            return mix.replace(&mut meeting, place, steps);
        }
        if let Some(close) = &mut close {
            // A scene takes the time of several transactions.
            match watching.next(10) {
                0 => {}
                1..6 => {
                    steps.truncate(place);
                    return close.add(&mut watching, steps);
                }
                _ => return steps.truncate(place),
            }
        }
        match watching.next(5) {
            // A run takes no longer than one without watches.
            0 | 1 => {
                steps.truncate(place);
                for _ in 0..1 + watching.next(2) {
                    reader(&mut watching, load, watched, steps);
                }
            }
            // The transaction uses watched leaves, and perhaps is said to only read.
            2 | 3 => {
                let Some(Step::Act { task, .. }) = steps.get(place) else { return };
                let act = Act::UseWatched { slot: watched, only_reads: watching.next(3) == 0 };
                let first = Step::Act { task: *task, pause_us: 0, act };
                steps.insert(place, first);
            }
            _ => {}
        }
    };
    for _ in 0..20 + random.next(70) {
        add(random, &mut steps);
    }
    while is_long && steps.len() < LONG_STEPS {
        add(random, &mut steps);
    }
    steps
}

/// A transaction that only reads, mostly what others read too.
fn reader(random: &mut Random, load: Load, watched: usize, steps: &mut Vec<Step>) {
    let task = random.next(TASKS as u64) as usize;
    let mut push = |random: &mut Random, act: Act| {
        // Some wait for changes between two reads.
        let most = if random.next(4) == 0 { load.slow } else { load.slow / 4 };
        steps.push(Step::Act { task, pause_us: random.next(most), act });
    };
    let only_reads = random.next(5) > 0;
    push(random, Act::UseWatched { slot: watched, only_reads });
    for _ in 0..1 + random.next(4) {
        let any = random.next(SLOTS as u64) as usize;
        let slot = if random.next(4) > 0 { watched } else { any };
        let keys = if random.next(4) > 0 { 6 } else { KEYS };
        let key = random.next(keys);
        let act = match random.next(3) {
            0 => Act::Walk { slot, key: Some(key), steps: random.next(6), down: random.next(2) == 0 },
            _ => Act::Get { slot, key },
        };
        push(random, act);
    }
    push(random, Act::Commit);
}

/// Properties of a run's transactions.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Longest usual pause of a task in microseconds.
    slow: u64,
    has_long: bool,
    /// The slot that gets most requests.
    hot: Option<usize>,
}

fn transaction(random: &mut Random, load: Load, steps: &mut Vec<Step>) {
    let Load { slow, has_long: long, hot } = load;
    let task = random.next(TASKS as u64) as usize;
    let mut push = |random: &mut Random, act: Act| {
        let pause_us = if random.next(4) == 0 { random.next(slow * 4) } else { random.next(slow) };
        steps.push(Step::Act { task, pause_us, act });
    };
    // Some use few keys, and conflict.
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
                    (PERMANENT + slot % (SLOTS - PERMANENT), random.next(SERVERS_MAX as u64) as usize);
                Act::Replace { slot, server, key, value }
            }
            _ => Act::Put { slot, key, value },
        };
        push(random, act);
    }
    let end = if random.next(12) == 0 { Act::Rollback } else { Act::Commit };
    push(random, end);
}
