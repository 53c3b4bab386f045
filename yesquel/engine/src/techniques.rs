//! What the paper measures by taking it away (sections 4.5 and 6.1.4).

/// The techniques by which those who write into one node keep out of each
/// other's way. All are in use, and are taken away, one at a time, only to see
/// what they are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Techniques {
    /// A split moves the lower half of a node away, so that keys that grow go
    /// on landing in the same node. Otherwise the upper half.
    pub right_splits: bool,
    /// A server splits its nodes, when whoever made them too large has his
    /// answer. Otherwise the client does whose write meets a full leaf, in the
    /// transaction of that write; and nothing is split by load.
    pub delegated_splits: bool,
    /// Conflicts are those of operations. Otherwise whatever changed a node
    /// stands in the way of whatever would, as where nodes are read and written
    /// whole.
    pub commutative_operations: bool,
}

impl Default for Techniques {
    fn default() -> Self {
        Techniques { right_splits: true, delegated_splits: true, commutative_operations: true }
    }
}
