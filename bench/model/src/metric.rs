//! Metrics: the names under which times are recorded.

use crate::operation::OperationKind;

/// A metric: an operation of a store, or a unit of several operations.
///
/// It is a small number, not a name, so that the measured path indexes an
/// array. A workload may define metrics of its own, see [`Metric::custom`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric(u8);

impl Metric {
    /// One read.
    pub const READ: Metric = Metric(0);
    /// One update.
    pub const UPDATE: Metric = Metric(1);
    /// One insert.
    pub const INSERT: Metric = Metric(2);
    /// One scan of any length.
    pub const SCAN: Metric = Metric(3);
    /// One delete.
    pub const DELETE: Metric = Metric(4);
    /// A read and the update of the same record, as one unit.
    pub const READ_MODIFY_WRITE: Metric = Metric(5);
    /// A scan's time divided by the number of records that it returned. Empty
    /// scans do not count.
    pub const SCAN_PER_RECORD: Metric = Metric(6);
    /// The comparison of a read record with its expected value.
    pub const VERIFY: Metric = Metric(7);
    /// Closing a client.
    pub const CLEANUP: Metric = Metric(8);
    /// A batch of inserts sent as one.
    pub const INSERT_BATCH: Metric = Metric(9);

    /// The round trip to a driver in another process: the time of an operation
    /// minus the driver's own part.
    pub const DRIVER_HOP: Metric = Metric(10);

    /// A flush of buffered writes.
    pub const FLUSH: Metric = Metric(11);

    /// Most metrics that a workload may define.
    pub const CUSTOM_MAX: usize = 6;
    const CUSTOM_FIRST: usize = 12;
    /// Number of metrics, custom ones included.
    pub const COUNT: usize = Self::CUSTOM_FIRST + Self::CUSTOM_MAX;

    const NAMES: [&'static str; Self::CUSTOM_FIRST] = [
        "READ",
        "UPDATE",
        "INSERT",
        "SCAN",
        "DELETE",
        "READ-MODIFY-WRITE",
        "SCAN-LATENCY-PER-RECORD",
        "VERIFY",
        "CLEANUP",
        "INSERT-BATCH",
        "DRIVER-HOP",
        "FLUSH",
    ];

    /// Returns the workload's own metric number `index`, below [`Self::CUSTOM_MAX`].
    pub const fn custom(index: usize) -> Metric {
        assert!(index < Self::CUSTOM_MAX, "a workload has at most Metric::CUSTOM_MAX metrics");
        Metric((Self::CUSTOM_FIRST + index) as u8)
    }

    /// Index in an array of [`Self::COUNT`] metrics.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it times a single call of a store.
    pub const fn is_operation(self) -> bool {
        self.index() < OperationKind::ALL.len() || self.0 == Metric::INSERT_BATCH.0
    }

    /// Returns the metric at an index.
    pub fn from_index(index: usize) -> Option<Metric> {
        (index < Self::COUNT).then_some(Metric(index as u8))
    }

    /// Returns its name in results; `custom` has the workload's own names.
    pub fn name<'a>(self, custom: &[&'a str]) -> &'a str {
        match Self::NAMES.get(self.index()) {
            Some(name) => name,
            None => custom.get(self.index() - Self::CUSTOM_FIRST).copied().unwrap_or("CUSTOM"),
        }
    }

    /// Returns all metrics.
    pub fn all() -> impl Iterator<Item = Metric> {
        (0..Self::COUNT as u8).map(Metric)
    }
}

impl From<OperationKind> for Metric {
    fn from(kind: OperationKind) -> Metric {
        match kind {
            OperationKind::Read => Metric::READ,
            OperationKind::Update => Metric::UPDATE,
            OperationKind::Insert => Metric::INSERT,
            OperationKind::Scan => Metric::SCAN,
            OperationKind::Delete => Metric::DELETE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_an_index_and_a_name() {
        assert_eq!(Metric::all().count(), Metric::COUNT);
        for kind in OperationKind::ALL {
            assert_eq!(Metric::from(kind).name(&[]), kind.name());
        }
        assert_eq!(Metric::all().filter(|metric| metric.is_operation()).count(), 6);
        assert_eq!(Metric::custom(1).name(&["A", "B"]), "B");
        assert_eq!(Metric::from_index(Metric::COUNT), None);
    }
}
