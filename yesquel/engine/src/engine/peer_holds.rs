//! Snapshots that clients of other servers hold, as those servers report them.
//!
//! A client reports its snapshots to the servers that it has called. It may call another one later,
//! at the same snapshot: that server must keep the versions too.

use super::Engine;
use crate::effects::Now;
use yesquel_model::{ServerId, Timestamp};

/// Time in milliseconds for which the last report of a silent server counts: its clients have time
/// to report to another one.
const SILENT_MS_MAX: u64 = 10_000;

/// Numbers under which servers hold snapshots; no connection has them.
const FIRST_PEER: u64 = 1 << 62;

fn connection_of(server: ServerId) -> u64 {
    FIRST_PEER + u64::from(server.0)
}

fn is_peer(connection: u64) -> bool {
    (FIRST_PEER..=FIRST_PEER + u64::from(u16::MAX)).contains(&connection)
}

impl Engine {
    /// Returns the oldest two snapshots that clients of this server hold, in order, and whether
    /// they hold others above them.
    pub fn held_by_clients(&self) -> ([Option<Timestamp>; 2], bool) {
        self.snapshots.held_by(|connection| !is_peer(connection))
    }

    /// Takes the report of another server on the snapshots that its clients hold.
    pub fn hold_for_peer(&mut self, now: Now, server: ServerId, oldest: [Option<Timestamp>; 2], more: bool) {
        self.snapshots.hold(connection_of(server), oldest, more);
        self.peers_heard_ms.insert(server, now.uptime_ms);
    }

    /// Keeps snapshots that are not held for so long at least, from now on: a server that has joined
    /// needs time to report what its clients hold.
    pub fn raise_grace(&mut self, grace_ms: u64) {
        self.settings.grace_ms = self.settings.grace_ms.max(grace_ms);
        self.snapshots.raise_grace(grace_ms);
    }

    /// Releases what servers hold that have been silent for too long.
    pub(crate) fn expire_peers(&mut self, now: Now) {
        let silent = |heard_ms: u64| heard_ms + SILENT_MS_MAX <= now.uptime_ms;
        if self.peers_heard_ms.values().any(|heard_ms| silent(*heard_ms)) {
            let snapshots = &mut self.snapshots;
            self.peers_heard_ms.retain(|server, heard_ms| {
                if silent(*heard_ms) {
                    snapshots.hold(connection_of(*server), [None; 2], false);
                }
                !silent(*heard_ms)
            });
        }
    }
}
