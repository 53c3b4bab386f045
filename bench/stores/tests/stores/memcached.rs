//! memcached, real servers: the suite on one and on several, YCSB's layout, and
//! refusals of a server.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests are ignored.

#![cfg(feature = "memcached")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, Fields, Subject, fields, full, properties, schema,
    silent, variable,
};
use serval_model::{
    Client, FieldSelection, OperationKind, Outcome, Purpose, Record, Reply, Status, Store, java::string_hash,
};
use serval_stores::memcached::Memcached;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Tests share the servers and empty them, so they run one at a time.
static SERVERS: Mutex<()> = Mutex::new(());

fn open(settings: &[(&str, &str)]) -> Result<Memcached, String> {
    Memcached::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// Sends lines on a new connection and returns the answer.
fn ask(address: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{lines}\r\nquit\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn servers() -> Option<(String, MutexGuard<'static, ()>)> {
    let addresses = variable("SERVAL_TEST_MEMCACHED")?;
    let guard = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    for address in addresses.split(',') {
        assert_eq!(ask(address, "flush_all"), "OK\r\n");
    }
    Some((addresses, guard))
}

/// Returns a subject on the first servers.
fn subject(count: usize, settings: &[(&str, &str)]) -> Option<Subject<Memcached, EventLoop>> {
    let (addresses, guard) = servers()?;
    let some: Vec<&str> = addresses.split(',').take(count).collect();
    assert_eq!(some.len(), count);
    let hosts = some.join(",");
    let store = open(&[&[("memcached.hosts", &*hosts)], settings].concat()).unwrap();
    let differences = Differences {
        values: AcceptedValues::Text,
        // An item of 1 MiB also contains the key and the names.
        record_bytes_max: Some(1 << 20),
        // 250 bytes with "usertable-".
        keys: |key| key.len() <= 240 && !key.bytes().any(|byte| byte <= b' ' || byte == 0x7f),
        ..Differences::default()
    };
    Some(Subject::new(store, EventLoop, differences).keeping(guard))
}

mod one {
    fn subject() -> Option<super::Subject<super::Memcached, super::EventLoop>> {
        super::subject(1, &[])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_MEMCACHED");
}

/// With items that expire in an hour, so that writes carry the flag.
mod several {
    fn subject() -> Option<super::Subject<super::Memcached, super::EventLoop>> {
        super::subject(3, &[("memcached.objectExpirationTime", "3600")])
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_MEMCACHED");
}

#[test]
#[ignore = "needs SERVAL_TEST_MEMCACHED"]
fn records_have_ycsbs_layout() {
    let Some(subject) = subject(1, &[]) else { return };
    assert!(!subject.store.capabilities().contains(OperationKind::Scan));
    let addresses = std::env::var("SERVAL_TEST_MEMCACHED").unwrap();
    let address = addresses.split(',').next().unwrap();
    let document = r#"{"field0":"a\u00e9\"","field1":null,"field2":"c"}"#;
    let written = ask(address, &format!("add usertable-user1 0 2147483647 {}\r\n{document}", document.len()));
    assert_eq!(written, "STORED\r\n");
    subject.with_client(async |client| {
        let expected = fields([("field0", "aé\"".as_bytes()), ("field2", b"c")]);
        assert_eq!(client.read("user1", &[]).await, Some(expected));
        assert_eq!(client.insert("user2", &fields([("f", b"\"\n\0")])).await, Outcome::OK);
    });
    assert_eq!(
        ask(address, "get usertable-user2"),
        "VALUE usertable-user2 0 18\r\n{\"f\":\"\\\"\\n\\u0000\"}\r\nEND\r\n"
    );
    ask(address, "set usertable-user3 0 0 5\r\n[1,2]");
    subject.with_another_client(0, async |handle| {
        for verb in ["read", "update"] {
            let outcome = match verb {
                "read" => {
                    let all = FieldSelection::default();
                    handle.client.read("usertable", "user3", &all, &mut Reply::new()).await
                }
                _ => handle.update("user3", &full("x")).await,
            };
            assert_eq!(outcome.status, Status::UnexpectedState, "{verb}: {outcome:?}");
        }
        assert_eq!(handle.insert("user4", &full("user4")).await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MEMCACHED"]
fn an_update_may_replace_the_record_as_in_ycsb() {
    let Some(subject) = subject(1, &[("memcached.update", "replace")]) else { return };
    subject.with_client(async |client| {
        let change = fields([("field1", b"one")]);
        assert_eq!(client.update("k", &change).await, Outcome::NOT_FOUND);
        assert_eq!(client.insert("k", &full("k")).await, Outcome::OK);
        assert_eq!(client.update("k", &change).await, Outcome::OK);
        assert_eq!(client.read("k", &[]).await, Some(change));
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MEMCACHED"]
fn keys_are_on_the_servers_that_spymemcached_chooses() {
    let Some(subject) = subject(3, &[]) else { return };
    let addresses = std::env::var("SERVAL_TEST_MEMCACHED").unwrap();
    let addresses: Vec<&str> = addresses.split(',').collect();
    let keys: Vec<String> = (0..30).map(|n| format!("user{n}")).collect();
    subject.with_client(async |client| {
        for key in &keys {
            assert_eq!(client.insert(key, &Fields::new()).await, Outcome::OK);
        }
    });
    let mut used = [0; 3];
    for key in keys {
        let key = format!("usertable-{key}");
        let at = string_hash(&key) as u32 as usize % 3;
        assert_eq!(ask(addresses[at], &format!("get {key}")), format!("VALUE {key} 0 2\r\n{{}}\r\nEND\r\n"));
        used[at] += 1;
    }
    assert!(used.iter().all(|count| *count > 0), "{used:?}");
}

#[test]
#[ignore = "needs SERVAL_TEST_MEMCACHED_AUTH SERVAL_TEST_MEMCACHED_PASSWORD"]
fn right_wrong_and_missing_passwords() {
    let Some(address) = variable("SERVAL_TEST_MEMCACHED_AUTH") else { return };
    let password = std::env::var("SERVAL_TEST_MEMCACHED_PASSWORD").unwrap();
    let with =
        |settings: &[(&str, &str)]| open(&[&[("memcached.hosts", &*address)], settings].concat()).unwrap();
    let right = with(&[("memcached.username", "serval"), ("memcached.password", &password)]);
    right.prepare(&schema(), Purpose::Load).unwrap();
    assert!(right.describe().iter().any(|(name, value)| name == "version" && value.contains('.')));
    let wrong = [("memcached.username", "serval"), ("memcached.password", "wrong")];
    for (settings, advice) in [(&[][..], "set memcached.username"), (&wrong[..], "Check memcached.username")]
    {
        let store = with(settings);
        let early = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(early.contains(advice) && early.contains(&address), "{early}");
        let late = EventLoop.run(async { store.connect(&(), 0).await.err().unwrap() }).to_string();
        assert_eq!(late, early);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_MEMCACHED"]
fn a_password_for_a_server_without_one_is_not_stored() {
    let Some((addresses, _guard)) = servers() else { return };
    let settings =
        [("memcached.hosts", &*addresses), ("memcached.username", "u"), ("memcached.password", "p")];
    open(&settings).unwrap().prepare(&schema(), Purpose::Run).unwrap();
    assert_eq!(ask(addresses.split(',').next().unwrap(), "get serval"), "END\r\n");
}

#[test]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let mute = open(&[("memcached.hosts", &address), ("memcached.timeout", "50ms")]).unwrap();
    let error = mute.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("memcached.timeout") && error.contains(&address), "{error}");
    drop(silent);
    let gone = open(&[("memcached.hosts", &address)]).unwrap();
    let error = gone.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("cannot connect") && error.contains("memcached.hosts"), "{error}");
}

/// Returns the address of a peer that answers the greeting of each connection correctly, and the
/// next request with the connection's own answer.
fn peer(answers: &'static [&'static [u8]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for (stream, answer) in listener.incoming().zip(answers) {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.next();
            stream.write_all(b"EN\r\n").unwrap();
            if lines.next().is_some() {
                let _ = stream.write_all(answer);
            }
            // An empty answer means silence; any other closes the connection.
            if answer.is_empty() {
                held.push(stream);
            }
        }
    });
    address
}

#[test]
fn a_lost_connection_fails_its_operation_and_the_next_reopens_it() {
    let address = peer(&[b"HTTP/1.1 400\r\n", b"VA 9", b"", b"EN\r\n"]);
    let settings = [("memcached.hosts", &*address), ("memcached.opTimeoutMillis", "50")];
    let store = open(&settings).unwrap();
    EventLoop.run(async {
        let mut client = store.connect(&(), 0).await.ok().unwrap();
        let mut read = async || client.read("t", "k", &FieldSelection::default(), &mut Reply::new()).await;
        for _ in 0..3 {
            let outcome = read().await;
            assert_eq!(outcome.status, Status::ServiceUnavailable);
            assert!(outcome.message.as_ref().unwrap().contains("connection lost"), "{outcome:?}");
        }
        assert_eq!(read().await, Outcome::NOT_FOUND);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MEMCACHED"]
fn a_record_that_is_too_large_is_refused_and_the_connection_stays_open() {
    let Some(subject) = subject(1, &[]) else { return };
    subject.with_client(async |handle| {
        let large = Record::from_iter([("f", &*vec![b'x'; 5 << 20])]);
        let outcome = handle.client.insert("usertable", "k", &large).await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        assert!(outcome.message.unwrap().contains("too large"));
        assert_eq!(handle.insert("k", &full("k")).await, Outcome::OK);
    });
}

#[test]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("memcached.hosts", "a,b:x,a:11211,::1"),
        ("memcached.update", "perhaps"),
        ("memcached.objectExpirationTime", "-1"),
        ("memcached.username", "u"),
        ("memcached.timeout", "0"),
        ("memcached.opTimeoutMillis", "0"),
    ];
    let problem = open(&settings).err().unwrap();
    for (name, _) in settings {
        assert!(problem.contains(name), "{name}: {problem}");
    }
    for words in ["names 'a:11211' twice", "'b:x' is no host", "'::1' is no host", "memcached.password"] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
}
