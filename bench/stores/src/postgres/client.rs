//! A client and its verbs.

use super::{
    TableLayout,
    link::{PostgresConnection, PostgresConnector, PreparedStatement, refusal},
    sql,
};
use crate::{json, reconnecting::Reconnecting};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, TryStreamExt};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply};
use std::{error, pin::pin};
use tokio_postgres::{
    Error, Row,
    types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked},
};

/// Approximate size of the parts in which a batch is sent, bytes.
const COPY_BYTES: usize = 1 << 20;

/// Start of a binary COPY: signature, no flags, no extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// A client of a PostgreSQL server.
#[derive(Debug)]
pub struct PostgresClient {
    connection: Reconnecting<PostgresConnector>,
    layout: TableLayout,
    /// Connection to the replica for reads and scans.
    reader: Option<Box<PostgresClient>>,
    /// Buffer for the statement's text.
    sql: String,
    /// Buffer for a record in the json layout.
    document: Vec<u8>,
    /// Buffer for a batch in COPY's format.
    copy: BytesMut,
}

impl PostgresClient {
    pub(super) fn new(
        connection: Reconnecting<PostgresConnector>,
        layout: TableLayout,
        reader: Option<Box<PostgresClient>>,
    ) -> Self {
        let (sql, document, copy) = Default::default();
        PostgresClient { connection, layout, reader, sql, document, copy }
    }

    /// Runs a function with the statement of `self.sql`, within the time limit of an
    /// operation.
    async fn with_statement<T>(
        &mut self,
        work: impl AsyncFnOnce(&PostgresConnection, &PreparedStatement) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let sql = &self.sql;
        self.connection
            .run(async |link| {
                let result = async { work(link, &*link.prepared(sql).await?).await }.await;
                result.inspect_err(|error| link.forget_stale(sql, error))
            })
            .await
    }

    /// Runs a query and moves its rows into the reply. Returns the number of rows.
    async fn query<'a>(
        &mut self,
        parameters: Parameters<'a, impl Iterator<Item = Parameter<'a>>>,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Result<u64, Outcome> {
        let layout = self.layout;
        self.with_statement(async |link, prepared| {
            let mut rows = pin!(link.client.query_raw(&prepared.statement, parameters).await?);
            let mut count = 0;
            while let Some(row) = rows.try_next().await? {
                take_record(&row, layout, prepared, fields, reply.begin_record())?;
                count += 1;
            }
            Ok(count)
        })
        .await
    }

    /// Runs a statement. Returns the number of changed rows.
    async fn execute<'a>(
        &mut self,
        parameters: Parameters<'a, impl Iterator<Item = Parameter<'a>>>,
    ) -> Result<u64, Outcome> {
        self.with_statement(async |link, prepared| {
            link.client.execute_raw(&prepared.statement, parameters).await
        })
        .await
    }

    /// Runs a statement with the key and a record as parameters.
    async fn write(&mut self, key: &str, record: &Record) -> Result<u64, Outcome> {
        let key = Parameter::Bytes(key.as_bytes());
        match self.layout {
            TableLayout::Columns => {
                let values = record.iter().map(|(_, value)| Parameter::Bytes(value));
                self.execute(Parameters::new(key, values, record.len())).await
            }
            TableLayout::Json => {
                let mut document = std::mem::take(&mut self.document);
                document.clear();
                let result = match json::write(record, &mut document) {
                    Ok(()) => {
                        let values = std::iter::once(Parameter::Bytes(&document));
                        self.execute(Parameters::new(key, values, 1)).await
                    }
                    Err(outcome) => Err(outcome),
                };
                self.document = document;
                result
            }
        }
    }
}

impl PostgresClient {
    async fn read_here(
        &mut self,
        table: &str,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        sql::select(&mut self.sql, self.layout, table, fields);
        self.sql.push_str(" WHERE \"ycsb_key\" = $1");
        let key = Parameters::new(Parameter::Bytes(key.as_bytes()), std::iter::empty(), 0);
        found(self.query(key, fields, reply).await)
    }

    async fn scan_here(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        sql::select(&mut self.sql, self.layout, table, fields);
        self.sql.push_str(" WHERE \"ycsb_key\" >= $1 ORDER BY \"ycsb_key\" LIMIT $2");
        let limit = Parameter::Count(i64::try_from(count).unwrap_or(i64::MAX));
        let start = Parameter::Bytes(start_key.as_bytes());
        let parameters = Parameters::new(start, std::iter::once(limit), 1);
        self.query(parameters, fields, reply).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }
}

impl Client for PostgresClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        match &mut self.reader {
            Some(reader) => reader.read_here(table, key, fields, reply).await,
            None => self.read_here(table, key, fields, reply).await,
        }
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        sql::update(&mut self.sql, self.layout, table, fields);
        found(self.write(key, fields).await)
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        sql::insert(&mut self.sql, self.layout, table, record);
        self.write(key, record).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        match &mut self.reader {
            Some(reader) => reader.scan_here(table, start_key, count, fields, reply).await,
            None => self.scan_here(table, start_key, count, fields, reply).await,
        }
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        self.sql.clear();
        self.sql.push_str("DELETE FROM ");
        sql::name(&mut self.sql, table);
        self.sql.push_str(" WHERE \"ycsb_key\" = $1");
        let key = Parameters::new(Parameter::Bytes(key.as_bytes()), std::iter::empty(), 0);
        found(self.execute(key).await)
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        if records.is_empty() {
            return Outcome::OK;
        }
        let columns = Record::fields_of_all(records);
        sql::copy(&mut self.sql, self.layout, table, &columns);
        let (layout, mut buffer) = (self.layout, std::mem::take(&mut self.copy));
        let mut document = std::mem::take(&mut self.document);
        let mut out_of_step = false;
        let result = self
            .with_statement(async |link, prepared| {
                buffer.clear();
                buffer.extend_from_slice(COPY_HEADER);
                let sink = match link.client.copy_in::<_, Bytes>(&prepared.statement).await {
                    Ok(sink) => sink,
                    Err(error) if error.as_db_error().is_some() => {
                        // Refused before it started: the driver then ends a
                        // COPY that the server has not started, and gets out
                        // of step with the server's answers.
                        link.give_up("a COPY was refused on it");
                        out_of_step = true;
                        return Ok(refusal(&error));
                    }
                    Err(error) => return Err(error),
                };
                let mut sink = pin!(sink);
                for (key, record) in records {
                    match layout {
                        TableLayout::Columns => copy_row(&mut buffer, key, record, &columns),
                        TableLayout::Json => {
                            document.clear();
                            if let Err(outcome) = json::write(record, &mut document) {
                                // Dropping the unfinished sink rolls back.
                                return Ok(outcome);
                            }
                            copy_document(&mut buffer, key, &document);
                        }
                    }
                    if buffer.len() >= COPY_BYTES {
                        sink.send(buffer.split().freeze()).await?;
                    }
                }
                buffer.put_i16(-1);
                sink.send(buffer.split().freeze()).await?;
                sink.finish().await?;
                Ok(Outcome::OK)
            })
            .await;
        (self.copy, self.document) = (buffer, document);
        if out_of_step {
            self.connection.close();
        }
        result.unwrap_or_else(|outcome| outcome)
    }
}

/// Returns the outcome of a statement that must have changed its row.
fn found(rows: Result<u64, Outcome>) -> Outcome {
    match rows {
        Ok(0) => Outcome::NOT_FOUND,
        Ok(_) => Outcome::OK,
        Err(outcome) => outcome,
    }
}

/// Parameter of a statement.
#[derive(Debug, Clone, Copy)]
enum Parameter<'a> {
    /// Text, or the bytes of a bytea.
    Bytes(&'a [u8]),
    Count(i64),
}

impl ToSql for Parameter<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn error::Error + Sync + Send>> {
        match self {
            Parameter::Bytes(bytes) => out.put_slice(bytes),
            Parameter::Count(count) => out.put_i64(*count),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    /// In text format, which the server converts to the column's type. Only a bytea
    /// needs the binary format.
    fn encode_format(&self, kind: &Type) -> Format {
        match self {
            Parameter::Bytes(_) if *kind != Type::BYTEA => Format::Text,
            _ => Format::Binary,
        }
    }

    to_sql_checked!();
}

/// The key and the other parameters, as an iterator of known length.
struct Parameters<'a, I> {
    key: Option<Parameter<'a>>,
    values: I,
    left: usize,
}

impl<'a, I: Iterator<Item = Parameter<'a>>> Parameters<'a, I> {
    fn new(key: Parameter<'a>, values: I, count: usize) -> Self {
        Parameters { key: Some(key), values, left: 1 + count }
    }
}

impl<'a, I: Iterator<Item = Parameter<'a>>> Iterator for Parameters<'a, I> {
    type Item = Parameter<'a>;

    fn next(&mut self) -> Option<Parameter<'a>> {
        let next = self.key.take().or_else(|| self.values.next())?;
        self.left -= 1;
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, I: Iterator<Item = Parameter<'a>>> ExactSizeIterator for Parameters<'a, I> {}

/// Raw bytes of a column.
struct RawColumn<'a>(&'a [u8]);

impl<'a> FromSql<'a> for RawColumn<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn error::Error + Sync + Send>> {
        // A version precedes a JSONB's text.
        Ok(RawColumn(if *kind == Type::JSONB { raw.get(1..).unwrap_or_default() } else { raw }))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Copies a row into a record; a NULL means that the record lacks the
/// field.
fn take_record(
    row: &Row,
    layout: TableLayout,
    prepared: &PreparedStatement,
    fields: &FieldSelection,
    record: &mut Record,
) -> Result<(), Error> {
    if !fields.is_all() {
        for (index, field) in fields.iter().enumerate() {
            if let Some(RawColumn(value)) = row.try_get(index)? {
                record.push(field, value);
            }
        }
        return Ok(());
    }
    if layout == TableLayout::Json {
        let RawColumn(document) = row.try_get(0)?;
        // The server has validated the JSON. A value that is not an object has no
        // fields.
        drop(json::read(document, record));
        return Ok(());
    }
    for (index, field) in prepared.names.iter().enumerate() {
        if let Some(field) = field
            && let Some(RawColumn(value)) = row.try_get(index)?
        {
            record.push(field, value);
        }
    }
    Ok(())
}

/// Appends a value in binary COPY format: its length and its bytes.
fn copy_value(buffer: &mut BytesMut, value: &[u8]) {
    // The server refuses values above 1 GiB, and records are far below 4 GiB.
    buffer.put_u32(u32::try_from(value.len()).unwrap_or(i32::MAX as u32));
    buffer.put_slice(value);
}

fn copy_row(buffer: &mut BytesMut, key: &str, record: &Record, columns: &[&str]) {
    // A table has at most 1,600 columns.
    buffer.put_u16(u16::try_from(1 + columns.len()).unwrap_or(i16::MAX as u16));
    copy_value(buffer, key.as_bytes());
    if record.iter().map(|(field, _)| field).eq(columns.iter().copied()) {
        record.iter().for_each(|(_, value)| copy_value(buffer, value));
        return;
    }
    for column in columns {
        match record.get(column) {
            Some(value) => copy_value(buffer, value),
            None => buffer.put_i32(-1),
        }
    }
}

fn copy_document(buffer: &mut BytesMut, key: &str, document: &[u8]) {
    buffer.put_u16(2);
    copy_value(buffer, key.as_bytes());
    buffer.put_u32(u32::try_from(1 + document.len()).unwrap_or(i32::MAX as u32));
    // Version of JSONB's encoding.
    buffer.put_u8(1);
    buffer.put_slice(document);
}
