//! Values too long for a cell, stored in pieces in nodes of their own. `docs/yesquel/tree.md`
//! describes their life.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::{Key, LocalId, NodeId, ServerId, TreeId, limits};

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
    /// Nodes of the longest value.
    pub const NODES_MAX: u64 = limits::VALUE_BYTES_MAX.div_ceil(NODE_BYTES);

    /// Returns the id of its first node.
    pub fn first_node(&self, tree: TreeId) -> NodeId {
        NodeId { tree, server: self.server, local: self.first }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        LargeValue::nodes_for(self.length)
    }

    /// Number of nodes for a value of some length.
    pub fn nodes_for(length: u64) -> u64 {
        length.div_ceil(NODE_BYTES)
    }

    /// Decodes the number of a value's nodes from a message or record.
    pub fn read_nodes(reader: &mut ByteReader<'_>) -> Result<u64, Malformed> {
        let before = *reader;
        let nodes = reader.number()?;
        let is_right = (1..=LargeValue::NODES_MAX).contains(&nodes);
        if is_right { Ok(nodes) } else { Err(before.malformed("a wrong number of nodes")) }
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

/// First of the attributes of a long value's first node that name its owner. A name that is longer
/// than a value in a cell continues in the attributes with the following numbers.
pub const OWNER_ATTRIBUTE: u16 = 1;
/// Attributes that the longest name takes.
const OWNER_ATTRIBUTES: u16 = (limits::KEY_BYTES_MAX / limits::CELL_VALUE_BYTES_MAX) as u16 + 1;

/// The cell that refers to a long value, as the first of the value's nodes names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueOwner {
    /// The server of the tree's root; the value's nodes name the tree.
    pub server: ServerId,
    /// Number of the value's nodes.
    pub nodes: u64,
    /// The cell's key.
    pub key: Key,
}

impl ValueOwner {
    /// Encodes the owner as the values of consecutive attributes.
    pub fn attributes(&self) -> Vec<(u16, Vec<u8>)> {
        let mut bytes = Vec::with_capacity(16 + self.key.len());
        let mut writer = ByteWriter(&mut bytes);
        writer.number(u64::from(self.server.0)).number(self.nodes).bytes(&self.key);
        let parts = bytes.chunks(limits::CELL_VALUE_BYTES_MAX);
        (OWNER_ATTRIBUTE..).zip(parts.map(<[u8]>::to_vec)).collect()
    }

    /// Number of attributes that name an owner with a key of this length.
    pub fn attributes_for(key: &[u8]) -> u64 {
        let owner = ValueOwner { server: ServerId(u16::MAX), nodes: 0, key: key.into() };
        owner.attributes().len() as u64
    }

    /// Decodes an owner from attributes; `None` if there is none.
    pub fn of<'a>(attribute: impl Fn(u16) -> Option<&'a [u8]>) -> Option<ValueOwner> {
        let numbers = OWNER_ATTRIBUTE..OWNER_ATTRIBUTE + OWNER_ATTRIBUTES;
        let bytes: Vec<u8> = numbers.map_while(attribute).flatten().copied().collect();
        let mut reader = ByteReader::new(&bytes);
        let (server, nodes) = (reader.server().ok()?, reader.number().ok()?);
        let owner = ValueOwner { server, nodes, key: reader.key().ok()?.into() };
        let is_whole = reader.is_done() && (1..=LargeValue::NODES_MAX).contains(&nodes);
        is_whole.then_some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_round_trip_in_attributes() {
        let largest = limits::KEY_BYTES_MAX;
        for length in [0, 1, limits::CELL_VALUE_BYTES_MAX, largest] {
            let owner = ValueOwner { server: ServerId(700), nodes: 2_048, key: vec![7; length].into() };
            let attributes = owner.attributes();
            assert!(attributes.iter().all(|(_, value)| value.len() <= limits::CELL_VALUE_BYTES_MAX));
            let find = |id| attributes.iter().find(|(known, _)| *known == id);
            assert_eq!(ValueOwner::of(|id| find(id).map(|(_, value)| &**value)), Some(owner));
            // A part that is missing leaves none.
            assert_eq!(ValueOwner::of(|id| find(id + 1).map(|(_, value)| &**value)), None);
        }
        assert_eq!(ValueOwner::of(|_| None), None);
        assert_eq!(ValueOwner::of(|id| (id == 1).then_some(&[1, 0, 0][..])), None, "no nodes");
    }

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
