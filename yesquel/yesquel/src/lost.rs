//! Transactions in doubt because of groups that are lost for good.
//! `docs/yesquel/cluster/commit.md` has the rule.

use crate::{Error, Store};
use yesquel_client::KnownVote;
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_transport::block_on;
use yesquel_wire::{Decision, status::UndecidedTransaction};

/// End of a transaction of which participants are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// A participant that is left had committed: so have all.
    Committed,
    /// No participant that is left had committed: all have aborted.
    Aborted,
    /// A client still waits for the vote of a participant that is left. It will end, or can be
    /// given up later.
    Queued,
    /// Its client has decided the opposite meanwhile: it is committed at some participants and
    /// aborted at others.
    Half,
}

impl Store {
    /// Ends a transaction at all participants but those that are lost. The store must be connected
    /// with the role of a server.
    ///
    /// Returns when the end is durable at all of them. An error leaves the transaction in doubt at
    /// some, and the call can be repeated.
    pub fn end_without(
        &self,
        transaction: &UndecidedTransaction,
        lost: &[ServerId],
    ) -> Result<GivenUp, Error> {
        let client = self.inner.trees.client();
        let txn = TxnId { client: transaction.client, number: transaction.number };
        let of = (txn, Timestamp(transaction.birth));
        let participants: Vec<ServerId> = transaction.participants.iter().copied().map(ServerId).collect();
        let left: Vec<ServerId> =
            participants.iter().copied().filter(|group| !lost.contains(group)).collect();
        let mut decision = Decision::Abort;
        for group in &left {
            match block_on(client.vote_of(*group, of, &participants))? {
                KnownVote::Ended(end @ Decision::Commit(_)) => decision = end,
                KnownVote::Queued => return Ok(GivenUp::Queued),
                KnownVote::Yes(_)
                | KnownVote::No
                | KnownVote::Forgotten
                | KnownVote::Ended(Decision::Abort) => {}
            }
        }
        let mut has_committed = Vec::with_capacity(left.len());
        for group in &left {
            // Its client may have decided meanwhile.
            let end = block_on(client.end_at(*group, of, &participants, decision))?;
            has_committed.push(matches!(end, Decision::Commit(_)));
        }
        Ok(match has_committed.as_slice() {
            ends if ends.iter().all(|has_committed| !has_committed) => GivenUp::Aborted,
            ends if ends.iter().all(|has_committed| *has_committed) => GivenUp::Committed,
            _ => GivenUp::Half,
        })
    }
}
