//! Client of MariaDB: the same prepared statements as for the other stores, on one connection for
//! each thread. The driver is asynchronous; each thread has an executor of its own, so that it
//! waits for its own answers only.

use crate::{Result, sql::SqlTable};
use mysql_async::{Conn, OptsBuilder, Row, Statement, TxOpts, prelude::Queryable};
use tokio::runtime::{Builder, Runtime};

/// Name of the server's database.
const DATABASE: &str = "ycsb";

/// Prepared statements of [`Maria`].
const STATEMENTS: usize = 5;

pub(crate) struct Maria {
    runtime: Runtime,
    connection: Conn,
    read: Statement,
    update: Statement,
    range: Statement,
    insert: Statement,
    append: Statement,
}

/// Returns an executor for the thread's own connection.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Opens a connection that keeps this number of prepared statements.
pub(crate) async fn connection(address: &str, statements: usize) -> Result<Conn> {
    let (host, port) = address.rsplit_once(':').ok_or("MariaDB is at HOST:PORT")?;
    let options = OptsBuilder::default().ip_or_hostname(host).tcp_port(port.parse()?);
    let options = options.user(Some("root")).db_name(Some(DATABASE)).stmt_cache_size(statements);
    // By TCP, like the others; the driver would switch to a Unix socket.
    Ok(Conn::new(options.prefer_socket(false)).await?)
}

/// Returns whether the value in the last column is not empty.
fn has_value(row: &Row) -> bool {
    let value = row.len().checked_sub(1).and_then(|last| row.as_ref(last));
    matches!(value, Some(mysql_async::Value::Bytes(bytes)) if !bytes.is_empty())
}

impl Maria {
    /// Creates the table before any thread uses it. Its values are stored within the rows.
    pub(crate) fn prepare(address: &str) -> Result<()> {
        runtime()?.block_on(async {
            let mut connection = connection(address, STATEMENTS).await?;
            let table = "CREATE TABLE IF NOT EXISTS kv(`key` BIGINT AUTO_INCREMENT PRIMARY KEY, value VARBINARY(2000)) \
                ENGINE=InnoDB";
            connection.query_drop(table).await?;
            Ok(connection.disconnect().await?)
        })
    }

    pub(crate) fn connect(address: &str) -> Result<Maria> {
        let runtime = runtime()?;
        let (connection, [read, update, range, insert, append]) = runtime.block_on(async {
            let mut connection = connection(address, STATEMENTS).await?;
            // Allow the key 0.
            connection.query_drop("SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')").await?;
            let statements = [
                connection.prep("SELECT value FROM kv WHERE `key` = ?").await?,
                connection.prep("UPDATE kv SET value = ? WHERE `key` = ?").await?,
                connection.prep("SELECT `key`, value FROM kv WHERE `key` >= ? LIMIT ?").await?,
                connection.prep("INSERT INTO kv(`key`, value) VALUES(?, ?)").await?,
                connection.prep("INSERT INTO kv(value) VALUES(?)").await?,
            ];
            Result::Ok((connection, statements))
        })?;
        Ok(Maria { runtime, connection, read, update, range, insert, append })
    }
}

impl SqlTable for Maria {
    fn read(&mut self, key: u64) -> Result<bool> {
        let row: Option<Row> =
            self.runtime.block_on(self.connection.exec_first(&self.read, (key.cast_signed(),)))?;
        Ok(row.is_some_and(|row| has_value(&row)))
    }

    fn update(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.runtime.block_on(self.connection.exec_drop(&self.update, (value, key.cast_signed())))?;
        match self.connection.affected_rows() {
            1 => Ok(()),
            changed => Err(format!("an update has changed {changed} rows").into()),
        }
    }

    fn range(&mut self, key: u64, limit: u64) -> Result<u64> {
        let asked = self.connection.exec(&self.range, (key.cast_signed(), limit));
        let rows: Vec<Row> = self.runtime.block_on(asked)?;
        Ok(rows.iter().filter(|row| has_value(row)).count() as u64)
    }

    fn insert(&mut self, key: Option<u64>, value: &[u8]) -> Result<()> {
        let Maria { runtime, connection, insert, append, .. } = self;
        let done = match key {
            Some(key) => runtime.block_on(connection.exec_drop(&*insert, (key.cast_signed(), value))),
            None => runtime.block_on(connection.exec_drop(&*append, (value,))),
        };
        Ok(done?)
    }

    fn insert_all(&mut self, keys: &mut dyn Iterator<Item = Option<u64>>, value: &[u8]) -> Result<()> {
        let Maria { runtime, connection, insert, append, .. } = self;
        runtime.block_on(async {
            let mut transaction = connection.start_transaction(TxOpts::default()).await?;
            for key in keys {
                match key {
                    Some(key) => transaction.exec_drop(&*insert, (key.cast_signed(), value)).await?,
                    None => transaction.exec_drop(&*append, (value,)).await?,
                }
            }
            Ok(transaction.commit().await?)
        })
    }
}
