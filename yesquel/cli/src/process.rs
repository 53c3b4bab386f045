//! Process of a server: signals and panics.

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag,
    iterator::Signals,
};
use std::{
    ffi::c_int,
    fs::File,
    io::{self, Write},
    panic, process,
    sync::Arc,
};

/// Exit status after a panic, as Rust's runtime uses it.
const PANICKED: i32 = 101;

/// Standard error, for the log. Failed writes are ignored: the disk may be full, or the terminal
/// gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // There is nowhere to report this.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a panic of any thread end the process. Otherwise it would continue as half a server, which
/// no supervisor restarts.
pub(crate) fn end_on_panic() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        tell(panicked);
        let mut errors = StandardError;
        // Writing to `StandardError` never fails.
        let _ = writeln!(errors, "error: the server ends, because of a fault of its own (see above)");
        process::exit(PANICKED);
    }));
}

/// Returns whether the parent process has set the signal to be ignored.
fn is_ignored(signal: c_int) -> bool {
    // SAFETY: zeros are a valid `sigaction`, and a null new action changes nothing.
    #[expect(unsafe_code, reason = "the system's interface, for which there is no other")]
    unsafe {
        let mut known: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut known) == 0 && known.sa_sigaction == libc::SIG_IGN
    }
}

/// What a signal asks of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// To end cleanly.
    End(c_int),
    /// To read the files of certificates and credentials again.
    Reload,
}

/// Whether the process has a controlling terminal.
fn has_terminal() -> bool {
    !is_without_terminal(&File::open("/dev/tty"))
}

/// Whether the result of opening `/dev/tty` says that the process has no controlling terminal. Others, such
/// as too many open files, do not: they must not end the server.
fn is_without_terminal<T>(opened: &io::Result<T>) -> bool {
    opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO))
}

/// Signals of a server.
pub(crate) struct ServerSignals {
    signals: Signals,
    /// Whether the end of its terminal ends the server.
    ends_with_terminal: bool,
}

impl ServerSignals {
    /// Takes the signals over. Also ignores the signal of the file size limit: the write fails then, as
    /// on a full disk.
    pub(crate) fn new() -> io::Result<ServerSignals> {
        flag::register(SIGXFSZ, Arc::default())?;
        // Closing a terminal ends the programs started there, except under `nohup`.
        let ends_with_terminal = !is_ignored(SIGHUP) && has_terminal();
        Ok(ServerSignals { signals: Signals::new([SIGINT, SIGTERM, SIGHUP])?, ends_with_terminal })
    }

    /// Iterates over the requests, waiting for each.
    pub(crate) fn requests(&mut self) -> impl Iterator<Item = SignalRequest> {
        let ServerSignals { signals, ends_with_terminal } = self;
        let ends_with_terminal = *ends_with_terminal;
        signals.forever().map(move |signal| match signal {
            // The system sends it when the terminal is closed, and takes the terminal away before.
            SIGHUP if !ends_with_terminal || has_terminal() => SignalRequest::Reload,
            signal => SignalRequest::End(signal),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, process::Command, thread};

    #[test]
    fn only_one_error_says_that_the_terminal_is_gone() {
        assert!(is_without_terminal::<()>(&Err(io::Error::from_raw_os_error(libc::ENXIO))));
        for error in [libc::EMFILE, libc::ENFILE, libc::EACCES, libc::EIO, libc::ENOENT] {
            assert!(!is_without_terminal::<()>(&Err(io::Error::from_raw_os_error(error))), "{error}");
        }
        assert!(!is_without_terminal(&Ok(())));
    }

    const CHILD: &str = "YESQUEL_TEST_PANICS";

    /// Second half of the next test: a process in which a thread panics.
    #[test]
    fn a_process_of_which_a_thread_panics() {
        if env::var_os(CHILD).is_none() {
            return;
        }
        end_on_panic();
        let thread = thread::Builder::new().name("sockets".to_owned()).spawn(|| panic!("by intention"));
        // No code waits for the end of a background thread.
        let _ = thread.unwrap().join();
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_process() {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "process::tests::a_process_of_which_a_thread_panics", "--nocapture"]);
        let output = child.env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(PANICKED), "{said}");
        for word in ["by intention", "'sockets'", "the server ends"] {
            assert!(said.contains(word), "{said}");
        }
    }
}
