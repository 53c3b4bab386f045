//! Checks which engine answers, and that the other one is stock SQLite.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use yesquel_differential::engine::{EngineConnection, SqlEngine};
use yesquel_differential::value::SqlValue;

fn ask(engine: SqlEngine, name: &str, sql: &str) -> Vec<Vec<SqlValue>> {
    let connection = EngineConnection::open(engine, name).unwrap();
    let (rows, failure) = connection.run(sql);
    assert_eq!(failure, None, "{sql}");
    rows
}

#[test]
fn both_engines_have_the_same_version_and_settings() {
    assert!(yesquel_sqlite::is_linked());
    assert_eq!(SqlEngine::Ours.source_id(), SqlEngine::Stock.source_id());
    let options = "SELECT compile_options FROM pragma_compile_options ORDER BY 1";
    assert_eq!(ask(SqlEngine::Ours, ":memory:", options), ask(SqlEngine::Stock, ":memory:", options));
}

#[test]
fn only_yesquels_engine_opens_trees() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("file:yesquel:{}/store", folder.path().display());
    let connection = EngineConnection::open(SqlEngine::Ours, &address).unwrap();
    let (_, failure) = connection.run("CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1), (2), (3)");
    assert_eq!(failure, None);
    assert!(connection.filename("main").starts_with("yesquel:"));
    drop(connection);
    // Yesquel's library finds the rows in the trees where SQL has put them.
    let store = yesquel::Store::open(folder.path().join("store")).unwrap();
    let database = store.database("main").unwrap();
    let mut entries = Vec::new();
    for (_, map) in database.maps().unwrap() {
        let mut transaction = database.begin();
        entries.push(transaction.range::<&[u8]>(map, ..).count());
    }
    // The schema has two entries, the table and its index three each, and the cookies are under one
    // key.
    entries.sort_unstable();
    assert_eq!(entries, [1, 2, 3, 3]);
    // Stock SQLite takes it for a file name in a missing folder.
    assert!(EngineConnection::open(SqlEngine::Stock, &address).is_err());
}
