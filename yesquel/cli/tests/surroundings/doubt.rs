//! A server that is silent during a commit: the outcome is unknown, the transaction is not run
//! again, and the client learns its end when the server is back. The metrics show it.

use crate::{
    PROGRAM,
    groups::{Groups, SERVERS, connect, get_from_all, put_in_all},
    support::Process,
};
use rusqlite::{Connection, Error, ErrorCode};
use rustix::process::Signal;
use serde_json::json;
use std::{
    process::{Command, Output},
    time::Duration,
};
use yesquel::SocketOptions;
use yesquel_client::CommitError;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, TreeError, Trees};

const TIMEOUT: Duration = Duration::from_millis(500);

const UNDECIDED: &str = "yesquel_transactions_undecided";
const ENDS: &str = "yesquel_transaction_ends";
const PREPARES: &str = "yesquel_commit_messages_total{kind=\"prepare\"}";

/// Runs `yesquel cluster COMMAND` at the first server.
fn cluster(groups: &Groups, arguments: &[&str]) -> Output {
    let [command, more @ ..] = arguments else { panic!("no command") };
    let mut program = Command::new(PROGRAM);
    program.args(["cluster", command, &groups.addresses[0].to_string()]).args(more).output().unwrap()
}

/// Stops the second server, and commits at both by a client that does not wait long: it does not learn
/// the end.
fn commit_with_a_stopped_server(groups: &Groups, all: &[Tree]) -> Trees<SocketTransport> {
    let options = SocketOptions { timeout: TIMEOUT, connect_timeout: TIMEOUT, ..SocketOptions::default() };
    let trees = connect(&groups.addresses, 7, options);
    groups.servers[1].process.signal(Signal::STOP);
    let outcome = put_in_all(&trees, all, b"k", b"after");
    assert!(matches!(outcome, Err(TreeError::Commit(CommitError::Unknown(_)))), "{outcome:?}");
    trees
}

#[test]
fn transactions_that_wait_for_a_lost_server_are_given_up() {
    let groups = Groups::start();
    let reader = groups.client(8);
    let all = SERVERS.map(|server| block_on(reader.create(server)).unwrap());
    put_in_all(&reader, &all, b"k", b"before").unwrap();
    let database = Command::new(PROGRAM)
        .args(["databases", "create", &groups.addresses[0].to_string(), "wide", "--placement", "1"])
        .output()
        .unwrap();
    assert!(database.status.success(), "{database:?}");
    let _client = commit_with_a_stopped_server(&groups, &all);
    let [first, second] = &groups.servers[..] else { panic!("two servers") };
    second.process.signal(Signal::KILL);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let serves = cluster(&groups, &["lost", "0"]);
    assert!(said(&serves).contains("group 0 answers"), "{serves:?}");
    let lost = cluster(&groups, &["lost", "1"]);
    assert_eq!(lost.status.code(), Some(0), "{lost:?}");
    assert!(printed(&lost).contains("missing of wide: no map yet\n"), "{lost:?}");
    assert!(printed(&lost).contains("1 transaction is in doubt because of it\n"), "{lost:?}");
    // Without a terminal there is no answer.
    let unsure = cluster(&groups, &["lost", "1", "--give-up"]);
    assert!(unsure.status.code() == Some(2) && said(&unsure).contains("nothing was ended"), "{unsure:?}");
    assert_eq!(first.metrics()[UNDECIDED], 1.0);
    let ended = cluster(&groups, &["lost", "1", "--give-up", "--yes", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let ended: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ended["ended"], json!({ "committed": 0, "aborted": 1, "half": 0 }));
    assert_eq!(first.metrics()[UNDECIDED], 0.0);
    let found = block_on(reader.begin().get(all[0], b"k")).unwrap();
    assert_eq!(found.as_deref(), Some(&b"before"[..]));
}

#[test]
fn a_commit_with_a_silent_server_is_unknown_and_its_end_is_learned() {
    let groups = Groups::start();
    let reader = groups.client(8);
    let all = SERVERS.map(|server| block_on(reader.create(server)).unwrap());
    put_in_all(&reader, &all, b"k", b"before").unwrap();
    let [first, second] = &groups.servers[..] else { panic!("two servers") };
    let asked = first.metrics()[PREPARES];
    let trees = commit_with_a_stopped_server(&groups, &all);
    // The first server has voted, once, and the metrics show its doubt.
    let metrics = first.metrics();
    assert_eq!((metrics[PREPARES], metrics[UNDECIDED]), (asked + 1.0, 1.0));
    let by_age: f64 = metrics
        .iter()
        .filter(|(name, _)| name.starts_with("yesquel_transactions_undecided_by_age{"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(by_age, 1.0);
    let doubt = cluster(&groups, &["doubt", "--connect-timeout", "0.3", "--json"]);
    assert_eq!(doubt.status.code(), Some(1));
    let doubt: serde_json::Value = serde_json::from_slice(&doubt.stdout).unwrap();
    let [transaction] = &doubt["transactions"].as_array().unwrap()[..] else { panic!("{doubt}") };
    assert_eq!(transaction["client"], "7");
    assert_eq!((&transaction["groups"], &transaction["participants"]), (&json!([0]), &json!([0, 1])));
    assert_eq!(transaction["cause"], "group 1 does not answer");
    second.process.signal(Signal::CONT);
    groups.wait_for(UNDECIDED, 0);
    let doubt = cluster(&groups, &["doubt"]);
    let shown = String::from_utf8_lossy(&doubt.stdout).into_owned();
    assert_eq!((doubt.status.code(), shown.as_str()), (Some(0), "no transaction is in doubt\n"));
    // Both servers have the same end.
    let found = get_from_all(&reader, &all, b"k").unwrap();
    assert_eq!(found[0], found[1]);
    // The client goes on, and learns the end of the unknown commit: with its heartbeats the servers
    // forget it.
    while put_in_all(&trees, &all, b"k", b"later").is_err() {}
    assert_eq!(
        get_from_all(&reader, &all, b"k").unwrap(),
        [Some(b"later"[..].into()), Some(b"later"[..].into())]
    );
    // A commit that takes a heartbeat into the log leaves only its own end, and that of the other
    // client.
    let mut has_settled = [false; 2];
    while has_settled != [true; 2] {
        // It may fail if this machine is slow.
        let _ = put_in_all(&trees, &all, b"other", b"v");
        for (server, has_settled) in groups.servers.iter().zip(&mut has_settled) {
            *has_settled |= server.metrics()[ENDS] <= 2.0;
        }
    }
    assert_eq!(groups.sum("yesquel_contradictions_total"), 0);
}

/// SQLite's code for a commit that failed midway, `SQLITE_IOERR_COMMIT_ATOMIC`.
const OUTCOME_UNKNOWN: i32 = 10 | 30 << 8;

#[test]
fn sql_gets_an_error_of_its_own_for_an_unknown_outcome() {
    assert!(yesquel_sqlite::is_linked());
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--in-memory", "--listen"]).arg(&socket);
    let server = Process::spawn(&mut command);
    server.wait_until_ready();
    let open = |timeout: u64| {
        Connection::open(format!("file:yesquel://{}/shop?timeout={timeout}", socket.display())).unwrap()
    };
    let connection = open(300);
    connection.execute_batch("CREATE TABLE t(v); BEGIN; INSERT INTO t VALUES(1)").unwrap();
    server.signal(Signal::STOP);
    let outcome = connection.execute_batch("COMMIT");
    let Err(Error::SqliteFailure(error, Some(message))) = outcome else { panic!("{outcome:?}") };
    assert_eq!((error.code, error.extended_code), (ErrorCode::SystemIoFailure, OUTCOME_UNKNOWN));
    assert!(message.contains("is not known"), "{message}");
    assert!(connection.is_autocommit());
    server.signal(Signal::CONT);
    // It is there once, or not at all.
    let count: i64 = open(60_000).query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert!(count <= 1, "{count}");
}
