//! Table of the descriptors that belong to this process only.
//!
//! Handlers of `fork()` and of the process's exit read it, where taking a lock is not allowed: a
//! thread that no longer runs may hold it.

use std::{
    os::fd::RawFd,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst},
};

/// Descriptors that can be registered at a time; a child inherits any beyond these.
const REGISTERED_MAX: usize = 1024;
pub(crate) const NONE: RawFd = -1;

pub(crate) static REGISTERED: [Registered; REGISTERED_MAX] = [const { Registered::new() }; REGISTERED_MAX];

/// A place of the table.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) file: AtomicI32,
    /// Messages that must leave this machine before the process exits, and have no reply yet.
    pub(crate) unanswered: AtomicU32,
    /// Whether some of them may still be in the memory of this process.
    pub(crate) is_unsent: AtomicBool,
    /// How long the exit may wait for them, in milliseconds.
    pub(crate) exit_ms: AtomicU32,
}

impl Registered {
    const fn new() -> Registered {
        Registered {
            file: AtomicI32::new(NONE),
            unanswered: AtomicU32::new(0),
            is_unsent: AtomicBool::new(false),
            exit_ms: AtomicU32::new(0),
        }
    }

    /// Registers a descriptor.
    pub(crate) fn add(file: RawFd) -> Option<&'static Registered> {
        let is_free = |place: &&Registered| place.file.compare_exchange(NONE, file, SeqCst, SeqCst).is_ok();
        let place = REGISTERED.iter().find(is_free)?;
        // The connection before may have been of the parent process.
        place.unanswered.store(0, SeqCst);
        place.is_unsent.store(false, SeqCst);
        Some(place)
    }
}
