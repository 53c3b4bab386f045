//! A server process with a folder of its own: what all servers share.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Result;
use crate::children::{Children, Running};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A free port may be taken by somebody else before the server binds it;
/// losing that race this often means something else is wrong.
const PORT_ATTEMPTS_MAX: usize = 5;

const LOG_NAME: &str = "server.log";
const LOG_TAIL_LINES: usize = 8;

/// A server that runs, with its folder. Dropping it stops it and removes its
/// files.
pub(crate) struct Process {
    // Before the folder: fields drop in this order, and the server must be
    // gone before its folder goes.
    running: Running,
    folder: TempDir,
    name: &'static str,
}

/// A folder that only we can read, for a server's files.
pub(crate) fn folder(name: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("serval-{name}-"))
        .tempdir()
        .map_err(|error| format!("no temporary folder: {error}"))
}

/// Writes a file of a server.
pub(crate) fn write(path: &Path, contents: &str) -> Result<()> {
    fs::write(path, contents).map_err(|error| format!("{}: {error}", path.display()))
}

/// A loopback port that nobody listens on now.
pub(crate) fn free_port() -> Result<u16> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    Ok(port.map_err(|error| format!("no free loopback port: {error}"))?.port())
}

/// Starts a server on a port, or on free ones until it gets one.
pub(crate) fn on_a_port<S>(
    port: Option<u16>,
    children: &Children,
    mut start: impl FnMut(u16) -> Result<S>,
) -> Result<S> {
    if let Some(port) = port {
        return start(port);
    }
    let mut outcome = Err(String::new());
    for _ in 0..PORT_ATTEMPTS_MAX {
        outcome = start(free_port()?);
        if outcome.is_ok() || children.interrupted().is_some() {
            break;
        }
    }
    outcome
}

impl Process {
    /// Starts a command in its folder, where its output goes too.
    pub(crate) fn start(
        children: &Children,
        name: &'static str,
        folder: TempDir,
        command: &mut Command,
    ) -> Result<Self> {
        let path = folder.path().join(LOG_NAME);
        let log = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let errors = log.try_clone().map_err(|error| format!("cannot log the errors of {name}: {error}"))?;
        command.current_dir(folder.path()).stdout(Stdio::from(log)).stderr(Stdio::from(errors));
        let running = children
            .start(command)
            .map_err(|error| format!("{error} (`cargo xtask test` installs what it needs)"))?;
        Ok(Process { running, folder, name })
    }

    /// The server's folder.
    #[cfg(test)]
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Asks until the server answers; at most so many seconds, since a
    /// machine that compiles at the same time is slow.
    pub(crate) fn wait_until_ready(
        &self,
        seconds_max: u64,
        mut ask: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(seconds_max);
        loop {
            let Err(reason) = ask() else { return Ok(()) };
            if self.running.ended()? {
                return Err(format!("{} ended at its start{}", self.name, self.log_tail()));
            }
            if self.running.interrupted() {
                return Err("interrupted".to_owned());
            }
            if Instant::now() > deadline {
                let tail = self.log_tail();
                return Err(format!("{} is not ready after {seconds_max} s: {reason}{tail}", self.name));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until a signal stops the server with the task; its ending by
    /// itself is an error.
    pub(crate) fn wait_for_interrupt(&self) -> Result<()> {
        self.running.wait_for_end()?;
        if self.running.interrupted() {
            Ok(())
        } else {
            Err(format!("{} ended by itself{}", self.name, self.log_tail()))
        }
    }

    /// The end of the server's log, which says why it would not start.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join(LOG_NAME)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        if tail.is_empty() { String::new() } else { format!("; its log ends:\n  {}", tail.join("\n  ")) }
    }
}
