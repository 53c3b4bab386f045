//! mongo-java-server in place of MongoDB, which Debian lacks: it speaks MongoDB's protocol and
//! keeps documents in memory, without log-in, sessions, replica sets or write concerns. Its classes
//! come from Maven.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use super::process::{self, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions};
use crate::Result;
use crate::children::Children;
use crate::maven::{self, Artifact};
use crate::setup::ProgramPurpose;

const STAND_IN: Artifact = Artifact { group: "de.bwaldvogel", name: "mongo-java-server", version: "1.46.0" };

/// It takes 1.5 s on an idle machine, mostly for Java.
const START_SECONDS_MAX: u64 = 120;

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "mongodb",
    purpose: ProgramPurpose::Mongodb,
    serve: |children, options| {
        if options.password.is_some() {
            return Err("the stand-in for MongoDB knows no passwords".to_owned());
        }
        Ok(Box::new(MongoStandIn::start(children, options, false)?))
    },
    fixture,
    variables: &["SERVAL_TEST_MONGODB", "SERVAL_TEST_MONGODB_TLS", "SERVAL_TEST_MONGODB_CA"],
};

/// One without TLS and one with it.
fn fixture(children: &Children) -> Result<Fixture> {
    let options = ServerOptions { short_lived: true, ..ServerOptions::default() };
    let plain = MongoStandIn::start(children, &options, false)?;
    let tls = MongoStandIn::start(children, &options, true)?;
    let variables = vec![
        ("SERVAL_TEST_MONGODB", plain.address()),
        ("SERVAL_TEST_MONGODB_TLS", tls.address()),
        ("SERVAL_TEST_MONGODB_CA", tls.certificate().display().to_string()),
    ];
    Ok(Fixture { servers: vec![Box::new(plain), Box::new(tls)], variables })
}

/// A stand-in that answers. Dropping it stops it and removes its files.
struct MongoStandIn {
    process: ServerProcess,
    port: u16,
}

impl ServerHandle for MongoStandIn {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        vec![format!("mongodb.url=mongodb://{}/ycsb?w=1", self.address())]
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl MongoStandIn {
    /// Starts one and returns once it answers.
    fn start(children: &Children, options: &ServerOptions, tls: bool) -> Result<Self> {
        let class_path = maven::class_path(children, &[STAND_IN])?;
        let level = options.java_level();
        process::on_a_port(options.port, children, |port| {
            Self::start_on(port, children, tls, level, &class_path)
        })
    }

    fn start_on(port: u16, children: &Children, tls: bool, level: &str, class_path: &str) -> Result<Self> {
        let folder = process::folder("mongodb")?;
        let mut command = Command::new("java");
        command.args(["-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", level]);
        command.args(["-cp", class_path]).arg(crate::root().join("xtask/java/MongoStandIn.java"));
        command.arg(port.to_string());
        if tls {
            process::certificate(children, folder.path(), None)?;
            command.arg(folder.path());
        }
        let process = ServerProcess::start(children, "mongo-java-server", folder, &mut command)?;
        let server = Self { process, port };
        // It ends if the port is another's.
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            TcpStream::connect(address).map(drop).map_err(|error| error.to_string())
        })?;
        Ok(server)
    }

    /// The certificate of one with TLS.
    fn certificate(&self) -> PathBuf {
        self.process.folder().join("server.crt")
    }
}
