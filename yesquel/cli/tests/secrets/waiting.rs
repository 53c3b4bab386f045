//! Waiting for a server's work.

use crate::support::Process;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::thread;

/// Waits until a condition holds, as long as the process lives.
#[track_caller]
pub(crate) fn wait_until(process: &Process, mut is_so: impl FnMut() -> bool) {
    loop {
        // Leaves the exit status to others. Before the condition is looked at for the last time.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let has_ended = !matches!(waitid(WaitId::Pid(process.id()), options), Ok(None));
        if is_so() {
            return;
        }
        assert!(!has_ended, "the server ended: {}", process.said());
        thread::yield_now();
    }
}
