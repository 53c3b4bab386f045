//! ZooKeeper servers that a test starts, kills and restarts.
//!
//! `cargo xtask test` sets the variable for ZooKeeper's classes; without it these tests are
//! ignored.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longest time for a server to start on the slowest machine.
const START_MAX: Duration = Duration::from_secs(60);

/// A ZooKeeper that keeps its data when it is killed and restarted.
pub(crate) struct Zookeeper {
    classes: String,
    folder: PathBuf,
    pub(crate) port: u16,
    child: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn classes() -> Option<String> {
    let classes = std::env::var("SERVAL_TEST_ZOOKEEPER_CLASSES").ok();
    assert!(classes.is_some(), "SERVAL_TEST_ZOOKEEPER_CLASSES is not set: 'cargo xtask test' sets it");
    classes
}

impl Zookeeper {
    fn new(classes: &str, place: PathBuf, port: u16, more: &str) -> Zookeeper {
        fs::create_dir_all(&place).unwrap();
        // A short tick, because sessions last at least two ticks, and at most twenty if no maximum is set.
        let config = format!(
            "tickTime=200\nmaxSessionTimeout=60000\ninitLimit=50\nsyncLimit=25\ndataDir={}\n\
             clientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,cons\n{more}",
            place.display()
        );
        fs::write(place.join("zoo.cfg"), config).unwrap();
        let mut server = Zookeeper { classes: classes.to_owned(), folder: place, port, child: None };
        server.begin();
        server
    }

    /// Starts one server in `folder`.
    pub(crate) fn start(folder: &tempfile::TempDir) -> Option<Zookeeper> {
        let server = Zookeeper::new(&classes()?, folder.path().join("1"), free_port(), "");
        server.wait_until_ready();
        Some(server)
    }

    /// Starts an ensemble of three servers.
    pub(crate) fn ensemble(folder: &tempfile::TempDir) -> Option<Vec<Zookeeper>> {
        let classes = classes()?;
        let members: Vec<String> = (1..=3)
            .map(|number| format!("server.{number}=127.0.0.1:{}:{}\n", free_port(), free_port()))
            .collect();
        let server = |number: usize| {
            let place = folder.path().join(number.to_string());
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("myid"), number.to_string()).unwrap();
            Zookeeper::new(&classes, place, free_port(), &members.concat())
        };
        let servers: Vec<Zookeeper> = (1..=3).map(server).collect();
        servers.iter().for_each(Zookeeper::wait_until_ready);
        Some(servers)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn begin(&mut self) {
        let mut command = Command::new("java");
        command.args([
            "-Xms32m",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]);
        command.args([
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-cp",
            &self.classes,
        ]);
        command.args(["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]);
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    /// Returns the answer to a four-letter command.
    pub(crate) fn asked(&self, word: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.write_all(word.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    fn wait_until_ready(&self) {
        let until = Instant::now() + START_MAX;
        while !self.asked("srvr").contains("Mode: ") {
            assert!(Instant::now() < until, "ZooKeeper does not start");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the server, as a machine failure would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn start_again(&mut self) {
        self.begin();
        self.wait_until_ready();
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start_again();
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        self.kill();
    }
}
