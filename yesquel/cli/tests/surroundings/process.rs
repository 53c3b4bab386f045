//! Standard error, the memory limit, and log lines about closed connections.

use crate::{PROGRAM, support::Process};
use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use yesquel::{Address, SocketOptions, Store};
use yesquel_wire::greeting::{Hello, Role, VERSIONS};

fn serve(place: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--in-memory", "--listen"]).arg(place.join("socket"));
    command
}

/// Returns the status and message of a server that fails to start.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output: Output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A server that is killed with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// If the log cannot be written, only the log is lost.
#[test]
fn a_server_with_a_full_standard_error_continues() {
    let place = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = serve(place.path());
    command.args(["--listen", &format!("127.0.0.1:{port}")]).env("YESQUEL_LOG", "debug");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut server = Killed(command.stderr(Stdio::from(full)).spawn().unwrap());
    let address = Address::Unix(place.path().join("socket"));
    // The server cannot report that it is ready.
    let begun = Instant::now();
    let store = loop {
        match Store::connect(&address, SocketOptions::default()) {
            Ok(store) => break store,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
        }
        thread::yield_now();
    };
    // Makes the socket thread write log lines.
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // Closed, with or without unread bytes.
        let _ = stream.read(&mut [0]);
    }
    store.create_database("shop").unwrap();
    assert!(server.0.try_wait().unwrap().is_none());
    // A command that cannot print its error still exits with its status.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut list = Command::new(PROGRAM);
    list.args(["databases", "list", "./nowhere"]).stderr(Stdio::from(full));
    assert_eq!(list.status().unwrap().code(), Some(4));
}

/// The log names the peer of a closed connection and the reason.
#[test]
fn the_log_names_refused_peers_and_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let mut server = Process::spawn(serve(place.path()).args(["--listen", "127.0.0.1:0"]));
    server.wait_until_ready();
    let said = server.said();
    let port = said.split("127.0.0.1:").nth(1).unwrap();
    let port: u16 = port.split(|sign: char| !sign.is_ascii_digit()).next().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let own = stream.local_addr().unwrap().to_string();
    stream
        .write_all(
            &Hello { versions: (9, 12), client: 7, credential: b"", role: Role::Client, cluster: None }
                .encode(),
        )
        .unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    server.terminate();
    let said = server.said();
    let (lowest, highest) = VERSIONS;
    let why = format!("it speaks versions 9 to 12 of the protocol, this server {lowest} to {highest}");
    assert!(said.contains(&why), "{said}");
    assert!(said.contains(&format!("peer={own}")), "{said}");
}

#[test]
fn a_server_with_little_memory_works() {
    let place = tempfile::tempdir().unwrap();
    let server = Process::spawn(serve(place.path()).args(["--memory", "1M"]));
    server.wait_until_ready();
    let address = Address::Unix(place.path().join("socket"));
    let database = Store::connect(&address, SocketOptions::default()).unwrap();
    let database = database.create_database("shop").unwrap();
    let map = database.map("stock").unwrap();
    for key in 0..100u32 {
        database.put(map, &key.to_be_bytes(), &[7; 1_000]).unwrap();
    }
}

#[test]
fn unusable_settings_are_refused() {
    for (option, value, why) in [
        ("--memory", "0", "at least 1M"),
        ("--memory", "1K", "at least 1M"),
        ("--checkpoint-every", "0", "at least 64K"),
        ("--clients-max", "0", "1..="),
        ("--snapshot-age-max", "0", "1.."),
        ("--socket-mode", "rw", "octal"),
        ("--metrics", "9100", "host:port"),
    ] {
        // If the server accepted the option, it would fail to listen instead.
        let (status, said) = refused(&["--in-memory", "--listen", "./no/such/socket", option, value]);
        assert!(status == 2 && said.contains(option) && said.contains(why), "{said}");
    }
    let (status, said) = refused(&[]);
    assert!(status == 2 && said.contains("--data") && said.contains("--in-memory"), "{said}");
}

#[test]
fn metrics_are_local_unless_public() {
    let place = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, said) = refused(&["--in-memory", "--listen", "127.0.0.1:0", "--metrics", &address]);
    assert!(status == 1 && said.contains(&address) && said.contains("in use"), "{said}");
    assert_eq!(refused(&["--in-memory", "--listen", &address]).0, 1);
    let (status, said) = refused(&["--in-memory", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"]);
    assert!(status == 1 && said.contains("--metrics-public"), "{said}");
    for metrics in [&["--metrics", "localhost:0"][..], &["--metrics", "0.0.0.0:0", "--metrics-public"]] {
        let mut server = Process::spawn(serve(place.path()).args(metrics));
        server.wait_until_ready();
        assert!(server.said().contains("/metrics"), "{}", server.said());
        server.terminate();
    }
}

/// The socket's mode does not depend on the umask.
#[test]
fn only_the_owner_may_use_the_socket() {
    let place = tempfile::tempdir().unwrap();
    let mode = |more: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$@\"", "sh", PROGRAM, "serve", "--in-memory", "--listen"]);
        let mut server = Process::spawn(command.arg(place.path().join("socket")).args(more));
        server.wait_until_ready();
        let mode = place.path().join("socket").metadata().unwrap().permissions().mode();
        server.terminate();
        mode & 0o777
    };
    assert_eq!(mode(&[]), 0o600);
    assert_eq!(mode(&["--socket-mode", "0660"]), 0o660);
}
