//! The lists that clients append to: a few hot ones in each group. A full list is followed by
//! another one.

use yesquel_histories::{Element, ListKey};

/// Number of groups, each of one server.
pub(crate) const GROUPS: usize = 4;
/// Number of lists that are in use at a time, over all groups.
pub(crate) const SLOTS: u64 = 16;
/// Length at which a list is full.
const FULL: usize = 24;

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
    numbers: [u64; SLOTS as usize],
}

impl Lists {
    pub(crate) fn new(round: u64) -> Lists {
        Lists { round, numbers: [0; SLOTS as usize] }
    }

    pub(crate) fn key(&self, slot: u64) -> ListKey {
        list_key(self.round, slot, self.numbers[slot as usize])
    }

    /// Records the length of a list; returns whether it is full.
    pub(crate) fn saw(&mut self, slot: u64, length: usize) -> bool {
        let is_full = length >= FULL;
        self.numbers[slot as usize] += u64::from(is_full);
        is_full
    }
}

/// Whether the transactions of a round are serializable, and not only snapshot isolated.
pub(crate) fn is_serializable(round: u64) -> bool {
    round.is_multiple_of(2)
}
