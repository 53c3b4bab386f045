//! Client-run commit: one round trip, when one server takes part as when several do.

use crate::{Client, CommitError, RequestError, StagedWrites, Writes, unsettled::UnsettledCommit};
use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};
use yesquel_model::{Conflict, Refusal, ServerId, Timestamp, TxnId};
use yesquel_transport::{Attempt, LossCause, LostCall, Transport};
use yesquel_wire::{
    Correction, Decision, Operations, Participants, Reply, Request, Staged, TransactionOutcome, Vote,
};

/// A participant's reply to Prepare.
enum Ballot {
    Yes(Timestamp),
    Decided(Decision),
    /// It takes no vote for the transaction any more.
    Forgotten(Timestamp),
}

/// How a round of votes ended.
enum Round {
    Committed(Timestamp),
    Refused(CommitError),
    /// Nothing happened: the transaction may be sent again under a new number. Otherwise this is
    /// its error.
    Again(CommitError),
}

/// How the servers are asked for their votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VoteOrder {
    /// All at once. A server that has prepared a conflicting transaction refuses.
    Parallel,
    /// One after the other, in the order of their numbers. A server that has prepared a conflicting
    /// transaction answers after that one has ended.
    ByServer,
    /// All but this one at once, and then this one. No server waits.
    Last(ServerId),
}

/// Number of times a transaction is sent under a new number, after it met a prepared one or its
/// birth did not fit the servers' clocks.
const ROUNDS_MAX: usize = 4;

/// Returns the servers that take part in a transaction, in order: those that it writes to, and those
/// that have only staged parts of it.
fn participants(writes: &Writes, staging: &StagedWrites) -> Vec<ServerId> {
    let mut servers: Vec<ServerId> = writes.servers.keys().copied().chain(staging.servers()).collect();
    servers.sort_unstable();
    servers.dedup();
    servers
}

fn rolled_back(server: ServerId, txn: TxnId) -> CommitError {
    CommitError::Refused { server, operation: None, refusal: Refusal::GivenUp(txn) }
}

fn parse_ballot(server: ServerId, bytes: &[u8]) -> Result<Ballot, CommitError> {
    match Reply::decode(bytes).map_err(|malformed| CommitError::Unknown(malformed.into()))? {
        Reply::Voted(vote) => Ok(Ballot::Yes(vote)),
        Reply::Vote(Vote::Decided(decision)) => Ok(Ballot::Decided(decision)),
        Reply::Forgotten(clock) => Ok(Ballot::Forgotten(clock)),
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

/// A request for a vote that was sent.
type SentPrepare<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, LostCall>> + 'a>>;

/// What the participants of a transaction have answered.
struct Votes<'a> {
    txn: TxnId,
    birth: Timestamp,
    servers: &'a [ServerId],
    /// Servers that were asked, and have not refused.
    open: Vec<ServerId>,
    /// The largest vote.
    at: Timestamp,
    /// A refusal.
    no: Option<CommitError>,
    /// The reason for which a vote is not known.
    unknown: Option<CommitError>,
    decided: Option<Decision>,
    is_forgotten: bool,
    took_staged: bool,
}

impl Votes<'_> {
    /// Whether the outcome is known whatever the others answer.
    fn is_over(&self) -> bool {
        self.no.is_some() || self.decided.is_some() || self.is_forgotten
    }
}

impl<T: Transport> Client<T> {
    /// Sends the messages about unsettled commits that are due. No caller waits for the answers.
    fn send_due(&self) {
        for (server, reply) in self.in_flight.take_corrections() {
            if let Some(correction) = Correction::of(&reply) {
                self.transport.correct(server, &correction, Attempt::First);
            }
        }
        for (txn, server, request) in self.in_flight.take_due() {
            self.counters.sent(request.len());
            self.counters.overlapping();
            let in_flight = Arc::clone(&self.in_flight);
            let handler = move |reply: Result<&[u8], LostCall>| in_flight.on_reply(txn, server, reply);
            self.transport.send(server, &request, Box::new(handler));
        }
    }

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

    /// Like [`commit`](Self::commit), for a caller in the process of the server `last`, which votes
    /// when all others have: it is not in doubt about the transaction while another server does not
    /// answer. A conflict with a prepared transaction is a refusal.
    pub async fn commit_voting_last(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        last: ServerId,
    ) -> Result<Timestamp, CommitError> {
        // `commit` stages the parts of a large transaction; this order has no staging.
        if writes.servers.len() < 2 || writes.has_full_part() {
            return self.commit(snapshot, writes).await;
        }
        let (mut staging, mut error) = (self.staging(), None);
        let order = VoteOrder::Last(last);
        for _ in 0..ROUNDS_MAX {
            match self.vote(snapshot, writes, &mut staging, order).await {
                Round::Committed(at) => {
                    self.note_seen(at);
                    return Ok(at);
                }
                Round::Refused(refused) => {
                    if let CommitError::Refused { refusal, .. } = &refused {
                        self.note_refusal(*refusal);
                    }
                    return Err(refused);
                }
                Round::Again(again) => error = Some(again),
            }
        }
        Err(error.unwrap_or(CommitError::Failed(RequestError::UnexpectedAnswer)))
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
            (None, _) if staging.is_empty() => return Ok(snapshot.unwrap_or_else(|| self.seen())),
            (Some((server, parts)), None) if staging.is_at_most_at(*server) => {
                let written = (writes.lease, staging.at(*server), parts.last());
                self.commit_at_one(*server, snapshot, written).await
            }
            (None, _) if let Some(server) = staging.only_server() => {
                let written = (writes.lease, staging.at(server), Operations::NONE);
                self.commit_at_one(server, snapshot, written).await
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
        let (mut may_overtake, mut last) = (true, None);
        for _ in 0..ROUNDS_MAX {
            match self.try_commit_at_one(server, snapshot, written, may_overtake).await {
                Round::Committed(at) => return Ok(at),
                // Safe to repeat: the transaction has read nothing that the server could have lost,
                // and the server has answered that the first attempt did not and will not commit.
                Round::Refused(CommitError::Failed(RequestError::Lost(lost)))
                    if may_overtake
                        && lost.cause == LossCause::Disconnected
                        && snapshot.is_none()
                        && written.1.is_none() =>
                {
                    // Uses the connection that the outcome request has opened.
                    may_overtake = false;
                }
                Round::Refused(error) => return Err(error),
                Round::Again(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(CommitError::Failed(RequestError::UnexpectedAnswer)))
    }

    async fn try_commit_at_one(
        &self,
        server: ServerId,
        snapshot: Option<Timestamp>,
        (lease, staged, operations): (u64, Option<Staged>, Operations<'_>),
        may_overtake: bool,
    ) -> Round {
        self.send_due();
        let attempt = self.in_flight.begin_commit(self.seen(), self.transport.uptime());
        let (txn, birth, seen) = (attempt.txn, attempt.birth, self.seen());
        let request = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
        // After a lost answer the client requests the outcome; the server then rejects this request
        // if it arrives later.
        let request = Client::<T>::bytes_of(&request);
        let sent = match may_overtake {
            true => self.send_unordered(server, &request).await,
            false => self.send(server, &request).await,
        };
        let outcome = match sent {
            Ok(bytes) => match Reply::decode(&bytes) {
                Ok(Reply::Committed(at)) => Ok(at),
                // Sent once, so that nothing happened.
                Ok(Reply::Forgotten(clock)) => {
                    self.take_clock(clock);
                    attempt.settle();
                    return Round::Again(rolled_back(server, txn));
                }
                // The commit record may or may not be on disk.
                Ok(Reply::Refused { refusal: refusal @ Refusal::DiskLost, .. }) => {
                    Err(CommitError::Unknown(refusal.into()))
                }
                Ok(Reply::Refused { operation, refusal }) => {
                    attempt.settle();
                    return self.refused_birth(birth, CommitError::Refused { server, operation, refusal });
                }
                Ok(_) => Err(CommitError::Unknown(RequestError::UnexpectedAnswer)),
                Err(malformed) => Err(CommitError::Unknown(malformed.into())),
            },
            // It was examined nowhere.
            Err(lost) if lost.cause == LossCause::Misdirected => Err(CommitError::Failed(lost.into())),
            Err(lost) => self.request_outcome(server, (txn, birth), lost.into()).await,
        };
        match outcome {
            Ok(at) => {
                attempt.settle_at(at, self.transport.uptime());
                Round::Committed(at)
            }
            Err(error) => {
                match error {
                    CommitError::Unknown(_) => {
                        self.in_flight.unsettled(UnsettledCommit::unknown((txn, birth), vec![server]));
                    }
                    _ => attempt.settle(),
                }
                Round::Refused(error)
            }
        }
    }

    /// Takes the clock of a server that takes no vote for a birth any more.
    fn take_clock(&self, clock: Timestamp) {
        self.in_flight.set_anchor(clock, self.transport.uptime());
        self.note_seen(clock);
    }

    /// A refusal, or another attempt if the birth was too far ahead of the server's clock.
    fn refused_birth(&self, birth: Timestamp, error: CommitError) -> Round {
        if let CommitError::Refused { refusal: Refusal::TooFarAhead(ahead), .. } = &error
            && ahead.given == birth
            && birth > self.seen()
        {
            self.in_flight.set_anchor(ahead.ours, self.transport.uptime());
            return Round::Again(error);
        }
        Round::Refused(error)
    }

    /// Requests the outcome of a transaction whose answer was lost. The server rolls the
    /// transaction back if it has not received it.
    async fn request_outcome(
        &self,
        server: ServerId,
        (txn, birth): (TxnId, Timestamp),
        error: RequestError,
    ) -> Result<Timestamp, CommitError> {
        for _ in 0..outcome_attempts(&error) {
            let Ok(bytes) = self.call(server, &Request::Outcome { txn, birth }).await else { continue };
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
        (txn, birth): (TxnId, Timestamp),
        servers: &[ServerId],
        error: RequestError,
    ) -> Result<Ballot, CommitError> {
        let participants = Participants::encode(servers);
        let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
        let request = Request::Resolve { txn, birth, participants, is_voter: false };
        if matches!(&error, RequestError::Lost(lost) if lost.cause == LossCause::Misdirected) {
            // No server has examined the request for the vote.
            return Err(CommitError::Failed(error));
        }
        for _ in 0..outcome_attempts(&error) {
            let Ok(bytes) = self.call(server, &request).await else { continue };
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
        // A vote consumes the parts of its server: the votes for a large transaction should not be in
        // vain, and it is not sent again here.
        let mut order = if staging.is_empty() { VoteOrder::Parallel } else { VoteOrder::ByServer };
        let mut last = None;
        for _ in 0..ROUNDS_MAX {
            match self.vote(snapshot, writes, staging, order).await {
                Round::Committed(at) => return Ok(at),
                // Two transactions that meet at two servers could refuse each other for ever.
                Round::Refused(CommitError::Refused {
                    refusal: Refusal::Conflict(Conflict::Prepared { .. }),
                    ..
                }) if order == VoteOrder::Parallel => order = VoteOrder::ByServer,
                Round::Refused(error) => return Err(error),
                // The staged parts are gone: the caller begins again.
                Round::Again(error) if staging.is_spent => return Err(error),
                Round::Again(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(CommitError::Failed(RequestError::UnexpectedAnswer)))
    }

    /// Asks all servers for their votes, under a new number, and sends the decision.
    async fn vote(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        staging: &mut StagedWrites,
        order: VoteOrder,
    ) -> Round {
        self.send_due();
        let attempt = self.in_flight.begin_commit(self.seen(), self.transport.uptime());
        let servers = participants(writes, staging);
        let mut votes = Votes {
            txn: attempt.txn,
            birth: attempt.birth,
            servers: &servers,
            open: Vec::with_capacity(servers.len()),
            at: Timestamp::ZERO,
            no: None,
            unknown: None,
            decided: None,
            is_forgotten: false,
            took_staged: false,
        };
        match order {
            VoteOrder::Parallel => {
                self.vote_in_parallel(snapshot, writes, staging, &servers, &mut votes).await;
            }
            VoteOrder::ByServer => self.vote_by_server(snapshot, writes, staging, &mut votes).await,
            VoteOrder::Last(last) => {
                let others: Vec<ServerId> = servers.iter().copied().filter(|other| *other != last).collect();
                self.vote_in_parallel(snapshot, writes, staging, &others, &mut votes).await;
                if !votes.is_over() && votes.unknown.is_none() {
                    self.vote_in_parallel(snapshot, writes, staging, &[last], &mut votes).await;
                }
            }
        }
        // A server that has voted has consumed the staged parts.
        staging.is_spent |= votes.took_staged;
        let Votes { txn, birth, open, at, no, unknown, decided, is_forgotten, .. } = votes;
        let decision = match decided {
            // Recovery has decided.
            Some(decision) => decision,
            None if no.is_some() || is_forgotten => Decision::Abort,
            None => match unknown {
                None => Decision::Commit(at),
                // Without all votes the outcome cannot be decided here.
                Some(error) => {
                    self.in_flight.unsettled(UnsettledCommit::unknown((txn, birth), servers));
                    return Round::Refused(error);
                }
            },
        };
        // From here on the votes alone decide the outcome. A server that misses the decision recovers
        // it from the other servers' votes.
        let first = servers[0];
        self.in_flight.unsettled(UnsettledCommit::decided((txn, birth), servers, decision, open));
        self.send_due();
        match (decision, no) {
            (Decision::Commit(at), _) => {
                self.in_flight.note_time(at, self.transport.uptime());
                Round::Committed(at)
            }
            (Decision::Abort, Some(no)) => self.refused_birth(birth, no),
            (Decision::Abort, None) if is_forgotten => Round::Again(rolled_back(first, txn)),
            (Decision::Abort, None) => Round::Refused(rolled_back(first, txn)),
        }
    }

    /// Sends a request for a vote.
    fn send_prepare<'a>(
        &'a self,
        server: ServerId,
        votes: &Votes<'_>,
        (snapshot, writes, staging): (Option<Timestamp>, &Writes, &StagedWrites),
        waits: bool,
    ) -> SentPrepare<'a> {
        let operations = writes.servers.get(&server).map_or(Operations::NONE, |parts| parts.last());
        let participants = Participants::encode(votes.servers);
        // The map's keys are in order.
        let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
        let request = Request::Prepare {
            txn: votes.txn,
            birth: votes.birth,
            waits,
            snapshot,
            seen: self.seen(),
            participants,
            lease: writes.lease,
            staged: staging.at(server),
            operations,
        };
        Box::pin(self.send(server, Client::<T>::bytes_of(&request)))
    }

    async fn vote_in_parallel(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        staging: &StagedWrites,
        asked: &[ServerId],
        votes: &mut Votes<'_>,
    ) {
        let mut sent: Vec<(ServerId, Option<SentPrepare<'_>>)> = Vec::with_capacity(asked.len());
        for (at, server) in asked.iter().enumerate() {
            if at > 0 {
                self.counters.overlapping();
            }
            let prepare = self.send_prepare(*server, votes, (snapshot, writes, staging), false);
            sent.push((*server, Some(prepare)));
            votes.open.push(*server);
        }
        let mut lost = Vec::new();
        poll_fn(|context| {
            let mut is_pending = false;
            for (server, call) in &mut sent {
                let Some(prepare) = call else { continue };
                let Poll::Ready(reply) = prepare.as_mut().poll(context) else {
                    is_pending = true;
                    continue;
                };
                *call = None;
                match reply {
                    Ok(bytes) => self.count_vote(*server, parse_ballot(*server, &bytes), staging, votes),
                    Err(error) => lost.push((*server, error)),
                }
                if votes.is_over() {
                    // The client sends the abort to the others; their votes do not matter.
                    return Poll::Ready(());
                }
            }
            if is_pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for (server, error) in lost {
            if votes.is_over() {
                return;
            }
            // The vote may be yes, and a yes vote is binding.
            let of = (votes.txn, votes.birth);
            let ballot = self.request_vote(server, of, votes.servers, error.into()).await;
            self.count_vote(server, ballot, staging, votes);
        }
    }

    async fn vote_by_server(
        &self,
        snapshot: Option<Timestamp>,
        writes: &Writes,
        staging: &StagedWrites,
        votes: &mut Votes<'_>,
    ) {
        for server in votes.servers {
            // It carries the largest vote so far as the client's highest timestamp.
            let prepare = self.send_prepare(*server, votes, (snapshot, writes, staging), true);
            votes.open.push(*server);
            let ballot = match prepare.await {
                Ok(bytes) => parse_ballot(*server, &bytes),
                Err(lost) => {
                    let of = (votes.txn, votes.birth);
                    self.request_vote(*server, of, votes.servers, lost.into()).await
                }
            };
            self.count_vote(*server, ballot, staging, votes);
            if votes.is_over() || votes.unknown.is_some() {
                return;
            }
        }
    }

    fn count_vote(
        &self,
        server: ServerId,
        ballot: Result<Ballot, CommitError>,
        staging: &StagedWrites,
        votes: &mut Votes<'_>,
    ) {
        match ballot {
            Ok(Ballot::Yes(vote)) => {
                self.note_seen(vote);
                votes.at = votes.at.max(vote);
                votes.took_staged |= staging.at(server).is_some();
            }
            Ok(Ballot::Decided(decision)) => votes.decided = Some(decision),
            Ok(Ballot::Forgotten(clock)) => {
                self.take_clock(clock);
                votes.is_forgotten = true;
                votes.open.retain(|open| *open != server);
            }
            Err(error @ CommitError::Unknown(_)) => votes.unknown = Some(error),
            Err(error) => {
                // It has not voted and will not.
                votes.open.retain(|open| *open != server);
                votes.no = Some(error);
            }
        }
    }
}
