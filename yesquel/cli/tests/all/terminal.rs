//! `yesquel shell` on a terminal: editing, history, completion, Ctrl-C.
//!
//! Tests wait for output of the shell; a timeout only ends a test that hangs.

use crate::program::Place;
use crate::relay::Relay;
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, ExitStatus},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

const PATIENCE: Duration = Duration::from_secs(60);

/// A shell on a pseudo-terminal.
struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    /// Output that no test has waited for yet.
    screen: String,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The process may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn open(place: &Place, arguments: &[&str]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || -> OwnedFd { File::options().read(true).write(true).open(&name).unwrap().into() };
        let mut command = place.program(arguments);
        command.env("TERM", "xterm").env("YESQUEL_HISTORY", place.path("history")).env_remove("NO_COLOR");
        command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME").env_remove("YESQUEL_SHELLRC");
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        // Close our copies with the command, or reading never ends.
        drop(command);
        let keys = File::from(master);
        let mut from = keys.try_clone().unwrap();
        let (tell, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the other side is closed.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, keys, shown, screen: String::new() }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for an output; returns the output before it.
    #[track_caller]
    fn sees(&mut self, text: &str) -> String {
        loop {
            if let Some((before, behind)) = self.screen.split_once(text) {
                let before = before.to_owned();
                self.screen = behind.to_owned();
                return before;
            }
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("'{text}' is not shown: {:?}", self.screen),
            }
        }
    }

    /// Waits for the shell to exit.
    fn ends(mut self) -> ExitStatus {
        while self.shown.recv_timeout(PATIENCE).is_ok() {}
        self.child.wait().unwrap()
    }
}

const PROMPT: &str = "yesquel> ";
const MORE: &str = "   ...> ";

#[test]
fn the_startup_file_is_read_first() {
    let place = Place::new();
    fs::write(place.path(".yesquelrc"), ".nullvalue nothing\n.prompt 'well> '\n").unwrap();
    let mut terminal = Terminal::open(&place, &["shell", "--mode", "list"]);
    terminal.sees("well> ");
    terminal.types("SELECT 1 + NULL;\r");
    terminal.sees("nothing");
    terminal.types(".exit\r");
    assert!(terminal.ends().success());
    // The default file is for terminals; a named one replaces it.
    let script =
        place.program(&["shell", "--mode", "list", "", "SELECT NULL"]).env("HOME", place.path("")).output();
    assert_eq!(script.unwrap().stdout, b"\n");
    fs::write(place.path("other"), ".nullvalue other\n").unwrap();
    let mut terminal = Terminal::open(&place, &["shell", "--mode", "list", "--init", "other"]);
    terminal.sees(PROMPT);
    terminal.types("SELECT 1 + NULL;\r");
    terminal.sees("other");
    terminal.types(".exit\r");
    assert!(terminal.ends().success());
}

#[test]
fn statements_are_edited_and_kept_in_the_history() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &["shell"]);
    terminal.sees("trees in memory");
    terminal.sees(PROMPT);
    // A statement of several lines, with two characters deleted.
    terminal.types("CREATE TABLE fruits(name TEXT,\r");
    terminal.sees(MORE);
    terminal.types("number INT);\r");
    terminal.sees(PROMPT);
    terminal.types("INSERT INTO fruits VALUES('appleXY\x7f\x7fs', 7);\r");
    terminal.sees(PROMPT);
    // Completion of names.
    terminal.types("SELECT * FROM fru\t;\r");
    terminal.sees("┌────────┬────────┐");
    terminal.sees("│ apples │ 7      │");
    terminal.sees(PROMPT);
    // History.
    terminal.types("\x1b[A\r");
    terminal.sees("│ apples │ 7      │");
    terminal.sees(PROMPT);
    terminal.types(".tab\t\r");
    terminal.sees(".tables");
    terminal.sees("fruits");
    terminal.sees(PROMPT);
    terminal.types("SELECT no_such;\r");
    terminal.sees("Parse error:");
    terminal.sees("no such column: no_such");
    terminal.sees(PROMPT);
    terminal.types("\x04");
    // Status 0: an interactive user has seen the errors.
    assert!(terminal.ends().success());
    let history = fs::read_to_string(place.path("history")).unwrap();
    assert!(history.contains("SELECT * FROM fruits;"), "{history}");
    assert!(history.contains("CREATE TABLE fruits(name TEXT,\\nnumber INT);"), "{history}");
    // The next shell has it.
    let mut terminal = Terminal::open(&place, &["shell"]);
    terminal.sees(PROMPT);
    terminal.types("\x1b[A\r");
    terminal.sees("no such column: no_such");
    terminal.sees(PROMPT);
    terminal.types(".quit\r");
    assert!(terminal.ends().success());
}

#[test]
fn ctrl_c_clears_a_line_and_stops_a_statement() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &["shell", ":memory:"]);
    terminal.sees(PROMPT);
    terminal.types("SELECT 'begun\r");
    terminal.sees(MORE);
    terminal.types("and not ended\x03");
    terminal.sees(PROMPT);
    terminal.types("SELECT 1 + 1;\r");
    terminal.sees("│ 2     │");
    terminal.sees(PROMPT);
    terminal.types(
        "SELECT 'running'; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c;\r",
    );
    // The first statement is done, and the second runs.
    terminal.sees("│ running   │");
    kill_process(Pid::from_child(&terminal.child), Signal::INT).unwrap();
    terminal.sees("interrupted");
    terminal.sees(PROMPT);
    terminal.types("SELECT 2 + 3;\r");
    terminal.sees("│ 5     │");
    terminal.sees(PROMPT);
    terminal.types(".exit 5\r");
    assert_eq!(terminal.ends().code(), Some(5));
}

#[test]
fn ctrl_c_stops_a_statement_that_waits_for_a_server() {
    let place = Place::new();
    let socket = place.path("socket");
    let listen = ListenOptions { addresses: vec![Address::Unix(socket.clone())], ..ListenOptions::default() };
    let _server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    let relay = Relay::new(place.path("relay"), &socket);
    let mut terminal =
        Terminal::open(&place, &["shell", &format!("yesquel://{}/shop", relay.socket.display())]);
    terminal.sees(PROMPT);
    terminal.types("CREATE TABLE t(a); INSERT INTO t VALUES(7);\r");
    terminal.sees(PROMPT);
    for sql in ["SELECT * FROM t;\r", "INSERT INTO t VALUES(7);\r"] {
        relay.shut();
        terminal.types(sql);
        relay.wait_for_request();
        kill_process(Pid::from_child(&terminal.child), Signal::INT).unwrap();
        terminal.sees("interrupted");
        terminal.sees(PROMPT);
        relay.open();
    }
    terminal.types("SELECT min(a) + max(a) FROM t;\r");
    terminal.sees("14");
    terminal.sees(PROMPT);
    terminal.types(".exit 5\r");
    assert_eq!(terminal.ends().code(), Some(5));
}
