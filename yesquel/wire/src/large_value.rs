//! Values too long for a cell, stored in pieces in nodes of their own. `docs/yesquel/tree.md`
//! describes their life.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::{LocalId, NodeId, ServerId, TreeId, limits};

/// Bytes of a piece.
pub const PIECE_BYTES: usize = limits::CELL_VALUE_BYTES_MAX;
/// Pieces of a node.
pub const NODE_PIECES: usize = 16;
/// Bytes of a node.
const NODE_BYTES: u64 = (PIECE_BYTES * NODE_PIECES) as u64;

/// Location of a long value, stored in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeValue {
    /// Bytes of the value.
    pub length: u64,
    /// The server of its nodes, which belong to the cell's tree.
    pub server: ServerId,
    /// Id of the first node; the other nodes have the following ids.
    pub first: LocalId,
}

impl LargeValue {
    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        LargeValue::nodes_for(self.length)
    }

    /// Number of nodes for a value of some length.
    pub fn nodes_for(length: u64) -> u64 {
        length.div_ceil(NODE_BYTES)
    }

    /// Iterates over its nodes in order.
    pub fn ids(self, tree: TreeId) -> impl Iterator<Item = NodeId> {
        (0..self.nodes()).map(move |number| NodeId {
            tree,
            server: self.server,
            local: LocalId(self.first.0 + number),
        })
    }

    /// Encodes the location.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20);
        ByteWriter(&mut bytes).number(self.length).number(u64::from(self.server.0)).fixed(self.first.0);
        bytes
    }

    /// Decodes a location.
    pub fn decode(bytes: &[u8]) -> Result<LargeValue, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        let large = LargeValue {
            length: reader.number()?,
            server: reader.server()?,
            first: LocalId(reader.fixed()?),
        };
        reader.finish()?;
        let is_long = large.length > PIECE_BYTES as u64 && large.length <= limits::VALUE_BYTES_MAX;
        // Zero is the root's id, and ids do not wrap around.
        if !is_long || large.first == LocalId::ROOT || large.first.0.checked_add(large.nodes()).is_none() {
            return Err(before.malformed("a wrong location of a long value"));
        }
        Ok(large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_round_trip_and_list_their_nodes() {
        let large = LargeValue { length: 2 * NODE_BYTES + 1, server: ServerId(3), first: LocalId(0x1_0005) };
        assert_eq!(LargeValue::decode(&large.encode()), Ok(large));
        let ids: Vec<u64> = large.ids(TreeId::MAX).map(|node| node.local.0).collect();
        assert_eq!(ids, [0x1_0005, 0x1_0006, 0x1_0007]);
        assert_eq!(LargeValue::nodes_for(limits::VALUE_BYTES_MAX), 2048);
        for wrong in [
            LargeValue { length: PIECE_BYTES as u64, ..large },
            LargeValue { length: limits::VALUE_BYTES_MAX + 1, ..large },
            LargeValue { first: LocalId::ROOT, ..large },
            LargeValue { first: LocalId(u64::MAX), ..large },
        ] {
            assert!(LargeValue::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }
}
