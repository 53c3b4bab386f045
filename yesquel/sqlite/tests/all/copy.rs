//! Copies of whole databases by the backup interface, from and to trees: in steps, of one snapshot,
//! atomically.

use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};
use std::path::Path;
use yesquel_sqlite as _;

const ROWS: i64 = 5_000;

/// Fills a database with all kinds of objects.
fn fill(connection: &Connection) {
    connection
        .execute_batch(&format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, note TEXT);
             CREATE INDEX names ON t(name COLLATE NOCASE DESC, id);
             CREATE TABLE w(a TEXT, b INT, c, PRIMARY KEY(b, a)) WITHOUT ROWID;
             CREATE TABLE none(a);
             CREATE VIEW v AS SELECT name FROM t;
             WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {ROWS})
             INSERT INTO t SELECT x, 'name' || (x * 7919 % {ROWS}), hex(zeroblob(20)) FROM c;
             INSERT INTO w SELECT name, id % 10, NULL FROM t;
             PRAGMA user_version = 7;"
        ))
        .unwrap();
}

/// Returns checksums of its content.
fn sums(connection: &Connection) -> Vec<i64> {
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).unwrap();
    [
        "SELECT count(*) FROM sqlite_schema",
        "SELECT count(*) FROM t",
        "SELECT sum(id * length(name)) FROM t",
        "SELECT count(*) FROM t INDEXED BY names WHERE name LIKE 'name1%'",
        "SELECT sum(b) FROM w",
        "SELECT count(*) FROM none",
        "PRAGMA user_version",
    ]
    .map(ask)
    .to_vec()
}

/// Opens a database of each kind.
fn open(folder: &Path, kind: &str) -> Connection {
    let name = match kind {
        "plain" => folder.join("plain.db").display().to_string(),
        kind => format!("yesquel:{}", folder.join(kind.replace(' ', "-")).display()),
    };
    Connection::open(name).unwrap()
}

#[test]
fn a_copy_runs_in_steps_and_is_visible_at_its_end() {
    for (from, to) in [("trees", "plain"), ("plain", "trees"), ("trees", "others")] {
        let folder = tempfile::tempdir().unwrap();
        let source = open(folder.path(), from);
        fill(&source);
        let mut destination = open(folder.path(), to);
        destination.execute_batch("CREATE TABLE before(a); INSERT INTO before VALUES(1)").unwrap();
        let reader = open(folder.path(), to);
        let seen = |what: &str| {
            let count = "SELECT count(*) FROM sqlite_schema WHERE name = ?1";
            reader.query_row(count, [what], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!((seen("before"), seen("t")), (1, 0));
        let backup = Backup::new(&source, &mut destination).unwrap();
        let (mut steps, mut last) = (0, i32::MAX);
        while backup.step(4).unwrap() == StepResult::More {
            steps += 1;
            let progress = backup.progress();
            assert!(progress.remaining <= last && progress.remaining > 0, "{from} to {to}: {progress:?}");
            assert!(progress.remaining <= progress.pagecount);
            last = progress.remaining;
            if to != "plain" {
                assert_eq!((seen("before"), seen("t")), (1, 0), "{from} to {to}, after {steps} steps");
            }
        }
        assert!(steps > 20, "{from} to {to}: {steps} steps");
        assert_eq!(backup.progress().remaining, 0);
        drop(backup);
        assert_eq!((seen("before"), seen("t")), (0, 1), "{from} to {to}");
        assert_eq!(sums(&source), sums(&destination), "{from} to {to}");
        let check: String = destination.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "{from} to {to}");
        // They are independent.
        destination.execute_batch("INSERT INTO t(name) VALUES('new'); DELETE FROM w WHERE b = 1").unwrap();
        assert_eq!(sums(&source)[1], ROWS);
        assert_eq!(sums(&destination)[1], ROWS + 1);
    }
}

#[test]
fn an_abandoned_copy_changes_nothing() {
    for (from, to) in [("trees", "plain"), ("plain", "trees")] {
        let folder = tempfile::tempdir().unwrap();
        let source = open(folder.path(), from);
        fill(&source);
        let mut destination = open(folder.path(), to);
        destination.execute_batch("CREATE TABLE before(a); INSERT INTO before VALUES(1)").unwrap();
        {
            let backup = Backup::new(&source, &mut destination).unwrap();
            assert_eq!(backup.step(10).unwrap(), StepResult::More);
        }
        let count: i64 = destination.query_row("SELECT count(*) FROM before", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1, "{from} to {to}");
        // No transaction or lock is left on either side.
        source.execute_batch("INSERT INTO none VALUES(1); VACUUM").unwrap();
        destination.execute_batch("INSERT INTO before VALUES(2)").unwrap();
    }
}

#[test]
fn a_copy_of_trees_is_the_snapshot_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(folder.path(), "trees");
    fill(&source);
    let before = sums(&source);
    let other = open(folder.path(), "trees");
    let mut destination = open(folder.path(), "plain");
    let backup = Backup::new(&source, &mut destination).unwrap();
    assert_eq!(backup.step(1).unwrap(), StepResult::More);
    // Reads by its own connection do not disturb it.
    assert_eq!(sums(&source), before);
    other.execute_batch("DELETE FROM t WHERE id > 100; INSERT INTO none VALUES(1); DROP TABLE w").unwrap();
    assert_eq!(backup.step(-1).unwrap(), StepResult::Done);
    drop(backup);
    assert_eq!(sums(&destination), before);
    assert_eq!(other.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 100);
    assert_eq!(source.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 100);
}

#[test]
fn a_copy_restarts_when_its_own_connection_writes() {
    for from in ["trees", "plain"] {
        let folder = tempfile::tempdir().unwrap();
        let source = open(folder.path(), from);
        fill(&source);
        let mut destination = open(folder.path(), "copies");
        let backup = Backup::new(&source, &mut destination).unwrap();
        assert_eq!(backup.step(10).unwrap(), StepResult::More);
        source.execute_batch("DELETE FROM t WHERE id > 100; CREATE TABLE more(a)").unwrap();
        while backup.step(10).unwrap() == StepResult::More {}
        drop(backup);
        assert_eq!(sums(&destination), sums(&source), "{from}");
        assert_eq!(sums(&destination)[1], 100);
    }
}

#[test]
fn concurrent_writes_at_the_destination_are_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(folder.path(), "plain");
    fill(&source);
    let mut destination = open(folder.path(), "trees");
    destination.execute_batch("CREATE TABLE before(a)").unwrap();
    let other = open(folder.path(), "trees");
    let backup = Backup::new(&source, &mut destination).unwrap();
    assert_eq!(backup.step(10).unwrap(), StepResult::More);
    other.execute_batch("CREATE TABLE another(a); INSERT INTO another VALUES(1)").unwrap();
    let error = backup.step(-1).unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    drop(backup);
    assert_eq!(other.query_row("SELECT count(*) FROM another", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn autoincrement_continues_in_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    for to in ["plain", "other trees"] {
        let source = open(folder.path(), "trees");
        source
            .execute_batch(
                "DROP TABLE IF EXISTS n; CREATE TABLE n(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
                 INSERT INTO n(v) VALUES(1); INSERT INTO n(v) VALUES(2), (3); DELETE FROM n WHERE id = 3",
            )
            .unwrap();
        let mut destination = open(folder.path(), to);
        let backup = Backup::new(&source, &mut destination).unwrap();
        while backup.step(1).unwrap() == StepResult::More {}
        drop(backup);
        let seq = "SELECT seq FROM sqlite_sequence WHERE name = 'n'";
        assert_eq!(destination.query_row(seq, [], |row| row.get::<_, i64>(0)).unwrap(), 3, "{to}");
        destination.execute_batch("INSERT INTO n(v) VALUES(4)").unwrap();
        assert_eq!(destination.last_insert_rowid(), 4, "{to}");
    }
}

/// A plain file with content is recognized by its size; trees have none.
#[test]
fn vacuum_into_refuses_a_database_with_content() {
    for from in ["plain", "trees"] {
        let folder = tempfile::tempdir().unwrap();
        let source = open(folder.path(), from);
        fill(&source);
        let into = format!("VACUUM INTO 'yesquel:{}'", folder.path().join("others").display());
        {
            let other = open(folder.path(), "others");
            other.execute_batch("CREATE TABLE theirs(a); INSERT INTO theirs VALUES(1)").unwrap();
        }
        for _ in 0..2 {
            let message = source.execute_batch(&into).unwrap_err().to_string();
            assert!(message.contains("output file already exists"), "{from}: {message}");
            let other = open(folder.path(), "others");
            let tables = "SELECT group_concat(name) FROM sqlite_schema";
            let tables: String = other.query_row(tables, [], |row| row.get(0)).unwrap();
            assert_eq!(tables, "theirs", "{from}");
        }
        let fresh = folder.path().join("fresh").display().to_string();
        source.execute_batch(&format!("VACUUM INTO 'yesquel:{fresh}'")).unwrap();
        assert_eq!(sums(&open(folder.path(), "fresh")), sums(&source), "{from}");
    }
}
