//! A driver's process: started with Unix sockets as its standard input and
//! output, its last words kept, ended with its group.

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

/// Lines of standard error that are kept for an error's message.
const LAST_WORDS: usize = 8;

/// Longest line of standard error that is shown whole.
const LINE_MAX: u64 = 4096;

/// How often an exit is looked for.
const POLL: Duration = Duration::from_millis(2);

/// Time that a driver whose output has ended is given to exit, so that its
/// exit status can be told.
const EXIT_STATUS_WAIT: Duration = Duration::from_secs(2);

/// A driver's ear and mouth: for one that listens on a socket, that socket
/// twice.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) requests: UnixStream,
    pub(crate) answers: UnixStream,
}

/// A driver that runs. Dropping it waits for its exit for a while, and then
/// kills its group.
#[derive(Debug)]
pub(crate) struct Process {
    command: String,
    child: Mutex<Child>,
    words: Arc<Mutex<VecDeque<String>>>,
    listener: Option<thread::JoinHandle<()>>,
    grace: Duration,
}

/// The command of a line for the shell, which splits it into words as people
/// expect.
pub(crate) fn shell(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    // The shell is replaced, so that its process is the driver's.
    command.arg("-c").arg(format!("exec {line}"));
    command
}

impl Process {
    /// Starts a command. Returns our ends of the sockets that it has as its
    /// standard input and output.
    pub(crate) fn start(
        mut command: Command,
        shown: &str,
        grace: Duration,
    ) -> Result<(Process, Talk), StoreError> {
        let failed = |what: &str, error: std::io::Error| {
            StoreError::new(format!("driver '{shown}'"), format!("{what}: {error}"))
        };
        let pair = || UnixStream::pair().map_err(|error| failed("no socket for it", error));
        let ((requests, input), (answers, output)) = (pair()?, pair()?);
        command
            .stdin(Stdio::from(OwnedFd::from(input)))
            .stdout(Stdio::from(OwnedFd::from(output)))
            .stderr(Stdio::piped())
            // A Ctrl-C in the terminal is for Serval, which ends the run and
            // then the driver.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| failed("cannot be started", error))?;
        // The command still holds the driver's ends of the sockets.
        drop(command);
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let listener = child.stderr.take().map(|stderr| {
            let words = Arc::clone(&words);
            thread::spawn(move || listen(stderr, &words))
        });
        let command = shown.to_owned();
        Ok((
            Process { command, child: Mutex::new(child), words, listener, grace },
            Talk { requests, answers },
        ))
    }

    /// Waits for the exit, at most so long.
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

    /// Waits until all that the driver has said is read; not long, for what it
    /// has started may go on talking.
    fn hear_out(&self) {
        let deadline = Instant::now() + EXIT_STATUS_WAIT;
        while self.listener.as_ref().is_some_and(|listener| !listener.is_finished())
            && Instant::now() < deadline
        {
            thread::sleep(POLL);
        }
    }

    /// An error of the driver: what went wrong, how it exited if it did, and
    /// its last words.
    pub(crate) fn failed(&self, what: &str) -> StoreError {
        let exit = match self.exit(EXIT_STATUS_WAIT) {
            Some(status) => {
                self.hear_out();
                format!(" It has exited with {status}.")
            }
            None => String::new(),
        };
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = match words.len() {
            0 => String::new(),
            _ => {
                format!(" Its last words:\n  {}", words.iter().cloned().collect::<Vec<_>>().join("\n  "))
            }
        };
        StoreError::new(format!("driver '{}'", self.command), format!("{what}.{exit}{words}"))
    }
}

impl Drop for Process {
    /// The driver's input must have been closed by now.
    fn drop(&mut self) {
        let exited = self.exit(self.grace).is_some();
        if !exited {
            eprintln!(
                "warning: the driver '{}' did not exit within {:?} of the end of its input (driver.grace): killed",
                self.command, self.grace
            );
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // What a driver that exited has started and left goes too.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        drop(child);
        // Not longer: what has left the group may hold its standard error for ever.
        self.hear_out();
    }
}

/// Shows what the driver says, and keeps the end of it.
fn listen(stderr: impl Read, words: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        // Somebody who closed our standard error does not want to know.
        let _ = writeln!(std::io::stderr(), "driver: {text}");
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == LAST_WORDS {
            words.pop_front();
        }
        words.push_back(text);
    }
}
