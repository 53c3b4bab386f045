//! A Redis that keeps nothing, on loopback only.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::resp::Connection;
use crate::Result;
use crate::children::{Children, Running};

/// It takes 0.05 s on an idle machine; a machine that compiles at the same
/// time is given far more.
const START_SECONDS_MAX: u64 = 20;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A free port may be taken by somebody else before the server binds it;
/// losing that race this often means something else is wrong.
const PORT_ATTEMPTS_MAX: usize = 5;

const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// How the server is to be started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Where it listens; a free port if `None`.
    pub(crate) port: Option<u16>,
    /// What it asks of its clients; nothing if `None`.
    pub(crate) password: Option<String>,
}

/// A redis-server that answers. Dropping it stops it and removes its files.
pub(crate) struct RedisServer {
    // Before the folder: fields drop in this order, and the server must be
    // gone before its folder goes.
    running: Running,
    folder: TempDir,
    port: u16,
    password: Option<String>,
}

impl RedisServer {
    /// Starts a server and returns once it answers.
    pub(crate) fn start(children: &Children, options: &Options) -> Result<Self> {
        if let Some(port) = options.port {
            return Self::start_on(port, children, options);
        }
        let mut outcome = Err(String::new());
        for _ in 0..PORT_ATTEMPTS_MAX {
            let port = free_port().map_err(|error| format!("no free loopback port: {error}"))?;
            outcome = Self::start_on(port, children, options);
            if outcome.is_ok() || children.interrupted().is_some() {
                break;
            }
        }
        outcome
    }

    fn start_on(port: u16, children: &Children, options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("serval-redis-")
            .tempdir()
            .map_err(|error| format!("no temporary folder: {error}"))?;
        let config = folder.path().join("redis.conf");
        // In a file that only we can read (the folder's mode is 0700), for
        // the arguments of a process are everybody's to see.
        fs::write(&config, config_text(port, options)?)
            .map_err(|error| format!("{}: {error}", config.display()))?;
        let log = log_file(folder.path())?;
        let errors = log.try_clone().map_err(|error| format!("cannot log redis-server's errors: {error}"))?;
        let mut command = Command::new("redis-server");
        command.arg(&config).current_dir(folder.path()).stdout(Stdio::from(log)).stderr(Stdio::from(errors));
        let running = children.start(&mut command).map_err(|error| {
            format!("{error} (Debian packages: redis-server, redis-tools; `cargo xtask test` installs them)")
        })?;
        let server = Self { running, folder, port, password: options.password.clone() };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The port it listens on, on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The password it asks for, if any.
    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Asks the server one thing over a new connection, with the password if
    /// there is one. Replies are text; a reply that is an array is an error.
    pub(crate) fn command(&self, words: &[&str]) -> Result<String> {
        self.ask(words).map_err(|error| {
            format!("Redis on {}: {}: {error}", self.address(), words.first().unwrap_or(&""))
        })
    }

    /// Waits until a signal stops the server with the task; its ending by
    /// itself is an error.
    pub(crate) fn wait_for_interrupt(&self) -> Result<()> {
        self.running.wait_for_end()?;
        if self.running.interrupted() {
            Ok(())
        } else {
            Err(format!("redis-server ended by itself{}", self.log_tail()))
        }
    }

    fn ask(&self, words: &[&str]) -> io::Result<String> {
        let mut connection = Connection::open(self.port, REPLY_TIMEOUT)?;
        if let Some(password) = &self.password {
            connection.ask(&["AUTH", password])?;
        }
        connection.ask(words)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        loop {
            let reason = match self.ask(&["PING"]) {
                Ok(pong) if pong == "PONG" => return self.check_identity(),
                Ok(other) => format!("it answers PING with {other:?}"),
                Err(error) => error.to_string(),
            };
            if self.running.ended()? {
                return Err(format!(
                    "redis-server on port {} ended at its start{}",
                    self.port,
                    self.log_tail()
                ));
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "redis-server on port {} is not ready after {START_SECONDS_MAX} s: {reason}{}",
                    self.port,
                    self.log_tail()
                ));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// A stranger's server on our port answers PING just as well.
    fn check_identity(&self) -> Result<()> {
        let info = self.command(&["INFO", "server"])?;
        let ours = format!("process_id:{}", self.running.pid());
        if info.lines().any(|line| line == ours) {
            Ok(())
        } else {
            Err(format!("port {} belongs to another Redis{}", self.port, self.log_tail()))
        }
    }

    /// The end of the server's log, which says why it would not start.
    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join(LOG_NAME)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        if tail.is_empty() { String::new() } else { format!("; its log ends:\n  {}", tail.join("\n  ")) }
    }
}

const LOG_NAME: &str = "redis.log";
const LOG_TAIL_LINES: usize = 5;

fn log_file(folder: &Path) -> Result<File> {
    let path = folder.join(LOG_NAME);
    File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn config_text(port: u16, options: &Options) -> Result<String> {
    let mut text =
        format!("bind {}\nport {port}\nsave \"\"\nappendonly no\ndaemonize no\n", Ipv4Addr::LOCALHOST);
    if let Some(password) = &options.password {
        if password.is_empty() || password.contains(char::is_control) {
            return Err("a Redis password is not empty and has no control characters".to_owned());
        }
        let escaped = password.replace('\\', r"\\").replace('"', "\\\"");
        text += &format!("requirepass \"{escaped}\"\n");
    }
    Ok(text)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A password nobody else on the machine can guess.
pub(crate) fn generated_password() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing to test where no Redis is; `cargo xtask test` says so in its
    /// summary.
    fn started(options: &Options) -> Option<RedisServer> {
        crate::setup::find("redis-server")?;
        Some(RedisServer::start(&Children::default(), options).unwrap())
    }

    #[test]
    fn a_server_answers_and_goes_with_its_files() {
        let Some(server) = started(&Options::default()) else {
            return;
        };
        let folder = server.folder.path().to_owned();
        let port = server.port();
        assert_eq!(server.command(&["SET", "k", "v"]), Ok("OK".to_owned()));
        assert_eq!(server.command(&["GET", "k"]), Ok("v".to_owned()));
        assert!(folder.is_dir());
        drop(server);
        assert!(!folder.exists());
        assert!(Connection::open(port, REPLY_TIMEOUT).is_err());
    }

    #[test]
    fn a_password_is_asked_for() {
        let password = r#"two "words" \ #'"#;
        let Some(server) = started(&Options { password: Some(password.to_owned()), ..Options::default() })
        else {
            return;
        };
        assert_eq!(server.command(&["PING"]), Ok("PONG".to_owned()));
        let mut stranger = Connection::open(server.port(), REPLY_TIMEOUT).unwrap();
        let refusal = stranger.ask(&["PING"]).unwrap_err().to_string();
        assert!(refusal.starts_with("NOAUTH"), "{refusal}");
    }

    #[test]
    fn a_taken_port_is_reported_with_the_servers_own_words() {
        let Some(first) = started(&Options::default()) else {
            return;
        };
        let options = Options { port: Some(first.port()), ..Options::default() };
        let error = RedisServer::start(&Children::default(), &options).err().unwrap();
        assert!(error.contains(&first.port().to_string()), "{error}");
        assert_eq!(first.command(&["PING"]), Ok("PONG".to_owned()));
    }

    #[test]
    fn a_password_that_no_config_file_can_hold_is_refused() {
        for password in ["", "line\nbreak"] {
            let options = Options { password: Some(password.to_owned()), ..Options::default() };
            assert!(config_text(1, &options).is_err());
        }
    }

    #[test]
    fn generated_passwords_differ() {
        let (first, second) = (generated_password().unwrap(), generated_password().unwrap());
        assert_eq!(first.len(), 32);
        assert_ne!(first, second);
    }
}
