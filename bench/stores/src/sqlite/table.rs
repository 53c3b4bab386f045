//! Creates or checks the table of YCSB's JDBC client.

use super::{KEY, QUOTES};
use rusqlite::{Connection, Error};
use serval_model::{Purpose, Schema};

/// Why the table cannot be used.
pub(crate) enum TableFault {
    /// An error of SQLite.
    Sqlite(Error),
    /// A fault of the table, with advice.
    Table(String),
}

impl From<Error> for TableFault {
    fn from(error: Error) -> TableFault {
        TableFault::Sqlite(error)
    }
}

/// The database that holds the table, for messages.
pub(crate) struct Holder {
    /// The store's name.
    pub(crate) store: &'static str,
    /// Its noun.
    pub(crate) noun: &'static str,
    /// Property of its location.
    pub(crate) property: &'static str,
    /// Suffix of CREATE TABLE.
    pub(crate) kind: &'static str,
}

/// Creates the table, or checks the existing one.
pub(crate) fn check(
    connection: &Connection,
    Schema { table, fields }: &Schema,
    purpose: Purpose,
    holder: &Holder,
) -> Result<(), TableFault> {
    for (index, field) in fields.iter().enumerate() {
        let mut taken = fields[..index].iter().map(String::as_str).chain([KEY]);
        if let Some(other) = taken.find(|other| other.eq_ignore_ascii_case(field)) {
            return Err(TableFault::Table(format!(
                "fields '{other}' and '{field}' would be one column: SQL takes names that differ only in case for \
                 the same; change fieldnameprefix"
            )));
        }
    }
    if purpose == Purpose::Load {
        let mut sql = String::from("CREATE TABLE IF NOT EXISTS ");
        QUOTES.name(&mut sql, table);
        sql.push_str(" (YCSB_KEY TEXT PRIMARY KEY");
        for field in fields {
            sql.push_str(", ");
            QUOTES.column(&mut sql, field);
            sql.push_str(" TEXT");
        }
        sql.push(')');
        sql.push_str(holder.kind);
        connection.execute_batch(&sql)?;
    }
    let Holder { store, noun, property, .. } = holder;
    let columns = columns(connection, table)?;
    if columns.is_empty() {
        return Err(TableFault::Table(format!(
            "the {noun} has no table '{table}': load it first, with 'serval load {store}' and the same {property} \
             and table"
        )));
    }
    let missing: Vec<String> = std::iter::once(KEY)
        .chain(fields.iter().map(String::as_str))
        .filter(|name| !columns.iter().any(|column| column.eq_ignore_ascii_case(name)))
        .map(str::to_ascii_uppercase)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(TableFault::Table(format!(
        "table '{table}' lacks the columns {}; it has {}: set fieldcount and fieldnameprefix as they were when it was \
         loaded, or load into another {noun} ({property}) or table",
        missing.join(", "),
        columns.join(", ")
    )))
}

/// Returns the columns of a table; empty if it does not exist.
fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}
