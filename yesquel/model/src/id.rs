//! Ids of servers, trees, nodes and transactions.

use std::fmt;

/// A storage server, or later a group of servers that hold the same nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServerId(pub u16);

/// A tree (an ordered map, a table or an index), in 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreeId(u64);

impl TreeId {
    /// The largest id.
    pub const MAX: TreeId = TreeId((1 << 48) - 1);

    /// Returns `None` if the number has more than 48 bits.
    pub const fn new(number: u64) -> Option<TreeId> {
        if number <= Self::MAX.0 { Some(TreeId(number)) } else { None }
    }

    /// The id as a number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A node's id within its tree and server (section 4.8 of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LocalId(pub u64);

impl LocalId {
    /// The root of every tree.
    pub const ROOT: LocalId = LocalId(0);
    /// No node: at a group, all nodes that it has of a tree with its root at another group.
    pub const ALL: LocalId = LocalId(u64::MAX);
}

/// A source of ids for new nodes: a number that no other issuer has, and a counter.
///
/// An issuer has 65,536 ids; a client that needs more takes another number. Numbers start at 1, so
/// that no id equals the root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issuer {
    number: u64,
    given: u32,
}

impl Issuer {
    /// The largest issuer number, of 48 bits.
    pub const NUMBER_MAX: u64 = (1 << 48) - 1;

    /// Creates an issuer from a number between 1 and [`NUMBER_MAX`](Self::NUMBER_MAX) that no other
    /// issuer has.
    pub const fn new(number: u64) -> Option<Issuer> {
        if number >= 1 && number <= Self::NUMBER_MAX { Some(Issuer { number, given: 0 }) } else { None }
    }

    /// Returns the first of `count` consecutive ids, or `None` if fewer are left.
    pub fn issue(&mut self, count: u64) -> Option<LocalId> {
        let after = u64::from(self.given).checked_add(count)?;
        if after > 1 << 16 {
            return None;
        }
        let first = LocalId(self.number << 16 | u64::from(self.given));
        self.given = after as u32;
        Some(first)
    }
}

/// A node: its tree, the server that holds it, and its id there. 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId {
    /// The tree.
    pub tree: TreeId,
    /// The server that holds it.
    pub server: ServerId,
    /// The id within tree and server.
    pub local: LocalId,
}

impl NodeId {
    /// Returns the root of a tree.
    pub const fn root(tree: TreeId, server: ServerId) -> NodeId {
        NodeId { tree, server, local: LocalId::ROOT }
    }

    /// Returns the id as one number. Nodes of a tree are adjacent in the order of these numbers.
    pub const fn to_bits(self) -> u128 {
        (self.tree.0 as u128) << 80 | (self.server.0 as u128) << 64 | self.local.0 as u128
    }

    /// Converts such a number back.
    pub const fn from_bits(bits: u128) -> NodeId {
        NodeId {
            tree: TreeId((bits >> 80) as u64),
            server: ServerId((bits >> 64) as u16),
            local: LocalId(bits as u64),
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:x}", self.tree, self.server.0, self.local.0)
    }
}

/// A transaction: its client, and its number there. A transaction that is retried after a node
/// moved takes another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The client's number, which is unique.
    pub client: u64,
    /// Number of the client's commit attempts so far.
    pub number: u64,
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{}", self.client, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_round_trips_through_128_bits(bits: u128) {
            prop_assert_eq!(NodeId::from_bits(bits).to_bits(), bits);
        }
    }

    #[test]
    fn an_issuer_numbers_65536_nodes_and_never_the_root() {
        assert_eq!(Issuer::new(0), None);
        assert_eq!(Issuer::new(Issuer::NUMBER_MAX + 1), None);
        let mut issuer = Issuer::new(1).unwrap();
        let names: Vec<LocalId> = std::iter::from_fn(|| issuer.issue(1)).collect();
        assert_eq!(names.len(), 65536);
        assert_eq!((names[0], names[65535]), (LocalId(0x1_0000), LocalId(0x1_ffff)));
        let mut issuer = Issuer::new(2).unwrap();
        assert!(issuer.issue(65_000).unwrap() > names[65535]);
        assert_eq!((issuer.issue(537), issuer.issue(536)), (None, Some(LocalId(0x2_0000 + 65_000))));
    }

    #[test]
    fn a_node_is_shown_by_its_parts() {
        let tree = TreeId::new(0x2a).unwrap();
        assert_eq!(NodeId { tree, server: ServerId(3), local: LocalId(0x1_0000) }.to_string(), "2a.3.10000");
        assert_eq!(TreeId::new(1 << 48), None);
    }
}
