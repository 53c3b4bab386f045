//! An Accumulo of one tablet server on loopback: ZooKeeper, manager, tablet
//! server and collector, a JVM each. Its classes come from Maven.

use std::path::Path;
use std::process::Command;

use super::process::{self, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};
use crate::setup::ProgramPurpose;

/// The mini cluster, and its undeclared dependencies.
const ACCUMULO: &[Artifact] = &[
    Artifact { group: "org.apache.accumulo", name: "accumulo-minicluster", version: "2.1.3" },
    Artifact { group: "io.dropwizard.metrics", name: "metrics-core", version: "4.2.25" },
    Artifact { group: "org.xerial.snappy", name: "snappy-java", version: "1.1.10.5" },
];

/// It takes 13 s on an idle machine.
const START_SECONDS_MAX: u64 = 240;

/// What the mini cluster's program calls it.
const INSTANCE: &str = "serval";
/// Its first user.
const USER: &str = "root";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "accumulo",
    purpose: ProgramPurpose::Java,
    serve: |children, options| Ok(Box::new(AccumuloServer::start(children, options)?)),
    fixture,
    variables: &["SERVAL_TEST_ACCUMULO", "SERVAL_TEST_ACCUMULO_PASSWORD"],
};

fn fixture(children: &Children) -> Result<Fixture> {
    let password = redis::generated_password()?;
    let options =
        ServerOptions { password: Some(password.clone()), short_lived: true, ..ServerOptions::default() };
    let server = AccumuloServer::start(children, &options)?;
    let variables =
        vec![("SERVAL_TEST_ACCUMULO", server.address()), ("SERVAL_TEST_ACCUMULO_PASSWORD", password)];
    Ok(Fixture { servers: vec![Box::new(server)], variables })
}

/// An Accumulo that takes tables. Dropping it stops it and removes its files.
pub(crate) struct AccumuloServer {
    process: ServerProcess,
    port: u16,
    password: String,
}

impl ServerHandle for AccumuloServer {
    /// Where its ZooKeeper listens.
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn properties(&self) -> Vec<String> {
        vec![
            format!("accumulo.zooKeepers={}", self.address()),
            format!("accumulo.instanceName={INSTANCE}"),
            format!("accumulo.username={USER}"),
            format!("accumulo.password={}", self.password),
        ]
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl AccumuloServer {
    /// Starts it and returns once it takes tables.
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        let class_path = maven::class_path(children, ACCUMULO)?;
        let source = crate::root().join("xtask/java/AccumuloServer.java");
        let source = source.canonicalize().map_err(|error| format!("{}: {error}", source.display()))?;
        process::on_a_port(options.port, children, |port| {
            Self::start_on(port, children, options, &class_path, &source)
        })
    }

    fn start_on(
        port: u16,
        children: &Children,
        options: &ServerOptions,
        class_path: &str,
        source: &Path,
    ) -> Result<Self> {
        let folder = process::folder("accumulo")?;
        // It has no users without a password.
        let password = options.password.clone().unwrap_or_else(|| "serval".to_owned());
        let files = folder.path().join("cluster");
        let mut command = Command::new("java");
        command
            // Its parts are processes of their own, which have only this from us.
            .env("JDK_JAVA_OPTIONS", options.java_level())
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-cp", class_path])
            .arg(source)
            .arg(&files)
            .args([&port.to_string(), &password]);
        let process = ServerProcess::start(children, "accumulo", folder, &mut command)?;
        let server = Self { process, port, password };
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            if server.process.log_has("serval: ready") { Ok(()) } else { Err("it still starts".to_owned()) }
        })?;
        Ok(server)
    }
}
