//! A Cassandra of one node that keeps nothing, on loopback only. Its classes
//! come from Maven.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::{self, Process};
use super::{Fixture, Kind, Options, Server, redis};
use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};
use crate::setup::Purpose;

const CASSANDRA: Artifact =
    Artifact { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.5" };

/// It takes 5 s on an idle machine.
const START_SECONDS_MAX: u64 = 180;

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A node's answers to us are a few bytes; a larger one is somebody else's.
const REPLY_BYTES_MAX: usize = 1 << 16;

/// The user that a new node has, and its password until we change it.
const USER: &str = "cassandra";
const FIRST_PASSWORD: &str = "cassandra";

/// Of the key store, which is removed with the folder; keytool wants one.
const STORE_PASSWORD: &str = "certificate";

/// The system's insides that Cassandra uses, as its own jvm17-server.options
/// names them.
const OPENED: &[&str] = &[
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.management/com.sun.management.internal",
];

/// What the tests and `cargo xtask serve` know of it.
pub(crate) const KIND: Kind = Kind {
    name: "cassandra",
    purpose: Purpose::Cassandra,
    serve: |children, options| Ok(Box::new(CassandraServer::start(children, options)?)),
    fixture,
    variables: &["SERVAL_TEST_CASSANDRA", "SERVAL_TEST_CASSANDRA_PASSWORD", "SERVAL_TEST_CASSANDRA_CA"],
};

/// One node that asks for a password and speaks TLS to those who want it: a
/// second one, open to all, would take 1 GB more.
fn fixture(children: &Children) -> Result<Fixture> {
    let password = redis::generated_password()?;
    let options = Options { password: Some(password.clone()), ..Options::default() };
    let server = CassandraServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_CASSANDRA", server.address()),
        ("SERVAL_TEST_CASSANDRA_PASSWORD", password),
        ("SERVAL_TEST_CASSANDRA_CA", server.certificate.display().to_string()),
    ];
    Ok(Fixture { servers: vec![Box::new(server)], variables })
}

/// A node that answers. Dropping it stops it and removes its files.
pub(crate) struct CassandraServer {
    process: Process,
    port: u16,
    password: Option<String>,
    /// PEM file of its TLS certificate, which is its own signer.
    certificate: PathBuf,
}

impl Server for CassandraServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties =
            vec!["cassandra.hosts=127.0.0.1".to_owned(), format!("cassandra.port={}", self.port)];
        if let Some(password) = &self.password {
            properties.push(format!("cassandra.username={USER}"));
            properties.push(format!("cassandra.password={password}"));
        }
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl CassandraServer {
    /// Starts a node and returns once it answers.
    pub(crate) fn start(children: &Children, options: &Options) -> Result<Self> {
        let class_path = maven::class_path(children, &[CASSANDRA])?;
        process::on_a_port(options.port, children, |port| {
            Self::start_on(port, children, options, &class_path)
        })
    }

    fn start_on(port: u16, children: &Children, options: &Options, class_path: &str) -> Result<Self> {
        let folder = process::folder("cassandra")?;
        let path = folder.path().to_owned();
        let certificate = make_certificate(children, &path)?;
        process::write(&path.join("cassandra.yaml"), &config_text(port, &path, options)?)?;
        process::write(&path.join("logback.xml"), LOGBACK)?;
        let agent = class_path.split(':').find(|jar| jar.contains("/jamm-"));
        let agent = agent.ok_or("Cassandra's class path has no jamm.jar, which measures its objects")?;
        let mut command = Command::new("java");
        command
            .args(["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4"])
            .arg(format!("-javaagent:{agent}"))
            .args(OPENED.iter().flat_map(|package| {
                [format!("--add-exports={package}=ALL-UNNAMED"), format!("--add-opens={package}=ALL-UNNAMED")]
            }))
            .args(["-Djdk.attach.allowAttachSelf=true", "-Djava.security.manager=allow"])
            .arg("-Dio.netty.tryReflectionSetAccessible=true")
            .arg(format!("-Dcassandra.config=file://{}/cassandra.yaml", path.display()))
            .arg(format!("-Dcassandra.storagedir={}", path.display()))
            .arg(format!("-Dlogback.configurationFile={}/logback.xml", path.display()))
            // Nobody else is in the ring: nothing to wait for.
            .args(["-Dcassandra.ring_delay_ms=0", "-Dcassandra.skip_wait_for_gossip_to_settle=0"])
            .arg("-Dcassandra.superuser_setup_delay_ms=0")
            // Every session checks its password anew; ours is random enough.
            .args(["-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4", "-Dcassandra-foreground=yes"])
            .args(["-cp", class_path, "org.apache.cassandra.service.CassandraDaemon"]);
        let process = Process::start(children, "cassandra", folder, &mut command)?;
        let server = Self { process, port, password: options.password.clone(), certificate };
        let user = options.password.as_ref().map(|_| (USER, FIRST_PASSWORD));
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            Connection::open(port, user).map(drop).map_err(|error| error.to_string())
        })?;
        if let Some(password) = &server.password {
            let change = format!("ALTER ROLE {USER} WITH PASSWORD = '{}'", password.replace('\'', "''"));
            Connection::open(port, user)
                .and_then(|mut connection| connection.query(&change))
                .map_err(|error| format!("cannot set the password: {error}"))?;
        }
        Ok(server)
    }
}

const LOGBACK: &str = "<configuration><appender name=\"out\" class=\"ch.qos.logback.core.ConsoleAppender\"><encoder>\
                       <pattern>%date %-5level %logger{30} - %msg%n</pattern></encoder></appender>\
                       <root level=\"WARN\"><appender-ref ref=\"out\"/></root></configuration>\n";

/// Makes a key and its certificate; returns the certificate's file.
fn make_certificate(children: &Children, folder: &Path) -> Result<PathBuf> {
    let certificate = folder.join("certificate.pem");
    let keytool = |arguments: &[&str]| {
        let mut command = Command::new("keytool");
        command.current_dir(folder).args(arguments);
        command.args(["-keystore", "keys.p12", "-storepass", STORE_PASSWORD, "-alias", "node"]);
        // It tells there what it does; errors it tells on its output.
        command.stderr(Stdio::null());
        children.check(&mut command)
    };
    // Its own signer and no signer of others, as a server's certificate must
    // be to be taken.
    keytool(&[
        "-genkeypair",
        "-keyalg",
        "EC",
        "-dname",
        "CN=serval",
        "-ext",
        "san=ip:127.0.0.1",
        "-validity",
        "30",
    ])?;
    keytool(&["-exportcert", "-rfc", "-file", "certificate.pem"])?;
    fs::metadata(&certificate).map_err(|error| format!("{}: {error}", certificate.display()))?;
    Ok(certificate)
}

fn config_text(port: u16, folder: &Path, options: &Options) -> Result<String> {
    let folder = folder.display();
    let storage_port = process::free_port()?;
    let (authenticator, authorizer) = match &options.password {
        Some(password) if password.is_empty() || password.contains(char::is_control) => {
            return Err("a Cassandra password is not empty and has no control characters".to_owned());
        }
        Some(_) => ("PasswordAuthenticator", "CassandraAuthorizer"),
        None => ("AllowAllAuthenticator", "AllowAllAuthorizer"),
    };
    Ok(format!(
        "cluster_name: serval
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
authenticator: {authenticator}
authorizer: {authorizer}
role_manager: CassandraRoleManager
commitlog_sync: periodic
commitlog_sync_period: 10000ms
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {port}
storage_port: {storage_port}
endpoint_snitch: SimpleSnitch
seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{{seeds: \"127.0.0.1:{storage_port}\"}}]}}]
auto_snapshot: false
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
file_cache_size: 64MiB
key_cache_size: 8MiB
client_encryption_options:
  enabled: true
  optional: true
  keystore: {folder}/keys.p12
  keystore_password: {STORE_PASSWORD}
  store_type: PKCS12
"
    ))
}

/// Just enough of CQL's protocol (version 4) to see that a node answers and to
/// change a password.
struct Connection {
    stream: TcpStream,
}

const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const AUTH_RESPONSE: u8 = 0x0F;
const AUTH_SUCCESS: u8 = 0x10;

impl Connection {
    fn open(port: u16, user: Option<(&str, &str)>) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let mut connection = Self { stream };
        let mut startup = 1_u16.to_be_bytes().to_vec();
        for text in ["CQL_VERSION", "3.0.0"] {
            startup.extend((text.len() as u16).to_be_bytes());
            startup.extend(text.as_bytes());
        }
        match (connection.ask(STARTUP, &startup)?, user) {
            (READY, _) => Ok(connection),
            (AUTHENTICATE, Some((user, password))) => {
                let credentials = format!("\0{user}\0{password}");
                let mut body = (credentials.len() as u32).to_be_bytes().to_vec();
                body.extend(credentials.as_bytes());
                match connection.ask(AUTH_RESPONSE, &body)? {
                    AUTH_SUCCESS => Ok(connection),
                    other => Err(unexpected(other)),
                }
            }
            (other, _) => Err(unexpected(other)),
        }
    }

    /// Runs a statement at consistency level ONE.
    fn query(&mut self, cql: &str) -> io::Result<()> {
        let mut body = (cql.len() as u32).to_be_bytes().to_vec();
        body.extend(cql.as_bytes());
        body.extend([0, 1, 0]);
        match self.ask(QUERY, &body)? {
            RESULT => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Sends a frame and returns the kind of the answer; an error is one.
    fn ask(&mut self, kind: u8, body: &[u8]) -> io::Result<u8> {
        let mut frame = vec![4, 0, 0, 0, kind];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame)?;
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [_, _, _, _, answer, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        if length > REPLY_BYTES_MAX {
            return Err(unexpected(answer));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        match (answer, body.get(6..)) {
            // A number and a text with its length.
            (ERROR, Some(words)) => Err(io::Error::other(String::from_utf8_lossy(words).into_owned())),
            _ => Ok(answer),
        }
    }
}

fn unexpected(kind: u8) -> io::Error {
    io::Error::other(format!("unexpected answer of kind {kind:#x}"))
}
