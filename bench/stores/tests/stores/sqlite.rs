//! SQLite: the suite, with and without upsert and in other journal modes, and
//! faults of a file.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use rusqlite::Connection;
use serval_conformance::{
    Differences, Executor, FIELDS, InsertExisting, Ready, Subject, fields, properties, schema,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::sqlite::{Sqlite, SqliteClient};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tempfile::TempDir;

fn open(settings: &[(&str, &str)]) -> Result<Sqlite, String> {
    Sqlite::open(&properties(settings)).map_err(|faults| faults.to_string())
}

fn store(path: &Path, settings: &[(&str, &str)]) -> Sqlite {
    let mut all = vec![("sqlite.path", path.to_str().unwrap())];
    all.extend(settings);
    open(&all).unwrap()
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    (folder, path)
}

fn subject(settings: &[(&str, &str)], differences: Differences) -> Subject<Sqlite, Ready> {
    let (folder, path) = folder();
    // Writers that wait for the lock are not served in order, so one may wait
    // long on a busy machine.
    let mut all = vec![("sqlite.busy_timeout", "60s")];
    all.extend(settings);
    Subject::new(store(&path, &all), Ready, differences).keeping(folder)
}

mod plain {
    use super::*;
    fn subject() -> Subject<Sqlite, Ready> {
        super::subject(&[], Differences { atomic_batch: true, ..Differences::default() })
    }
    serval_conformance::suite!(subject);
}

mod upsert {
    use super::*;
    fn subject() -> Subject<Sqlite, Ready> {
        let differences = Differences {
            insert_existing: InsertExisting::Replaced,
            atomic_batch: true,
            ..Differences::default()
        };
        super::subject(&[("sqlite.upsert", "true")], differences)
    }
    serval_conformance::suite!(subject);
}

/// With all other settings changed.
mod unsafe_and_mapped {
    use super::*;
    fn subject() -> Subject<Sqlite, Ready> {
        let settings = [
            ("sqlite.journal_mode", "off"),
            ("sqlite.synchronous", "off"),
            ("sqlite.cache_size", "64KiB"),
            ("sqlite.mmap_size", "64MiB"),
        ];
        super::subject(&settings, Differences::default())
    }
    serval_conformance::suite!(subject);
}

fn connect(store: &Sqlite) -> SqliteClient {
    Ready.run(store.connect(&(), 0)).unwrap()
}

fn record(pairs: &[(&str, &str)]) -> Record {
    pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

fn words(outcome: &Outcome) -> &str {
    outcome.message.as_deref().unwrap_or("")
}

/// Returns the error of preparing.
fn refusal(store: &Sqlite, schema: &Schema, purpose: Purpose) -> String {
    store.prepare(schema, purpose).unwrap_err().to_string()
}

#[test]
fn faults_of_all_properties_are_reported_together() {
    let faults = open(&[
        ("sqlite.path", ":memory:"),
        ("sqlite.journal_mode", "wall"),
        ("sqlite.busy_timeout", "30d"),
        ("sqlite.cache_size", "3TiB"),
        ("sqlite.mmap_size", "much"),
        ("sqlite.upsert", "perhaps"),
    ])
    .unwrap_err();
    for part in [
        "sqlite.path=:memory:: would give each client a database of its own",
        "did you mean 'wal'?",
        "must be 24 days or less",
        "must be 2047 GiB or less",
        "sqlite.mmap_size=much",
        "must be true or false",
    ] {
        assert!(faults.contains(part), "{part}\nin\n{faults}");
    }
    assert!(open(&[("sqlite.path", "file:x?mode=memory")]).unwrap_err().contains("URI"));
    assert!(open(&[("sqlite.path", "")]).unwrap_err().contains("must name a file"));
}

#[test]
fn a_run_on_a_missing_file_asks_for_a_load_and_creates_no_file() {
    let (_folder, path) = folder();
    let error = refusal(&store(&path, &[]), &schema(), Purpose::Run);
    for part in ["test.db", "no such file", "'usertable'", "serval load sqlite"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!path.exists());
}

#[test]
fn a_client_does_not_create_the_file() {
    let (_folder, path) = folder();
    assert!(Ready.run(store(&path, &[]).connect(&(), 0)).is_err());
    assert!(!path.exists());
}

#[test]
fn a_run_on_a_file_without_the_table_asks_for_a_load() {
    let (_folder, path) = folder();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE other (a)").unwrap();
    let error = refusal(&store(&path, &[]), &schema(), Purpose::Run);
    for part in ["test.db", "no table 'usertable'", "serval load sqlite"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_file_that_is_not_a_database_is_not_changed() {
    let (_folder, path) = folder();
    let content = "not a database, but long enough to have a header. ".repeat(100);
    fs::write(&path, &content).unwrap();
    for purpose in [Purpose::Run, Purpose::Load] {
        let error = refusal(&store(&path, &[]), &schema(), purpose);
        assert!(error.contains("file is not a database"), "{error}");
        assert!(error.contains("is sqlite.path right?"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), content);
}

#[test]
fn a_missing_folder_is_reported() {
    let (folder, _) = folder();
    let path = folder.path().join("missing").join("test.db");
    let error = refusal(&store(&path, &[]), &schema(), Purpose::Load);
    assert!(error.contains("there is no folder"), "{error}");
    assert!(error.contains("missing'"), "{error}");
}

#[test]
fn a_path_that_cannot_be_a_file_is_reported() {
    let (folder, _) = folder();
    for purpose in [Purpose::Run, Purpose::Load] {
        let error = refusal(&store(folder.path(), &[]), &schema(), purpose);
        assert!(error.contains("unable to open database file"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write anywhere, so the test cannot fail a write.
    let forbidden = fs::write(folder.path().join("probe"), "").is_err();
    let result = store(&path, &[]).prepare(&schema(), Purpose::Load);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if forbidden {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("may this user read and write"), "{error}");
    }
}

#[test]
fn missing_columns_are_reported() {
    let (_folder, path) = folder();
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("CREATE TABLE usertable (YCSB_KEY TEXT PRIMARY KEY, FIELD0 TEXT, field2 TEXT)")
        .unwrap();
    for purpose in [Purpose::Run, Purpose::Load] {
        let error = refusal(&store(&path, &[]), &schema(), purpose);
        for part in ["lacks the columns FIELD1, FIELD3;", "YCSB_KEY, FIELD0, field2", "fieldcount"] {
            assert!(error.contains(part), "{error}");
        }
    }
    connection.execute_batch("DROP TABLE usertable; CREATE TABLE usertable (id, FIELD0)").unwrap();
    let error = refusal(&store(&path, &[]), &schema(), Purpose::Run);
    assert!(error.contains("lacks the columns YCSB_KEY, FIELD2"), "{error}");
}

#[test]
fn fields_that_map_to_one_column_are_reported() {
    let (_folder, path) = folder();
    for (fields, words) in [
        (["a", "A"], "fields 'a' and 'A' would be one column"),
        (["a", "ycsb_key"], "fields 'YCSB_KEY' and 'ycsb_key' would be one column"),
    ] {
        let schema = Schema { table: "t".into(), fields: fields.map(String::from).into() };
        let error = refusal(&store(&path, &[]), &schema, Purpose::Load);
        assert!(error.contains(words), "{error}");
    }
    let fields = (0..3000).map(|n| format!("field{n}")).collect();
    let schema = Schema { table: "t".into(), fields };
    let error = refusal(&store(&path, &[]), &schema, Purpose::Load);
    assert!(error.contains("too many columns"), "{error}");
}

#[test]
fn names_of_tables_and_fields_may_be_anything_but_nul() {
    let (_folder, path) = folder();
    let names = ["a\"b", "\"", "select", "x; DROP TABLE y --", "it's", "größe", "[a]", "?1", ""];
    let schema =
        Schema { table: "tab\"le; --".into(), fields: names.iter().map(|name| format!("f{name}")).collect() };
    let store = store(&path, &[]);
    store.prepare(&schema, Purpose::Load).unwrap();
    store.prepare(&schema, Purpose::Run).unwrap();
    let mut client = connect(&store);
    let written: Record = schema.fields.iter().map(|f| (f.as_str(), f.as_bytes())).collect();
    let mut reply = Reply::new();
    Ready.run(async {
        assert_eq!(client.insert(&schema.table, "k", &written).await, Outcome::OK);
        assert_eq!(client.update(&schema.table, "k", &written).await, Outcome::OK);
        let mut fields = FieldSelection::default();
        assert_eq!(client.read(&schema.table, "k", &fields, &mut reply).await, Outcome::OK);
        for field in &schema.fields {
            fields.push(field);
        }
        assert_eq!(client.scan(&schema.table, "", 1, &fields, &mut reply).await, Outcome::OK);
        assert_eq!(reply.records(), [written.clone(), written.clone()]);
        // SQL text ends at NUL; the part before it must not run on its own.
        let nul = Record::from_iter([("f\0", &b"x"[..])]);
        let outcome = client.update(&schema.table, "k", &nul).await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        let outcome = client.delete("tab\"le; --\0", "k").await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
    });
}

#[test]
fn an_unknown_table_or_field_is_a_bad_request_with_sqlites_message() {
    let (_folder, path) = folder();
    let store = store(&path, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = connect(&store);
    let mut reply = Reply::new();
    let mut other = FieldSelection::default();
    other.push("other");
    let all = FieldSelection::default();
    let written = record(&[("other", "x")]);
    Ready.run(async {
        // The record exists, so that only the field is wrong.
        let fine = record(&[("field0", "x")]);
        assert_eq!(client.insert("usertable", "k", &fine).await, Outcome::OK);
        let outcomes = [
            (client.read("usertable", "k", &other, &mut reply).await, "no such column: "),
            (client.scan("usertable", "k", 1, &other, &mut reply).await, "no such column: "),
            (client.update("usertable", "k", &written).await, "no such column: "),
            (client.insert("usertable", "l", &written).await, "no column named OTHER"),
            (client.read("t", "k", &all, &mut reply).await, "no such table: t"),
            (client.update("t", "k", &fine).await, "no such table: t"),
            (client.insert("t", "k", &fine).await, "no such table: t"),
            (client.insert_batch("t", &[("k".into(), fine.clone())]).await, "no such table: t"),
            (client.scan("t", "k", 1, &all, &mut reply).await, "no such table: t"),
            (client.delete("t", "k").await, "no such table: t"),
        ];
        for (outcome, part) in outcomes {
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
            assert!(words(&outcome).contains(part), "{outcome:?}");
            // The message names the identifier and gives no advice on SQL.
            assert!(words(&outcome).contains("OTHER") || part.ends_with(" t"), "{outcome:?}");
            assert!(!words(&outcome).contains("string literal"), "{outcome:?}");
        }
    });
    assert!(reply.records().is_empty());
}

#[test]
fn a_duplicate_key_is_an_error_with_sqlites_message() {
    let (_folder, path) = folder();
    let store = store(&path, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = connect(&store);
    Ready.run(async {
        let fields = record(&[("field0", "x")]);
        assert_eq!(client.insert("usertable", "k", &fields).await, Outcome::OK);
        let outcome = client.insert("usertable", "k", &fields).await;
        assert_eq!(outcome.status, Status::Error);
        assert!(words(&outcome).contains("UNIQUE constraint failed: usertable.YCSB_KEY"));
    });
}

#[test]
fn a_locked_database_is_unavailable_after_the_busy_timeout() {
    for mode in ["wal", "delete"] {
        let (_folder, path) = folder();
        let settings = [("sqlite.busy_timeout", "200ms"), ("sqlite.journal_mode", mode)];
        let store = store(&path, &settings);
        store.prepare(&schema(), Purpose::Load).unwrap();
        let mut client = connect(&store);
        let holder = Connection::open(&path).unwrap();
        holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let fields = record(&[("field0", "x")]);
        let mut reply = Reply::new();
        Ready.run(async {
            let start = Instant::now();
            let outcome = client.insert("usertable", "k", &fields).await;
            let waited = start.elapsed();
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{mode}: {outcome:?}");
            assert!(words(&outcome).contains("database is locked"), "{outcome:?}");
            assert!(waited >= Duration::from_millis(150), "{waited:?}");
            // Far below SQLite's and rusqlite's default of 5 s.
            assert!(waited < Duration::from_secs(3), "{waited:?}");
            let outcome = client.insert_batch("usertable", &[("k".into(), fields.clone())]).await;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{mode}: {outcome:?}");
            // Readers are blocked as well, unless there is a write-ahead log.
            let all = FieldSelection::default();
            let outcome = client.read("usertable", "k", &all, &mut reply).await;
            let expected = match mode {
                "wal" => Status::NotFound,
                _ => Status::ServiceUnavailable,
            };
            assert_eq!(outcome.status, expected, "{mode}: {outcome:?}");
            holder.execute_batch("COMMIT").unwrap();
            assert_eq!(client.insert("usertable", "k", &fields).await, Outcome::OK);
        });
    }
}

#[test]
fn a_database_locked_during_preparation_is_reported() {
    let (_folder, path) = folder();
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("CREATE TABLE t (a); BEGIN EXCLUSIVE").unwrap();
    let error = refusal(&store(&path, &[("sqlite.busy_timeout", "50")]), &schema(), Purpose::Load);
    assert!(error.contains("held a lock for 50ms (sqlite.busy_timeout)"), "{error}");
}

#[test]
fn a_triggers_refusal_is_an_error_with_its_message() {
    let (_folder, path) = folder();
    let store = store(&path, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = connect(&store);
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER guard BEFORE INSERT ON usertable BEGIN SELECT RAISE(FAIL, 'no more'); END",
        )
        .unwrap();
    let outcome = Ready.run(client.insert("usertable", "k", &record(&[("field0", "x")])));
    assert_eq!(outcome.status, Status::Error);
    assert_eq!(words(&outcome), "no more");
}

#[test]
fn written_records_have_ycsbs_layout() {
    let (_folder, path) = folder();
    let store = store(&path, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = connect(&store);
    Ready.run(async {
        let fields = record(&[("field0", "zero"), ("field1", "one"), ("field3", "007")]);
        assert_eq!(client.insert("usertable", "user1", &fields).await, Outcome::OK);
        assert_eq!(client.close().await, Outcome::OK);
    });
    let connection = Connection::open(&path).unwrap();
    let sql: String = connection
        .query_row("SELECT sql FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        sql,
        "CREATE TABLE \"usertable\" (YCSB_KEY TEXT PRIMARY KEY, \"FIELD2\" TEXT, \"FIELD0\" TEXT, \
         \"FIELD1\" TEXT, \"FIELD3\" TEXT)"
    );
    let row = connection
        .query_row(
            "SELECT YCSB_KEY, FIELD0, FIELD1, FIELD2, FIELD3 FROM usertable WHERE YCSB_KEY = 'user1'",
            [],
            |row| {
                let text = |index| row.get::<_, Option<String>>(index);
                Ok([text(0)?, text(1)?, text(2)?, text(3)?, text(4)?])
            },
        )
        .unwrap();
    let row = row.each_ref().map(Option::as_deref);
    assert_eq!(row, [Some("user1"), Some("zero"), Some("one"), None, Some("007")]);
}

#[test]
fn records_of_ycsb_are_read_by_the_names_of_the_schema() {
    let (_folder, path) = folder();
    // Like YCSB's JdbcDBCreateTable and JdbcDBClient, in rollback mode, plus a column
    // and values that YCSB does not write.
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE usertable (YCSB_KEY VARCHAR PRIMARY KEY, FIELD0 TEXT, FIELD1 TEXT, \
               FIELD2 TEXT, FIELD3 TEXT, Extra);
             INSERT INTO usertable (YCSB_KEY,field0,field1,field2,field3) VALUES('user1','a','b','c','d');
             INSERT INTO usertable VALUES('user2','a',x'ff00',NULL,'d',42);
             INSERT INTO usertable VALUES('user3','a',NULL,NULL,'d',1.5);",
        )
        .unwrap();
    let store = store(&path, &[]);
    store.prepare(&schema(), Purpose::Run).unwrap();
    assert!(store.describe().contains(&("journal_mode".into(), "wal".into())));
    let mut client = connect(&store);
    let mut reply = Reply::new();
    let all = FieldSelection::default();
    Ready.run(async {
        assert_eq!(client.scan("usertable", "", 10, &all, &mut reply).await, Outcome::OK);
        let found: Vec<serval_conformance::Fields> = reply
            .records()
            .iter()
            .map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect())
            .collect();
        assert_eq!(
            found,
            [
                fields([("field0", b"a"), ("field1", b"b"), ("field2", b"c"), ("field3", b"d")]),
                fields([("field0", b"a"), ("field1", b"\xff\0"), ("field3", b"d"), ("Extra", b"42")]),
                fields([("field0", b"a"), ("field3", b"d"), ("Extra", b"1.5")]),
            ]
        );
        // A column is added to the table meanwhile.
        Connection::open(&path).unwrap().execute_batch("ALTER TABLE usertable ADD more").unwrap();
        let change = record(&[("more", "m")]);
        assert_eq!(client.update("usertable", "user1", &change).await, Outcome::OK);
        reply.clear();
        assert_eq!(client.read("usertable", "user1", &all, &mut reply).await, Outcome::OK);
    });
    assert_eq!(reply.records()[0].len(), 5);
    assert_eq!(reply.records()[0].get("more"), Some(&b"m"[..]));
}

#[test]
fn settings_are_in_force_and_described() {
    for mode in ["wal", "delete", "truncate", "persist", "memory", "off"] {
        for synchronous in ["off", "normal", "full", "extra"] {
            let (_folder, path) = folder();
            let settings = [
                ("sqlite.journal_mode", mode),
                ("sqlite.synchronous", synchronous),
                ("sqlite.cache_size", "1MiB"),
                ("sqlite.mmap_size", "2MiB"),
                ("sqlite.upsert", "true"),
            ];
            let store = store(&path, &settings);
            store.prepare(&schema(), Purpose::Load).unwrap();
            let facts = store.describe();
            for (name, value) in [
                ("version", rusqlite::version()),
                ("path", path.to_str().unwrap()),
                ("journal_mode", mode),
                ("synchronous", synchronous),
                ("page_size", "4096 B"),
                ("cache_size", "1.0 MiB"),
                ("mmap_size", "2.0 MiB"),
                ("busy_timeout", "5s"),
                ("upsert", "true"),
            ] {
                assert!(facts.contains(&(name.into(), value.into())), "{name}={value}: {facts:?}");
            }
        }
    }
}

#[test]
fn the_journal_mode_of_an_existing_file_is_changed_as_configured() {
    let (_folder, path) = folder();
    for mode in ["wal", "delete", "wal", "truncate"] {
        let store = store(&path, &[("sqlite.journal_mode", mode)]);
        store.prepare(&schema(), Purpose::Load).unwrap();
        store.prepare(&schema(), Purpose::Run).unwrap();
        assert!(store.describe().contains(&("journal_mode".into(), mode.into())));
    }
}

#[test]
fn the_file_may_be_named_by_a_jdbc_url() {
    let (_folder, path) = folder();
    let url = format!("jdbc:sqlite:{}", path.display());
    let store = open(&[("db.url", &url)]).unwrap();
    store.prepare(&schema(), Purpose::Load).unwrap();
    assert!(path.exists());
    // Its own property takes precedence, and another database's URL is refused.
    let own = [("db.url", "jdbc:mysql://h/d"), ("sqlite.path", path.to_str().unwrap())];
    open(&own).unwrap().prepare(&schema(), Purpose::Run).unwrap();
    let problem = open(&own[..1]).unwrap_err();
    assert!(problem.contains("db.url: is of another database"), "{problem}");
    assert!(open(&[("db.url", "jdbc:sqlite:")]).unwrap_err().contains("must name a file"));
}

#[test]
fn closing_the_last_client_leaves_one_whole_file() {
    let (folder, path) = folder();
    let store = store(&path, &[]);
    store.prepare(&schema(), Purpose::Load).unwrap();
    let (mut first, mut second) = (connect(&store), connect(&store));
    let files = || fs::read_dir(folder.path()).unwrap().count();
    Ready.run(async {
        for (client, key) in [(&mut first, "a"), (&mut second, "b")] {
            assert_eq!(client.insert("usertable", key, &record(&[])).await, Outcome::OK);
        }
        assert_eq!(files(), 3, "the file, its log and the log's index");
        assert_eq!(first.close().await, Outcome::OK);
        assert_eq!(files(), 3);
        assert_eq!(second.close().await, Outcome::OK);
        // Closing twice is harmless; use of a closed client is reported.
        assert_eq!(second.close().await, Outcome::OK);
        assert_eq!(second.delete("usertable", "a").await.status, Status::Error);
    });
    assert_eq!(files(), 1);
    store.finish().unwrap();
}

#[test]
fn more_statement_shapes_than_are_cached_still_work() {
    let (_folder, path) = folder();
    let schema =
        Schema { table: "usertable".into(), fields: (0..400).map(|n| format!("field{n}")).collect() };
    let store = store(&path, &[]);
    store.prepare(&schema, Purpose::Load).unwrap();
    let mut client = connect(&store);
    let mut reply = Reply::new();
    Ready.run(async {
        assert_eq!(client.insert("usertable", "k", &Record::new()).await, Outcome::OK);
        for round in 0..2 {
            for field in &schema.fields {
                let value = format!("{field} {round}");
                let change = record(&[(field, &value)]);
                assert_eq!(client.update("usertable", "k", &change).await, Outcome::OK);
                let mut fields = FieldSelection::default();
                fields.push(field);
                reply.clear();
                let outcome = client.read("usertable", "k", &fields, &mut reply).await;
                assert_eq!(outcome, Outcome::OK);
                assert_eq!(reply.records(), [change]);
            }
        }
    });
}

#[test]
fn a_client_of_an_unprepared_store_uses_the_names_of_columns() {
    let (_folder, path) = folder();
    store(&path, &[]).prepare(&schema(), Purpose::Load).unwrap();
    let mut client = connect(&store(&path, &[]));
    let mut reply = Reply::new();
    Ready.run(async {
        let fields = record(&[(FIELDS[0], "x")]);
        assert_eq!(client.insert("usertable", "k", &fields).await, Outcome::OK);
        let all = FieldSelection::default();
        assert_eq!(client.read("usertable", "k", &all, &mut reply).await, Outcome::OK);
    });
    assert_eq!(reply.records()[0].get("FIELD2"), Some(&b"x"[..]));
}
