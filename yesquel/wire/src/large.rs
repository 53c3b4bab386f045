//! Values that are too long for a cell: in pieces, in nodes of their own.
//! `docs/yesquel/tree.md` says how they come and go.

use crate::{Malformed, Reader, Writer};
use yesquel_model::{LocalId, NodeId, ServerId, TreeId, limits};

/// Bytes of a piece.
pub const PIECE_BYTES: usize = limits::CELL_VALUE_BYTES_MAX;
/// Pieces of a node.
pub const NODE_PIECES: usize = 16;
/// Bytes of a node.
const NODE_BYTES: u64 = (PIECE_BYTES * NODE_PIECES) as u64;

/// Where a long value is: what stands in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Large {
    /// Bytes of the value.
    pub length: u64,
    /// Who holds its nodes, which are of the cell's tree.
    pub server: ServerId,
    /// The first of its nodes; the others have the names that follow.
    pub first: LocalId,
}

impl Large {
    /// How many nodes there are.
    pub fn nodes(&self) -> u64 {
        Large::nodes_for(self.length)
    }

    /// How many nodes a value of this length takes.
    pub fn nodes_for(length: u64) -> u64 {
        length.div_ceil(NODE_BYTES)
    }

    /// Its nodes, in order.
    pub fn ids(self, tree: TreeId) -> impl Iterator<Item = NodeId> {
        (0..self.nodes()).map(move |number| NodeId {
            tree,
            server: self.server,
            local: LocalId(self.first.0 + number),
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20);
        Writer(&mut bytes).number(self.length).number(u64::from(self.server.0)).fixed(self.first.0);
        bytes
    }

    /// What some bytes say.
    pub fn decode(bytes: &[u8]) -> Result<Large, Malformed> {
        let mut reader = Reader::new(bytes);
        let before = reader;
        let large =
            Large { length: reader.number()?, server: reader.server()?, first: LocalId(reader.fixed()?) };
        reader.finish()?;
        let is_long = large.length > PIECE_BYTES as u64 && large.length <= limits::VALUE_BYTES_MAX;
        // A root has the name zero, and names do not go round.
        if !is_long || large.first == LocalId::ROOT || large.first.0.checked_add(large.nodes()).is_none() {
            return Err(before.malformed("no long value"));
        }
        Ok(large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_names_its_nodes() {
        let large = Large { length: 2 * NODE_BYTES + 1, server: ServerId(3), first: LocalId(0x1_0005) };
        assert_eq!(Large::decode(&large.encode()), Ok(large));
        let ids: Vec<u64> = large.ids(TreeId::MAX).map(|node| node.local.0).collect();
        assert_eq!(ids, [0x1_0005, 0x1_0006, 0x1_0007]);
        assert_eq!(Large::nodes_for(limits::VALUE_BYTES_MAX), 2048);
        for wrong in [
            Large { length: PIECE_BYTES as u64, ..large },
            Large { length: limits::VALUE_BYTES_MAX + 1, ..large },
            Large { first: LocalId::ROOT, ..large },
            Large { first: LocalId(u64::MAX), ..large },
        ] {
            assert!(Large::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }
}
