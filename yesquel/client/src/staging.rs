//! ServerWrites of a transaction that are sent before its commit, when the whole exceeds one message.

use crate::{Client, CommitError, RequestError};
use std::collections::BTreeMap;
use yesquel_model::{ServerId, TxnId};
use yesquel_transport::Transport;
use yesquel_wire::{Operations, Reply, Request, Staged};

/// ServerWrites of a transaction sent before its commit. Servers keep them for a minute after the last
/// part.
#[derive(Debug)]
pub struct StagedWrites {
    /// None until a part is sent.
    name: Option<TxnId>,
    /// Number of parts at each server.
    parts: BTreeMap<ServerId, u64>,
    /// Whether a commit has added or consumed parts, so that no other commit can use them.
    pub(crate) is_spent: bool,
}

impl StagedWrites {
    /// Returns whether the servers no longer hold exactly what the caller has
    /// [staged](Client::stage): another attempt needs a new staging.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Whether no part was sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Servers that parts were sent to.
    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.parts.keys().copied()
    }

    /// Returns the server that all parts were sent to, if there is one.
    pub(crate) fn only_server(&self) -> Option<ServerId> {
        let mut servers = self.servers();
        servers.next().filter(|_| servers.next().is_none())
    }

    /// Whether no part was sent to another server.
    pub(crate) fn is_at_most_at(&self, server: ServerId) -> bool {
        self.parts.keys().all(|other| *other == server)
    }

    pub(crate) fn at(&self, server: ServerId) -> Option<Staged> {
        let parts = *self.parts.get(&server)?;
        Some(Staged { number: self.name?.number, parts })
    }
}

impl<T: Transport> Client<T> {
    /// Returns an empty staging.
    pub fn staging(&self) -> StagedWrites {
        StagedWrites { name: None, parts: BTreeMap::new(), is_spent: false }
    }

    /// Sends a part: operations as [`Operations::push`] encodes them.
    pub async fn stage(
        &self,
        staging: &mut StagedWrites,
        server: ServerId,
        part: &[u8],
    ) -> Result<(), CommitError> {
        let failed = |error: RequestError| CommitError::Failed(error);
        let operations = Operations::decode(part).map_err(|malformed| failed(malformed.into()))?;
        // The number is unique, for no transaction uses it.
        let name = *staging.name.get_or_insert_with(|| self.in_flight.draw_number());
        let parts = staging.parts.entry(server).or_default();
        let request = Request::Stage { name, part: *parts, operations };
        let bytes = self.call(server, &request).await.map_err(|lost| failed(lost.into()))?;
        match Reply::decode(&bytes).map_err(|malformed| failed(malformed.into()))? {
            Reply::Done => {
                *parts += 1;
                Ok(())
            }
            Reply::Refused { operation, refusal } => Err(CommitError::Refused { server, operation, refusal }),
            _ => Err(failed(RequestError::UnexpectedAnswer)),
        }
    }

    /// Discards the staged parts on the servers.
    pub async fn unstage(&self, staging: StagedWrites) {
        let Some(name) = staging.name else { return };
        for server in staging.parts.keys() {
            // A server that misses this discards the parts after a timeout.
            let _ = self.call(*server, &Request::Unstage { name }).await;
        }
    }
}
