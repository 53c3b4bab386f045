//! What clients, servers and the log say to each other, and its bytes.
//!
//! Numbers are little-endian base-128 varints unless their width is said;
//! bytes stand behind their length. Decoding borrows from what it reads and
//! allocates nothing; it trusts nothing either: whatever is not exactly what
//! encoding makes is [`Malformed`], and no length is believed before the bytes
//! are there.

mod answer;
mod bytes;
pub mod frame;
pub mod greeting;
mod large;
mod news;
mod operation;
mod read;
mod reply;
mod request;
pub mod status;

pub use answer::{Answer, AnswerWriter, Answers, CellValue, Cells, Followed, MovedTo};
pub use bytes::{Malformed, Reader, Writer};
pub use large::{Large, NODE_PIECES, PIECE_BYTES};
pub use news::News;
pub use operation::{Attribute, Expect, NewNode, NodeKind, Operation, Operations, WriteOperation};
pub use read::{Direction, Question, Questions, Scan};
pub use reply::{Ended, Reply, Vote};
pub use request::{Decision, Lookup, Participants, Request, Staged};
