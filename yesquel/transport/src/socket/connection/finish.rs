//! The end of a connection.

use super::ServerConnection;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a connection that is to be closed waits for input at a time.
pub(super) const FINISH_STEP: Duration = Duration::from_millis(5);

impl ServerConnection {
    /// Before the connection is closed: waits until the server's machine has the requests without a
    /// waiting caller, by a deadline. A connection that is closed with unread input is reset, which
    /// discards what was not sent yet.
    pub(in crate::socket) fn finish(&self, until: Instant) {
        if self.is_closed() || !self.slots.has_handlers() {
            return;
        }
        // Another thread may be sending what it took over.
        self.wait_while(until, || self.lock().is_taken, || false);
        self.channel.end_sending();
        if self.channel.timeout(FINISH_STEP).is_ok() {
            self.wait_while(until, || self.channel.has_unacknowledged(), || self.receive_handled());
        }
    }

    /// Waits for something of which nothing tells, until a deadline: asks again and again. `act` runs
    /// in between, and says whether it has waited itself.
    pub(super) fn wait_while(
        &self,
        until: Instant,
        mut is_to_wait: impl FnMut() -> bool,
        act: impl Fn() -> bool,
    ) {
        while is_to_wait() && !self.is_closed() && Instant::now() < until {
            if !act() {
                thread::sleep(FINISH_STEP);
            }
        }
    }
}
