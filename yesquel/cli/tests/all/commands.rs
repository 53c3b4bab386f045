//! Commands as a user runs them, each test against its own server.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_yesquel");

/// A server, and its output until it was ready.
pub(crate) struct Server {
    child: Child,
    pub(crate) socket: PathBuf,
    said: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test may have stopped it already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve(place: &Path, more: &[&str]) -> Server {
    let socket = place.join("socket");
    let mut command = Command::new(PROGRAM);
    command.arg("serve").arg("--data").arg(place.join("data")).arg("--listen").arg(&socket).args(more);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.contains("ready")) {
        said.push(lines.next().expect("the server ended before it was ready").unwrap());
    }
    // Later output must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Server { child, socket, said }
}

impl Server {
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, b"")
    }

    /// Runs a command; `SOCKET` in the arguments is replaced by the server's address.
    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let socket = self.socket.to_str().unwrap();
        let arguments =
            arguments.iter().map(|argument| if *argument == "SOCKET" { socket } else { argument });
        let mut command = Command::new(PROGRAM);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Returns the output of a command that succeeds.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the status and message of a command that fails.
    pub(crate) fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn databases_and_keys_are_created_read_and_dropped() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &[]);
    assert_eq!(server.prints(&["databases", "list", "SOCKET"]), "");
    server.prints(&["databases", "create", "SOCKET", "shop"]);
    let (status, said) = server.fails(&["databases", "create", "SOCKET", "shop"]);
    assert!(status == 1 && said.contains("there is a database 'shop' already"), "{said}");
    let (status, said) = server.fails(&["databases", "create", "SOCKET", "a/b"]);
    assert!(status == 2 && said.contains("'a/b' cannot be a name: it has a '/'"), "{said}");
    // A map's name may contain a '/'.
    server.prints(&["tree", "SOCKET", "shop/a/b", "put", "key", "value"]);
    assert_eq!(server.prints(&["tree", "SOCKET", "shop/a/b", "scan"]), "key\tvalue\n");
    for (key, value) in [("apples", "7"), ("pears", "3"), ("plums", "12")] {
        server.prints(&["tree", "SOCKET", "shop/stock", "put", key, value]);
    }
    assert_eq!(server.prints(&["tree", "SOCKET", "shop/stock", "get", "pears"]), "3\n");
    let tree = |more: &[&str]| server.prints(&[&["tree", "SOCKET", "shop/stock"], more].concat());
    assert_eq!(tree(&["scan"]), "apples\t7\npears\t3\nplums\t12\n");
    assert_eq!(tree(&["scan", "--prefix", "p", "--limit", "1"]), "pears\t3\n");
    assert_eq!(
        tree(&["scan", "--from", "b", "--to", "pl", "--json"]),
        "{\"key\":\"pears\",\"value\":\"3\"}\n"
    );
    let (status, said) = server.fails(&["tree", "SOCKET", "shop/stock", "put", "--new", "pears", "4"]);
    assert!(status == 1 && said.contains("the key exists already"), "{said}");
    tree(&["delete", "pears"]);
    for command in ["get", "delete"] {
        let (status, said) = server.fails(&["tree", "SOCKET", "shop/stock", command, "pears"]);
        assert!(status == 3 && said.contains("there is no key 'pears'"), "{said}");
    }
    // Arbitrary bytes, and long values.
    let value: Vec<u8> = (0..100_000u32).map(|at| (at * 7) as u8).collect();
    let put = server.run_with(&["tree", "SOCKET", "shop/stock", "put", "long", "-"], &value);
    assert!(put.status.success());
    assert_eq!(server.run(&["tree", "SOCKET", "shop/stock", "get", "long", "--raw"]).stdout, value);
    assert_eq!(tree(&["--hex", "get", "6170706c6573"]), "37\n");
    assert_eq!(server.prints(&["databases", "list", "SOCKET", "--json"]), "{\"shop\":[\"a/b\",\"stock\"]}\n");
    // Without a terminal the command cannot ask for confirmation.
    let (status, said) = server.fails(&["databases", "drop", "SOCKET", "shop"]);
    assert!(status == 2 && said.contains("--yes"), "{said}");
    server.prints(&["databases", "drop", "SOCKET", "shop", "--yes"]);
    let (status, said) = server.fails(&["tree", "SOCKET", "shop/stock", "scan"]);
    assert!(status == 3 && said.contains("there is no database 'shop'"), "{said}");
}

#[test]
fn printed_keys_are_exact_and_valid_arguments() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &["--durability", "none"]);
    let address = yesquel::Address::Unix(server.socket.clone());
    let store = yesquel::Store::connect(&address, yesquel::SocketOptions::default()).unwrap();
    let database = store.create_database("shop").unwrap();
    let map = database.map("stock").unwrap();
    // In byte order, as they are printed.
    let keys: [&[u8]; 8] = [b"-", b"--new", b"-7", b"0x80", b"a\tb\nc", b"a\\tb", "süß".as_bytes(), &[0x80]];
    for key in keys {
        database.put(map, key, key).unwrap();
    }
    let tree = |more: &[&str]| server.prints(&[&["tree", "SOCKET", "shop/stock"], more].concat());
    let shown = tree(&["scan"]);
    let shown: Vec<&str> = shown.lines().map(|line| line.split_once('\t').unwrap().0).collect();
    assert_eq!(shown, [r"\x2d", r"\x2d-new", "-7", "0x80", r"a\tb\nc", r"a\\tb", "süß", r"\x80"]);
    let json = tree(&["scan", "--json"]);
    for ((line, key), shown) in json.lines().zip(keys).zip(shown) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let exact = match std::str::from_utf8(key) {
            Ok(text) => serde_json::json!({ "key": text, "value": text }),
            Err(_) => serde_json::json!({ "key": { "hex": "80" }, "value": { "hex": "80" } }),
        };
        assert_eq!(object, exact);
        // Printed keys are valid as arguments.
        assert_eq!(tree(&["get", shown]), format!("{shown}\n"));
        tree(&["put", shown, shown]);
        assert_eq!(database.get(map, key).unwrap().as_deref(), Some(key));
        assert_eq!(tree(&["scan", "--from", shown, "--limit", "1"]), format!("{shown}\t{shown}\n"));
        tree(&["delete", shown]);
        assert_eq!(database.get(map, key).unwrap(), None);
    }
    let (status, said) = server.fails(&["tree", "SOCKET", "shop/stock", "get", r"a\qb"]);
    assert!(status == 2 && said.contains("after a backslash"), "{said}");
}

#[test]
fn a_tree_is_drawn_and_a_server_reports_its_status() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &["--durability", "none"]);
    let store = yesquel::Store::connect(
        &yesquel::Address::Unix(server.socket.clone()),
        yesquel::SocketOptions::default(),
    );
    let database = store.unwrap().create_database("big").unwrap();
    let map = database.map("map").unwrap();
    for number in 0..1_000u32 {
        database.put(map, format!("key{number:04}").as_bytes(), &[b'v'; 50]).unwrap();
    }
    let status: yesquel::status::ServerStatus =
        serde_json::from_str(&server.prints(&["status", "SOCKET", "--json"])).unwrap();
    let tree = status.trees.iter().find(|tree| tree.tree == map.tree()).unwrap();
    assert_eq!((tree.cells, status.durability.as_str()), (1_000, "none"));
    let text = server.prints(&["status", "SOCKET"]);
    assert!(text.contains("big/map") && text.contains("durability none"), "{text}");
    // The server may still be splitting nodes.
    let file = place.path().join("tree.svg");
    let draw = || {
        let drawn = server.prints(&["tree", "SOCKET", "big/map", "draw"]);
        server.prints(&["tree", "SOCKET", "big/map", "draw", "--svg", file.to_str().unwrap()]);
        let picture = std::fs::read_to_string(&file).unwrap();
        (drawn, picture, server.prints(&["tree", "SOCKET", "big/map", "draw", "--svg", "-"]))
    };
    let (drawn, picture, printed) =
        (0..100).map(|_| draw()).find(|drawn| *drawn == draw()).expect("a tree without further splits");
    // All leaves in order, from the unbounded start to the unbounded end.
    let leaves: Vec<&str> = drawn.lines().filter(|line| line.contains(" keys, ")).collect();
    assert!(leaves.len() > 5 && leaves[0].contains("... to 'key"), "{drawn}");
    let ends: Vec<&str> = leaves.iter().map(|line| line.split(" [").next().unwrap()).collect();
    for pair in ends.windows(2) {
        let high = pair[0].rsplit(" to ").next().unwrap();
        assert!(pair[1].contains(&format!("─ {high} to ")), "{pair:?}");
    }
    assert_eq!(printed.trim(), picture.trim());
    // Leaves that do not fit into a row continue in the next.
    let width = picture.split("width=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(leaves.len() > 12 && width.parse::<f64>().unwrap() < 2_000.0, "{} leaves, {width}", leaves.len());
    assert_eq!(picture.matches(" keys, ").count(), 2 * leaves.len(), "a label and a hint each");
}

#[test]
fn metrics_are_served_on_a_separate_port() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &["--metrics", "127.0.0.1:0", "--log-format", "json"]);
    let line = server.said.iter().find(|line| line.contains("/metrics")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let address = line["fields"]["address"].as_str().unwrap();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("/metrics");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\nyesquel_commits_total 1\n"), "{answer}");
    assert!(ask("/").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_server_shuts_down_cleanly_and_explains_refusals() {
    let place = tempfile::tempdir().unwrap();
    let mut server = serve(place.path(), &[]);
    let second = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let data = place.path().join("data");
    let data = data.to_str().unwrap();
    let said = second(&["--data", data]);
    assert!(said.contains(&format!("in use by process {}", server.child.id())), "{said}");
    let said = second(&["--in-memory", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("needs a certificate with its key and a credential"), "{said}");
    let said = second(&["--in-memory", "--listen", "nowhere.invalid:1"]);
    assert!(said.contains("nowhere.invalid:1"), "{said}");
    let long = place.path().join("long");
    std::fs::write(&long, "x".repeat(1_025)).unwrap();
    let said = second(&["--in-memory", "--credential-file", long.to_str().unwrap()]);
    assert!(
        said.contains("long: the credential, its first line, has 1025 bytes; the limit is 1024"),
        "{said}"
    );
    assert!(second(&[]).contains("--data"));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&server.child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(server.child.wait().unwrap().success());
    assert!(!server.socket.exists());
    let (status, said) = server.fails(&["status", "SOCKET"]);
    assert!(status == 4 && said.contains("socket: No such file"), "{said}");
}

impl Server {
    /// Shuts the server down cleanly.
    fn end(mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns the message of a server that fails to start on a folder.
fn refused(place: &Path, more: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.arg("serve").arg("--data").arg(place.join("data")).arg("--listen").arg(place.join("socket"));
    let output = command.args(more).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_server_with_another_number_does_not_start() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &[]);
    server.prints(&["databases", "create", "SOCKET", "keep"]);
    server.end();
    let said = refused(place.path(), &["--server", "1"]);
    assert!(said.contains("data: is the folder of server 0, and this is server 1"), "{said}");
    assert!(said.contains("Start it with --server 0"), "{said}");
    let server = serve(place.path(), &["--server", "0"]);
    assert_eq!(server.prints(&["databases", "list", "SOCKET"]).trim(), "keep");
}

/// Returns the last file of a group's folder with this prefix.
fn last_file(place: &Path, kind: &str) -> PathBuf {
    let files = std::fs::read_dir(place.join("data/group-00000")).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with(kind);
    files.filter(is_one).max().unwrap()
}

/// Creates a folder with a checkpoint; its server was shut down cleanly or killed.
fn folder_with_checkpoint(place: &Path, in_order: bool) {
    // Each transaction exceeds the checkpoint interval, half of the last checkpoint and a segment.
    let mut server = serve(place, &["--checkpoint-every", "64K"]);
    server.prints(&["databases", "create", "SOCKET", "keep"]);
    for (key, size) in [("a", 200 << 10), ("b", 400 << 10), ("c", 800 << 10)] {
        let put = server.run_with(&["tree", "SOCKET", "keep/m", "put", key, "-"], &vec![b'v'; size]);
        assert!(put.status.success(), "{put:?}");
    }
    server.prints(&["tree", "SOCKET", "keep/m", "put", "last", "1"]);
    if in_order {
        server.end();
    } else {
        server.child.kill().unwrap();
        server.child.wait().unwrap();
    }
}

#[test]
fn a_log_without_its_end_is_reported() {
    let place = tempfile::tempdir().unwrap();
    folder_with_checkpoint(place.path(), true);
    let log = last_file(place.path(), "log-");
    let name = log.file_name().unwrap().to_str().unwrap();
    let whole = std::fs::read(&log).unwrap();
    for length in [0, 20, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&log, &whole[..length]).unwrap();
        let said = refused(place.path(), &[]);
        assert!(said.contains(&format!("{name}: damaged at byte")) && said.contains("copy"), "{said}");
        assert_eq!(std::fs::read(&log).unwrap(), &whole[..length]);
    }
    std::fs::remove_file(&log).unwrap();
    let said = refused(place.path(), &[]);
    assert!(said.contains("group-00000: ") && said.contains("Restore the folder from a copy"), "{said}");
    std::fs::write(&log, &whole).unwrap();
    let server = serve(place.path(), &[]);
    assert_eq!(server.prints(&["tree", "SOCKET", "keep/m", "get", "last"]), "1\n");
}

#[test]
fn an_incomplete_end_of_the_log_is_reported() {
    let place = tempfile::tempdir().unwrap();
    folder_with_checkpoint(place.path(), false);
    // Same state as after a crash during a write.
    let log = last_file(place.path(), "log-");
    let mut bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(end);
    bytes.extend_from_slice(b"YQLChalf");
    std::fs::write(&log, &bytes).unwrap();
    let server = serve(place.path(), &["--log-format", "json"]);
    let entry = server.said.iter().find(|line| line.contains("cut off")).expect("no line about the cut");
    let entry: serde_json::Value = serde_json::from_str(entry).unwrap();
    assert_eq!((&entry["level"], &entry["fields"]["offset"]), (&"WARN".into(), &end.into()), "{entry}");
    assert_eq!(entry["fields"]["bytes"], 8, "{entry}");
    assert_eq!(entry["fields"]["file"], log.to_str().unwrap(), "{entry}");
    assert_eq!(server.prints(&["tree", "SOCKET", "keep/m", "get", "last"]), "1\n");
}

#[test]
fn a_checkpoint_and_its_damage_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &["--checkpoint-every", "64K"]);
    assert!(!server.prints(&["status", "SOCKET"]).contains("checkpoint "));
    server.prints(&["databases", "create", "SOCKET", "keep"]);
    server.prints(&["tree", "SOCKET", "keep/m", "put", "a", &"v".repeat(70_000)]);
    let has_one = |said: &str| said.contains(" on disk, files of ") && said.contains("ago, as of record ");
    while !has_one(&server.prints(&["status", "SOCKET"])) {}
    server.end();
    let server = serve(place.path(), &[]);
    let said = server.prints(&["status", "SOCKET"]);
    assert!(has_one(&said), "{said}");
    server.end();
    let checkpoint = last_file(place.path(), "checkpoint-");
    let mut bytes = std::fs::read(&checkpoint).unwrap();
    bytes[120] ^= 1;
    std::fs::write(&checkpoint, bytes).unwrap();
    let said = refused(place.path(), &[]);
    assert!(said.contains(checkpoint.to_str().unwrap()) && said.contains("damaged at byte 64"), "{said}");
}

#[test]
fn faults_of_options_are_explained() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &["--durability", "none"]);
    for (value, what) in [
        ("1e300", "it is more than 86400 seconds, a day"),
        ("inf", "it is more than 86400 seconds, a day"),
        ("0", "it must be above zero"),
        ("-1", "it must be above zero"),
        ("NaN", "it must be above zero"),
        ("soon", "it is no number of seconds"),
    ] {
        let (status, said) = server.fails(&["databases", "list", "SOCKET", "--connect-timeout", value]);
        assert!(status == 2 && said.contains(what) && !said.contains("tip"), "{value}: {said}");
    }
    let (status, said) = server.fails(&["tree", "SOCKET", "a/b", "scan", "--limit", "-1"]);
    assert!(status == 2 && said.contains("invalid value '-1'") && !said.contains("tip"), "{said}");
    // The next argument is the address; the interval is part of the option.
    for watch in ["--watch", "--watch=0.1"] {
        let mut command = Command::new(PROGRAM);
        command.args(["status", watch]).arg(&server.socket).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("server"), "{line}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (status, said) = server.fails(&["status", "--watch=0.01", "SOCKET"]);
    assert!(status == 2 && said.contains("it must be 0.1 or more"), "{said}");
    let help = server.prints(&["--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("3 no such database, map or key"), "{help}");
}

#[test]
fn a_failed_connection_names_the_missing_option() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), &["--durability", "none", "--listen", "127.0.0.1:0"]);
    let ready = server.said.iter().find(|line| line.contains("127.0.0.1:")).unwrap();
    let port: String =
        ready.split("127.0.0.1:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    let (status, said) = server.fails(&["status", &format!("127.0.0.1:{port}"), "--tls"]);
    assert!(status == 4 && said.contains("it may speak no TLS") && said.contains("Leave --tls"), "{said}");
    // A peer that accepts a connection and closes it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let (status, said) = server.fails(&["status", &address]);
    assert!(status == 4 && said.contains("closed the connection") && said.contains("--tls-ca"), "{said}");
    other.join().unwrap();
}

#[test]
fn completions_succeed_when_their_output_is_closed() {
    let mut command = Command::new(PROGRAM);
    let mut child =
        command.args(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
