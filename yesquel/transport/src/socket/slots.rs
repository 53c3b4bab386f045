//! Requests under way on a connection, and whoever waits for their replies.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
};

#[derive(Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Free,
    /// Its reply has not come.
    Open,
    /// It has.
    Done,
    /// Nobody waits for it any more.
    Abandoned,
}

#[derive(Debug, Default)]
struct Slot {
    phase: Phase,
    reply: Vec<u8>,
    waker: Option<Waker>,
}

/// Slots of requests. The number of a request is that of its slot and one: no
/// other has it until its reply has come.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Mutex<Slot>]>,
    free: Mutex<Vec<u32>>,
    /// A bit for each slot that is open and has a waker.
    waiting: Box<[AtomicU64]>,
    /// How many words of these bits were ever in use: mostly one of many.
    words: AtomicUsize,
}

/// What came for a slot.
#[derive(Debug)]
pub(super) enum Delivered {
    /// Somebody waits for it, who is to be woken.
    To(Option<Waker>),
    /// Nobody does any more.
    Nobody,
    /// There is no such request.
    Unasked,
}

impl Slots {
    pub(super) fn new(count: u32) -> Slots {
        Slots {
            slots: (0..count).map(|_| Mutex::default()).collect(),
            // The lowest first: few words of bits are ever looked at.
            free: Mutex::new((0..count).rev().collect()),
            waiting: (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            words: AtomicUsize::new(0),
        }
    }

    fn lock(&self, slot: u32) -> MutexGuard<'_, Slot> {
        self.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a new request, if not all are taken.
    pub(super) fn open(&self) -> Option<u32> {
        let slot = self.free().pop()?;
        self.lock(slot).phase = Phase::Open;
        let word = slot as usize / 64;
        if word >= self.words.load(SeqCst) {
            // Before its bit is set, which whoever looks for one must not miss.
            self.words.fetch_max(word + 1, SeqCst);
        }
        Some(slot)
    }

    /// The reply, if it has come; the slot is free then. Else the waker is told
    /// when it does, or when somebody is needed who receives.
    pub(super) fn take(&self, slot: u32, waker: &Waker) -> Option<Vec<u8>> {
        let mut own = self.lock(slot);
        if own.phase != Phase::Done {
            if own.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                own.waker = Some(waker.clone());
            }
            self.waiting[slot as usize / 64].fetch_or(1 << (slot % 64), SeqCst);
            return None;
        }
        let reply = std::mem::take(&mut own.reply);
        *own = Slot::default();
        drop(own);
        self.free().push(slot);
        Some(reply)
    }

    /// Whether the reply has come.
    pub(super) fn is_done(&self, slot: u32) -> bool {
        self.lock(slot).phase == Phase::Done
    }

    /// A reply has come.
    pub(super) fn deliver(&self, slot: u32, reply: &[u8]) -> Delivered {
        if slot as usize >= self.slots.len() {
            return Delivered::Unasked;
        }
        let mut own = self.lock(slot);
        match own.phase {
            Phase::Open => {
                self.waiting[slot as usize / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
                own.reply.extend_from_slice(reply);
                own.phase = Phase::Done;
                Delivered::To(own.waker.take())
            }
            Phase::Abandoned => {
                *own = Slot::default();
                drop(own);
                self.free().push(slot);
                Delivered::Nobody
            }
            Phase::Free | Phase::Done => Delivered::Unasked,
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn abandon(&self, slot: u32) {
        let mut own = self.lock(slot);
        self.waiting[slot as usize / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
        if own.phase == Phase::Done {
            *own = Slot::default();
            drop(own);
            self.free().push(slot);
        } else {
            own.phase = Phase::Abandoned;
            own.waker = None;
        }
    }

    /// Somebody who waits.
    pub(super) fn any_waiting(&self) -> Option<Waker> {
        for (word, bits) in self.waiting.iter().enumerate().take(self.words.load(SeqCst)) {
            let mut bits = bits.load(SeqCst);
            while bits != 0 {
                let slot = word as u32 * 64 + bits.trailing_zeros();
                if let Some(waker) = &self.lock(slot).waker {
                    return Some(waker.clone());
                }
                bits &= bits - 1;
            }
        }
        None
    }

    /// All who wait.
    pub(super) fn all_waiting(&self) -> Vec<Waker> {
        (0..self.slots.len() as u32).filter_map(|slot| self.lock(slot).waker.take()).collect()
    }
}
