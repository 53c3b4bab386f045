//! Numbers of keys to insert, and the last one up to which all are there.
//!
//! Law: `last` is the largest key such that it and all keys before it are
//! acknowledged. YCSB's `AcknowledgedCounterGenerator` keeps a window of 2^20
//! flags, fails when one client falls that far behind, and can stay behind
//! for good when its lock was taken at the wrong moment. Here each client has
//! a slot of its own and nothing waits.
//!
//! Symbols: `next`, the next key to hand out; `slot[c]`, a lower bound of the
//! key that client c has begun and not acknowledged, infinite if none; `end`,
//! one more than the last key, which only rises.
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
//! All steps are sequentially consistent, that is, they have one order that
//! all clients see and that has each client's steps in its own order.
//!
//! Why no key below `end` is missing. Suppose a scan finds a limit above key
//! k of client c. Then its n > k, so k was handed out before n was read. c had
//! stored a lower bound of k before that, so the scan, which reads slot c
//! later, finds this bound, k, or what c stored later still. The first two
//! are at most k and contradict the limit; so c had stored "infinite" for k,
//! that is, acknowledged it. The bound must come first and n must be read
//! first: either one the other way round would leave a gap.
//!
//! Why `end` is not left behind. A scan stays below a key k that is
//! acknowledged, as are all before it, for one reason only: some slot held a
//! bound of at most k, of a client that was between its begin and its
//! acknowledge. That client scans when it acknowledges. In particular, of
//! all acknowledges, let A be the one whose "infinite" comes last in the
//! order. If nothing is outstanding after it, then every key was handed out
//! before it, so A reads the final n and finds all slots infinite: `end` is
//! exactly `next` whenever all that was begun is acknowledged. No scan needs
//! to be tried again.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// No key outstanding.
const NONE: u64 = u64::MAX;

/// A slot in cache lines of its own (two, as they are fetched in pairs), for
/// its client writes it twice an insert.
#[repr(align(128))]
#[derive(Debug)]
struct AckSlot(AtomicU64);

/// The counter. A client has at most one key outstanding at a time.
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: AckSlot,
    end: AckSlot,
    slots: Box<[AckSlot]>,
}

impl AcknowledgedCounter {
    /// Keys from `start` on, for clients 0 to `clients` - 1. The keys before
    /// `start` count as acknowledged. 128 bytes a client.
    pub fn new(start: u64, clients: usize) -> Self {
        let slot = |value| AckSlot(AtomicU64::new(value));
        AcknowledgedCounter {
            next: slot(start),
            end: slot(start),
            slots: (0..clients).map(|_| slot(NONE)).collect(),
        }
    }

    /// A key for `client` to insert. O(1).
    ///
    /// # Panics
    /// If the client has not acknowledged its last one, or is none: either
    /// would make keys look acknowledged that are not.
    pub fn begin(&self, client: usize) -> u64 {
        let slot = &self.slots[client].0;
        assert_eq!(slot.load(SeqCst), NONE, "client {client} begins a key before it acknowledged its last");
        slot.store(self.next.0.load(SeqCst), SeqCst);
        let key = self.next.0.fetch_add(1, SeqCst);
        slot.store(key, SeqCst);
        key
    }

    /// The insert of `key` by `client` has ended, whether or not it succeeded
    /// (YCSB acknowledges failed inserts too). O(clients), less if a slot
    /// shows early that `last` cannot rise.
    ///
    /// # Panics
    /// If this is not the key that the client began last.
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

    /// The largest key such that it and all before are acknowledged; `None`
    /// if there is none, which is so only if the keys start at 0. O(1).
    #[inline]
    pub fn last(&self) -> Option<u64> {
        self.end().checked_sub(1)
    }

    /// One more than [`last`](AcknowledgedCounter::last): all keys below it
    /// are acknowledged. O(1).
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.0.load(SeqCst)
    }

    /// The key that the next client to begin would get. O(1).
    pub fn next(&self) -> u64 {
        self.next.0.load(SeqCst)
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.slots.len()
    }
}
