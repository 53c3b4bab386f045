//! Isolation of transactions: the cases of Hermitage (<https://github.com/ept/hermitage>) in SQL, on
//! rows of one table and on rows of tables in different groups of a cluster. Snapshot isolation
//! allows write skew, and none of the other anomalies; serializable transactions have none.

use crate::servers::Cluster;
use rusqlite::{Connection, ErrorCode, OpenFlags, types::Value};
use tempfile::TempDir;

/// Expected result of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Comes {
    /// Success.
    Done,
    /// These rows, with `|` between columns and a space between rows.
    Rows(&'static str),
    /// A conflict, after which the transaction must be retried.
    Conflict,
    /// Success by snapshot isolation; if transactions are serializable, a conflict, and the end of
    /// the case.
    Skew,
}
use Comes::{Conflict, Done, Rows, Skew};

/// Steps of numbered connections, in order.
type Steps = &'static [(usize, &'static str, Comes)];

fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn run(connection: &Connection, sql: &str) -> Result<String, rusqlite::Error> {
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| row.get::<_, Value>(column));
        let values: Vec<String> = values.collect::<Result<Vec<_>, _>>()?.iter().map(text).collect();
        all.push(values.join("|"));
    }
    Ok(all.join(" "))
}

const ROWS: &str = "INSERT INTO test VALUES(1, 10), (2, 20)";
const TABLE: &str = "CREATE TABLE test(id INTEGER PRIMARY KEY, value INT);";
/// Hermitage's table, with odd and even rows in tables of different groups.
const TABLES: &str = "
    CREATE TABLE odd(id INTEGER PRIMARY KEY, value INT);
    CREATE TABLE even(id INTEGER PRIMARY KEY, value INT);
    CREATE VIEW test AS SELECT * FROM odd UNION ALL SELECT * FROM even;
    CREATE TRIGGER inserts INSTEAD OF INSERT ON test BEGIN
        INSERT INTO odd SELECT new.id, new.value WHERE new.id % 2 = 1;
        INSERT INTO even SELECT new.id, new.value WHERE new.id % 2 = 0;
    END;
    CREATE TRIGGER updates INSTEAD OF UPDATE ON test BEGIN
        UPDATE odd SET value = new.value WHERE id = old.id;
        UPDATE even SET value = new.value WHERE id = old.id;
    END;
    CREATE TRIGGER deletes INSTEAD OF DELETE ON test BEGIN
        DELETE FROM odd WHERE id = old.id;
        DELETE FROM even WHERE id = old.id;
    END;";

/// Runs a case at each isolation level, in a folder and at several groups.
fn check(name: &str, steps: Steps) {
    assert!(yesquel_sqlite::is_linked());
    for level in ["snapshot", "serializable"] {
        let folder = TempDir::new().unwrap();
        let address = format!("file:yesquel:{}?durability=none&isolation={level}", folder.path().display());
        check_at(&format!("{name}, {level}"), &address, TABLE, level == "serializable", steps);
        let cluster = Cluster::start();
        let address = cluster.named(&[0], "hermitage", &format!("placement=0,1&isolation={level}"));
        check_at(&format!("{name}, groups, {level}"), &address, TABLES, level == "serializable", steps);
    }
}

fn check_at(name: &str, address: &str, schema: &str, is_serializable: bool, steps: Steps) {
    let open = || {
        let connection = Connection::open_with_flags(address, OpenFlags::default()).unwrap();
        assert!(connection.path().unwrap().starts_with("yesquel:"));
        // Without waiting for locks.
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        connection
    };
    let connections = [open(), open(), open()];
    connections[0].execute_batch(schema).unwrap();
    connections[0].execute_batch(ROWS).unwrap();
    for (number, (connection, sql, comes)) in steps.iter().enumerate() {
        let outcome = run(&connections[*connection], sql);
        let what = format!("{name}, step {number}: {connection}: {sql}: {outcome:?}");
        let comes = match comes {
            Skew if is_serializable => &Conflict,
            Skew => &Done,
            comes => comes,
        };
        match (comes, outcome) {
            (Done, Ok(_)) => {}
            (Rows(rows), Ok(found)) => assert_eq!(found, *rows, "{what}"),
            (Conflict, Err(error)) => {
                assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{what}");
            }
            _ => panic!("{what}: {comes:?}"),
        }
        if is_serializable && steps[number].2 == Skew {
            return;
        }
    }
}

const ALL: &str = "SELECT * FROM test ORDER BY id";

#[test]
fn dirty_writes_are_prevented() {
    check(
        "G0",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 12 WHERE id = 1", Done),
            (0, "UPDATE test SET value = 21 WHERE id = 2", Done),
            (0, "COMMIT", Done),
            (2, ALL, Rows("1|11 2|21")),
            (1, "UPDATE test SET value = 22 WHERE id = 2", Done),
            (1, "COMMIT", Conflict),
            (1, "ROLLBACK", Done),
            (2, ALL, Rows("1|11 2|21")),
        ],
    );
}

#[test]
fn aborted_reads_are_prevented() {
    check(
        "G1a",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "UPDATE test SET value = 101 WHERE id = 1", Done),
            (1, ALL, Rows("1|10 2|20")),
            (0, "ROLLBACK", Done),
            (1, ALL, Rows("1|10 2|20")),
            (1, "COMMIT", Done),
        ],
    );
}

#[test]
fn intermediate_reads_are_prevented() {
    check(
        "G1b",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "UPDATE test SET value = 101 WHERE id = 1", Done),
            (1, ALL, Rows("1|10 2|20")),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (0, "COMMIT", Done),
            (1, ALL, Rows("1|10 2|20")),
            (1, "COMMIT", Done),
            (1, ALL, Rows("1|11 2|20")),
        ],
    );
}

#[test]
fn circular_information_flow_is_prevented() {
    check(
        "G1c",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 22 WHERE id = 2", Done),
            (0, "SELECT * FROM test WHERE id = 2", Rows("2|20")),
            (1, "SELECT * FROM test WHERE id = 1", Rows("1|10")),
            (0, "COMMIT", Done),
            (1, "COMMIT", Skew),
            (2, ALL, Rows("1|11 2|22")),
        ],
    );
}

#[test]
fn observed_transactions_do_not_vanish() {
    check(
        "OTV",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (2, "BEGIN", Done),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (0, "UPDATE test SET value = 19 WHERE id = 2", Done),
            (1, "UPDATE test SET value = 12 WHERE id = 1", Done),
            (0, "COMMIT", Done),
            (2, "SELECT * FROM test WHERE id = 1", Rows("1|11")),
            (1, "UPDATE test SET value = 18 WHERE id = 2", Done),
            (2, "SELECT * FROM test WHERE id = 2", Rows("2|19")),
            (1, "COMMIT", Conflict),
            (1, "ROLLBACK", Done),
            (2, ALL, Rows("1|11 2|19")),
            (2, "COMMIT", Done),
        ],
    );
}

#[test]
fn predicates_read_one_snapshot() {
    check(
        "PMP",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "SELECT * FROM test WHERE value = 30", Rows("")),
            (1, "INSERT INTO test VALUES(3, 30)", Done),
            (1, "COMMIT", Done),
            (0, "SELECT * FROM test WHERE value % 3 = 0", Rows("")),
            (0, "COMMIT", Done),
        ],
    );
    check(
        "PMP for writes",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "UPDATE test SET value = value + 10", Done),
            (1, "DELETE FROM test WHERE value = 20", Done),
            (0, "COMMIT", Done),
            (1, "COMMIT", Conflict),
            (1, "ROLLBACK", Done),
            (2, ALL, Rows("1|20 2|30")),
        ],
    );
}

#[test]
fn lost_updates_are_prevented() {
    check(
        "P4",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "SELECT * FROM test WHERE id = 1", Rows("1|10")),
            (1, "SELECT * FROM test WHERE id = 1", Rows("1|10")),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (0, "COMMIT", Done),
            (1, "COMMIT", Conflict),
            (1, "ROLLBACK", Done),
        ],
    );
}

#[test]
fn reads_are_of_one_snapshot() {
    check(
        "G-single",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "SELECT * FROM test WHERE id = 1", Rows("1|10")),
            (1, "UPDATE test SET value = 12 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 18 WHERE id = 2", Done),
            (1, "COMMIT", Done),
            (0, "SELECT * FROM test WHERE id = 2", Rows("2|20")),
            (0, "COMMIT", Done),
        ],
    );
    check(
        "G-single with a write",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "SELECT * FROM test WHERE id = 1", Rows("1|10")),
            (1, "UPDATE test SET value = 12 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 18 WHERE id = 2", Done),
            (1, "COMMIT", Done),
            (0, "DELETE FROM test WHERE value = 20", Done),
            (0, "COMMIT", Conflict),
            (0, "ROLLBACK", Done),
            (2, ALL, Rows("1|12 2|18")),
        ],
    );
}

#[test]
fn write_skew_is_allowed_except_with_begin_immediate_or_serializable() {
    check(
        "G2-item",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "SELECT * FROM test WHERE id IN (1, 2)", Rows("1|10 2|20")),
            (1, "SELECT * FROM test WHERE id IN (1, 2)", Rows("1|10 2|20")),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 21 WHERE id = 2", Done),
            (0, "COMMIT", Done),
            (1, "COMMIT", Skew),
            (2, ALL, Rows("1|11 2|21")),
        ],
    );
    check(
        "G2",
        &[
            (0, "BEGIN", Done),
            (1, "BEGIN", Done),
            (0, "SELECT * FROM test WHERE value % 3 = 0", Rows("")),
            (1, "SELECT * FROM test WHERE value % 3 = 0", Rows("")),
            (0, "INSERT INTO test VALUES(3, 30)", Done),
            (1, "INSERT INTO test VALUES(4, 42)", Done),
            (0, "COMMIT", Done),
            (1, "COMMIT", Skew),
            (2, "SELECT * FROM test WHERE value % 3 = 0 ORDER BY id", Rows("3|30 4|42")),
        ],
    );
    check(
        "G2 of two edges",
        &[
            (0, "BEGIN", Done),
            (0, ALL, Rows("1|10 2|20")),
            (1, "UPDATE test SET value = value + 5 WHERE id = 2", Done),
            (2, "BEGIN", Done),
            (2, ALL, Rows("1|10 2|25")),
            (2, "COMMIT", Done),
            (0, "UPDATE test SET value = 0 WHERE id = 1", Done),
            (0, "COMMIT", Skew),
            (2, ALL, Rows("1|0 2|25")),
        ],
    );
    check(
        "G2-item, immediate",
        &[
            (0, "BEGIN IMMEDIATE", Done),
            (1, "BEGIN IMMEDIATE", Conflict),
            (0, "SELECT * FROM test WHERE id IN (1, 2)", Rows("1|10 2|20")),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (0, "COMMIT", Done),
            (1, "BEGIN IMMEDIATE", Done),
            (1, "SELECT * FROM test WHERE id IN (1, 2)", Rows("1|11 2|20")),
            (1, "UPDATE test SET value = 21 WHERE id = 2", Done),
            (1, "COMMIT", Done),
        ],
    );
}

#[test]
fn rollback_to_a_savepoint_undoes_later_changes() {
    check(
        "savepoints",
        &[
            (0, "BEGIN", Done),
            (0, "UPDATE test SET value = 11 WHERE id = 1", Done),
            (0, "SAVEPOINT a", Done),
            (0, "UPDATE test SET value = 12 WHERE id = 1", Done),
            (1, "UPDATE test SET value = 21 WHERE id = 2", Done),
            (0, "DELETE FROM test WHERE id = 2", Done),
            (0, "ROLLBACK TO a", Done),
            (0, ALL, Rows("1|11 2|20")),
            // The deletion of the row that has changed is rolled back, and its read is not.
            (0, "COMMIT", Skew),
            (2, ALL, Rows("1|11 2|21")),
        ],
    );
}

/// What a transaction has read of a tree whose creation is rolled back does not keep it from its
/// commit.
#[test]
fn a_table_that_is_rolled_back_was_never_read() {
    check(
        "savepoint before a table",
        &[
            (0, "BEGIN", Done),
            (0, "INSERT INTO test VALUES(5, 50)", Done),
            (0, "SAVEPOINT s", Done),
            (0, "CREATE TABLE u(x)", Done),
            (0, "INSERT INTO u VALUES(7)", Done),
            (0, "SELECT * FROM u", Rows("7")),
            (0, "ROLLBACK TO s", Done),
            (0, "COMMIT", Done),
            (1, ALL, Rows("1|10 2|20 5|50")),
        ],
    );
}

/// A serializable transaction depends on the schemas of all databases that it reads.
#[test]
fn a_schema_that_was_read_is_guarded() {
    assert!(yesquel_sqlite::is_linked());
    let folder = TempDir::new().unwrap();
    let address = |name: &str| {
        let path = folder.path().display();
        format!("file:yesquel:{path}?durability=none&isolation=serializable&database={name}")
    };
    let connections = [(); 3].map(|()| {
        let connection = Connection::open(address("one")).unwrap();
        connection.execute("ATTACH ? AS o", [address("other")]).unwrap();
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        connection
    });
    let [first, second, third] = connections.each_ref();
    run(first, "CREATE VIEW v AS SELECT 1 AS one").unwrap();
    run(first, "CREATE TABLE o.x(a)").unwrap();
    run(first, "INSERT INTO o.x VALUES(1)").unwrap();
    run(first, "BEGIN").unwrap();
    assert_eq!(run(first, "SELECT one FROM v").unwrap(), "1");
    run(first, "UPDATE o.x SET a = 2").unwrap();
    run(second, "DROP VIEW v").unwrap();
    run(second, "CREATE VIEW v AS SELECT 2 AS one").unwrap();
    // It is after the change of the view and before the update.
    assert_eq!(run(third, "SELECT one, a FROM v, o.x").unwrap(), "2|1");
    let error = run(first, "COMMIT").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
}
