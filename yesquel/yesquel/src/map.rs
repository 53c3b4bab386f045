//! Maps, by which applications name trees.

use crate::identity::Identity;
use yesquel_tree::Tree;

/// Handle of an ordered map of bytes to bytes, in byte order. It is cheap to copy. It is valid for
/// the [`Store`](crate::Store) that returned it and for others of the same [`Host`](crate::Host) or
/// address; with any other one operations fail with
/// [`Error::OtherStore`](crate::Error::OtherStore).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Map {
    pub(crate) tree: Tree,
    pub(crate) store: Identity,
}

impl Map {
    /// Returns the number of its tree, as the server's status shows it.
    pub fn tree(&self) -> u64 {
        self.tree.root().tree.number()
    }
}
