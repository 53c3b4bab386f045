//! A driver's process. It has Unix sockets as standard input and output; the end of
//! its standard error is kept for messages; its process group ends with it.

use rustix::process::{Pid, Signal, kill_process_group};
use serval_model::StoreError;
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Number of lines of standard error that an error's message shows.
const LAST_LINES: usize = 8;

/// Longest line of standard error, bytes; longer ones are split.
const LINE_MAX: u64 = 4096;

/// Interval at which an exit is polled for.
const POLL: Duration = Duration::from_millis(2);

/// Time limit for the exit of a driver whose output has ended, so that an error can report its exit status.
const EXIT_STATUS_WAIT: Duration = Duration::from_secs(2);

/// A driver's input and output; the same socket twice for a driver that listens on
/// one.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) requests: UnixStream,
    pub(crate) answers: UnixStream,
}

/// A running driver. Dropping it waits for its exit for a time limit, then kills
/// its process group.
#[derive(Debug)]
pub(crate) struct DriverProcess {
    command: String,
    child: Mutex<Child>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    stderr_reader: Option<thread::JoinHandle<()>>,
    grace: Duration,
}

/// Returns the command that runs a line in a shell, which splits it into words.
pub(crate) fn shell(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    // `exec` replaces the shell, so that the child process is the driver.
    command.arg("-c").arg(format!("exec {line}"));
    command
}

impl DriverProcess {
    /// Starts a command. Returns Serval's ends of its standard input and output.
    pub(crate) fn start(
        mut command: Command,
        shown: &str,
        grace: Duration,
    ) -> Result<(DriverProcess, Streams), StoreError> {
        let failed = |what: &str, error: std::io::Error| {
            StoreError::new(format!("driver '{shown}'"), format!("{what}: {error}"))
        };
        let pair = || UnixStream::pair().map_err(|error| failed("no socket for it", error));
        let ((requests, input), (answers, output)) = (pair()?, pair()?);
        command
            .stdin(Stdio::from(OwnedFd::from(input)))
            .stdout(Stdio::from(OwnedFd::from(output)))
            .stderr(Stdio::piped())
            // Ctrl-C must reach Serval only, which ends the run and then the
            // driver.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| failed("cannot be started", error))?;
        // The command holds the driver's ends of the sockets.
        drop(command);
        let last_lines = Arc::new(Mutex::new(VecDeque::new()));
        let stderr_reader = child.stderr.take().map(|stderr| {
            let last_lines = Arc::clone(&last_lines);
            thread::spawn(move || copy_stderr(stderr, &last_lines))
        });
        let command = shown.to_owned();
        Ok((
            DriverProcess { command, child: Mutex::new(child), last_lines, stderr_reader, grace },
            Streams { requests, answers },
        ))
    }

    /// Waits for the exit for at most `wait`.
    pub(crate) fn exit(&self, wait: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + wait;
        loop {
            let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
            if let Ok(Some(status)) = status {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until the driver's standard error has been read, for a limited time: a child
    /// process may hold it open.
    fn finish_stderr(&self) {
        let deadline = Instant::now() + EXIT_STATUS_WAIT;
        while self.stderr_reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < deadline
        {
            thread::sleep(POLL);
        }
    }

    /// Returns an error of the driver: what failed, its exit status, and the end of
    /// its standard error.
    pub(crate) fn failed(&self, what: &str) -> StoreError {
        let exit = match self.exit(EXIT_STATUS_WAIT) {
            Some(status) => {
                self.finish_stderr();
                format!(" It has exited with {status}.")
            }
            None => String::new(),
        };
        let lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = match lines.len() {
            0 => String::new(),
            _ => {
                format!(" Its last words:\n  {}", lines.iter().cloned().collect::<Vec<_>>().join("\n  "))
            }
        };
        StoreError::new(format!("driver '{}'", self.command), format!("{what}.{exit}{lines}"))
    }
}

impl Drop for DriverProcess {
    /// The driver's input must be closed before.
    fn drop(&mut self) {
        let exited = self.exit(self.grace).is_some();
        if !exited {
            eprintln!(
                "warning: the driver '{}' did not exit within {:?} of the end of its input (driver.grace): killed",
                self.command, self.grace
            );
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // Kills child processes that a driver has left, too.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        drop(child);
        // A process that has left the group may hold the driver's standard error open for ever.
        self.finish_stderr();
    }
}

/// Copies the driver's standard error to Serval's and keeps its last lines.
fn copy_stderr(stderr: impl Read, last_lines: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        // A closed standard error is not a failure.
        let _ = writeln!(std::io::stderr(), "driver: {text}");
        let mut lines = last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}
