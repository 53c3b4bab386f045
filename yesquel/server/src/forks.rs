//! What becomes of this process's servers and connections in a child that it
//! forks: none is the child's. Threads do not go along, files and sockets do.

#![allow(unsafe_code)]

use std::{
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::{
        Once,
        atomic::{AtomicI32, AtomicU32, Ordering::SeqCst},
    },
};

/// How many forks lie between this process and the one that was started.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Files and sockets that a child is not to have; beyond so many it has them.
const KEPT_MAX: usize = 1024;
const NONE: RawFd = -1;
static KEPT: [AtomicI32; KEPT_MAX] = [const { AtomicI32::new(NONE) }; KEPT_MAX];

/// Which process this is, of those that have the same memory: what was made in
/// another one is not to be used. Counted from the first [`Kept`] on.
pub fn generation() -> u32 {
    GENERATION.load(SeqCst)
}

/// Before anything else in a child, on its only thread; where nothing may be done
/// that takes a lock.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, SeqCst);
    let mut nothing = NONE;
    for kept in &KEPT {
        let kept = kept.swap(NONE, SeqCst);
        if kept == NONE {
            continue;
        }
        // SAFETY: these are calls that a signal's handler may make. The number goes
        // on to be a file's, that of nobody: whoever has it may close it.
        unsafe {
            if nothing == NONE {
                nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
            if nothing != NONE {
                libc::dup3(nothing, kept, libc::O_CLOEXEC);
            }
        }
    }
    if nothing != NONE {
        // SAFETY: it was opened here.
        unsafe { libc::close(nothing) };
    }
}

/// From now on forks are noticed.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function is there as long as the process is, or the library,
        // with which it is taken away. Without memory for it there is none to fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// A file or socket that stays with this process: a child has nothing in its
/// place. To be dropped before it is closed.
#[derive(Debug)]
pub struct Kept(Option<(usize, RawFd)>);

impl Kept {
    /// Keeps it.
    pub fn new(file: BorrowedFd<'_>) -> Kept {
        watch();
        let file = file.as_raw_fd();
        let is_free = |place: &AtomicI32| place.compare_exchange(NONE, file, SeqCst, SeqCst).is_ok();
        Kept(KEPT.iter().position(is_free).map(|at| (at, file)))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some((at, file)) = self.0
            && let Some(place) = KEPT.get(at)
        {
            // In a child it is another one's by now, perhaps.
            let _ = place.compare_exchange(file, NONE, SeqCst, SeqCst);
        }
    }
}
