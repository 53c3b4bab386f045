//! Input and output of a step: the time, the caller, replies, log records.

use yesquel_model::{Conflict, Refusal, ServerId, TxnId};

/// The time, as whoever runs the engine knows it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    /// Milliseconds since 1970, which may jump.
    pub wall_ms: u64,
    /// Milliseconds since some start, which never go back.
    pub uptime_ms: u64,
}

/// Who asks: a connection, and the number of the request on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Asker {
    /// The connection.
    pub connection: u64,
    /// The request.
    pub request: u64,
}

/// A reply, whose bytes stand in [`Effects::bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTo {
    /// Whose request it answers.
    pub asker: Asker,
    /// The log must be on disk up to this record, counted from one, before
    /// anybody may see it.
    pub needs_lsn: u64,
    /// Where in the bytes.
    pub bytes: std::ops::Range<usize>,
}

/// A server that is to be asked how it has voted; the answer goes to
/// [`Engine::learn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Whom.
    pub server: ServerId,
    /// About which transaction.
    pub txn: TxnId,
}

/// What is to be done after a step. The buffers are reused.
#[derive(Debug, Default)]
pub struct Effects {
    /// Bytes of all replies.
    pub bytes: Vec<u8>,
    /// The replies.
    pub replies: Vec<ReplyTo>,
    /// Bytes of all records.
    pub log: Vec<u8>,
    /// Where in them each record ends; record n of the log, counted from one,
    /// is the first here if [`Engine::lsn`] was n - 1 before.
    pub record_ends: Vec<usize>,
    /// Whom to ask for votes.
    pub asks: Vec<Ask>,
}

impl Effects {
    /// Empties the buffers and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.replies.clear();
        self.log.clear();
        self.record_ends.clear();
        self.asks.clear();
    }

    /// The bytes of each record.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.record_ends.iter().copied());
        starts.zip(&self.record_ends).map(|(start, end)| &self.log[start..*end])
    }
}

/// Why a request cannot be answered yet, or not at all.
pub(crate) enum Stop {
    Wait(TxnId),
    Refuse(Option<u64>, Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refuse(None, refusal)
    }
}

impl Stop {
    /// The same, as it is answered for an operation of a transaction.
    pub(crate) fn of_operation(self, number: u64) -> Stop {
        match self {
            Stop::Refuse(None, Refusal::Conflict(Conflict::Prepared { by, .. })) => Stop::Wait(by),
            Stop::Refuse(None, refusal) => Stop::Refuse(Some(number), refusal),
            other => other,
        }
    }
}
