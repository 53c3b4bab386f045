//! A wiki's database at MariaDB.

use super::{
    statements::Dialect,
    store::{Parameter, STATEMENTS_MAX, WikiError, WikiResult, WikiRow, WikiStore, WikiValue},
};
use crate::mariadb;
use mysql_async::{Conn, Params, Row, Value, prelude::Queryable};
use tokio::runtime::Runtime;

/// Errors after which a transaction may be run again: a timeout of a lock, a deadlock, a row that
/// another transaction has changed since the snapshot.
const CONFLICTS: [u16; 3] = [1205, 1213, 1020];

pub(crate) struct MariaWiki {
    runtime: Runtime,
    connection: Conn,
}

impl From<mysql_async::Error> for WikiError {
    fn from(error: mysql_async::Error) -> Self {
        match &error {
            mysql_async::Error::Server(server) if CONFLICTS.contains(&server.code) => {
                WikiError::Conflict(error.to_string())
            }
            _ => WikiError::Failed(error.into()),
        }
    }
}

impl MariaWiki {
    pub(crate) fn connect(address: &str) -> WikiResult<MariaWiki> {
        let runtime = mariadb::runtime()?;
        let connection = runtime.block_on(async {
            let mut connection = mariadb::connection(address, STATEMENTS_MAX).await?;
            // As MediaWiki does when it opens a database.
            connection.query_drop("SET group_concat_max_len = 262144, sql_mode = ''").await?;
            WikiResult::Ok(connection)
        })?;
        Ok(MariaWiki { runtime, connection })
    }
}

fn params(parameters: &[Parameter<'_>]) -> Params {
    if parameters.is_empty() {
        return Params::Empty;
    }
    let value = |parameter: &Parameter<'_>| match parameter {
        Parameter::Null => Value::NULL,
        Parameter::Integer(number) => Value::Int(*number),
        Parameter::Real(number) => Value::Double(*number),
        Parameter::Text(text) => Value::Bytes(text.as_bytes().to_vec()),
    };
    Params::Positional(parameters.iter().map(value).collect())
}

fn value(value: Value) -> WikiResult<WikiValue> {
    Ok(match value {
        Value::NULL => WikiValue::Null,
        Value::Bytes(bytes) => WikiValue::Bytes(bytes),
        Value::Int(number) => WikiValue::Integer(number),
        Value::UInt(number) => {
            let number = i64::try_from(number);
            WikiValue::Integer(number.map_err(|error| WikiError::failed(error.to_string()))?)
        }
        Value::Float(number) => WikiValue::Real(number.into()),
        Value::Double(number) => WikiValue::Real(number),
        date @ (Value::Date(..) | Value::Time(..)) => WikiValue::Bytes(date.as_sql(true).into_bytes()),
    })
}

impl WikiStore for MariaWiki {
    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }

    fn begin(&mut self, _writes: bool) -> WikiResult<()> {
        self.define("BEGIN")
    }

    fn commit(&mut self) -> WikiResult<()> {
        self.define("COMMIT")
    }

    fn rollback(&mut self) -> WikiResult<()> {
        self.define("ROLLBACK")
    }

    fn query(&mut self, text: &str, parameters: &[Parameter<'_>]) -> WikiResult<Vec<WikiRow>> {
        let rows: Vec<Row> = self.runtime.block_on(self.connection.exec(text, params(parameters)))?;
        rows.into_iter().map(|row| row.unwrap().into_iter().map(value).collect()).collect()
    }

    fn execute(&mut self, text: &str, parameters: &[Parameter<'_>]) -> WikiResult<i64> {
        self.runtime.block_on(self.connection.exec_drop(text, params(parameters)))?;
        let id = self.connection.last_insert_id().unwrap_or_default();
        i64::try_from(id).map_err(|error| WikiError::failed(error.to_string()))
    }

    fn define(&mut self, text: &str) -> WikiResult<()> {
        Ok(self.runtime.block_on(self.connection.query_drop(text))?)
    }
}
