//! What a leaf says of a key.

use yesquel_wire::{Answer, LargeValue, MovedTo};

/// A value as a leaf has it.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Whole(Box<[u8]>),
    Large(LargeValue),
}

/// What a leaf says of a key.
#[derive(Debug)]
pub(crate) enum Looked {
    Absent,
    Stored(Stored),
    /// The key is not its, and where it is, if it knows.
    Moved(Option<MovedTo>),
}

impl Looked {
    pub(crate) fn of(answer: Answer<'_>) -> Option<Looked> {
        match answer {
            Answer::Absent => Some(Looked::Absent),
            Answer::Value(value) => Some(Looked::Stored(Stored::Whole(value.into()))),
            Answer::Large(large) => Some(Looked::Stored(Stored::Large(large))),
            Answer::Moved(to) => Some(Looked::Moved(to)),
            _ => None,
        }
    }
}
