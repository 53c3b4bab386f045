//! A Redis that keeps nothing, on loopback only.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::process::{self, ServerProcess};
use super::resp::RespConnection;
use super::{Fixture, ServerHandle, ServerKind, ServerOptions};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 0.05 s on an idle machine.
const START_SECONDS_MAX: u64 = 20;

const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "redis",
    purpose: ProgramPurpose::Redis,
    serve: |children, options| Ok(Box::new(RedisServer::start(children, options)?)),
    fixture,
    variables: &[
        "SERVAL_TEST_REDIS",
        "SERVAL_TEST_REDIS_AUTH",
        "SERVAL_TEST_REDIS_PASSWORD",
        "SERVAL_TEST_REDIS_HOSTS",
        "SERVAL_TEST_REDIS_CLUSTER",
        "SERVAL_TEST_REDIS_PRIMARY",
        "SERVAL_TEST_REDIS_REPLICA",
        "SERVAL_TEST_REDIS_TLS",
        "SERVAL_TEST_REDIS_TLS_ROOTS",
    ],
};

/// A primary and a replica of it: for `cargo xtask serve`, the tests have them from [`KIND`].
pub(crate) const REPLICA: ServerKind = ServerKind {
    name: "redis-replica",
    purpose: ProgramPurpose::Redis,
    serve: |children, options| Ok(Box::new(ReplicatedRedis::start(children, options)?)),
    fixture: |_| Ok(Fixture { servers: Vec::new(), variables: Vec::new() }),
    variables: &[],
};

/// A primary, and a replica that is in sync.
struct ReplicatedRedis {
    primary: RedisServer,
    replica: RedisServer,
}

impl ReplicatedRedis {
    fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        let primary = RedisServer::start(children, options)?;
        let own = ServerOptions { port: None, ..options.clone() };
        let replica = RedisServer::start(children, &own)?;
        if let Some(password) = &options.password {
            replica.command(&["CONFIG", "SET", "masterauth", password])?;
        }
        // Without waiting for more replicas.
        primary.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"])?;
        replica.command(&["REPLICAOF", &Ipv4Addr::LOCALHOST.to_string(), &primary.port.to_string()])?;
        // The link is up as much as a second before the first write arrives: the primary waits for
        // an acknowledgement of the replica, which is sent once a second.
        primary.command(&["SET", "heard", "yes"])?;
        replica.process.wait_until_ready(START_SECONDS_MAX, || {
            let heard = replica.command(&["EXISTS", "heard"])? != "0";
            if heard { Ok(()) } else { Err("it does not follow its primary yet".to_owned()) }
        })?;
        primary.command(&["DEL", "heard"])?;
        Ok(ReplicatedRedis { primary, replica })
    }
}

impl ServerHandle for ReplicatedRedis {
    fn address(&self) -> String {
        format!("{}, its replica on {}", self.primary.address(), self.replica.address())
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = self.primary.properties();
        properties.push(format!("redis.replica={}", self.replica.address()));
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.primary.wait_for_interrupt()
    }
}

/// Independent servers, and nodes of the cluster.
const SEVERAL: usize = 3;

/// Slots of a Redis Cluster.
const SLOTS: usize = 1 << 14;

/// A Redis without a password, one with a password, several that share keys by hash, a cluster, and
/// one with TLS only.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = RedisServer::start(children, &ServerOptions::default())?;
    let password = generated_password()?;
    let options = ServerOptions { password: Some(password.clone()), ..ServerOptions::default() };
    let guarded = RedisServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_REDIS", open.address()),
        ("SERVAL_TEST_REDIS_AUTH", guarded.address()),
        ("SERVAL_TEST_REDIS_PASSWORD", password),
    ];
    let independent = start_several(children, &ServerOptions::default(), Mode::Single)?;
    let nodes = start_several(children, &ServerOptions::default(), Mode::Cluster)?;
    join(&nodes)?;
    let tls = RedisServer::start_as(children, &ServerOptions::default(), Mode::Tls)?;
    let ReplicatedRedis { primary, replica } = ReplicatedRedis::start(children, &ServerOptions::default())?;
    let mut variables = variables;
    variables.extend([
        ("SERVAL_TEST_REDIS_PRIMARY", primary.address()),
        ("SERVAL_TEST_REDIS_REPLICA", replica.address()),
        ("SERVAL_TEST_REDIS_HOSTS", addresses(&independent)),
        ("SERVAL_TEST_REDIS_CLUSTER", addresses(&nodes)),
        ("SERVAL_TEST_REDIS_TLS", tls.address()),
        ("SERVAL_TEST_REDIS_TLS_ROOTS", tls.process.folder().join("server.crt").display().to_string()),
    ]);
    let all = [open, guarded, tls, replica, primary].into_iter().chain(independent).chain(nodes);
    Ok(Fixture { servers: all.map(|server| Box::new(server) as Box<dyn ServerHandle>).collect(), variables })
}

/// What a server is for.
#[derive(Clone, Copy)]
enum Mode {
    Single,
    /// A node of a cluster that is yet to be joined.
    Cluster,
    /// TLS on its port, and nothing else.
    Tls,
}

fn start_several(children: &Children, options: &ServerOptions, mode: Mode) -> Result<Vec<RedisServer>> {
    (0..SEVERAL).map(|_| RedisServer::start_as(children, options, mode)).collect()
}

fn addresses(servers: &[RedisServer]) -> String {
    servers.iter().map(RedisServer::address).collect::<Vec<_>>().join(",")
}

/// Makes a cluster of nodes, each with its share of the slots; what
/// `redis-cli --cluster create` does, without its waits.
fn join(nodes: &[RedisServer]) -> Result<()> {
    let first = &nodes[0];
    let loopback = Ipv4Addr::LOCALHOST.to_string();
    for (number, node) in nodes.iter().enumerate() {
        let from = (number * SLOTS / nodes.len()).to_string();
        let to = ((number + 1) * SLOTS / nodes.len() - 1).to_string();
        node.command(&["CLUSTER", "ADDSLOTSRANGE", &from, &to])?;
        node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        if number > 0 {
            let (port, bus) = (node.port.to_string(), node.bus.to_string());
            first.command(&["CLUSTER", "MEET", &loopback, &port, &bus])?;
        }
    }
    for node in nodes {
        node.process.wait_until_ready(START_SECONDS_MAX, || {
            let info = node.command(&["CLUSTER", "INFO"])?;
            let joined = ["cluster_state:ok", &format!("cluster_known_nodes:{}", nodes.len())]
                .iter()
                .all(|wanted| info.lines().any(|line| line == *wanted));
            if joined { Ok(()) } else { Err("the cluster is not whole yet".to_owned()) }
        })?;
    }
    Ok(())
}

/// A redis-server that answers. Dropping it stops it and removes its files.
pub(crate) struct RedisServer {
    process: ServerProcess,
    port: u16,
    /// Where the other nodes of its cluster reach it; 0 without a cluster.
    bus: u16,
    password: Option<String>,
}

impl ServerHandle for RedisServer {
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
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        Self::start_as(children, options, Mode::Single)
    }

    fn start_as(children: &Children, options: &ServerOptions, mode: Mode) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options, mode))
    }

    fn start_on(port: u16, children: &Children, options: &ServerOptions, mode: Mode) -> Result<Self> {
        let folder = process::folder("redis")?;
        let config = folder.path().join("redis.conf");
        // In a file that only this user can read (the folder's mode is 0700), since any user can
        // see the arguments of a process.
        let mut text = config_text(port, options)?;
        let mut bus = 0;
        match mode {
            Mode::Single => {}
            Mode::Cluster => {
                bus = process::free_port()?;
                text += &format!("cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port {bus}\n");
            }
            Mode::Tls => {
                process::certificate(children, folder.path(), None)?;
                // The later of two lines with a port holds.
                text += &format!("port 0\ntls-port {port}\ntls-auth-clients no\n");
                text += "tls-cert-file server.crt\ntls-key-file server.key\ntls-ca-cert-file server.crt\n";
            }
        }
        process::write(&config, &text)?;
        let mut command = Command::new("redis-server");
        command.arg(&config);
        let process = ServerProcess::start(children, "redis-server", folder, &mut command)?;
        let server = Self { process, port, bus, password: options.password.clone() };
        if matches!(mode, Mode::Tls) {
            // We speak no TLS; a server that listens has read its files.
            server.process.wait_until_ready(START_SECONDS_MAX, || {
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop).map_err(|error| error.to_string())
            })?;
            return Ok(server);
        }
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

    /// Sends a command over a new connection, with the password if there is one. Replies are text;
    /// an array is an error.
    pub(crate) fn command(&self, words: &[&str]) -> Result<String> {
        self.ask(words).map_err(|error| {
            format!("Redis on {}: {}: {error}", self.address(), words.first().unwrap_or(&""))
        })
    }

    fn ask(&self, words: &[&str]) -> io::Result<String> {
        let mut connection = RespConnection::open(self.port, REPLY_TIMEOUT)?;
        if let Some(password) = &self.password {
            connection.ask(&["AUTH", password])?;
        }
        connection.ask(words)
    }

    /// Another server on this port would answer PING too.
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

fn config_text(port: u16, options: &ServerOptions) -> Result<String> {
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

/// Returns a random password.
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

    /// Without Redis there is nothing to test; the summary of `cargo xtask test` says so.
    fn started(options: &ServerOptions) -> Option<RedisServer> {
        crate::setup::find("redis-server")?;
        Some(RedisServer::start(&Children::default(), options).unwrap())
    }

    #[test]
    fn a_server_answers_and_goes_with_its_files() {
        let Some(server) = started(&ServerOptions::default()) else {
            return;
        };
        let folder = server.process.folder().to_owned();
        let port = server.port();
        assert_eq!(server.command(&["SET", "k", "v"]), Ok("OK".to_owned()));
        assert_eq!(server.command(&["GET", "k"]), Ok("v".to_owned()));
        assert!(folder.is_dir());
        drop(server);
        assert!(!folder.exists());
        assert!(RespConnection::open(port, REPLY_TIMEOUT).is_err());
    }

    #[test]
    fn a_password_is_asked_for() {
        let password = r#"two "words" \ #'"#;
        let Some(server) =
            started(&ServerOptions { password: Some(password.to_owned()), ..ServerOptions::default() })
        else {
            return;
        };
        assert_eq!(server.command(&["PING"]), Ok("PONG".to_owned()));
        let mut stranger = RespConnection::open(server.port(), REPLY_TIMEOUT).unwrap();
        let refusal = stranger.ask(&["PING"]).unwrap_err().to_string();
        assert!(refusal.starts_with("NOAUTH"), "{refusal}");
    }

    #[test]
    fn a_taken_port_is_reported_with_the_servers_own_words() {
        let Some(first) = started(&ServerOptions::default()) else {
            return;
        };
        let options = ServerOptions { port: Some(first.port()), ..ServerOptions::default() };
        let error = RedisServer::start(&Children::default(), &options).err().unwrap();
        assert!(error.contains(&first.port().to_string()), "{error}");
        assert_eq!(first.command(&["PING"]), Ok("PONG".to_owned()));
    }

    #[test]
    fn a_password_that_no_config_file_can_hold_is_refused() {
        for password in ["", "line\nbreak"] {
            let options = ServerOptions { password: Some(password.to_owned()), ..ServerOptions::default() };
            assert!(config_text(1, &options).is_err());
        }
    }

    #[test]
    fn generated_passwords_differ() {
        let (first, second) = (generated_password().unwrap(), generated_password().unwrap());
        assert_eq!(first.len(), 32);
        assert_ne!(first, second);
    }

    #[test]
    fn the_tests_find_all_their_servers() {
        if crate::setup::find("redis-server").is_none() || crate::setup::find("openssl").is_none() {
            return;
        }
        let fixture = fixture(&Children::default()).unwrap();
        let names: Vec<&str> = fixture.variables.iter().map(|(name, _)| *name).collect();
        assert!(KIND.variables.iter().all(|name| names.contains(name)), "{names:?}");
        let value = |wanted| &fixture.variables.iter().find(|(name, _)| *name == wanted).unwrap().1;
        assert!(std::path::Path::new(value("SERVAL_TEST_REDIS_TLS_ROOTS")).is_file());
        let nodes = value("SERVAL_TEST_REDIS_CLUSTER");
        assert_eq!(nodes.split(',').count(), SEVERAL);
        // A key of another node is redirected to it.
        let moved = nodes.split(',').filter(|node| {
            let port = node.rsplit_once(':').unwrap().1.parse().unwrap();
            let mut connection = RespConnection::open(port, REPLY_TIMEOUT).unwrap();
            connection.ask(&["GET", "foo"]).is_err_and(|error| error.to_string().starts_with("MOVED 12182"))
        });
        assert_eq!(moved.count(), SEVERAL - 1);
    }
}
