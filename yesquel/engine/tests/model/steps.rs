//! The steps of a seed: requests, passing time, restarts.

use yesquel_model::{KeyRange, NodeId};
use yesquel_seeds::Random;
use yesquel_wire::{Expect, NodeOperation, Operations, WriteOperation};

pub(crate) const KEYS: u8 = 12;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Do {
    Put(u8, u8, Expect),
    Delete(u8, Expect),
    DeleteRange(u8, u8),
    Guard(u8, u8),
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Takes a snapshot and holds it.
    Begin,
    /// Reads a key, or a whole node, at one of the snapshots.
    Read {
        snapshot: usize,
        key: u8,
    },
    Scan {
        snapshot: usize,
        key: u8,
        down: bool,
        cells: u64,
    },
    /// Commits at a snapshot, or without one; some operations go to a possibly wrong node.
    Commit {
        snapshot: Option<usize>,
        writes: Vec<Do>,
        astray: bool,
    },
    Prepare {
        snapshot: usize,
        writes: Vec<Do>,
    },
    /// Decides a prepared transaction, as the client or as recovery.
    Decide {
        which: usize,
        commit: bool,
        late: u64,
        recovery: bool,
    },
    /// Splits the node of a key there, to the left or the right.
    Split {
        key: u8,
        right: bool,
    },
    /// Requests the outcome of a transaction, from this server or from both, and sends it again.
    Again {
        which: usize,
        several: bool,
    },
    /// Requests the outcome of a future transaction, which then must not commit.
    Unborn {
        several: bool,
    },
    /// Releases a snapshot.
    End {
        snapshot: usize,
    },
    Time {
        ms: u64,
        jump: i64,
    },
    /// The engine crashes and restarts from its last checkpoint and its log.
    Restart,
    Checkpoint,
}

pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let key = |random: &mut Random| random.next(KEYS.into()) as u8;
    let expect = |random: &mut Random| match random.next(6) {
        0 => Expect::Absent,
        1 => Expect::Present,
        _ => Expect::Any,
    };
    let writes = |random: &mut Random| {
        let count = 1 + random.next(3);
        (0..count)
            .map(|_| match random.next(9) {
                8 => Do::DeleteRange(key(random), 1 + random.next(5) as u8),
                0..4 => Do::Put(key(random), random.next(200) as u8, expect(random)),
                4..6 => Do::Delete(key(random), expect(random)),
                6 => Do::DeleteRange(key(random), random.next(5) as u8),
                _ => Do::Guard(key(random), random.next(5) as u8),
            })
            .collect::<Vec<_>>()
    };
    let count = 20 + random.next(100);
    (0..count)
        .map(|_| match random.next(46) {
            0..6 => Step::Begin,
            6..12 => Step::Read { snapshot: random.next(100) as usize, key: key(random) },
            12..16 => Step::Scan {
                snapshot: random.next(100) as usize,
                key: key(random),
                down: random.next(2) == 0,
                cells: 1 + random.next(5),
            },
            16..24 => Step::Commit {
                snapshot: (random.next(4) > 0).then(|| random.next(100) as usize),
                writes: writes(random),
                astray: random.next(8) == 0,
            },
            24..28 => Step::Prepare { snapshot: random.next(100) as usize, writes: writes(random) },
            28..32 => Step::Decide {
                which: random.next(100) as usize,
                commit: random.next(3) > 0,
                late: random.next(4),
                recovery: random.next(2) == 0,
            },
            32..34 => {
                Step::Split { key: 1 + random.next(u64::from(KEYS) - 1) as u8, right: random.next(2) == 0 }
            }
            34..36 => Step::End { snapshot: random.next(100) as usize },
            36..39 => Step::Time { ms: random.next(80), jump: random.next(2000) as i64 - 1000 },
            39..42 => Step::Again { which: random.next(100) as usize, several: random.next(2) == 0 },
            42 => Step::Unborn { several: random.next(2) == 0 },
            43 => Step::Checkpoint,
            _ => Step::Restart,
        })
        .collect()
}

pub(crate) fn key(number: u8) -> Vec<u8> {
    // Of several lengths, so that some keys are prefixes of others.
    vec![b'k'; 1 + usize::from(number) % 3].into_iter().chain([number]).collect()
}

/// Keys in order, for ranges.
pub(crate) fn range(first: u8, length: u8) -> KeyRange {
    let mut keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    keys.sort();
    let (first, last) = (usize::from(first), usize::from(first) + usize::from(length));
    KeyRange { low: keys[first].clone().into(), high: keys.get(last).map(|key| key.clone().into()) }
}

/// Encodes the operations of a request.
pub(crate) fn encode(writes: &[(NodeId, Do)]) -> Vec<u8> {
    let (mut bytes, mut last) = (Vec::new(), None);
    for (node, write) in writes {
        let (name, value);
        let write = match write {
            Do::Put(number, written, expect) => {
                (name, value) = (key(*number), [*written]);
                WriteOperation::Put { key: &name, value: &value, expect: *expect, is_large: false }
            }
            Do::Delete(number, expect) => {
                name = key(*number);
                WriteOperation::Delete { key: &name, expect: *expect }
            }
            Do::DeleteRange(first, length) => WriteOperation::DeleteRange(range(*first, *length)),
            Do::Guard(first, length) => WriteOperation::Guard(range(*first, *length)),
        };
        Operations::push(&mut bytes, &mut last, &NodeOperation { node: *node, write });
    }
    bytes
}
