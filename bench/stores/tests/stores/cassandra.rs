//! Cassandra, a real node: the suite on columns of text and of blobs, YCSB's
//! layout, and refusals of a node.
//!
//! `cargo xtask test` starts the node, which requires a password and supports TLS, and names it in
//! the environment; without it these tests are ignored. A node without a password and a ring of
//! several nodes are not covered.

#![cfg(feature = "cassandra")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use scylla::client::{session::Session, session_builder::SessionBuilder};
use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, FIELDS, FaultyProxy, InsertExisting, Subject, TABLE,
    properties, schema, silent, variable,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::cassandra::Cassandra;
use std::sync::{Mutex, PoisonError};

/// Tests share one node and empty its tables, so they run one at a time.
static SERVER: Mutex<()> = Mutex::new(());

/// Returns the node's address and password.
fn server() -> Option<(String, String)> {
    Some((variable("SERVAL_TEST_CASSANDRA")?, variable("SERVAL_TEST_CASSANDRA_PASSWORD")?))
}

fn opened(settings: &[(&str, &str)]) -> Result<Cassandra, String> {
    Cassandra::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// Returns the store of the node, with its password and these settings, which take precedence.
fn cassandra(settings: &[(&str, &str)]) -> Option<Cassandra> {
    let (address, password) = server()?;
    let mut all = vec![
        ("cassandra.hosts", address.as_str()),
        ("cassandra.username", "cassandra"),
        ("cassandra.password", &password),
        // Allows for a busy machine.
        ("cassandra.connecttimeoutmillis", "60000"),
    ];
    all.extend(settings);
    Some(opened(&all).unwrap())
}

/// Opens a session of the driver without Serval, as another tool would.
async fn bare() -> Session {
    let (address, password) = server().unwrap();
    SessionBuilder::new().known_node(address).user("cassandra", password).build().await.unwrap()
}

fn run_cql(statements: &[&str]) {
    EventLoop.run(async {
        let session = bare().await;
        for cql in statements {
            session.query_unpaged(*cql, ()).await.unwrap();
        }
    });
}

fn subject(keyspace: &str, values: AcceptedValues) -> Option<Subject<Cassandra, EventLoop>> {
    let value_type = if values == AcceptedValues::Bytes { "blob" } else { "text" };
    let store = cassandra(&[("cassandra.keyspace", keyspace), ("cassandra.value_type", value_type)])?;
    let guard = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    store.prepare(&schema(), Purpose::Load).unwrap();
    run_cql(&[&format!("TRUNCATE {keyspace}.{TABLE}")]);
    let differences = Differences {
        ordered_scan: false,
        update_missing_is_not_found: !serval_stores::cassandra::INFO.updates_insert,
        delete_missing_is_not_found: false,
        insert_existing: InsertExisting::Merged,
        values,
        ..Differences::default()
    };
    Some(Subject::new(store, EventLoop, differences).keeping(guard))
}

/// Columns of text, as in YCSB.
mod text {
    use super::*;

    fn subject() -> Option<Subject<Cassandra, EventLoop>> {
        super::subject("ycsb", AcceptedValues::Text)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD");
}

/// Columns of bytes.
mod blob {
    use super::*;

    fn subject() -> Option<Subject<Cassandra, EventLoop>> {
        super::subject("ycsb_blob", AcceptedValues::Bytes)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD");
}

fn fact(store: &Cassandra, name: &str) -> String {
    store.describe().into_iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn records_have_ycsbs_layout() {
    let Some((..)) = server() else { return };
    let guard = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    // The statements in YCSB's documentation.
    run_cql(&[
        "DROP KEYSPACE IF EXISTS ycsb",
        "CREATE KEYSPACE ycsb WITH REPLICATION = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE ycsb.usertable (y_id varchar primary key, field0 varchar, field1 varchar, field2 varchar, \
         field3 varchar)",
        "INSERT INTO ycsb.usertable (y_id, field0, field2) VALUES ('user1', 'a', 'c')",
    ]);
    // Upper case in Serval, lower case in the database.
    let store = cassandra(&[("cassandra.create", "false")]).unwrap();
    let capitals = Schema { table: "UserTable".into(), fields: vec!["FIELD0".into(), "Field2".into()] };
    store.prepare(&capitals, Purpose::Load).unwrap();
    assert_eq!(fact(&store, "replication"), "class=SimpleStrategy replication_factor=1");
    assert_eq!(fact(&store, "type of values"), "text");
    assert!(fact(&store, "version").starts_with('5'));
    assert_eq!(
        (fact(&store, "nodes").as_str(), fact(&store, "partitioner").as_str()),
        ("1", "Murmur3Partitioner")
    );
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
        let mut reply = Reply::new();
        let all = FieldSelection::default();
        assert_eq!(client.read("UserTable", "user1", &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records(), [Record::from_iter([("FIELD0", &b"a"[..]), ("Field2", b"c")])]);
        let record = Record::from_iter([("FIELD0", &b"x"[..]), ("Field2", b"")]);
        assert_eq!(client.insert("UserTable", "user2", &record).await, Outcome::OK);
        let session = bare().await;
        let rows = session
            .query_unpaged("SELECT y_id, field0, field2, field1 FROM ycsb.usertable", ())
            .await
            .unwrap();
        let rows = rows.into_rows_result().unwrap();
        let mut rows: Vec<(String, String, String, Option<String>)> =
            rows.rows().unwrap().map(Result::unwrap).collect();
        rows.sort();
        let row = |key: &str, a: &str, b: &str| (key.to_owned(), a.to_owned(), b.to_owned(), None);
        assert_eq!(rows, [row("user1", "a", "c"), row("user2", "x", "")]);
    });
    drop(guard);
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn scans_run_in_token_order_as_in_ycsb() {
    let Some(subject) = subject("ycsb", AcceptedValues::Text) else { return };
    subject.with_client(async |handle| {
        for number in 0..20 {
            let value = number.to_string();
            let record = Record::from_iter([("field0", value.as_bytes())]);
            assert_eq!(handle.client.insert(TABLE, &format!("user{number}"), &record).await, Outcome::OK);
        }
        let session = bare().await;
        // The statement of YCSB's binding.
        let cql = "SELECT field0 FROM ycsb.usertable WHERE token(y_id) >= token('user7') LIMIT 5";
        let rows = session.query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
        let expected: Vec<(String,)> = rows.rows().unwrap().map(Result::unwrap).collect();
        let mut reply = Reply::new();
        let outcome = handle.client.scan(TABLE, "user7", 5, &FieldSelection::default(), &mut reply).await;
        assert_eq!(outcome, Outcome::OK);
        let found: Vec<_> = reply.records().iter().map(|record| record.get("field0").unwrap()).collect();
        assert_eq!(found, expected.iter().map(|(value,)| value.as_bytes()).collect::<Vec<_>>());
        assert_eq!(found.first(), Some(&&b"7"[..]));
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn consistency_levels_of_reads_and_writes_are_separate() {
    let Some(subject) = subject("ycsb", AcceptedValues::Text) else { return };
    // A single node cannot provide THREE, and reports it.
    let three = [("cassandra.readconsistencylevel", "THREE"), ("cassandra.writeconsistencylevel", "ONE")];
    let store = cassandra(&three).unwrap();
    store.prepare(&schema(), Purpose::Run).unwrap();
    let (read, write) = verbs(&store);
    assert_eq!((read.status, write), (Status::ServiceUnavailable, Outcome::OK));
    assert!(read.message.as_ref().unwrap().contains("THREE"), "{read:?}");
    let store =
        cassandra(&[("scylla.writeconsistencylevel", "three"), ("scylla.local_dc", "datacenter1")]).unwrap();
    assert_eq!(fact(&store, "consistency of reads"), "LOCAL_QUORUM");
    store.prepare(&schema(), Purpose::Run).unwrap();
    let (read, write) = verbs(&store);
    assert_eq!((read, write.status), (Outcome::NOT_FOUND, Status::ServiceUnavailable));
    drop(subject);
}

/// Reads a missing record, and writes to another table.
fn verbs(store: &Cassandra) -> (Outcome, Outcome) {
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
        let record = Record::from_iter([("field0", &b"x"[..])]);
        let read = client.read(TABLE, "nobody", &FieldSelection::default(), &mut Reply::new()).await;
        (read, client.update(TABLE, "somebody", &record).await)
    })
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn wrong_and_missing_credentials_are_refused() {
    let Some((address, password)) = server() else { return };
    let hosts = ("cassandra.hosts", address.as_str());
    let slow = ("cassandra.connecttimeoutmillis", "60000");
    let wrong = [hosts, slow, ("cassandra.username", "cassandra"), ("cassandra.password", "wrong")];
    let unknown = [hosts, slow, ("cassandra.username", "nobody"), ("cassandra.password", password.as_str())];
    for (settings, advice) in [
        (&[hosts, slow][..], "Set cassandra.username and cassandra.password"),
        (&wrong[..], "Check cassandra.username and cassandra.password"),
        (&unknown[..], "Check cassandra.username and cassandra.password"),
    ] {
        let store = opened(settings).unwrap();
        let early = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(early.contains(advice) && early.contains(&address), "{early}");
        let late =
            EventLoop.run(async { store.connect(&store.local().unwrap(), 0).await.unwrap_err() }).to_string();
        assert_eq!(late, early);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn a_user_without_write_permission_gets_forbidden() {
    let Some((address, _)) = server() else { return };
    let subject = subject("ycsb", AcceptedValues::Text).unwrap();
    subject.store.prepare(&schema(), Purpose::Load).unwrap();
    run_cql(&[
        "CREATE ROLE IF NOT EXISTS reader WITH PASSWORD = 'r' AND LOGIN = true",
        "GRANT SELECT ON KEYSPACE ycsb TO reader",
    ]);
    let reader = [
        ("hosts", address.as_str()),
        ("cassandra.username", "reader"),
        ("cassandra.password", "r"),
        ("cassandra.connecttimeoutmillis", "60000"),
    ];
    let store = opened(&reader).unwrap();
    store.prepare(&schema(), Purpose::Run).unwrap();
    let (read, write) = verbs(&store);
    assert_eq!((read, write.status), (Outcome::NOT_FOUND, Status::Forbidden));
    assert!(write.message.unwrap().contains("MODIFY"));
    let mut elsewhere = reader.to_vec();
    elsewhere.push(("cassandra.keyspace", "serval_forbidden"));
    let error = opened(&elsewhere).unwrap().prepare(&schema(), Purpose::Load).unwrap_err().to_string();
    assert!(error.contains("CREATE KEYSPACE") && error.contains("cassandra.username"), "{error}");
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn a_missing_or_different_table_is_reported_with_the_statement_that_creates_it() {
    let Some((..)) = server() else { return };
    let guard = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    run_cql(&["DROP KEYSPACE IF EXISTS serval_missing"]);
    let error_of = |settings: &[(&str, &str)], schema: &Schema, purpose| {
        let mut all = vec![("cassandra.keyspace", "serval_missing")];
        all.extend(settings);
        cassandra(&all).unwrap().prepare(schema, purpose).unwrap_err().to_string()
    };
    let error = error_of(&[], &schema(), Purpose::Run);
    assert!(
        error.contains("there is no keyspace 'serval_missing'") && error.contains("CREATE KEYSPACE"),
        "{error}"
    );
    let error = error_of(&[("cassandra.create", "false")], &schema(), Purpose::Load);
    assert!(error.contains("there is no keyspace") && error.contains("cassandra.create=true"), "{error}");
    let kin = cassandra(&[("cassandra.keyspace", "serval_missing")]).unwrap();
    kin.prepare(
        &Schema { table: "other".into(), fields: FIELDS[..2].iter().map(|f| (*f).into()).collect() },
        Purpose::Load,
    )
    .unwrap();
    let error = error_of(&[], &schema(), Purpose::Run);
    assert!(error.contains("has no table 'usertable'") && error.contains("CREATE TABLE"), "{error}");
    let mut other = schema();
    other.table = "other".into();
    let error = error_of(&[], &other, Purpose::Load);
    assert!(
        error.contains("lacks the columns field1, field3") && error.contains("field0, field2, y_id"),
        "{error}"
    );
    run_cql(&[
        "CREATE TABLE serval_missing.numbers (y_id text PRIMARY KEY, field0 int)",
        "CREATE TABLE serval_missing.wide (y_id text, field0 text, PRIMARY KEY (y_id, field0))",
    ]);
    for (table, words) in
        [("numbers", "'field0' of table 'numbers' is of type int"), ("wide", "primary key (y_id)")]
    {
        let error =
            error_of(&[], &Schema { table: table.into(), fields: vec!["field0".into()] }, Purpose::Run);
        assert!(error.contains(words), "{error}");
    }
    for (fields, words) in [(["a", "A"], "'a' and 'A'"), (["a", "Y_ID"], "'Y_ID' would be the key's")] {
        let error = error_of(
            &[],
            &Schema { table: "t".into(), fields: fields.map(String::from).into() },
            Purpose::Run,
        );
        assert!(error.contains(words), "{error}");
    }
    drop(guard);
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn a_value_that_is_too_large_is_refused_and_the_next_is_stored() {
    let Some(subject) = subject("ycsb", AcceptedValues::Text) else { return };
    subject.with_client(async |handle| {
        for megabytes in [17, 300] {
            let value = vec![b'x'; megabytes << 20];
            let record = Record::from_iter([("field0", &value[..])]);
            let outcome = handle.client.insert(TABLE, "large", &record).await;
            assert!(!outcome.is_ok(), "{outcome:?}");
            let words = outcome.message.unwrap();
            assert!(!words.is_empty() && words.len() < 1000, "{words}");
            eprintln!("{megabytes} MiB: {:?} {words}", outcome.status);
            let record = Record::from_iter([("field0", &b"small"[..])]);
            assert_eq!(handle.client.insert(TABLE, "small", &record).await, Outcome::OK);
        }
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_CA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn encrypted_connections_are_verified_as_configured() {
    let Some((..)) = server() else { return };
    let ca = std::env::var("SERVAL_TEST_CASSANDRA_CA").unwrap();
    let ssl = ("cassandra.useSSL", "true");
    for settings in [
        &[ssl, ("cassandra.tls_ca", &ca)][..],
        &[ssl, ("cassandra.tls_ca", &ca), ("cassandra.tls_verify", "full")],
        &[ssl, ("cassandra.tls_verify", "none")],
    ] {
        let store = cassandra(settings).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        assert_eq!(fact(&store, "TLS"), "yes");
    }
    // Self-signed, so the public roots do not trust it.
    let error = cassandra(&[ssl]).unwrap().prepare(&schema(), Purpose::Load).unwrap_err().to_string();
    assert!(error.contains("cassandra.tls_ca"), "{error}");
}

#[test]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let mute = opened(&[("hosts", &address), ("cassandra.connecttimeoutmillis", "50")]).unwrap();
    let early = mute.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(early.contains("cassandra.connecttimeoutmillis") && early.contains(&address), "{early}");
    let late =
        EventLoop.run(async { mute.connect(&mute.local().unwrap(), 0).await.unwrap_err() }).to_string();
    assert!(late.contains("cassandra.connecttimeoutmillis"), "{late}");
    drop(silent);
    let gone = opened(&[("hosts", &address)]).unwrap();
    let error = gone.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("cannot connect") && error.contains("cassandra.port"), "{error}");
}

#[test]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn the_next_operation_reopens_a_lost_connection() {
    let Some((node, _)) = server() else { return };
    let subject = subject("ycsb", AcceptedValues::Text).unwrap();
    subject.store.prepare(&schema(), Purpose::Load).unwrap();
    let between = FaultyProxy::new(&node, b"");
    let store = cassandra(&[("cassandra.hosts", &between.address)]).unwrap();
    EventLoop.run(async {
        let local = store.local().unwrap();
        let mut client = store.connect(&local, 0).await.unwrap();
        let mut other = store.connect(&local, 1).await.unwrap();
        let record = Record::from_iter([("field0", &b"v"[..])]);
        for _ in 0..2 {
            assert_eq!(client.update(TABLE, "k", &record).await, Outcome::OK);
            assert_eq!(other.insert(TABLE, "l", &record).await, Outcome::OK);
            // In flight: the node has executed it, and its answer is lost.
            between.lose_the_next_answer();
            let outcome = client.update(TABLE, "k", &record).await;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            let words = outcome.message.unwrap();
            assert!(words.contains("connection lost"), "{words}");
            assert_eq!(client.update(TABLE, "k", &record).await, Outcome::OK);
            assert_eq!(other.update(TABLE, "k", &record).await, Outcome::OK);
        }
    });
    drop(subject);
}

#[test]
#[allow(clippy::await_holding_lock, reason = "a thread of the proxy must wait meanwhile")]
#[ignore = "needs SERVAL_TEST_CASSANDRA SERVAL_TEST_CASSANDRA_PASSWORD"]
fn operations_on_a_node_that_stops_answering_time_out() {
    let Some((node, _)) = server() else { return };
    let subject = subject("ycsb", AcceptedValues::Text).unwrap();
    subject.store.prepare(&schema(), Purpose::Load).unwrap();
    let between = FaultyProxy::new(&node, b"");
    let store =
        cassandra(&[("cassandra.hosts", &between.address), ("cassandra.readtimeoutmillis", "1500")]).unwrap();
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
        let record = Record::from_iter([("field0", &b"v"[..])]);
        assert_eq!(client.insert(TABLE, "k", &record).await, Outcome::OK);
        let held = between.hold();
        let outcome = client.insert(TABLE, "k", &record).await;
        drop(held);
        assert_eq!(outcome.status, Status::ServiceUnavailable);
        assert!(outcome.message.as_ref().unwrap().contains("cassandra.readtimeoutmillis"), "{outcome:?}");
        // The late answer belongs to no later operation.
        let mut reply = Reply::new();
        let outcome = client.read(TABLE, "k", &FieldSelection::default(), &mut reply).await;
        assert_eq!((outcome, reply.records().len()), (Outcome::OK, 1));
    });
    drop(subject);
}

#[test]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("cassandra.hosts", ","),
        ("cassandra.port", "0"),
        ("cassandra.username", "u"),
        ("cassandra.readconsistencylevel", "ANY"),
        ("cassandra.writeconsistencylevel", "SERIAL"),
        ("cassandra.connecttimeoutmillis", "0"),
        ("cassandra.readtimeoutmillis", "0"),
        ("scylla.lwt", "true"),
        ("cassandra.useSSL", "true"),
        ("cassandra.tls_ca", "/nowhere.pem"),
        ("cassandra.tls_key", "/nowhere.pem"),
    ];
    let problem = opened(&settings).unwrap_err();
    for (name, _) in settings.iter().filter(|(name, _)| *name != "cassandra.useSSL") {
        assert!(problem.contains(name), "{name}: {problem}");
    }
}
