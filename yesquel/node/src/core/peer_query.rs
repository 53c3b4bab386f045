//! Questions to other groups.

use yesquel_engine::{EndQuery, ValueQuery, VoteQuery};
use yesquel_model::ServerId;

/// A question to another group. The reply goes to
/// [`GroupCore::on_peer_reply`](super::GroupCore::on_peer_reply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerQuery {
    /// For its vote on a transaction in doubt.
    Vote(VoteQuery),
    /// For the ends of a client's transactions.
    Ended(EndQuery),
    /// For the use of a long value, or to drop one.
    Value(ValueQuery),
}

impl PeerQuery {
    /// The server to ask.
    pub fn server(&self) -> ServerId {
        match self {
            PeerQuery::Vote(query) => query.server,
            PeerQuery::Ended(query) => query.server,
            PeerQuery::Value(query) => query.server,
        }
    }

    /// Returns the bytes of the request.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            PeerQuery::Vote(query) => query.write(&mut bytes),
            PeerQuery::Ended(query) => query.write(&mut bytes),
            PeerQuery::Value(query) => query.write(&mut bytes),
        }
        bytes
    }
}
