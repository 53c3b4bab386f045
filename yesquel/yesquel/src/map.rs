//! Maps, by which applications name trees.

use crate::identity::Identity;
use yesquel_tree::Tree;

/// An ordered map: bytes by bytes, in the order of bytes. It is a name for
/// one, and costs nothing to copy. It is good for the [`Store`](crate::Store) that it was got
/// from and others by way of the same [`Host`](crate::Host) or at the same
/// address; with another one operations fail with [`Error::OtherStore`](crate::Error::OtherStore).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Map {
    pub(crate) tree: Tree,
    pub(crate) store: Identity,
}

impl Map {
    /// The number of its tree, by which a server's status tells of it.
    pub fn tree(&self) -> u64 {
        self.tree.root().tree.number()
    }
}
