//! `yesquel cluster add` and `remove`, and `yesquel serve --join`, with real processes.

use crate::{
    program::{PROGRAM, Place},
    support::Process,
};
use rustix::process::Signal;
use std::{fs, os::unix::fs::PermissionsExt, process::Command};

/// Address of a server of this name.
fn socket(place: &Place, name: &str) -> String {
    place.path(&format!("{name}.sock")).display().to_string()
}

/// A server of this name, at its socket.
fn command(place: &Place, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(place.folder());
    command.args(["serve", "--data", name, "--listen", &socket(place, name)]).args(more);
    command
}

#[track_caller]
fn serve(place: &Place, name: &str, more: &[&str]) -> Process {
    let process = Process::spawn(&mut command(place, name, more));
    process.wait_until_ready();
    process
}

/// Returns the status and message of a server that does not start.
fn refused(place: &Place, name: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = command(place, name, more).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Starts a server that joins the cluster of `other`.
#[track_caller]
fn join(place: &Place, name: &str, other: &str) -> Process {
    let token = format!("{name}.token");
    let added = place.runs(&["cluster", "add", &socket(place, other), "--token-file", &token]);
    assert_eq!((added.status, added.printed.as_str()), (0, ""), "{}", added.said);
    assert!(added.said.contains(&format!("--join unix:{}", socket(place, other))), "{}", added.said);
    let process = serve(place, name, &["--join", &socket(place, other), "--token-file", &token]);
    fs::remove_file(place.path(&token)).unwrap();
    process
}

/// The machines as `cluster status` at a server lists them: number, group, state.
fn machines(place: &Place, name: &str) -> Vec<(u64, u64, String)> {
    let status =
        place.runs(&["cluster", "status", &socket(place, name), "--json", "--connect-timeout", "0.3"]);
    let status: serde_json::Value = serde_json::from_str(&status.printed).unwrap();
    let of = |machine: &serde_json::Value| {
        let number = |name: &str| machine[name].as_u64().unwrap();
        (number("machine"), number("group"), machine["state"].as_str().unwrap().to_owned())
    };
    status["machines"].as_array().unwrap().iter().map(of).collect()
}

fn wait_for(place: &Place, name: &str, states: &[&str]) {
    loop {
        let machines = machines(place, name);
        if machines.iter().map(|(.., state)| state.as_str()).eq(states.iter().copied()) {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn machines_join_and_leave() {
    let place = Place::new();
    let mut founder = serve(&place, "a", &[]);
    assert_eq!(machines(&place, "a"), []);
    let old = |name: &str| format!("yesquel://{}/old", socket(&place, name));
    place.prints(&["databases", "create", &socket(&place, "a"), "old"]);
    place.prints(&["shell", &old("a"), "CREATE TABLE t(a); INSERT INTO t VALUES(1)"]);
    let mut second = join(&place, "b", "a");
    let mut third = join(&place, "c", "b");
    for name in ["a", "b", "c"] {
        wait_for(&place, name, &["serving"; 3]);
    }
    place.prints(&["databases", "create", &socket(&place, "c"), "shop", "--placement", "tables"]);
    let address = |name: &str| format!("yesquel://{}/shop", socket(&place, name));
    place.prints(&["shell", &address("b"), "CREATE TABLE t(a); CREATE TABLE u(a); INSERT INTO u VALUES(7)"]);
    let shown = place.prints(&["cluster", "status", &socket(&place, "b")]);
    // The entries of the directory are none of a damaged catalog.
    place.prints(&["cluster", "check", &socket(&place, "b")]);
    assert!(shown.contains("machine  groups  state    starts  address"), "{shown}");
    // A database from before gets tables at the machines that have joined.
    let (status, said) =
        place.fails(&["databases", "extend", &socket(&place, "b"), "old", "--placement", "7"]);
    assert!(status == 1 && said.contains("group 7 is not known"), "{status}: {said}");
    let extended = place.prints(&["databases", "extend", &socket(&place, "b"), "old"]);
    assert_eq!(extended, "old (groups 0,1,2)\n");
    place.prints(&[
        "shell",
        &old("c"),
        "CREATE TABLE u(a); CREATE TABLE v(a); INSERT INTO v SELECT a FROM t",
    ]);
    place.prints(&["cluster", "check", &socket(&place, "a"), "old"]);
    assert_eq!(place.prints(&["shell", &old("a"), "SELECT a FROM v"]), "1\n");
    place.prints(&["databases", "drop", &socket(&place, "a"), "old", "--yes"]);
    // The token is not needed again, and the same command line works.
    third.terminate();
    let again = ["--join", &socket(&place, "a"), "--token-file", "c.token"];
    let mut third = serve(&place, "c", &again);
    assert_eq!(place.prints(&["shell", &address("c"), "SELECT a FROM u"]), "7\n");
    // Without the home group, new clients learn the groups from any machine.
    founder.terminate();
    let directory =
        place.runs(&["cluster", "status", &socket(&place, "c"), "--json", "--connect-timeout", "0.3"]);
    let directory: serde_json::Value = serde_json::from_str(&directory.printed).unwrap();
    let groups: Vec<_> =
        directory["groups"].as_array().unwrap().iter().map(|group| &group["group"]).collect();
    assert_eq!(groups, [0, 1, 2]);
    assert_eq!(directory["machines"].as_array().unwrap().len(), 3);
    let mut founder = serve(&place, "a", &[]);
    assert_eq!(place.prints(&["shell", &address("a"), "SELECT a FROM u"]), "7\n");

    let (status, said) = place.fails(&["cluster", "remove", &socket(&place, "a"), "3"]);
    assert!(status == 1 && said.contains("machine 3 has group 2 of the database 'shop'"), "{said}");
    place.prints(&["databases", "drop", &socket(&place, "b"), "shop", "--yes"]);
    place.prints(&["cluster", "remove", &socket(&place, "b"), "3"]);
    let status = third.wait();
    assert_eq!(status.code(), Some(1), "{}", third.said());
    assert!(third.said().contains("error: machine 3 was removed from the cluster"), "{}", third.said());
    for name in ["a", "b"] {
        wait_for(&place, name, &["serving", "serving", "removed"]);
    }
    // Also of a machine that is down.
    second.terminate();
    place.prints(&["cluster", "remove", &socket(&place, "a"), "2"]);
    let (status, said) = refused(&place, "b", &[]);
    assert!(status == Some(1) && said.contains("machine 2 was removed"), "{said}");
    founder.terminate();
}

/// A machine that is started again from a copy while it is stopped ends when it goes on.
#[test]
fn a_machine_ends_when_a_copy_of_its_folder_has_started() {
    let place = Place::new();
    let _founder = serve(&place, "a", &[]);
    let mut original = join(&place, "b", "a");
    original.signal(Signal::STOP);
    let copied = Command::new("cp").arg("-r").args([place.path("b"), place.path("copy")]).status().unwrap();
    assert!(copied.success());
    let mut copy = serve(&place, "copy", &[]);
    original.signal(Signal::CONT);
    assert_eq!(original.wait().code(), Some(1), "{}", original.said());
    assert!(original.said().contains("machine 2 was started again (start 2)"), "{}", original.said());
    copy.terminate();
}

/// A start that waits for the home group ends at a signal.
#[test]
fn a_machine_waits_for_the_home_group() {
    let place = Place::new();
    let mut founder = serve(&place, "a", &[]);
    join(&place, "b", "a").terminate();
    founder.terminate();
    let mut waiting = Process::spawn(&mut command(&place, "b", &[]));
    while !waiting.said().contains("waiting for the home group") {
        std::thread::yield_now();
    }
    waiting.terminate();
    let waiting = Process::spawn(&mut command(&place, "b", &[]));
    while !waiting.said().contains("waiting for the home group") {
        std::thread::yield_now();
    }
    let _founder = serve(&place, "a", &[]);
    waiting.wait_until_ready();
}

#[test]
fn the_token_and_the_credential_of_servers_are_kept_secret() {
    let place = Place::new();
    place.certify();
    fs::write(place.path("secret"), "of clients\n").unwrap();
    fs::write(place.path("peers"), "of servers\n").unwrap();
    let encrypted = ["--tls-cert", "ca.pem", "--tls-key", "key.pem", "--credential-file", "secret"];
    let founder = [
        &encrypted[..],
        &["--listen", "127.0.0.1:0", "--peer-credential-file", "peers", "--peer-tls-ca", "ca.pem"],
    ]
    .concat();
    let founder = serve(&place, "a", &founder);
    let said = founder.said();
    let port = said.split("127.0.0.1:").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("127.0.0.1:{port}");
    let add = ["cluster", "add", &address, "--tls-ca", "ca.pem", "--token-file", "token"];
    let with = |credential: &str| place.runs(&[&add[..], &["--peer-credential-file", credential]].concat());
    // A client's credential makes no token, and leaves no file.
    let added = with("secret");
    assert_eq!(added.status, 4, "{added:?}");
    assert!(added.said.contains("operators present the credential of servers"), "{added:?}");
    assert!(!place.path("token").exists());
    let added = with("peers");
    assert_eq!(added.status, 0, "{added:?}");
    assert_eq!(place.path("token").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let again = with("peers");
    assert!(again.status == 1 && again.said.contains("token: File exists"), "{again:?}");
    // Without a certificate of the authority the token does not leave.
    let joins = ["--join", &address, "--token-file", "token"];
    let (status, said) = refused(&place, "b", &[&encrypted[..], &joins].concat());
    assert!(status == Some(1) && said.contains("the token is not sent without encryption"), "{said}");
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(place.path("other.pem"), other.cert.pem()).unwrap();
    let (_, said) = refused(&place, "b", &[&encrypted[..], &joins, &["--peer-tls-ca", "other.pem"]].concat());
    assert!(said.contains("certificate is not trusted"), "{said}");
    let trusting = [&encrypted[..], &["--listen", "127.0.0.1:0", "--peer-tls-ca", "ca.pem"]].concat();
    let mut joined = serve(&place, "b", &[&trusting[..], &joins].concat());
    let credential = place.path("b").join("peer-credential-encrypted");
    assert_eq!(fs::read(&credential).unwrap(), b"of servers");
    assert_eq!(credential.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    joined.terminate();
    // Nor does the credential at a later start. With a wrong certificate it does not wait.
    let (status, said) = refused(&place, "b", &encrypted);
    assert!(status == Some(1) && said.contains("--peer-tls-ca"), "{status:?}: {said}");
    let mistrusting = [&encrypted[..], &["--listen", "127.0.0.1:0", "--peer-tls-ca", "other.pem"]].concat();
    let (status, said) = refused(&place, "b", &mistrusting);
    assert!(status == Some(4) && said.contains("certificate is not trusted"), "{status:?}: {said}");
    assert!(said.contains("--peer-tls-ca FILE"), "{said}");
    let _joined = serve(&place, "b", &trusting);
    for text in [founder.said(), joined.said()] {
        assert!(!text.contains("yesquel-join") && !text.contains("of servers"), "{text}");
    }
}

/// Such a machine would present the credential without encryption to the one that joins.
#[test]
fn a_machine_that_encrypts_for_clients_only_issues_no_token() {
    let place = Place::new();
    place.certify();
    fs::write(place.path("peers"), "of servers\n").unwrap();
    let options = ["--tls-cert", "ca.pem", "--tls-key", "key.pem", "--peer-credential-file", "peers"];
    let _founder = serve(&place, "a", &options);
    let at = socket(&place, "a");
    let (status, said) = place.fails(&["cluster", "add", &at, "--peer-credential-file", "peers"]);
    assert!(status == 1 && said.contains("start it with --peer-tls-ca"), "{status}: {said}");
}

#[test]
fn wrong_options_are_refused() {
    let place = Place::new();
    let _founder = serve(&place, "a", &[]);
    let at = socket(&place, "a");
    for (more, why) in [
        (&["--join", &at][..], "--token-file"),
        (&["--token-file", "token"], "--join"),
        (&["--join", &at, "--token-file", "token", "--server", "3"], "--server"),
    ] {
        let (status, said) = refused(&place, "b", more);
        assert!(status == Some(2) && said.contains(why), "{said}");
    }
    let (status, said) = refused(&place, "b", &["--join", &at, "--token-file", "token"]);
    assert!(status == Some(1) && said.contains("'token': No such file"), "{said}");
    for (expires, why) in [("1", "such as 1h"), ("31d", "30 days"), ("0h", "above zero")] {
        let (status, said) = place.fails(&["cluster", "add", &at, "--expires", expires]);
        assert!(status == 2 && said.contains(why), "{said}");
    }
    let (status, said) = place.fails(&["cluster", "remove", &at, "1"]);
    assert!(status == 1 && said.contains("there is no machine 1"), "{said}");
    // The first token makes the directory.
    assert!(place.prints(&["cluster", "add", &at, "--expires", "2d"]).starts_with("yesquel-join-"));
    let (status, said) = place.fails(&["cluster", "remove", &at, "1"]);
    assert!(status == 1 && said.contains("machine 1 has the home group"), "{said}");
}
