//! Which engine answers, and that the other is stock.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use yesquel_differential::engine::{Connection, Engine};
use yesquel_differential::value::Value;

fn ask(engine: Engine, name: &str, sql: &str) -> Vec<Vec<Value>> {
    let connection = Connection::open(engine, name).unwrap();
    let (rows, failure) = connection.run(sql);
    assert_eq!(failure, None, "{sql}");
    rows
}

#[test]
fn both_are_the_same_version_with_the_same_settings() {
    assert!(yesquel_sqlite::is_linked());
    assert_eq!(Engine::Ours.source_id(), Engine::Stock.source_id());
    let options = "SELECT compile_options FROM pragma_compile_options ORDER BY 1";
    assert_eq!(ask(Engine::Ours, ":memory:", options), ask(Engine::Stock, ":memory:", options));
}

#[test]
fn only_ours_knows_trees() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("file:yesquel:{}/store", folder.path().display());
    let connection = Connection::open(Engine::Ours, &address).unwrap();
    let (_, failure) = connection.run("CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1), (2), (3)");
    assert_eq!(failure, None);
    assert!(connection.filename("main").starts_with("yesquel:"));
    drop(connection);
    // The library finds the rows, in trees, where SQL has put them.
    let store = yesquel::Store::open(folder.path().join("store")).unwrap();
    let database = store.database("main").unwrap();
    let mut entries = Vec::new();
    for (_, map) in database.maps().unwrap() {
        let mut transaction = database.begin();
        entries.push(transaction.range::<&[u8]>(map, ..).count());
    }
    // The schema has two entries, the table and its index three each, and the
    // cookies stand under one key.
    entries.sort_unstable();
    assert_eq!(entries, [1, 2, 3, 3]);
    // For stock it is a file's name, in a folder that is not there.
    assert!(Connection::open(Engine::Stock, &address).is_err());
}
