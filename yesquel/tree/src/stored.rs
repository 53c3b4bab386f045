//! Answer of a leaf about a key.

use yesquel_wire::{Answer, LargeValue, MovedTo};

/// Value as stored in a leaf.
#[derive(Debug, Clone)]
pub(crate) enum StoredValue {
    Whole(Box<[u8]>),
    Large(LargeValue),
}

/// Answer of a leaf about a key.
#[derive(Debug)]
pub(crate) enum LookupAnswer {
    Absent,
    Stored(StoredValue),
    /// The leaf does not own the key; it may know which node does.
    Moved(Option<MovedTo>),
}

impl LookupAnswer {
    pub(crate) fn of(answer: Answer<'_>) -> Option<LookupAnswer> {
        match answer {
            Answer::Absent => Some(LookupAnswer::Absent),
            Answer::Value(value) => Some(LookupAnswer::Stored(StoredValue::Whole(value.into()))),
            Answer::Large(large) => Some(LookupAnswer::Stored(StoredValue::Large(large))),
            Answer::Moved(to) => Some(LookupAnswer::Moved(to)),
            _ => None,
        }
    }
}
