//! The acts on stock SQLite: what they do is right, and what they compare finds what is wrong.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use yesquel_histories::{ConsistencyModel, ListOperation, RecordedTransaction, check};
use yesquel_seeds::{Random, check_seeds};
use yesquel_sql_histories::{
    OperationNotes, SqlAct, compare_columns, compare_indexes, elements, first_schema, list_key, outcome_of,
    row_of, run, run_all, table_of, take_back,
};

const LISTS: usize = 2;
const KEYS: i64 = 2;
const WIDE: usize = 2;

#[derive(Default)]
struct Notes {
    numbers: i64,
    operations: Vec<ListOperation>,
    compared: u64,
}

impl OperationNotes for Notes {
    fn number(&mut self) -> i64 {
        self.numbers += 1;
        self.numbers
    }

    fn note(&mut self, operation: ListOperation) {
        self.operations.push(operation);
    }

    fn operations(&self) -> usize {
        self.operations.len()
    }

    fn rolled_back(&mut self, to: usize) {
        take_back(&mut self.operations, to);
    }

    fn compared(&mut self) {
        self.compared += 1;
    }
}

fn open() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&first_schema(LISTS, KEYS, WIDE)).unwrap();
    connection
}

fn drawn(random: &mut Random) -> SqlAct {
    let (table, key) = (random.next(2) as usize, random.next(KEYS as u64) as i64);
    let value = random.next(4) as i64;
    match random.next(14) {
        0..3 => SqlAct::Append { table, key },
        3 => SqlAct::Read { table, key },
        4 => SqlAct::ReadAll { table, keys: KEYS },
        5 => SqlAct::InsertRow { value },
        6 => SqlAct::UpdateRows { value },
        7 => SqlAct::DeleteRow { value },
        8 => SqlAct::UpdateWide { table },
        9 => SqlAct::AddColumn { table },
        10 => SqlAct::DropColumn { table },
        11 => SqlAct::Recreate { table },
        12 => SqlAct::ChangeIndex { table: Some(table), create: random.next(2) == 0 },
        _ => SqlAct::ChangeIndex { table: None, create: random.next(2) == 0 },
    }
}

#[test]
fn transactions_of_one_connection_are_right() {
    check_seeds(50, |seed| {
        let (connection, mut random, mut notes) = (open(), Random::new(seed), Notes::default());
        let mut history = Vec::new();
        for at in 0..40 {
            let mut acts: Vec<SqlAct> = (0..1 + random.next(4)).map(|_| drawn(&mut random)).collect();
            if random.next(3) == 0 {
                acts.insert(random.next(acts.len() as u64) as usize, SqlAct::Savepoint);
                acts.push(SqlAct::RollbackTo);
            }
            connection.execute_batch("BEGIN").unwrap();
            run_all(&connection, &acts, &mut notes).unwrap();
            let done = connection.execute_batch("COMMIT");
            let operations = std::mem::take(&mut notes.operations);
            let transaction = RecordedTransaction::committed(0, 2 * at, 2 * at + 1, operations);
            history.push(transaction.with_outcome(outcome_of(&done)));
            (0..WIDE).for_each(|table| {
                run(&connection, &SqlAct::CompareColumns { table }, &mut notes).unwrap();
            });
            run(&connection, &SqlAct::CompareIndexes, &mut notes).unwrap();
        }
        assert_eq!(notes.compared, 40 * (WIDE as u64 + 1));
        assert!(check(&history, ConsistencyModel::StrictSerializable).unwrap().is_clean());
        // Savepoints are left out of the history, and of the lists.
        let appended = |wanted| {
            let all = history.iter().flat_map(|one| &one.operations);
            let is_append = |one: &&ListOperation| match one {
                ListOperation::Append { key, .. } => *key == wanted,
                ListOperation::Read { .. } => false,
            };
            all.filter(is_append).count()
        };
        for key in (0..LISTS).flat_map(|table| (0..KEYS).map(move |key| list_key(table, key))) {
            let sql = format!("SELECT v FROM list{} WHERE k = ?1", table_of(key));
            let row = row_of(key) as i64;
            let list: String = connection.query_row(&sql, [row], |row| row.get(0)).unwrap();
            assert_eq!(elements(&list).len(), appended(key));
        }
    });
}

/// Runs a comparison after a change without a note, which it must find.
fn is_found(change: &str, compare: impl Fn(&Connection) -> rusqlite::Result<()>) {
    let connection = open();
    compare(&connection).unwrap();
    connection.execute_batch(change).unwrap();
    let found = catch_unwind(AssertUnwindSafe(|| compare(&connection)));
    assert!(found.is_err(), "{change}");
}

#[test]
fn comparisons_find_what_is_wrong() {
    let columns = |connection: &Connection| compare_columns(connection, 1);
    is_found("ALTER TABLE wide1 ADD COLUMN c9 INT DEFAULT 9", columns);
    is_found("UPDATE wide1 SET c0 = 1 WHERE id = 2", columns);
    is_found("DELETE FROM wide1 WHERE id = 2", columns);
    is_found("CREATE INDEX first1 ON wide1(c0)", columns);
    is_found("UPDATE shape SET n = 1 WHERE t = 'value of wide1'", columns);
    is_found("CREATE INDEX byv ON rows(v)", compare_indexes);
}
