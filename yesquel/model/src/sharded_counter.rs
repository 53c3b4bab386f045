//! A counter that many threads add to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Shards of a counter: about as many threads add to it without sharing cache lines.
const PARTS: usize = 8;

/// A value alone in two cache lines, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// A counter that only grows. Each thread adds to one shard, which few other threads use.
#[derive(Debug, Default)]
pub struct ShardedCounter([Alone; PARTS]);

/// The calling thread's shard; threads are assigned in turn.
fn own_part() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: usize = THREADS.fetch_add(1, Relaxed) % PARTS;
    }
    PART.with(|part| *part)
}

impl ShardedCounter {
    /// Adds one.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// Adds `count`.
    pub fn add_many(&self, count: u64) {
        if let Some(Alone(part)) = self.0.get(own_part()) {
            part.fetch_add(count, Relaxed);
        }
    }

    /// Sum over all threads.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|Alone(part)| part.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn concurrent_increments_are_all_counted() {
        let tally = ShardedCounter::default();
        thread::scope(|scope| {
            for _ in 0..2 * PARTS {
                scope.spawn(|| (0..3_000).for_each(|_| tally.add()));
            }
        });
        assert_eq!(tally.count(), 2 * PARTS as u64 * 3_000);
    }
}
