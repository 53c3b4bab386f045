//! ZooKeeper, real servers: the suite, YCSB's layout as another client sees it,
//! permissions, and servers that are unreachable or fail.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests are ignored.

#![cfg(feature = "zookeeper")]
#![allow(clippy::await_holding_lock, reason = "the lock delays answers")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, FaultyProxy, Fields, Subject, fields, full, properties,
    schema, silent, variable,
};
use serval_model::{Client, OperationKind, Outcome, Purpose, Record, Status, Store};
use serval_stores::zookeeper::Zookeeper;
use std::{
    net::TcpListener,
    sync::atomic::{AtomicUsize, Ordering},
};
use zookeeper_client::{Acls, AddWatchMode, Client as Driver, CreateMode};

/// An untrusted certificate, valid until 2126.
const STRANGER: &str = "\
-----BEGIN CERTIFICATE-----
MIIBfjCCASOgAwIBAgIUDXzMZF99AoJK+oZPDwYYjaxxJsMwCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIc3RyYW5nZXIwIBcNMjYxMTIxMTE1OTQ2WhgPMjEyNjEwMjgx
MTU5NDZaMBMxETAPBgNVBAMMCHN0cmFuZ2VyMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAE0GeMo82MiTmQFb79E5NPBY8CVjX2ll3fXL4DjpchcO5YGHbG8Kp7iYG7
UR15UZVjaPjAJJRpuJZQtrA+aOZPyKNTMFEwHQYDVR0OBBYEFETCOpJ47VByP5X7
1dBH8lTb816jMB8GA1UdIwQYMBaAFETCOpJ47VByP5X71dBH8lTb816jMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAI/cuglXC35vepfhB+rc1Mud
x3RRorBVO3uzO9mMI/KAAiEA/dbnkrmqyRa0MpA7458mUQ+Gty/DVP8nYQN8NZ3Y
Lhg=
-----END CERTIFICATE-----
";

fn open(settings: &[(&str, &str)]) -> Result<Zookeeper, String> {
    Zookeeper::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// Returns a connect string that ends with an unused node.
fn root_of(address: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{address}/serval-{}/{count}", std::process::id())
}

fn differences() -> Differences {
    Differences {
        values: AcceptedValues::Text,
        atomic_batch: true,
        // A request of 1 MiB less a byte also contains names.
        record_bytes_max: Some(600_000),
        keys: |key| !key.is_empty() && !key.chars().any(|c| c.is_control() || c == '/' || c > '\u{ffff}'),
        ..Differences::default()
    }
}

fn subject(settings: &[(&str, &str)]) -> Option<Subject<Zookeeper, EventLoop>> {
    let root = root_of(&variable("SERVAL_TEST_ZOOKEEPER")?);
    let store = open(&[&[("zookeeper.connectString", &*root)], settings].concat()).unwrap();
    Some(Subject::new(store, EventLoop, differences()))
}

mod plain {
    fn subject() -> Option<super::Subject<super::Zookeeper, super::EventLoop>> {
        super::subject(&[])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_ZOOKEEPER");
}

mod watching {
    fn subject() -> Option<super::Subject<super::Zookeeper, super::EventLoop>> {
        super::subject(&[("zookeeper.watchFlag", "true")])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_ZOOKEEPER");
}

/// With names and passwords, and nodes that only their creator may access.
mod guarded {
    fn subject() -> Option<super::Subject<super::Zookeeper, super::EventLoop>> {
        let settings = super::tls_settings()?;
        let mut settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (*name, &**value)).collect();
        let root = super::root_of(settings[0].1);
        settings[0].1 = &root;
        settings.push(("zookeeper.acl", "creator"));
        let store = super::open(&settings).unwrap();
        Some(super::Subject::new(store, super::EventLoop, super::differences()))
    }
    serval_conformance::suite!(
        subject,
        "needs SERVAL_TEST_ZOOKEEPER_FOLDER SERVAL_TEST_ZOOKEEPER_PASSWORD SERVAL_TEST_ZOOKEEPER_TLS"
    );
}

/// Returns the settings for the server that requires authentication, on its port with TLS; the
/// first is the connect string.
fn tls_settings() -> Option<Vec<(&'static str, String)>> {
    let address = variable("SERVAL_TEST_ZOOKEEPER_TLS")?;
    let password = std::env::var("SERVAL_TEST_ZOOKEEPER_PASSWORD").unwrap();
    let folder = std::env::var("SERVAL_TEST_ZOOKEEPER_FOLDER").unwrap();
    Some(vec![
        ("zookeeper.connectString", address),
        ("zookeeper.tls", "true".to_owned()),
        ("zookeeper.tls_ca", format!("{folder}/server.crt")),
        ("zookeeper.tls_certificate", format!("{folder}/server.crt")),
        ("zookeeper.tls_key", format!("{folder}/server.key")),
        ("zookeeper.auth", "sasl".to_owned()),
        ("zookeeper.username", "serval".to_owned()),
        ("zookeeper.password", password),
    ])
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn records_have_ycsbs_layout() {
    let Some(address) = variable("SERVAL_TEST_ZOOKEEPER") else { return };
    let root = root_of(&address);
    let store = open(&[("zookeeper.connectString", &root)]).unwrap();
    let subject = Subject::new(store, EventLoop, differences());
    assert!(!subject.store.capabilities().contains(OperationKind::Scan));
    // A load creates the node at the end of the connect string.
    let unloaded = subject.store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(unloaded.contains("there is no node /serval-"), "{unloaded}");
    subject.with_client(async |client| {
        let other = Driver::connect(&root).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let document = r#"{"field0":"a\u00e9\"","field1":"","field2":7}"#;
        other.create("/user1", document.as_bytes(), &options).await.unwrap();
        let expected = fields([("field0", "aé\"".as_bytes()), ("field1", b""), ("field2", b"7")]);
        assert_eq!(client.read("user1", &[]).await, Some(expected.clone()));
        // Both forms of a key name the same node.
        assert_eq!(client.read("/user1", &[]).await, Some(expected));
        assert_eq!(client.insert("user2", &fields([("f", b"\"\n\0")])).await, Outcome::OK);
        let (data, stat) = other.get_data("/user2").await.unwrap();
        assert_eq!(String::from_utf8(data).unwrap(), r#"{"f":"\"\n\u0000"}"#);
        assert_eq!(stat.ephemeral_owner, 0);
        // An existing node that is not a record.
        other.create("/empty", b"", &options).await.unwrap();
        assert_eq!(client.read("empty", &[]).await, None);
        assert_eq!(client.update("empty", &full("empty")).await, Outcome::NOT_FOUND);
        other.create("/list", b"[1,2]", &options).await.unwrap();
        let outcome = client.update("list", &full("list")).await;
        assert_eq!(outcome.status, Status::UnexpectedState, "{outcome:?}");
        other.create("/user2/child", b"", &options).await.unwrap();
        let outcome = client.delete("user2").await;
        assert_eq!(outcome.status, Status::UnexpectedState, "{outcome:?}");
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_watch_is_set_once_per_node_and_again_after_it_fires() {
    let Some(subject) = subject(&[("zookeeper.watchFlag", "true")]) else { return };
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        for round in 0..3 {
            let value = format!("{round}");
            for _ in 0..3 {
                assert!(client.read("k", &[]).await.is_some());
            }
            assert_eq!(client.update("k", &fields([("field0", value.as_bytes())])).await, Outcome::OK);
            assert_eq!(client.read("k", &["field0"]).await, Some(fields([("field0", value.as_bytes())])));
        }
    });
}

/// Inserts a batch that needs several requests, and reads all of its records.
#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_batch_may_be_larger_than_a_request() {
    let Some(subject) = subject(&[]) else { return };
    let large = |key: &str| fields([("field0", key.repeat(300_000).as_bytes())]);
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    subject.with_client(async |client| {
        let batch: Vec<(&str, Fields)> = keys.iter().map(|key| (*key, large(key))).collect();
        assert_eq!(client.insert_batch(&batch).await, Outcome::OK);
        for key in keys {
            assert!(client.read(key, &[]).await == Some(large(key)), "{key}");
        }
        let outcome =
            client.insert_batch(&[("h", full("h")), ("i", fields([("f", &[b'x'; 1 << 20])]))]).await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        assert!(outcome.message.unwrap().contains("zookeeper.maxbuffer"));
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER_AUTH SERVAL_TEST_ZOOKEEPER_PASSWORD"]
fn right_wrong_and_missing_passwords() {
    let Some(address) = variable("SERVAL_TEST_ZOOKEEPER_AUTH") else { return };
    let password = std::env::var("SERVAL_TEST_ZOOKEEPER_PASSWORD").unwrap();
    let with = |settings: &[(&str, &str)]| {
        let common = [("zookeeper.connectString", &*address)];
        open(&[&common, settings].concat()).unwrap()
    };
    let sasl = ("zookeeper.auth", "sasl");
    let user = ("zookeeper.username", "serval");
    with(&[sasl, user, ("zookeeper.password", &password)]).prepare(&schema(), Purpose::Run).unwrap();
    let wrong = [sasl, user, ("zookeeper.password", "wrong")];
    for (settings, advice) in [
        (&[][..], "set zookeeper.username and zookeeper.auth=sasl"),
        (&wrong[..], "Check zookeeper.username"),
    ] {
        let store = with(settings);
        let early = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(early.contains(advice) && early.contains(&address), "{early}");
        let late = EventLoop.run(async { store.connect(&(), 0).await.err().unwrap() }).to_string();
        assert_eq!(late, early);
    }
}

/// Authentication by the scheme that every server supports.
#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn records_of_one_user_are_protected_from_another() {
    let Some(address) = variable("SERVAL_TEST_ZOOKEEPER") else { return };
    let root = root_of(&address);
    let of = |name: &str, acl: &str| {
        let settings = [
            ("zookeeper.connectString", &*root),
            ("zookeeper.username", name),
            ("zookeeper.password", "secret"),
            ("zookeeper.acl", acl),
        ];
        Subject::new(open(&settings).unwrap(), EventLoop, differences())
    };
    let open_root = of("anne", "open");
    open_root.with_client(async |_| {});
    of("anne", "creator").with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        assert_eq!(client.read("k", &[]).await, Some(full("k")));
    });
    of("ben", "creator").with_client(async |client| {
        let outcomes = [
            client.update("k", &full("x")).await,
            client.insert("l", &full("l")).await,
            client.delete("l").await,
        ];
        assert_eq!(outcomes[0].status, Status::Forbidden, "{outcomes:?}");
        assert_eq!(outcomes[1..], [Outcome::OK, Outcome::OK]);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER SERVAL_TEST_ZOOKEEPER_FOLDER SERVAL_TEST_ZOOKEEPER_PASSWORD SERVAL_TEST_ZOOKEEPER_TLS"]
fn tls_with_right_and_wrong_certificates() {
    let Some(settings) = tls_settings() else { return };
    let prepare = |changes: &[(&str, &str)]| {
        let mut all: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, &**value)).collect();
        for (name, value) in changes {
            all.retain(|(other, _)| other != name);
            if !value.is_empty() {
                all.push((name, value));
            }
        }
        let store = open(&all)?;
        store.prepare(&schema(), Purpose::Run).map_err(|error| error.to_string())?;
        Ok::<_, String>(store.describe())
    };
    let facts = prepare(&[]).unwrap();
    assert!(facts.contains(&("tls".to_owned(), "true".to_owned())), "{facts:?}");
    // A CA that did not sign the server's certificate.
    let folder = tempfile::tempdir().unwrap();
    let stranger = folder.path().join("stranger.pem");
    std::fs::write(&stranger, STRANGER).unwrap();
    let unknown = prepare(&[("zookeeper.tls_ca", &stranger.display().to_string())]).unwrap_err();
    assert!(unknown.contains("certificate") && unknown.contains("zookeeper.tls_ca"), "{unknown}");
    let anonymous = prepare(&[("zookeeper.tls_certificate", ""), ("zookeeper.tls_key", "")]).unwrap_err();
    assert!(anonymous.contains("zookeeper.tls_certificate"), "{anonymous}");
    let none = ["zookeeper.tls", "zookeeper.tls_ca", "zookeeper.tls_certificate", "zookeeper.tls_key"];
    let plain = prepare(&none.map(|name| (name, ""))).unwrap_err();
    assert!(plain.contains("zookeeper.tls=true"), "{plain}");
    let address = variable("SERVAL_TEST_ZOOKEEPER").unwrap();
    let encrypted = prepare(&[("zookeeper.connectString", &address)]).unwrap_err();
    assert!(encrypted.contains("secureClientPort"), "{encrypted}");
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let mute = open(&[("zookeeper.connectString", &address), ("zookeeper.connect_timeout", "50ms")]).unwrap();
    let error = mute.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("zookeeper.connect_timeout") && error.contains(&address), "{error}");
    drop(silent);
    let gone = open(&[("zookeeper.connectString", &address)]).unwrap();
    let error = gone.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains("zookeeper.connectString"), "{error}");
    // One reachable server suffices.
    let Some(live) = variable("SERVAL_TEST_ZOOKEEPER") else { return };
    let both = open(&[("zookeeper.connectString", &format!("{address},{live}"))]).unwrap();
    both.prepare(&schema(), Purpose::Run).unwrap();
    assert!(both.describe().iter().any(|(name, value)| name == "version" && value.starts_with("3.")));
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn operations_fail_while_a_server_is_down_and_succeed_after_its_return() {
    let Some(address) = variable("SERVAL_TEST_ZOOKEEPER") else { return };
    let between = FaultyProxy::new(&address, b"field0 of");
    let root = root_of(&between.address);
    let store = open(&[("zookeeper.connectString", &root)]).unwrap();
    let subject = Subject::new(store, EventLoop, differences());
    subject.with_client(async |client| {
        assert_eq!(client.insert("a", &full("a")).await, Outcome::OK);
        assert_eq!(between.asked(), 1);
        between.lose_the_next_answer();
        let lost = client.insert("b", &full("b")).await;
        assert_eq!(lost.status, Status::ServiceUnavailable, "{lost:?}");
        // The operation was executed once and is not sent again.
        assert_eq!(client.read("b", &[]).await, Some(full("b")));
        assert_eq!(between.asked(), 2);
        between.go_away_after(2, 2);
        let (mut failures, mut done) = (0, 0);
        while done < 5 {
            match client.update("a", &fields([("field1", b"x")])).await.status {
                Status::Ok => done += 1,
                Status::ServiceUnavailable => failures += 1,
                other => panic!("{other:?}"),
            }
            assert!(failures < 100, "the server does not return");
        }
        // One for each refused connection, and one for the operation in flight, if
        // there was one.
        assert!(between.refused() == 2 && (2..=3).contains(&failures), "{failures}");
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn operations_on_a_server_that_stops_answering_time_out() {
    let Some(address) = variable("SERVAL_TEST_ZOOKEEPER") else { return };
    let between = FaultyProxy::new(&address, b"field0 of");
    let root = root_of(&between.address);
    let store = open(&[
        ("zookeeper.connectString", &root),
        ("zookeeper.timeout", "50ms"),
        ("zookeeper.connect_timeout", "1s"),
    ])
    .unwrap();
    let subject = Subject::new(store, EventLoop, differences());
    subject.with_client(async |client| {
        assert_eq!(client.insert("a", &full("a")).await, Outcome::OK);
        let held = between.hold();
        let outcome = client.insert("b", &full("b")).await;
        drop(held);
        assert_eq!(outcome.status, Status::ServiceUnavailable);
        assert!(outcome.message.unwrap().contains("zookeeper.timeout"));
        while client.read("a", &[]).await.is_none() {}
    });
}

/// A server that accepts connections and closes them, like a ZooKeeper at its limit of
/// connections per host.
#[test]
fn a_server_that_refuses_sessions_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let store = open(&[("zookeeper.connectString", &address)]).unwrap();
    let error = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("maxClientCnxns"), "{error}");
}

/// A closed session has ended on the server as well.
#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn closing_a_client_ends_its_session() {
    let Some(address) = variable("SERVAL_TEST_ZOOKEEPER") else { return };
    let root = root_of(&address);
    let store = open(&[("zookeeper.connectString", &root), ("zookeeper.watchFlag", "true")]).unwrap();
    let subject = Subject::new(store, EventLoop, differences());
    subject.with_client(async |client| {
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        assert!(client.read("k", &[]).await.is_some());
        let observer = Driver::connect(&root).await.unwrap();
        let mut watcher = observer.watch("/", AddWatchMode::PersistentRecursive).await.unwrap();
        assert_eq!(client.client.close().await, Outcome::OK);
        // Afterwards the same client can continue with a new session.
        assert_eq!(client.insert("l", &full("l")).await, Outcome::OK);
        assert_eq!(watcher.changed().await.path, "/l");
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn records_that_are_too_large_are_refused_unsent() {
    let Some(subject) = subject(&[("zookeeper.maxbuffer", "2000")]) else { return };
    subject.with_client(async |handle| {
        let large = Record::from_iter([("f", &[b'x'; 2000][..])]);
        let outcome = handle.client.insert("usertable", "k", &large).await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        assert_eq!(handle.insert("k", &full("k")).await, Outcome::OK);
        let outcome = handle.client.update("usertable", "k", &large).await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        assert_eq!(handle.read("k", &[]).await, Some(full("k")));
    });
}

#[test]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("zookeeper.connectString", "a,b:x,::1,/bench//mark"),
        ("zookeeper.sessionTimeout", "0"),
        ("zookeeper.timeout", "0"),
        ("zookeeper.connect_timeout", "soon"),
        ("zookeeper.watchFlag", "perhaps"),
        ("zookeeper.maxbuffer", "1"),
        ("zookeeper.username", "u"),
        ("zookeeper.acl", "creator"),
        ("zookeeper.tls_ca", "/nowhere"),
    ];
    let problem = open(&settings).err().unwrap();
    for (name, _) in settings {
        assert!(problem.contains(name), "{name}: {problem}");
    }
    for words in
        ["'b:x' is no host", "'::1' is no host", "zookeeper.password", "needs zookeeper.tls=true", "none of"]
    {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    let files = [("zookeeper.tls", "true"), ("zookeeper.tls_ca", "/nowhere"), ("zookeeper.tls_key", "/k")];
    let problem = open(&files).err().unwrap();
    assert!(problem.contains("/nowhere") && problem.contains("zookeeper.tls_certificate"), "{problem}");
}
