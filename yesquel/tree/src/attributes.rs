//! Attributes of trees, stored at their roots.

use crate::{Tree, TreeError, Trees};
use yesquel_client::RequestError;
use yesquel_transport::Transport;
use yesquel_wire::{Answer, Question};

/// Attribute of a tree: the number of random bits in its keys, in one byte (section 4.2 of the
/// paper). A tree without it has none, as all trees have today: the number is reserved.
pub const REPLIT_BITS: u16 = 1;
/// Largest number of bits: one byte of each key.
const REPLIT_BITS_MAX: u8 = 8;

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
}
