//! Counts that many threads add to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Parts of a count: as many threads add to it without being in each other's
/// way.
const PARTS: usize = 8;

/// What stands alone in two lines of a processor's cache: they are fetched in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// A count that only grows. Each thread adds to a part of it, which no other
/// one has in its cache while threads are few.
#[derive(Debug, Default)]
pub struct Tally([Alone; PARTS]);

/// Which part is the thread's: they take turns.
fn own_part() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: usize = THREADS.fetch_add(1, Relaxed) % PARTS;
    }
    PART.with(|part| *part)
}

impl Tally {
    /// One more.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// So many more.
    pub fn add_many(&self, count: u64) {
        if let Some(Alone(part)) = self.0.get(own_part()) {
            part.fetch_add(count, Relaxed);
        }
    }

    /// What all threads have counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|Alone(part)| part.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_lose_no_count() {
        let tally = Tally::default();
        thread::scope(|scope| {
            for _ in 0..2 * PARTS {
                scope.spawn(|| (0..3_000).for_each(|_| tally.add()));
            }
        });
        assert_eq!(tally.count(), 2 * PARTS as u64 * 3_000);
    }
}
