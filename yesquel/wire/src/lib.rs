//! Messages between clients and servers, operations in the log, and their encoding.
//!
//! Numbers are little-endian base-128 varints unless a width is stated; byte strings follow their
//! length. Decoding borrows from the message and allocates nothing. It trusts nothing: bytes that
//! differ from what encoding produces are [`Malformed`], and no length is used before the bytes are
//! there.

mod answer;
mod attributes;
mod bytes;
mod destination;
pub mod frame;
pub mod greeting;
mod heartbeat;
mod join_token;
mod large_value;
pub mod machines;
mod notice;
mod operation;
mod participants;
mod peer_report;
mod read;
mod reply;
mod request;
mod settled;
pub mod status;

pub use answer::{Answer, AnswerWriter, Answers, CellValue, Cells, Followed, MovedTo};
pub use attributes::{GROUPS_ATTRIBUTE, HOME_ATTRIBUTE};
pub use bytes::{ByteReader, ByteWriter, Malformed};
pub use destination::{Correction, Destination, EncodedDestination, GroupLocation};
pub use heartbeat::ClientHeartbeat;
pub use join_token::{JoinToken, JoinTokenError};
pub use large_value::{LargeValue, NODE_PIECES, OWNER_ATTRIBUTE, PIECE_BYTES, ValueOwner};
pub use notice::Notice;
pub use operation::{Attribute, Expect, NewNode, NodeKind, NodeOperation, Operations, WriteOperation};
pub use participants::Participants;
pub use peer_report::PeerReport;
pub use read::{Direction, Question, Questions, Scan};
pub use reply::{Reply, TransactionOutcome, ValueUse, Vote};
pub use request::{Decision, ENDS_LEASE, Lookup, MANAGEMENT_BYTES_MAX, Request, Staged};
pub use settled::{HorizonReport, SETTLED_EXCEPTIONS_MAX, SettledReport, TransactionList};
