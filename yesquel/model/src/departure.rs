//! A range of a leaf that moves to a node of another group.

use crate::Timestamp;

/// Content of a range as another group adopts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepartedContent {
    /// Transactions with snapshots below it are refused there.
    pub floor: Timestamp,
    /// Cells and marks, encoded.
    pub items: Vec<u8>,
    /// Not below any time in the content.
    pub clock: Timestamp,
    /// There are cells that are not deleted.
    pub has_values: bool,
}

/// Why a range does not move now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayReason {
    /// Transactions are prepared on the node: try again soon, or give up.
    Prepared,
    /// The node is no leaf with this range, or has long values, or too much content.
    Unfit,
}
