//! Cassandras that keep nothing, on loopback only: of one node, and a ring of three. Their
//! classes come from Maven.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::cql::{CqlConnection, Level};
use super::process::{self, ServerProcess};
use super::{Fixture, QUICK_JAVA, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};
use crate::setup::ProgramPurpose;

const CASSANDRA: Artifact =
    Artifact { group: "org.apache.cassandra", name: "cassandra-all", version: "5.0.5" };

/// It takes 5 s on an idle machine.
const START_SECONDS_MAX: u64 = 180;

/// A ring takes 20 s on an idle machine of two processors.
const RING_START_SECONDS_MAX: u64 = 300;

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

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "cassandra",
    purpose: ProgramPurpose::Cassandra,
    serve: |children, options| Ok(Box::new(CassandraServer::start(children, options)?)),
    fixture,
    variables: &["SERVAL_TEST_CASSANDRA", "SERVAL_TEST_CASSANDRA_PASSWORD", "SERVAL_TEST_CASSANDRA_CA"],
};

/// One node with a password and optional TLS: a second, open node would take 1 GB more.
fn fixture(children: &Children) -> Result<Fixture> {
    let password = redis::generated_password()?;
    let options =
        ServerOptions { password: Some(password.clone()), short_lived: true, ..ServerOptions::default() };
    let server = CassandraServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_CASSANDRA", server.address()),
        ("SERVAL_TEST_CASSANDRA_PASSWORD", password),
        ("SERVAL_TEST_CASSANDRA_CA", server.certificate.display().to_string()),
    ];
    Ok(Fixture { servers: vec![Box::new(server)], variables })
}

/// Three nodes; each has all data of keyspaces with three replicas.
pub(crate) const RING: ServerKind = ServerKind {
    name: "cassandra-ring",
    purpose: ProgramPurpose::Cassandra,
    serve: |children, options| Ok(Box::new(CassandraRing::start(children, options)?)),
    fixture: |children| {
        let ring = CassandraRing::begin(free_ring_port()?, children)?;
        let variables = vec![("SERVAL_TEST_CASSANDRA_RING", ring.hosts_and_port())];
        Ok(Fixture { servers: vec![Box::new(ring)], variables })
    },
    variables: &["SERVAL_TEST_CASSANDRA_RING"],
};

/// Nodes of a ring.
const SEVERAL: u8 = 3;

/// The address of a node, from 1 on.
fn address_of(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

/// The token of a node: they divide the range of Murmur3's evenly.
fn token(number: u8) -> i64 {
    let part = u64::MAX / u64::from(SEVERAL);
    i64::MIN.wrapping_add_unsigned(part * u64::from(number.saturating_sub(1)))
}

/// Returns a port that is free at the addresses of all nodes: nodes announce each other to clients
/// without ports.
fn free_ring_port() -> Result<u16> {
    for _ in 0..RING_PORTS_MAX {
        let port = process::free_port()?;
        if (2..=SEVERAL).all(|number| TcpListener::bind((address_of(number), port)).is_ok()) {
            return Ok(port);
        }
    }
    Err(format!(
        "no port is free at {} to {}: are they addresses of this machine?",
        address_of(1),
        address_of(SEVERAL)
    ))
}

/// Ports that are tried for one that several addresses have free.
const RING_PORTS_MAX: usize = 20;

/// Nodes that have been started. Dropping it stops them and removes their files.
pub(crate) struct CassandraRing {
    nodes: Vec<RingNode>,
    port: u16,
}

impl CassandraRing {
    /// Starts a ring, on a port of each of its addresses, and returns once each node sees all.
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        if options.password.is_some() {
            return Err("a ring is for anyone: leave the password out, or start 'cassandra'".to_owned());
        }
        let port = options.port.map_or_else(free_ring_port, Ok)?;
        let ring = Self::begin(port, children)?;
        ring.wait_until_ready()?;
        Ok(ring)
    }

    /// Starts all nodes at once: the configuration gives each a third of the tokens, so that no
    /// node waits for data of another.
    fn begin(port: u16, children: &Children) -> Result<Self> {
        let class_path = maven::class_path(children, &[CASSANDRA])?;
        let storage_port = free_ring_port()?;
        // A node that is a seed does not insist on hearing of others at its start.
        let seeds: Vec<String> =
            (1..=SEVERAL).map(|number| format!("{}:{storage_port}", address_of(number))).collect();
        let start = |number: u8| {
            let folder = process::folder("cassandra")?;
            let more = format!("initial_token: {}\nauto_bootstrap: false\n", token(number));
            let place =
                NodeAddress { address: address_of(number), port, storage_port, seeds: &seeds.join(",") };
            let config = config_text(&place, &folder, None)? + &more;
            // Three nodes share the CPUs with their clients: fast compilation matters more than
            // optimised code.
            let process = launch(children, folder, &config, &class_path, &[QUICK_JAVA])?;
            Ok(RingNode { process, address: SocketAddr::from((address_of(number), port)) })
        };
        Ok(Self { nodes: (1..=SEVERAL).map(start).collect::<Result<_>>()?, port })
    }

    /// Its nodes' addresses and their port, as `a,b,c:port`.
    fn hosts_and_port(&self) -> String {
        format!("{}:{}", self.hosts(), self.port)
    }

    fn hosts(&self) -> String {
        (1..=SEVERAL).map(|number| address_of(number).to_string()).collect::<Vec<_>>().join(",")
    }
}

impl ServerHandle for CassandraRing {
    fn address(&self) -> String {
        self.nodes.iter().map(ServerHandle::address).collect::<Vec<_>>().join(", ")
    }

    fn properties(&self) -> Vec<String> {
        vec![
            format!("cassandra.hosts={}", self.hosts()),
            format!("cassandra.port={}", self.port),
            format!("cassandra.replication_factor={SEVERAL}"),
        ]
    }

    fn wait_until_ready(&self) -> Result<()> {
        self.nodes.iter().try_for_each(ServerHandle::wait_until_ready)
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        super::wait_for_all(&self.nodes)
    }
}

/// A node of a ring.
struct RingNode {
    process: ServerProcess,
    address: SocketAddr,
}

/// Of a keyspace that each ring has, with three replicas.
const ALL_ARE_ASKED: &str = "SELECT status FROM system_distributed.view_build_status \
                             WHERE keyspace_name = 'serval' AND view_name = 'ready'";

impl ServerHandle for RingNode {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn properties(&self) -> Vec<String> {
        Vec::new()
    }

    /// A node is ready once it has queried all nodes, including itself, and all answer.
    fn wait_until_ready(&self) -> Result<()> {
        self.process.wait_until_ready(RING_START_SECONDS_MAX, || {
            CqlConnection::open(self.address, None)
                .and_then(|mut connection| connection.query(ALL_ARE_ASKED, Level::All))
                .map_err(|error| error.to_string())
        })
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

/// A node that answers. Dropping it stops it and removes its files.
pub(crate) struct CassandraServer {
    process: ServerProcess,
    port: u16,
    password: Option<String>,
    /// PEM file of its TLS certificate, which is its own signer.
    certificate: PathBuf,
}

impl ServerHandle for CassandraServer {
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
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        let class_path = maven::class_path(children, &[CASSANDRA])?;
        process::on_a_port(options.port, children, |port| {
            Self::start_on(port, children, options, &class_path)
        })
    }

    fn start_on(port: u16, children: &Children, options: &ServerOptions, class_path: &str) -> Result<Self> {
        let folder = process::folder("cassandra")?;
        let certificate = make_certificate(children, folder.path())?;
        let storage_port = process::free_port()?;
        let seeds = format!("{}:{storage_port}", Ipv4Addr::LOCALHOST);
        let place = NodeAddress { address: Ipv4Addr::LOCALHOST, port, storage_port, seeds: &seeds };
        let config = config_text(&place, &folder, options.password.as_deref())? + &tls_text(&folder);
        let process = launch(children, folder, &config, class_path, &[options.java_level()])?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Self { process, port, password: options.password.clone(), certificate };
        let user = options.password.as_ref().map(|_| (USER, FIRST_PASSWORD));
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            CqlConnection::open(address, user).map(drop).map_err(|error| error.to_string())
        })?;
        if let Some(password) = &server.password {
            let change = format!("ALTER ROLE {USER} WITH PASSWORD = '{}'", password.replace('\'', "''"));
            CqlConnection::open(address, user)
                .and_then(|mut connection| connection.query(&change, Level::One))
                .map_err(|error| format!("cannot set the password: {error}"))?;
        }
        Ok(server)
    }
}

/// Starts a node with this configuration.
fn launch(
    children: &Children,
    folder: TempDir,
    config: &str,
    class_path: &str,
    more: &[&str],
) -> Result<ServerProcess> {
    let path = folder.path().to_owned();
    process::write(&path.join("cassandra.yaml"), config)?;
    process::write(&path.join("logback.xml"), LOGBACK)?;
    let agent = class_path.split(':').find(|jar| jar.contains("/jamm-"));
    let agent = agent.ok_or("Cassandra's class path has no jamm.jar, which measures its objects")?;
    let mut command = Command::new("java");
    command
        .args(["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC"])
        .args(more)
        .arg(format!("-javaagent:{agent}"))
        .args(OPENED.iter().flat_map(|package| {
            [format!("--add-exports={package}=ALL-UNNAMED"), format!("--add-opens={package}=ALL-UNNAMED")]
        }))
        .args(["-Djdk.attach.allowAttachSelf=true", "-Djava.security.manager=allow"])
        .arg("-Dio.netty.tryReflectionSetAccessible=true")
        .arg(format!("-Dcassandra.config=file://{}/cassandra.yaml", path.display()))
        .arg(format!("-Dcassandra.storagedir={}", path.display()))
        .arg(format!("-Dlogback.configurationFile={}/logback.xml", path.display()))
        // The ring has no earlier or later nodes, so there is nothing to wait for.
        .args(["-Dcassandra.ring_delay_ms=0", "-Dcassandra.skip_wait_for_gossip_to_settle=0"])
        .arg("-Dcassandra.superuser_setup_delay_ms=0")
        // Every session checks its password again; this password is random enough.
        .args(["-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4", "-Dcassandra-foreground=yes"])
        .args(["-cp", class_path, "org.apache.cassandra.service.CassandraDaemon"]);
    ServerProcess::start(children, "cassandra", folder, &mut command)
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
        // The file has its progress; errors go to its output.
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

/// Addresses of a node.
struct NodeAddress<'a> {
    address: Ipv4Addr,
    port: u16,
    /// For other nodes.
    storage_port: u16,
    /// Seed nodes with their storage ports.
    seeds: &'a str,
}

fn config_text(place: &NodeAddress<'_>, folder: &TempDir, password: Option<&str>) -> Result<String> {
    let NodeAddress { address, port, storage_port, seeds } = place;
    let folder = folder.path().display();
    let (authenticator, authorizer) = match password {
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
listen_address: {address}
rpc_address: {address}
native_transport_port: {port}
storage_port: {storage_port}
endpoint_snitch: SimpleSnitch
seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{{seeds: \"{seeds}\"}}]}}]
auto_snapshot: false
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
file_cache_size: 64MiB
key_cache_size: 8MiB
"
    ))
}

/// Optional TLS.
fn tls_text(folder: &TempDir) -> String {
    let folder = folder.path().display();
    format!(
        "client_encryption_options:
  enabled: true
  optional: true
  keystore: {folder}/keys.p12
  keystore_password: {STORE_PASSWORD}
  store_type: PKCS12
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_divide_the_tokens_evenly() {
        let tokens: Vec<i64> = (1..=SEVERAL).map(token).collect();
        assert_eq!(tokens, [i64::MIN, -3_074_457_345_618_258_603, 3_074_457_345_618_258_602]);
    }

    #[test]
    fn a_ring_asks_for_no_password() {
        let options = ServerOptions { password: Some("x".to_owned()), ..ServerOptions::default() };
        assert!(CassandraRing::start(&Children::default(), &options).is_err());
    }
}
