//! Numbers of calls.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Numbers that a thread takes at a time.
const TAKEN: u64 = 1 << 10;

/// Returns a number that is unique in this process. Threads take many at a time.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static LOCAL: Cell<u64> = const { Cell::new(0) };
    }
    LOCAL.with(|own| {
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
    fn threads_get_distinct_numbers() {
        let numbers: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..3 * TAKEN).map(|_| unique()).collect::<Vec<u64>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        assert_eq!(numbers.len() as u64, 8 * 3 * TAKEN);
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());
    }
}
