//! Destination of replies.

use yesquel_engine::Caller;

/// Receiver of replies.
pub trait ReplySink {
    /// Delivers a reply. Called inside a step: it must not call the core.
    fn deliver(&self, caller: Caller, reply: &[u8]);

    /// Sends a notice to a connection. No reply that is delivered later, to any connection, may leave
    /// before it. Called inside a step.
    fn notify(&self, _connection: u64, _notice: &[u8]) {}

    /// A reply of so many bytes waits for the disk. Not called for short replies.
    fn reply_held(&self, _: Caller, _: usize) {}

    /// The reply no longer waits, and is delivered next.
    fn reply_released(&self, _: Caller, _: usize) {}

    /// Ends a batch of replies delivered by a thread that handles no requests. Called outside steps.
    fn flush(&self) {}
}

impl<S: ReplySink> ReplySink for std::sync::Arc<S> {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        (**self).deliver(caller, reply);
    }

    fn notify(&self, connection: u64, notice: &[u8]) {
        (**self).notify(connection, notice);
    }

    fn reply_held(&self, caller: Caller, bytes: usize) {
        (**self).reply_held(caller, bytes);
    }

    fn reply_released(&self, caller: Caller, bytes: usize) {
        (**self).reply_released(caller, bytes);
    }

    fn flush(&self) {
        (**self).flush();
    }
}
