//! Runs whose clients read and change few watched leaves at nearly the same time.

use crate::steps::{Act, KEYS as ALL_KEYS, PERMANENT, SLOTS, Step, Value};
use yesquel_seeds::Random;
use yesquel_simulation::{PROCESSES, SERVERS_MAX, TASKS_PER_PROCESS};

/// Keys that they use: of few leaves.
const KEYS: u64 = 5;
/// Longest usual pause between two acts in microseconds, about that of a message.
const PAUSE_US: u64 = 2_000;
/// A pause in which others write and read again.
const LONG_PAUSE_US: u64 = 8_000;
/// The process whose tasks read: they share watched leaves.
const READERS: usize = 1;

/// What the clients of a run read and write.
pub(crate) struct CloseWork {
    /// Slot of the tree that most scenes use.
    slot: usize,
    /// Number of the next scene.
    scene: usize,
}

/// Two cells that readers and writers of one moment use.
struct Scene<'a> {
    random: &'a mut Random,
    steps: &'a mut Vec<Step>,
    cells: [(usize, u64); 2],
}

impl CloseWork {
    pub(crate) fn new(slot: usize) -> CloseWork {
        CloseWork { slot, scene: 0 }
    }

    /// Adds a scene: two tasks of a process read two cells, then wait for each other and for a
    /// writer, and all of them act at once.
    pub(crate) fn add(&mut self, random: &mut Random, steps: &mut Vec<Step>) {
        let other = match random.next(5) {
            // Usually at the same server, or at another one.
            0 | 1 => self.slot + SLOTS / 2,
            2 | 3 => self.slot + 1,
            _ => self.slot + random.next(SLOTS as u64) as usize,
        };
        let cells = [self.slot, other % SLOTS].map(|slot| (slot, random.next(KEYS)));
        let number = self.scene;
        self.scene += 1;
        let readers = READERS * TASKS_PER_PROCESS..(READERS + 1) * TASKS_PER_PROCESS;
        let others = random.next((PROCESSES - 1) as u64) as usize;
        let writers = (if others < READERS { others } else { others + 1 }) * TASKS_PER_PROCESS;
        let writers = writers..writers + 1 + random.next(TASKS_PER_PROCESS as u64) as usize;
        let mut scene = Scene { random, steps, cells };
        let tasks = readers.len() + writers.len();
        for task in readers.clone() {
            scene.begin_read(task, true);
            cells.iter().for_each(|(slot, key)| scene.push(task, Act::Get { slot: *slot, key: *key }));
            scene.push(task, Act::Commit);
        }
        for task in readers.clone().chain(writers.clone()) {
            scene.steps.push(Step::Act { task, pause_us: 0, act: Act::Meet { number, tasks } });
        }
        // One reads for long, the other one often, so that it watches again what has changed.
        scene.long_read(readers.start);
        for _ in 0..3 + scene.random.next(3) {
            let count = 1 + scene.random.next(2);
            scene.begin_read(readers.start + 1, true);
            scene.reads(readers.start + 1, count, PAUSE_US);
            scene.push(readers.start + 1, Act::Commit);
        }
        let first = scene.random.next(3);
        for (place, task) in writers.enumerate() {
            // Each writer has a cell of its own, or writes both at once, or any.
            let own = match first {
                0 => &cells[place..=place],
                1 => &cells[..],
                _ => &[],
            };
            own.iter().for_each(|cell| scene.put(task, *cell));
            scene.push(task, Act::Commit);
            for _ in 0..1 + scene.random.next(2) {
                scene.writes(task);
            }
        }
    }
}

impl Scene<'_> {
    fn push(&mut self, task: usize, act: Act) {
        self.push_after(task, PAUSE_US, act);
    }

    fn push_after(&mut self, task: usize, pause_us: u64, act: Act) {
        self.steps.push(Step::Act { task, pause_us: self.random.next(pause_us), act });
    }

    fn begin_read(&mut self, task: usize, only_reads: bool) {
        self.push(task, Act::UseWatched { slot: self.cells[0].0, only_reads });
    }

    fn cell(&mut self) -> (usize, u64) {
        let (slot, key) = self.cells[self.random.next(2) as usize];
        match self.random.next(8) {
            0 => (slot, self.random.next(KEYS)),
            _ => (slot, key),
        }
    }

    /// A transaction whose reads last so long that others commit between them.
    fn long_read(&mut self, task: usize) {
        let (only_reads, count) = (self.random.next(4) > 0, 1 + self.random.next(3));
        self.begin_read(task, only_reads);
        match self.random.next(2) {
            // Both cells, before others write.
            0 => {
                for (slot, key) in self.cells {
                    self.push(task, Act::Get { slot, key });
                }
            }
            _ => {
                self.reads(task, 1, PAUSE_US);
                self.reads(task, count, LONG_PAUSE_US);
            }
        }
        if self.random.next(2) == 0 {
            // Mostly a leaf that is not watched.
            let (slot, key) = (self.random.next(SLOTS as u64) as usize, self.random.next(KEYS));
            self.push_after(task, LONG_PAUSE_US, Act::Get { slot, key });
        }
        self.push(task, Act::Commit);
    }

    fn reads(&mut self, task: usize, count: u64, pause_us: u64) {
        for _ in 0..count {
            let (slot, key) = match self.random.next(12) {
                0 => (self.random.next(SLOTS as u64) as usize, self.random.next(KEYS)),
                // A tree that was dropped.
                1 => {
                    let replaced = self.random.next((SLOTS - PERMANENT) as u64) as usize;
                    (SLOTS + PERMANENT + replaced, self.cells[0].1)
                }
                _ => self.cell(),
            };
            let random = &mut *self.random;
            let (steps, down) = (random.next(4), random.next(2) == 0);
            let act = match random.next(6) {
                0 => Act::Walk { slot, key: Some(key), steps, down },
                _ => Act::Get { slot, key },
            };
            self.push_after(task, pause_us, act);
        }
    }

    fn put(&mut self, task: usize, (slot, key): (usize, u64)) {
        let value = Value { number: self.random.next(1 << 31) as u32, length: 4 };
        self.push(task, Act::Put { slot, key, value });
    }

    fn writes(&mut self, task: usize) {
        for _ in 0..1 + self.random.next(3) {
            let (slot, key) = self.cell();
            let random = &mut *self.random;
            let value = Value { number: random.next(1 << 31) as u32, length: 4 + random.next(20) as usize };
            let act = match random.next(12) {
                0..6 => Act::Put { slot, key, value },
                // Leaves are split.
                6..9 => Act::Insert { slot, key: random.next(ALL_KEYS), value },
                9 | 10 => Act::Delete { slot, key },
                _ if slot >= PERMANENT => {
                    Act::Replace { slot, server: random.next(SERVERS_MAX as u64) as usize, key, value }
                }
                _ => Act::DeleteRange { slot, from: key, to: random.next(KEYS) },
            };
            self.push(task, act);
        }
        self.push(task, Act::Commit);
    }
}
