//! Estimate of a database's size, for `PRAGMA page_count`.
//!
//! The server visits all its nodes to tell the bytes of its trees. So a process keeps the answer,
//! and adds what its own transactions have written since.

use std::time::Duration;

/// Shortest time for which an answer of the server is used.
const AGE_MIN: Duration = Duration::from_secs(1);
/// An answer is used for this many times as long as it took, so that programs that ask after each
/// write load a large server by a fiftieth of its time at most.
const AGE_PER_REQUEST: u32 = 50;

/// Size of a database as its server told it, with later changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatabaseSize {
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    /// Tables and indexes; a page of each is partly filled.
    pub(crate) trees: u64,
}

impl DatabaseSize {
    /// Returns the number of pages that SQLite would use, about.
    pub(crate) fn pages(self, growth: i64, page_bytes: u64) -> u64 {
        self.trees + self.bytes.saturating_add_signed(growth) / page_bytes.max(1)
    }
}

/// Size with the time until which it is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizeEstimate {
    size: DatabaseSize,
    until: Duration,
}

impl SizeEstimate {
    /// Returns the estimate of an answer that was requested and received at these times.
    pub(crate) fn new(size: DatabaseSize, requested: Duration, received: Duration) -> SizeEstimate {
        let took = received.saturating_sub(requested);
        SizeEstimate { size, until: received + AGE_MIN.max(took.saturating_mul(AGE_PER_REQUEST)) }
    }

    /// Returns the size unless the server must be asked again.
    pub(crate) fn size(&self, now: Duration) -> Option<DatabaseSize> {
        (now < self.until).then_some(self.size)
    }

    /// Adds the bytes of a transaction that has committed.
    pub(crate) fn grow(&mut self, bytes: i64) {
        self.size.bytes = self.size.bytes.saturating_add_signed(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn an_answer_is_used_for_a_second_or_for_fifty_times_its_duration() {
        let size = DatabaseSize { bytes: 10 * PAGE, trees: 2 };
        let begin = Duration::from_secs(1);
        for (took, used) in [(0, 1000), (20, 1000), (100, 5000)] {
            let received = begin + Duration::from_millis(took);
            let estimate = SizeEstimate::new(size, begin, received);
            assert_eq!(estimate.size(received + Duration::from_millis(used - 1)), Some(size), "{took}");
            assert_eq!(estimate.size(received + Duration::from_millis(used)), None, "{took}");
        }
    }

    #[test]
    fn own_writes_are_added() {
        let begin = Duration::from_secs(1);
        let mut estimate = SizeEstimate::new(DatabaseSize { bytes: 10 * PAGE, trees: 2 }, begin, begin);
        estimate.grow(3 * PAGE as i64);
        let size = estimate.size(begin).unwrap();
        assert_eq!(size.pages(0, PAGE), 15);
        assert_eq!(size.pages(-13 * PAGE as i64, PAGE), 2);
        // More than the server knows of.
        estimate.grow(-20 * PAGE as i64);
        assert_eq!(estimate.size(begin).unwrap().bytes, 0);
    }
}
