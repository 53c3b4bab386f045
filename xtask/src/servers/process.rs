//! A server process with its own folder: code shared by all servers.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Result;
use crate::children::{Children, Running, line};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Attempts at a free port: another process may take it before the server binds it. More failures
/// have another cause.
const PORT_ATTEMPTS_MAX: usize = 5;

const LOG_NAME: &str = "server.log";
const SETUP_LOG_NAME: &str = "setup.log";
const LOG_TAIL_LINES: usize = 8;
/// Lines of a failed command that are shown: the error precedes the advice.
const SETUP_LOG_TAIL_LINES: usize = 40;

/// A running server with its folder. Dropping it stops it and removes its files.
pub(crate) struct ServerProcess {
    // Before the folder: fields drop in this order, and the server must be
    // gone before its folder goes.
    running: Running,
    folder: TempDir,
    name: &'static str,
}

/// Makes a folder for a server's files that only this user can read.
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

/// Account of a server if this process is root: some servers refuse to run as root.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    name: &'static str,
    user: u32,
    group: u32,
}

impl Account {
    /// Returns the account of this name; `None` if this process is not root.
    pub(crate) fn of_server(name: &'static str) -> Result<Option<Account>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let found = accounts.lines().find_map(|line| {
            let mut parts = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        });
        let (user, group) = found.ok_or_else(|| format!("there is no user '{name}' to run the server as"))?;
        Ok(Some(Account { name, user, group }))
    }
}

/// Gives a file or folder to an account.
pub(crate) fn give(path: &Path, account: Option<Account>) -> Result<()> {
    let Some(Account { user, group, .. }) = account else { return Ok(()) };
    std::os::unix::fs::chown(path, Some(user), Some(group))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A command that runs under an account. It becomes the program: its process
/// id is the program's.
pub(crate) fn command_as(account: Option<Account>, program: &str) -> Command {
    let path = crate::setup::find(program).unwrap_or_else(|| program.into());
    let Some(Account { name, .. }) = account else { return Command::new(path) };
    let mut command = Command::new("setpriv");
    command.args(["--reuid", name, "--regid", name, "--clear-groups", "--"]).arg(path);
    command
}

/// Runs a command that makes a server's files; its output is shown only if it fails.
pub(crate) fn set_up(children: &Children, folder: &Path, command: &mut Command) -> Result<()> {
    let path = folder.join(SETUP_LOG_NAME);
    let log = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let errors = log.try_clone().map_err(|error| format!("cannot log the errors: {error}"))?;
    command.current_dir(folder).stdout(Stdio::from(log)).stderr(Stdio::from(errors));
    let status = children.run(command)?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{}` failed: {status}{}", line(command), tail_of(&path, SETUP_LOG_TAIL_LINES)))
}

/// Options of openssl for a self-signed certificate that is not a CA.
const TLS_CONFIG: &str = "[req]\ndistinguished_name=name\nx509_extensions=extensions\nprompt=no\n\
    [name]\nCN=localhost\n\
    [extensions]\nsubjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n";

/// Makes `server.crt` and `server.key` in a folder, for a server's TLS.
pub(crate) fn certificate(children: &Children, folder: &Path, account: Option<Account>) -> Result<()> {
    write(&folder.join("openssl.cnf"), TLS_CONFIG)?;
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-config", "openssl.cnf", "-days", "30", "-nodes"]);
    command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    command.args(["-keyout", "server.key", "-out", "server.crt"]);
    set_up(children, folder, &mut command)?;
    give(&folder.join("server.key"), account)?;
    give(&folder.join("server.crt"), account)
}

/// Makes a folder `client` with a second pair, not signed by the server's, for client
/// authentication; returns its certificate.
pub(crate) fn client_certificate(
    children: &Children,
    folder: &Path,
    account: Option<Account>,
) -> Result<PathBuf> {
    let client = folder.join("client");
    fs::create_dir(&client).map_err(|error| format!("{}: {error}", client.display()))?;
    give(&client, account)?;
    certificate(children, &client, account)?;
    Ok(client.join("server.crt"))
}

/// The end of a log.
fn tail_of(path: &Path, lines_max: usize) -> String {
    let log = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(lines_max)..];
    if tail.is_empty() { String::new() } else { format!("; its log ends:\n  {}", tail.join("\n  ")) }
}

/// Returns a free loopback port.
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

impl ServerProcess {
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
        Ok(ServerProcess { running, folder, name })
    }

    /// The server's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Polls until the server answers, up to a time limit that suits a busy machine.
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

    /// Waits until a signal stops the server together with the task; its own exit is an error.
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
        tail_of(&self.folder.path().join(LOG_NAME), LOG_TAIL_LINES)
    }

    /// Returns whether the server's log contains this text.
    pub(crate) fn log_has(&self, words: &str) -> bool {
        fs::read_to_string(self.folder.path().join(LOG_NAME)).is_ok_and(|log| log.contains(words))
    }

    /// Sends the server a signal and waits for its exit, so that it releases resources that outlive
    /// a process; dropping kills it in any case.
    pub(crate) fn end_with(&self, signal: Signal, seconds_max: u64) {
        let deadline = Instant::now() + Duration::from_secs(seconds_max);
        let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else { return };
        // This fails only if the server has ended, as intended; it is not reaped yet, so the id is
        // still its own.
        let _ = kill_process(pid, signal);
        while !self.running.ended().unwrap_or(true) && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }
}
