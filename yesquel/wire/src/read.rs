//! Questions about nodes, which change nothing.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::{Key, KeyRange, NodeId};

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending, from the lower bound.
    Up,
    /// Descending, from the upper bound.
    Down,
}

/// A scan of the cells of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The keys.
    pub range: KeyRange,
    /// The direction.
    pub direction: Direction,
    /// Maximum number of cells.
    pub cells_max: u64,
    /// No cell is added once the answer has so many bytes of keys and values.
    pub bytes_max: u64,
    /// Longer values are answered by their length only.
    pub value_bytes_max: u64,
    /// A key that the node must hold; otherwise the answer is that the key has moved.
    pub near: Option<Key>,
}

impl Scan {
    /// All cells of a node with their whole values.
    pub fn all() -> Scan {
        Scan {
            range: KeyRange::all(),
            direction: Direction::Up,
            cells_max: u64::MAX,
            bytes_max: u64::MAX,
            value_bytes_max: u64::MAX,
            near: None,
        }
    }

    /// Appends the scan without its direction.
    fn write(&self, writer: &mut ByteWriter<'_>) {
        writer.range(&self.range);
        writer.number(self.cells_max).number(self.bytes_max).number(self.value_bytes_max);
        writer.flag(self.near.is_some());
        if let Some(key) = &self.near {
            writer.bytes(key);
        }
    }

    fn read(direction: Direction, reader: &mut ByteReader<'_>) -> Result<Scan, Malformed> {
        Ok(Scan {
            range: reader.range()?,
            direction,
            cells_max: reader.number()?,
            bytes_max: reader.number()?,
            value_bytes_max: reader.number()?,
            near: if reader.flag()? { Some(reader.bound()?.into()) } else { None },
        })
    }
}

/// A question about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question<'a> {
    /// Asks for the value of a key.
    Lookup {
        /// The node.
        node: NodeId,
        /// The key.
        key: &'a [u8],
    },
    /// Asks for the node's kind and fence, and cells.
    Scan {
        /// The node.
        node: NodeId,
        /// The cells. Boxed, since most questions are lookups.
        scan: Box<Scan>,
    },
    /// Asks for an attribute.
    Attribute {
        /// The node.
        node: NodeId,
        /// The attribute's number.
        id: u16,
    },
    /// Asks for cells of a leaf, and for the rows of another tree that their values refer to. Such
    /// a value begins with a key length in one byte and the key.
    Follow {
        /// The leaf.
        node: NodeId,
        /// The cells.
        scan: Box<Scan>,
        /// Root of the other tree. Rows at other servers are not answered.
        root: NodeId,
    },
    /// Asks whether a key still has a value. If not, the answer has the current value and all cells
    /// of another node.
    Proof {
        /// The node.
        node: NodeId,
        /// The key.
        key: &'a [u8],
        /// The expected value; empty also means absent.
        value: &'a [u8],
        /// The other node.
        other: NodeId,
    },
    /// Asks for a [`Notice`](crate::Notice) when the node changes. The answer is
    /// [`Answer::Same`](crate::Answer::Same) if one will come and nothing has changed since the
    /// snapshot, and otherwise [`Answer::Absent`](crate::Answer::Absent).
    Watch {
        /// The node.
        node: NodeId,
    },
}

const LOOKUP: u8 = 0;
const SCAN_UP: u8 = 1;
const SCAN_DOWN: u8 = 2;
const ATTRIBUTE: u8 = 3;
const FOLLOW_UP: u8 = 4;
const FOLLOW_DOWN: u8 = 5;
const PROOF: u8 = 6;
const WATCH: u8 = 7;

impl<'a> Question<'a> {
    /// The node that is asked.
    pub fn node(&self) -> NodeId {
        let (Question::Lookup { node, .. }
        | Question::Scan { node, .. }
        | Question::Attribute { node, .. }
        | Question::Follow { node, .. }
        | Question::Proof { node, .. }
        | Question::Watch { node }) = self;
        *node
    }

    /// The key of the question, or the first one.
    pub fn key(&self) -> &[u8] {
        match self {
            Question::Lookup { key, .. } | Question::Proof { key, .. } => key,
            Question::Scan { scan, .. } | Question::Follow { scan, .. } => {
                scan.near.as_ref().unwrap_or(&scan.range.low)
            }
            Question::Attribute { .. } | Question::Watch { .. } => &[],
        }
    }

    /// Appends the question to a message.
    pub fn write(&self, writer: &mut ByteWriter<'_>) {
        match self {
            Question::Lookup { node, key } => {
                writer.byte(LOOKUP).node(*node).bytes(key);
            }
            Question::Scan { node, scan } => {
                let up = scan.direction == Direction::Up;
                writer.byte(if up { SCAN_UP } else { SCAN_DOWN }).node(*node);
                scan.write(writer);
            }
            Question::Follow { node, scan, root } => {
                let up = scan.direction == Direction::Up;
                writer.byte(if up { FOLLOW_UP } else { FOLLOW_DOWN }).node(*node);
                scan.write(writer);
                writer.node(*root);
            }
            Question::Proof { node, key, value, other } => {
                writer.byte(PROOF).node(*node).bytes(key).bytes(value).node(*other);
            }
            Question::Attribute { node, id } => {
                writer.byte(ATTRIBUTE).node(*node).number(u64::from(*id));
            }
            Question::Watch { node } => {
                writer.byte(WATCH).node(*node);
            }
        }
    }

    /// Bytes of a lookup before its key, if the key is short.
    pub(crate) const LOOKUP_HEAD: usize = 1 + 16 + 1;

    /// Writes those bytes in place.
    #[inline]
    pub(crate) fn put_lookup(head: &mut [u8], node: NodeId, key_bytes: u8) {
        head[0] = LOOKUP;
        head[1..17].copy_from_slice(&node.to_bits().to_le_bytes());
        head[17] = key_bytes;
    }

    /// Decodes the node and key, if the bytes are one lookup.
    pub(crate) fn lookup(bytes: &'a [u8]) -> Option<(NodeId, &'a [u8])> {
        let mut reader = ByteReader::new(bytes);
        if reader.byte() != Ok(LOOKUP) {
            return None;
        }
        let lookup = (reader.node().ok()?, reader.key().ok()?);
        reader.is_done().then_some(lookup)
    }

    fn read(reader: &mut ByteReader<'a>) -> Result<Question<'a>, Malformed> {
        let before = *reader;
        let (tag, node) = (reader.byte()?, reader.node()?);
        Ok(match tag {
            LOOKUP => Question::Lookup { node, key: reader.key()? },
            SCAN_UP | SCAN_DOWN => {
                let direction = if tag == SCAN_UP { Direction::Up } else { Direction::Down };
                Question::Scan { node, scan: Box::new(Scan::read(direction, reader)?) }
            }
            FOLLOW_UP | FOLLOW_DOWN => {
                let direction = if tag == FOLLOW_UP { Direction::Up } else { Direction::Down };
                let scan = Box::new(Scan::read(direction, reader)?);
                Question::Follow { node, scan, root: reader.node()? }
            }
            PROOF => {
                Question::Proof { node, key: reader.key()?, value: reader.bytes()?, other: reader.node()? }
            }
            ATTRIBUTE => {
                let id = u16::try_from(reader.number()?);
                Question::Attribute {
                    node,
                    id: id.map_err(|_| before.malformed("an attribute beyond 16 bits"))?,
                }
            }
            WATCH => Question::Watch { node },
            _ => return Err(before.malformed("an unknown question")),
        })
    }
}

/// Questions whose bytes were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Questions<'a> {
    /// Decodes and checks questions.
    pub fn decode(bytes: &'a [u8]) -> Result<Questions<'a>, Malformed> {
        let (mut reader, mut count) = (ByteReader::new(bytes), 0);
        while !reader.is_done() {
            Question::read(&mut reader)?;
            count += 1;
        }
        Ok(Questions { bytes, count })
    }

    /// The encoded questions.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of questions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the questions in order.
    pub fn iter(&self) -> impl Iterator<Item = Question<'a>> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        // Decoding has checked them before.
        (0..self.count).map_while(move |_| Question::read(&mut reader).ok())
    }
}
