//! Commits whose end the client knows, or asks for, until all participants have confirmed it. No
//! caller waits for the answers: they only tell what the servers may forget.

use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_wire::{ByteWriter, Decision, Participants, Reply, Request, Vote};

/// A commit that is not settled.
#[derive(Debug)]
pub(crate) struct UnsettledCommit {
    pub(crate) txn: TxnId,
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
    pub(crate) fn answered(&mut self, server: ServerId, reply: &Reply<'_>) -> bool {
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
            // For example, a server whose disk has failed: the client sends the decision again.
            _ => {
                let again = self.open.iter_mut().filter(|(open, _)| *open == server);
                again.for_each(|(_, is_due)| *is_due = true);
                false
            }
        }
    }

    /// Whether a message is due.
    pub(crate) fn is_due(&self) -> bool {
        self.open.iter().any(|(_, is_due)| *is_due)
    }

    /// Whether all servers have confirmed its end.
    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes the messages that are due.
    pub(crate) fn take_due(&mut self, due: &mut Vec<(TxnId, ServerId, Vec<u8>)>) {
        if !self.is_due() {
            return;
        }
        let request = self.request();
        for (server, is_due) in &mut self.open {
            if std::mem::take(is_due) {
                due.push((self.txn, *server, request.clone()));
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
