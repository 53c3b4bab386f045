//! What a store may promise.

/// What a store promises of its transactions.
///
/// Snapshot isolation by itself says nothing of how old a snapshot may be. The
/// session variant (Daudjee & Salem, "Lazy Database Replication with Snapshot
/// Isolation", VLDB 2006) says that a client sees what it saw and did before;
/// the strong one, that everyone sees whatever was committed before he began.
/// The variants of serializability say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Model {
    /// Reads are of one snapshot, and of two who write the same at the same
    /// time one fails. Write skew is allowed.
    SnapshotIsolation,
    /// The same, and snapshots of a client never go back.
    StrongSessionSnapshotIsolation,
    /// The same, and snapshots are of the transaction's beginning or later.
    StrongSnapshotIsolation,
    /// As if one transaction had run after the other.
    Serializable,
    /// The same, in an order that each client's order agrees with.
    StrongSessionSerializable,
    /// The same, in an order that agrees with time.
    StrictSerializable,
}

/// Which order besides that of reads and writes a contradiction needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// None: reads and writes contradict each other.
    Data,
    /// The order in which a process ran its transactions.
    Session,
    /// That one transaction had ended before another began.
    RealTime,
}

impl Model {
    /// Whether cycles with two `rw` edges in a row are forbidden too.
    pub(crate) fn serializable(self) -> bool {
        matches!(self, Model::Serializable | Model::StrongSessionSerializable | Model::StrictSerializable)
    }

    /// The orders to look for contradictions with, one after the other.
    pub(crate) fn orders(self) -> &'static [Order] {
        match self {
            Model::SnapshotIsolation | Model::Serializable => &[Order::Data],
            Model::StrongSessionSnapshotIsolation | Model::StrongSessionSerializable => {
                &[Order::Data, Order::Session]
            }
            Model::StrongSnapshotIsolation | Model::StrictSerializable => {
                &[Order::Data, Order::Session, Order::RealTime]
            }
        }
    }

    /// The model's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Model::SnapshotIsolation => "snapshot isolation",
            Model::StrongSessionSnapshotIsolation => "strong session snapshot isolation",
            Model::StrongSnapshotIsolation => "strong snapshot isolation",
            Model::Serializable => "serializability",
            Model::StrongSessionSerializable => "strong session serializability",
            Model::StrictSerializable => "strict serializability",
        }
    }
}
