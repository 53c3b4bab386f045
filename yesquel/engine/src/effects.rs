//! Input and output of a step: the time, the caller, replies, log records.

use crate::wanted_lease::WantedLease;
use std::sync::Arc;
use yesquel_model::{Conflict, NodeId, Refusal, ServerId, Timestamp, TxnId};
use yesquel_wire::{ByteWriter, Participants, Request, TransactionList, ValueOwner};

/// The time, as the engine's driver knows it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    /// Milliseconds since 1970, which may jump.
    pub wall_ms: u64,
    /// Milliseconds since some start, which never go back.
    pub uptime_ms: u64,
}

/// Connection number of calls from the server's own process.
pub const OWN_CONNECTION: u64 = 0;

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The connection.
    pub connection: u64,
    /// Number of the request on the connection.
    pub request: u64,
}

/// Whether a reply waits until the log record that it depends on is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyDurability {
    /// As the server's durability says.
    #[default]
    Configured,
    /// In any case. The sync may come up to a second later.
    Synced,
    /// In any case, and the log is synced now.
    SyncedNow,
}

/// A reply, whose bytes are in [`Effects::bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressedReply {
    /// The request that it answers.
    pub caller: Caller,
    /// Log record, counted from one, up to which the log must be durable before the reply may
    /// leave.
    pub needs_lsn: u64,
    /// Whether it waits under every durability.
    pub durability: ReplyDurability,
    /// Position in the bytes.
    pub bytes: std::ops::Range<usize>,
}

/// A question for another server's vote; the answer goes to
/// [`Engine::on_vote`](crate::Engine::on_vote).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoteQuery {
    /// The server to ask.
    pub server: ServerId,
    /// The transaction.
    pub txn: TxnId,
    /// Its birth.
    pub birth: Timestamp,
    /// All participants, in order.
    pub participants: Arc<[ServerId]>,
}

impl VoteQuery {
    /// Appends the request to send.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let participants = Participants::encode(&self.participants);
        // They are in order.
        let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
        let Self { txn, birth, .. } = *self;
        Request::Resolve { txn, birth, participants, is_voter: true }.write(&mut ByteWriter(bytes));
    }
}

/// A question whether transactions of a client that is gone have ended at another server; the flags
/// of the reply go to [`Engine::on_ended`](crate::Engine::on_ended).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndQuery {
    /// The server to ask.
    pub server: ServerId,
    /// The client.
    pub client: u64,
    /// Numbers, births and participants of the transactions, in order.
    pub transactions: Vec<(u64, Timestamp, Arc<[ServerId]>)>,
}

impl EndQuery {
    /// Appends the request to send.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut list = Vec::new();
        for (number, birth, participants) in &self.transactions {
            TransactionList::push(&mut list, *number, *birth, participants);
        }
        if let Ok(transactions) = TransactionList::decode(&list) {
            Request::Ended { client: self.client, transactions }.write(&mut ByteWriter(bytes));
        }
    }
}

/// A message about a long value to the group of its nodes, or to that of its cell; the answer goes to
/// [`Engine::on_value_reply`](crate::Engine::on_value_reply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueQuery {
    /// The receiver.
    pub server: ServerId,
    /// The value's first node.
    pub value: NodeId,
    /// Its content.
    pub message: ValueMessage,
    /// Log record that must be durable before it leaves, under every durability. If it is not, the
    /// engine repeats the message.
    pub needs_lsn: u64,
}

/// Content of a [`ValueQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMessage {
    /// No snapshot from a time on sees the value.
    Drop {
        /// Number of its nodes.
        nodes: u64,
        /// The time.
        since: Timestamp,
    },
    /// Asks whether the cell refers to the value.
    Use {
        /// The cell.
        owner: ValueOwner,
    },
}

impl ValueQuery {
    /// Appends the request to send.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let value = self.value;
        let request = match &self.message {
            ValueMessage::Drop { nodes, since } => Request::DropValue { value, nodes: *nodes, since: *since },
            ValueMessage::Use { owner: ValueOwner { server, key, .. } } => {
                Request::ValueUse { root: NodeId::root(value.tree, *server), key, value }
            }
        };
        request.write(&mut ByteWriter(bytes));
    }
}

/// What the driver must do after a step. The buffers are reused.
#[derive(Debug, Default)]
pub struct Effects {
    /// Bytes of all replies.
    pub bytes: Vec<u8>,
    /// The replies.
    pub replies: Vec<AddressedReply>,
    /// Bytes of all log records.
    pub log: Vec<u8>,
    /// End of each record in them. The first record has number n if
    /// [`Engine::lsn`](crate::Engine::lsn) was n - 1 before the step.
    pub record_ends: Vec<usize>,
    /// Votes to ask for.
    pub vote_queries: Vec<VoteQuery>,
    /// Ends to ask for.
    pub end_queries: Vec<EndQuery>,
    /// Messages about long values.
    pub value_queries: Vec<ValueQuery>,
}

impl Effects {
    /// Empties the buffers and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.replies.clear();
        self.log.clear();
        self.record_ends.clear();
        self.vote_queries.clear();
        self.end_queries.clear();
        self.value_queries.clear();
    }

    /// Appends a reply that depends on no record.
    pub fn push_reply(&mut self, caller: Caller, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.replies.push(AddressedReply {
            caller,
            needs_lsn: 0,
            durability: ReplyDurability::Configured,
            bytes: start..self.bytes.len(),
        });
    }

    /// Iterates over the records' bytes.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.record_ends.iter().copied());
        starts.zip(&self.record_ends).map(|(start, end)| &self.log[start..*end])
    }
}

/// Why a request has no answer yet, or is refused.
pub(crate) enum Stop {
    Wait(TxnId),
    /// A lease request waits for its turn.
    Queue(Box<WantedLease>),
    /// Its timestamp is too far ahead until physical time has reached this millisecond.
    Delay {
        fits_at_ms: u64,
    },
    Refuse(Option<u64>, Refusal),
    /// The group takes no vote for it any more, and does not know its end.
    Forgotten,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refuse(None, refusal)
    }
}

impl Stop {
    /// Turns a reason into that of one operation of a transaction.
    pub(crate) fn of_operation(self, number: u64) -> Stop {
        match self {
            Stop::Refuse(None, Refusal::Conflict(Conflict::Prepared { by, .. })) => Stop::Wait(by),
            Stop::Refuse(None, refusal) => Stop::Refuse(Some(number), refusal),
            other => other,
        }
    }
}
