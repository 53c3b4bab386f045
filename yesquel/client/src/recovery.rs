//! Questions and decisions about transactions of other clients. Only connections with the role of a
//! server may send them.

use crate::{Client, RequestError};
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_transport::Transport;
use yesquel_wire::{Decision, Participants, Reply, Request, TransactionOutcome, Vote};

/// What a participant knows of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownVote {
    /// It has voted yes, with this lower bound of the commit time.
    Yes(Timestamp),
    /// It has voted no, perhaps just now.
    No,
    /// It knows the end.
    Ended(Decision),
    /// The request for its vote is queued there.
    Queued,
    /// It has no vote and no end, and will have none.
    Forgotten,
}

impl<T: Transport> Client<T> {
    /// Asks a participant for its vote. One that has not voted votes no.
    pub async fn vote_of(
        &self,
        server: ServerId,
        (txn, birth): (TxnId, Timestamp),
        participants: &[ServerId],
    ) -> Result<KnownVote, RequestError> {
        let participants = Participants::encode(participants);
        let participants = Participants::decode(&participants)?;
        let request = Request::Resolve { txn, birth, participants, is_voter: false };
        let bytes = self.call_idempotent(server, &Client::<T>::bytes_of(&request)).await?;
        match Reply::decode(&bytes)? {
            Reply::Vote(Vote::Yes { at, .. }) => Ok(KnownVote::Yes(at)),
            Reply::Vote(Vote::No) => Ok(KnownVote::No),
            Reply::Vote(Vote::Decided(decision)) => Ok(KnownVote::Ended(decision)),
            Reply::Vote(Vote::Waiting) => Ok(KnownVote::Queued),
            Reply::Vote(Vote::Forgotten) => Ok(KnownVote::Forgotten),
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }

    /// Tells a participant the end of a transaction. Returns the end that is durable there, which is
    /// another one if the participant knew it before.
    pub async fn end_at(
        &self,
        server: ServerId,
        (txn, birth): (TxnId, Timestamp),
        participants: &[ServerId],
        decision: Decision,
    ) -> Result<Decision, RequestError> {
        let participants = Participants::encode(participants);
        let participants = Participants::decode(&participants)?;
        let request = Request::Decide { txn, birth, participants, decision };
        let bytes = self.call_idempotent(server, &Client::<T>::bytes_of(&request)).await?;
        match Reply::decode(&bytes)? {
            Reply::Done => Ok(decision),
            Reply::Outcome(TransactionOutcome::Decided(end)) => Ok(end),
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(RequestError::UnexpectedAnswer),
        }
    }
}
