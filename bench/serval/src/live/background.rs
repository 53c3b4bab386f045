//! A thread beside the run.

use std::{
    io,
    thread::{Builder, JoinHandle},
};

/// A thread that works until this is dropped, which waits for its end. The thread gets the other end of the channel
/// with the sender `S`: its closing is the request to end.
pub(super) struct Background<S> {
    end: Option<S>,
    thread: Option<JoinHandle<()>>,
}

impl<S> Background<S> {
    pub(super) fn start(
        name: &str,
        end: S,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Background<S>> {
        let thread = Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Background { end: Some(end), thread: Some(thread) })
    }

    /// Ends the thread, and waits for that.
    pub(super) fn end(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<S> Drop for Background<S> {
    fn drop(&mut self) {
        self.end();
    }
}
