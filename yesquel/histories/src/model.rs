//! Consistency models.

/// Consistency model of a store.
///
/// Plain snapshot isolation allows snapshots of any age. In the session variant (Daudjee & Salem,
/// "Lazy Database Replication with Snapshot Isolation", VLDB 2006) a client sees what it saw and
/// did before; in the strong variant a transaction sees everything committed before it began. The
/// variants of serializability are analogous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsistencyModel {
    /// A transaction reads one snapshot, and of two concurrent writers of a key one fails. Write
    /// skew is allowed.
    SnapshotIsolation,
    /// In addition, the snapshots of a client never go back.
    StrongSessionSnapshotIsolation,
    /// In addition, a snapshot is not older than its transaction.
    StrongSnapshotIsolation,
    /// Equivalent to some serial order.
    Serializable,
    /// In addition, the order agrees with that of each client.
    StrongSessionSerializable,
    /// In addition, the order agrees with real time.
    StrictSerializable,
}

/// Order, besides that of reads and writes, that an anomaly depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnomalyOrder {
    /// None.
    Data,
    /// The order in which a process ran its transactions.
    Session,
    /// The order of completion and invocation times.
    RealTime,
}

impl ConsistencyModel {
    /// Returns whether cycles with two adjacent `rw` edges are forbidden too.
    pub(crate) fn serializable(self) -> bool {
        matches!(
            self,
            ConsistencyModel::Serializable
                | ConsistencyModel::StrongSessionSerializable
                | ConsistencyModel::StrictSerializable
        )
    }

    /// Returns the orders to check, one after the other.
    pub(crate) fn orders(self) -> &'static [AnomalyOrder] {
        match self {
            ConsistencyModel::SnapshotIsolation | ConsistencyModel::Serializable => &[AnomalyOrder::Data],
            ConsistencyModel::StrongSessionSnapshotIsolation
            | ConsistencyModel::StrongSessionSerializable => &[AnomalyOrder::Data, AnomalyOrder::Session],
            ConsistencyModel::StrongSnapshotIsolation | ConsistencyModel::StrictSerializable => {
                &[AnomalyOrder::Data, AnomalyOrder::Session, AnomalyOrder::RealTime]
            }
        }
    }

    /// Returns the name of the model.
    pub fn name(self) -> &'static str {
        match self {
            ConsistencyModel::SnapshotIsolation => "snapshot isolation",
            ConsistencyModel::StrongSessionSnapshotIsolation => "strong session snapshot isolation",
            ConsistencyModel::StrongSnapshotIsolation => "strong snapshot isolation",
            ConsistencyModel::Serializable => "serializability",
            ConsistencyModel::StrongSessionSerializable => "strong session serializability",
            ConsistencyModel::StrictSerializable => "strict serializability",
        }
    }
}
