//! A client and its verbs.

use super::{
    Columns, KEY,
    link::{Access, CassandraConnector, qualified},
    quote,
};
use crate::reconnecting::Reconnecting;
use scylla::{
    deserialize::row::ColumnIterator,
    response::query_result::QueryResult,
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status};
use std::sync::Arc;

/// One client of a cluster.
#[derive(Debug)]
pub struct CassandraClient {
    session: Reconnecting<CassandraConnector>,
    table: Arc<Columns>,
    /// Buffer for the statement's text, by which the session finds the prepared
    /// statement.
    cql: String,
    /// The prepared read of all fields, the most frequent one.
    read_all: String,
}

/// Parameters of a statement as raw bytes: text and blob have the same encoding, and
/// the node validates text.
enum Values<'a> {
    Key(&'a str),
    Scan(&'a str, i32),
    Insert(&'a str, &'a Record),
    Update(&'a Record, &'a str),
}

impl SerializeRow for Values<'_> {
    fn serialize(
        &self,
        _: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        let mut write = |bytes: &[u8]| match writer.make_cell_writer().set_value(bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err(SerializationError::new(error)),
        };
        let write_all = |record: &Record, write: &mut dyn FnMut(&[u8]) -> Result<(), SerializationError>| {
            record.iter().try_for_each(|(_, value)| write(value))
        };
        match self {
            Values::Key(key) => write(key.as_bytes()),
            Values::Scan(key, limit) => {
                write(key.as_bytes())?;
                write(&limit.to_be_bytes())
            }
            Values::Insert(key, record) => {
                write(key.as_bytes())?;
                write_all(record, &mut write)
            }
            Values::Update(record, key) => {
                write_all(record, &mut write)?;
                write(key.as_bytes())
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

impl CassandraClient {
    pub(super) fn new(session: Reconnecting<CassandraConnector>, table: Arc<Columns>) -> Self {
        let mut client = CassandraClient { session, table, cql: String::new(), read_all: String::new() };
        let table = Arc::clone(&client.table);
        client.select_one(&table.table, &FieldSelection::default());
        client.read_all = std::mem::take(&mut client.cql);
        client
    }

    /// Writes the start of a SELECT of the selected fields.
    fn select(&mut self, table: &str, fields: &FieldSelection) {
        let cql = &mut self.cql;
        cql.clear();
        cql.push_str("SELECT ");
        let start = cql.len();
        let comma = |cql: &mut String| cql.push_str(if cql.len() == start { "" } else { ", " });
        for field in fields.iter() {
            comma(cql);
            quote(cql, field);
        }
        if fields.is_all() {
            // Named instead of *: a column that is added during the run would shift the
            // others of the prepared statement.
            for column in self.table.of(table) {
                comma(cql);
                quote(cql, &column.name);
            }
            if cql.len() == start {
                cql.push_str(KEY);
            }
        }
        cql.push_str(" FROM ");
        qualified(cql, self.session.server(), table);
    }

    /// A SELECT of one record's fields.
    fn select_one(&mut self, table: &str, fields: &FieldSelection) {
        self.select(table, fields);
        self.cql.push_str(" WHERE y_id = ? LIMIT 1");
    }

    /// Runs the statement in the buffer, which returns no rows.
    async fn write(&mut self, values: Values<'_>) -> Outcome {
        match self.session.execute(Access::Write, &self.cql, &values).await {
            Ok(_) => Outcome::OK,
            Err(outcome) => outcome,
        }
    }
}

impl Columns {
    /// Returns the columns of a table; empty if the store was not prepared for it.
    fn of(&self, table: &str) -> &[super::CqlColumn] {
        if self.table == table { &self.columns } else { &[] }
    }
}

/// Runs a query and moves its rows into the reply.
fn answer(
    result: Result<QueryResult, Outcome>,
    fields: &FieldSelection,
    columns: &[super::CqlColumn],
    reply: &mut Reply,
) -> Outcome {
    let taken = result.map(|rows| take_rows(rows, fields, columns, reply));
    match taken {
        Ok(Ok(())) => Outcome::OK,
        Ok(Err(words)) => Outcome::failed(Status::UnexpectedState, words),
        Err(outcome) => outcome,
    }
}

/// Copies rows into records; a null means that the record lacks the field.
fn take_rows(
    result: QueryResult,
    fields: &FieldSelection,
    columns: &[super::CqlColumn],
    reply: &mut Reply,
) -> Result<(), String> {
    let rows = result.into_rows_result().map_err(|error| error.to_string())?;
    for row in rows.rows::<ColumnIterator<'_, '_>>().map_err(|error| error.to_string())? {
        let record = reply.begin_record();
        let row = row.map_err(|error| error.to_string())?;
        let mut take = |name: &str, cell: Result<scylla::deserialize::row::RawColumn<'_, '_>, _>| {
            let cell = cell.map_err(|error: scylla::deserialize::DeserializationError| error.to_string())?;
            if let Some(bytes) = cell.slice {
                record.push(name, bytes.as_slice());
            }
            Ok::<(), String>(())
        };
        if fields.is_all() {
            for (column, cell) in columns.iter().zip(row) {
                take(&column.field, cell)?;
            }
        } else {
            for (name, cell) in fields.iter().zip(row) {
                take(name, cell)?;
            }
        }
    }
    Ok(())
}

impl Client for CassandraClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        // No record can have this key, and Cassandra refuses it.
        if key.is_empty() {
            return Outcome::NOT_FOUND;
        }
        let cql = if fields.is_all() && table == self.table.table {
            &self.read_all
        } else {
            self.select_one(table, fields);
            &self.cql
        };
        let result = self.session.execute(Access::Read, cql, &Values::Key(key)).await;
        let outcome = answer(result, fields, self.table.of(table), reply);
        if outcome.is_ok() && reply.records().is_empty() {
            return Outcome::NOT_FOUND;
        }
        outcome
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        // CQL requires an assignment; this one inserts a missing record, as updates do.
        if fields.is_empty() {
            return self.insert(table, key, fields).await;
        }
        let cql = &mut self.cql;
        cql.clear();
        cql.push_str("UPDATE ");
        qualified(cql, self.session.server(), table);
        for (index, (name, _)) in fields.iter().enumerate() {
            cql.push_str(if index == 0 { " SET " } else { ", " });
            quote(cql, name);
            cql.push_str(" = ?");
        }
        cql.push_str(" WHERE y_id = ?");
        self.write(Values::Update(fields, key)).await
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        let cql = &mut self.cql;
        cql.clear();
        cql.push_str("INSERT INTO ");
        qualified(cql, self.session.server(), table);
        cql.push_str(" (y_id");
        for (name, _) in record.iter() {
            cql.push_str(", ");
            quote(cql, name);
        }
        cql.push_str(") VALUES (?");
        for _ in 0..record.len() {
            cql.push_str(", ?");
        }
        cql.push(')');
        self.write(Values::Insert(key, record)).await
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        // Cassandra refuses LIMIT 0.
        if count == 0 {
            return Outcome::OK;
        }
        self.select(table, fields);
        self.cql.push_str(" WHERE token(y_id) >= token(?) LIMIT ?");
        let limit = i32::try_from(count).unwrap_or(i32::MAX);
        let result = self.session.execute(Access::Read, &self.cql, &Values::Scan(start_key, limit)).await;
        answer(result, fields, self.table.of(table), reply)
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        if key.is_empty() {
            return Outcome::NOT_FOUND;
        }
        let cql = &mut self.cql;
        cql.clear();
        cql.push_str("DELETE FROM ");
        qualified(cql, self.session.server(), table);
        cql.push_str(" WHERE y_id = ?");
        self.write(Values::Key(key)).await
    }
}
