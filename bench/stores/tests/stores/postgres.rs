//! PostgreSQL, a real server: the suite in both layouts, on text and bytea, on
//! connections of each client and on shared ones; YCSB's layouts in both
//! directions; refusals and failures of a server.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests are ignored.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, Subject, TABLE, fields, properties, schema, silent,
    variable,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::postgres::Postgres;
use std::{
    net::TcpListener,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};
use tokio_postgres::{NoTls, SimpleQueryMessage};

fn postgres(address: &str, settings: &[(&str, &str)]) -> Result<Postgres, String> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut all = Vec::new();
    if !settings.iter().any(|(name, _)| ["db.url", "postgres.url"].contains(name)) {
        all.extend([("postgres.host", host), ("postgres.port", port)]);
    }
    all.extend(settings);
    Postgres::open(&properties(&all)).map_err(|faults| faults.to_string())
}

/// Runs statements as another client would and returns all rows, with NULL as
/// "NULL". Uses a thread of its own, so that it can be called from a loop, which
/// blocks meanwhile.
fn sql(address: &str, text: &str) -> Vec<Vec<String>> {
    sql_with("", address, text)
}

/// Runs statements on a server that requires a password.
fn sql_with(password: &str, address: &str, text: &str) -> Vec<Vec<String>> {
    let [password, address, text] = [password, address, text].map(str::to_owned);
    let thread = std::thread::spawn(move || {
        EventLoop.run(async {
            let client = connect_with(&password, &address).await;
            let messages = client.simple_query(&text).await.unwrap();
            let rows = messages.into_iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|i| row.get(i).unwrap_or("NULL").to_owned()).collect())
                }
                _ => None,
            });
            rows.collect()
        })
    });
    thread.join().unwrap()
}

async fn connect(address: &str) -> tokio_postgres::Client {
    connect_with("", address).await
}

async fn connect_with(password: &str, address: &str) -> tokio_postgres::Client {
    let (host, port) = address.rsplit_once(':').unwrap();
    let config = format!("host={host} port={port} user=postgres dbname=postgres password='{password}'");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A schema that only one test uses, so that tests run in parallel.
struct Space {
    address: String,
    name: String,
}

impl Space {
    fn new() -> Option<Space> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let address = variable("SERVAL_TEST_POSTGRES")?;
        let name = format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        sql(&address, &format!("CREATE SCHEMA {name}"));
        Some(Space { address, name })
    }

    fn store(&self, settings: &[(&str, &str)]) -> Postgres {
        let mut all = vec![("postgres.schema", self.name.as_str())];
        all.extend(settings);
        postgres(&self.address, &all).unwrap()
    }

    /// Runs statements in this schema.
    fn sql(&self, text: &str) -> Vec<Vec<String>> {
        sql(&self.address, &format!("SET search_path = {}; {text}", self.name))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        sql(&self.address, &format!("DROP SCHEMA {} CASCADE", self.name));
    }
}

fn subject(settings: &[(&str, &str)], values: AcceptedValues) -> Option<Subject<Postgres, EventLoop>> {
    let space = Space::new()?;
    let differences = Differences { atomic_batch: true, values, ..Differences::default() };
    Some(Subject::new(space.store(settings), EventLoop, differences).keeping(space))
}

mod columns {
    use super::*;

    fn subject() -> Option<Subject<Postgres, EventLoop>> {
        super::subject(&[], AcceptedValues::TextWithoutNul)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_POSTGRES");
}

mod bytes {
    use super::*;

    fn subject() -> Option<Subject<Postgres, EventLoop>> {
        super::subject(&[("postgres.value_type", "bytea")], AcceptedValues::Bytes)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_POSTGRES");
}

mod json {
    use super::*;

    fn subject() -> Option<Subject<Postgres, EventLoop>> {
        super::subject(&[("postgres.layout", "json")], AcceptedValues::TextWithoutNul)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_POSTGRES");
}

/// Two connections for all clients of a loop, and a time limit.
mod shared {
    use super::*;

    fn subject() -> Option<Subject<Postgres, EventLoop>> {
        let settings = [("postgres.connections", "2"), ("postgres.timeout", "60s")];
        super::subject(&settings, AcceptedValues::TextWithoutNul)
    }
    serval_conformance::suite!(subject, "needs SERVAL_TEST_POSTGRES");
}

fn record(pairs: &[(&str, &str)]) -> Record {
    pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

async fn client(store: &Postgres) -> <Postgres as Store>::Client {
    store.connect(&store.local().unwrap(), 0).await.unwrap()
}

/// Returns the records of a scan of the whole table.
async fn all(client: &mut <Postgres as Store>::Client) -> Vec<serval_conformance::Fields> {
    let mut reply = Reply::new();
    let outcome = client.scan(TABLE, "", 100, &FieldSelection::default(), &mut reply).await;
    assert_eq!(outcome, Outcome::OK);
    let records = reply.records().iter();
    records.map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect()).collect()
}

fn words(outcome: &Outcome) -> &str {
    outcome.message.as_deref().unwrap_or_default()
}

fn refusal(store: &Postgres, purpose: Purpose) -> String {
    store.prepare(&schema(), purpose).unwrap_err().to_string()
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn serval_and_ycsbs_jdbc_client_read_each_others_records() {
    let Some(space) = Space::new() else { return };
    // As in YCSB's README, with additional columns.
    space.sql(
        "CREATE TABLE usertable (YCSB_KEY VARCHAR(255) PRIMARY KEY, FIELD0 TEXT, FIELD1 TEXT, FIELD2 VARCHAR, \
           FIELD3 TEXT, NUMBER INT, \"At\" TIMESTAMP);
         INSERT INTO usertable (YCSB_KEY,field0,field1,field2,field3) VALUES('user1','a','b','c','d');
         INSERT INTO usertable VALUES('user2','a',NULL,'c',NULL,42,'2001-02-03 04:05:06');",
    );
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Run).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(
            all(&mut client).await,
            [
                fields([("field0", b"a"), ("field1", b"b"), ("field2", b"c"), ("field3", b"d")]),
                fields([
                    ("field0", b"a"),
                    ("field2", b"c"),
                    ("number", b"42"),
                    ("At", b"2001-02-03 04:05:06")
                ]),
            ]
        );
        let third = record(&[("field0", "zero"), ("field3", "007")]);
        assert_eq!(client.insert(TABLE, "user3", &third).await, Outcome::OK);
        assert_eq!(
            client.update(TABLE, "user1", &record(&[("field1", "B"), ("number", "7")])).await,
            Outcome::OK
        );
    });
    assert_eq!(
        space.sql("SELECT YCSB_KEY, FIELD0, FIELD1, FIELD3, NUMBER FROM usertable ORDER BY YCSB_KEY"),
        [
            ["user1", "a", "B", "d", "7"],
            ["user2", "a", "NULL", "NULL", "42"],
            ["user3", "zero", "NULL", "007", "NULL"]
        ]
    );
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn ycsb_can_use_a_table_created_by_serval() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[]);
    let schema = Schema { table: "UserTable".into(), fields: vec!["FIELD0".into(), "field1".into()] };
    store.prepare(&schema, Purpose::Load).unwrap();
    // YCSB's own statements.
    space.sql("INSERT INTO usertable (YCSB_KEY,field0,field1) VALUES('k','a','b')");
    assert_eq!(space.sql("SELECT * FROM usertable WHERE YCSB_KEY = 'k'"), [["k", "a", "b"]]);
    EventLoop.run(async {
        let mut client = client(&store).await;
        let mut reply = Reply::new();
        let every = FieldSelection::default();
        assert_eq!(client.read("UserTable", "k", &every, &mut reply).await, Outcome::OK);
        // With the workload's names of the columns.
        assert_eq!(reply.records(), [record(&[("FIELD0", "a"), ("field1", "b")])]);
        // A column is added to the table meanwhile: one failure, no more.
        space.sql("ALTER TABLE usertable ADD more TEXT DEFAULT 'm'");
        let outcome = client.read("UserTable", "k", &every, &mut reply).await;
        assert_eq!(outcome.status, Status::Error);
        assert!(words(&outcome).contains("must not change result type"), "{outcome:?}");
        reply.clear();
        assert_eq!(client.read("UserTable", "k", &every, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records(), [record(&[("FIELD0", "a"), ("field1", "b"), ("more", "m")])]);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn serval_and_ycsbs_postgrenosql_read_each_others_records() {
    let Some(space) = Space::new() else { return };
    space.sql(
        "CREATE TABLE usertable (YCSB_KEY VARCHAR(255) PRIMARY KEY not NULL, YCSB_VALUE JSONB not NULL);
         INSERT INTO usertable (YCSB_KEY,YCSB_VALUE) VALUES('user1','{\"field1\":\"b\",\"field0\":\"a\"}');
         INSERT INTO usertable (YCSB_KEY,YCSB_VALUE) VALUES('user2','{\"field1\":null,\"field0\":7}');",
    );
    let store = space.store(&[("postgres.layout", "json")]);
    store.prepare(&schema(), Purpose::Run).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        let expected = [fields([("field0", b"a"), ("field1", b"b")]), fields([("field0", b"7")])];
        assert_eq!(all(&mut client).await, expected);
        assert_eq!(client.insert(TABLE, "user3", &record(&[("field0", "ü\"\n")])).await, Outcome::OK);
        assert_eq!(client.update(TABLE, "user1", &record(&[("field1", "B")])).await, Outcome::OK);
        // Names that must be quoted in SQL.
        let odd = record(&[("o'dd\\", "x")]);
        assert_eq!(client.update(TABLE, "user2", &odd).await, Outcome::OK);
        let (mut reply, mut names) = (Reply::new(), FieldSelection::default());
        names.push("o'dd\\");
        assert_eq!(client.read(TABLE, "user2", &names, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records(), [odd]);
    });
    let found = space.sql(
        "SELECT YCSB_KEY AS YCSB_KEY, (jsonb_each_text(YCSB_VALUE)).* FROM usertable WHERE YCSB_KEY = 'user1';
         SELECT YCSB_KEY AS YCSB_KEY, YCSB_VALUE->>'field0' AS field0 FROM usertable WHERE YCSB_KEY = 'user3'",
    );
    assert_eq!(found[0], ["user1", "field0", "a"]);
    assert_eq!(found[1], ["user1", "field1", "B"]);
    assert_eq!(found[2], ["user3", "ü\"\n"]);
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn missing_and_different_tables_are_reported() {
    let Some(space) = Space::new() else { return };
    let columns = space.store(&[]);
    let missing = refusal(&columns, Purpose::Run);
    assert!(
        missing.contains("no table 'usertable': load it first") && missing.contains(&space.address),
        "{missing}"
    );
    space.sql("CREATE TABLE usertable (YCSB_KEY TEXT PRIMARY KEY, YCSB_VALUE JSONB, FIELD0 INT)");
    let lacks = refusal(&columns, Purpose::Load);
    assert!(
        lacks.contains("lacks the columns field2, field1, field3; it has ycsb_key, ycsb_value"),
        "{lacks}"
    );
    space.sql("ALTER TABLE usertable ADD FIELD1 TEXT, ADD FIELD2 TEXT, ADD FIELD3 TEXT");
    let kind = refusal(&columns, Purpose::Run);
    assert!(
        kind.contains("column field0 of table 'usertable' is of type integer: it must be text or"),
        "{kind}"
    );
    let json = space.store(&[("postgres.layout", "json")]);
    json.prepare(&schema(), Purpose::Run).unwrap();
    space.sql("ALTER TABLE usertable ALTER YCSB_VALUE TYPE JSON");
    let plain = refusal(&json, Purpose::Run);
    assert!(plain.contains("ycsb_value of table 'usertable' is of type json: it must be jsonb"), "{plain}");
    let long = "f".repeat(64);
    for (names, part) in
        [(["Field0", "field0"], "would be one column"), (["f", &long], "longer than the 63 bytes")]
    {
        let schema = Schema { table: TABLE.into(), fields: names.map(String::from).into() };
        let error = columns.prepare(&schema, Purpose::Load).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn unknown_names_and_values_that_are_too_large_are_bad_requests_with_the_servers_message() {
    let Some(space) = Space::new() else { return };
    space.sql(
        "CREATE TABLE usertable (YCSB_KEY VARCHAR(5) PRIMARY KEY, FIELD0 TEXT, FIELD1 VARCHAR(3), FIELD2 TEXT, \
         FIELD3 TEXT)",
    );
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Run).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        let (fine, long) = (record(&[("field1", "abc")]), record(&[("field1", "abcd")]));
        let odd = record(&[("o\"dd", "x")]);
        let nul = record(&[("f\0", "x")]);
        assert_eq!(client.insert(TABLE, "k", &fine).await, Outcome::OK);
        let long_batch = [("l".to_owned(), fine.clone()), ("m".to_owned(), long.clone())];
        let outcomes = [
            (client.insert(TABLE, "l", &long).await, "value too long for type character varying(3)"),
            (client.update(TABLE, "k", &long).await, "value too long"),
            (client.insert(TABLE, "longer", &fine).await, "value too long for type character varying(5)"),
            (client.insert_batch(TABLE, &long_batch).await, "value too long"),
            (
                client.update(TABLE, "k", &odd).await,
                "column \"o\"dd\" of relation \"usertable\" does not exist",
            ),
            (client.insert(TABLE, "l", &odd).await, "does not exist"),
            (client.delete("other", "k").await, "relation \"other\" does not exist"),
            (client.insert_batch("other", &long_batch).await, "relation \"other\" does not exist"),
            (client.update(TABLE, "k", &nul).await, "nul"),
        ];
        for (outcome, part) in outcomes {
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
            assert!(words(&outcome).contains(part), "{outcome:?}");
        }
        let again = client.insert(TABLE, "k", &fine).await;
        assert_eq!(again.status, Status::Error, "{again:?}");
        assert!(words(&again).contains("duplicate key value violates unique constraint"), "{again:?}");
        assert_eq!(all(&mut client).await.len(), 1);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn more_statement_shapes_than_are_cached_still_work() {
    let Some(space) = Space::new() else { return };
    let names: Vec<String> = (0..300).map(|n| format!("field{n}")).collect();
    let store = space.store(&[]);
    store.prepare(&Schema { table: TABLE.into(), fields: names.clone() }, Purpose::Load).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        let mut reply = Reply::new();
        let every: Record = names.iter().map(|name| (name.as_str(), &b"0"[..])).collect();
        assert_eq!(client.insert(TABLE, "k", &every).await, Outcome::OK);
        for name in &names {
            assert_eq!(client.update(TABLE, "k", &record(&[(name, name)])).await, Outcome::OK);
            let mut one = FieldSelection::default();
            one.push(name);
            reply.clear();
            assert_eq!(client.read(TABLE, "k", &one, &mut reply).await, Outcome::OK);
            assert_eq!(reply.records(), [record(&[(name, name)])]);
        }
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES SERVAL_TEST_POSTGRES_AUTH SERVAL_TEST_POSTGRES_CERTIFICATE SERVAL_TEST_POSTGRES_PASSWORD"]
fn right_and_wrong_credentials_and_tls() {
    let Some(address) = variable("SERVAL_TEST_POSTGRES_AUTH") else { return };
    let open = variable("SERVAL_TEST_POSTGRES").unwrap();
    let password = variable("SERVAL_TEST_POSTGRES_PASSWORD").unwrap();
    let certificate = variable("SERVAL_TEST_POSTGRES_CERTIFICATE").unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let url = |more: &str| format!("jdbc:postgresql://{host}:{port}/postgres?prepareThreshold=1{more}");
    let verified =
        url(&format!("&user=postgres&password={password}&sslmode=verify-full&sslrootcert={certificate}"));
    let login = [("db.user", "postgres"), ("db.passwd", password.as_str())];
    for (settings, tls) in [
        (vec![("postgres.password", password.as_str())], "TLSv1.3"),
        (vec![("postgres.password", &password), ("postgres.sslmode", "disable")], "none"),
        (vec![("postgres.password", &password), ("postgres.sslmode", "require")], "TLSv1.3"),
        (
            vec![
                ("postgres.password", &password),
                ("postgres.sslmode", "verify-full"),
                ("postgres.sslrootcert", &certificate),
            ],
            "TLSv1.3",
        ),
        (vec![("postgres.url", verified.as_str())], "TLSv1.3"),
        (vec![("db.url", &url("")), login[0], login[1]], "TLSv1.3"),
    ] {
        let store = postgres(&address, &settings).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        let facts = store.describe();
        assert!(facts.contains(&("tls".into(), tls.into())), "{facts:?}");
        assert!(facts.contains(&("address".into(), address.clone())), "{facts:?}");
        let unread = facts.contains(&("URL parameters without effect".into(), "prepareThreshold".into()));
        assert_eq!(unread, settings[0].0.ends_with(".url"), "{facts:?}");
        assert!(!format!("{facts:?}").contains(&password));
        assert_eq!(
            EventLoop.run(async { client(&store).await.delete(TABLE, "nobody").await }),
            Outcome::NOT_FOUND
        );
    }
    // A certificate of the test's own, which did not sign the server's.
    let folder = tempfile::tempdir().unwrap();
    let stranger = folder.path().join("stranger.crt");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-subj", "/CN=stranger", "-keyout", "/dev/null", "-out"])
        .arg(&stranger)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let wrong = [("postgres.sslmode", "verify-full"), ("postgres.sslrootcert", stranger.to_str().unwrap())];
    for (address, settings, advice) in [
        (&address, vec![], "set postgres.password (db.passwd)"),
        (
            &address,
            vec![("postgres.password", "wrong")],
            "Check postgres.user (db.user) and postgres.password",
        ),
        (
            &address,
            vec![("postgres.password", &password), ("db.user", "nobody")],
            "Check postgres.user (db.user)",
        ),
        (
            &address,
            vec![("postgres.password", &password), wrong[0], wrong[1]],
            "does postgres.sslrootcert hold",
        ),
        (&open, vec![("postgres.sslmode", "require")], "Does the server offer TLS"),
        (&open, vec![("postgres.database", "nowhere")], "Make the database (CREATE DATABASE)"),
    ] {
        let store = postgres(address, &settings).unwrap();
        let early = refusal(&store, Purpose::Run);
        assert!(early.contains("cannot connect") && early.contains(advice), "{early}");
        assert!(early.contains(address.as_str()), "{early}");
        let late = EventLoop.run(async { store.connect(&store.local().unwrap(), 0).await.unwrap_err() });
        assert_eq!(late.to_string(), early);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES SERVAL_TEST_POSTGRES_AUTH SERVAL_TEST_POSTGRES_CERTIFICATE SERVAL_TEST_POSTGRES_PASSWORD"]
fn a_server_may_require_a_client_certificate() {
    let Some(address) = variable("SERVAL_TEST_POSTGRES_AUTH") else { return };
    let password = variable("SERVAL_TEST_POSTGRES_PASSWORD").unwrap();
    let certificate = variable("SERVAL_TEST_POSTGRES_CERTIFICATE").unwrap();
    let folder = Path::new(&certificate).parent().unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let (ours, our_key) = (file("client/server.crt"), file("client/server.key"));
    let others_key = file("server.key");
    sql_with(&password, &address, "DROP USER IF EXISTS certified; CREATE USER certified");
    let user = [("postgres.user", "certified"), ("postgres.database", "postgres")];
    let shown = [("postgres.sslcert", ours.as_str()), ("postgres.sslkey", our_key.as_str())];
    let (host, port) = address.rsplit_once(':').unwrap();
    let url = format!(
        "jdbc:postgresql://{host}:{port}/postgres?user=certified&sslmode=verify-full&sslrootcert={certificate}\
         &sslcert={ours}&sslkey={our_key}"
    );
    for settings in [[&user[..], &shown].concat(), vec![("postgres.url", url.as_str())]] {
        let store = postgres(&address, &settings).unwrap();
        let problem = refusal(&store, Purpose::Run);
        assert!(problem.contains("has no table"), "{problem}");
    }
    for (settings, advice) in [
        (user.to_vec(), "postgres.sslcert"),
        (
            [&user[..], &[("postgres.sslcert", certificate.as_str()), ("postgres.sslkey", &others_key)]]
                .concat(),
            "postgres.sslcert",
        ),
    ] {
        let problem = refusal(&postgres(&address, &settings).unwrap(), Purpose::Run);
        assert!(problem.contains("cannot connect") && problem.contains(advice), "{problem}");
    }
    for (settings, part) in [
        (vec![shown[0]], "and postgres.sslkey need each other"),
        (vec![shown[0], ("postgres.sslkey", &others_key)], "postgres.sslkey"),
        (vec![shown[0], ("postgres.sslkey", "/nowhere")], "/nowhere"),
        (
            vec![shown[0], shown[1], ("postgres.sslmode", "disable")],
            "has no use with postgres.sslmode=disable",
        ),
    ] {
        let problem = postgres(&address, &settings).unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn operations_without_permission_are_forbidden() {
    let Some(space) = Space::new() else { return };
    let weak = format!("weak_{}", space.name);
    space.sql(&format!("CREATE ROLE {weak} LOGIN; GRANT USAGE ON SCHEMA {} TO {weak}", space.name));
    let settings = [("postgres.user", weak.as_str()), ("postgres.database", "postgres")];
    let store = space.store(&settings);
    let error = refusal(&store, Purpose::Load);
    assert!(
        error.contains("permission denied for schema") && error.contains("grant it to the user"),
        "{error}"
    );
    space.store(&[]).prepare(&schema(), Purpose::Load).unwrap();
    store.prepare(&schema(), Purpose::Run).unwrap();
    EventLoop.run(async {
        let outcome = client(&store).await.insert(TABLE, "k", &record(&[("field0", "x")])).await;
        assert_eq!(outcome.status, Status::Forbidden, "{outcome:?}");
        assert!(words(&outcome).contains("permission denied for table usertable"), "{outcome:?}");
    });
    space.sql(&format!("ALTER ROLE {weak} CONNECTION LIMIT 0"));
    let error = refusal(&store, Purpose::Run);
    assert!(error.contains("too many connections") && error.contains("postgres.connections"), "{error}");
    space.sql(&format!("DROP OWNED BY {weak}; DROP ROLE {weak}"));
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let mute = postgres(&address, &[("postgres.connect_timeout", "50ms")]).unwrap();
    let error = refusal(&mute, Purpose::Run);
    assert!(error.contains("no answer within 50ms (postgres.connect_timeout)"), "{error}");
    let late = EventLoop.run(async { mute.connect(&mute.local().unwrap(), 0).await.unwrap_err() });
    assert_eq!(late.to_string(), error);
    drop(silent);
    let error = refusal(&postgres(&address, &[]).unwrap(), Purpose::Load);
    assert!(error.contains("cannot connect") && error.contains("postgres.port"), "{error}");
    assert!(error.contains(&address), "{error}");
}

/// Waits until an operation is in flight and blocked by a lock.
async fn until_waiting(holder: &tokio_postgres::Client, space: &Space) -> i32 {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'serval' AND wait_event_type = 'Lock' \
               AND query LIKE 'UPDATE%' AND pid = ANY(SELECT pid FROM pg_locks WHERE relation = to_regclass($1))";
    let table = format!("{}.usertable", space.name);
    loop {
        // A transaction keeps its first snapshot of the statistics unless it is cleared.
        holder.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
        if let Some(row) = holder.query_opt(sql, &[&table]).await.unwrap() {
            return row.get(0);
        }
    }
}

/// Returns a client whose table another session has locked.
async fn locked(space: &Space) -> tokio_postgres::Client {
    let holder = connect(&space.address).await;
    let lock = format!("BEGIN; LOCK TABLE {}.usertable IN ACCESS EXCLUSIVE MODE", space.name);
    holder.batch_execute(&lock).await.unwrap();
    holder
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn the_next_operation_reopens_a_lost_connection() {
    let Some(space) = Space::new() else { return };
    let change = record(&[("field0", "x")]);
    for connections in ["0", "1"] {
        let store = space.store(&[("postgres.connections", connections)]);
        store.prepare(&schema(), Purpose::Load).unwrap();
        EventLoop.run(async {
            let local = store.local().unwrap();
            let mut client = store.connect(&local, 0).await.unwrap();
            let mut idle = store.connect(&local, 1).await.unwrap();
            client.insert(TABLE, "k", &change).await;
            assert_eq!(idle.update(TABLE, "k", &change).await, Outcome::OK);
            let holder = locked(&space).await;
            let killing = async {
                let pid = until_waiting(&holder, &space).await;
                holder.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
            };
            let (outcome, ()) = tokio::join!(client.update(TABLE, "k", &change), killing);
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            let expected = "connection lost: terminating connection due to administrator command";
            assert_eq!(words(&outcome), expected);
            holder.batch_execute("COMMIT").await.unwrap();
            assert_eq!(client.update(TABLE, "k", &change).await, Outcome::OK);
            // No operation was in flight here, so none fails.
            assert_eq!(idle.update(TABLE, "k", &change).await, Outcome::OK);
        });
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn an_operation_without_an_answer_ends_at_its_timeout_and_the_next_succeeds() {
    let Some(space) = Space::new() else { return };
    let change = record(&[("field0", "x")]);
    // Long enough for the operations that succeed, on a machine with other work.
    let store = space.store(&[("postgres.timeout", "3s")]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    assert!(store.describe().contains(&("timeout".into(), "3s".into())));
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.insert(TABLE, "k", &change).await, Outcome::OK);
        let holder = locked(&space).await;
        let (outcome, _) = tokio::join!(client.update(TABLE, "k", &change), until_waiting(&holder, &space));
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
        assert!(words(&outcome).contains("no answer within 3s (postgres.timeout)"), "{outcome:?}");
        holder.batch_execute("COMMIT").await.unwrap();
        assert_eq!(client.update(TABLE, "k", &change).await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn a_lost_server_fails_operations_until_it_returns() {
    let Some(space) = Space::new() else { return };
    // A proxy to the server whose connections can be closed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = listener.local_addr().unwrap().to_string();
    let behind = space.address.clone();
    let (cut, cutting) = std::sync::mpsc::channel::<()>();
    let forwarder = std::thread::spawn(move || {
        let (front, _) = listener.accept().unwrap();
        let back = std::net::TcpStream::connect(&behind).unwrap();
        for (mut from, mut to) in [
            (front.try_clone().unwrap(), back.try_clone().unwrap()),
            (back.try_clone().unwrap(), front.try_clone().unwrap()),
        ] {
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        cutting.recv().unwrap();
        drop(listener);
        front.shutdown(std::net::Shutdown::Both).unwrap();
        back.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let (_, port) = door.rsplit_once(':').unwrap();
    let settings =
        [("postgres.schema", space.name.as_str()), ("postgres.port", port), ("postgres.host", "127.0.0.1")];
    space.store(&[]).prepare(&schema(), Purpose::Load).unwrap();
    let store = postgres(&door, &settings).unwrap();
    let change = record(&[("field0", "x")]);
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.insert(TABLE, "k", &change).await, Outcome::OK);
        cut.send(()).unwrap();
        forwarder.join().unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..3 {
            outcomes.push(client.update(TABLE, "k", &change).await);
        }
        for outcome in &outcomes {
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
        }
        assert!(words(&outcomes[2]).contains("cannot connect"), "{outcomes:?}");
    });
    assert_eq!(space.sql("SELECT count(*) FROM usertable"), [["1"]]);
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES"]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("postgres.port", "0"),
        ("postgres.layout", "json"),
        ("postgres.value_type", "bytea"),
        ("postgres.sslmode", "verify-full"),
        ("postgres.connect_timeout", "0"),
        ("postgres.timeout", "soon"),
        ("postgres.connections", "many"),
    ];
    let problem = postgres("localhost:0", &settings).unwrap_err();
    for name in [
        "postgres.port",
        "postgres.value_type=bytea: JSON holds text only",
        "postgres.sslrootcert: verify-full needs it",
        "postgres.connect_timeout",
        "postgres.timeout",
        "postgres.connections",
    ] {
        assert!(problem.contains(name), "{problem}");
    }
    for (settings, part) in [
        (
            &[("db.url", "jdbc:postgresql://h/d"), ("postgres.host", "h")][..],
            "postgres.host=h: the URL names",
        ),
        (&[("db.url", "jdbc:mysql://h/d?password=secret")], "db.url: is no URL of this database"),
        (&[("postgres.url", "jdbc:postgresql://h/d;jdbc:postgresql://i/d")], "postgres.url: several servers"),
        (&[("db.url", "jdbc:postgresql://h/d?sslmode=allow")], "sslmode=allow: must be one of disable"),
        (&[("postgres.sslrootcert", "x")], "has no use with postgres.sslmode=prefer"),
        (&[("postgres.sslrootcert", "/dev/null"), ("postgres.sslmode", "verify-full")], "has no certificate"),
        (&[("postgres.sslrootcert", "/nowhere"), ("postgres.sslmode", "verify-full")], "/nowhere"),
    ] {
        let problem = postgres("localhost:1", settings).unwrap_err();
        assert!(problem.contains(part) && !problem.contains("secret"), "{problem}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_POSTGRES SERVAL_TEST_POSTGRES_PRIMARY SERVAL_TEST_POSTGRES_REPLICA"]
fn reads_and_scans_go_to_the_replica_and_writes_to_the_primary() {
    let (Some(primary), Some(replica)) =
        (variable("SERVAL_TEST_POSTGRES_PRIMARY"), variable("SERVAL_TEST_POSTGRES_REPLICA"))
    else {
        return;
    };
    let shape = Schema { table: format!("replicated{}", std::process::id()), ..schema() };
    let table = shape.table.as_str();
    let store = postgres(&primary, &[("postgres.replica", &replica)]).unwrap();
    store.prepare(&shape, Purpose::Load).unwrap();
    assert!(store.describe().contains(&("reads and scans".into(), format!("replica at {replica}"))));
    EventLoop.run(async {
        let mut client = store.connect(&store.local().unwrap(), 0).await.unwrap();
        let (all, mut reply) = (FieldSelection::default(), Reply::new());
        let record = |value: &[u8]| -> Record { [("field0", value)].into_iter().collect() };
        assert_eq!(client.insert(table, "k", &record(b"1")).await, Outcome::OK);
        // The record reaches the replica soon, after the table.
        while client.read(table, "k", &all, &mut reply).await != Outcome::OK {
            reply.clear();
        }
        // A replica that does not replay keeps its state.
        sql(&replica, "SELECT pg_wal_replay_pause()");
        while sql(&replica, "SELECT pg_get_wal_replay_pause_state()") != [["paused"]] {}
        assert_eq!(client.update(table, "k", &record(b"2")).await, Outcome::OK);
        assert_eq!(client.insert(table, "l", &record(b"2")).await, Outcome::OK);
        reply.clear();
        assert_eq!(client.read(table, "k", &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records()[0].get("field0").unwrap(), b"1");
        reply.clear();
        assert_eq!(client.scan(table, "k", 10, &all, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records().len(), 1);
        sql(&replica, "SELECT pg_wal_replay_resume()");
    });
    sql(&primary, &format!("DROP TABLE {table}"));
    // A server without a primary is not a replica.
    let error = postgres(&primary, &[("postgres.replica", &primary)]).unwrap();
    let error = error.prepare(&shape, Purpose::Load).unwrap_err().to_string();
    assert!(error.contains("postgres.replica") && error.contains("no standby"), "{error}");
    sql(&primary, &format!("DROP TABLE {table}"));
    let fault = postgres(&primary, &[("postgres.replica", "h:0")]).unwrap_err();
    assert!(fault.contains("no host or host:port"), "{fault}");
}
