//! Client-run commit: one round trip when one server takes part, two phases when several do.

use crate::{Client, CommitError, RequestError, StagedWrites, Writes};
use yesquel_model::{Refusal, ServerId, Timestamp, TxnId};
use yesquel_transport::{LossCause, Transport};
use yesquel_wire::{Decision, Operations, Participants, Reply, Request, Staged, TransactionOutcome, Vote};

/// A participant's reply to Prepare.
enum Ballot {
    Yes(Timestamp),
    Decided(Decision),
}

fn rolled_back(server: ServerId, txn: TxnId) -> CommitError {
    CommitError::Refused { server, operation: None, refusal: Refusal::GivenUp(txn) }
}

fn parse_ballot(server: ServerId, bytes: &[u8]) -> Result<Ballot, CommitError> {
    match Reply::decode(bytes).map_err(|malformed| CommitError::Unknown(malformed.into()))? {
        Reply::Voted(vote) => Ok(Ballot::Yes(vote)),
        // The vote may or may not be on disk.
        Reply::Refused { refusal: refusal @ Refusal::DiskLost, .. } => {
            Err(CommitError::Unknown(refusal.into()))
        }
        Reply::Refused { operation, refusal } => Err(CommitError::Refused { server, operation, refusal }),
        _ => Err(CommitError::Unknown(RequestError::UnexpectedAnswer)),
    }
}

/// Number of times the outcome is requested after a lost answer.
const OUTCOME_ATTEMPTS_MAX: usize = 3;

/// Number of attempts for the outcome: one if the caller has cancelled. A healthy server answers at
/// once.
fn outcome_attempts(error: &RequestError) -> usize {
    if matches!(error, RequestError::Lost(lost) if lost.cause == LossCause::Cancelled) {
        1
    } else {
        OUTCOME_ATTEMPTS_MAX
    }
}

impl<T: Transport> Client<T> {
    /// Commits the reads made at `snapshot` and the writes. Returns the commit timestamp, or the
    /// latest known timestamp if there are no writes.
    pub async fn commit(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
    ) -> Result<Timestamp, CommitError> {
        let mut staging = self.staging();
        self.commit_staged(snapshot, writes, &mut staging).await
    }

    /// Commits the reads made at `snapshot`, the staged parts and then the writes.
    ///
    /// After a refusal the staged parts are still on the servers, unless the staging is
    /// [spent](StagedWrites::is_spent): the writes did not fit into one message, or one server had voted
    /// before another refused.
    pub async fn commit_staged(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        staging: &mut StagedWrites,
    ) -> Result<Timestamp, CommitError> {
        for (server, parts) in writes.servers.iter() {
            for part in &parts.full {
                staging.is_spent = true;
                self.stage(staging, *server, part).await?;
            }
        }
        let mut servers = writes.servers.iter();
        let committed = match (servers.next(), servers.next()) {
            (None, _) => return Ok(snapshot.unwrap_or_else(|| self.seen())),
            (Some((server, parts)), None) => {
                let written = (writes.lease, staging.at(*server), parts.last());
                self.commit_at_one(*server, snapshot, written).await
            }
            _ => self.commit_at_several(snapshot, writes, staging).await,
        };
        match &committed {
            Ok(at) => self.note_seen(*at),
            Err(CommitError::Refused { refusal, .. }) => self.note_refusal(*refusal),
            Err(_) => {}
        }
        committed
    }

    async fn commit_at_one(
        &self,
        server: ServerId,
        snapshot: Option<Timestamp>,
        written: (u64, Option<Staged>, Operations<'_>),
    ) -> Result<Timestamp, CommitError> {
        let outcome = self.try_commit_at_one(server, snapshot, written, true).await;
        match &outcome {
            // Safe to repeat: the transaction has read nothing that the server could have lost, and
            // the server has answered that the first attempt did not and will not commit.
            Err(CommitError::Failed(RequestError::Lost(lost)))
                if lost.cause == LossCause::Disconnected && snapshot.is_none() && written.1.is_none() =>
            {
                // Uses the connection that the outcome request has opened.
                self.try_commit_at_one(server, snapshot, written, false).await
            }
            _ => outcome,
        }
    }

    async fn try_commit_at_one(
        &self,
        server: ServerId,
        snapshot: Option<Timestamp>,
        (lease, staged, operations): (u64, Option<Staged>, Operations<'_>),
        may_overtake: bool,
    ) -> Result<Timestamp, CommitError> {
        let attempt = self.in_flight.begin_commit();
        let txn = attempt.txn;
        let request = Request::Commit { txn, snapshot, seen: self.seen(), lease, staged, operations };
        // After a lost answer the client requests the outcome; the server then rejects this request
        // if it arrives later.
        let request = Client::<T>::bytes_of(&request);
        let sent = match may_overtake {
            true => self.send_unordered(server, &request).await,
            false => self.send(server, &request).await,
        };
        let bytes = match sent {
            Ok(bytes) => bytes,
            Err(lost) => return self.request_outcome(server, txn, lost.into()).await,
        };
        match Reply::decode(&bytes) {
            Ok(Reply::Committed(at)) => Ok(at),
            // The commit record may or may not be on disk.
            Ok(Reply::Refused { refusal: refusal @ Refusal::DiskLost, .. }) => {
                Err(CommitError::Unknown(refusal.into()))
            }
            Ok(Reply::Refused { operation, refusal }) => {
                Err(CommitError::Refused { server, operation, refusal })
            }
            Ok(_) => Err(CommitError::Unknown(RequestError::UnexpectedAnswer)),
            Err(malformed) => Err(CommitError::Unknown(malformed.into())),
        }
    }

    /// Requests the outcome of a transaction whose answer was lost. The server rolls the
    /// transaction back if it has not received it.
    async fn request_outcome(
        &self,
        server: ServerId,
        txn: TxnId,
        error: RequestError,
    ) -> Result<Timestamp, CommitError> {
        for _ in 0..outcome_attempts(&error) {
            let Ok(bytes) = self.call(server, &Request::Outcome { txn }).await else { continue };
            return match Reply::decode(&bytes) {
                Ok(Reply::Outcome(TransactionOutcome::Decided(Decision::Commit(at)))) => Ok(at),
                Ok(Reply::Outcome(TransactionOutcome::Decided(Decision::Abort))) => {
                    Err(CommitError::Failed(error))
                }
                _ => Err(CommitError::Unknown(error)),
            };
        }
        Err(CommitError::Unknown(error))
    }

    /// Requests a vote whose answer was lost. A server that has not voted yet votes no.
    async fn request_vote(
        &self,
        server: ServerId,
        txn: TxnId,
        error: RequestError,
    ) -> Result<Ballot, CommitError> {
        for _ in 0..outcome_attempts(&error) {
            let Ok(bytes) = self.call(server, &Request::Resolve { txn }).await else { continue };
            return match Reply::decode(&bytes) {
                Ok(Reply::Vote(Vote::Yes { at, .. })) => Ok(Ballot::Yes(at)),
                Ok(Reply::Vote(Vote::No)) => Err(rolled_back(server, txn)),
                Ok(Reply::Vote(Vote::Decided(decision))) => Ok(Ballot::Decided(decision)),
                _ => Err(CommitError::Unknown(error)),
            };
        }
        Err(CommitError::Unknown(error))
    }

    async fn commit_at_several(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        staging: &mut StagedWrites,
    ) -> Result<Timestamp, CommitError> {
        let attempt = self.in_flight.begin_commit();
        let txn = attempt.txn;
        let servers: Vec<ServerId> = writes.servers.keys().copied().collect();
        let participants = Participants::encode(&servers);
        let failed = |error: RequestError| CommitError::Failed(error);
        let participants =
            Participants::decode(&participants).map_err(|malformed| failed(malformed.into()))?;
        let (mut at, mut no, mut took_staged) = (Timestamp::ZERO, None, false);
        for (server, parts) in writes.servers.iter() {
            let (seen, staged, operations) = (self.seen(), staging.at(*server), parts.last());
            let lease = writes.lease;
            let request = Request::Prepare { txn, snapshot, seen, participants, lease, staged, operations };
            let vote = match self.call(*server, &request).await {
                Ok(bytes) => parse_ballot(*server, &bytes),
                // The vote may be yes, and a yes vote is binding.
                Err(lost) => self.request_vote(*server, txn, lost.into()).await,
            };
            match vote {
                Ok(Ballot::Yes(vote)) => {
                    self.note_seen(vote);
                    at = at.max(vote);
                    took_staged |= staged.is_some();
                }
                // Recovery has already decided.
                Ok(Ballot::Decided(Decision::Commit(at))) => return Ok(at),
                Ok(Ballot::Decided(Decision::Abort)) => {
                    no = Some(rolled_back(*server, txn));
                    break;
                }
                // Without all votes the outcome cannot be decided here.
                Err(error @ CommitError::Unknown(_)) => return Err(error),
                Err(error) => {
                    no = Some(error);
                    break;
                }
            }
        }
        // A server that has voted has consumed the staged parts.
        staging.is_spent |= took_staged;
        let decision = if no.is_none() { Decision::Commit(at) } else { Decision::Abort };
        // From here on the votes alone decide the outcome. A server that misses the decision
        // recovers it from the other servers' votes.
        let mut all_know = true;
        for server in &servers {
            let reply = self.call(*server, &Request::Decide { txn, decision }).await;
            // A server whose disk has failed cannot log the decision: it refuses, and asks the
            // other servers after its restart.
            all_know &= reply.is_ok_and(|bytes| Reply::decode(&bytes) == Ok(Reply::Done));
        }
        if all_know {
            for server in &servers {
                // A server that misses this keeps the outcome for longer.
                let _ = self.call(*server, &Request::Forget { txn }).await;
            }
        }
        no.map_or(Ok(at), Err)
    }
}
