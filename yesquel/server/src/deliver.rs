//! Where replies go.

use yesquel_engine::Asker;

/// Whoever takes replies.
pub trait Deliver: Send + Sync + 'static {
    /// A reply may go out. Called under the core's lock: it must not call the
    /// core.
    fn deliver(&self, asker: Asker, reply: &[u8]);

    /// A reply of so many bytes waits for the disk. Short ones wait untold.
    fn hold(&self, _: Asker, _: usize) {}

    /// It does not any more, and is delivered next.
    fn let_go(&self, _: Asker, _: usize) {}

    /// Those were all for now, from a thread that handles no requests. Called
    /// without the lock.
    fn delivered(&self) {}
}
