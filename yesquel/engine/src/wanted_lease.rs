//! What a lease request asks for.

use yesquel_model::{KeyRange, TreeId, TxnId};

/// The lease that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct WantedLease {
    pub(crate) holder: TxnId,
    pub(crate) ranges: Vec<(TreeId, KeyRange)>,
    /// Duration of the lease.
    pub(crate) ms: u64,
    /// How long the request may wait for its turn.
    pub(crate) wait_ms: u64,
}

impl WantedLease {
    /// Whether one of its ranges overlaps this one.
    pub(crate) fn overlaps(&self, tree: TreeId, range: &KeyRange) -> bool {
        self.ranges.iter().any(|(own, keys)| *own == tree && keys.overlaps(range))
    }
}
