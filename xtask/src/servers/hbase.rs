//! An HBase of one JVM: ZooKeeper, a master and a region server, from HBase's
//! own testing utility.

use std::net::Ipv4Addr;
use std::process::Command;

use super::process::{self, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions};
use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};
use crate::setup::ProgramPurpose;

/// The utility, and its undeclared dependencies.
const ARTIFACTS: [Artifact; 4] = [
    Artifact { group: "org.apache.hbase", name: "hbase-shaded-testing-util", version: "2.6.3-hadoop3" },
    Artifact { group: "junit", name: "junit", version: "4.13.2" },
    Artifact { group: "org.mockito", name: "mockito-core", version: "4.11.0" },
    Artifact { group: "org.slf4j", name: "slf4j-simple", version: "1.7.33" },
];

/// It takes 6 s on an idle machine.
const START_SECONDS_MAX: u64 = 180;

/// The system's insides that HBase uses, as its own start script names them.
const OPENED: &[&str] = &[
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.misc",
    "java.base/sun.nio.ch",
];

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "hbase",
    purpose: ProgramPurpose::Hbase,
    serve: |children, options| Ok(Box::new(HbaseServer::start(children, options)?)),
    fixture,
    variables: &["SERVAL_TEST_HBASE"],
};

/// One, open to all.
fn fixture(children: &Children) -> Result<Fixture> {
    let server = HbaseServer::start(children, &ServerOptions::default())?;
    let variables = vec![("SERVAL_TEST_HBASE", server.address())];
    Ok(Fixture { servers: vec![Box::new(server)], variables })
}

/// An HBase that takes tables. Dropping it stops it and removes its files.
pub(crate) struct HbaseServer {
    process: ServerProcess,
    /// ZooKeeper's, by which clients find the others.
    port: u16,
}

impl ServerHandle for HbaseServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        vec![
            format!("hbase.zookeeper.quorum={}", Ipv4Addr::LOCALHOST),
            format!("hbase.zookeeper.property.clientPort={}", self.port),
        ]
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl HbaseServer {
    /// Starts one and returns once it takes tables.
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        if options.password.is_some() {
            return Err("HBase asks for no passwords: Kerberos is its authentication".to_owned());
        }
        let class_path = maven::class_path(children, &ARTIFACTS)?;
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, &class_path))
    }

    fn start_on(port: u16, children: &Children, class_path: &str) -> Result<Self> {
        let folder = process::folder("hbase")?;
        let mut command = Command::new("java");
        command
            .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(OPENED.iter().flat_map(|package| {
                [format!("--add-exports={package}=ALL-UNNAMED"), format!("--add-opens={package}=ALL-UNNAMED")]
            }))
            .args([
                "-Dio.netty.tryReflectionSetAccessible=true",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            ])
            .arg(format!("-Djava.io.tmpdir={}", folder.path().display()))
            .args(["-cp", class_path])
            .arg(crate::root().join("xtask/java/HBaseServer.java"))
            .arg(port.to_string());
        let process = ServerProcess::start(children, "hbase", folder, &mut command)?;
        process.wait_until_ready(START_SECONDS_MAX, || {
            let ready = process.log_has("serval: ready");
            if ready { Ok(()) } else { Err("it has not said that it is ready".to_owned()) }
        })?;
        Ok(Self { process, port })
    }
}
