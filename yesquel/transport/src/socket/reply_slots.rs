//! Slots for the replies of the requests in flight on a connection.

use super::lost_connection::LostConnection;
use crate::ReplyHandler;
use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
};
use yesquel_fork::UnansweredMessages;

#[derive(Debug, Default, PartialEq, Eq)]
enum SlotPhase {
    #[default]
    Free,
    /// The reply has not come.
    Open,
    /// The reply has come.
    Done,
    /// The request was cancelled.
    Abandoned,
}

#[derive(Default)]
struct ReplySlot {
    phase: SlotPhase,
    reply: Vec<u8>,
    waker: Option<Waker>,
    /// Takes the reply if no caller waits for it.
    handler: Option<ReplyHandler>,
}

impl fmt::Debug for ReplySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplySlot").field("phase", &self.phase).finish_non_exhaustive()
    }
}

/// The slots of a connection. A request's number is its slot plus one; no other request has it
/// until its reply has come.
#[derive(Debug)]
pub(super) struct ReplySlots {
    slots: Box<[Mutex<ReplySlot>]>,
    free: Mutex<Vec<u32>>,
    /// A bit for each open slot with a waker.
    waiting: Box<[AtomicU64]>,
    /// Number of words of these bits ever in use: usually few.
    words: AtomicUsize,
    /// Open slots with a handler.
    handled: AtomicU32,
    /// The same, for the exit of the process.
    unanswered: UnansweredMessages,
}

/// What became of a reply.
#[derive(Debug)]
pub(super) enum Delivered {
    /// It was stored; its caller must be woken.
    Stored(Option<Waker>),
    /// Its request was cancelled.
    Unwanted,
    /// There is no such request.
    Unexpected,
}

impl ReplySlots {
    pub(super) fn new(count: u32, unanswered: UnansweredMessages) -> ReplySlots {
        ReplySlots {
            slots: (0..count).map(|_| Mutex::default()).collect(),
            // The lowest slots first, so that few words of bits are used.
            free: Mutex::new((0..count).rev().collect()),
            waiting: (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            words: AtomicUsize::new(0),
            handled: AtomicU32::new(0),
            unanswered,
        }
    }

    fn lock(&self, slot: u32) -> MutexGuard<'_, ReplySlot> {
        self.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a slot for a request, if one is free.
    pub(super) fn open(&self) -> Option<u32> {
        let slot = self.free().pop()?;
        self.lock(slot).phase = SlotPhase::Open;
        let word = slot as usize / 64;
        if word >= self.words.load(SeqCst) {
            // Before the bit is set, so that a search cannot miss it.
            self.words.fetch_max(word + 1, SeqCst);
        }
        Some(slot)
    }

    /// Takes the reply and frees the slot, if it has come. Otherwise keeps the waker for when it
    /// comes, or when a receiver is needed.
    pub(super) fn take(&self, slot: u32, waker: &Waker) -> Option<Vec<u8>> {
        let mut own = self.lock(slot);
        if own.phase != SlotPhase::Done {
            if own.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                own.waker = Some(waker.clone());
            }
            self.waiting[slot as usize / 64].fetch_or(1 << (slot % 64), SeqCst);
            return None;
        }
        let reply = std::mem::take(&mut own.reply);
        *own = ReplySlot::default();
        drop(own);
        self.free().push(slot);
        Some(reply)
    }

    /// Opens a slot for a request whose reply a handler takes. Gives the handler back if no slot is
    /// free.
    pub(super) fn open_handled(&self, handler: ReplyHandler) -> Result<u32, ReplyHandler> {
        let Some(slot) = self.free().pop() else { return Err(handler) };
        let mut own = self.lock(slot);
        (own.phase, own.handler) = (SlotPhase::Open, Some(handler));
        self.handled.fetch_add(1, SeqCst);
        self.unanswered.add();
        Ok(slot)
    }

    /// Whether a handler waits for a reply.
    pub(super) fn has_handlers(&self) -> bool {
        self.handled.load(SeqCst) > 0
    }

    /// Tells the handlers that no reply will come.
    pub(super) fn fail_handlers(&self, lost: &LostConnection) {
        if !self.has_handlers() {
            return;
        }
        for slot in 0..self.slots.len() as u32 {
            let handler = self.lock(slot).handler.take();
            if let Some(handler) = handler {
                self.handled.fetch_sub(1, SeqCst);
                self.unanswered.remove();
                handler(Err(lost.clone().at("a server".to_owned())));
            }
        }
    }

    /// Whether the reply has come.
    pub(super) fn is_done(&self, slot: u32) -> bool {
        self.lock(slot).phase == SlotPhase::Done
    }

    /// Stores a reply.
    pub(super) fn deliver(&self, slot: u32, reply: &[u8]) -> Delivered {
        if slot as usize >= self.slots.len() {
            return Delivered::Unexpected;
        }
        let mut own = self.lock(slot);
        match own.phase {
            SlotPhase::Open if own.handler.is_some() => {
                let handler = std::mem::take(&mut *own).handler;
                drop(own);
                self.free().push(slot);
                self.handled.fetch_sub(1, SeqCst);
                self.unanswered.remove();
                handler.into_iter().for_each(|handler| handler(Ok(reply)));
                Delivered::Unwanted
            }
            SlotPhase::Open => {
                self.waiting[slot as usize / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
                own.reply.extend_from_slice(reply);
                own.phase = SlotPhase::Done;
                Delivered::Stored(own.waker.take())
            }
            SlotPhase::Abandoned => {
                *own = ReplySlot::default();
                drop(own);
                self.free().push(slot);
                Delivered::Unwanted
            }
            SlotPhase::Free | SlotPhase::Done => Delivered::Unexpected,
        }
    }

    /// Cancels a request.
    pub(super) fn abandon(&self, slot: u32) {
        let mut own = self.lock(slot);
        self.waiting[slot as usize / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
        if own.phase == SlotPhase::Done {
            *own = ReplySlot::default();
            drop(own);
            self.free().push(slot);
        } else {
            own.phase = SlotPhase::Abandoned;
            own.waker = None;
        }
    }

    /// Whether a request waits for its reply, or for the receiving role.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.iter().take(self.words.load(SeqCst)).any(|bits| bits.load(SeqCst) != 0)
    }

    /// Returns the waker of a waiting request, other than that of a slot.
    pub(super) fn any_waiting(&self, own: Option<u32>) -> Option<Waker> {
        for (word, bits) in self.waiting.iter().enumerate().take(self.words.load(SeqCst)) {
            let mut bits = bits.load(SeqCst);
            while bits != 0 {
                let slot = word as u32 * 64 + bits.trailing_zeros();
                if Some(slot) != own
                    && let Some(waker) = &self.lock(slot).waker
                {
                    return Some(waker.clone());
                }
                bits &= bits - 1;
            }
        }
        None
    }

    /// Returns the wakers of all waiting requests.
    pub(super) fn all_waiting(&self) -> Vec<Waker> {
        (0..self.slots.len() as u32).filter_map(|slot| self.lock(slot).waker.take()).collect()
    }
}
