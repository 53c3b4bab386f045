//! Proofs that keys still have, at the transaction's snapshot, the values that its client knows
//! from earlier transactions.

use crate::{
    Tree, TreeError, TreeTransaction,
    cache::Goal,
    page::{Page, PageValue},
    search::Fetched,
    watched::WatchUse,
};
use std::sync::Arc;
use yesquel_client::ProofOutcome;
use yesquel_model::{KeyRange, NodeId, ServerId};
use yesquel_transport::Transport;
use yesquel_wire::Direction;

/// Outcome of a [proof](TreeTransaction::prove).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The key has the value.
    Holds,
    /// The key has this value; empty stands for none.
    Fails(Box<[u8]>),
}

impl<T: Transport> TreeTransaction<'_, T> {
    /// Requests a proof that a key of a tree has `value`; empty stands for none. The request
    /// travels with the next read. If the value differs, the server also returns the cells of the
    /// root of `other`, which then need no request of their own.
    pub async fn prove(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &[u8],
        other: Tree,
    ) -> Result<(), TreeError> {
        let leaf = self.trees.leaf(tree.root, key);
        match self.watched_now(tree, leaf, key).await? {
            None => self.view.prove((tree.root, leaf), key, value, other.root),
            Some(page) => {
                let there = match page.cells.position(key).map(|at| page.cells.value(at)) {
                    Ok(PageValue::Whole(there)) => there,
                    _ => &[],
                };
                self.view.proved(tree.root, there, value);
            }
        }
        Ok(())
    }

    /// Like [`prove`](Self::prove), at the root of any one of several trees of one leaf each, at
    /// different servers, that have the same content at every snapshot. The first one identifies the
    /// proof.
    ///
    /// The server that is read first answers. It is not known yet, so that a transaction without a
    /// snapshot uses no watched leaves before.
    pub fn prove_at_any(&mut self, roots: &Arc<[NodeId]>, key: &[u8], value: &[u8], other: Tree) {
        if let Some(first) = roots.first() {
            self.view.prove_at_any((*first, Arc::clone(roots)), key, value, other.root);
        }
    }

    /// Returns the watched leaf of a key, unless the proof can travel with another request.
    async fn watched_now(
        &mut self,
        tree: Tree,
        leaf: NodeId,
        key: &[u8],
    ) -> Result<Option<Arc<Page>>, TreeError> {
        if self.watch_use != WatchUse::AtPresent || self.view.snapshot.is_some() {
            return Ok(None);
        }
        match self.watched(tree, leaf, Goal::At(key)) {
            Some(page) => Ok(Some(page)),
            None => self.watch(tree, leaf, Goal::At(key)).await,
        }
    }

    /// Requests the open proofs now; those that several servers can answer of one that the
    /// transaction writes to.
    pub async fn ask_proofs(&mut self) -> Result<(), TreeError> {
        while let Some(server) = {
            let is_written = |server: ServerId| self.writes.keys().any(|root| root.server == server);
            self.view.next_to_prove(is_written)
        } {
            self.read_proofs(server).await?;
        }
        Ok(())
    }

    /// Takes the outcome of a proof if the proof holds; returns whether it does.
    pub fn holds(&mut self, tree: Tree) -> bool {
        self.view.holds(tree.root)
    }

    /// Takes the outcome of a proof, if there is one. `other` is the tree passed to
    /// [`prove`](TreeTransaction::prove).
    pub async fn proof(&mut self, tree: Tree, other: Tree) -> Result<Option<Proof>, TreeError> {
        Ok(match self.view.outcome(tree.root) {
            None => None,
            Some(ProofOutcome::Holds) => Some(Proof::Holds),
            // The key is in another leaf: search for it.
            Some(ProofOutcome::Moved(key, value)) => {
                let there = Box::pin(self.stored(tree, &key)).await?.unwrap_or_default();
                Some(if there == value { Proof::Holds } else { Proof::Fails(there) })
            }
            Some(ProofOutcome::Fails(value, reading)) => {
                let answer = reading.as_ref().and_then(|reading| reading.answers()?.iter().next());
                if let Some(answer) = answer {
                    let all = (&KeyRange::all(), Direction::Up);
                    let scanned = self.trees.scanned(self.view.snapshot, other.root, all, Some(answer))?;
                    if let (Fetched::Leaf(page), _) = scanned {
                        self.pages.keep(other.root, page);
                    }
                }
                Some(Proof::Fails(value))
            }
        })
    }
}
