//! `yesquel serve --groups`: one process with several groups, with real processes.

use crate::{
    metrics::MetricsAddress,
    program::{PROGRAM, Place},
    support::Process,
};
use rustix::process::Signal;
use serde_json::Value;
use std::{fs, process::Command};

/// Address of a server of this name.
fn socket(place: &Place, name: &str) -> String {
    place.path(&format!("{name}.sock")).display().to_string()
}

/// Starts a server of this name at its socket.
#[track_caller]
fn serve(place: &Place, name: &str, more: &[&str]) -> Process {
    let mut command = Command::new(PROGRAM);
    command.current_dir(place.folder()).env("YESQUEL_LOG", "info");
    command.args(["serve", "--data", name, "--listen", &socket(place, name)]).args(more);
    let process = Process::spawn(&mut command);
    process.wait_until_ready();
    process
}

/// Starts a server that joins the cluster of another one.
fn join(place: &Place, name: &str, other: &str, groups: &str) -> Process {
    place.runs(&["cluster", "add", &socket(place, other), "--token-file", "token"]);
    let arguments = ["--join", &socket(place, other), "--token-file", "token", "--groups", groups];
    let process = serve(place, name, &arguments);
    fs::remove_file(place.path("token")).unwrap();
    process
}

/// Status of the cluster as a server gives it.
fn status(place: &Place, name: &str) -> Value {
    let status = place.runs(&["cluster", "status", &socket(place, name), "--json", "--connect-timeout", "1"]);
    serde_json::from_str(&status.printed).unwrap()
}

/// Numbers of the groups that answer.
fn serving(place: &Place, name: &str) -> Vec<u64> {
    let status = status(place, name);
    let groups = status["groups"].as_array().unwrap().iter();
    groups.filter(|group| group["error"].is_null()).map(|group| group["group"].as_u64().unwrap()).collect()
}

/// Waits until these groups answer.
fn wait_for(place: &Place, name: &str, groups: &[u64]) {
    while serving(place, name) != groups {
        std::thread::yield_now();
    }
}

/// The value of a metric that each of these groups has.
fn of_groups(metrics: MetricsAddress, name: &str, groups: &[u64]) -> Vec<f64> {
    let all = metrics.read();
    groups.iter().map(|group| all[&format!("{name}{{group=\"{group}\"}}")]).collect()
}

const TABLES: &str = "CREATE TABLE t(a); CREATE TABLE u(a); CREATE TABLE v(a);";
const WRITE: &str =
    "BEGIN; INSERT INTO t VALUES(1); INSERT INTO u VALUES(2); INSERT INTO v VALUES(3); COMMIT;";
const READ: &str = "SELECT t.a + u.a + v.a FROM t, u, v";

#[test]
fn sql_over_the_groups_of_one_process_survives_its_kill() {
    let place = Place::new();
    let shop = format!("yesquel://{}/shop", socket(&place, "a"));
    let mut server = serve(&place, "a", &["--groups", "3", "--metrics", "127.0.0.1:0"]);
    let metrics = MetricsAddress::of(&server);
    place.prints(&["databases", "create", &socket(&place, "a"), "shop", "--placement", "tables"]);
    place.prints(&["shell", &shop, TABLES]);
    place.prints(&["shell", &shop, WRITE]);
    let votes = of_groups(metrics, "yesquel_prepares_total", &[0, 1, 2]);
    assert!(votes.iter().all(|votes| *votes > 0.0), "each table is at a group of its own: {votes:?}");
    assert_eq!(serving(&place, "a"), [0, 1, 2]);
    server.signal(Signal::KILL);
    server.wait();
    // Fewer are asked for, and none leaves the machine.
    let mut server = serve(&place, "a", &["--metrics", "127.0.0.1:0"]);
    let said = server.said();
    assert!(said.contains("the machine hosts all groups of its data folder"), "{said}");
    assert_eq!(place.prints(&["shell", &shop, READ]), "6\n");
    let metrics = MetricsAddress::of(&server);
    assert!(of_groups(metrics, "yesquel_log_records", &[0, 1, 2]).iter().all(|records| *records > 0.0));
    assert!(metrics.read().contains_key("yesquel_connections"), "the groups share the connections");
    place.prints(&["cluster", "check", &socket(&place, "a"), "--sql"]);
    assert!(place.prints(&["cluster", "doubt", &socket(&place, "a")]).contains("no transaction"));
    server.terminate();
    // The lock of the folder is free, and the folder ended in order.
    let mut server = serve(&place, "a", &["--groups", "4"]);
    let said = server.said();
    assert!(!said.contains("did not end in order"), "{said}");
    assert_eq!(serving(&place, "a"), [0, 1, 2, 3]);
    let extended = place.prints(&["databases", "extend", &socket(&place, "a"), "shop"]);
    assert_eq!(extended, "shop (groups 0,1,2,3)\n");
    assert_eq!(place.prints(&["shell", &shop, READ]), "6\n");
    server.terminate();
}

#[test]
fn a_machine_with_two_groups_joins_and_is_lost() {
    let place = Place::new();
    let mut first = serve(&place, "a", &["--groups", "2"]);
    let mut second = join(&place, "b", "a", "2");
    for name in ["a", "b"] {
        wait_for(&place, name, &[0, 1, 2, 3]);
    }
    // The first machine reads the directory again after a moment.
    let of = |shown: &str, machine: &str| {
        let is_it = |line: &&str| line.starts_with(machine) && line.contains("serving");
        shown.lines().find(is_it).map(str::to_owned)
    };
    let shown = loop {
        let shown = place.prints(&["cluster", "status", &socket(&place, "a")]);
        if of(&shown, "2 ").is_some() {
            break shown;
        }
    };
    assert!(of(&shown, "1 ").is_some_and(|line| line.contains("0,1")), "{shown}");
    assert!(of(&shown, "2 ").is_some_and(|line| line.contains("2,3")), "{shown}");
    place.prints(&["databases", "create", &socket(&place, "b"), "shop", "--placement", "0,2,3"]);
    let shop = |name: &str| format!("yesquel://{}/shop", socket(&place, name));
    place.prints(&["shell", &shop("b"), TABLES]);
    place.prints(&["shell", &shop("a"), WRITE]);
    assert_eq!(place.prints(&["shell", &shop("b"), READ]), "6\n");
    place.prints(&["cluster", "check", &socket(&place, "b"), "--sql"]);
    second.signal(Signal::KILL);
    second.wait();
    let limit = ["--connect-timeout", "1"];
    let lost = place.runs(&[&["cluster", "lost", &socket(&place, "a"), "2"], &limit[..]].concat());
    assert!(lost.printed.contains("group 3 does not answer either"), "{lost:?}");
    let give_up = ["--give-up", "--yes"];
    let lost = place.runs(&[&["cluster", "lost", &socket(&place, "a"), "2"], &limit[..], &give_up].concat());
    assert!(lost.status != 0 && lost.said.contains("If they are lost, too, name them as well"), "{lost:?}");
    let lost =
        place.runs(&[&["cluster", "lost", &socket(&place, "a"), "2", "3"], &limit[..], &give_up].concat());
    assert_eq!(lost.status, 0, "{lost:?}");
    assert!(lost.printed.contains("missing of shop"), "{lost:?}");
    // The later start needs neither the token nor the number of groups.
    let mut second = serve(&place, "b", &[]);
    wait_for(&place, "a", &[0, 1, 2, 3]);
    assert_eq!(place.prints(&["shell", &shop("a"), READ]), "6\n");
    place.prints(&["databases", "drop", &socket(&place, "a"), "shop", "--yes"]);
    let (code, said) = place.fails(&["cluster", "remove", &socket(&place, "a"), "1"]);
    assert!(code == 1 && said.contains("home group"), "{said}");
    place.prints(&["cluster", "remove", &socket(&place, "a"), "2"]);
    assert_eq!(second.wait().code(), Some(1), "{}", second.said());
    wait_for(&place, "a", &[0, 1]);
    first.terminate();
}

#[test]
fn servers_without_a_directory_have_one_group() {
    let place = Place::new();
    let ended = place.runs(&[
        "serve",
        "--data",
        "a",
        "--listen",
        "./a.sock",
        "--peer",
        "1=./b.sock",
        "--groups",
        "2",
    ]);
    assert!(ended.status == 1 && ended.said.contains("start this one without --groups"), "{ended:?}");
    let ended = place.runs(&["serve", "--data", "a", "--groups", "17"]);
    assert!(ended.status == 2 && ended.said.contains("1..=16"), "{ended:?}");
}
