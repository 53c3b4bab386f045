//! The schema: statements that change it, and what must be seen of the changes.

use crate::LIST_TABLES_MAX;
use rusqlite::{Connection, Result};

/// Rows of a table whose columns change.
const WIDE_ROWS: i64 = 3;

/// Returns the statements that create the tables, in one transaction: so many tables of lists, each
/// with empty lists of the keys from 0, and tables whose columns change.
pub fn first_schema(lists: usize, keys: i64, wide: usize) -> String {
    assert!(lists <= LIST_TABLES_MAX);
    let mut sql = "BEGIN; CREATE TABLE rows(id INTEGER PRIMARY KEY AUTOINCREMENT, u INT UNIQUE, v INT);
        CREATE TABLE shape(t TEXT PRIMARY KEY, n INT); INSERT INTO shape VALUES ('rows', 0);"
        .to_owned();
    for list in 0..lists {
        let rows = (0..keys).map(|key| format!("({key}, '')")).collect::<Vec<_>>().join(", ");
        sql += &format!("CREATE TABLE list{list}(k INTEGER PRIMARY KEY, v TEXT NOT NULL);");
        if !rows.is_empty() {
            sql += &format!("INSERT INTO list{list} VALUES {rows};");
        }
    }
    for wide in 0..wide {
        sql += &table(wide);
        sql += &format!("INSERT INTO shape VALUES ('wide{wide}', 2), ('index of wide{wide}', 0);");
        sql += &format!("INSERT INTO shape VALUES ('value of wide{wide}', 0);");
    }
    sql + "COMMIT"
}

fn table(wide: usize) -> String {
    let rows = (0..WIDE_ROWS).map(|row| format!("({row}, 0)")).collect::<Vec<_>>().join(", ");
    format!("CREATE TABLE wide{wide}(id INTEGER PRIMARY KEY, c0 INT); INSERT INTO wide{wide} VALUES {rows};")
}

fn note(connection: &Connection, wide: usize, change: &str) -> Result<()> {
    connection.execute_batch(&format!("UPDATE shape SET n = {change} WHERE t = 'wide{wide}'"))
}

/// Adds a column whose value in all rows is its number.
pub(crate) fn add_column(connection: &Connection, wide: usize, number: i64) -> Result<()> {
    connection.execute_batch(&format!("ALTER TABLE wide{wide} ADD COLUMN c{number} INT DEFAULT {number}"))?;
    note(connection, wide, "n + 1")
}

/// Drops the newest column, if there are more than the first ones.
pub(crate) fn drop_column(connection: &Connection, wide: usize) -> Result<()> {
    let sql = format!("SELECT name FROM pragma_table_info('wide{wide}') ORDER BY cid");
    let mut names = connection.prepare(&sql)?;
    let names = names.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>>>()?;
    match names.last() {
        Some(name) if names.len() > 2 => {
            connection.execute_batch(&format!("ALTER TABLE wide{wide} DROP COLUMN {name}"))?;
            note(connection, wide, "n - 1")
        }
        _ => Ok(()),
    }
}

/// Drops a table and creates it anew.
pub(crate) fn recreate(connection: &Connection, wide: usize) -> Result<()> {
    connection.execute_batch(&format!("DROP TABLE wide{wide}; {}", table(wide)))?;
    note(connection, wide, "2")?;
    connection.execute_batch(&format!(
        "UPDATE shape SET n = 0 WHERE t IN ('index of wide{wide}', 'value of wide{wide}')"
    ))
}

/// Changes the first column of all rows, and notes its value.
pub(crate) fn update_wide(connection: &Connection, wide: usize) -> Result<()> {
    connection.execute_batch(&format!("UPDATE wide{wide} SET c0 = c0 + 1"))?;
    connection.execute_batch(&format!("UPDATE shape SET n = n + 1 WHERE t = 'value of wide{wide}'"))
}

/// Creates or drops the index of a table whose columns change, or of the rows by their values.
pub fn change_index(connection: &Connection, wide: Option<usize>, create: bool) -> Result<()> {
    let (index, on, noted) = match wide {
        Some(wide) => (format!("first{wide}"), format!("wide{wide}(c0)"), format!("index of wide{wide}")),
        None => ("byv".to_owned(), "rows(v)".to_owned(), "rows".to_owned()),
    };
    let sql = match create {
        true => format!("CREATE INDEX IF NOT EXISTS {index} ON {on}"),
        false => format!("DROP INDEX IF EXISTS {index}"),
    };
    connection.execute_batch(&sql)?;
    connection.execute_batch(&format!("UPDATE shape SET n = {} WHERE t = '{noted}'", u8::from(create)))
}

/// Compares the columns of a table with the row that counts them, and its index with the row that says
/// whether it exists, in a statement each.
///
/// # Panics
///
/// If they differ.
pub fn compare_columns(connection: &Connection, wide: usize) -> Result<()> {
    let sql = format!(
        "SELECT (SELECT n FROM shape WHERE t = 'wide{wide}'),
            (SELECT n FROM shape WHERE t = 'value of wide{wide}'), w.* FROM wide{wide} w"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let (mut rows, mut count) = (select.query([])?, 0);
    while let Some(row) = rows.next()? {
        let columns = row.as_ref().column_count();
        assert_eq!(row.get::<_, i64>(0)?, columns as i64 - 2, "columns of wide{wide}");
        assert_eq!(row.get::<_, i64>(2)?, count);
        assert_eq!(row.get::<_, i64>(1)?, row.get::<_, i64>(3)?, "the first column of wide{wide}");
        for at in 4..columns {
            let number: i64 = row.as_ref().column_name(at)?.trim_start_matches('c').parse().unwrap();
            assert_eq!(row.get::<_, i64>(at)?, number, "a value of column c{number} of wide{wide}");
        }
        count += 1;
    }
    assert_eq!(count, WIDE_ROWS, "rows of wide{wide}");
    let sql = format!(
        "SELECT (SELECT n FROM shape WHERE t = 'index of wide{wide}'),
            (SELECT count(*) FROM sqlite_schema WHERE name = 'first{wide}'),
            (SELECT count(*) FROM wide{wide} WHERE c0 >= 0)"
    );
    let mut select = connection.prepare_cached(&sql)?;
    select.query_row([], |row| {
        let [noted, exists, rows] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?];
        assert_eq!(noted, exists, "whether wide{wide} has an index");
        assert_eq!(rows, WIDE_ROWS, "rows of wide{wide} by its index");
        Ok(())
    })
}

/// Compares the rows of a table with those of its indexes, in one statement, and whether the index by
/// value exists with the row that says so.
///
/// # Panics
///
/// If they differ.
pub fn compare_indexes(connection: &Connection) -> Result<()> {
    let sql = "SELECT (SELECT n FROM shape WHERE t = 'rows'),
            (SELECT count(*) FROM sqlite_schema WHERE name = 'byv'),
            (SELECT count(*) || ' ' || total(v) FROM rows NOT INDEXED),
            (SELECT count(*) || ' ' || total(v) FROM rows WHERE u > 0),
            (SELECT count(*) || ' ' || total(v) FROM rows WHERE v >= 0)";
    let mut select = connection.prepare_cached(sql)?;
    select.query_row([], |row| {
        let [noted, exists] = [row.get::<_, i64>(0)?, row.get(1)?];
        assert_eq!(noted, exists, "whether the index exists");
        let [all, by_number, by_value] = [row.get::<_, String>(2)?, row.get(3)?, row.get(4)?];
        assert_eq!(all, by_number, "rows by the unique index");
        assert_eq!(all, by_value, "rows by the index of values");
        Ok(())
    })
}
