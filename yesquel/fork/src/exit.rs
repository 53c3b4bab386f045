//! Exit of the process with connections that are open: what was sent must arrive.
//!
//! A program may call `exit()`, or return from `main()`, right after a commit, without closing its
//! connections. The kernel then closes them, and resets those that have unread input; a reset
//! discards what was not sent yet. So a handler of `atexit()` waits until the peers' machines have
//! acknowledged everything, for a limited time. It changes nothing at the connections, which other
//! threads may still use, takes no lock and allocates nothing.

use crate::registered::{NONE, REGISTERED, Registered};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::{Once, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// Pause between two looks at the send queues.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Counts the messages of a connection that must arrive although the process exits.
#[derive(Debug, Clone, Copy)]
pub struct UnansweredMessages(pub(crate) Option<&'static Registered>);

impl UnansweredMessages {
    /// Adds a message that is about to be sent.
    pub fn add(self) {
        if let Some(place) = self.0 {
            place.unanswered.fetch_add(1, SeqCst);
        }
    }

    /// Sets whether some of them were not handed to the operating system yet.
    pub fn set_unsent(self, is_unsent: bool) {
        if let Some(place) = self.0 {
            place.is_unsent.store(is_unsent, SeqCst);
        }
    }

    /// Removes a message: its reply has come, or none will.
    pub fn remove(self) {
        if let Some(place) = self.0 {
            place.unanswered.fetch_sub(1, SeqCst);
        }
    }
}

/// Bytes that a socket has not sent yet, or that the peer's machine has not acknowledged.
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u32> {
    queued(socket.as_raw_fd())
}

fn queued(file: RawFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int and nothing else. If the descriptor was closed meanwhile, it
    // fails, or asks another file, which does no harm.
    if unsafe { libc::ioctl(file, libc::TIOCOUTQ, &mut bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or_default())
}

impl Registered {
    /// Whether a message may be lost if the process exits now, this long after the exit began.
    fn must_wait(&self, passed: Duration) -> bool {
        let file = self.file.load(SeqCst);
        file != NONE
            && passed < Duration::from_millis(self.exit_ms.load(SeqCst).into())
            && self.unanswered.load(SeqCst) > 0
            && (self.is_unsent.load(SeqCst) || queued(file).is_ok_and(|bytes| bytes > 0))
    }
}

/// Runs when the process exits. In a child process the table has only what the child has opened.
extern "C" fn at_exit() {
    let begun = Instant::now();
    while REGISTERED.iter().any(|place| place.must_wait(begun.elapsed())) {
        thread::sleep(LOOK_EVERY);
    }
}

/// Waits at the exit of this process and of its children.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler lives as long as this library is loaded, and unloading calls it and
        // removes it. If the call fails for lack of memory, the process exits without a wait.
        unsafe { libc::atexit(at_exit) };
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;
    use crate::CloseOnFork;
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsFd,
    };

    /// Time in seconds after which a child that hangs is killed.
    const PATIENCE: u32 = 60;

    /// A child exits at once although its parent's messages are on their way, and the parent's
    /// connection goes on.
    #[test]
    fn a_child_does_not_wait_for_messages_of_its_parent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let registered = CloseOnFork::new(stream.as_fd());
        let unanswered = registered.unanswered(Duration::MAX);
        // More than the peer's machine takes while the peer does not read.
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let full = loop {
            match stream.write(&[7; 1 << 16]) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        unanswered.add();
        let place = unanswered.0.unwrap();
        assert!(place.must_wait(Duration::ZERO));
        // SAFETY: the child only exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: it does not return.
            unsafe {
                libc::alarm(PATIENCE);
                libc::exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: it is a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "the child has waited");
        assert!(place.must_wait(Duration::ZERO));
        let mut received = vec![0; sent];
        peer.read_exact(&mut received).unwrap();
        unanswered.remove();
        assert!(!place.must_wait(Duration::ZERO));
        drop((registered, stream));
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}
