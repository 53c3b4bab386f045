//! Multiset of numbers whose least is queried, for many threads.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
};

/// Slots that need no lock: about as many as a process has threads.
pub(crate) const SLOTS: usize = 256;

/// Multiset of numbers whose least is queried. Zero marks a free slot.
#[derive(Debug)]
pub(crate) struct MinSet {
    slots: Box<[AtomicU64]>,
    /// Numbers for which no slot was free.
    overflow: Mutex<Vec<u64>>,
}

/// Location of a number in a [`MinSet`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum MinSlot {
    At(usize),
    Overflow(u64),
}

impl MinSet {
    pub(crate) fn new() -> MinSet {
        MinSet { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), overflow: Mutex::default() }
    }

    fn overflow(&self) -> MutexGuard<'_, Vec<u64>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts a number; the search for a free slot starts at `preferred`.
    pub(crate) fn insert(&self, number: u64, preferred: usize) -> MinSlot {
        for step in 0..SLOTS {
            let at = (preferred + step) % SLOTS;
            if self.slots[at].load(SeqCst) == 0
                && self.slots[at].compare_exchange(0, number, SeqCst, SeqCst).is_ok()
            {
                return MinSlot::At(at);
            }
        }
        self.overflow().push(number);
        MinSlot::Overflow(number)
    }

    pub(crate) fn remove(&self, slot: MinSlot) {
        match slot {
            MinSlot::At(at) => self.slots[at].store(0, SeqCst),
            MinSlot::Overflow(number) => {
                let mut overflow = self.overflow();
                if let Some(at) = overflow.iter().position(|known| *known == number) {
                    overflow.swap_remove(at);
                }
            }
        }
    }

    /// Returns the least number that is at least `first`, the next larger one, and whether there
    /// are more beyond these two.
    pub(crate) fn least_from(&self, first: u64) -> ([Option<u64>; 2], bool) {
        let (mut least, mut more) = ([None; 2], false);
        let mut see = |number: u64| {
            if number < first.max(1) || least.contains(&Some(number)) {
                return;
            }
            more |= least[1].is_some();
            if least[0].is_none_or(|known| number < known) {
                least = [Some(number), least[0]];
            } else if least[1].is_none_or(|known| number < known) {
                least[1] = Some(number);
            }
        };
        self.slots.iter().for_each(|slot| see(slot.load(SeqCst)));
        self.overflow().iter().for_each(|number| see(*number));
        (least, more)
    }
}

/// Slot where this thread starts its search for a free slot.
pub(crate) fn preferred_slot() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static PREFERRED: usize = NEXT.fetch_add(1, SeqCst) as usize * 3 % SLOTS;
    }
    PREFERRED.with(|slot| *slot)
}
