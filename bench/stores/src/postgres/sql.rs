//! SQL texts: names, verbs, the table, and facts about the
//! server.

use super::{KEY, TableLayout, VALUE};
use serval_model::{FieldSelection, Record, Schema};
use tokio_postgres::Error;

/// Types of the key's column.
pub(super) const TEXT_TYPES: &[&str] = &["text", "character varying", "character"];
/// Types of a field's column.
pub(super) const VALUE_TYPES: &[&str] = &["text", "character varying", "character", "bytea"];

/// Appends a quoted identifier.
pub(super) fn quote(sql: &mut String, name: &str) {
    quote_with(sql, name, '"');
}

fn quote_with(sql: &mut String, text: &str, mark: char) {
    sql.push(mark);
    for (index, part) in text.split(mark).enumerate() {
        if index > 0 {
            sql.extend([mark, mark]);
        }
        sql.push_str(part);
    }
    sql.push(mark);
}

/// Appends the name of a table or column in ASCII lower case, as Postgres folds the
/// names in YCSB's SQL.
pub(super) fn name(sql: &mut String, text: &str) {
    let start = sql.len();
    quote(sql, text);
    sql[start..].make_ascii_lowercase();
}

/// Writes the start of a SELECT of the selected fields.
///
/// All fields are `*`, as in YCSB: the table knows best which it has.
pub(super) fn select(sql: &mut String, layout: TableLayout, table: &str, fields: &FieldSelection) {
    sql.clear();
    sql.push_str("SELECT ");
    if fields.is_all() {
        sql.push_str(if layout == TableLayout::Json { "\"ycsb_value\"" } else { "*" });
    }
    for (index, field) in fields.iter().enumerate() {
        sql.push_str(if index == 0 { "" } else { ", " });
        match layout {
            TableLayout::Columns => name(sql, field),
            TableLayout::Json => {
                sql.push_str("\"ycsb_value\"->>");
                literal(sql, field);
            }
        }
    }
    sql.push_str(" FROM ");
    name(sql, table);
}

/// Appends a string literal with escaped quotes and backslashes, independent of the
/// server's settings.
fn literal(sql: &mut String, text: &str) {
    if text.contains('\\') {
        sql.push_str(" E");
        quote_with(sql, &text.replace('\\', "\\\\"), '\'');
    } else {
        quote_with(sql, text, '\'');
    }
}

fn parameter(sql: &mut String, number: usize) {
    sql.push('$');
    if number >= 10 {
        // Usually at most two digits.
        sql.push_str(&number.to_string());
    } else {
        sql.push((b'0' + number as u8) as char);
    }
}

/// `UPDATE`; the key is the first parameter.
pub(super) fn update(sql: &mut String, layout: TableLayout, table: &str, fields: &Record) {
    sql.clear();
    sql.push_str("UPDATE ");
    name(sql, table);
    sql.push_str(" SET ");
    match layout {
        TableLayout::Json => sql.push_str("\"ycsb_value\" = \"ycsb_value\" || $2"),
        // SQL requires an assignment; this one still shows whether the record exists.
        TableLayout::Columns if fields.is_empty() => sql.push_str("\"ycsb_key\" = \"ycsb_key\""),
        TableLayout::Columns => {
            for (index, (field, _)) in fields.iter().enumerate() {
                sql.push_str(if index == 0 { "" } else { ", " });
                name(sql, field);
                sql.push_str(" = ");
                parameter(sql, index + 2);
            }
        }
    }
    sql.push_str(" WHERE \"ycsb_key\" = $1");
}

/// `INSERT`; the key is the first parameter.
pub(super) fn insert(sql: &mut String, layout: TableLayout, table: &str, record: &Record) {
    sql.clear();
    sql.push_str("INSERT INTO ");
    name(sql, table);
    sql.push_str(" (\"ycsb_key\"");
    let mut values = 1;
    match layout {
        TableLayout::Json => {
            sql.push_str(", \"ycsb_value\"");
            values += 1;
        }
        TableLayout::Columns => {
            for (field, _) in record.iter() {
                sql.push_str(", ");
                name(sql, field);
            }
            values += record.len();
        }
    }
    sql.push_str(") VALUES (");
    for number in 1..=values {
        sql.push_str(if number == 1 { "" } else { ", " });
        parameter(sql, number);
    }
    sql.push(')');
}

/// `COPY` of the key and these fields into the table.
pub(super) fn copy(sql: &mut String, layout: TableLayout, table: &str, columns: &[&str]) {
    sql.clear();
    sql.push_str("COPY ");
    name(sql, table);
    sql.push_str(" (\"ycsb_key\"");
    match layout {
        TableLayout::Json => sql.push_str(", \"ycsb_value\""),
        TableLayout::Columns => {
            for column in columns {
                sql.push_str(", ");
                name(sql, column);
            }
        }
    }
    sql.push_str(") FROM STDIN (FORMAT binary)");
}

/// Returns the statement that creates the table.
pub(super) fn create_table(layout: TableLayout, value_type: &str, schema: &Schema) -> String {
    let mut sql = String::from("CREATE TABLE IF NOT EXISTS ");
    name(&mut sql, &schema.table);
    // Byte order, whatever the database's collation.
    sql.push_str(&format!(" ({KEY} TEXT COLLATE \"C\" PRIMARY KEY"));
    match layout {
        TableLayout::Json => sql.push_str(&format!(", {VALUE} JSONB NOT NULL")),
        TableLayout::Columns => {
            for field in &schema.fields {
                sql.push_str(", ");
                name(&mut sql, field);
                sql.push(' ');
                sql.push_str(value_type);
            }
        }
    }
    sql.push(')');
    sql
}

/// Returns the columns of a table and their types; empty if it does not exist.
pub(super) async fn columns(
    client: &tokio_postgres::Client,
    table: &str,
) -> Result<Vec<(String, String)>, Error> {
    let mut quoted = String::new();
    name(&mut quoted, table);
    let sql = "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute \
               WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let rows = client.query(sql, &[&quoted]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Returns whether the server is a replica.
pub(super) async fn is_standby(client: &tokio_postgres::Client) -> Result<bool, Error> {
    client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)
}

/// Asks the server for its effective settings. A server that only speaks Postgres's
/// protocol may lack some; then returns none.
pub(super) async fn facts(client: &tokio_postgres::Client) -> Result<Vec<(String, String)>, Error> {
    const NAMES: [&str; 8] = [
        "server_version",
        "synchronous_commit",
        "fsync",
        "shared_buffers",
        "max_connections",
        "encoding",
        "collation",
        "tls",
    ];
    let sql = "SELECT current_setting('server_version'), current_setting('synchronous_commit'), \
               current_setting('fsync'), current_setting('shared_buffers'), current_setting('max_connections'), \
               pg_encoding_to_char(encoding)::text, datcollate::text, \
               coalesce((SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()), 'none') \
               FROM pg_database WHERE datname = current_database()";
    let row = match client.query_one(sql, &[]).await {
        Ok(row) => row,
        Err(error) if error.as_db_error().is_some() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    NAMES.iter().enumerate().map(|(index, name)| Ok(((*name).to_owned(), row.try_get(index)?))).collect()
}
