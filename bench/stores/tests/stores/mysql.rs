//! MySQL's protocol, tested on a real MariaDB: the suite on one server and on two
//! shards, on columns of text and of bytes; YCSB's layout in both directions;
//! refusals and failures of a server.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests are ignored.

#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use mysql_async::{Conn, OptsBuilder, Row, Value, prelude::Queryable};
use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, Subject, TABLE, fields, properties, schema, silent,
    variable,
};
use serval_model::{
    Client, FieldSelection, OperationKind, Outcome, Purpose, Record, Reply, Schema, Status, Store,
    java::string_hash,
};
use serval_stores::mysql::Mysql;
use std::{
    net::TcpListener,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

fn mysql(address: &str, settings: &[(&str, &str)]) -> Result<Mysql, String> {
    let (host, port) = address.rsplit_once(':').unwrap_or_default();
    let mut all = Vec::new();
    if !settings.iter().any(|(name, _)| ["db.url", "mysql.url"].contains(name)) {
        all.extend([("mysql.host", host), ("mysql.port", port)]);
    }
    all.extend(settings);
    Mysql::open(&properties(&all)).map_err(|faults| faults.to_string())
}

async fn connect(address: &str, password: Option<&str>) -> Conn {
    let (host, port) = address.rsplit_once(':').unwrap();
    let options = OptsBuilder::default().ip_or_hostname(host).tcp_port(port.parse().unwrap());
    let options = options.user(Some("root")).pass(password).prefer_socket(false);
    Conn::new(options).await.unwrap()
}

/// Runs statements as another client would and returns the rows of the last one.
/// Uses a thread of its own, so that it can be called from a loop, which blocks
/// meanwhile.
fn sql(address: &str, password: Option<&str>, text: &str) -> Vec<Vec<String>> {
    let (address, password, text) = (address.to_owned(), password.map(str::to_owned), text.to_owned());
    let thread = std::thread::spawn(move || {
        EventLoop.run(async {
            let mut conn = connect(&address, password.as_deref()).await;
            let mut rows: Vec<Row> = Vec::new();
            for statement in text.split(';').filter(|statement| !statement.trim().is_empty()) {
                rows = conn.query(statement).await.unwrap();
            }
            conn.disconnect().await.unwrap();
            rows.into_iter()
                .map(|row| {
                    let values = row.unwrap().into_iter();
                    values
                        .map(|value| match value {
                            Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                            other => other.as_sql(true),
                        })
                        .collect()
                })
                .collect()
        })
    });
    thread.join().unwrap()
}

/// A database on both servers that only one test uses, so that tests run in parallel.
struct Space {
    address: String,
    second: String,
    password: String,
    name: String,
}

impl Space {
    fn new() -> Option<Space> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let space = Space {
            address: variable("SERVAL_TEST_MYSQL")?,
            second: variable("SERVAL_TEST_MYSQL_AUTH")?,
            password: variable("SERVAL_TEST_MYSQL_PASSWORD")?,
            name: format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)),
        };
        // With another character set and a case-insensitive collation, so that tests
        // detect code that relies on the defaults.
        let make = format!("CREATE DATABASE {} CHARACTER SET latin1 COLLATE latin1_swedish_ci", space.name);
        sql(&space.address, None, &make);
        sql(&space.second, Some(&space.password), &make);
        Some(space)
    }

    fn store(&self, settings: &[(&str, &str)]) -> Mysql {
        let mut all = vec![("mysql.database", self.name.as_str())];
        all.extend(settings);
        mysql(&self.address, &all).unwrap()
    }

    /// Returns the URLs of both servers in YCSB's format.
    fn shards(&self) -> String {
        let Space { address, second, password, name } = self;
        format!(
            "jdbc:mysql://{address}/{name};jdbc:mariadb://{second}/{name}?password={password}&useSSL=false"
        )
    }

    /// Runs statements on the first server.
    fn sql(&self, text: &str) -> Vec<Vec<String>> {
        sql(&self.address, None, &format!("USE {}; {text}", self.name))
    }

    /// Runs statements on the second server.
    fn sql_of_second(&self, text: &str) -> Vec<Vec<String>> {
        sql(&self.second, Some(&self.password), &format!("USE {}; {text}", self.name))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.sql(&format!("DROP DATABASE {}", self.name));
        self.sql_of_second(&format!("DROP DATABASE {}", self.name));
    }
}

fn subject(settings: &[(&str, &str)], values: AcceptedValues) -> Option<Subject<Mysql, EventLoop>> {
    let space = Space::new()?;
    let differences = Differences { atomic_batch: true, values, ..Differences::default() };
    Some(Subject::new(space.store(settings), EventLoop, differences).keeping(space))
}

/// With a time limit, which must not affect the results.
mod text {
    use super::*;

    fn subject() -> Option<Subject<Mysql, EventLoop>> {
        super::subject(&[("mysql.value_type", "longtext"), ("mysql.timeout", "60s")], AcceptedValues::Text)
    }
    serval_conformance::suite!(
        subject,
        "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"
    );
}

mod bytes {
    use super::*;

    fn subject() -> Option<Subject<Mysql, EventLoop>> {
        super::subject(&[("mysql.value_type", "longblob")], AcceptedValues::Bytes)
    }
    serval_conformance::suite!(
        subject,
        "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"
    );
}

mod shards {
    use super::*;

    fn subject() -> Option<Subject<Mysql, EventLoop>> {
        let space = Space::new()?;
        let store = mysql("", &[("db.url", &space.shards()), ("mysql.value_type", "longtext")]).unwrap();
        let differences =
            Differences { atomic_batch: true, values: AcceptedValues::Text, ..Differences::default() };
        Some(Subject::new(store, EventLoop, differences).keeping(space))
    }
    serval_conformance::suite!(
        subject,
        "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"
    );
}

fn record(pairs: &[(&str, &str)]) -> Record {
    pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

async fn client(store: &Mysql) -> <Mysql as Store>::Client {
    store.connect(&(), 0).await.unwrap()
}

/// Returns the records of a scan of the whole table.
async fn all(client: &mut <Mysql as Store>::Client) -> Vec<serval_conformance::Fields> {
    let mut reply = Reply::new();
    let outcome = client.scan(TABLE, "", 100, &FieldSelection::default(), &mut reply).await;
    assert_eq!(outcome, Outcome::OK);
    let records = reply.records().iter();
    records.map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect()).collect()
}

fn words(outcome: &Outcome) -> &str {
    outcome.message.as_deref().unwrap_or_default()
}

fn refusal(store: &Mysql, purpose: Purpose) -> String {
    store.prepare(&schema(), purpose).unwrap_err().to_string()
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn serval_and_ycsb_read_each_others_records() {
    let Some(space) = Space::new() else { return };
    // As in YCSB's README, with additional columns.
    space.sql(
        "CREATE TABLE usertable (YCSB_KEY VARCHAR(255) PRIMARY KEY, FIELD0 TEXT, FIELD1 TEXT, FIELD2 VARCHAR(9), \
           FIELD3 TEXT, Number INT, Moment DATETIME);
         INSERT INTO usertable (YCSB_KEY,field0,field1,field2,field3) VALUES('user1','a','b','ü','d');
         INSERT INTO usertable VALUES('user2','a',NULL,'c',NULL,-42,'2001-02-03 04:05:06')",
    );
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Run).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        let second = [("Number", &b"-42"[..]), ("Moment", b"2001-02-03 04:05:06")];
        assert_eq!(
            all(&mut client).await,
            [
                fields([("field0", b"a"), ("field1", b"b"), ("field2", "ü".as_bytes()), ("field3", b"d")]),
                fields([("field0", b"a"), ("field2", b"c"), second[0], second[1]]),
            ]
        );
        let third = record(&[("field0", "zero"), ("field3", "007")]);
        assert_eq!(client.insert(TABLE, "user3", &third).await, Outcome::OK);
        assert_eq!(
            client.update(TABLE, "user1", &record(&[("field1", "B"), ("number", "7")])).await,
            Outcome::OK
        );
        // A column is added to the table meanwhile.
        space.sql("ALTER TABLE usertable ADD more TEXT DEFAULT 'm'");
        assert_eq!(all(&mut client).await.len(), 3);
    });
    assert_eq!(
        space.sql("SELECT YCSB_KEY, FIELD0, FIELD1, FIELD3, Number FROM usertable ORDER BY YCSB_KEY"),
        [
            ["user1", "a", "B", "d", "7"],
            ["user2", "a", "NULL", "NULL", "-42"],
            ["user3", "zero", "NULL", "007", "NULL"]
        ]
    );
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn ycsb_can_use_a_table_created_by_serval() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[]);
    let schema =
        Schema { table: TABLE.into(), fields: vec!["field0".into(), "Field1".into(), "o`dd".into()] };
    store.prepare(&schema, Purpose::Load).unwrap();
    // YCSB's own statements.
    space.sql("INSERT INTO usertable (YCSB_KEY,field0,field1) VALUES('k','a','b')");
    let row = space.sql("SELECT YCSB_KEY, FIELD0, FIELD1 FROM usertable WHERE YCSB_KEY = 'k'");
    assert_eq!(row, [["k", "a", "b"]]);
    let types =
        space.sql("SELECT column_type FROM information_schema.columns WHERE table_schema = DATABASE()");
    assert_eq!(types, [["varbinary(1024)"], ["text"], ["text"], ["text"]]);
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.update(TABLE, "k", &record(&[("o`dd", "x")])).await, Outcome::OK);
        let mut reply = Reply::new();
        let every = FieldSelection::default();
        assert_eq!(client.read(TABLE, "k", &every, &mut reply).await, Outcome::OK);
        // With the workload's names of the columns.
        assert_eq!(reply.records(), [record(&[("field0", "a"), ("Field1", "b"), ("o`dd", "x")])]);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn records_are_on_the_shard_that_ycsb_chooses() {
    let Some(space) = Space::new() else { return };
    let store = mysql("", &[("db.url", &space.shards())]).unwrap();
    assert!(!store.capabilities().contains(OperationKind::Scan));
    assert!(store.capabilities().contains(OperationKind::Delete));
    store.prepare(&schema(), Purpose::Load).unwrap();
    let facts = store.describe();
    assert!(facts.contains(&("shards".into(), "2".into())), "{facts:?}");
    assert!(facts.contains(&("URL parameters without effect".into(), "useSSL".into())), "{facts:?}");
    assert!(!format!("{facts:?}").contains(&space.password));
    // A key whose hash is Java's smallest integer, which has no absolute value in YCSB.
    let least = "polygenelubricants";
    assert_eq!(string_hash(least), i32::MIN);
    let keys: Vec<String> = (0..40).map(|n| format!("user{n}")).chain([least.to_owned()]).collect();
    let expected = |shard: u32| {
        let mut of_shard: Vec<_> = keys
            .iter()
            .filter(|key| string_hash(key).unsigned_abs() % 2 == shard)
            .map(|key| vec![key.clone()])
            .collect();
        of_shard.sort();
        of_shard
    };
    EventLoop.run(async {
        let mut client = client(&store).await;
        let one = record(&[("field0", "x")]);
        for key in &keys[..20] {
            assert_eq!(client.insert(TABLE, key, &one).await, Outcome::OK);
        }
        let rest: Vec<_> = keys[20..].iter().map(|key| (key.clone(), one.clone())).collect();
        assert_eq!(client.insert_batch(TABLE, &rest).await, Outcome::OK);
        let outcome = client.scan(TABLE, "", 1, &FieldSelection::default(), &mut Reply::new()).await;
        assert_eq!(outcome.status, Status::NotImplemented);
    });
    let found = "SELECT YCSB_KEY FROM usertable ORDER BY YCSB_KEY";
    assert_eq!(space.sql(found), expected(0));
    assert_eq!(space.sql_of_second(found), expected(1));
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn a_batch_larger_than_a_packet_or_statement_is_atomic() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[("mysql.value_type", "longtext")]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let large = "x".repeat(3 << 20);
    let small: Vec<_> =
        (0..30_000).map(|n| (format!("small{n}"), record(&[("field0", "x"), ("field1", "y")]))).collect();
    let mut wide: Vec<_> = (0..8).map(|n| (format!("wide{n}"), record(&[("field0", &large)]))).collect();
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.insert_batch(TABLE, &small).await, Outcome::OK);
        assert_eq!(client.insert_batch(TABLE, &wide).await, Outcome::OK);
        // A failure in the last part rolls back the first.
        wide.iter_mut().take(7).for_each(|(key, _)| key.push('a'));
        assert_eq!(client.insert_batch(TABLE, &wide).await.status, Status::Error);
        assert_eq!(client.delete(TABLE, "wide0a").await, Outcome::NOT_FOUND);
    });
    assert_eq!(space.sql("SELECT count(*) FROM usertable"), [["30008"]]);
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn values_that_are_too_large_and_unknown_names_are_bad_requests_with_the_servers_message() {
    let Some(space) = Space::new() else { return };
    // The server would truncate values; Serval's sessions do not allow it.
    space.sql("SET GLOBAL sql_mode = ''");
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        let (fine, long) = (record(&[("field1", "abc")]), record(&[("field1", &"x".repeat(65_536))]));
        let odd = record(&[("o`dd", "x")]);
        let packet = record(&[("field1", &"x".repeat(17 << 20))]);
        assert_eq!(client.insert(TABLE, "k", &fine).await, Outcome::OK);
        let long_batch = [("l".to_owned(), fine.clone()), ("m".to_owned(), long.clone())];
        let outcomes = [
            (client.insert(TABLE, "l", &long).await, "Data too long for column 'FIELD1'"),
            (client.update(TABLE, "k", &long).await, "Data too long"),
            (client.insert(TABLE, &"k".repeat(1025), &fine).await, "Data too long for column 'YCSB_KEY'"),
            (client.insert_batch(TABLE, &long_batch).await, "Data too long"),
            (client.insert(TABLE, "l", &packet).await, "max_allowed_packet"),
            (client.update(TABLE, "k", &odd).await, "Unknown column 'O`DD'"),
            (client.insert(TABLE, "l", &odd).await, "Unknown column"),
            (client.delete("other", "k").await, ".other' doesn't exist"),
            (client.insert_batch("other", &long_batch).await, ".other' doesn't exist"),
        ];
        for (outcome, part) in outcomes {
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
            assert!(words(&outcome).contains(part), "{outcome:?}");
        }
        let again = client.insert(TABLE, "k", &fine).await;
        assert_eq!(again.status, Status::Error, "{again:?}");
        assert!(words(&again).contains("under this key already"), "{again:?}");
        assert_eq!(all(&mut client).await.len(), 1);
    });
    space.sql("SET GLOBAL sql_mode = DEFAULT");
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
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
        for _ in 0..2 {
            for name in &names {
                assert_eq!(client.update(TABLE, "k", &record(&[(name, name)])).await, Outcome::OK);
                let mut one = FieldSelection::default();
                one.push(name);
                reply.clear();
                assert_eq!(client.read(TABLE, "k", &one, &mut reply).await, Outcome::OK);
                assert_eq!(reply.records(), [record(&[(name, name)])]);
            }
        }
        assert_eq!(client.close().await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn missing_and_different_tables_are_reported() {
    let Some(space) = Space::new() else { return };
    let store = space.store(&[]);
    let missing = refusal(&store, Purpose::Run);
    assert!(
        missing.contains("no table 'usertable': load it first") && missing.contains(&space.address),
        "{missing}"
    );
    space.sql("CREATE TABLE usertable (YCSB_KEY VARCHAR(99) PRIMARY KEY, FIELD0 INT)");
    let lacks = refusal(&store, Purpose::Load);
    assert!(lacks.contains("lacks the columns FIELD2, FIELD1, FIELD3; it has YCSB_KEY, FIELD0"), "{lacks}");
    space.sql("ALTER TABLE usertable ADD FIELD1 TEXT, ADD FIELD2 TEXT, ADD FIELD3 TEXT");
    let kind = refusal(&store, Purpose::Run);
    assert!(kind.contains("column field0 of table 'usertable' is of type int: it must be text"), "{kind}");
    let long = "f".repeat(65);
    for (names, part) in [(["Field0", "field0"], "would be one column"), (["f", &long], "longer than the 64")]
    {
        let schema = Schema { table: TABLE.into(), fields: names.map(String::from).into() };
        let error = store.prepare(&schema, Purpose::Load).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_CERTIFICATE SERVAL_TEST_MYSQL_PASSWORD"]
fn right_and_wrong_credentials_and_tls() {
    let Some(space) = Space::new() else { return };
    let certificate = variable("SERVAL_TEST_MYSQL_CERTIFICATE").unwrap();
    let Space { second, password, name, .. } = &space;
    let url = format!("jdbc:mariadb://{second}/{name}?user=root&password={password}&sslMode=VERIFY_IDENTITY");
    let plain = format!("jdbc:mysql://{second}/{name}");
    let (database, secret) = (("mysql.database", name.as_str()), ("mysql.password", password.as_str()));
    let verified = [("mysql.sslmode", "verify-full"), ("mysql.sslrootcert", certificate.as_str())];
    for settings in [
        vec![database, secret],
        vec![database, secret, ("mysql.sslmode", "require")],
        vec![database, secret, verified[0], verified[1]],
        vec![("mysql.url", url.as_str()), verified[1]],
        vec![("db.url", plain.as_str()), ("db.user", "root"), ("db.passwd", password.as_str())],
    ] {
        let store = mysql(second, &settings).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        let facts = store.describe();
        assert!(facts.contains(&("address".into(), second.clone())), "{facts:?}");
        assert!(
            facts.iter().any(|(name, value)| name == "version" && value.contains("MariaDB")),
            "{facts:?}"
        );
        EventLoop.run(async {
            let mut client = client(&store).await;
            assert_eq!(client.delete(TABLE, "nobody").await, Outcome::NOT_FOUND);
            client.close().await;
        });
    }
    // A user that requires TLS can log in by TLS only.
    let user = format!("tls_{}", name.replace("test_", ""));
    space.sql_of_second(&format!(
        "CREATE USER {user}@'127.0.0.1' REQUIRE SSL; GRANT ALL ON {name}.* TO {user}@'127.0.0.1'"
    ));
    let settings = [database, ("db.user", user.as_str())];
    let encrypted = [settings[0], settings[1], ("mysql.sslmode", "require")];
    mysql(second, &encrypted).unwrap().prepare(&schema(), Purpose::Load).unwrap();
    assert!(refusal(&mysql(second, &settings).unwrap(), Purpose::Load).contains("Access denied"));
    space.sql_of_second(&format!("DROP USER {user}@'127.0.0.1'"));
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
    let wrong = ("mysql.sslrootcert", stranger.to_str().unwrap());
    for (address, settings, advice) in [
        (second, vec![database], "Check mysql.user (db.user) and mysql.password (db.passwd)"),
        (second, vec![database, ("mysql.password", "wrong")], "Check mysql.user (db.user)"),
        (second, vec![database, secret, verified[0], wrong], "does mysql.sslrootcert hold"),
        (&space.address, vec![database, ("mysql.sslmode", "require")], "Does the server offer TLS"),
        (&space.address, vec![("mysql.database", "nowhere")], "Make the database (CREATE DATABASE)"),
    ] {
        let store = mysql(address, &settings).unwrap();
        let early = refusal(&store, Purpose::Run);
        assert!(early.contains("cannot connect") && early.contains(advice), "{early}");
        assert!(early.contains(address.as_str()), "{early}");
        let late = EventLoop.run(async { store.connect(&(), 0).await.unwrap_err() });
        assert_eq!(late.to_string(), early);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_CERTIFICATE SERVAL_TEST_MYSQL_PASSWORD"]
fn a_server_may_require_a_client_certificate() {
    let Some(space) = Space::new() else { return };
    let certificate = variable("SERVAL_TEST_MYSQL_CERTIFICATE").unwrap();
    let folder = Path::new(&certificate).parent().unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let (ours, our_key) = (file("client/server.crt"), file("client/server.key"));
    let others_key = file("server.key");
    let Space { second, name, .. } = &space;
    let user = format!("x509_{}", name.replace("test_", ""));
    space.sql_of_second(&format!(
        "CREATE USER {user}@'127.0.0.1' REQUIRE X509; GRANT ALL ON {name}.* TO {user}@'127.0.0.1'"
    ));
    let user =
        [("mysql.database", name.as_str()), ("mysql.user", user.as_str()), ("mysql.sslmode", "require")];
    let shown = [("mysql.sslcert", ours.as_str()), ("mysql.sslkey", our_key.as_str())];
    let verified = [("mysql.sslmode", "verify-full"), ("mysql.sslrootcert", certificate.as_str())];
    for settings in [[&user[..], &shown].concat(), [&user[..2], &shown, &verified].concat()] {
        let store = mysql(second, &settings).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        assert_eq!(
            EventLoop.run(async { client(&store).await.delete(TABLE, "nobody").await }),
            Outcome::NOT_FOUND
        );
    }
    let stranger = [("mysql.sslcert", certificate.as_str()), ("mysql.sslkey", others_key.as_str())];
    for settings in [user.to_vec(), [&user[..], &stranger].concat()] {
        let problem = refusal(&mysql(second, &settings).unwrap(), Purpose::Run);
        assert!(problem.contains("cannot connect") && problem.contains("mysql.sslcert"), "{problem}");
    }
    for (settings, part) in [
        (vec![shown[0]], "and mysql.sslkey need each other"),
        (vec![user[2], shown[0], ("mysql.sslkey", &others_key)], "mysql.sslkey"),
        (vec![user[2], shown[0], ("mysql.sslkey", "/nowhere")], "/nowhere"),
        (vec![shown[0], shown[1]], "has no use with mysql.sslmode=disable"),
    ] {
        let problem = mysql(second, &settings).unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
    space.sql_of_second(&format!("DROP USER {}@'127.0.0.1'", user[1].1));
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn operations_without_permission_are_forbidden() {
    let Some(space) = Space::new() else { return };
    let weak = format!("weak_{}", space.name.replace("test_", ""));
    space.store(&[]).prepare(&schema(), Purpose::Load).unwrap();
    let grant = format!("GRANT SELECT ON {}.* TO {weak}@'127.0.0.1'", space.name);
    space.sql(&format!("CREATE USER {weak}@'127.0.0.1'; {grant}"));
    let store = space.store(&[("mysql.user", &weak)]);
    let error = refusal(&store, Purpose::Load);
    assert!(error.contains("command denied") && error.contains("grant it to the user"), "{error}");
    store.prepare(&schema(), Purpose::Run).unwrap();
    EventLoop.run(async {
        let outcome = client(&store).await.insert(TABLE, "k", &record(&[("field0", "x")])).await;
        assert_eq!(outcome.status, Status::Forbidden, "{outcome:?}");
        assert!(words(&outcome).contains("INSERT command denied"), "{outcome:?}");
    });
    space.sql(&format!("DROP USER {weak}@'127.0.0.1'"));
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn refused_and_unanswered_connections_are_reported() {
    let (silent, address) = silent();
    let mute = mysql(&address, &[("mysql.connect_timeout", "50ms")]).unwrap();
    let error = refusal(&mute, Purpose::Run);
    assert!(error.contains("no answer within 50ms (mysql.connect_timeout)"), "{error}");
    let late = EventLoop.run(async { mute.connect(&(), 0).await.unwrap_err() });
    assert_eq!(late.to_string(), error);
    drop(silent);
    let error = refusal(&mysql(&address, &[]).unwrap(), Purpose::Load);
    assert!(error.contains("cannot connect") && error.contains("mysql.port"), "{error}");
    assert!(error.contains(&address), "{error}");
}

/// A connection that has locked the table, so that operations wait.
struct Holder(Conn);

impl Holder {
    async fn new(space: &Space) -> Holder {
        let mut conn = connect(&space.address, None).await;
        conn.query_drop(format!("LOCK TABLES {}.usertable WRITE", space.name)).await.unwrap();
        Holder(conn)
    }

    /// Waits until an update is blocked. Returns the number of its connection.
    async fn until_waiting(&mut self, space: &Space) -> u64 {
        let sql = "SELECT ID FROM information_schema.processlist WHERE DB = ? AND STATE LIKE 'Waiting for table%' \
                   AND INFO LIKE 'UPDATE%'";
        loop {
            if let Some(id) = self.0.exec_first(sql, (&space.name,)).await.unwrap() {
                return id;
            }
        }
    }

    async fn release(&mut self) {
        self.0.query_drop("UNLOCK TABLES").await.unwrap();
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn the_next_operation_reopens_a_lost_connection() {
    let Some(space) = Space::new() else { return };
    let change = record(&[("field0", "x")]);
    let store = space.store(&[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.insert(TABLE, "k", &change).await, Outcome::OK);
        let mut holder = Holder::new(&space).await;
        let killing = async {
            let id = holder.until_waiting(&space).await;
            holder.0.query_drop(format!("KILL {id}")).await.unwrap();
            holder.release().await;
        };
        let (outcome, ()) = tokio::join!(client.update(TABLE, "k", &change), killing);
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
        assert!(words(&outcome).starts_with("connection lost: "), "{outcome:?}");
        assert_eq!(client.update(TABLE, "k", &change).await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn an_operation_without_an_answer_ends_at_its_timeout_and_the_next_succeeds() {
    let Some(space) = Space::new() else { return };
    let change = record(&[("field0", "x")]);
    let store = space.store(&[("mysql.timeout", "200ms")]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    assert!(store.describe().contains(&("timeout".into(), "200ms".into())));
    EventLoop.run(async {
        let mut client = client(&store).await;
        assert_eq!(client.insert(TABLE, "k", &change).await, Outcome::OK);
        let mut holder = Holder::new(&space).await;
        let (outcome, _) = tokio::join!(client.update(TABLE, "k", &change), holder.until_waiting(&space));
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
        assert!(words(&outcome).contains("no answer within 200ms (mysql.timeout)"), "{outcome:?}");
        holder.release().await;
        assert_eq!(client.update(TABLE, "k", &change).await, Outcome::OK);
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn a_lost_shard_fails_its_own_operations_only() {
    let Some(space) = Space::new() else { return };
    // A proxy to the second server whose connections can be closed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = listener.local_addr().unwrap().to_string();
    let behind = space.second.clone();
    let (cut, cutting) = std::sync::mpsc::channel::<()>();
    let forwarder = std::thread::spawn(move || {
        let mut open = Vec::new();
        // One connection for preparing, one for the client.
        for _ in 0..2 {
            let (front, _) = listener.accept().unwrap();
            let back = std::net::TcpStream::connect(&behind).unwrap();
            let pairs = [(&front, &back), (&back, &front)];
            for (from, to) in pairs {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
            open.push((front, back));
        }
        cutting.recv().unwrap();
        drop(listener);
        for (front, back) in open {
            // The first may be closed already.
            drop(front.shutdown(std::net::Shutdown::Both));
            drop(back.shutdown(std::net::Shutdown::Both));
        }
    });
    let url = space.shards().replace(&space.second, &door);
    let store = mysql("", &[("db.url", &url)]).unwrap();
    store.prepare(&schema(), Purpose::Load).unwrap();
    let one = record(&[("field0", "x")]);
    let (mut first, mut second): (Vec<String>, Vec<String>) = (0..20)
        .map(|n| format!("user{n}"))
        .partition(|key| string_hash(key).unsigned_abs().is_multiple_of(2));
    EventLoop.run(async {
        let mut client = client(&store).await;
        for key in [first.pop().unwrap(), second.pop().unwrap()] {
            assert_eq!(client.insert(TABLE, &key, &one).await, Outcome::OK);
        }
        cut.send(()).unwrap();
        forwarder.join().unwrap();
        for part in ["connection lost", "cannot connect", "cannot connect"] {
            let outcome = client.insert(TABLE, &second.pop().unwrap(), &one).await;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            assert!(words(&outcome).contains(part), "{outcome:?}");
            assert_eq!(client.insert(TABLE, &first.pop().unwrap(), &one).await, Outcome::OK);
        }
        // A batch for both servers is stored on neither.
        let batch = [(first.pop().unwrap(), one.clone()), (second.pop().unwrap(), one.clone())];
        assert_eq!(client.insert_batch(TABLE, &batch).await.status, Status::ServiceUnavailable);
        tokio::time::timeout(Duration::from_secs(60), client.close()).await.unwrap();
    });
    assert_eq!(space.sql("SELECT count(*) FROM usertable"), [["4"]]);
    assert_eq!(space.sql_of_second("SELECT count(*) FROM usertable"), [["1"]]);
}

#[test]
#[ignore = "needs SERVAL_TEST_MYSQL SERVAL_TEST_MYSQL_AUTH SERVAL_TEST_MYSQL_PASSWORD"]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("mysql.port", "0"),
        ("mysql.value_type", "json"),
        ("mysql.sslmode", "verify-full"),
        ("mysql.connect_timeout", "0"),
        ("mysql.timeout", "soon"),
    ];
    let problem = mysql("localhost:0", &settings).unwrap_err();
    for name in [
        "mysql.port",
        "mysql.value_type",
        "mysql.sslrootcert: verify-full needs it",
        "mysql.connect_timeout",
        "mysql.timeout",
    ] {
        assert!(problem.contains(name), "{problem}");
    }
    for (settings, part) in [
        (&[("db.url", "jdbc:mysql://h/d"), ("mysql.host", "h")][..], "mysql.host=h: the URL names"),
        (&[("db.url", "jdbc:postgresql://h/d?password=secret")], "db.url: is no URL of this database"),
        (&[("db.url", "jdbc:mysql://h/d;;jdbc:mysql://:1/d")], "db.url: names a port without a host"),
        (&[("mysql.url", "jdbc:mysql://h,i/d")], "mysql.url: several hosts of one URL"),
        (&[("mysql.url", ";")], "mysql.url: names no server"),
        (&[("db.url", "jdbc:mysql://h/d?sslMode=PREFERRED")], "sslMode=preferred: must be DISABLED"),
        (&[("mysql.sslrootcert", "/dev/null")], "has a use with mysql.sslmode=verify-full only"),
        (&[("mysql.sslrootcert", "/nowhere"), ("mysql.sslmode", "verify-full")], "/nowhere"),
    ] {
        let problem = mysql("localhost:1", settings).unwrap_err();
        assert!(problem.contains(part) && !problem.contains("secret"), "{problem}");
    }
}
