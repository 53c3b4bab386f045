//! What operations change, once they are prepared and once they are committed:
//! by it they get in each other's way.

use yesquel_model::{Key, KeyRange, Timestamp, TxnId};
use yesquel_wire::WriteOperation;

/// What a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The range was deleted.
    Deleted,
    /// Somebody relied on it.
    Guarded,
}

/// A committed operation on a range, for those who began before it.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) claim: Claim,
    pub(crate) range: KeyRange,
    pub(crate) at: Timestamp,
}

/// What a prepared operation will change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Key(Key),
    Range(KeyRange),
    Guard(KeyRange),
    Attribute(u16),
    /// All of the node.
    Shape,
}

/// An operation of a transaction that has voted yes and is not decided.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) txn: TxnId,
    pub(crate) at: Timestamp,
    pub(crate) target: Target,
}

impl Target {
    /// What an operation will change.
    pub(crate) fn of(write: &WriteOperation<'_>) -> Target {
        match write {
            WriteOperation::Put { key, .. }
            | WriteOperation::Delete { key, .. }
            | WriteOperation::Link { key, .. }
            | WriteOperation::Unlink { key } => Target::Key((*key).into()),
            WriteOperation::DeleteRange(range) => Target::Range(range.clone()),
            WriteOperation::Guard(range) => Target::Guard(range.clone()),
            WriteOperation::Set(attribute) => Target::Attribute(attribute.id),
            WriteOperation::Create(_)
            | WriteOperation::Drop
            | WriteOperation::DropTree
            | WriteOperation::Move { .. }
            | WriteOperation::Reshape(_) => Target::Shape,
        }
    }

    /// Whether it may change what is read of these keys.
    pub(crate) fn changes(&self, range: &KeyRange) -> bool {
        match self {
            Target::Key(key) => range.contains(key),
            Target::Range(own) => own.meets(range),
            Target::Guard(_) | Target::Attribute(_) => false,
            Target::Shape => true,
        }
    }

    pub(crate) fn changes_key(&self, key: &[u8]) -> bool {
        match self {
            Target::Key(own) => **own == *key,
            Target::Range(own) => own.contains(key),
            Target::Guard(_) | Target::Attribute(_) => false,
            Target::Shape => true,
        }
    }

    /// Whether the two get in each other's way.
    pub(crate) fn meets(&self, other: &Target) -> bool {
        use Target::{Attribute, Guard, Key, Range, Shape};
        match (self, other) {
            (Shape, _) | (_, Shape) => true,
            (Attribute(a), Attribute(b)) => a == b,
            (Attribute(_), _) | (_, Attribute(_)) | (Guard(_), Guard(_)) => false,
            (Key(a), Key(b)) => a == b,
            (Key(key), Range(range) | Guard(range)) | (Range(range) | Guard(range), Key(key)) => {
                range.contains(key)
            }
            (Range(a) | Guard(a), Range(b) | Guard(b)) => a.meets(b),
        }
    }
}
