//! A client and its verbs.

use super::link::{MysqlConnection, MysqlConnector, MysqlServer, PreparedStatement, refusal};
use crate::{columns::Quotes, reconnecting::Reconnecting};
use mysql_async::{Error, Params, Row, Value, prelude::Queryable};
use serval_model::{
    Client, FieldSelection, Outcome, Record, Reply, Schema, Status, StoreError, java::string_hash,
};
use std::{sync::Arc, time::Duration};

/// MySQL's quote character of identifiers.
const QUOTES: Quotes = Quotes('`');

/// Maximum parameters of a statement.
const PARAMETERS_MAX: usize = u16::MAX as usize;

/// A client with a connection to each server.
#[derive(Debug)]
pub struct MysqlClient {
    /// Connections in the servers' order.
    links: Vec<Reconnecting<MysqlConnector>>,
    /// Buffer for the statement's text.
    sql: String,
}

impl MysqlClient {
    pub(super) async fn connect(
        servers: &Arc<[MysqlServer]>,
        connect_timeout: Duration,
        timeout: Option<Duration>,
        fields: Arc<[String]>,
    ) -> Result<Self, StoreError> {
        let mut links = Vec::with_capacity(servers.len());
        for shard in 0..servers.len() {
            let (servers, fields) = (Arc::clone(servers), Arc::clone(&fields));
            let opener = MysqlConnector { servers, shard, connect_timeout, timeout, fields };
            links.push(Reconnecting::connect(opener).await?);
        }
        Ok(MysqlClient { links, sql: String::new() })
    }

    /// Returns the number of a key's server by YCSB's function. (YCSB fails for the
    /// smallest integer, whose absolute value is negative in Java.)
    fn shard(&self, key: &str) -> usize {
        match self.links.len() {
            1 => 0,
            count => string_hash(key).unsigned_abs() as usize % count,
        }
    }

    /// Runs a function with a server's connection and the statement's text, within
    /// the time limit of an operation.
    async fn with_link<T>(
        &mut self,
        shard: usize,
        work: impl AsyncFnOnce(&mut MysqlConnection, &str) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let sql = &self.sql;
        self.links[shard].run(async |link| work(link, sql).await).await
    }

    /// Runs a query and moves its rows into the reply. Returns the number of rows.
    async fn query(
        &mut self,
        shard: usize,
        parameters: Vec<Value>,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Result<u64, Outcome> {
        self.with_link(shard, async |link, sql| {
            let prepared = link.prepared(sql).await?;
            let result = link.conn.exec_iter(&prepared.statement, Params::Positional(parameters)).await?;
            let mut count = 0;
            let each = |row| {
                take_record(&row, &prepared, fields, reply.begin_record());
                count += 1;
            };
            result.for_each_and_drop(each).await?;
            Ok(count)
        })
        .await
    }

    /// Runs a statement. Returns the number of changed rows.
    async fn execute(&mut self, shard: usize, parameters: Vec<Value>) -> Result<u64, Outcome> {
        self.check_size(shard, &parameters)?;
        self.with_link(shard, async |link, sql| {
            let prepared = link.prepared(sql).await?;
            link.conn.exec_drop(&prepared.statement, Params::Positional(parameters)).await?;
            Ok(link.conn.affected_rows())
        })
        .await
    }

    /// Refuses packets that exceed the server's limit: the server would close the
    /// connection, often before its message is read.
    fn check_size(&self, shard: usize, parameters: &[Value]) -> Result<(), Outcome> {
        let sizes =
            parameters.iter().map(|value| if let Value::Bytes(bytes) = value { bytes.len() } else { 0 });
        let size: usize = sizes.sum();
        match self.links[shard].open() {
            Some(link) if size > link.packet_bytes_max => Err(Outcome::failed(
                Status::BadRequest,
                format!(
                    "{size} bytes are more than the server's max_allowed_packet, {}",
                    link.packet_bytes_max
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Runs a statement without parameters.
    async fn command(&mut self, shard: usize, sql: &str) -> Result<(), Outcome> {
        self.with_link(shard, async |link, _| link.conn.query_drop(sql).await).await
    }

    /// Inserts records on one server in one statement.
    async fn insert_rows(
        &mut self,
        shard: usize,
        table: &str,
        columns: &[&str],
        rows: &[&(String, Record)],
    ) -> Result<(), Outcome> {
        QUOTES.insert(&mut self.sql, "INSERT INTO", table, columns.iter().copied(), rows.len());
        let mut parameters = Vec::with_capacity(rows.len() * (1 + columns.len()));
        for (key, record) in rows {
            parameters.push(bytes(key.as_bytes()));
            parameters.extend(columns.iter().map(|column| record.get(column).map_or(Value::NULL, bytes)));
        }
        if rows.len() == 1 {
            // A single insert uses the prepared statement.
            return self.execute(shard, parameters).await.map(drop);
        }
        self.check_size(shard, &parameters)?;
        self.with_link(shard, async |link, sql| {
            // PreparedStatement for once: last batches and those of shards have any
            // length.
            let statement = link.conn.prep(sql).await?;
            let result = link.conn.exec_drop(&statement, Params::Positional(parameters)).await;
            link.conn.close(statement).await?;
            result
        })
        .await
    }

    /// Inserts parts in a transaction.
    async fn insert_pieces(
        &mut self,
        table: &str,
        columns: &[&str],
        pieces: &[(usize, Vec<&(String, Record)>)],
    ) -> Result<(), Outcome> {
        if let [(shard, rows)] = pieces {
            return self.insert_rows(*shard, table, columns, rows).await;
        }
        let mut shards: Vec<usize> = pieces.iter().map(|(shard, _)| *shard).collect();
        shards.dedup();
        let mut result = Ok(());
        let mut begun = 0;
        for shard in &shards {
            result = self.command(*shard, "START TRANSACTION").await;
            if result.is_err() {
                break;
            }
            begun += 1;
        }
        for (shard, rows) in pieces {
            if result.is_err() {
                break;
            }
            result = self.insert_rows(*shard, table, columns, rows).await;
        }
        for shard in &shards[..begun] {
            match &result {
                Ok(()) => result = self.command(*shard, "COMMIT").await,
                // A lost connection has rolled back already.
                Err(_) if self.links[*shard].open().is_none() => {}
                Err(_) => {
                    if self.command(*shard, "ROLLBACK").await.is_err() {
                        self.links[*shard].close();
                    }
                }
            }
        }
        result
    }
}

impl Client for MysqlClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        QUOTES.select(&mut self.sql, table, fields);
        self.sql.push_str(" WHERE YCSB_KEY = ?");
        found(self.query(self.shard(key), vec![bytes(key.as_bytes())], fields, reply).await)
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        QUOTES.update(&mut self.sql, table, fields);
        let mut parameters = Vec::with_capacity(fields.len() + 1);
        parameters.extend(fields.iter().map(|(_, value)| bytes(value)));
        parameters.push(bytes(key.as_bytes()));
        found(self.execute(self.shard(key), parameters).await)
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        QUOTES.insert(&mut self.sql, "INSERT INTO", table, record.iter().map(|(name, _)| name), 1);
        let mut parameters = Vec::with_capacity(record.len() + 1);
        parameters.push(bytes(key.as_bytes()));
        parameters.extend(record.iter().map(|(_, value)| bytes(value)));
        self.execute(self.shard(key), parameters).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        if self.links.len() > 1 {
            return Outcome::failed(Status::NotImplemented, "shards cannot scan: their keys are in no order");
        }
        QUOTES.select(&mut self.sql, table, fields);
        self.sql.push_str(" WHERE YCSB_KEY >= ? ORDER BY YCSB_KEY LIMIT ?");
        let parameters = vec![bytes(start_key.as_bytes()), Value::UInt(count)];
        self.query(0, parameters, fields, reply).await.map_or_else(|outcome| outcome, |_| Outcome::OK)
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        QUOTES.delete(&mut self.sql, table);
        found(self.execute(self.shard(key), vec![bytes(key.as_bytes())]).await)
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        let columns = Record::fields_of_all(records);
        let rows_max = (PARAMETERS_MAX / (1 + columns.len())).max(1);
        let mut pieces: Vec<(usize, Vec<&(String, Record)>)> = Vec::new();
        for shard in 0..self.links.len() {
            let room = self.links[shard].open().map_or(1 << 20, |link| link.packet_bytes_max);
            // Each value has a type and a length of up to 11 bytes.
            let size =
                |record: &(String, Record)| record.0.len() + record.1.size() + 11 * (1 + columns.len());
            let (mut piece, mut bytes) = (Vec::new(), 0);
            for record in records.iter().filter(|(key, _)| self.shard(key) == shard) {
                if !piece.is_empty() && (piece.len() == rows_max || bytes + size(record) > room / 2) {
                    pieces.push((shard, std::mem::take(&mut piece)));
                    bytes = 0;
                }
                bytes += size(record);
                piece.push(record);
            }
            if !piece.is_empty() {
                pieces.push((shard, piece));
            }
        }
        if pieces.is_empty() {
            return Outcome::OK;
        }
        match self.insert_pieces(table, &columns, &pieces).await {
            Ok(()) => Outcome::OK,
            Err(outcome) => outcome,
        }
    }

    async fn close(&mut self) -> Outcome {
        let mut outcome = Outcome::OK;
        for link in self.links.iter_mut().filter_map(Reconnecting::close) {
            if let Err(error) = link.conn.disconnect().await {
                outcome = refusal(&error);
            }
        }
        outcome
    }
}

fn bytes(value: &[u8]) -> Value {
    Value::Bytes(value.to_vec())
}

/// Returns the outcome of a statement that must have changed its row.
fn found(rows: Result<u64, Outcome>) -> Outcome {
    match rows {
        Ok(0) => Outcome::NOT_FOUND,
        Ok(_) => Outcome::OK,
        Err(outcome) => outcome,
    }
}

/// Copies a row into a record; a NULL means that the record lacks the
/// field.
fn take_record(row: &Row, prepared: &PreparedStatement, fields: &FieldSelection, record: &mut Record) {
    if fields.is_all() {
        for (index, field) in prepared.names.iter().enumerate() {
            if let Some(field) = field {
                push(record, field, row.as_ref(index));
            }
        }
    } else {
        for (index, field) in fields.iter().enumerate() {
            push(record, field, row.as_ref(index));
        }
    }
}

fn push(record: &mut Record, field: &str, value: Option<&Value>) {
    match value {
        None | Some(Value::NULL) => {}
        Some(Value::Bytes(bytes)) => record.push(field, bytes),
        // Other types, in another tool's table: as in SQL, without quotes.
        Some(other) => record.push(field, other.as_sql(true).trim_matches('\'').as_bytes()),
    }
}

/// Returns the statement that creates the table.
pub(super) fn create_table(value_type: &str, schema: &Schema) -> String {
    let mut sql = String::from("CREATE TABLE IF NOT EXISTS ");
    QUOTES.name(&mut sql, &schema.table);
    // A binary collation: keys are compared by bytes.
    sql.push_str(" (YCSB_KEY VARBINARY(1024) PRIMARY KEY");
    for field in &schema.fields {
        sql.push_str(", ");
        QUOTES.column(&mut sql, field);
        sql.push(' ');
        sql.push_str(value_type);
        if value_type != "longblob" {
            sql.push_str(" CHARACTER SET utf8mb4");
        }
    }
    sql.push(')');
    sql
}
