//! Techniques that the paper measures by switching them off (sections 4.5 and 6.1.4).

/// Techniques that let concurrent writers of a node avoid conflicts. All are on; switching one off
/// shows what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Techniques {
    /// A split moves the lower half of a node away, so that growing keys keep landing in the same
    /// node. Off: it moves the upper half.
    pub right_splits: bool,
    /// The server splits its nodes after the reply to the write that filled them. Off: a client
    /// whose write finds a full leaf splits it in the same transaction, and nothing is split by
    /// load.
    pub delegated_splits: bool,
    /// Operations conflict at their own grain. Off: any change of a node conflicts with any other,
    /// as in systems that read and write whole nodes.
    pub commutative_operations: bool,
}

impl Default for Techniques {
    fn default() -> Self {
        Techniques { right_splits: true, delegated_splits: true, commutative_operations: true }
    }
}
