//! What is said to questions about nodes.

use crate::{Large, Malformed, NodeKind, Reader, Writer};
use yesquel_model::{KeyRange, NodeId};

/// The value of a cell in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellValue<'a> {
    /// It.
    Bytes(&'a [u8]),
    /// Only its length: it is longer than was asked for.
    Length(u64),
    /// Where a long one is.
    Large(Large),
}

/// A node's kind and fence, and some of its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cells<'a> {
    /// What it is.
    pub kind: NodeKind,
    /// The keys that it answers for.
    pub fence: KeyRange,
    /// Whether it has more cells of the range than were asked for.
    pub more: bool,
    bytes: &'a [u8],
}

impl<'a> Cells<'a> {
    /// An answer that is only this one.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        AnswerWriter(Writer(&mut bytes)).cells(self.kind, &self.fence, self.more, self.bytes);
        bytes
    }

    /// Bytes that they take in the answer: at least those of their keys and values.
    pub fn told_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn check(&self) -> Result<(), Malformed> {
        let mut reader = Reader::new(self.bytes);
        while !reader.is_done() {
            cell(&mut reader)?;
        }
        Ok(())
    }

    /// Them, in the order of the scan.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], CellValue<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // They were all read before.
        std::iter::from_fn(move || cell(&mut reader).ok())
    }
}

const LENGTH: u8 = 0;
const BYTES: u8 = 1;
const LARGE: u8 = 2;

fn cell<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], CellValue<'a>), Malformed> {
    let key = reader.key()?;
    let before = *reader;
    let value = match reader.byte()? {
        LENGTH => CellValue::Length(reader.number()?),
        BYTES => CellValue::Bytes(reader.bytes()?),
        LARGE => CellValue::Large(Large::decode(reader.bytes()?)?),
        _ => return Err(before.malformed("a value that is not known")),
    };
    Ok((key, value))
}

/// Where cells have gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedTo {
    /// Which keys.
    pub range: KeyRange,
    /// To this node; they may have gone on from there.
    pub to: NodeId,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'a> {
    /// There is no such cell or attribute.
    Absent,
    /// What it is.
    Value(&'a [u8]),
    /// Where a long one is.
    Large(Large),
    /// The key is beyond the node's fence, or the node was not there; and
    /// where it has gone, if the node remembers.
    Moved(Option<MovedTo>),
    /// What a scan found.
    Cells(Cells<'a>),
    /// The same, and what it refers to.
    Followed(Followed<'a>),
    /// The value is as it was said to be.
    Same,
    /// It is not: the value, or nothing, and the cells of the other node, if it
    /// is there.
    Differs(&'a [u8], Option<Cells<'a>>),
}

/// Cells, and what their values refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed<'a> {
    /// The cells.
    pub cells: Cells<'a>,
    bytes: &'a [u8],
}

impl<'a> Followed<'a> {
    /// What the first cells refer to, in their order: [`Answer::Absent`], a value,
    /// or [`Answer::Moved`] where it is not told.
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

/// Puts answers together.
#[derive(Debug)]
pub struct AnswerWriter<'a>(pub Writer<'a>);

impl AnswerWriter<'_> {
    /// There is nothing.
    pub fn absent(&mut self) {
        self.0.byte(ABSENT);
    }

    /// The value asked for.
    pub fn value(&mut self, value: &[u8]) {
        self.0.byte(VALUE).bytes(value);
    }

    /// Where the long value is that was asked for: bytes of a [`Large`].
    pub fn large(&mut self, large: &[u8]) {
        self.0.byte(LARGE_VALUE).bytes(large);
    }

    /// The key is not the node's.
    pub fn moved(&mut self, to: Option<(&KeyRange, NodeId)>) {
        self.0.byte(MOVED).flag(to.is_some());
        if let Some((range, to)) = to {
            self.0.range(range).node(to);
        }
    }

    /// What a scan found: `cells` is told of by [`cell`](Self::cell).
    pub fn cells(&mut self, kind: NodeKind, fence: &KeyRange, more: bool, cells: &[u8]) {
        self.0.byte(if kind == NodeKind::Inner { CELLS_OF_INNER } else { CELLS_OF_LEAF });
        self.0.range(fence).flag(more).bytes(cells);
    }

    /// What a scan found, and what that refers to: `rows` are answers of their
    /// own.
    pub fn followed(&mut self, fence: &KeyRange, more: bool, (cells, rows): (&[u8], &[u8])) {
        self.0.byte(FOLLOWED);
        self.cells(NodeKind::Leaf, fence, more, cells);
        self.0.bytes(rows);
    }

    /// It has the value still.
    pub fn same(&mut self) {
        self.0.byte(SAME);
    }

    /// It has this one, or none; the cells of the other node follow, or that it
    /// has moved.
    pub fn differs(&mut self, value: &[u8]) {
        self.0.byte(DIFFERS).bytes(value);
    }

    /// Appends a cell to a buffer of them.
    pub fn cell(cells: &mut Vec<u8>, key: &[u8], value: CellValue<'_>) {
        let mut writer = Writer(cells);
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
    /// Looks through bytes of answers.
    pub fn decode(bytes: &'a [u8]) -> Result<Answers<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        while !reader.is_done() {
            match answer(&mut reader)? {
                Answer::Cells(cells) | Answer::Differs(_, Some(cells)) => cells.check()?,
                Answer::Followed(Followed { cells, bytes }) => {
                    cells.check()?;
                    let mut reader = Reader::new(bytes);
                    while !reader.is_done() {
                        let before = reader;
                        match answer(&mut reader)? {
                            Answer::Absent | Answer::Value(_) | Answer::Large(_) | Answer::Moved(_) => {}
                            _ => return Err(before.malformed("an answer that tells of no value")),
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(Answers { bytes })
    }

    /// Bytes that were looked through before. Of others the answers end before
    /// the first that is none.
    pub fn again(bytes: &'a [u8]) -> Answers<'a> {
        Answers { bytes }
    }

    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Answer<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // They were all read before.
        std::iter::from_fn(move || answer(&mut reader).ok())
    }
}

pub(crate) fn answer<'a>(reader: &mut Reader<'a>) -> Result<Answer<'a>, Malformed> {
    let before = *reader;
    Ok(match reader.byte()? {
        ABSENT => Answer::Absent,
        VALUE => Answer::Value(reader.bytes()?),
        LARGE_VALUE => Answer::Large(Large::decode(reader.bytes()?)?),
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
                _ => return Err(before.malformed("cells of no leaf that lead on")),
            }
        }
        SAME => Answer::Same,
        DIFFERS => {
            let value = reader.bytes()?;
            let before = *reader;
            match reader.byte()? {
                tag @ (CELLS_OF_LEAF | CELLS_OF_INNER) => Answer::Differs(value, Some(cells(tag, reader)?)),
                MOVED if !reader.flag()? => Answer::Differs(value, None),
                _ => return Err(before.malformed("another node's answer that is none")),
            }
        }
        _ => return Err(before.malformed("an answer that is not known")),
    })
}

fn cells<'a>(tag: u8, reader: &mut Reader<'a>) -> Result<Cells<'a>, Malformed> {
    let kind = if tag == CELLS_OF_LEAF { NodeKind::Leaf } else { NodeKind::Inner };
    let (fence, more, bytes) = (reader.range()?, reader.flag()?, reader.bytes()?);
    Ok(Cells { kind, fence, more, bytes })
}
