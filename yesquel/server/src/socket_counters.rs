//! Counters of socket connections.

use std::sync::{Mutex, PoisonError, atomic::AtomicU64};
use yesquel_wire::status::AdmittedConnections;

/// Counters of a socket server, for its status.
#[derive(Debug, Default)]
pub struct SocketCounters {
    /// Open connections.
    pub open: AtomicU64,
    /// Accepted connections.
    pub accepted: AtomicU64,
    /// Connections that were refused, or closed for an error of their client.
    pub refused: AtomicU64,
    /// Connections that were closed because their credential was removed.
    pub revoked: AtomicU64,
    /// Number of times a connection was paused because its client did not read its replies.
    pub paused: AtomicU64,
    /// Largest number of reply bytes that were ever queued for one connection.
    pub queued_most: AtomicU64,
    /// Bytes of incomplete messages.
    pub unfinished: AtomicU64,
    /// Open connections by role and credential, as of the last second.
    admitted: Mutex<Vec<AdmittedConnections>>,
}

impl SocketCounters {
    /// Returns the open connections by role and credential, as of the last second.
    pub fn admitted(&self) -> Vec<AdmittedConnections> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_admitted(&self, admitted: Vec<AdmittedConnections>) {
        *self.admitted.lock().unwrap_or_else(PoisonError::into_inner) = admitted;
    }
}
