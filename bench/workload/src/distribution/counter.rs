//! Hands out keys to insert, and tracks the last key up to which all exist.
//!
//! Law: `last` is the largest key such that it and all keys before it are
//! acknowledged. YCSB's `AcknowledgedCounterGenerator` keeps a window of 2^20
//! flags, fails if one client falls that far behind, and can lag for good if
//! its lock was taken at the wrong moment. In this counter each client has a
//! slot of its own, and no operation waits.
//!
//! Symbols: `next`, the next key to hand out; `slot[c]`, a lower bound of the
//! key that client c has begun and not acknowledged, infinite if none; `end`,
//! one more than the last key, which only increases.
//!
//! ```text
//! begin(c):           slot[c] := next            (a lower bound)
//!                     key := next, next := next + 1 in one step
//!                     slot[c] := key
//! acknowledge(c):     slot[c] := infinite
//!                     n := next, before the slots are read
//!                     end := max(end, min(n, all slots))
//! ```
//!
//! Example: keys 7, 8, 9 were begun by clients 0, 1, 2. Client 1 acknowledges:
//! min(10, 7, inf, 9) = 7, `last` stays 6. Client 0 acknowledges: min(10, inf,
//! inf, 9) = 9, `last` is 8.
//!
//! All steps are sequentially consistent: they have one total order that all
//! clients observe and that contains each client's steps in program order.
//!
//! Why no key below `end` is missing. Suppose a scan finds a limit above key
//! k of client c. Then its n > k, so k was handed out before n was read. c had
//! stored a lower bound of k before that. The scan reads slot c later, so it
//! finds this bound, k, or a value that c stored after it. The first two are at
//! most k and contradict the limit, so c had stored "infinite" for k, that is,
//! had acknowledged it. The bound must be stored first and n must be read
//! first: reversing either leaves a gap.
//!
//! Why `end` does not lag. A scan stays at or below a key k that is acknowledged, with
//! all keys before it, for one reason only: some slot held a bound of at most
//! k, of a client between its begin and its acknowledge. That client scans when
//! it acknowledges. In particular, let A be the acknowledge whose "infinite" is
//! the last in the order. If no key is outstanding after it, then every key was
//! handed out before it, so A reads the final n and finds all slots infinite:
//! `end` equals `next` whenever all begun keys are acknowledged. No scan needs
//! a retry.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Slot value without an outstanding key.
const NONE: u64 = u64::MAX;

/// A slot in two cache lines of its own, since processors fetch them in pairs,
/// and its client writes it twice per insert.
#[repr(align(128))]
#[derive(Debug)]
struct AckSlot(AtomicU64);

/// A counter of acknowledged keys. A client has at most one key outstanding at a time.
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: AckSlot,
    end: AckSlot,
    slots: Box<[AckSlot]>,
}

impl AcknowledgedCounter {
    /// Returns a counter of keys from `start`, for clients 0 to `clients` - 1. The keys
    /// before `start` count as acknowledged. Takes 128 bytes per client.
    pub fn new(start: u64, clients: usize) -> Self {
        let slot = |value| AckSlot(AtomicU64::new(value));
        AcknowledgedCounter {
            next: slot(start),
            end: slot(start),
            slots: (0..clients).map(|_| slot(NONE)).collect(),
        }
    }

    /// Returns a key for `client` to insert. O(1).
    ///
    /// # Panics
    /// If the client has not acknowledged its last key, or does not exist: either
    /// would acknowledge keys too early.
    pub fn begin(&self, client: usize) -> u64 {
        let slot = &self.slots[client].0;
        assert_eq!(slot.load(SeqCst), NONE, "client {client} begins a key before it acknowledged its last");
        slot.store(self.next.0.load(SeqCst), SeqCst);
        let key = self.next.0.fetch_add(1, SeqCst);
        slot.store(key, SeqCst);
        key
    }

    /// Records that the insert of `key` by `client` has ended, successfully or not
    /// (YCSB acknowledges failed inserts as well). O(clients), less if an early slot
    /// shows that `last` cannot increase.
    ///
    /// # Panics
    /// If the client did not begin this key last.
    pub fn acknowledge(&self, client: usize, key: u64) {
        let slot = &self.slots[client].0;
        assert_eq!(slot.load(SeqCst), key, "client {client} acknowledges a key it did not begin");
        slot.store(NONE, SeqCst);
        let mut limit = self.next.0.load(SeqCst);
        let end = self.end.0.load(SeqCst);
        for slot in &self.slots {
            limit = limit.min(slot.0.load(SeqCst));
            if limit <= end {
                return;
            }
        }
        self.end.0.fetch_max(limit, SeqCst);
    }

    /// Returns the largest key such that it and all before it are acknowledged;
    /// `None` if there is none, which is possible only if keys start at 0. O(1).
    #[inline]
    pub fn last(&self) -> Option<u64> {
        self.end().checked_sub(1)
    }

    /// Returns one more than [`last`](AcknowledgedCounter::last): all keys below it
    /// are acknowledged. O(1).
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.0.load(SeqCst)
    }

    /// Returns the key that the next call of [`begin`](AcknowledgedCounter::begin) returns. O(1).
    pub fn next(&self) -> u64 {
        self.next.0.load(SeqCst)
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        self.slots.len()
    }
}
