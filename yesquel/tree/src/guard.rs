//! Guards that a transaction places where it writes.

use std::sync::Arc;
use yesquel_model::{KeyRange, NodeId};

/// Guard of one of several trees with the same content.
#[derive(Debug)]
pub(crate) struct GuardAtAny {
    /// Their roots.
    pub(crate) copies: Arc<[NodeId]>,
    /// The root of the one that is guarded if the transaction writes at none of their servers.
    pub(crate) preferred: NodeId,
    pub(crate) range: KeyRange,
}
