//! The commit, run by the client: one round trip where one server takes part,
//! two phases where several do.

use crate::{Client, CommitError, Error, Staging, Writes};
use yesquel_model::{Refusal, ServerId, Timestamp, TxnId};
use yesquel_transport::{Cause, Transport};
use yesquel_wire::{Decision, Operations, Outcome, Participants, Reply, Request, Staged, Vote};

/// What a server says of its vote.
enum Ballot {
    Yes(Timestamp),
    Decided(Decision),
}

fn given_up(server: ServerId, txn: TxnId) -> CommitError {
    CommitError::Refused { server, operation: None, refusal: Refusal::GivenUp(txn) }
}

fn voted(server: ServerId, bytes: &[u8]) -> Result<Ballot, CommitError> {
    match Reply::decode(bytes).map_err(|malformed| CommitError::Unknown(malformed.into()))? {
        Reply::Voted(vote) => Ok(Ballot::Yes(vote)),
        // Its vote may be on disk, or not.
        Reply::Refused { refusal: refusal @ Refusal::DiskLost, .. } => {
            Err(CommitError::Unknown(refusal.into()))
        }
        Reply::Refused { operation, refusal } => Err(CommitError::Refused { server, operation, refusal }),
        _ => Err(CommitError::Unknown(Error::Unfit)),
    }
}

/// Times that the end of a transaction is asked for after a lost answer.
const OUTCOME_ATTEMPTS_MAX: usize = 3;

/// How often it is asked for: once, by one who wants to wait no longer. A server
/// that is well answers at once.
fn attempts(error: &Error) -> usize {
    if matches!(error, Error::Lost(lost) if lost.cause == Cause::GivenUp) { 1 } else { OUTCOME_ATTEMPTS_MAX }
}

impl<T: Transport> Client<T> {
    /// Commits what was read at a snapshot and is written now. Returns when it
    /// happened; the latest time known if nothing is written.
    pub async fn commit(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
    ) -> Result<Timestamp, CommitError> {
        let mut staging = self.staging();
        self.commit_staged(snapshot, writes, &mut staging).await
    }

    /// Commits what was read at a snapshot, was staged, and is written after
    /// that. After a refusal what was staged is still there, unless it is
    /// [spent](Staging::is_spent): what is written was too long for a message,
    /// or a server had voted for it before another one refused.
    pub async fn commit_staged(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        staging: &mut Staging,
    ) -> Result<Timestamp, CommitError> {
        for (server, parts) in writes.servers.iter() {
            for part in &parts.full {
                staging.is_spent = true;
                self.stage(staging, *server, part).await?;
            }
        }
        let mut servers = writes.servers.iter();
        let at = match (servers.next(), servers.next()) {
            (None, _) => return Ok(snapshot.unwrap_or_else(|| self.seen())),
            (Some((server, parts)), None) => {
                let written = (writes.lease, staging.at(*server), parts.last());
                self.commit_at_one(*server, snapshot, written).await?
            }
            _ => self.commit_at_several(snapshot, writes, staging).await?,
        };
        self.saw(at);
        Ok(at)
    }

    async fn commit_at_one(
        &self,
        server: ServerId,
        snapshot: Option<Timestamp>,
        written: (u64, Option<Staged>, Operations<'_>),
    ) -> Result<Timestamp, CommitError> {
        let outcome = self.try_commit_at_one(server, snapshot, written, true).await;
        match &outcome {
            // It had read nothing that a server might have lost since, and the server
            // has said that it is not done and will not be: it is another one now.
            Err(CommitError::Failed(Error::Lost(lost)))
                if lost.cause == Cause::Ended && snapshot.is_none() && written.1.is_none() =>
            {
                // By the connection that was made anew for the question of its end.
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
        let attempt = self.ledger.attempt();
        let txn = attempt.txn;
        let request = Request::Commit { txn, snapshot, seen: self.seen(), lease, staged, operations };
        // If its answer is lost the server is asked for its end, which it then gives up
        // if it comes later.
        let request = Client::<T>::bytes_of(&request);
        let sent = match may_overtake {
            true => self.send_beside(server, &request).await,
            false => self.send(server, &request).await,
        };
        let bytes = match sent {
            Ok(bytes) => bytes,
            Err(lost) => return self.find_out(server, txn, lost.into()).await,
        };
        match Reply::decode(&bytes) {
            Ok(Reply::Committed(at)) => Ok(at),
            // It may be on disk, or not.
            Ok(Reply::Refused { refusal: refusal @ Refusal::DiskLost, .. }) => {
                Err(CommitError::Unknown(refusal.into()))
            }
            Ok(Reply::Refused { operation, refusal }) => {
                Err(CommitError::Refused { server, operation, refusal })
            }
            Ok(_) => Err(CommitError::Unknown(Error::Unfit)),
            Err(malformed) => Err(CommitError::Unknown(malformed.into())),
        }
    }

    /// Asks how a transaction ended whose answer was lost. The server gives it
    /// up if it has not seen it.
    async fn find_out(&self, server: ServerId, txn: TxnId, error: Error) -> Result<Timestamp, CommitError> {
        for _ in 0..attempts(&error) {
            let Ok(bytes) = self.call(server, &Request::Outcome { txn }).await else { continue };
            return match Reply::decode(&bytes) {
                Ok(Reply::Outcome(Outcome::Decided(Decision::Commit(at)))) => Ok(at),
                Ok(Reply::Outcome(Outcome::Decided(Decision::Abort))) => Err(CommitError::Failed(error)),
                _ => Err(CommitError::Unknown(error)),
            };
        }
        Err(CommitError::Unknown(error))
    }

    /// Asks for a vote whose answer was lost. A server that has not voted now
    /// votes no.
    async fn ask_for_vote(&self, server: ServerId, txn: TxnId, error: Error) -> Result<Ballot, CommitError> {
        for _ in 0..attempts(&error) {
            let Ok(bytes) = self.call(server, &Request::Resolve { txn }).await else { continue };
            return match Reply::decode(&bytes) {
                Ok(Reply::Vote(Vote::Yes { at, .. })) => Ok(Ballot::Yes(at)),
                Ok(Reply::Vote(Vote::No)) => Err(given_up(server, txn)),
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
        staging: &mut Staging,
    ) -> Result<Timestamp, CommitError> {
        let attempt = self.ledger.attempt();
        let txn = attempt.txn;
        let servers: Vec<ServerId> = writes.servers.keys().copied().collect();
        let participants = Participants::encode(&servers);
        let failed = |error: Error| CommitError::Failed(error);
        let participants =
            Participants::decode(&participants).map_err(|malformed| failed(malformed.into()))?;
        let (mut at, mut no, mut took_staged) = (Timestamp::ZERO, None, false);
        for (server, parts) in writes.servers.iter() {
            let (seen, staged, operations) = (self.seen(), staging.at(*server), parts.last());
            let lease = writes.lease;
            let request = Request::Prepare { txn, snapshot, seen, participants, lease, staged, operations };
            let vote = match self.call(*server, &request).await {
                Ok(bytes) => voted(*server, &bytes),
                // It may have voted yes, and then that counts.
                Err(lost) => self.ask_for_vote(*server, txn, lost.into()).await,
            };
            match vote {
                Ok(Ballot::Yes(vote)) => {
                    self.saw(vote);
                    at = at.max(vote);
                    took_staged |= staged.is_some();
                }
                // Recovery was faster.
                Ok(Ballot::Decided(Decision::Commit(at))) => return Ok(at),
                Ok(Ballot::Decided(Decision::Abort)) => {
                    no = Some(given_up(*server, txn));
                    break;
                }
                // Nobody may say how it ends who does not know all votes.
                Err(error @ CommitError::Unknown(_)) => return Err(error),
                Err(error) => {
                    no = Some(error);
                    break;
                }
            }
        }
        // Whoever voted has taken what was staged there, and lets go of it.
        staging.is_spent |= took_staged;
        let decision = if no.is_none() { Decision::Commit(at) } else { Decision::Abort };
        // From here on the votes alone say how it ended; whoever does not hear
        // it now finds it out by them.
        let mut all_know = true;
        for server in &servers {
            let told = self.call(*server, &Request::Decide { txn, decision }).await;
            // One that cannot write it down, as its disk has failed, says so, and
            // will ask the others when it is back.
            all_know &= told.is_ok_and(|bytes| Reply::decode(&bytes) == Ok(Reply::Done));
        }
        if all_know {
            for server in &servers {
                // Whoever does not hear it remembers for longer.
                let _ = self.call(*server, &Request::Forget { txn }).await;
            }
        }
        no.map_or(Ok(at), Err)
    }
}
