//! What a transaction has proved of the moment that it reads: that keys have the
//! values that its client has known since earlier transactions.

use crate::{Transaction, Tree, TreeError, search::Fetched};
use yesquel_client::ProofOutcome;
use yesquel_model::{KeyRange, ServerId};
use yesquel_transport::Transport;
use yesquel_wire::Direction;

/// What has come of a [proof](Transaction::prove).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The key has the value.
    Holds,
    /// It has this one; empty is also none.
    Fails(Box<[u8]>),
}

impl<T: Transport> Transaction<'_, T> {
    /// Has it proved that a key of a tree has a value, which is asked beside what
    /// is read next; empty is also that there is none. If it has not, the cells
    /// of another tree's root are told of, and need not be asked for.
    pub fn prove(&mut self, tree: Tree, key: &[u8], value: &[u8], other: Tree) {
        let leaf = self.trees.leaf(tree.root, key);
        self.view.prove((tree.root, leaf), key, value, other.root);
    }

    /// Asks for what is to be proved, if that has not been asked yet.
    pub async fn ask_proofs(&mut self, server: ServerId) -> Result<(), TreeError> {
        if !self.view.is_told() {
            self.read_proofs(server).await?;
        }
        Ok(())
    }

    /// Whether a proof was asked and what was to be proved is so, which is mostly
    /// all there is to know; it is told once.
    pub fn holds(&mut self, tree: Tree) -> bool {
        self.view.holds(tree.root)
    }

    /// What has come of a proof, if it was asked; it is told once. `other` is the
    /// tree that was named.
    pub async fn proof(&mut self, tree: Tree, other: Tree) -> Result<Option<Proof>, TreeError> {
        Ok(match self.view.outcome(tree.root) {
            None => None,
            Some(ProofOutcome::Holds) => Some(Proof::Holds),
            // The leaf is another one: it is looked for.
            Some(ProofOutcome::Moved(key, value)) => {
                let there = Box::pin(self.stored(tree, &key)).await?.unwrap_or_default();
                Some(if there == value { Proof::Holds } else { Proof::Fails(there) })
            }
            Some(ProofOutcome::Fails(value, reading)) => {
                let answer = reading.as_ref().and_then(|reading| reading.answers()?.iter().next());
                if let Some(answer) = answer {
                    let all = (&KeyRange::all(), Direction::Up);
                    let told = self.trees.scanned(self.view.snapshot, other.root, all, Some(answer))?;
                    if let (Fetched::Leaf(page), _) = told {
                        self.pages.keep(other.root, page);
                    }
                }
                Some(Proof::Fails(value))
            }
        })
    }
}
