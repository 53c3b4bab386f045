//! etcd, real servers: the suite on one and on a cluster, the layout as another
//! client sees it, and refusals of servers.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests are ignored.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serde_json::{Value, json};
use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, FaultyProxy, Subject, fields, full, properties, schema,
    silent, variable,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::etcd::Etcd;
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Tests share the servers and empty them, so they run one at a time.
static SERVERS: Mutex<()> = Mutex::new(());

/// Bytes at the start of a connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

fn open(settings: &[(&str, &str)]) -> Result<Etcd, String> {
    Etcd::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// Sends a request to a server's JSON gateway, with a token if there is one.
fn ask(address: &str, path: &str, token: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let token = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
    let length = body.len();
    // HTTP/1.0 answers in one piece.
    let head = format!("POST /v3/{path} HTTP/1.0\r\n{token}Content-Length: {length}\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{path}: {text}");
    serde_json::from_str(body).unwrap()
}

/// Encodes bytes as the gateway does.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(*group.get(at).unwrap_or(&0)));
        let letter = |at: usize| {
            if at <= group.len() { char::from(LETTERS[bits >> (18 - 6 * at) & 63]) } else { '=' }
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Writes a key without Serval's store.
fn put(address: &str, key: &str, value: &str) {
    let body = json!({ "key": base64(key.as_bytes()), "value": base64(value.as_bytes()) });
    ask(address, "kv/put", "", &body);
}

/// Returns the revision of a server's data.
fn revision(address: &str) -> u64 {
    let answer = ask(address, "kv/range", "", &json!({ "key": base64(b"x") }));
    answer["header"]["revision"].as_str().unwrap().parse().unwrap()
}

/// Returns the server that requires a password, its password, and a lock on it: changing its
/// users affects every connection.
fn guarded() -> Option<(String, String, MutexGuard<'static, ()>)> {
    static GUARDED: Mutex<()> = Mutex::new(());
    let address = variable("SERVAL_TEST_ETCD_AUTH")?;
    let guard = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
    Some((address, std::env::var("SERVAL_TEST_ETCD_PASSWORD").unwrap(), guard))
}

/// Returns the address of a server, emptied, with a lock on it.
fn server(name: &str) -> Option<(String, MutexGuard<'static, ()>)> {
    let addresses = variable(name)?;
    let guard = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let first = addresses.split(',').next().unwrap();
    // From the key of one zero byte to the end.
    ask(first, "kv/deleterange", "", &json!({ "key": "AA==", "range_end": "AA==" }));
    Some((addresses, guard))
}

fn subject_on(name: &str, settings: &[(&str, &str)]) -> Option<Subject<Etcd, EventLoop>> {
    let (addresses, guard) = server(name)?;
    let store = open(&[&[("etcd.endpoints", &*addresses)], settings].concat()).unwrap();
    let differences = Differences {
        values: AcceptedValues::Text,
        atomic_batch: true,
        // A request of 1.5 MiB also contains the key and the names.
        record_bytes_max: Some(1 << 20),
        ..Differences::default()
    };
    Some(Subject::new(store, EventLoop, differences).keeping(guard))
}

fn subject(settings: &[(&str, &str)]) -> Option<Subject<Etcd, EventLoop>> {
    subject_on("SERVAL_TEST_ETCD", settings)
}

mod one {
    fn subject() -> Option<super::Subject<super::Etcd, super::EventLoop>> {
        super::subject(&[])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_ETCD");
}

/// Three members, each used by some of the clients; loops share connections.
mod cluster {
    fn subject() -> Option<super::Subject<super::Etcd, super::EventLoop>> {
        let settings = [("etcd.connections", "loop"), ("etcd.operation.timeout", "60s")];
        super::subject_on("SERVAL_TEST_ETCD_CLUSTER", &settings)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_ETCD_CLUSTER");
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn records_are_objects_under_their_table_and_key() {
    let Some(subject) = subject(&[]) else { return };
    let address = variable("SERVAL_TEST_ETCD").unwrap();
    put(&address, "usertable/user1", r#"{"field0":"a\u00e9\"","field1":null,"field2":"c"}"#);
    put(&address, "usertable/user3", "[1,2]");
    subject.with_client(async |client| {
        let expected = fields([("field0", "aé\"".as_bytes()), ("field2", b"c")]);
        assert_eq!(client.read("user1", &[]).await, Some(expected));
        assert_eq!(client.insert("user2", &fields([("f", b"\"\n\0")])).await, Outcome::OK);
        let all = FieldSelection::default();
        for verb in ["read", "update", "scan"] {
            let mut reply = Reply::new();
            let outcome = match verb {
                "read" => client.client.read("usertable", "user3", &all, &mut reply).await,
                "scan" => client.client.scan("usertable", "user1", 5, &all, &mut reply).await,
                _ => client.update("user3", &full("x")).await,
            };
            assert_eq!(outcome.status, Status::UnexpectedState, "{verb}: {outcome:?}");
            assert!(reply.records().is_empty(), "{verb}");
        }
    });
    let answer = ask(&address, "kv/range", "", &json!({ "key": base64(b"usertable/user2") }));
    assert_eq!(answer["kvs"][0]["value"], base64(br#"{"f":"\"\n\u0000"}"#), "{answer}");
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn a_scan_stays_in_its_table() {
    let Some(subject) = subject(&[]) else { return };
    let address = variable("SERVAL_TEST_ETCD").unwrap();
    for key in ["usertabl/k", "usertable", "usertable.", "usertable0", "usertable00/k", "v/k"] {
        put(&address, key, "{}");
    }
    subject.with_client(async |client| {
        assert_eq!(client.insert("\u{10ffff}", &full("last")).await, Outcome::OK);
        assert_eq!(client.insert("", &full("first")).await, Outcome::OK);
        assert_eq!(client.scan("", 100, &[]).await, [full("first"), full("last")]);
        assert!(client.scan("", 0, &[]).await.is_empty());
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn an_update_may_replace_the_record() {
    let Some(subject) = subject(&[("etcd.update", "replace")]) else { return };
    subject.with_client(async |client| {
        let change = fields([("field1", b"one")]);
        assert_eq!(client.update("k", &change).await, Outcome::NOT_FOUND);
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        assert_eq!(client.update("k", &change).await, Outcome::OK);
        assert_eq!(client.read("k", &[]).await, Some(change));
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn a_batch_uses_as_few_transactions_as_the_server_allows() {
    let Some(subject) = subject(&[]) else { return };
    let address = variable("SERVAL_TEST_ETCD").unwrap();
    subject.with_client(async |client| {
        for (name, count, length, transactions) in [
            ("a", 128, 1, 1),
            ("b", 129, 1, 2),
            ("c", 300, 1, 3),
            ("d", 10, 1 << 17, 2),
            ("e", 2, 1 << 20, 2),
        ] {
            let keys: Vec<String> = (0..count).map(|n| format!("{name}{n}")).collect();
            let value = vec![b'x'; length];
            let batch: Vec<_> = keys.iter().map(|key| (&**key, fields([("f", &*value)]))).collect();
            let before = revision(&address);
            assert_eq!(client.insert_batch(&batch).await, Outcome::OK, "{name}");
            assert_eq!(revision(&address) - before, transactions, "{name}");
        }
        let before = revision(&address);
        let twice = [("x", full("x")), ("x", full("y"))];
        assert_eq!(client.insert_batch(&twice).await.status, Status::BadRequest);
        assert_eq!(revision(&address), before);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn reads_are_linearizable_by_default() {
    let Some((address, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    for (read, expected) in [("linearizable", 0), ("serializable", 2)] {
        // The end of the key and the field for serializable reads only.
        let between = FaultyProxy::new(&address, b"/serial\x38\x01");
        let store = open(&[("etcd.endpoints", &between.address), ("etcd.read", read)]).unwrap();
        store.prepare(&schema(), Purpose::Run).unwrap();
        assert!(store.describe().contains(&("read".to_owned(), read.to_owned())));
        EventLoop.run(async {
            let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
            let all = FieldSelection::default();
            for _ in 0..2 {
                let outcome = client.read("usertable", "serial", &all, &mut Reply::new()).await;
                assert_eq!(outcome, Outcome::NOT_FOUND);
            }
            // An update must read the present record.
            let change = Record::from_iter([("f", &b"x"[..])]);
            assert_eq!(client.update("usertable", "serial", &change).await, Outcome::NOT_FOUND);
        });
        assert_eq!(between.asked(), expected, "{read}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn the_clients_of_a_loop_may_share_a_connection() {
    let Some((address, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    for (connections, expected) in [("client", 3), ("loop", 1)] {
        let between = FaultyProxy::new(&address, PREFACE);
        let store = open(&[("etcd.endpoints", &between.address), ("etcd.connections", connections)]).unwrap();
        EventLoop.run(async {
            let local = store.local().unwrap();
            let mut clients = Vec::new();
            for number in 0..3 {
                clients.push(store.connect(&local, number).await.ok().unwrap());
            }
            for client in &mut clients {
                assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
            }
        });
        assert_eq!(between.asked(), expected, "{connections}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD_CLUSTER"]
fn clients_use_members_in_turn() {
    let Some((addresses, _guard)) = server("SERVAL_TEST_ETCD_CLUSTER") else { return };
    let members: Vec<FaultyProxy> =
        addresses.split(',').map(|member| FaultyProxy::new(member, PREFACE)).collect();
    let endpoints: Vec<&str> = members.iter().map(|member| &*member.address).collect();
    let store = open(&[("etcd.endpoints", &endpoints.join(","))]).unwrap();
    EventLoop.run(async {
        let local = store.local().unwrap();
        for number in 0..6 {
            assert!(store.connect(&local, number).await.is_ok());
        }
    });
    assert_eq!(members.iter().map(FaultyProxy::asked).collect::<Vec<_>>(), [2, 2, 2]);
}

/// Returns the errors of preparing and of connecting; both contain the advice.
fn refused(settings: &[(&str, &str)], advice: &str) -> String {
    let store = open(settings).unwrap();
    let early = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    let local = store.local().unwrap();
    let late = EventLoop.run(async { store.connect(&local, 0).await.err().unwrap() }).to_string();
    assert!(early.contains(advice), "{early}");
    assert!(late.contains(advice), "{late}");
    early
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD SERVAL_TEST_ETCD_AUTH SERVAL_TEST_ETCD_PASSWORD"]
fn right_wrong_and_missing_passwords() {
    let Some((address, password, _guard)) = guarded() else { return };
    let Some(without) = variable("SERVAL_TEST_ETCD") else { return };
    let user = |name, password| [("etcd.username", name), ("etcd.password", password)];
    let right = [&[("etcd.endpoints", &*address)][..], &user("serval", &password)].concat();
    let right = open(&right).unwrap();
    right.prepare(&schema(), Purpose::Load).unwrap();
    assert!(right.describe().iter().any(|(name, value)| name == "version" && value.contains('.')));
    for (login, advice) in [
        (&[][..], "set etcd.username"),
        (&user("serval", "wrong"), "Check etcd.username"),
        (&user("nobody", &password), "Check etcd.username"),
        (&user("guest", &password), "May the user of etcd.username read"),
    ] {
        let words = refused(&[&[("etcd.endpoints", &*address)], login].concat(), advice);
        assert!(words.contains(&address), "{words}");
    }
    let login = user("serval", &password);
    refused(&[&[("etcd.endpoints", &*without)], &login[..]].concat(), "leave out etcd.username");
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD_AUTH SERVAL_TEST_ETCD_PASSWORD"]
fn an_expired_token_is_renewed() {
    let Some((address, password, _guard)) = guarded() else { return };
    let settings = [("etcd.endpoints", &*address), ("etcd.username", "serval"), ("etcd.password", &password)];
    let store = open(&settings).unwrap();
    let login = |name: &str| json!({ "name": name, "password": password });
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
        assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
        let root = ask(&address, "auth/authenticate", "", &login("root"));
        // The same password again, which revokes the user's tokens.
        ask(&address, "auth/user/changepw", root["token"].as_str().unwrap(), &login("serval"));
        assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD SERVAL_TEST_ETCD_TLS SERVAL_TEST_ETCD_TLS_FOLDER"]
fn tls_with_right_wrong_and_missing_certificates() {
    let Some(address) = variable("SERVAL_TEST_ETCD_TLS") else { return };
    let Some(plain) = variable("SERVAL_TEST_ETCD") else { return };
    let folder = std::env::var("SERVAL_TEST_ETCD_TLS_FOLDER").unwrap();
    let file = |name: &str| format!("{folder}/{name}");
    let (roots, key) = (file("server.crt"), file("server.key"));
    let (certificate, client_key) = (file("client/server.crt"), file("client/server.key"));
    let tls = [("etcd.endpoints", &*address), ("etcd.tls", "true")];
    let identity = [("etcd.tls.certificate", &*certificate), ("etcd.tls.key", &*client_key)];
    let trusted = [&tls[..], &[("etcd.tls.roots", &*roots)]].concat();
    let named = address.replace("127.0.0.1", "localhost");
    for right in [
        [&trusted[..], &identity].concat(),
        [&trusted[..], &identity, &[("etcd.endpoints", &*named)]].concat(),
        [&trusted[..], &identity, &[("etcd.tls.server.name", "localhost")]].concat(),
        [&tls[..], &identity, &[("etcd.tls.insecure.accept.any.certificate", "true")]].concat(),
    ] {
        let store = open(&right).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        assert!(store.describe().contains(&("tls".to_owned(), "true".to_owned())));
        EventLoop.run(async {
            let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
            assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
        });
    }
    let stranger = [("etcd.tls.certificate", &*roots), ("etcd.tls.key", &*key)];
    let elsewhere = [("etcd.tls.server.name", "elsewhere.example")];
    for (settings, advice) in [
        // The public roots do not trust the server.
        ([&tls[..], &identity].concat(), "etcd.tls.roots"),
        ([&trusted[..], &identity, &elsewhere].concat(), "etcd.tls.server.name"),
        (trusted.clone(), "etcd.tls.certificate"),
        ([&trusted[..], &stranger].concat(), "etcd.tls.certificate"),
        (vec![("etcd.endpoints", &*address)], "does it speak without TLS (etcd.tls)"),
        ([&trusted[..], &identity, &[("etcd.endpoints", &*plain)]].concat(), "leave out etcd.tls"),
    ] {
        refused(&settings, advice);
    }
}

#[test]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let words = refused(&[("etcd.endpoints", &address), ("etcd.timeout", "50ms")], "etcd.timeout");
    assert!(words.contains(&address), "{words}");
    drop(silent);
    let words = refused(&[("etcd.endpoints", &address)], "does etcd.endpoints name it");
    assert!(words.contains("refused"), "{words}");
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn one_reachable_member_is_enough_to_start() {
    let Some((addresses, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    let (silent, gone) = silent();
    drop(silent);
    let store = open(&[("etcd.endpoints", &format!("{gone},{addresses}"))]).unwrap();
    store.prepare(&schema(), Purpose::Run).unwrap();
    assert!(store.describe().contains(&("did not answer".to_owned(), gone)));
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
        assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn the_loss_of_a_server_fails_operations_until_it_returns() {
    let Some((address, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    for connections in ["client", "loop"] {
        let between = FaultyProxy::new(&address, PREFACE);
        let store = open(&[("etcd.endpoints", &between.address), ("etcd.connections", connections)]).unwrap();
        EventLoop.run(async {
            let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
            assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
            between.go_away_after(0, 2);
            let mut failed = 0;
            let back = loop {
                let outcome = client.delete("usertable", "none").await;
                if outcome.status != Status::ServiceUnavailable {
                    break outcome;
                }
                assert!(outcome.message.is_some_and(|words| words.contains("connect")));
                failed += 1;
            };
            assert_eq!(back, Outcome::NOT_FOUND);
            // The driver may retry once by itself.
            assert!((2..=3).contains(&failed), "{failed}");
            assert_eq!(between.refused(), 2);
        });
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD_CLUSTER"]
fn clients_fail_over_to_another_member() {
    let Some((addresses, _guard)) = server("SERVAL_TEST_ETCD_CLUSTER") else { return };
    let (first, others) = addresses.split_once(',').unwrap();
    let between = FaultyProxy::new(first, PREFACE);
    let store = open(&[("etcd.endpoints", &format!("{},{others}", between.address))]).unwrap();
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
        assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
        between.go_away_after(0, u64::MAX);
        let outcome = client.delete("usertable", "none").await;
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
        assert_eq!(client.delete("usertable", "none").await, Outcome::NOT_FOUND);
    });
    assert_eq!((between.asked(), between.refused()), (1, 0));
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn an_operation_without_an_answer_fails_at_its_timeout() {
    let Some((address, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    let between = FaultyProxy::new(&address, PREFACE);
    let settings = [("etcd.endpoints", &*between.address), ("etcd.operation.timeout", "50ms")];
    let store = open(&settings).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = store.local().unwrap();
    let mut client = runtime.block_on(store.connect(&local, 0)).ok().unwrap();
    let held = between.hold();
    let outcome = runtime.block_on(client.delete("usertable", "none"));
    assert_eq!(outcome.status, Status::ServiceUnavailable);
    assert!(outcome.message.unwrap().contains("etcd.operation.timeout"));
    drop(held);
    // On a new connection.
    while runtime.block_on(client.delete("usertable", "none")) != Outcome::NOT_FOUND {}
    assert!(between.asked() >= 2);
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn a_record_that_is_too_large_is_refused_and_the_connection_stays_open() {
    let Some((address, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    let between = FaultyProxy::new(&address, PREFACE);
    let store = open(&[("etcd.endpoints", &between.address)]).unwrap();
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
        // Too large for etcd, for gRPC, and for an HTTP/2 window.
        for length in [1_600_000, 2 << 20, 10 << 20] {
            let large = Record::from_iter([("f", &*vec![b'x'; length])]);
            let outcome = client.insert("usertable", "k", &large).await;
            assert_eq!(outcome.status, Status::BadRequest, "{length}: {outcome:?}");
            assert!(outcome.message.unwrap().contains("--max-request-bytes"));
            let small = Record::from_iter([("f", &b"x"[..])]);
            assert_eq!(client.insert("usertable", "k", &small).await, Outcome::OK);
            assert_eq!(client.update("usertable", "k", &large).await.status, Status::BadRequest);
            assert_eq!(client.delete("usertable", "k").await, Outcome::OK);
        }
    });
    assert_eq!(between.asked(), 1);
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD"]
fn a_server_without_space_is_reported() {
    let Some((address, _guard)) = server("SERVAL_TEST_ETCD") else { return };
    let store = open(&[("etcd.endpoints", &*address)]).unwrap();
    let alarm = |action: &str| {
        let header = &ask(&address, "kv/range", "", &json!({ "key": "AA==" }))["header"];
        let body = json!({ "action": action, "alarm": "NOSPACE", "memberID": header["member_id"] });
        ask(&address, "maintenance/alarm", "", &body);
    };
    alarm("ACTIVATE");
    let outcome = EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
        client.insert("usertable", "k", &Record::from_iter([("f", &b"x"[..])])).await
    });
    alarm("DEACTIVATE");
    assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
    assert!(outcome.message.unwrap().contains("NOSPACE"));
}

#[test]
#[ignore = "needs SERVAL_TEST_ETCD_AUTH SERVAL_TEST_ETCD_PASSWORD"]
fn a_user_needs_permission_for_the_table_only() {
    let Some((address, password, _guard)) = guarded() else { return };
    let settings = [("etcd.endpoints", &*address), ("etcd.username", "guest"), ("etcd.password", &password)];
    let store = open(&settings).unwrap();
    store.prepare(&Schema { table: "guest".into(), ..schema() }, Purpose::Load).unwrap();
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.ok().unwrap();
        assert_eq!(client.delete("guest", "none").await, Outcome::NOT_FOUND);
        let outcome = client.delete("usertable", "none").await;
        assert_eq!(outcome.status, Status::Forbidden, "{outcome:?}");
        assert_eq!(client.delete("guest", "none").await, Outcome::NOT_FOUND);
    });
}

#[test]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("etcd.endpoints", "a,b:x,a:2379,http://c:1"),
        ("etcd.read", "sometimes"),
        ("etcd.update", "perhaps"),
        ("etcd.connections", "3"),
        ("etcd.username", "u"),
        ("etcd.timeout", "0"),
        ("etcd.operation.timeout", "0"),
        ("etcd.tls.roots", "nowhere.pem"),
        ("etcd.tls.certificate", "nowhere.pem"),
        ("etcd.tls.server.name", "localhost"),
        ("etcd.tls.insecure.accept.any.certificate", "true"),
    ];
    let problem = open(&settings).err().unwrap();
    for (name, _) in settings {
        assert!(problem.contains(name), "{name}: {problem}");
    }
    for words in [
        "names 'a:2379' twice",
        "'b:x' is no host",
        "'http://c:1' is a URL",
        "etcd.password",
        "etcd.tls.key",
        "etcd.tls=true",
    ] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
}
