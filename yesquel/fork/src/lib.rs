//! Connections and servers of a process that forks or exits.
//!
//! A child process must not use the servers and connections of its parent. `fork()` copies memory
//! and file descriptors but no threads. A handle therefore records the [`generation`] of the
//! process that made it and refuses to work in another one. Files and sockets that are registered
//! with [`CloseOnFork`] are closed in the child.
//!
//! A process that exits waits until its last [messages](UnansweredMessages) have left it.

#![allow(unsafe_code)]

mod exit;
mod registered;

pub use exit::{UnansweredMessages, unacknowledged_bytes};

use registered::{NONE, REGISTERED, Registered};
use std::{
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Number of this process among those that share its memory image. A handle that was made under
/// another number must not be used. Forks count from the first call of [`watch`] or
/// [`CloseOnFork::new`].
pub fn generation() -> u32 {
    GENERATION.load(SeqCst)
}

/// Runs first in a child, on its only thread, where taking a lock is not allowed.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, SeqCst);
    let mut null = NONE;
    for place in &REGISTERED {
        let file = place.file.swap(NONE, SeqCst);
        if file == NONE {
            continue;
        }
        // SAFETY: these calls are async-signal-safe. The descriptor's number stays open, on
        // /dev/null, so that its owner can still close it.
        unsafe {
            if null == NONE {
                null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
            if null != NONE {
                libc::dup3(null, file, libc::O_CLOEXEC);
            }
        }
    }
    if null != NONE {
        // SAFETY: it was opened above.
        unsafe { libc::close(null) };
    }
}

/// Starts counting forks.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler lives as long as this library is loaded, and unloading removes it.
        // The call fails only without memory, and then fork() fails too.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// A file or socket that belongs to this process only: in a child its number refers to /dev/null.
/// Drop this before the descriptor is closed.
#[derive(Debug)]
pub struct CloseOnFork(Option<(&'static Registered, RawFd)>);

impl CloseOnFork {
    /// Registers a descriptor.
    pub fn new(file: BorrowedFd<'_>) -> CloseOnFork {
        watch();
        let file = file.as_raw_fd();
        CloseOnFork(Registered::add(file).map(|place| (place, file)))
    }

    /// Returns the counter of messages for which the exit of the process waits, and sets how long.
    pub fn unanswered(&self, timeout: Duration) -> UnansweredMessages {
        exit::watch();
        let place = self.0.map(|(place, _)| place);
        if let Some(place) = place {
            place.exit_ms.store(u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX), SeqCst);
        }
        UnansweredMessages(place)
    }
}

impl Drop for CloseOnFork {
    fn drop(&mut self) {
        if let Some((place, file)) = self.0 {
            // In a child the place may already hold another descriptor.
            let _ = place.file.compare_exchange(file, NONE, SeqCst, SeqCst);
        }
    }
}
