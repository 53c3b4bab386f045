//! Redis, a real server: the suite on connections of each client and on shared
//! ones, YCSB's layout, and refusals of a server.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests are ignored.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    Differences, EventLoop, Executor, InsertExisting, Subject, properties, schema, silent, variable,
};
use serval_model::{
    Client, FieldSelection, Outcome, Purpose, Record, Reply, Status, Store, java::string_hash,
};
use serval_stores::redis::Redis;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Tests share one server and empty it, so they run one at a time.
static SERVER: Mutex<()> = Mutex::new(());

fn redis(address: &str, settings: &[(&str, &str)]) -> Result<Redis, String> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let all = [&[("redis.host", host), ("redis.port", port)], settings].concat();
    Redis::open(&properties(&all)).map_err(|faults| faults.to_string())
}

/// Sends one command on a new connection and returns the answer.
fn ask(address: &str, words: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| out += &format!("${}\r\n{word}\r\n", word.len()));
    out += "*1\r\n$4\r\nQUIT\r\n";
    stream.write_all(out.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.strip_suffix("+OK\r\n").unwrap().to_owned()
}

fn subject(settings: &[(&str, &str)]) -> Option<Subject<Redis, EventLoop>> {
    let address = variable("SERVAL_TEST_REDIS")?;
    let guard = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(ask(&address, &["FLUSHALL"]), "+OK\r\n");
    Some(Subject::new(redis(&address, settings).unwrap(), EventLoop, differences()).keeping(guard))
}

/// One connection per client.
mod own {
    use super::*;

    fn subject() -> Option<Subject<Redis, EventLoop>> {
        super::subject(&[])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_REDIS");
}

/// Two connections for all clients of a loop.
mod shared {
    use super::*;

    fn subject() -> Option<Subject<Redis, EventLoop>> {
        super::subject(&[("redis.connections", "2")])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_REDIS");
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn records_have_ycsbs_layout() {
    let Some(subject) = subject(&[]) else { return };
    let address = std::env::var("SERVAL_TEST_REDIS").unwrap();
    subject.with_client(async |handle| {
        let record = Record::from_iter([("field0", &b"a"[..]), ("field1", b"b")]);
        assert_eq!(handle.client.insert("usertable", "user1", &record).await, Outcome::OK);
        // The command of YCSB's client.
        ask(&address, &["HMSET", "user2", "field0", "c"]);
        ask(&address, &["ZADD", "_indices", &string_hash("user2").to_string(), "user2"]);
        let mut reply = Reply::new();
        let all = FieldSelection::default();
        assert_eq!(handle.client.read("usertable", "user2", &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records()[0].get("field0"), Some(&b"c"[..]));
        // Scans run in hash order; "user1" has the smaller hash.
        reply.clear();
        assert_eq!(handle.client.scan("usertable", "user1", 10, &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records().len(), 2);
        reply.clear();
        assert_eq!(handle.client.scan("usertable", "user2", 10, &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records().len(), 1);
    });
    assert_eq!(ask(&address, &["HGET", "user1", "field1"]), "$1\r\nb\r\n");
    let score = string_hash("user1").to_string();
    assert_eq!(ask(&address, &["ZSCORE", "_indices", "user1"]), format!("${}\r\n{score}\r\n", score.len()));
    subject.with_another_client(0, async |handle| {
        assert_eq!(handle.client.delete("usertable", "user1").await, Outcome::OK);
        assert_eq!(handle.client.delete("usertable", "user1").await, Outcome::NOT_FOUND);
    });
    assert_eq!(ask(&address, &["ZCARD", "_indices"]), ":1\r\n");
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn a_servers_error_is_an_outcome_with_its_message() {
    let Some(subject) = subject(&[]) else { return };
    let address = std::env::var("SERVAL_TEST_REDIS").unwrap();
    ask(&address, &["SET", "user1", "not a hash"]);
    subject.with_client(async |handle| {
        let mut reply = Reply::new();
        let outcome = handle.client.read("usertable", "user1", &FieldSelection::default(), &mut reply).await;
        assert_eq!(outcome.status, Status::UnexpectedState);
        assert!(outcome.message.unwrap().contains("WRONGTYPE"));
        // The connection remains usable.
        let record = Record::from_iter([("f", &b"v"[..])]);
        assert_eq!(handle.client.insert("usertable", "user9", &record).await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS_AUTH SERVAL_TEST_REDIS_PASSWORD"]
fn right_wrong_and_missing_passwords() {
    let Some(address) = variable("SERVAL_TEST_REDIS_AUTH") else { return };
    let password = std::env::var("SERVAL_TEST_REDIS_PASSWORD").unwrap();
    let right = redis(&address, &[("redis.password", &password)]).unwrap();
    right.prepare(&schema(), Purpose::Load).unwrap();
    assert!(right.describe().iter().any(|(name, value)| name == "redis_version" && value.contains('.')));
    let named = redis(&address, &[("redis.username", "default"), ("redis.password", &password)]).unwrap();
    named.prepare(&schema(), Purpose::Run).unwrap();
    for (settings, advice) in
        [(&[][..], "set redis.password"), (&[("redis.password", "wrong")][..], "Check redis.password")]
    {
        let wrong = redis(&address, settings).unwrap();
        let early = wrong.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(early.contains(advice) && early.contains(&address), "{early}");
        let late =
            EventLoop.run(async { wrong.connect(&wrong.local().unwrap(), 0).await.unwrap_err() }).to_string();
        assert_eq!(late, early);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn a_password_for_a_server_without_one_is_refused() {
    let Some(address) = variable("SERVAL_TEST_REDIS") else { return };
    let store = redis(&address, &[("redis.password", "x")]).unwrap();
    let error = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("leave it out if the server has none"), "{error}");
}

#[test]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let mute = redis(&address, &[("redis.timeout", "50ms")]).unwrap();
    assert!(mute.prepare(&schema(), Purpose::Run).is_err());
    let error =
        EventLoop.run(async { mute.connect(&mute.local().unwrap(), 0).await.unwrap_err() }).to_string();
    assert!(error.contains("redis.timeout"), "{error}");
    drop(silent);
    let gone = redis(&address, &[]).unwrap();
    let error = gone.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("cannot connect") && error.contains("redis.port"), "{error}");
}

/// Returns the address of a peer that answers the greeting correctly and every later command
/// with `answer`.
fn peer(answer: &'static [u8], connections: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(b":0\r\n");
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn a_peer_that_sends_garbage_or_disconnects_fails_the_operation() {
    for connections in ["0", "1"] {
        for answer in [&b"HTTP/1.1 400\r\n"[..], b"*2\r\n$1\r\n"] {
            let store = redis(&peer(answer, 1), &[("redis.connections", connections)]).unwrap();
            let outcome = EventLoop.run(async {
                let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
                client.read("t", "k", &FieldSelection::default(), &mut Reply::new()).await
            });
            assert_eq!(outcome.status, Status::ServiceUnavailable);
            assert!(outcome.message.as_ref().unwrap().contains("connection lost"), "{outcome:?}");
        }
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn the_next_operation_reopens_a_lost_connection() {
    let Some(address) = variable("SERVAL_TEST_REDIS") else { return };
    let guard = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    for connections in ["0", "1"] {
        let store = redis(&address, &[("redis.connections", connections)]).unwrap();
        EventLoop.run(async {
            let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
            let record = Record::from_iter([("f", &b"v"[..])]);
            assert_eq!(client.insert("t", "k", &record).await, Outcome::OK);
            ask(&address, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            let outcome = client.update("t", "k", &record).await;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            assert_eq!(client.update("t", "k", &record).await, Outcome::OK);
        });
    }
    drop(guard);
}

#[test]
fn impossible_settings_are_refused_together() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let settings = [
        ("redis.cluster", "perhaps"),
        ("redis.username", "u"),
        ("redis.timeout", "0"),
        ("redis.operation.timeout", "0"),
        ("redis.hosts", "a,b:x,a"),
        ("redis.tls.roots", file.to_str().unwrap()),
        ("redis.tls.key", "/nowhere.pem"),
        ("redis.tls.insecure.accept.any.certificate", "true"),
    ];
    let problem = redis("localhost:0", &settings).unwrap_err();
    for (name, _) in settings.iter().chain(&[("redis.port", "")]) {
        assert!(problem.contains(name), "{name}: {problem}");
    }
    for words in ["names 'a' twice", "'b:x' is no host", "redis.host", "is no PEM file", "/nowhere.pem"] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    let numbered = redis("localhost:1", &[("redis.cluster", "true"), ("redis.database", "1")]).unwrap_err();
    assert!(numbered.contains("redis.database"), "{numbered}");
}

fn differences() -> Differences {
    Differences {
        ordered_scan: false,
        update_missing_is_not_found: !serval_stores::redis::INFO.updates_insert,
        insert_existing: InsertExisting::Merged,
        empty_records: false,
        ..Differences::default()
    }
}

fn with(settings: &[(&str, &str)]) -> Result<Redis, String> {
    Redis::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// Returns the addresses in a variable, with all servers emptied.
fn servers(name: &str) -> Option<(String, MutexGuard<'static, ()>)> {
    let addresses = variable(name)?;
    let guard = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    for address in addresses.split(',') {
        assert_eq!(ask(address, &["FLUSHALL"]), "+OK\r\n");
    }
    Some((addresses, guard))
}

/// Three independent servers; the hash of a key selects one.
mod several {
    use super::*;

    fn subject() -> Option<Subject<Redis, EventLoop>> {
        let (addresses, guard) = servers("SERVAL_TEST_REDIS_HOSTS")?;
        let store = with(&[("redis.hosts", &addresses)]).unwrap();
        Some(Subject::new(store, EventLoop, differences()).keeping(guard))
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_REDIS_HOSTS");

    #[test]
    #[ignore = "needs SERVAL_TEST_REDIS_HOSTS"]
    fn keys_are_on_the_server_of_their_hash_and_scans_read_all_servers() {
        let Some(subject) = subject() else { return };
        let addresses = std::env::var("SERVAL_TEST_REDIS_HOSTS").unwrap();
        let addresses: Vec<&str> = addresses.split(',').collect();
        let mut keys: Vec<String> = (0..60).map(|n| format!("user{}", n * n)).collect();
        keys.sort_by_key(|key| (string_hash(key), key.clone()));
        keys.dedup();
        subject.with_client(async |handle| {
            for key in &keys {
                let record = Record::from_iter([("f", key.as_bytes())]);
                assert_eq!(handle.client.insert("t", key, &record).await, Outcome::OK);
            }
            for (start, count) in [(0, 10), (7, 20), (50, 60)] {
                let mut reply = Reply::new();
                let all = FieldSelection::default();
                let outcome = handle.client.scan("t", &keys[start], count, &all, &mut reply).await;
                assert_eq!(outcome, Outcome::OK);
                let found: Vec<&[u8]> = reply.records().iter().map(|r| r.get("f").unwrap()).collect();
                let expected = keys[start..].iter().take(count as usize).map(String::as_bytes);
                assert_eq!(found, expected.collect::<Vec<_>>(), "in the order of one server");
            }
        });
        let mut used = [0; 3];
        for key in &keys {
            let at = string_hash(key).unsigned_abs() as usize % 3;
            assert_eq!(ask(addresses[at], &["HGET", key, "f"]), format!("${}\r\n{key}\r\n", key.len()));
            used[at] += 1;
        }
        for (address, count) in addresses.iter().zip(used) {
            assert!(count > 0);
            assert_eq!(ask(address, &["ZCARD", "_indices"]), format!(":{count}\r\n"));
        }
    }
}

/// A cluster of three nodes, of which one address is given.
mod cluster {
    use super::*;

    fn open(addresses: &str, settings: &[(&str, &str)]) -> Redis {
        let first = addresses.split(',').next().unwrap();
        let cluster = [("redis.hosts", first), ("redis.cluster", "true")];
        with(&cluster.iter().chain(settings).copied().collect::<Vec<_>>()).unwrap()
    }

    mod own {
        use super::*;
        fn subject() -> Option<Subject<Redis, EventLoop>> {
            let (addresses, guard) = servers("SERVAL_TEST_REDIS_CLUSTER")?;
            Some(Subject::new(open(&addresses, &[]), EventLoop, differences()).keeping(guard))
        }
        serval_conformance::suite!(subject, "needs SERVAL_TEST_REDIS_CLUSTER");
    }

    mod shared {
        use super::*;
        fn subject() -> Option<Subject<Redis, EventLoop>> {
            let (addresses, guard) = servers("SERVAL_TEST_REDIS_CLUSTER")?;
            let store = open(&addresses, &[("redis.connections", "2")]);
            Some(Subject::new(store, EventLoop, differences()).keeping(guard))
        }
        serval_conformance::suite!(subject, "needs SERVAL_TEST_REDIS_CLUSTER");
    }

    /// Returns the address and id of the node that reports a slot as its own.
    fn holder(addresses: &str, slot: &str) -> (String, String) {
        let owns = |address: &&str| {
            let nodes = ask(address, &["CLUSTER", "NODES"]);
            let line = nodes.lines().find(|line| line.contains("myself")).unwrap().to_owned();
            let slot: u16 = slot.parse().unwrap();
            line.split(' ').skip(8).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse::<u16>().is_ok_and(|first| first <= slot)
                    && last.parse::<u16>().is_ok_and(|last| slot <= last)
            })
        };
        let address = addresses.split(',').find(owns).unwrap();
        (address.to_owned(), id(address))
    }

    fn id(address: &str) -> String {
        ask(address, &["CLUSTER", "MYID"]).lines().nth(1).unwrap().to_owned()
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REDIS_CLUSTER"]
    fn clients_follow_a_slot_that_moves() {
        let Some((addresses, _guard)) = servers("SERVAL_TEST_REDIS_CLUSTER") else { return };
        let (key, slot) = ("foo", "12182");
        let (from, from_id) = holder(&addresses, slot);
        let to = addresses.split(',').find(|address| *address != from).unwrap();
        let to_id = id(to);
        let store = open(&addresses, &[]);
        EventLoop.run(async {
            let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
            let record = Record::from_iter([("f", &b"v"[..])]);
            assert_eq!(client.insert("t", key, &record).await, Outcome::OK);
            // ASK: the slot is migrating, its key has moved already.
            assert_eq!(ask(to, &["CLUSTER", "SETSLOT", slot, "IMPORTING", &from_id]), "+OK\r\n");
            assert_eq!(ask(&from, &["CLUSTER", "SETSLOT", slot, "MIGRATING", &to_id]), "+OK\r\n");
            let (host, port) = to.rsplit_once(':').unwrap();
            assert_eq!(ask(&from, &["MIGRATE", host, port, key, "0", "5000"]), "+OK\r\n");
            let mut reply = Reply::new();
            let all = FieldSelection::default();
            assert_eq!(client.read("t", key, &all, &mut reply).await, Outcome::OK);
            assert_eq!(client.update("t", key, &record).await, Outcome::OK);
            // MOVED: the migration is complete.
            for node in [to, &from] {
                assert_eq!(ask(node, &["CLUSTER", "SETSLOT", slot, "NODE", &to_id]), "+OK\r\n");
            }
            for _ in 0..2 {
                reply.clear();
                assert_eq!(client.read("t", key, &all, &mut reply).await, Outcome::OK);
                assert_eq!(reply.records()[0].get("f"), Some(&b"v"[..]));
            }
            assert_eq!(client.delete("t", key).await, Outcome::OK);
            // Nodes that disagree permanently cause a failure, not a hang.
            ask(to, &["CLUSTER", "SETSLOT", slot, "NODE", &from_id]);
            ask(&from, &["CLUSTER", "SETSLOT", slot, "NODE", &to_id]);
            let lost = client.update("t", key, &record).await;
            for node in addresses.split(',') {
                ask(node, &["CLUSTER", "SETSLOT", slot, "NODE", &from_id]);
            }
            assert_eq!(lost.status, Status::ServiceUnavailable, "{lost:?}");
            assert!(lost.message.unwrap().contains("slot 12182"));
        });
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REDIS_CLUSTER"]
    fn a_lost_connection_is_reopened() {
        let Some((addresses, _guard)) = servers("SERVAL_TEST_REDIS_CLUSTER") else { return };
        for connections in ["0", "1"] {
            let store = open(&addresses, &[("redis.connections", connections)]);
            EventLoop.run(async {
                let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
                let record = Record::from_iter([("f", &b"v"[..])]);
                assert_eq!(client.insert("t", "k", &record).await, Outcome::OK);
                for address in addresses.split(',') {
                    ask(address, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                }
                let outcome = client.update("t", "k", &record).await;
                assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
                assert_eq!(client.update("t", "k", &record).await, Outcome::OK);
            });
        }
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_REDIS_CLUSTER"]
    fn a_cluster_and_a_server_are_not_mistaken_for_each_other() {
        let Some((addresses, _guard)) = servers("SERVAL_TEST_REDIS_CLUSTER") else { return };
        let single = with(&[("redis.hosts", &addresses)]).unwrap();
        let error = single.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(error.contains("set redis.cluster=true"), "{error}");
        let Some(lone) = variable("SERVAL_TEST_REDIS") else { return };
        let cluster = open(&lone, &[]);
        let error = cluster.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(error.contains("leave out redis.cluster"), "{error}");
        let late = EventLoop.run(async { cluster.connect(&cluster.local().unwrap(), 0).await.unwrap_err() });
        assert_eq!(late.to_string(), error);
    }
}

/// A server that supports TLS only.
mod tls {
    use super::*;

    fn open(settings: &[(&str, &str)]) -> Option<Redis> {
        let address = variable("SERVAL_TEST_REDIS_TLS")?;
        Some(redis(&address, settings).unwrap())
    }

    fn roots() -> String {
        std::env::var("SERVAL_TEST_REDIS_TLS_ROOTS").unwrap()
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REDIS_TLS SERVAL_TEST_REDIS_TLS_ROOTS"]
    fn a_trusted_certificate_is_accepted_and_any_if_verification_is_off() {
        for trusted in [true, false] {
            let roots = if variable("SERVAL_TEST_REDIS_TLS").is_some() { roots() } else { return };
            let how = if trusted {
                ("redis.tls.roots", &*roots)
            } else {
                ("redis.tls.insecure.accept.any.certificate", "true")
            };
            let Some(store) = open(&[("redis.tls", "true"), how]) else { return };
            store.prepare(&schema(), Purpose::Load).unwrap();
            EventLoop.run(async {
                let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
                let record = Record::from_iter([("f", &b"v"[..])]);
                assert_eq!(client.insert("t", "k", &record).await, Outcome::OK);
                assert_eq!(client.delete("t", "k").await, Outcome::OK);
            });
            assert!(store.describe().iter().any(|(name, value)| name == "tls" && value == "true"));
        }
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REDIS_TLS"]
    fn an_untrusted_certificate_and_a_server_without_tls_are_refused() {
        for (settings, advice) in [(&[("redis.tls", "true")][..], "redis.tls.roots"), (&[][..], "redis.tls")]
        {
            let Some(store) = open(settings) else { return };
            let error = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
    }
}

#[test]
fn an_operation_on_a_silent_server_fails_at_its_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b":0\r\n");
            held.push(stream);
        }
    });
    let store = redis(&address, &[("redis.operation.timeout", "50ms")]).unwrap();
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
        let outcome = client.read("t", "k", &FieldSelection::default(), &mut Reply::new()).await;
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS_PRIMARY SERVAL_TEST_REDIS_REPLICA"]
fn reads_and_scans_go_to_the_replica_and_writes_to_the_primary() {
    let (Some(primary), Some(replica)) =
        (variable("SERVAL_TEST_REDIS_PRIMARY"), variable("SERVAL_TEST_REDIS_REPLICA"))
    else {
        return;
    };
    let store = redis(&primary, &[("redis.replica", &replica)]).unwrap();
    store.prepare(&schema(), Purpose::Load).unwrap();
    let facts = store.describe();
    assert!(facts.contains(&("reads and scans".into(), format!("replica at {replica}"))), "{facts:?}");
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
        let (all, mut reply) = (FieldSelection::default(), Reply::new());
        let record = |value: &[u8]| -> Record { [("f", value)].into_iter().collect() };
        assert_eq!(client.insert("t", "k", &record(b"1")).await, Outcome::OK);
        // The record reaches the replica soon.
        while client.read("t", "k", &all, &mut reply).await != Outcome::OK {
            reply.clear();
        }
        // A replica that stops replicating keeps its state and gets no updates.
        assert_eq!(ask(&replica, &["REPLICAOF", "NO", "ONE"]), "+OK\r\n");
        assert_eq!(client.update("t", "k", &record(b"2")).await, Outcome::OK);
        assert_eq!(client.insert("t", "l", &record(b"2")).await, Outcome::OK);
        reply.clear();
        assert_eq!(client.read("t", "k", &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records(), [record(b"1")]);
        reply.clear();
        assert_eq!(client.read("t", "l", &all, &mut reply).await, Outcome::NOT_FOUND);
        reply.clear();
        assert_eq!(client.scan("t", "k", 10, &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records().len(), 1);
        // The server is no longer a replica, and preparing a run reports it.
        let error = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(error.contains("redis.replica") && error.contains("is none"), "{error}");
        let port = primary.rsplit_once(':').unwrap().1;
        assert_eq!(ask(&replica, &["REPLICAOF", "127.0.0.1", port]), "+OK\r\n");
    });
    for (settings, words) in [
        (&[("redis.replica", "a"), ("redis.cluster", "true")][..], "for one server"),
        (&[("redis.replica", "a:0")], "no host or host:port"),
    ] {
        assert!(redis(&primary, settings).unwrap_err().contains(words));
    }
}
