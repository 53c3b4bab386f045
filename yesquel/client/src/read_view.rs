//! Snapshot of a transaction, and the cached values that are still to be verified at it.

use crate::{ReadReply, RequestError, Watch, watch::UsedWatches};
use std::sync::Arc;
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
    place: ProofPlace,
    key: Key,
    value: Box<[u8]>,
    other: NodeId,
    outcome: Option<ProofOutcome>,
    /// Whether the outcome was there before the requests whose replies are being taken: these
    /// requests had no question for it.
    is_settled: bool,
}

/// Node at which a key is proved.
#[derive(Debug)]
enum ProofPlace {
    Node(NodeId),
    /// Nodes of several servers, at most one of each. They hold the same at every snapshot, so that
    /// the server that is asked first answers for all.
    AnyOf(Arc<[NodeId]>),
}

impl ProofPlace {
    fn at(&self, server: ServerId) -> Option<NodeId> {
        match self {
            ProofPlace::Node(node) => Some(*node).filter(|node| node.server == server),
            ProofPlace::AnyOf(nodes) => nodes.iter().find(|node| node.server == server).copied(),
        }
    }
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
        self.prove_at(root, ProofPlace::Node(node), (key, value), other);
    }

    /// Like [`prove`](Self::prove), at any one of several nodes, which are at different servers and
    /// hold the same at every snapshot. The first read at one of these servers takes the proof
    /// along.
    pub fn prove_at_any(
        &mut self,
        (root, nodes): (NodeId, Arc<[NodeId]>),
        key: &[u8],
        value: &[u8],
        other: NodeId,
    ) {
        self.prove_at(root, ProofPlace::AnyOf(nodes), (key, value), other);
    }

    fn prove_at(&mut self, root: NodeId, place: ProofPlace, (key, value): (&[u8], &[u8]), other: NodeId) {
        self.proofs.push(ValueProof {
            root,
            place,
            key: key.into(),
            value: value.into(),
            other,
            outcome: None,
            is_settled: false,
        });
        self.unasked += 1;
    }

    /// Adds a proof with its outcome: the key was read, and has this value.
    pub fn proved(&mut self, root: NodeId, there: &[u8], value: &[u8]) {
        let outcome =
            if there == value { ProofOutcome::Holds } else { ProofOutcome::Fails(there.into(), None) };
        self.proofs.push(ValueProof {
            root,
            place: ProofPlace::Node(root),
            key: Key::default(),
            value: Box::default(),
            other: root,
            outcome: Some(outcome),
            is_settled: true,
        });
    }

    /// Returns a server that is to be asked for a proof. Of several, one of those that the caller
    /// prefers.
    pub fn next_to_prove(&self, is_preferred: impl Fn(ServerId) -> bool) -> Option<ServerId> {
        let open = self.proofs.iter().find(|proof| proof.outcome.is_none())?;
        match &open.place {
            ProofPlace::Node(node) => Some(node.server),
            ProofPlace::AnyOf(nodes) => {
                let mut servers = nodes.iter().map(|node| node.server);
                servers.clone().find(|server| is_preferred(*server)).or_else(|| servers.next())
            }
        }
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
        self.proofs.iter().filter(move |proof| proof.outcome.is_none() && proof.place.at(server).is_some())
    }

    /// Questions of the open proofs for a server.
    pub(crate) fn questions(&self, server: ServerId) -> impl Iterator<Item = Question<'_>> {
        self.proofs.iter().filter(|proof| proof.outcome.is_none()).filter_map(move |proof| {
            Some(Question::Proof {
                node: proof.place.at(server)?,
                key: &proof.key,
                value: &proof.value,
                other: proof.other,
            })
        })
    }

    /// Stores a server's answers to [`questions`](Self::questions), which were those of the proofs
    /// that are not [settled](Self::settle_answers). Returns false if they do not fit.
    pub(crate) fn store_answers<'a>(
        &mut self,
        server: ServerId,
        mut answers: impl Iterator<Item = Answer<'a>>,
    ) -> bool {
        for proof in &mut self.proofs {
            if proof.is_settled || proof.place.at(server).is_none() {
                continue;
            }
            let outcome = match answers.next() {
                Some(Answer::Same) => ProofOutcome::Holds,
                Some(Answer::Differs(value, cells)) => {
                    ProofOutcome::Fails(value.into(), cells.map(|cells| ReadReply::of(&cells)))
                }
                Some(Answer::Moved(_)) => ProofOutcome::Moved(proof.key.clone(), proof.value.clone()),
                _ => return false,
            };
            // Another server may have answered the same.
            if proof.outcome.is_none() {
                proof.outcome = Some(outcome);
                self.unasked -= 1;
            }
        }
        true
    }

    /// Notes that all replies have been taken to the requests that were sent together.
    pub(crate) fn settle_answers(&mut self) {
        self.proofs.iter_mut().for_each(|proof| proof.is_settled = proof.outcome.is_some());
    }

    /// Returns whether requests that were sent together had questions of proofs for a server.
    pub(crate) fn has_asked(&self, server: ServerId) -> bool {
        self.proofs.iter().any(|proof| !proof.is_settled && proof.place.at(server).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::TreeId;

    fn root(tree: u64, server: u16) -> NodeId {
        NodeId::root(TreeId::new(tree).unwrap(), ServerId(server))
    }

    fn holds(view: &mut ReadView, root: NodeId) -> Option<bool> {
        view.outcome(root).map(|outcome| matches!(outcome, ProofOutcome::Holds))
    }

    #[test]
    fn the_server_that_is_read_first_proves_for_all() {
        let (copies, other) = ([1, 2, 3].map(|server| root(u64::from(server), server)), root(9, 1));
        let mut view = ReadView::default();
        view.prove_at_any((copies[0], copies.into()), b"", b"value", other);
        assert_eq!(view.questions(ServerId(7)).count(), 0);
        assert!(!view.has_asked(ServerId(7)));
        let asked: Vec<_> = view.questions(ServerId(2)).collect();
        let expected = Question::Proof { node: copies[1], key: b"", value: b"value", other };
        assert_eq!(asked, [expected]);
        assert!(view.store_answers(ServerId(2), [Answer::Same].into_iter()));
        view.settle_answers();
        // The others are not asked.
        assert!(view.all_answered());
        assert_eq!(view.questions(ServerId(1)).count(), 0);
        assert!(!view.has_asked(ServerId(1)));
        assert_eq!(holds(&mut view, copies[0]), Some(true));
    }

    #[test]
    fn parallel_answers_belong_to_the_proofs_that_were_asked_for() {
        let (copies, apart) = ([1, 2].map(|server| root(u64::from(server), server)), root(5, 2));
        let mut view = ReadView::default();
        view.prove_at_any((copies[0], copies.into()), b"", b"value", apart);
        view.prove((apart, apart), b"", b"value", apart);
        // Both servers get the question of the first proof before either has answered.
        assert_eq!([1, 2].map(|server| view.questions(ServerId(server)).count()), [1, 2]);
        assert!(view.store_answers(ServerId(1), [Answer::Same].into_iter()));
        assert!(view.has_asked(ServerId(2)));
        assert!(view.store_answers(ServerId(2), [Answer::Same, Answer::Differs(b"new", None)].into_iter()));
        view.settle_answers();
        assert_eq!([copies[0], apart].map(|root| holds(&mut view, root)), [Some(true), Some(false)]);
    }

    #[test]
    fn proofs_alone_are_asked_where_the_caller_goes_anyway() {
        let copies = [1, 2, 3].map(|server| root(u64::from(server), server));
        let mut view = ReadView::default();
        assert_eq!(view.next_to_prove(|_| true), None);
        view.prove_at_any((copies[0], copies.into()), b"", b"value", copies[0]);
        assert_eq!(view.next_to_prove(|server| server.0 >= 2), Some(ServerId(2)));
        assert_eq!(view.next_to_prove(|_| false), Some(ServerId(1)));
    }
}
