//! ZooKeepers that keep nothing, on loopback only: of one server, and an ensemble of three.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::process::{self, ServerProcess};
use super::{Fixture, QUICK_JAVA, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 0.3 s on an idle machine.
const START_SECONDS_MAX: u64 = 60;

const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

const USER: &str = "serval";

/// Debian's class path: the first jar's manifest names most dependencies, but not all of TLS.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:\
                          /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "zookeeper",
    purpose: ProgramPurpose::Zookeeper,
    serve: |children, options| Ok(Box::new(ZookeeperServer::start(children, options)?)),
    fixture,
    variables: &[
        "SERVAL_TEST_ZOOKEEPER",
        "SERVAL_TEST_ZOOKEEPER_AUTH",
        "SERVAL_TEST_ZOOKEEPER_PASSWORD",
        "SERVAL_TEST_ZOOKEEPER_TLS",
        "SERVAL_TEST_ZOOKEEPER_FOLDER",
        "SERVAL_TEST_ZOOKEEPER_CLASSES",
    ],
};

/// One without authentication, and one with authentication and a second port with TLS and client
/// certificates.
fn fixture(children: &Children) -> Result<Fixture> {
    let open =
        ZookeeperServer::start(children, &ServerOptions { short_lived: true, ..ServerOptions::default() })?;
    let password = redis::generated_password()?;
    let options =
        ServerOptions { password: Some(password.clone()), short_lived: true, ..ServerOptions::default() };
    let guarded = ZookeeperServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_ZOOKEEPER", open.address()),
        ("SERVAL_TEST_ZOOKEEPER_AUTH", guarded.address()),
        ("SERVAL_TEST_ZOOKEEPER_PASSWORD", password),
        ("SERVAL_TEST_ZOOKEEPER_TLS", format!("localhost:{}", guarded.tls_port)),
        ("SERVAL_TEST_ZOOKEEPER_FOLDER", guarded.process.folder().display().to_string()),
        // For tests that must kill servers of their own.
        ("SERVAL_TEST_ZOOKEEPER_CLASSES", CLASS_PATH.to_owned()),
    ];
    Ok(Fixture { servers: vec![Box::new(open), Box::new(guarded)], variables })
}

/// An ensemble of three servers: any two of them continue without the third.
pub(crate) const ENSEMBLE: ServerKind = ServerKind {
    name: "zookeeper-ensemble",
    purpose: ProgramPurpose::Zookeeper,
    serve: |children, options| Ok(Box::new(ZookeeperEnsemble::start(children, options)?)),
    fixture: |children| {
        let ensemble = ZookeeperEnsemble::begin(process::free_port()?, children)?;
        let variables = vec![("SERVAL_TEST_ZOOKEEPER_ENSEMBLE", ensemble.addresses().join(","))];
        Ok(Fixture { servers: vec![Box::new(ensemble)], variables })
    },
    variables: &["SERVAL_TEST_ZOOKEEPER_ENSEMBLE"],
};

/// Servers of an ensemble.
const SEVERAL: usize = 3;

/// An ensemble that has been started. Dropping it stops it and removes its files.
pub(crate) struct ZookeeperEnsemble {
    servers: Vec<ZookeeperServer>,
}

impl ZookeeperEnsemble {
    /// Starts an ensemble, its first server on a port, and returns once all of it answers.
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        if options.password.is_some() {
            return Err("an ensemble is for anyone: leave the password out, or start 'zookeeper'".to_owned());
        }
        process::on_a_port(options.port, children, |port| {
            let ensemble = Self::begin(port, children)?;
            ensemble.wait_until_ready()?;
            Ok(ensemble)
        })
    }

    /// Starts the servers. A server answers once a majority runs.
    fn begin(port: u16, children: &Children) -> Result<Self> {
        let mut members = String::new();
        for number in 1..=SEVERAL {
            let (peers, election) = (process::free_port()?, process::free_port()?);
            members += &format!("server.{number}={}:{peers}:{election}\n", Ipv4Addr::LOCALHOST);
        }
        let server = |number: usize| {
            let port = if number == 1 { port } else { process::free_port()? };
            let folder = process::folder("zookeeper")?;
            process::write(&folder.path().join("myid"), &number.to_string())?;
            let config = format!("{}initLimit=10\nsyncLimit=5\n{members}", config_text(&folder, port));
            let process = launch(children, folder, &config, QUICK_JAVA, &[])?;
            Ok(ZookeeperServer { process, port, tls_port: 0, password: None })
        };
        Ok(Self { servers: (1..=SEVERAL).map(server).collect::<Result<_>>()? })
    }

    /// Where its servers listen.
    fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(ServerHandle::address).collect()
    }
}

impl ServerHandle for ZookeeperEnsemble {
    fn address(&self) -> String {
        self.addresses().join(", ")
    }

    fn properties(&self) -> Vec<String> {
        vec![format!("zookeeper.connectString={}", self.addresses().join(","))]
    }

    fn wait_until_ready(&self) -> Result<()> {
        self.servers.iter().try_for_each(ServerHandle::wait_until_ready)
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        super::wait_for_all(&self.servers)
    }
}

/// A ZooKeeper that answers. Dropping it stops it and removes its files.
pub(crate) struct ZookeeperServer {
    process: ServerProcess,
    port: u16,
    /// Where it speaks TLS; only with a password.
    tls_port: u16,
    password: Option<String>,
}

impl ServerHandle for ZookeeperServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = vec![format!("zookeeper.connectString={}", self.address())];
        if let Some(password) = &self.password {
            properties.push("zookeeper.auth=sasl".to_owned());
            properties.push(format!("zookeeper.username={USER}"));
            properties.push(format!("zookeeper.password={password}"));
        }
        properties
    }

    fn wait_until_ready(&self) -> Result<()> {
        self.process.wait_until_ready(START_SECONDS_MAX, || self.check())
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

/// Returns the settings that single servers and those of an ensemble share.
fn config_text(folder: &TempDir, port: u16) -> String {
    format!(
        "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress={}\nmaxClientCnxns=0\n\
         admin.enableServer=false\n4lw.commands.whitelist=srvr,conf\n",
        folder.path().display(),
        Ipv4Addr::LOCALHOST,
    )
}

/// Starts a server with the other files in its folder.
fn launch(
    children: &Children,
    folder: TempDir,
    config: &str,
    level: &str,
    more: &[String],
) -> Result<ServerProcess> {
    process::write(&folder.path().join("zoo.cfg"), config)?;
    let mut command = Command::new("java");
    // Data need not outlive the server.
    command.args(["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", level, "-Dzookeeper.forceSync=no"]);
    command.arg("-Dzookeeper.jmx.log4j.disable=true").args(more);
    command.args(["-cp", CLASS_PATH, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]);
    ServerProcess::start(children, "zookeeper", folder, &mut command)
}

impl ZookeeperServer {
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options))
    }

    fn start_on(port: u16, children: &Children, options: &ServerOptions) -> Result<Self> {
        let folder = process::folder("zookeeper")?;
        let path = folder.path().to_owned();
        let tls_port = process::free_port()?;
        let mut config = config_text(&folder, port);
        let mut more = Vec::new();
        if let Some(password) = &options.password {
            if password.is_empty() || password.contains(|c: char| c.is_control() || "\"\\;".contains(c)) {
                return Err(
                    "a ZooKeeper password is not empty and has no control characters, quotation marks, \
                            backslashes and semicolons"
                        .to_owned(),
                );
            }
            process::certificate(children, &path, None)?;
            // ZooKeeper derives the format from the file name.
            let (key, certificate) = (read(&path.join("server.key"))?, read(&path.join("server.crt"))?);
            process::write(&path.join("both.pem"), &format!("{key}{certificate}"))?;
            process::write(&path.join("trusted.pem"), &certificate)?;
            let users = format!(
                "Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{USER}=\"{password}\"; }};\n"
            );
            process::write(&path.join("jaas.conf"), &users)?;
            more.push(format!("-Djava.security.auth.login.config={}/jaas.conf", path.display()));
            config.push_str(&format!(
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 secureClientPort={tls_port}\nsecureClientPortAddress={}\n\
                 ssl.keyStore.location={folder}/both.pem\nssl.trustStore.location={folder}/trusted.pem\n\
                 authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
                 enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n",
                Ipv4Addr::LOCALHOST,
                folder = path.display(),
            ));
        }
        let process = launch(children, folder, &config, options.java_level(), &more)?;
        let server = Self { process, port, tls_port, password: options.password.clone() };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// That it answers, and is no stranger's on our port.
    fn check(&self) -> Result<()> {
        let asked = || {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            let mut stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            stream.write_all(b"conf")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<String, io::Error>(answer)
        };
        let answer = asked().map_err(|error| error.to_string())?;
        let ours = format!("dataDir={}", self.process.folder().display());
        if answer.lines().any(|line| line.starts_with(&ours)) {
            Ok(())
        } else {
            Err(format!("port {} does not answer as this server", self.port))
        }
    }
}

fn read(path: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
