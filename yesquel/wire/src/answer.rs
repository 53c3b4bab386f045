//! Answers to questions about nodes.

use crate::{ByteReader, ByteWriter, LargeValue, Malformed, NodeKind};
use yesquel_model::{KeyRange, NodeId};

/// The value of a cell in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellValue<'a> {
    /// The whole value.
    Bytes(&'a [u8]),
    /// Only the length: the value is longer than the question allowed.
    Length(u64),
    /// The location of a long value.
    Large(LargeValue),
}

/// A node's kind and fence, and some of its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cells<'a> {
    /// The node's kind.
    pub kind: NodeKind,
    /// The keys that the node answers for.
    pub fence: KeyRange,
    /// Whether the range has more cells than the question allowed.
    pub more: bool,
    bytes: &'a [u8],
}

impl<'a> Cells<'a> {
    /// Encodes an answer that consists of these cells only.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        AnswerWriter(ByteWriter(&mut bytes)).cells(self.kind, &self.fence, self.more, self.bytes);
        bytes
    }

    /// Size in the answer: at least the bytes of the keys and values.
    pub fn told_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn check(&self) -> Result<(), Malformed> {
        let mut reader = ByteReader::new(self.bytes);
        while !reader.is_done() {
            cell(&mut reader)?;
        }
        Ok(())
    }

    /// Iterates over the cells in scan order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], CellValue<'a>)> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        // Decoding has checked them before.
        std::iter::from_fn(move || cell(&mut reader).ok())
    }
}

const LENGTH: u8 = 0;
const BYTES: u8 = 1;
const LARGE: u8 = 2;

fn cell<'a>(reader: &mut ByteReader<'a>) -> Result<(&'a [u8], CellValue<'a>), Malformed> {
    let key = reader.key()?;
    let before = *reader;
    let value = match reader.byte()? {
        LENGTH => CellValue::Length(reader.number()?),
        BYTES => CellValue::Bytes(reader.bytes()?),
        LARGE => CellValue::Large(LargeValue::decode(reader.bytes()?)?),
        _ => return Err(before.malformed("an unknown value type")),
    };
    Ok((key, value))
}

/// Where cells have moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedTo {
    /// The keys.
    pub range: KeyRange,
    /// The target; the cells may have moved on from there.
    pub to: NodeId,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'a> {
    /// No such cell or attribute.
    Absent,
    /// The value.
    Value(&'a [u8]),
    /// The location of a long value.
    Large(LargeValue),
    /// The key is outside the node's fence, or the node did not exist; and where the key went, if
    /// the node remembers.
    Moved(Option<MovedTo>),
    /// The result of a scan.
    Cells(Cells<'a>),
    /// The result of a scan, and the rows that its cells refer to.
    Followed(Followed<'a>),
    /// The value is still the expected one.
    Same,
    /// The value differs: the current value (empty: none), and the cells of the other node if it
    /// exists.
    Differs(&'a [u8], Option<Cells<'a>>),
}

/// Cells, and the rows that their values refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed<'a> {
    /// The cells.
    pub cells: Cells<'a>,
    bytes: &'a [u8],
}

impl<'a> Followed<'a> {
    /// Rows of the first cells, in order: [`Answer::Absent`], a value, or [`Answer::Moved`] where
    /// the server does not tell.
    pub fn iter(&self) -> impl Iterator<Item = Answer<'a>> + use<'a> {
        Answers { bytes: self.bytes }.iter()
    }
}

const ABSENT: u8 = 0;
const VALUE: u8 = 1;
const MOVED: u8 = 2;
const CELLS_OF_LEAF: u8 = 3;
const CELLS_OF_INNER: u8 = 4;
const LARGE_VALUE: u8 = 5;
const FOLLOWED: u8 = 6;
const SAME: u8 = 7;
const DIFFERS: u8 = 8;

/// Typical bytes of a followed answer beside its cells and rows.
const FOLLOWED_BYTES: usize = 64;

/// Writes answers.
#[derive(Debug)]
pub struct AnswerWriter<'a>(pub ByteWriter<'a>);

impl AnswerWriter<'_> {
    /// Writes that there is no such cell or attribute.
    pub fn absent(&mut self) {
        self.0.byte(ABSENT);
    }

    /// Writes a value.
    pub fn value(&mut self, value: &[u8]) {
        self.0.byte(VALUE).bytes(value);
    }

    /// Writes the location of a long value, as bytes of a [`LargeValue`].
    pub fn large(&mut self, large: &[u8]) {
        self.0.byte(LARGE_VALUE).bytes(large);
    }

    /// Writes that the key is not in the node.
    pub fn moved(&mut self, to: Option<(&KeyRange, NodeId)>) {
        self.0.byte(MOVED).flag(to.is_some());
        if let Some((range, to)) = to {
            self.0.range(range).node(to);
        }
    }

    /// Writes the result of a scan; [`cell`](Self::cell) builds `cells`.
    pub fn cells(&mut self, kind: NodeKind, fence: &KeyRange, more: bool, cells: &[u8]) {
        self.0.byte(if kind == NodeKind::Inner { CELLS_OF_INNER } else { CELLS_OF_LEAF });
        self.0.range(fence).flag(more).bytes(cells);
    }

    /// Writes the result of a scan and the rows it refers to; `rows` are encoded answers.
    pub fn followed(&mut self, fence: &KeyRange, more: bool, (cells, rows): (&[u8], &[u8])) {
        self.0.0.reserve(FOLLOWED_BYTES + cells.len() + rows.len());
        self.0.byte(FOLLOWED);
        self.cells(NodeKind::Leaf, fence, more, cells);
        self.0.bytes(rows);
    }

    /// Writes that the value is the expected one.
    pub fn same(&mut self) {
        self.0.byte(SAME);
    }

    /// Writes the current value where it differs; the other node's cells, or that it moved, must
    /// follow.
    pub fn differs(&mut self, value: &[u8]) {
        self.0.byte(DIFFERS).bytes(value);
    }

    /// Appends a cell to a buffer of cells.
    pub fn cell(cells: &mut Vec<u8>, key: &[u8], value: CellValue<'_>) {
        let mut writer = ByteWriter(cells);
        match value {
            CellValue::Bytes(bytes) => writer.bytes(key).byte(BYTES).bytes(bytes),
            CellValue::Length(length) => writer.bytes(key).byte(LENGTH).number(length),
            CellValue::Large(large) => writer.bytes(key).byte(LARGE).bytes(&large.encode()),
        };
    }
}

/// Answers in the order of the questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers<'a> {
    bytes: &'a [u8],
}

impl<'a> Answers<'a> {
    /// Decodes and checks answers.
    pub fn decode(bytes: &'a [u8]) -> Result<Answers<'a>, Malformed> {
        let mut reader = ByteReader::new(bytes);
        while !reader.is_done() {
            match answer(&mut reader)? {
                Answer::Cells(cells) | Answer::Differs(_, Some(cells)) => cells.check()?,
                Answer::Followed(Followed { cells, bytes }) => {
                    cells.check()?;
                    let mut reader = ByteReader::new(bytes);
                    while !reader.is_done() {
                        let before = reader;
                        match answer(&mut reader)? {
                            Answer::Absent | Answer::Value(_) | Answer::Large(_) | Answer::Moved(_) => {}
                            _ => return Err(before.malformed("an answer that is no row")),
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(Answers { bytes })
    }

    /// Wraps bytes that were checked before. Other bytes end before the first malformed answer.
    pub fn again(bytes: &'a [u8]) -> Answers<'a> {
        Answers { bytes }
    }

    /// The encoded answers.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Iterates over the answers in order.
    pub fn iter(&self) -> impl Iterator<Item = Answer<'a>> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        // Decoding has checked them before.
        std::iter::from_fn(move || answer(&mut reader).ok())
    }
}

pub(crate) fn answer<'a>(reader: &mut ByteReader<'a>) -> Result<Answer<'a>, Malformed> {
    let before = *reader;
    Ok(match reader.byte()? {
        ABSENT => Answer::Absent,
        VALUE => Answer::Value(reader.bytes()?),
        LARGE_VALUE => Answer::Large(LargeValue::decode(reader.bytes()?)?),
        MOVED if reader.flag()? => {
            Answer::Moved(Some(MovedTo { range: reader.range()?, to: reader.node()? }))
        }
        MOVED => Answer::Moved(None),
        tag @ (CELLS_OF_LEAF | CELLS_OF_INNER) => Answer::Cells(cells(tag, reader)?),
        FOLLOWED => {
            let before = *reader;
            match reader.byte()? {
                tag @ CELLS_OF_LEAF => {
                    Answer::Followed(Followed { cells: cells(tag, reader)?, bytes: reader.bytes()? })
                }
                _ => return Err(before.malformed("rows of an inner node")),
            }
        }
        SAME => Answer::Same,
        DIFFERS => {
            let value = reader.bytes()?;
            let before = *reader;
            match reader.byte()? {
                tag @ (CELLS_OF_LEAF | CELLS_OF_INNER) => Answer::Differs(value, Some(cells(tag, reader)?)),
                MOVED if !reader.flag()? => Answer::Differs(value, None),
                _ => return Err(before.malformed("an answer that is not about a node")),
            }
        }
        _ => return Err(before.malformed("an unknown answer")),
    })
}

fn cells<'a>(tag: u8, reader: &mut ByteReader<'a>) -> Result<Cells<'a>, Malformed> {
    let kind = if tag == CELLS_OF_LEAF { NodeKind::Leaf } else { NodeKind::Inner };
    let (fence, more, bytes) = (reader.range()?, reader.flag()?, reader.bytes()?);
    Ok(Cells { kind, fence, more, bytes })
}
