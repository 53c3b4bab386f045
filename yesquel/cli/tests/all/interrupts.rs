//! Ctrl-C while the server does not answer: the command ends, and the data is intact.

use crate::program::Place;
use crate::relay::Relay;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Output, Stdio},
};
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

struct Served {
    place: Place,
    relay: Relay,
    /// Through the relay, and directly.
    address: String,
    direct: String,
    _server: Server,
}

const BEFORE: &str = "CREATE TABLE before(a); INSERT INTO before VALUES(1)";
const CONTENT: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000)
    INSERT INTO t SELECT x, hex(randomblob(500)) FROM c; CREATE INDEX tb ON t(b)";

impl Served {
    fn new() -> Served {
        let place = Place::new();
        let socket = place.path("socket");
        let listen =
            ListenOptions { addresses: vec![Address::Unix(socket.clone())], ..ListenOptions::default() };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let relay = Relay::new(place.path("relay"), &socket);
        let address = |socket: &std::path::Path| format!("yesquel://{}/shop", socket.display());
        let (address, direct) = (address(&relay.socket), address(&socket));
        Served { place, relay, address, direct, _server: server }
    }

    fn starts(&self, arguments: &[&str]) -> Child {
        let mut command = self.place.program(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Sends SIGINT once, while the command waits for the server.
    fn interrupts(&self, child: Child) -> Output {
        self.relay.wait_for_request();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        self.relay.open();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(output.status.code(), Some(130), "{said}");
        output
    }
}

#[test]
fn an_interrupt_ends_a_script() {
    let served = Served::new();
    served.place.prints(&["shell", &served.direct, BEFORE]);
    for sql in ["SELECT 'no' FROM before;", "INSERT INTO before VALUES(2);", "CREATE TABLE other(a);"] {
        let mut child = served.starts(&["shell", &served.address]);
        let mut input = child.stdin.take().unwrap();
        // The command has opened the database.
        writeln!(input, "SELECT count(*) FROM before;").unwrap();
        let mut line = String::new();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        printed.read_line(&mut line).unwrap();
        served.relay.shut();
        writeln!(input, "{sql}\nSELECT 'after';").unwrap();
        served.interrupts(child);
        line.clear();
        printed.read_line(&mut line).unwrap();
        assert_eq!(line, "", "{sql}");
    }
}

#[test]
fn an_interrupted_import_changes_nothing_or_completes() {
    let served = Served::new();
    let (place, relay) = (&served.place, &served.relay);
    rusqlite::Connection::open(place.path("app.db")).unwrap().execute_batch(CONTENT).unwrap();
    let import = ["import", "--force", "--quiet", "app.db", &served.address];
    place.prints(&import);
    let all = relay.sent();
    assert!(all > 1 << 20, "{all}");
    let look = "SELECT group_concat(name) FROM sqlite_schema; PRAGMA integrity_check";
    for part in [3, 5, 8, 9] {
        place.prints(&[
            "shell",
            &served.direct,
            "DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS before",
            BEFORE,
        ]);
        relay.shut_after(all / 10 * part);
        served.interrupts(served.starts(&import));
        let found = place.prints(&["shell", &served.direct, look]);
        assert!(found == "before\nok\n" || found == "t,tb\nok\n", "{part}: {found}");
    }
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let served = Served::new();
    let place = &served.place;
    place.prints(&["shell", &served.direct, CONTENT]);
    let export = ["export", "--quiet", &served.address, "out.db"];
    place.prints(&export);
    std::fs::remove_file(place.path("out.db")).unwrap();
    let (all, files) = (served.relay.sent(), place.files());
    for part in [4, 6, 9] {
        served.relay.shut_after(all / 10 * part);
        let output = served.interrupts(served.starts(&export));
        assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was changed"));
        assert_eq!(place.files(), files, "{part}");
    }
    place.prints(&export);
    assert_eq!(place.prints(&["shell", "out.db", "SELECT count(*) FROM t"]), "3000\n");
}

#[test]
fn an_interrupt_ends_a_check() {
    let served = Served::new();
    let place = &served.place;
    place.prints(&["shell", &served.direct, CONTENT]);
    let socket = served.relay.socket.display().to_string();
    let check = ["cluster", "check", &socket, "--sql", "--quiet"];
    place.prints(&check);
    let all = served.relay.sent();
    for part in [2, 5, 9] {
        served.relay.shut_after(all / 10 * part);
        let output = served.interrupts(served.starts(&check));
        assert!(String::from_utf8_lossy(&output.stderr).contains("not all is checked"));
    }
    place.prints(&check);
}
