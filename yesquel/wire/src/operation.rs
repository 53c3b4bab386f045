//! Operations of a transaction on nodes (figure 7 of the paper), encoded alike in requests and in
//! the log.

use crate::{ByteReader, ByteWriter, LargeValue, Malformed};
use yesquel_model::{KeyRange, NodeId, Timestamp, limits};

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Its cells are keys with values.
    Leaf,
    /// Its cells are keys with the ids of child nodes, which hold the keys from there on.
    Inner,
    /// Its cells are numbered pieces of a long value. Only the value's cell refers to it.
    Value,
}

/// Precondition of a write, at the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expect {
    /// None.
    Any,
    /// The key is absent.
    Absent,
    /// The key exists.
    Present,
}

/// An attribute of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its number.
    pub id: u16,
    /// Its value; `None` removes it.
    pub value: Option<&'a [u8]>,
}

/// Kind and fence of a new node. Later operations add cells and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its kind.
    pub kind: NodeKind,
    /// The keys that it answers for.
    pub fence: KeyRange,
}

/// An operation on one node. Leaves have cells, inner nodes have links. An operation of one sort on
/// a node of the other is answered as if the node did not hold the key: the tree has grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOperation<'a> {
    /// Writes a cell.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The precondition.
        expect: Expect,
        /// The value is the location of a long one: a [`LargeValue`](crate::LargeValue).
        is_large: bool,
    },
    /// Deletes a cell.
    Delete {
        /// The key.
        key: &'a [u8],
        /// The precondition.
        expect: Expect,
    },
    /// Deletes all cells of a range.
    DeleteRange(KeyRange),
    /// Changes nothing; fails if another transaction changes a cell of the range.
    Guard(KeyRange),
    /// Links an inner node to a child.
    Link {
        /// Lower bound of the child's keys.
        key: &'a [u8],
        /// The child.
        child: NodeId,
    },
    /// Removes such a link.
    Unlink {
        /// Lower bound of the child's keys.
        key: &'a [u8],
    },
    /// Sets or removes an attribute.
    Set(Attribute<'a>),
    /// Creates the node.
    Create(NewNode),
    /// Drops the node.
    Drop,
    /// Drops the tree whose root the node is, with all its nodes at this group; with
    /// [`LocalId::ALL`](yesquel_model::LocalId::ALL), the nodes at this group of a tree with its root
    /// at another one.
    DropTree,
    /// Moves the cells of a range to another node: of the same group with their history and prepared
    /// operations; otherwise the target [adopts](Self::Adopt) what the source has copied before.
    Move {
        /// The keys.
        range: KeyRange,
        /// The target.
        to: NodeId,
    },
    /// Takes over the content of a range from a node of another group.
    Adopt {
        /// Transactions with snapshots below this time conflict with something that the content does
        /// not show any more.
        floor: Timestamp,
        /// Cells and marks, as the group of the other node has encoded them.
        items: &'a [u8],
    },
    /// Gives the node another kind and fence, as splits do.
    Reshape(NewNode),
}

impl WriteOperation<'_> {
    /// The key that the operation is on, or the first of them.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            WriteOperation::Put { key, .. }
            | WriteOperation::Delete { key, .. }
            | WriteOperation::Link { key, .. }
            | WriteOperation::Unlink { key } => Some(key),
            WriteOperation::DeleteRange(range) | WriteOperation::Guard(range) => Some(&range.low),
            _ => None,
        }
    }
}

/// An operation and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOperation<'a> {
    /// The node.
    pub node: NodeId,
    /// The operation.
    pub write: WriteOperation<'a>,
}

/// Upper bound for the bytes of a put without key and value.
const PUT_BYTES: usize = 40;
const PUT: u8 = 0;
const DELETE: u8 = 3;
const DELETE_RANGE: u8 = 6;
const GUARD: u8 = 7;
const SET: u8 = 8;
const UNSET: u8 = 9;
const CREATE_LEAF: u8 = 10;
const CREATE_INNER: u8 = 11;
const DROP: u8 = 12;
const MOVE: u8 = 13;
const RESHAPE_LEAF: u8 = 14;
const RESHAPE_INNER: u8 = 15;
const LINK: u8 = 16;
const UNLINK: u8 = 17;
const DROP_TREE: u8 = 18;
const PUT_LARGE: u8 = 19;
const CREATE_VALUE: u8 = 22;
const ADOPT: u8 = 23;
/// Flag in the first byte of an operation on the same node as the one before.
const SAME_NODE: u8 = 0x80;

const EXPECT: [Expect; 3] = [Expect::Any, Expect::Absent, Expect::Present];

impl NewNode {
    fn read(kind: NodeKind, reader: &mut ByteReader<'_>) -> Result<NewNode, Malformed> {
        Ok(NewNode { kind, fence: reader.range()? })
    }
}

/// A sequence of operations; each sees the effects of the ones before it.
///
/// The bytes were checked once, so that iterating cannot fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Operations<'a> {
    /// Bytes of all operations.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Wraps `count` operations that were [pushed](Operations::push) in this process. Other bytes
    /// end before the first malformed operation.
    pub fn written(bytes: &'a [u8], count: usize) -> Operations<'a> {
        Operations { bytes, count }
    }

    /// No operations.
    pub const NONE: Operations<'static> = Operations { bytes: &[], count: 0 };

    /// Appends an operation. `last` is the node of the previous one, and is updated.
    pub fn push(bytes: &mut Vec<u8>, last: &mut Option<NodeId>, operation: &NodeOperation<'_>) {
        let start = bytes.len();
        if let WriteOperation::Put { key, value, .. } = &operation.write {
            bytes.reserve(PUT_BYTES + key.len() + value.len());
        }
        bytes.push(0);
        let mut writer = ByteWriter(bytes);
        if *last != Some(operation.node) {
            writer.node(operation.node);
        }
        let tag = match &operation.write {
            WriteOperation::Put { key, value, expect, is_large } => {
                writer.bytes(key).bytes(value);
                let put = if *is_large { PUT_LARGE } else { PUT };
                put + *expect as u8
            }
            WriteOperation::Delete { key, expect } => {
                writer.bytes(key);
                DELETE + *expect as u8
            }
            WriteOperation::DeleteRange(range) => {
                writer.range(range);
                DELETE_RANGE
            }
            WriteOperation::Guard(range) => {
                writer.range(range);
                GUARD
            }
            WriteOperation::Link { key, child } => {
                writer.bytes(key).node(*child);
                LINK
            }
            WriteOperation::Unlink { key } => {
                writer.bytes(key);
                UNLINK
            }
            WriteOperation::Set(Attribute { id, value: Some(value) }) => {
                writer.number(u64::from(*id)).bytes(value);
                SET
            }
            WriteOperation::Set(Attribute { id, value: None }) => {
                writer.number(u64::from(*id));
                UNSET
            }
            WriteOperation::Create(new) => {
                writer.range(&new.fence);
                match new.kind {
                    NodeKind::Leaf => CREATE_LEAF,
                    NodeKind::Inner => CREATE_INNER,
                    NodeKind::Value => CREATE_VALUE,
                }
            }
            WriteOperation::Drop => DROP,
            WriteOperation::DropTree => DROP_TREE,
            WriteOperation::Move { range, to } => {
                writer.range(range).node(*to);
                MOVE
            }
            WriteOperation::Adopt { floor, items } => {
                writer.timestamp(*floor).bytes(items);
                ADOPT
            }
            WriteOperation::Reshape(new) => {
                writer.range(&new.fence);
                // A node of pieces never changes its kind.
                if new.kind == NodeKind::Inner { RESHAPE_INNER } else { RESHAPE_LEAF }
            }
        };
        bytes[start] = if *last == Some(operation.node) { tag | SAME_NODE } else { tag };
        *last = Some(operation.node);
    }

    /// Encodes operations.
    pub fn encode<'b>(operations: impl IntoIterator<Item = &'b NodeOperation<'b>>) -> Vec<u8> {
        let (mut bytes, mut last) = (Vec::new(), None);
        for operation in operations {
            Self::push(&mut bytes, &mut last, operation);
        }
        bytes
    }

    /// Decodes and checks operations.
    pub fn decode(bytes: &'a [u8]) -> Result<Operations<'a>, Malformed> {
        let mut iter = Iter { reader: ByteReader::new(bytes), last: None };
        let mut count = 0;
        while !iter.reader.is_done() {
            iter.read()?;
            count += 1;
        }
        Ok(Operations { bytes, count })
    }

    /// The encoded operations.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the operations in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeOperation<'a>> + use<'a> {
        let mut iter = Iter { reader: ByteReader::new(self.bytes), last: None };
        // Decoding has checked them before.
        (0..self.count).map_while(move |_| iter.read().ok())
    }
}

struct Iter<'a> {
    reader: ByteReader<'a>,
    last: Option<NodeId>,
}

impl<'a> Iter<'a> {
    fn read(&mut self) -> Result<NodeOperation<'a>, Malformed> {
        let before = self.reader;
        let tag = self.reader.byte()?;
        let node = if tag & SAME_NODE == 0 {
            let node = self.reader.node()?;
            if self.last == Some(node) {
                return Err(before.malformed("a repeated node"));
            }
            node
        } else {
            self.last.ok_or(before.malformed("no previous node"))?
        };
        self.last = Some(node);
        let reader = &mut self.reader;
        let write = match tag & !SAME_NODE {
            tag @ PUT..DELETE => {
                let (key, value) = (reader.key()?, reader.bytes()?);
                if value.len() > limits::CELL_VALUE_BYTES_MAX {
                    return Err(before.malformed("a value over the limit"));
                }
                WriteOperation::Put { key, value, expect: EXPECT[usize::from(tag - PUT)], is_large: false }
            }
            tag @ PUT_LARGE..CREATE_VALUE => {
                let (key, value) = (reader.key()?, reader.bytes()?);
                LargeValue::decode(value)?;
                let expect = EXPECT[usize::from(tag - PUT_LARGE)];
                WriteOperation::Put { key, value, expect, is_large: true }
            }
            tag @ DELETE..DELETE_RANGE => {
                WriteOperation::Delete { key: reader.key()?, expect: EXPECT[usize::from(tag - DELETE)] }
            }
            DELETE_RANGE => WriteOperation::DeleteRange(reader.range()?),
            GUARD => WriteOperation::Guard(reader.range()?),
            tag @ (SET | UNSET) => {
                let id = reader.number()?;
                let id = u16::try_from(id).map_err(|_| before.malformed("an attribute beyond 16 bits"))?;
                let value = if tag == SET { Some(reader.bytes()?) } else { None };
                if value.is_some_and(|value| value.len() > limits::CELL_VALUE_BYTES_MAX) {
                    return Err(before.malformed("a value over the limit"));
                }
                WriteOperation::Set(Attribute { id, value })
            }
            LINK => WriteOperation::Link { key: reader.key()?, child: reader.node()? },
            UNLINK => WriteOperation::Unlink { key: reader.key()? },
            CREATE_LEAF => WriteOperation::Create(NewNode::read(NodeKind::Leaf, reader)?),
            CREATE_INNER => WriteOperation::Create(NewNode::read(NodeKind::Inner, reader)?),
            CREATE_VALUE => WriteOperation::Create(NewNode::read(NodeKind::Value, reader)?),
            DROP => WriteOperation::Drop,
            DROP_TREE => WriteOperation::DropTree,
            MOVE => WriteOperation::Move { range: reader.range()?, to: reader.node()? },
            ADOPT => WriteOperation::Adopt { floor: reader.timestamp()?, items: reader.bytes()? },
            RESHAPE_LEAF => WriteOperation::Reshape(NewNode::read(NodeKind::Leaf, reader)?),
            RESHAPE_INNER => WriteOperation::Reshape(NewNode::read(NodeKind::Inner, reader)?),
            _ => return Err(before.malformed("an unknown operation")),
        };
        Ok(NodeOperation { node, write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use yesquel_model::{ServerId, TreeId};

    fn node(local: u64) -> NodeId {
        NodeId { local: yesquel_model::LocalId(local), ..NodeId::root(TreeId::new(7).unwrap(), ServerId(1)) }
    }

    fn operation() -> impl Strategy<Value = NodeOperation<'static>> {
        let key = || prop::sample::select(vec![&b""[..], b"a", b"key", &[255; 300]]);
        let range = || {
            (key(), prop::option::of(key()))
                .prop_map(|(low, high)| KeyRange { low: low.into(), high: high.map(Into::into) })
        };
        let expect = || prop::sample::select(EXPECT.to_vec());
        let new = || {
            (prop::sample::select(vec![NodeKind::Leaf, NodeKind::Inner]), range())
                .prop_map(|(kind, fence)| NewNode { kind, fence })
        };
        let write = prop_oneof![
            (key(), key(), expect()).prop_map(|(key, value, expect)| WriteOperation::Put {
                key,
                value,
                expect,
                is_large: false
            }),
            (key(), expect()).prop_map(|(key, expect)| WriteOperation::Put {
                key,
                value: &[0x81, 0x80, 0x02, 0, 0, 0, 1, 0, 0, 0, 0, 0],
                expect,
                is_large: true
            }),
            (key(), expect()).prop_map(|(key, expect)| WriteOperation::Delete { key, expect }),
            (key(), 0..9u64).prop_map(|(key, child)| WriteOperation::Link { key, child: node(child) }),
            key().prop_map(|key| WriteOperation::Unlink { key }),
            range().prop_map(WriteOperation::DeleteRange),
            range().prop_map(WriteOperation::Guard),
            (any::<u16>(), prop::option::of(key()))
                .prop_map(|(id, value)| WriteOperation::Set(Attribute { id, value })),
            new().prop_map(WriteOperation::Create),
            Just(WriteOperation::Drop),
            Just(WriteOperation::DropTree),
            (range(), 0..9u64).prop_map(|(range, to)| WriteOperation::Move { range, to: node(to) }),
            (any::<u64>(), key())
                .prop_map(|(floor, items)| WriteOperation::Adopt { floor: Timestamp(floor), items }),
            new().prop_map(WriteOperation::Reshape),
        ];
        (0..3u64, write).prop_map(|(local, write)| NodeOperation { node: node(local), write })
    }

    proptest! {
        #[test]
        fn operations_round_trip(operations in prop::collection::vec(operation(), 0..20)) {
            let bytes = Operations::encode(&operations);
            let decoded = Operations::decode(&bytes).unwrap();
            prop_assert_eq!(decoded.len(), operations.len());
            prop_assert_eq!(decoded.iter().collect::<Vec<_>>(), operations);
        }

        /// Arbitrary bytes are refused, or are the encoding of what they decode to.
        #[test]
        fn operations_have_one_encoding(
            operations in prop::collection::vec(operation(), 1..4),
            at: prop::sample::Index,
            byte: u8,
        ) {
            let mut bytes = Operations::encode(&operations);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(decoded) = Operations::decode(&bytes) {
                let again: Vec<_> = decoded.iter().collect();
                prop_assert_eq!(Operations::encode(&again), bytes);
            }
        }
    }

    #[test]
    fn the_first_operation_must_name_its_node() {
        let error = Operations::decode(&[DROP | SAME_NODE]).unwrap_err();
        assert_eq!(error.what, "no previous node");
    }
}
