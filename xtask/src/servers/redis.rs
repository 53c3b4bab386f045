//! A Redis that keeps nothing, on loopback only.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use super::process::{self, Process};
use super::resp::Connection;
use super::{Fixture, Kind, Options, Server};
use crate::Result;
use crate::children::Children;
use crate::setup::Purpose;

/// It takes 0.05 s on an idle machine.
const START_SECONDS_MAX: u64 = 20;

const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// What the tests and `cargo xtask serve` know of it.
pub(crate) const KIND: Kind = Kind {
    name: "redis",
    purpose: Purpose::Redis,
    serve: |children, options| Ok(Box::new(RedisServer::start(children, options)?)),
    fixture,
    variables: &["SERVAL_TEST_REDIS", "SERVAL_TEST_REDIS_AUTH", "SERVAL_TEST_REDIS_PASSWORD"],
};

/// A Redis for anyone, and one that asks for a password.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = RedisServer::start(children, &Options::default())?;
    let password = generated_password()?;
    let options = Options { password: Some(password.clone()), ..Options::default() };
    let guarded = RedisServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_REDIS", open.address()),
        ("SERVAL_TEST_REDIS_AUTH", guarded.address()),
        ("SERVAL_TEST_REDIS_PASSWORD", password),
    ];
    Ok(Fixture { servers: vec![Box::new(open), Box::new(guarded)], variables })
}

/// A redis-server that answers. Dropping it stops it and removes its files.
pub(crate) struct RedisServer {
    process: Process,
    port: u16,
    password: Option<String>,
}

impl Server for RedisServer {
    fn address(&self) -> String {
        RedisServer::address(self)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = vec!["redis.host=127.0.0.1".to_owned(), format!("redis.port={}", self.port)];
        properties.extend(self.password.as_ref().map(|password| format!("redis.password={password}")));
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl RedisServer {
    /// Starts a server and returns once it answers.
    pub(crate) fn start(children: &Children, options: &Options) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options))
    }

    fn start_on(port: u16, children: &Children, options: &Options) -> Result<Self> {
        let folder = process::folder("redis")?;
        let config = folder.path().join("redis.conf");
        // In a file that only we can read (the folder's mode is 0700), for
        // the arguments of a process are everybody's to see.
        process::write(&config, &config_text(port, options)?)?;
        let mut command = Command::new("redis-server");
        command.arg(&config);
        let process = Process::start(children, "redis-server", folder, &mut command)?;
        let server = Self { process, port, password: options.password.clone() };
        server.process.wait_until_ready(START_SECONDS_MAX, || match server.ask(&["PING"]) {
            Ok(pong) if pong == "PONG" => Ok(()),
            Ok(other) => Err(format!("it answers PING with {other:?}")),
            Err(error) => Err(error.to_string()),
        })?;
        server.check_identity()?;
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

    /// Asks the server one thing over a new connection, with the password if
    /// there is one. Replies are text; a reply that is an array is an error.
    pub(crate) fn command(&self, words: &[&str]) -> Result<String> {
        self.ask(words).map_err(|error| {
            format!("Redis on {}: {}: {error}", self.address(), words.first().unwrap_or(&""))
        })
    }

    fn ask(&self, words: &[&str]) -> io::Result<String> {
        let mut connection = Connection::open(self.port, REPLY_TIMEOUT)?;
        if let Some(password) = &self.password {
            connection.ask(&["AUTH", password])?;
        }
        connection.ask(words)
    }

    /// A stranger's server on our port answers PING just as well.
    fn check_identity(&self) -> Result<()> {
        let info = self.command(&["INFO", "server"])?;
        let ours = format!("process_id:{}", self.process.pid());
        if info.lines().any(|line| line == ours) {
            Ok(())
        } else {
            Err(format!("port {} belongs to another Redis{}", self.port, self.process.log_tail()))
        }
    }
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
        let folder = server.process.folder().to_owned();
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
