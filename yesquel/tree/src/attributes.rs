//! Attributes of trees, stored at their roots.

use crate::{Tree, TreeError, Trees};
use rustc_hash::FxHashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use yesquel_client::RequestError;
use yesquel_model::{ServerId, TreeId};
use yesquel_transport::Transport;
use yesquel_wire::{Answer, GROUPS_ATTRIBUTE, Question};

/// Attribute of a tree: the number of random bits in its keys, in one byte (section 4.2 of the
/// paper). A tree without it has none, as all trees have today: the number is reserved.
pub const REPLIT_BITS: u16 = 1;
/// Largest number of bits: one byte of each key.
const REPLIT_BITS_MAX: u8 = 8;

/// Most trees whose groups are kept.
const KNOWN_MAX: usize = 100_000;

impl<T: Transport> Trees<T> {
    /// Returns the number of random bits in the keys of a tree.
    pub async fn replit_bits(&self, tree: Tree) -> Result<u8, TreeError> {
        let question = Question::Attribute { node: tree.root, id: REPLIT_BITS };
        let reading = self.client.read(&mut None, tree.root.server, &[question]).await?;
        match reading.answers().and_then(|answers| answers.iter().next()) {
            Some(Answer::Absent) => Ok(0),
            Some(Answer::Value([bits])) if *bits <= REPLIT_BITS_MAX => Ok(*bits),
            Some(Answer::Value(_)) => Err(TreeError::Damaged(tree.root.tree, "it has too many random bits")),
            Some(Answer::Moved(_)) => Err(TreeError::NoTree(tree.root.tree)),
            _ => Err(RequestError::UnexpectedAnswer.into()),
        }
    }

    /// Returns the groups at which a tree may have leaves; none: all are at the group of the root. They
    /// never change, and are asked for once.
    pub async fn groups(&self, tree: Tree) -> Result<Arc<[ServerId]>, TreeError> {
        if let Some(groups) = self.known_groups().get(&tree.root.tree) {
            return Ok(Arc::clone(groups));
        }
        let groups: Arc<[ServerId]> = self.read_groups(tree).await?.into();
        let mut known = self.known_groups();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(tree.root.tree, Arc::clone(&groups));
        Ok(groups)
    }

    fn known_groups(&self) -> MutexGuard<'_, FxHashMap<TreeId, Arc<[ServerId]>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_groups(&self, tree: Tree) -> Result<Vec<ServerId>, TreeError> {
        let question = Question::Attribute { node: tree.root, id: GROUPS_ATTRIBUTE };
        let reading = self.client.read(&mut None, tree.root.server, &[question]).await?;
        match reading.answers().and_then(|answers| answers.iter().next()) {
            Some(Answer::Absent) => Ok(Vec::new()),
            Some(Answer::Value(groups)) => {
                let (groups, _) = groups.as_chunks::<2>();
                Ok(groups.iter().map(|group| ServerId(u16::from_le_bytes(*group))).collect())
            }
            Some(Answer::Moved(_)) => Err(TreeError::NoTree(tree.root.tree)),
            _ => Err(RequestError::UnexpectedAnswer.into()),
        }
    }
}

/// Returns the attribute for the groups of a tree, if there are several.
pub(crate) fn encode_groups(groups: &[ServerId]) -> Option<Vec<u8>> {
    (groups.len() > 1).then(|| groups.iter().flat_map(|group| group.0.to_le_bytes()).collect())
}
