//! The names under which times are kept.

use crate::operation::OperationKind;

/// Something that is timed: a verb of a store, or something made of several.
///
/// A small number rather than a name, so that the measured path indexes an
/// array. Workloads may name metrics of their own, see [`Metric::custom`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric(u8);

impl Metric {
    /// One read.
    pub const READ: Metric = Metric(0);
    /// One update.
    pub const UPDATE: Metric = Metric(1);
    /// One insert.
    pub const INSERT: Metric = Metric(2);
    /// One scan, whatever its length.
    pub const SCAN: Metric = Metric(3);
    /// One delete.
    pub const DELETE: Metric = Metric(4);
    /// A read and the update of the same record, as one.
    pub const READ_MODIFY_WRITE: Metric = Metric(5);
    /// A scan's time divided by the records that it returned; empty scans are
    /// left out.
    pub const SCAN_PER_RECORD: Metric = Metric(6);
    /// Comparing what was read with what must have been written.
    pub const VERIFY: Metric = Metric(7);
    /// Closing a client.
    pub const CLEANUP: Metric = Metric(8);
    /// A batch of inserts sent as one.
    pub const INSERT_BATCH: Metric = Metric(9);

    /// The way to a driver in another process and back: the time of an
    /// operation without the driver's own part of it.
    pub const DRIVER_HOP: Metric = Metric(10);

    /// Writes that a buffer held, sent together.
    pub const FLUSH: Metric = Metric(11);

    /// Metrics that a workload may name itself.
    pub const CUSTOM_MAX: usize = 6;
    const CUSTOM_FIRST: usize = 12;
    /// How many metrics there are at most.
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

    /// The workload's own metric number `index`, below [`Self::CUSTOM_MAX`].
    pub const fn custom(index: usize) -> Metric {
        assert!(index < Self::CUSTOM_MAX, "a workload has at most Metric::CUSTOM_MAX metrics");
        Metric((Self::CUSTOM_FIRST + index) as u8)
    }

    /// Position in an array of [`Self::COUNT`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it times one call of a store, and nothing made of others.
    pub const fn is_operation(self) -> bool {
        self.index() < OperationKind::ALL.len() || self.0 == Metric::INSERT_BATCH.0
    }

    /// The metric at a position.
    pub fn from_index(index: usize) -> Option<Metric> {
        (index < Self::COUNT).then_some(Metric(index as u8))
    }

    /// The name in results; `custom` holds the workload's own names.
    pub fn name<'a>(self, custom: &[&'a str]) -> &'a str {
        match Self::NAMES.get(self.index()) {
            Some(name) => name,
            None => custom.get(self.index() - Self::CUSTOM_FIRST).copied().unwrap_or("CUSTOM"),
        }
    }

    /// All metrics.
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
    fn every_metric_has_a_place_and_a_name() {
        assert_eq!(Metric::all().count(), Metric::COUNT);
        for kind in OperationKind::ALL {
            assert_eq!(Metric::from(kind).name(&[]), kind.name());
        }
        assert_eq!(Metric::all().filter(|metric| metric.is_operation()).count(), 6);
        assert_eq!(Metric::custom(1).name(&["A", "B"]), "B");
        assert_eq!(Metric::from_index(Metric::COUNT), None);
    }
}
