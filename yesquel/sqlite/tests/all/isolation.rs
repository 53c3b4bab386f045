//! Isolation of transactions: the cases of Hermitage (<https://github.com/ept/hermitage>) in SQL.
//! Snapshot isolation allows write skew, and none of the other anomalies.

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
}
use Comes::{Conflict, Done, Rows};

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

fn check(name: &str, steps: Steps) {
    assert!(yesquel_sqlite::is_linked());
    let folder = TempDir::new().unwrap();
    let address = format!("file:yesquel:{}?durability=none", folder.path().display());
    let open = || {
        let connection = Connection::open_with_flags(&address, OpenFlags::default()).unwrap();
        assert!(connection.path().unwrap().starts_with("yesquel:"));
        // Without waiting for locks.
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        connection
    };
    let connections = [open(), open(), open()];
    connections[0]
        .execute_batch(
            "CREATE TABLE test(id INTEGER PRIMARY KEY, value INT); INSERT INTO test VALUES(1, 10), (2, 20)",
        )
        .unwrap();
    for (number, (connection, sql, comes)) in steps.iter().enumerate() {
        let outcome = run(&connections[*connection], sql);
        let what = format!("{name}, step {number}: {connection}: {sql}: {outcome:?}");
        match (comes, outcome) {
            (Done, Ok(_)) => {}
            (Rows(rows), Ok(found)) => assert_eq!(found, *rows, "{what}"),
            (Conflict, Err(error)) => {
                assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{what}");
            }
            _ => panic!("{what}: {comes:?}"),
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
            (1, "COMMIT", Done),
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
fn write_skew_is_allowed_except_with_begin_immediate() {
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
            (1, "COMMIT", Done),
            (2, ALL, Rows("1|11 2|21")),
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
            // The row that it would have seen is rolled back.
            (0, "COMMIT", Done),
            (2, ALL, Rows("1|11 2|21")),
        ],
    );
}
