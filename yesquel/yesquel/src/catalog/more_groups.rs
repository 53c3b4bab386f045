//! Groups that join a database.

use super::{Catalog, database_key};
use crate::{Error, any_transport::AnyTransport};
use yesquel_model::ServerId;
use yesquel_tree::TreeTransaction;

/// Groups of a database to which some are added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedGroups {
    /// Those that it had.
    pub before: Vec<ServerId>,
    /// Those that join, in this order behind the others.
    pub added: Vec<ServerId>,
}

impl<'a> Catalog<'a> {
    /// Adds groups to a database within a transaction.
    ///
    /// The transaction conflicts with each one that creates a map of the database, for those guard its
    /// entry, and with the removal of the machine of a group that joins.
    pub(crate) async fn add_groups(
        &self,
        transaction: &mut TreeTransaction<'a, AnyTransport>,
        name: &str,
        groups: &[ServerId],
    ) -> Result<AddedGroups, Error> {
        let mut entry = self.entry(transaction, name).await?;
        let before = entry.groups.clone();
        let mut added = groups.to_vec();
        added.retain(|group| !before.contains(group));
        if added.is_empty() {
            return Ok(AddedGroups { before, added });
        }
        self.guard_groups(transaction, &added).await?;
        entry.groups.extend(&added);
        transaction.put(self.tree(), &database_key(name), &entry.encode(self.group))?;
        Ok(AddedGroups { before, added })
    }
}
