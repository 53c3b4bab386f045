//! Closing of the connections whose credential was removed.

use super::{SocketLoop, SocketReplies, admission::Admitted, connection::CloseReason};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    time::Duration,
};

/// Time limit for the thread of the sockets to close the connections. It is late only if it is stuck.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the thread of the sockets close the connections whose credential was removed.
#[derive(Debug, Clone)]
pub struct Revocations {
    sink: SocketReplies,
    /// Where the numbers of closed connections are asked for.
    requests: Sender<SyncSender<usize>>,
}

/// Requests of [`Revocations`].
pub(super) type RevocationRequests = Receiver<SyncSender<usize>>;

impl Revocations {
    pub(super) fn new(sink: SocketReplies) -> (Revocations, RevocationRequests) {
        let (requests, receiver) = channel();
        (Revocations { sink, requests }, receiver)
    }

    /// Closes the connections whose credential is not accepted any more, and waits for that: when it
    /// returns a number, so many were closed, and no request of them is handled. `None`: the thread of the
    /// sockets does not answer, and closes them later.
    pub fn close_revoked(&self) -> Option<usize> {
        let (reply, closed) = sync_channel(1);
        // A thread that has ended has closed all connections.
        if self.requests.send(reply).is_err() {
            return Some(0);
        }
        self.sink.wake();
        match closed.recv_timeout(TIMEOUT) {
            Ok(count) => Some(count),
            Err(RecvTimeoutError::Disconnected) => Some(0),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }
}

impl SocketLoop {
    /// Answers the requests to close connections.
    pub(super) fn serve_revocations(&mut self) {
        while let Ok(reply) = self.revoked.try_recv() {
            // The asking thread may have ended.
            let _ = reply.send(self.close_revoked());
        }
    }

    /// Closes the connections whose credential was removed. Returns their number.
    fn close_revoked(&mut self) -> usize {
        let secrets = self.admission.secrets.get();
        let is_revoked = |admitted: &Admitted| admitted.is_revoked(&secrets);
        let revoked = self.connections.values();
        let revoked = revoked.filter(|connection| connection.admitted.as_ref().is_some_and(is_revoked));
        let ends: Vec<_> = revoked.map(|connection| (connection.number, CloseReason::Revoked)).collect();
        // What was permitted is answered.
        ends.iter().for_each(|(number, _)| self.send(*number));
        let count = ends.len();
        self.end_all(ends);
        self.count_admitted();
        if count > 0 {
            tracing::warn!(connections = count, "connections were closed: their credential was removed");
        }
        count
    }
}
