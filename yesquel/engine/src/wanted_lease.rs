//! What a lease request asks for.

use yesquel_model::{KeyRange, TreeId, TxnId};

/// The lease that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct WantedLease {
    pub(crate) holder: TxnId,
    pub(crate) tree: TreeId,
    pub(crate) range: KeyRange,
    /// Duration of the lease.
    pub(crate) ms: u64,
    /// How long the request may wait for its turn.
    pub(crate) wait_ms: u64,
}
