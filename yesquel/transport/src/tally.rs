//! Counts that many threads add to.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

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
        if let Some(Alone(part)) = self.0.get(own_part()) {
            part.fetch_add(1, Relaxed);
        }
    }

    /// What all threads have counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|Alone(part)| part.load(Relaxed)).sum()
    }
}

/// Numbers that a thread takes at a time.
const TAKEN: u64 = 1 << 10;

/// A number that no one in this process has had. Threads take many at a time.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    OWN.with(|own| {
        let mut number = own.get();
        if number % TAKEN == 0 {
            number = NEXT.fetch_add(TAKEN, Relaxed);
        }
        own.set(number + 1);
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, thread};

    #[test]
    fn threads_lose_no_count_and_share_no_number() {
        let tally = Tally::default();
        let numbers: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * PARTS as u64)
                .map(|_| {
                    scope.spawn(|| {
                        let number = |_| {
                            tally.add();
                            unique()
                        };
                        (0..3 * TAKEN).map(number).collect::<Vec<u64>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        assert_eq!(tally.count(), 2 * PARTS as u64 * 3 * TAKEN);
        assert_eq!(numbers.len() as u64, tally.count());
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());
    }
}
