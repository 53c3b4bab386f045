//! Statements, and small groups of them, that clients run.

use crate::{LIST_TABLES_MAX, notes::OperationNotes, schema};
use rusqlite::{Connection, OptionalExtension as _, Result};
use yesquel_histories::{Element, ListKey, ListOperation};

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginMode {
    /// Each statement is a transaction of its own.
    Autocommit,
    /// `BEGIN`
    Deferred,
    /// `BEGIN IMMEDIATE`
    Immediate,
}

/// Statement, or a few that belong together. Tables are numbered from 0, separately those of lists and
/// those whose columns change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlAct {
    /// Appends a new element to a list, whose row must exist.
    Append {
        /// Table of the list.
        table: usize,
        /// Row of the list.
        key: i64,
    },
    /// Reads a list, whose row must exist.
    Read {
        /// Table of the list.
        table: usize,
        /// Row of the list.
        key: i64,
    },
    /// Reads all lists of a table.
    ReadAll {
        /// Table of the lists.
        table: usize,
        /// Number of the table's rows, which is checked.
        keys: i64,
    },
    /// Compares the columns of a table with the row that counts them.
    CompareColumns {
        /// The table.
        table: usize,
    },
    /// Changes the first column of all rows of a table whose columns change, and notes the value.
    UpdateWide {
        /// The table.
        table: usize,
    },
    /// Adds a column, and counts it.
    AddColumn {
        /// The table.
        table: usize,
    },
    /// Drops the newest column, and counts it.
    DropColumn {
        /// The table.
        table: usize,
    },
    /// Drops a table and creates it with its first columns.
    Recreate {
        /// The table.
        table: usize,
    },
    /// Creates an index, or drops it, and notes that.
    ChangeIndex {
        /// The table whose columns change; `None`: the table of rows.
        table: Option<usize>,
        /// Whether it is created.
        create: bool,
    },
    /// Inserts a row with a new number and a value, which indexes contain.
    InsertRow {
        /// The value.
        value: i64,
    },
    /// Adds one to a value in all rows that have it.
    UpdateRows {
        /// The value.
        value: i64,
    },
    /// Deletes the first row with a value, if one exists.
    DeleteRow {
        /// The value.
        value: i64,
    },
    /// Counts rows by the table and by each index.
    CompareIndexes,
    /// Begins a savepoint. Only in a transaction.
    Savepoint,
    /// Rolls back to the savepoint, if it was begun.
    RollbackTo,
}

impl SqlAct {
    /// Returns whether the act changes the schema.
    pub fn changes_schema(&self) -> bool {
        matches!(
            self,
            SqlAct::AddColumn { .. }
                | SqlAct::DropColumn { .. }
                | SqlAct::Recreate { .. }
                | SqlAct::ChangeIndex { .. }
        )
    }

    /// Returns whether the act only reads.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            SqlAct::Read { .. }
                | SqlAct::ReadAll { .. }
                | SqlAct::CompareColumns { .. }
                | SqlAct::CompareIndexes
        )
    }
}

/// Returns the key by which a history knows a list. Keys of rows are from 0 to 2^60.
pub fn list_key(table: usize, key: i64) -> ListKey {
    debug_assert!(table < LIST_TABLES_MAX && (0..1 << 60).contains(&key));
    key as u64 * LIST_TABLES_MAX as u64 + table as u64
}

/// Returns the table of a list.
pub fn table_of(key: ListKey) -> usize {
    (key % LIST_TABLES_MAX as u64) as usize
}

/// Returns the row of a list.
pub fn row_of(key: ListKey) -> u64 {
    key / LIST_TABLES_MAX as u64
}

/// Parses a list as a table has it.
///
/// # Panics
///
/// If it contains anything but numbers.
pub fn elements(list: &str) -> Vec<Element> {
    list.split_whitespace().map(|element| element.parse().unwrap()).collect()
}

/// Runs the acts of a transaction that has begun, savepoints included.
pub fn run_all(connection: &Connection, acts: &[SqlAct], notes: &mut impl OperationNotes) -> Result<()> {
    let mut at_savepoint = None;
    for act in acts {
        match act {
            SqlAct::Savepoint => {
                connection.execute_batch("SAVEPOINT s")?;
                at_savepoint = Some(notes.operations());
            }
            SqlAct::RollbackTo => {
                if let Some(to) = at_savepoint {
                    connection.execute_batch("ROLLBACK TO s")?;
                    notes.rolled_back(to);
                }
            }
            act => run(connection, act, notes)?,
        }
    }
    Ok(())
}

/// Runs an act. Savepoints have no effect here.
pub fn run(connection: &Connection, act: &SqlAct, notes: &mut impl OperationNotes) -> Result<()> {
    match act {
        SqlAct::Append { table, key } => {
            let element = notes.number();
            // Its end may never be known.
            notes.note(ListOperation::append(list_key(*table, *key), element as u64));
            let sql = format!("UPDATE list{table} SET v = v || ?1 || ' ' WHERE k = ?2");
            let changed = connection.prepare_cached(&sql)?.execute((element, key))?;
            assert_eq!(changed, 1, "rows of list {key} of table {table}");
        }
        SqlAct::Read { table, key } => {
            let sql = format!("SELECT v FROM list{table} WHERE k = ?1");
            let mut select = connection.prepare_cached(&sql)?;
            let list = select.query_row([key], |row| row.get::<_, String>(0))?;
            notes.note(ListOperation::read(list_key(*table, *key), elements(&list)));
        }
        SqlAct::ReadAll { table, keys } => {
            let sql = format!("SELECT k, v FROM list{table} ORDER BY k");
            let mut select = connection.prepare_cached(&sql)?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
            let rows = rows.collect::<Result<Vec<(i64, String)>>>()?;
            assert_eq!(rows.len() as i64, *keys, "rows of table {table} of lists");
            for (key, list) in rows {
                notes.note(ListOperation::read(list_key(*table, key), elements(&list)));
            }
        }
        SqlAct::CompareColumns { table } => {
            schema::compare_columns(connection, *table)?;
            notes.compared();
        }
        SqlAct::CompareIndexes => {
            schema::compare_indexes(connection)?;
            notes.compared();
        }
        SqlAct::AddColumn { table } => schema::add_column(connection, *table, notes.number())?,
        SqlAct::DropColumn { table } => schema::drop_column(connection, *table)?,
        SqlAct::Recreate { table } => schema::recreate(connection, *table)?,
        SqlAct::UpdateWide { table } => schema::update_wide(connection, *table)?,
        SqlAct::ChangeIndex { table, create } => schema::change_index(connection, *table, *create)?,
        SqlAct::InsertRow { value } => {
            let number = notes.number();
            let mut insert = connection.prepare_cached("INSERT INTO rows(u, v) VALUES (?1, ?2)")?;
            insert.execute((number, value))?;
        }
        SqlAct::UpdateRows { value } => {
            let mut update = connection.prepare_cached("UPDATE rows SET v = v + 1 WHERE v = ?1")?;
            update.execute([value])?;
        }
        SqlAct::DeleteRow { value } => {
            let sql = "SELECT id FROM rows WHERE v = ?1 ORDER BY id LIMIT 1";
            let mut select = connection.prepare_cached(sql)?;
            if let Some(id) = select.query_row([value], |row| row.get::<_, i64>(0)).optional()? {
                connection.prepare_cached("DELETE FROM rows WHERE id = ?1")?.execute([id])?;
            }
        }
        SqlAct::Savepoint | SqlAct::RollbackTo => {}
    }
    Ok(())
}
