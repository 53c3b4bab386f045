//! Targets of prepared and committed operations, by which conflicts are found.

use yesquel_model::{Key, KeyRange, Timestamp, TxnId};
use yesquel_wire::WriteOperation;

/// The kind of a range mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// The range was deleted.
    Deleted,
    /// A transaction guarded it.
    Guarded,
}

/// A committed operation on a range, for transactions that began before it.
#[derive(Debug, Clone)]
pub(crate) struct RangeMark {
    pub(crate) kind: MarkKind,
    pub(crate) range: KeyRange,
    pub(crate) at: Timestamp,
}

/// Target of a prepared operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteTarget {
    Key(Key),
    Range(KeyRange),
    Guard(KeyRange),
    Attribute(u16),
    /// The whole node.
    Shape,
}

/// An operation of a prepared transaction.
#[derive(Debug, Clone)]
pub(crate) struct PreparedOperation {
    pub(crate) txn: TxnId,
    pub(crate) at: Timestamp,
    pub(crate) target: WriteTarget,
}

impl WriteTarget {
    /// Returns what an operation will change.
    pub(crate) fn of(write: &WriteOperation<'_>) -> WriteTarget {
        match write {
            WriteOperation::Put { key, .. }
            | WriteOperation::Delete { key, .. }
            | WriteOperation::Link { key, .. }
            | WriteOperation::Unlink { key } => WriteTarget::Key((*key).into()),
            WriteOperation::DeleteRange(range) => WriteTarget::Range(range.clone()),
            WriteOperation::Guard(range) => WriteTarget::Guard(range.clone()),
            WriteOperation::Set(attribute) => WriteTarget::Attribute(attribute.id),
            WriteOperation::Create(_)
            | WriteOperation::Drop
            | WriteOperation::DropTree
            | WriteOperation::Move { .. }
            | WriteOperation::Adopt { .. }
            | WriteOperation::Reshape(_) => WriteTarget::Shape,
        }
    }

    /// Whether it may change what a read of these keys sees.
    pub(crate) fn changes(&self, range: &KeyRange) -> bool {
        match self {
            WriteTarget::Key(key) => range.contains(key),
            WriteTarget::Range(own) => own.overlaps(range),
            WriteTarget::Guard(_) | WriteTarget::Attribute(_) => false,
            WriteTarget::Shape => true,
        }
    }

    pub(crate) fn changes_key(&self, key: &[u8]) -> bool {
        match self {
            WriteTarget::Key(own) => **own == *key,
            WriteTarget::Range(own) => own.contains(key),
            WriteTarget::Guard(_) | WriteTarget::Attribute(_) => false,
            WriteTarget::Shape => true,
        }
    }

    /// Whether two targets conflict.
    pub(crate) fn overlaps(&self, other: &WriteTarget) -> bool {
        use WriteTarget::{Attribute, Guard, Key, Range, Shape};
        match (self, other) {
            (Shape, _) | (_, Shape) => true,
            (Attribute(a), Attribute(b)) => a == b,
            (Attribute(_), _) | (_, Attribute(_)) | (Guard(_), Guard(_)) => false,
            (Key(a), Key(b)) => a == b,
            (Key(key), Range(range) | Guard(range)) | (Range(range) | Guard(range), Key(key)) => {
                range.contains(key)
            }
            (Range(a) | Guard(a), Range(b) | Guard(b)) => a.overlaps(b),
        }
    }
}
