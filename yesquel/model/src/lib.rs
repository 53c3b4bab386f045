//! The ground floor of Yesquel: ids of nodes, timestamps and the clock that
//! makes them, ranges of keys, limits, counts, and what can go wrong.
//!
//! `docs/yesquel/nodes.md` says how they belong together.

mod clock;
mod error;
mod few;
mod id;
mod key;
pub mod limits;
mod tally;

pub use clock::{Clock, Timestamp, TooFarAhead};
pub use error::{Conflict, Refusal};
pub use few::Few;
pub use id::{Issuer, LocalId, NodeId, ServerId, TreeId, TxnId};
pub use key::{Bounds, Key, KeyRange, Prefix, bound_of, prefix_of, separator};
pub use tally::Tally;
