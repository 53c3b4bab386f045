//! The moment that a transaction reads, and what is to be proved of it.

use crate::Reading;
use yesquel_model::{Key, NodeId, ServerId, Timestamp};
use yesquel_wire::{Answer, Question};

/// The moment that a transaction reads: that of its first read. What is to be
/// proved of it is asked beside what is read, so that it costs no request.
#[derive(Debug, Default)]
pub struct ReadView {
    /// It, once a server has given one.
    pub snapshot: Option<Timestamp>,
    proofs: Vec<Proof>,
    /// Of them, those that are not asked yet.
    unasked: usize,
}

/// That a key has a value.
#[derive(Debug)]
struct Proof {
    /// By what it is known.
    root: NodeId,
    node: NodeId,
    key: Key,
    value: Box<[u8]>,
    other: NodeId,
    outcome: Option<ProofOutcome>,
}

/// What has come of a proof.
#[derive(Debug)]
pub enum ProofOutcome {
    /// The key has the value.
    Holds,
    /// It has another one, or none, which is empty here. The cells of the other
    /// node come with it, if it is there: [`Answer::Cells`].
    Fails(Box<[u8]>, Option<Reading>),
    /// There is no such node, or it does not have the key: this one, of which this
    /// value was to be proved.
    Moved(Key, Box<[u8]>),
}

impl From<Option<Timestamp>> for ReadView {
    fn from(snapshot: Option<Timestamp>) -> ReadView {
        ReadView { snapshot, ..ReadView::default() }
    }
}

impl ReadView {
    /// Asks for a proof that a key of a node has a value; empty is also none. If
    /// it has not, all cells of another node are told of. It is known by the root
    /// of the tree.
    pub fn prove(&mut self, (root, node): (NodeId, NodeId), key: &[u8], value: &[u8], other: NodeId) {
        self.proofs.push(Proof { root, node, key: key.into(), value: value.into(), other, outcome: None });
        self.unasked += 1;
    }

    /// Whether all was proved, or not, that was to be.
    pub fn is_told(&self) -> bool {
        self.unasked == 0
    }

    /// Takes what has come of the proof of a tree, if it was asked.
    pub fn outcome(&mut self, root: NodeId) -> Option<ProofOutcome> {
        let place = self.proofs.iter().position(|proof| proof.root == root && proof.outcome.is_some())?;
        self.proofs.swap_remove(place).outcome
    }

    /// The same for one that holds.
    pub fn holds(&mut self, root: NodeId) -> bool {
        let holds = |proof: &Proof| proof.root == root && matches!(proof.outcome, Some(ProofOutcome::Holds));
        let place = self.proofs.iter().position(holds);
        place.map(|place| self.proofs.swap_remove(place)).is_some()
    }

    /// Whether anything is to be asked of a server.
    pub(crate) fn asks(&self, server: ServerId) -> bool {
        self.unasked > 0 && self.unasked_at(server).next().is_some()
    }

    fn unasked_at(&self, server: ServerId) -> impl Iterator<Item = &Proof> {
        self.proofs.iter().filter(move |proof| proof.outcome.is_none() && proof.node.server == server)
    }

    /// What is to be asked of a server beside other questions.
    pub(crate) fn questions(&self, server: ServerId) -> impl Iterator<Item = Question<'_>> {
        self.unasked_at(server).map(|proof| Question::Proof {
            node: proof.node,
            key: &proof.key,
            value: &proof.value,
            other: proof.other,
        })
    }

    /// What the server says to that; whether it is fit.
    pub(crate) fn told<'a>(
        &mut self,
        server: ServerId,
        mut answers: impl Iterator<Item = Answer<'a>>,
    ) -> bool {
        let here = |proof: &&mut Proof| proof.outcome.is_none() && proof.node.server == server;
        for proof in self.proofs.iter_mut().filter(here) {
            proof.outcome = Some(match answers.next() {
                Some(Answer::Same) => ProofOutcome::Holds,
                Some(Answer::Differs(value, cells)) => {
                    ProofOutcome::Fails(value.into(), cells.map(|cells| Reading::of(&cells)))
                }
                Some(Answer::Moved(_)) => ProofOutcome::Moved(proof.key.clone(), proof.value.clone()),
                _ => return false,
            });
            self.unasked -= 1;
        }
        true
    }
}
