//! The lists that clients append to: a few hot ones in each group. A full list is followed by
//! another one.

use yesquel_histories::{Element, ListKey};

/// Number of groups, each of one server.
pub(crate) const GROUPS: usize = 4;
/// Number of lists that are in use at a time, over all groups.
pub(crate) const SLOTS: u64 = 16;
/// Length at which a list is full.
pub(crate) const FULL: usize = 24;

/// A list: its slot, and the number of full ones before it.
pub(crate) fn list_key(round: u64, slot: u64, number: u64) -> ListKey {
    (round << 48) | (slot << 32) | number
}

/// Returns the group of a list.
pub(crate) fn group_of(key: ListKey) -> usize {
    ((key >> 32) as u16 as usize) % GROUPS
}

/// Decodes a list.
pub(crate) fn elements(value: Option<&[u8]>) -> Vec<Element> {
    let chunks = value.unwrap_or_default().chunks_exact(8);
    chunks.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default())).collect()
}

/// The lists in use, as far as one reader has seen.
#[derive(Debug)]
pub(crate) struct Lists {
    round: u64,
    /// The last list of a slot, which is never full.
    last: u64,
    numbers: [u64; SLOTS as usize],
}

impl Lists {
    pub(crate) fn new(round: u64) -> Lists {
        Lists::within(round, u64::from(u32::MAX))
    }

    /// As many lists in each slot, up to the last one.
    pub(crate) fn within(round: u64, last: u64) -> Lists {
        Lists { round, last, numbers: [0; SLOTS as usize] }
    }

    /// Continues with a list of a slot, or with the last one.
    pub(crate) fn begin_at(&mut self, slot: u64, key: ListKey) {
        self.numbers[slot as usize] = u64::from(key as u32).min(self.last);
    }

    pub(crate) fn key(&self, slot: u64) -> ListKey {
        list_key(self.round, slot, self.numbers[slot as usize])
    }

    /// Records the length of a list in use; returns whether it is full, and another one follows.
    pub(crate) fn saw(&mut self, slot: u64, length: usize) -> bool {
        let number = self.numbers[slot as usize];
        let is_full = length >= FULL && number < self.last;
        self.numbers[slot as usize] += u64::from(is_full);
        is_full
    }

    /// Records the length of a list, which need not be in use any more.
    pub(crate) fn saw_key(&mut self, key: ListKey, length: usize) {
        let slot = u64::from((key >> 32) as u16);
        if self.key(slot) == key {
            self.saw(slot, length);
        }
    }
}
