//! Snapshot of a transaction, and the cached values that are still to be verified at it.

use crate::{ReadReply, RequestError, Watch, watch::UsedWatches};
use yesquel_model::{Key, NodeId, ServerId, Timestamp};
use yesquel_wire::{Answer, Question};

/// Snapshot that a transaction reads, which is that of its first read. Proofs of cached values
/// travel with other questions, so that they cost no request of their own.
#[derive(Debug, Default)]
pub struct ReadView {
    /// The snapshot, once a server has given one.
    pub snapshot: Option<Timestamp>,
    proofs: Vec<ValueProof>,
    /// Number of proofs without an outcome.
    unasked: usize,
    /// The server that has given the snapshot.
    given_by: Option<ServerId>,
    /// Watched nodes that were used without a snapshot. The snapshot that a server gives later must
    /// precede their changes.
    used: UsedWatches,
}

/// Check that a key has a value.
#[derive(Debug)]
struct ValueProof {
    /// Root of the tree, which identifies the proof.
    root: NodeId,
    node: NodeId,
    key: Key,
    value: Box<[u8]>,
    other: NodeId,
    outcome: Option<ProofOutcome>,
}

/// Outcome of a proof.
#[derive(Debug)]
pub enum ProofOutcome {
    /// The key has the value.
    Holds,
    /// The key has another value, or none, given as empty. The cells of the other node come along,
    /// if that node exists: [`Answer::Cells`].
    Fails(Box<[u8]>, Option<ReadReply>),
    /// The node does not exist, or no longer owns this key. The value is the one to be verified.
    Moved(Key, Box<[u8]>),
}

impl From<Option<Timestamp>> for ReadView {
    fn from(snapshot: Option<Timestamp>) -> ReadView {
        ReadView { snapshot, ..ReadView::default() }
    }
}

impl ReadView {
    /// Notes that a watched node is used, which has not changed. Returns false if it must not be,
    /// because nodes of another server were used, or the view has a snapshot.
    /// The client has seen timestamps up to `seen`.
    pub fn use_watched(&mut self, watch: &Watch, seen: Timestamp) -> bool {
        self.snapshot.is_none() && self.used.add(watch, seen)
    }

    /// Returns whether this server has given the snapshot: it changes nothing at or below it then.
    pub fn is_given_by(&self, server: ServerId) -> bool {
        self.given_by == Some(server)
    }

    /// Sets the snapshot that a server has given or served.
    pub(crate) fn give(&mut self, server: ServerId, snapshot: Timestamp) {
        if self.snapshot.is_none() {
            self.given_by = Some(server);
            self.used.decided();
        }
        self.snapshot = Some(snapshot);
    }

    /// Returns the server whose watched nodes were used, while the view has no snapshot.
    pub fn used_at(&self) -> Option<ServerId> {
        self.used.server().filter(|_| self.snapshot.is_none())
    }

    /// Returns another server whose watched nodes were used: it must give the snapshot.
    pub(crate) fn used_elsewhere(&self, server: ServerId) -> Option<ServerId> {
        self.used.server().filter(|used| *used != server && self.snapshot.is_none())
    }

    /// Sets the snapshot if what was used has changed at or before `at`.
    pub(crate) fn pin(&mut self, server: ServerId, at: Timestamp) -> Result<(), RequestError> {
        if let Some(earlier) = self.used.earlier(at)? {
            self.give(server, earlier);
        }
        Ok(())
    }

    /// Adds a proof that a key of a node has `value`; empty stands for no value. If the value
    /// differs, the server also returns all cells of `other`. The root of the tree identifies the
    /// proof.
    pub fn prove(&mut self, (root, node): (NodeId, NodeId), key: &[u8], value: &[u8], other: NodeId) {
        self.proofs.push(ValueProof {
            root,
            node,
            key: key.into(),
            value: value.into(),
            other,
            outcome: None,
        });
        self.unasked += 1;
    }

    /// Adds a proof with its outcome: the key was read, and has this value.
    pub fn proved(&mut self, root: NodeId, there: &[u8], value: &[u8]) {
        let outcome =
            if there == value { ProofOutcome::Holds } else { ProofOutcome::Fails(there.into(), None) };
        self.proofs.push(ValueProof {
            root,
            node: root,
            key: Key::default(),
            value: Box::default(),
            other: root,
            outcome: Some(outcome),
        });
    }

    /// Returns a server that is to be asked for a proof.
    pub fn next_to_prove(&self) -> Option<ServerId> {
        self.proofs.iter().find(|proof| proof.outcome.is_none()).map(|proof| proof.node.server)
    }

    /// Returns whether every proof has an outcome.
    pub fn all_answered(&self) -> bool {
        self.unasked == 0
    }

    /// Takes the outcome of a tree's proof, if there is one.
    pub fn outcome(&mut self, root: NodeId) -> Option<ProofOutcome> {
        let place = self.proofs.iter().position(|proof| proof.root == root && proof.outcome.is_some())?;
        self.proofs.swap_remove(place).outcome
    }

    /// Takes the outcome of a tree's proof if the proof holds; returns whether it does.
    pub fn holds(&mut self, root: NodeId) -> bool {
        let holds =
            |proof: &ValueProof| proof.root == root && matches!(proof.outcome, Some(ProofOutcome::Holds));
        let place = self.proofs.iter().position(holds);
        place.map(|place| self.proofs.swap_remove(place)).is_some()
    }

    /// Returns whether there are open proofs for a server.
    pub(crate) fn asks(&self, server: ServerId) -> bool {
        self.unasked > 0 && self.unasked_at(server).next().is_some()
    }

    fn unasked_at(&self, server: ServerId) -> impl Iterator<Item = &ValueProof> {
        self.proofs.iter().filter(move |proof| proof.outcome.is_none() && proof.node.server == server)
    }

    /// Questions of the open proofs for a server.
    pub(crate) fn questions(&self, server: ServerId) -> impl Iterator<Item = Question<'_>> {
        self.unasked_at(server).map(|proof| Question::Proof {
            node: proof.node,
            key: &proof.key,
            value: &proof.value,
            other: proof.other,
        })
    }

    /// Stores a server's answers to [`questions`](Self::questions). Returns false if they do not
    /// fit.
    pub(crate) fn store_answers<'a>(
        &mut self,
        server: ServerId,
        mut answers: impl Iterator<Item = Answer<'a>>,
    ) -> bool {
        let here = |proof: &&mut ValueProof| proof.outcome.is_none() && proof.node.server == server;
        for proof in self.proofs.iter_mut().filter(here) {
            proof.outcome = Some(match answers.next() {
                Some(Answer::Same) => ProofOutcome::Holds,
                Some(Answer::Differs(value, cells)) => {
                    ProofOutcome::Fails(value.into(), cells.map(|cells| ReadReply::of(&cells)))
                }
                Some(Answer::Moved(_)) => ProofOutcome::Moved(proof.key.clone(), proof.value.clone()),
                _ => return false,
            });
            self.unasked -= 1;
        }
        true
    }
}
