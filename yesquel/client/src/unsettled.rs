//! Commits whose end the client knows, or asks for, until all participants have confirmed it. Nobody
//! waits for the answers: they only tell what the servers may forget.

use crate::{Client, in_flight::InFlight};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_transport::{LostCall, Transport};
use yesquel_wire::{ByteWriter, Decision, Participants, Reply, Request, Vote};

/// A commit that is not settled.
#[derive(Debug)]
pub(crate) struct UnsettledCommit {
    txn: TxnId,
    birth: Timestamp,
    participants: Vec<ServerId>,
    /// None while the client asks for it.
    decision: Option<Decision>,
    votes: Vec<(ServerId, Timestamp)>,
    /// Servers that have not answered; those to which no message is on its way are marked.
    open: Vec<(ServerId, bool)>,
}

impl UnsettledCommit {
    /// A commit that has ended; these servers must be told.
    pub(crate) fn decided(
        (txn, birth): (TxnId, Timestamp),
        participants: Vec<ServerId>,
        decision: Decision,
        open: impl IntoIterator<Item = ServerId>,
    ) -> UnsettledCommit {
        let open = open.into_iter().map(|server| (server, true)).collect();
        UnsettledCommit { txn, birth, participants, decision: Some(decision), votes: Vec::new(), open }
    }

    /// A commit whose outcome is not known.
    pub(crate) fn unknown((txn, birth): (TxnId, Timestamp), participants: Vec<ServerId>) -> UnsettledCommit {
        let open = participants.iter().map(|server| (*server, true)).collect();
        UnsettledCommit { txn, birth, participants, decision: None, votes: Vec::new(), open }
    }

    fn decide(&mut self, decision: Decision) {
        self.decision = Some(decision);
        self.open = self.participants.iter().map(|server| (*server, true)).collect();
    }

    /// Takes an answer. Returns whether the commit is settled.
    fn answered(&mut self, server: ServerId, reply: &Reply<'_>) -> bool {
        match (reply, self.decision) {
            // Its end there is durable.
            (Reply::Done | Reply::Outcome(_), Some(_)) => {
                self.open.retain(|(open, _)| *open != server);
                self.open.is_empty()
            }
            // A transaction of one server.
            (Reply::Outcome(_), None) => true,
            // No server takes a vote for it any more.
            (Reply::Vote(Vote::Forgotten), None) => true,
            (Reply::Vote(Vote::No), None) => {
                self.decide(Decision::Abort);
                false
            }
            (Reply::Vote(Vote::Decided(decision)), None) => {
                self.decide(*decision);
                false
            }
            (Reply::Vote(Vote::Yes { at, .. }), None) => {
                self.votes.push((server, *at));
                self.open.retain(|(open, _)| *open != server);
                if let (true, Some(at)) = (self.open.is_empty(), self.votes.iter().map(|(_, at)| *at).max()) {
                    self.decide(Decision::Commit(at));
                }
                false
            }
            // A server whose disk has failed, for example: it is told again.
            _ => {
                let again = self.open.iter_mut().filter(|(open, _)| *open == server);
                again.for_each(|(_, is_due)| *is_due = true);
                false
            }
        }
    }

    fn request(&self) -> Vec<u8> {
        let (txn, birth) = (self.txn, self.birth);
        let participants = Participants::encode(&self.participants);
        // They are in order.
        let participants = Participants::decode(&participants).unwrap_or(Participants::NONE);
        let request = match self.decision {
            Some(decision) => Request::Decide { txn, birth, participants, decision },
            None if self.participants.len() == 1 => Request::Outcome { txn, birth },
            None => Request::Resolve { txn, birth, participants, is_voter: false },
        };
        let mut bytes = Vec::new();
        request.write(&mut ByteWriter(&mut bytes));
        bytes
    }
}

impl InFlight {
    /// Adds a commit that is not settled.
    pub(crate) fn unsettled(&self, commit: UnsettledCommit) {
        let mut commits = self.commits();
        if commit.open.is_empty() {
            commits.close(commit.txn.number);
        } else {
            commits.unsettled.push(commit);
            self.is_message_due.store(true, Relaxed);
        }
    }

    /// Takes the messages that are due.
    fn take_due(&self) -> Vec<(TxnId, ServerId, Vec<u8>)> {
        let mut due = Vec::new();
        for commit in &mut self.commits().unsettled {
            if !commit.open.iter().any(|(_, is_due)| *is_due) {
                continue;
            }
            let request = commit.request();
            for (server, is_due) in &mut commit.open {
                if std::mem::take(is_due) {
                    due.push((commit.txn, *server, request.clone()));
                }
            }
        }
        due
    }

    /// Takes the answer of a server, or its loss.
    fn on_reply(&self, txn: TxnId, server: ServerId, reply: Result<&[u8], LostCall>) {
        let mut commits = self.commits();
        let Some(place) = commits.unsettled.iter().position(|commit| commit.txn == txn) else { return };
        let commit = &mut commits.unsettled[place];
        let reply = reply.ok().and_then(|bytes| Reply::decode(bytes).ok());
        // A reply that is none is like a loss.
        if commit.answered(server, &reply.unwrap_or(Reply::Report(b""))) {
            commits.unsettled.swap_remove(place);
            commits.close(txn.number);
        } else if commit.open.iter().any(|(_, is_due)| *is_due) {
            self.is_message_due.store(true, Relaxed);
        }
    }
}

impl<T: Transport> Client<T> {
    /// Sends the messages about unsettled commits that are due.
    pub(crate) fn send_due(&self) {
        if !self.in_flight.is_message_due.load(Relaxed) {
            return;
        }
        self.in_flight.is_message_due.store(false, Relaxed);
        for (txn, server, request) in self.in_flight.take_due() {
            self.counters.sent(request.len());
            // Nothing waits for the answer.
            self.counters.overlapping();
            let in_flight = Arc::clone(&self.in_flight);
            let handler =
                Box::new(move |reply: Result<&[u8], LostCall>| in_flight.on_reply(txn, server, reply));
            self.transport.send(server, &request, handler);
        }
    }
}
