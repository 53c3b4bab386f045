//! Yesquel's SQL: the suite in memory, in a folder and on a server; concurrent
//! clients; faults of paths, servers and settings.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use rusqlite::Connection;
use serval_conformance::{
    Differences, Executor, FIELDS, Fields, InsertExisting, Ready, Subject, TABLE, fields, properties, schema,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Status, Store};
use serval_stores::yesquel_sql::{SqliteClient, YesquelSql};
use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

fn open(settings: &[(&str, &str)]) -> Result<YesquelSql, String> {
    YesquelSql::open(&properties(settings)).map_err(|faults| faults.to_string())
}

const ADDRESS: &str = "yesquel.address";

fn at(address: &str) -> YesquelSql {
    open(&[(ADDRESS, address)]).unwrap()
}

/// Returns the address of a folder.
fn in_folder(folder: &Path) -> String {
    format!("yesquel:{}", folder.display())
}

/// Returns an address in memory that no other test uses.
fn in_memory() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("yesquel:?database=test{}", NEXT.fetch_add(1, Relaxed))
}

/// A server, in memory or on a folder.
fn serve(address: &str, folder: Option<&Path>) -> Server {
    let listen = ListenOptions { addresses: vec![address.parse().unwrap()], ..ListenOptions::default() };
    Server::start(folder, EngineSettings::default(), LogOptions::default(), listen).unwrap()
}

fn subject(store: YesquelSql) -> Subject<YesquelSql, Ready> {
    Subject::new(store, Ready, Differences { atomic_batch: true, ..Differences::default() })
}

mod memory {
    use super::*;
    fn subject() -> Subject<YesquelSql, Ready> {
        super::subject(at(&in_memory()))
    }
    serval_conformance::suite!(subject);
}

mod folder {
    use super::*;
    fn subject() -> Subject<YesquelSql, Ready> {
        let folder = tempfile::tempdir().unwrap();
        super::subject(at(&in_folder(folder.path()))).keeping(folder)
    }
    serval_conformance::suite!(subject);
}

mod unix_socket {
    use super::*;
    fn subject() -> Subject<YesquelSql, Ready> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let socket = socket.to_str().unwrap();
        let server = serve(socket, None);
        super::subject(at(socket)).keeping((server, folder))
    }
    serval_conformance::suite!(subject);
}

mod tcp {
    use super::*;
    fn subject() -> Subject<YesquelSql, Ready> {
        let server = serve("127.0.0.1:0", None);
        let Address::Tcp { port, .. } = server.addresses()[0] else { unreachable!() };
        super::subject(at(&format!("yesquel://127.0.0.1:{port}/other"))).keeping(server)
    }
    serval_conformance::suite!(subject);
}

mod upsert {
    use super::*;
    fn subject() -> Subject<YesquelSql, Ready> {
        let differences = Differences {
            insert_existing: InsertExisting::Replaced,
            atomic_batch: true,
            ..Differences::default()
        };
        let store = open(&[(ADDRESS, &in_memory()), ("yesquel.upsert", "true")]).unwrap();
        Subject::new(store, Ready, differences)
    }
    serval_conformance::suite!(subject);
}

mod without_rowid {
    use super::*;
    fn subject() -> Subject<YesquelSql, Ready> {
        super::subject(open(&[(ADDRESS, &in_memory()), ("yesquel.without_rowid", "true")]).unwrap())
    }
    serval_conformance::suite!(subject);
}

fn record(pairs: &[(&str, &[u8])]) -> Record {
    pairs.iter().copied().collect()
}

fn client(store: &YesquelSql) -> SqliteClient {
    Ready.run(store.connect(&(), 0)).unwrap()
}

fn read(client: &mut SqliteClient, key: &str) -> (Outcome, Vec<Fields>) {
    let mut reply = Reply::new();
    let outcome = Ready.run(client.read(TABLE, key, &FieldSelection::default(), &mut reply));
    let records = reply.records().iter();
    let found = records.map(|record| record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect());
    (outcome, found.collect())
}

fn refusal(store: &YesquelSql, purpose: Purpose) -> String {
    store.prepare(&schema(), purpose).unwrap_err().to_string()
}

#[test]
fn written_records_are_a_table_for_any_program() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    for (options, shown) in [("", "sync"), ("?durability=20", "interval 20"), ("?durability=none", "none")] {
        let address = in_folder(&path.join(shown.replace(' ', ""))) + options;
        fs::create_dir_all(&path).unwrap();
        let store = at(&address);
        store.prepare(&schema(), Purpose::Load).unwrap();
        let facts = store.describe();
        let fact = |name: &str| facts.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
        assert_eq!(fact("durability"), Some(shown));
        assert!(fact("version").unwrap().ends_with(rusqlite::version()), "{facts:?}");
        let mut writer = client(&store);
        let one = record(&[("field1", b"xy"), ("field0", b"\0\xff")]);
        assert_eq!(Ready.run(writer.insert(TABLE, "user1", &one)), Outcome::OK);
        assert_eq!(Ready.run(writer.update(TABLE, "user1", &record(&[("field1", b"z")]))), Outcome::OK);
        assert_eq!(Ready.run(writer.close()), Outcome::OK);
        store.finish().unwrap();
        {
            let connection = Connection::open(&address).unwrap();
            let row = connection.query_row("SELECT * FROM usertable", [], |row| {
                Ok((row.get::<_, String>("YCSB_KEY")?, row.get::<_, Vec<u8>>("FIELD0")?, row.get("FIELD1")?))
            });
            assert_eq!(row, Ok(("user1".to_owned(), b"\0\xff".to_vec(), "z".to_owned())));
            connection.execute_batch("INSERT INTO usertable(YCSB_KEY, FIELD3) VALUES('user2', 7)").unwrap();
        }
        let again = at(&address);
        again.prepare(&schema(), Purpose::Run).unwrap();
        let mut reader = client(&again);
        let both = fields([("field1", b"z"), ("field0", b"\0\xff")]);
        assert_eq!(read(&mut reader, "user1"), (Outcome::OK, vec![both]));
        assert_eq!(read(&mut reader, "user2"), (Outcome::OK, vec![fields([("field3", b"7")])]));
    }
}

#[test]
fn a_table_has_one_tree_or_two() {
    for (without, trees) in [("false", 2), ("true", 1)] {
        let place = tempfile::tempdir().unwrap();
        let address = in_folder(place.path());
        let store = open(&[(ADDRESS, &address), ("yesquel.without_rowid", without)]).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        let roots: i64 = Connection::open(&address)
            .unwrap()
            .query_row("SELECT count(DISTINCT rootpage) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(roots, trees);
    }
}

#[test]
fn clients_updating_one_record_lose_no_writes() {
    let store = at(&in_memory());
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut reader = client(&store);
    assert_eq!(Ready.run(reader.insert(TABLE, "k", &record(&[]))), Outcome::OK);
    std::thread::scope(|scope| {
        for field in FIELDS {
            let store = &store;
            scope.spawn(move || {
                let mut client = client(store);
                for round in 0..200 {
                    let change = record(&[(field, format!("{round}").as_bytes())]);
                    assert_eq!(Ready.run(client.update(TABLE, "k", &change)), Outcome::OK);
                }
            });
        }
    });
    let last: Fields = FIELDS.map(|field| (field.to_owned(), b"199".to_vec())).into();
    assert_eq!(read(&mut reader, "k"), (Outcome::OK, vec![last]));
}

#[test]
fn batches_of_concurrent_clients_are_complete() {
    let store = at(&in_memory());
    store.prepare(&schema(), Purpose::Load).unwrap();
    let batch = |first: u32| -> Vec<(String, Record)> {
        // Spread over all keys.
        let key = |n: u32| format!("user{:08x}", n.wrapping_mul(2_654_435_761));
        (first..first + 100).map(|n| (key(n), record(&[("field0", &n.to_be_bytes())]))).collect()
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (store, batch) = (&store, &batch);
            scope.spawn(move || {
                let mut client = client(store);
                for round in 0..5 {
                    let first = (number * 5 + round) * 100;
                    assert_eq!(Ready.run(client.insert_batch(TABLE, &batch(first))), Outcome::OK);
                }
            });
        }
    });
    let (mut client, mut reply) = (client(&store), Reply::new());
    let scanned = Ready.run(client.scan(TABLE, "", u64::MAX, &FieldSelection::default(), &mut reply));
    assert_eq!((scanned, reply.records().len()), (Outcome::OK, 2_000));
}

#[test]
fn faults_of_a_statement_are_reported() {
    let store = at(&in_memory());
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = client(&store);
    assert_eq!(Ready.run(client.insert(TABLE, "k", &record(&[]))), Outcome::OK);
    // SQL's keys may be longer than those of maps.
    let long = "k".repeat((1 << 20) + 1);
    assert_eq!(Ready.run(client.insert(TABLE, &long, &record(&[]))), Outcome::OK);
    for (outcome, status, words) in [
        (Ready.run(client.insert(TABLE, "k", &record(&[]))), Status::Error, "UNIQUE constraint failed"),
        (Ready.run(client.insert("other", "k", &record(&[]))), Status::BadRequest, "no such table: other"),
        (
            Ready.run(client.update(TABLE, "k", &record(&[("more", b"")]))),
            Status::BadRequest,
            "no such column",
        ),
    ] {
        assert_eq!(outcome.status, status, "{outcome:?}");
        assert!(outcome.message.as_ref().unwrap().contains(words), "{outcome:?}");
    }
    assert!(client.lost().is_none());
}

#[test]
fn an_unusable_folder_is_reported_with_the_remedy() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let here = at(&in_folder(&path));
    let problem = refusal(&here, Purpose::Run);
    assert!(problem.contains("serval load yesquel") && problem.contains("data): there is"), "{problem}");
    assert!(!path.exists(), "a run creates no file");
    here.prepare(&schema(), Purpose::Load).unwrap();
    let other = Schema { table: "other".into(), ..schema() };
    let problem = here.prepare(&other, Purpose::Run).unwrap_err().to_string();
    assert!(problem.contains("the database has no table 'other': load it first"), "{problem}");
    let more = Schema { fields: vec!["field0".into(), "field9".into()], ..schema() };
    let problem = here.prepare(&more, Purpose::Run).unwrap_err().to_string();
    assert!(problem.contains("lacks the columns FIELD9") && problem.contains(ADDRESS), "{problem}");
    here.finish().unwrap();
    let problem = refusal(&at(&(in_folder(&path) + "?database=other")), Purpose::Run);
    assert!(problem.contains("no database 'other': load it first"), "{problem}");
    let used = yesquel::Store::open(&path).unwrap();
    let problem = refusal(&here, Purpose::Run);
    assert!(problem.contains("in use by process"), "{problem}");
    drop(used);
    fs::write(place.path().join("file"), "x").unwrap();
    let problem = refusal(&at(&in_folder(place.path())), Purpose::Load);
    assert!(problem.contains("files that are not Yesquel's"), "{problem}");
}

#[test]
fn a_run_without_a_load_in_memory_is_refused_with_the_reason() {
    let store = at(&in_memory());
    let problem = refusal(&store, Purpose::Run);
    assert!(problem.contains("one command") && problem.contains(ADDRESS), "{problem}");
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut writer = client(&store);
    assert_eq!(Ready.run(writer.insert(TABLE, "k", &record(&[]))), Outcome::OK);
    Ready.run(writer.close());
    store.finish().unwrap();
    // The loaded records exist for the run.
    store.prepare(&schema(), Purpose::Run).unwrap();
    assert_eq!(read(&mut client(&store), "k").0, Outcome::OK);
}

#[test]
fn unreachable_servers_are_reported_with_the_remedy() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket").to_str().unwrap().to_owned();
    let problem = refusal(&at(&socket), Purpose::Load);
    assert!(
        problem.contains("Is a Yesquel server running") && problem.contains("socket/ycsb): "),
        "{problem}"
    );
    assert!(problem.contains("No such file"), "{problem}");
    // A path that contains the text of another failure does not cause it.
    let misleading = place.path().join("no database").join("socket");
    let problem = refusal(&at(misleading.to_str().unwrap()), Purpose::Run);
    assert!(problem.contains("Is a Yesquel server running") && !problem.contains("load it"), "{problem}");
    let _server = serve(&socket, None);
    let here = at(&socket);
    let problem = refusal(&here, Purpose::Run);
    assert!(problem.contains("no database 'ycsb': load it first"), "{problem}");
    here.prepare(&schema(), Purpose::Load).unwrap();
    let shown = here.describe();
    assert!(shown.contains(&("address".into(), format!("yesquel://{socket}/ycsb"))), "{shown:?}");
}

#[test]
fn a_server_restart_fails_only_operations_in_flight() {
    let place = tempfile::tempdir().unwrap();
    let (socket, folder) = (place.path().join("socket"), place.path().join("data"));
    let socket = socket.to_str().unwrap();
    let server = serve(socket, Some(&folder));
    let store = at(&format!("{socket}?timeout=200"));
    store.prepare(&schema(), Purpose::Load).unwrap();
    let mut client = client(&store);
    assert_eq!(Ready.run(client.insert(TABLE, "k", &record(&[("field0", b"1")]))), Outcome::OK);
    drop(server);
    let outcomes = [
        read(&mut client, "k").0,
        Ready.run(client.update(TABLE, "k", &record(&[("field0", b"2")]))),
        Ready.run(client.insert(TABLE, "l", &record(&[]))),
        Ready.run(client.delete(TABLE, "l")),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
    }
    assert!(client.lost().is_none(), "the server may recover");
    let _server = serve(socket, Some(&folder));
    let found = read(&mut client, "k");
    assert_eq!(found, (Outcome::OK, vec![fields([("field0", b"1")])]));
    assert_eq!(Ready.run(client.update(TABLE, "k", &record(&[("field0", b"2")]))), Outcome::OK);
}

#[test]
fn impossible_settings_are_refused_together() {
    let problem = open(&[
        (ADDRESS, "yesquel:data?speed=9"),
        ("yesquel.busy_timeout", "30d"),
        ("yesquel.upsert", "perhaps"),
    ])
    .unwrap_err();
    for part in ["there is no such option", "must be 24 days or less", "yesquel.upsert=perhaps"] {
        assert!(problem.contains(part), "{problem}");
    }
    assert!(open(&[(ADDRESS, "localhost:0")]).unwrap_err().contains("port 0"));
    assert!(open(&[(ADDRESS, "yesquel://localhost")]).unwrap_err().contains("yesquel://HOST:PORT/NAME"));
}
