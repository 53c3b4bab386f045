//! Where replies go.

use yesquel_engine::Caller;

/// Whoever takes replies.
pub trait ReplySink: Send + Sync + 'static {
    /// A reply may go out. Called under the core's lock: it must not call the
    /// core.
    fn deliver(&self, caller: Caller, reply: &[u8]);

    /// A reply of so many bytes waits for the disk. Short ones wait untold.
    fn reply_held(&self, _: Caller, _: usize) {}

    /// It does not any more, and is delivered next.
    fn reply_released(&self, _: Caller, _: usize) {}

    /// Those were all for now, from a thread that handles no requests. Called
    /// without the lock.
    fn flush(&self) {}
}
