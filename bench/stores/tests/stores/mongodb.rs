//! MongoDB's protocol, tested on a substitute since no MongoDB server is
//! available: the suite with inserts that refuse and inserts that replace, with
//! and without TLS; YCSB's layout in both directions; refusals and failures of a
//! server.
//!
//! `cargo xtask test` starts the substitutes and names them in the environment; without them these
//! tests are ignored.

#![cfg(feature = "mongodb")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use mongodb::bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use serval_conformance::{
    Differences, EventLoop, Executor, FaultyProxy, InsertExisting, Subject, TABLE, fields, properties,
    schema, silent, variable,
};
use serval_model::{
    Client, FieldSelection, OperationKinds, Outcome, Purpose, Record, Reply, Schema, Status, Store,
    StoreError,
};
use serval_stores::mongodb::Mongodb;

type MongodbClient = <Mongodb as Store>::Client;
use std::sync::atomic::{AtomicU32, Ordering};

fn open(settings: &[(&str, &str)]) -> Result<Mongodb, String> {
    Mongodb::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// A database that only one test uses.
struct Space {
    address: String,
    name: String,
    /// Options of the URL, with a leading `?`.
    options: String,
}

impl Space {
    fn new() -> Option<Space> {
        Some(Space::at(&variable("SERVAL_TEST_MONGODB")?, ""))
    }

    fn at(address: &str, options: &str) -> Space {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Space { address: address.to_owned(), name, options: options.to_owned() }
    }

    /// Returns the same database at another address.
    fn by(&self, address: &str) -> Space {
        Space { address: address.to_owned(), name: self.name.clone(), options: self.options.clone() }
    }

    fn url(&self) -> String {
        format!("mongodb://{}/{}{}", self.address, self.name, self.options)
    }

    fn store(&self, settings: &[(&str, &str)]) -> Mongodb {
        let url = self.url();
        open(&[&[("mongodb.url", url.as_str())], settings].concat()).unwrap()
    }

    /// Runs a function with the collection by the driver alone.
    async fn collection(&self) -> mongodb::Collection<Document> {
        let client = mongodb::Client::with_uri_str(self.url()).await.unwrap();
        client.database(&self.name).collection(TABLE)
    }
}

fn subject_in(
    space: Space,
    settings: &[(&str, &str)],
    insert_existing: InsertExisting,
) -> Subject<Mongodb, EventLoop> {
    let store = space.store(settings);
    Subject::new(store, EventLoop, Differences { insert_existing, ..Differences::default() })
}

mod refusing {
    use super::*;

    fn subject() -> Option<Subject<Mongodb, EventLoop>> {
        Some(subject_in(Space::new()?, &[], InsertExisting::Refused))
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_MONGODB");
}

/// With a time limit and a small pool, which must not affect the results.
mod replacing {
    use super::*;

    fn subject() -> Option<Subject<Mongodb, EventLoop>> {
        let settings =
            [("mongodb.upsert", "true"), ("mongodb.timeout", "60s"), ("mongodb.maxconnections", "1")];
        Some(subject_in(Space::new()?, &settings, InsertExisting::Replaced))
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_MONGODB");
}

mod tls {
    use super::*;

    fn subject() -> Option<Subject<Mongodb, EventLoop>> {
        let (address, certificate) =
            (variable("SERVAL_TEST_MONGODB_TLS")?, variable("SERVAL_TEST_MONGODB_CA")?);
        let space = Space::at(&address, &format!("?tls=true&tlsCAFile={certificate}"));
        Some(subject_in(space, &[], InsertExisting::Refused))
    }
    serval_conformance::suite!(subject: values_are_returned_byte_for_byte, a_batch_is_written);

    #[test]
    #[ignore = "needs SERVAL_TEST_MONGODB SERVAL_TEST_MONGODB_TLS"]
    fn an_untrusted_certificate_is_refused() {
        let Some(address) = variable("SERVAL_TEST_MONGODB_TLS") else { return };
        for (options, part) in [("?tls=true", "certificate"), ("", "Does mongodb.url name a MongoDB server")]
        {
            let store = Space::at(&address, options).store(&[("mongodb.connect_timeout", "2s")]);
            let problem = refusal(&store, Purpose::Load);
            assert!(problem.contains(part) && problem.contains(&address), "{problem}");
        }
        let trusting = Space::at(&address, "?tls=true&tlsInsecure=true").store(&[]);
        trusting.prepare(&schema(), Purpose::Load).unwrap();
    }
}

fn record(pairs: &[(&str, &[u8])]) -> Record {
    pairs.iter().copied().collect()
}

async fn client(store: &Mongodb) -> MongodbClient {
    store.connect(&store.local().unwrap(), 0).await.unwrap()
}

async fn read(client: &mut MongodbClient, key: &str) -> (Outcome, Vec<serval_conformance::Fields>) {
    let mut reply = Reply::new();
    let outcome = client.read(TABLE, key, &FieldSelection::default(), &mut reply).await;
    let records = reply.records().iter();
    let found = records.map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect());
    (outcome, found.collect())
}

fn words(outcome: &Outcome) -> &str {
    outcome.message.as_deref().unwrap_or_default()
}

fn refusal(store: &Mongodb, purpose: Purpose) -> String {
    let error: StoreError = store.prepare(&schema(), purpose).unwrap_err();
    error.to_string()
}

fn bytes(value: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: value.to_vec() })
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn serval_and_ycsb_read_each_others_records() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[]);
    assert_eq!(store.capabilities(), OperationKinds::ALL);
    EventLoop.run(async {
        let collection = space.collection().await;
        // Like YCSB's insert, with additional fields.
        let first = doc! { "_id": "user1", "field0": bytes(b"a\0\xff"), "field1": bytes(b"") };
        let second = doc! { "_id": "user2", "field0": "text", "number": 7, "field1": bytes(b"b") };
        collection.insert_many([first, second]).await.unwrap();
        let mut client = client(&store).await;
        let found = read(&mut client, "user1").await;
        assert_eq!(found, (Outcome::OK, vec![fields([("field0", b"a\0\xff"), ("field1", b"")])]));
        let found = read(&mut client, "user2").await;
        assert_eq!(found, (Outcome::OK, vec![fields([("field0", b"text"), ("field1", b"b")])]));
        let outcome = client.insert(TABLE, "user3", &record(&[("field1", b"x"), ("field0", b"\xfe")])).await;
        assert_eq!(outcome, Outcome::OK);
        assert_eq!(client.update(TABLE, "user1", &record(&[("field1", b"B")])).await, Outcome::OK);
        let batch = [("user4".to_owned(), record(&[("field0", b"y")]))];
        assert_eq!(client.insert_batch(TABLE, &batch).await, Outcome::OK);
        let of = async |key: &str| collection.find_one(doc! { "_id": key }).await.unwrap().unwrap();
        // YCSB keeps the document's order of fields.
        assert_eq!(
            of("user3").await,
            doc! { "_id": "user3", "field1": bytes(b"x"), "field0": bytes(b"\xfe") }
        );
        assert_eq!(
            of("user1").await,
            doc! { "_id": "user1", "field0": bytes(b"a\0\xff"), "field1": bytes(b"B") }
        );
        assert_eq!(of("user4").await, doc! { "_id": "user4", "field0": bytes(b"y") });
        assert_eq!(client.close().await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn the_description_has_the_settings_in_force() {
    let Some(space) = Space::new() else { return };
    let facts = |settings: &[(&str, &str)]| {
        let store = open(settings).unwrap();
        store.describe().into_iter().collect::<std::collections::BTreeMap<_, _>>()
    };
    let plain = facts(&[]);
    assert_eq!(plain["address"], "localhost:27017");
    assert_eq!(plain["database"], "ycsb");
    assert_eq!(plain["write concern"], "w=1");
    assert_eq!(plain["read preference"], "primary");
    assert_eq!(plain["retries"], "off");
    assert_eq!(plain["connections"], "one an operation under way");
    // YCSB's properties apply to options that the URL does not set.
    let named = [
        ("mongodb.writeConcern", "JOURNALED"),
        ("mongodb.readPreference", "secondary_preferred"),
        ("mongodb.maxconnections", "7"),
    ];
    let of_names = facts(&named);
    assert_eq!(of_names["write concern"], "journal=true");
    assert_eq!(of_names["read preference"], "secondaryPreferred");
    assert_eq!(of_names["connections"], "7 an event loop and server at most");
    let url = "mongodb://u:secret@h:1,i/admin?w=majority&journal=false&wTimeoutMS=5&readPreference=nearest&maxPoolSize=3\
               &waitQueueMultiple=5&retryWrites=true";
    let of_url = facts(&[&[("mongodb.url", url)], &named[..]].concat());
    assert_eq!(of_url["address"], "h:1,i:27017");
    assert_eq!(of_url["database"], "ycsb");
    assert_eq!(of_url["write concern"], "w=majority journal=false wTimeoutMS=5");
    assert_eq!(of_url["read preference"], "nearest");
    assert_eq!(of_url["connections"], "3 an event loop and server at most");
    assert_eq!(of_url["URL parameters without effect"], "waitQueueMultiple");
    assert!(!format!("{of_url:?}").contains("secret"));
    for (word, expected) in
        [("acknowledged", "w=1"), ("replica_acknowledged", "w=2"), ("majority", "w=majority")]
    {
        assert_eq!(facts(&[("mongodb.writeConcern", word)])["write concern"], expected);
    }
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    assert!(store.describe().contains(&("version".into(), "4.4.0".into())), "{:?}", store.describe());
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn the_write_concern_is_sent_and_operations_are_not_retried() {
    let Some(space) = Space::new() else { return };
    for (word, sent) in [("majority", &b"majority"[..]), ("journaled", b"\x08j\0\x01")] {
        let between = FaultyProxy::new(&space.address, sent);
        let store = space.by(&between.address).store(&[("mongodb.writeConcern", word)]);
        EventLoop.run(async {
            let mut client = client(&store).await;
            let one = record(&[("field0", b"x")]);
            assert_eq!(client.insert(TABLE, "k", &one).await, Outcome::OK);
            assert_eq!(client.update(TABLE, "k", &one).await, Outcome::OK);
            assert_eq!(client.delete(TABLE, "k").await, Outcome::OK);
            assert_eq!(client.close().await, Outcome::OK);
        });
        assert_eq!(between.asked(), 3, "{word}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn values_that_are_too_large_and_unusual_names_are_bad_requests() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        let (one, huge) = (record(&[("field0", b"x")]), record(&[("field0", &vec![7; 17 << 20])]));
        assert_eq!(client.insert(TABLE, "k", &one).await, Outcome::OK);
        let batch = [("l".to_owned(), one.clone()), ("m".to_owned(), huge.clone())];
        for outcome in [
            client.insert(TABLE, "l", &huge).await,
            client.insert_batch(TABLE, &batch).await,
            client.insert(TABLE, "l", &record(&[("a\0b", b"x")])).await,
        ] {
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        }
        // The client remains usable.
        assert_eq!(client.update(TABLE, "k", &one).await, Outcome::OK);
        let again = client.insert(TABLE, "k", &one).await;
        assert_eq!(again.status, Status::Error, "{again:?}");
        assert!(words(&again).contains("E11000 duplicate key"), "{again:?}");
        assert_eq!(client.close().await, Outcome::OK);
    });
    for (name, part) in
        [("", "is empty"), ("_id", "the key's"), ("$set", "begins with '$'"), ("a.b", "path"), ("a\0", "NUL")]
    {
        let schema = Schema { table: TABLE.into(), fields: vec!["field0".into(), name.into()] };
        let problem = store.prepare(&schema, Purpose::Load).unwrap_err().to_string();
        assert!(problem.contains(part) && problem.contains("fieldnameprefix"), "{problem}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn an_unusable_server_is_reported_with_the_remedy() {
    let unreachable = [("mongodb.url", "mongodb://127.0.0.1:1/d"), ("mongodb.connect_timeout", "300ms")];
    let problem = refusal(&open(&unreachable).unwrap(), Purpose::Run);
    assert!(problem.contains("mongodb (127.0.0.1:1)") && problem.contains("refused"), "{problem}");
    assert!(problem.contains("Does mongodb.url name a MongoDB server"), "{problem}");
    let (_listener, address) = silent();
    let url = format!("mongodb://{address}/d");
    let settings = [("mongodb.url", url.as_str()), ("mongodb.connect_timeout", "300ms")];
    let problem = refusal(&open(&settings).unwrap(), Purpose::Run);
    assert!(problem.contains(&address) && problem.contains("cannot connect"), "{problem}");
    let Some(space) = Space::new() else { return };
    // The server has no log-in, which is a refusal like any other.
    let log_in =
        [("mongodb.username", "u"), ("mongodb.password", "secret"), ("mongodb.connect_timeout", "2s")];
    let problem = refusal(&space.store(&log_in), Purpose::Run);
    assert!(problem.contains("Are the user and password right"), "{problem}");
    assert!(!problem.contains("secret"), "{problem}");
    let store = space.store(&[]);
    let problem = refusal(&store, Purpose::Run);
    assert!(problem.contains("no collection 'usertable': load it first"), "{problem}");
    store.prepare(&schema(), Purpose::Load).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.insert(TABLE, "k", &record(&[("field0", b"x")])).await, Outcome::OK);
        assert_eq!(client.close().await, Outcome::OK);
    });
    store.prepare(&schema(), Purpose::Run).unwrap();
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn a_lost_connection_fails_one_operation_and_is_reopened() {
    let Some(space) = Space::new() else { return };
    let between = FaultyProxy::new(&space.address, b"field_lost");
    let store = space.by(&between.address).store(&[]);
    EventLoop.run(async {
        let mut client = client(&store).await;
        let one = record(&[("field_lost", b"x")]);
        assert_eq!(client.insert(TABLE, "k", &one).await, Outcome::OK);
        for write in [true, false] {
            between.lose_the_next_answer();
            let outcome = if write {
                client.update(TABLE, "k", &one).await
            } else {
                let mut fields = FieldSelection::default();
                fields.push("field_lost");
                client.read(TABLE, "k", &fields, &mut Reply::new()).await
            };
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            assert!(words(&outcome).starts_with("connection lost: "), "{outcome:?}");
            // One of the closed connections may be the monitor's.
            assert_eq!(client.update(TABLE, "k", &record(&[("field0", b"y")])).await, Outcome::OK);
        }
        assert_eq!(client.close().await, Outcome::OK);
    });
    // The insert, and each of the lost operations once.
    assert_eq!(between.asked(), 3);
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn operations_on_a_server_that_stays_down_fail_at_the_limit() {
    let Some(space) = Space::new() else { return };
    let between = FaultyProxy::new(&space.address, b"x");
    let store = space.by(&between.address).store(&[("mongodb.connect_timeout", "300ms")]);
    EventLoop.run(async {
        let mut client = client(&store).await;
        let one = record(&[("field0", b"x")]);
        assert_eq!(client.insert(TABLE, "k", &one).await, Outcome::OK);
        between.go_away_after(0, u64::MAX);
        let lost = client.update(TABLE, "k", &one).await;
        assert_eq!(lost.status, Status::ServiceUnavailable, "{lost:?}");
        let away = client.update(TABLE, "k", &one).await;
        assert_eq!(away.status, Status::ServiceUnavailable, "{away:?}");
        assert!(words(&away).contains("no server can be used"), "{away:?}");
        assert!(!words(&away).contains("Topology"), "{away:?}");
        assert_eq!(client.close().await, Outcome::OK);
    });
}

#[test]
#[allow(clippy::await_holding_lock, reason = "the proxy delays answers while an operation waits")]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn an_operation_without_an_answer_ends_at_its_timeout_and_the_next_succeeds() {
    let Some(space) = Space::new() else { return };
    let between = FaultyProxy::new(&space.address, b"x");
    let store = space.by(&between.address).store(&[("mongodb.timeout", "200ms")]);
    EventLoop.run(async {
        let mut client = client(&store).await;
        let (old, new) = (record(&[("field0", b"old")]), record(&[("field0", b"new")]));
        assert_eq!(client.insert(TABLE, "k", &old).await, Outcome::OK);
        assert_eq!(client.insert(TABLE, "l", &new).await, Outcome::OK);
        let held = between.hold();
        let (outcome, _) = read(&mut client, "k").await;
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
        assert!(words(&outcome).contains("no answer within 200ms (mongodb.timeout)"), "{outcome:?}");
        drop(held);
        // The late answer belongs to no later operation: the next one gets its own.
        let found = read(&mut client, "l").await;
        assert_eq!(found, (Outcome::OK, vec![fields([("field0", b"new")])]));
        assert_eq!(client.close().await, Outcome::OK);
    });
}

#[test]
#[allow(clippy::await_holding_lock, reason = "the proxy delays answers while operations wait")]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn operations_abandoned_in_the_queue_do_not_block_others() {
    let Some(space) = Space::new() else { return };
    let between = FaultyProxy::new(&space.address, b"x");
    let store =
        space.by(&between.address).store(&[("mongodb.timeout", "100ms"), ("mongodb.maxconnections", "1")]);
    EventLoop.run(async {
        let local = store.local().unwrap();
        let mut first = store.connect(&local, 0).await.unwrap();
        let mut second = store.connect(&local, 1).await.unwrap();
        assert_eq!(first.insert(TABLE, "k", &record(&[("field0", b"x")])).await, Outcome::OK);
        let held = between.hold();
        for _ in 0..10 {
            for client in [&mut first, &mut second] {
                assert_eq!(read(client, "k").await.0.status, Status::ServiceUnavailable);
            }
        }
        drop(held);
        // An operation behind one that is still awaited may be late, and so may the machine.
        // Behind abandoned operations, all would be late.
        for client in [&mut first, &mut second] {
            let mut outcome = Outcome::error("not asked");
            for _ in 0..50 {
                outcome = read(client, "k").await.0;
                if outcome.is_ok() {
                    break;
                }
            }
            assert_eq!(outcome, Outcome::OK);
        }
        assert_eq!(first.close().await, Outcome::OK);
        assert_eq!(second.close().await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MONGODB"]
fn the_clients_of_a_loop_share_a_pool_that_the_last_of_them_closes() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[("mongodb.maxconnections", "2")]);
    EventLoop.run(async {
        let local = store.local().unwrap();
        let mut first = store.connect(&local, 0).await.unwrap();
        let mut second = store.connect(&local, 1).await.unwrap();
        assert_eq!(first.insert(TABLE, "k", &record(&[("field0", b"x")])).await, Outcome::OK);
        assert_eq!(first.close().await, Outcome::OK);
        assert_eq!(read(&mut second, "k").await.0, Outcome::OK);
        assert_eq!(second.close().await, Outcome::OK);
        let outcome = second.delete(TABLE, "k").await;
        assert!(words(&outcome).contains("closed"), "{outcome:?}");
    });
}

#[test]
fn impossible_settings_are_refused_together() {
    let problem = open(&[
        ("mongodb.url", "mongodb://u:secret@h/d?w=oops&tls=perhaps"),
        ("mongodb.writeConcern", "sometimes"),
        ("mongodb.readPreference", "best"),
        ("mongodb.maxconnections", "-1"),
        ("mongodb.connect_timeout", "0"),
        ("mongodb.timeout", "soon"),
        ("mongodb.username", "u"),
    ])
    .unwrap_err();
    for name in [
        "mongodb.url: ",
        "mongodb.writeConcern",
        "mongodb.readPreference",
        "mongodb.maxconnections",
        "mongodb.connect_timeout",
        "mongodb.timeout",
        "mongodb.username=u: and mongodb.password need each other",
    ] {
        assert!(problem.contains(name), "{name}: {problem}");
    }
    assert!(!problem.contains("secret"), "{problem}");
    for (settings, part) in [
        (&[("mongodb.url", "http://h/d")][..], "mongodb.url: "),
        (&[("mongodb.url", "mongodb+srv://u:secret@h/d")], "asks the DNS for the servers"),
        (&[("mongodb.url", "mongodb://h/d?w=0")], "mongodb.url: w=0: the driver waits"),
        (
            &[("mongodb.writeConcern", "unacknowledged")],
            "mongodb.writeConcern=unacknowledged: the driver waits",
        ),
        (&[("mongodb.url", "mongodb://h/d?tls=true&tlsCAFile=/nowhere")], "/nowhere"),
        (&[("mongodb.url", "mongodb://h/d?tls=true&tlsCAFile=/dev/null")], "is no PEM file"),
        (
            &[("mongodb.url", "mongodb://u:secret@h"), ("mongodb.username", "v"), ("mongodb.password", "w")],
            "the URL has a user too",
        ),
        (&[("mongodb.url", "mongodb://u:secret@h:99999/d")], "mongodb.url: "),
        (&[("mongodb.url", "mongodb://u:sec/ret@h/d")], "mongodb.url: "),
    ] {
        let problem = open(settings).unwrap_err();
        assert!(problem.contains(part), "{part}: {problem}");
        assert!(!problem.contains("secret") && !problem.contains("sec/ret"), "{problem}");
    }
}
