//! Parts of a transaction that are sent before its commit, because all of it
//! is too long for one message.

use crate::{Client, CommitError, Error};
use std::collections::BTreeMap;
use yesquel_model::{ServerId, TxnId};
use yesquel_transport::Transport;
use yesquel_wire::{Operations, Reply, Request, Staged};

/// What was sent of a transaction before its commit. Servers keep it for a
/// minute after the last part.
#[derive(Debug)]
pub struct Staging {
    /// None until there is a part.
    name: Option<TxnId>,
    /// Parts at each server.
    parts: BTreeMap<ServerId, u64>,
    /// Whether a commit has added to it or taken from it, so that it is good
    /// for that one only.
    pub(crate) is_spent: bool,
}

impl Staging {
    /// Whether it does not hold what was [staged](Client::stage) by its maker,
    /// no more and no less, so that another try needs another one.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    pub(crate) fn at(&self, server: ServerId) -> Option<Staged> {
        let parts = *self.parts.get(&server)?;
        Some(Staged { number: self.name?.number, parts })
    }
}

impl<T: Transport> Client<T> {
    /// Nothing staged yet.
    pub fn staging(&self) -> Staging {
        Staging { name: None, parts: BTreeMap::new(), is_spent: false }
    }

    /// Sends a part: operations as [`Operations::push`] makes them.
    pub async fn stage(
        &self,
        staging: &mut Staging,
        server: ServerId,
        part: &[u8],
    ) -> Result<(), CommitError> {
        let failed = |error: Error| CommitError::Failed(error);
        let operations = Operations::decode(part).map_err(|malformed| failed(malformed.into()))?;
        // No transaction has its number.
        let name = *staging.name.get_or_insert_with(|| self.ledger.attempt().txn);
        let parts = staging.parts.entry(server).or_default();
        let request = Request::Stage { name, part: *parts, operations };
        let bytes = self.call(server, &request).await.map_err(|lost| failed(lost.into()))?;
        match Reply::decode(&bytes).map_err(|malformed| failed(malformed.into()))? {
            Reply::Done => {
                *parts += 1;
                Ok(())
            }
            Reply::Refused { operation, refusal } => Err(CommitError::Refused { server, operation, refusal }),
            _ => Err(failed(Error::Unfit)),
        }
    }

    /// Has servers let go of what was staged for nothing.
    pub async fn unstage(&self, staging: Staging) {
        let Some(name) = staging.name else { return };
        for server in staging.parts.keys() {
            // Whoever does not hear it lets go of it after a while.
            let _ = self.call(*server, &Request::Unstage { name }).await;
        }
    }
}
