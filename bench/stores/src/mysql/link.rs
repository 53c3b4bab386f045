//! Connections with their prepared statements, and the meaning of the server's
//! errors.

use super::TIMEOUT;
use crate::reconnecting::{ConnectionFate, Connector, OperationFailure, TimeLimit};
use mysql_async::{Conn, DriverError, Error, IoError, Opts, Statement, prelude::Queryable};
use serval_model::{Outcome, Status, StoreError};
use serval_tls::TlsFailure;
use std::{collections::HashMap, rc::Rc, sync::Arc, time::Duration};
use tokio::time;

/// Maximum number of prepared statements of a connection. A workload uses a few, plus
/// one for each field that it reads or updates alone.
const STATEMENTS_MAX: usize = 256;

/// Size of the driver's LRU cache of statements, at least the number of Serval's
/// own.
pub(super) const DRIVER_STATEMENTS_MAX: usize = 2 * STATEMENTS_MAX;

const TLS_ADVICE: &str = "Does the server offer TLS, and is mysql.sslmode right? With verify-full, does \
    mysql.sslrootcert hold the signer of its certificate, and does that name the host?";

/// A server's address and connection options.
#[derive(Debug)]
pub(super) struct MysqlServer {
    /// Host and port.
    pub(super) address: String,
    options: Opts,
}

impl MysqlServer {
    pub(super) fn new(address: String, options: Opts) -> Self {
        MysqlServer { address, options }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("mysql at {}", self.address), problem)
    }

    /// Returns a refusal of the server during preparation.
    pub(super) fn refused(&self, error: &Error) -> StoreError {
        let advice = match code(error) {
            1142 | 1044 => ": grant it to the user, or set mysql.user or mysql.database",
            _ => "",
        };
        self.error(format!("{}{advice}", words(error)))
    }

    /// Returns an error of the set-up, with advice.
    fn failed(&self, error: &Error) -> StoreError {
        let tls = TlsFailure::of(error);
        let advice = match (error, code(error)) {
            (_, 1045 | 1044 | 1698) => {
                "Check mysql.user (db.user) and mysql.password (db.passwd); a user may also have to come by TLS \
                 (mysql.sslmode), with a certificate (mysql.sslcert)"
            }
            (_, 1049) => {
                "Make the database (CREATE DATABASE), or set mysql.database or db.url to one that is there"
            }
            (_, 1040 | 1203) => "Raise the server's max_connections, or use fewer clients (threadcount)",
            (Error::Io(IoError::Tls(_)), _) | (Error::Driver(DriverError::NoClientSslFlagFromServer), _) => {
                TLS_ADVICE
            }
            _ if tls == Some(TlsFailure::Alert) => {
                "The server does not take the client's certificate: is mysql.sslcert right, and does the server know \
                 its signer?"
            }
            _ if tls == Some(TlsFailure::Certificate) => TLS_ADVICE,
            _ => "Is the server running, and do mysql.host and mysql.port, or db.url, name it?",
        };
        self.error(format!("cannot connect: {}. {advice}", words(error)))
    }

    /// Opens a connection. Columns map to the schema's field names.
    pub(super) async fn connect(
        &self,
        timeout: Duration,
        fields: Arc<[String]>,
    ) -> Result<MysqlConnection, StoreError> {
        let connecting = async {
            let mut conn = Conn::new(self.options.clone()).await?;
            let packet_bytes_max = conn.query_first("SELECT @@max_allowed_packet").await?.unwrap_or(1 << 20);
            Ok(MysqlConnection { conn, packet_bytes_max, fields, statements: HashMap::new() })
        };
        match time::timeout(timeout, connecting).await {
            Ok(result) => result.map_err(|error| self.failed(&error)),
            Err(_) => Err(self.error(format!(
                "cannot connect: no answer within {timeout:?} (mysql.connect_timeout). Do mysql.host and mysql.port, or \
                 db.url, name a MySQL server?"
            ))),
        }
    }
}

/// Returns the server's number of an error; 0 if it is not the server's.
fn code(error: &Error) -> u16 {
    if let Error::Server(error) = error { error.code } else { 0 }
}

/// Returns the server's message, or the driver's cause.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::Server(error) => error.message.clone(),
        Error::Driver(error) => error.to_string(),
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Io(IoError::Tls(error)) => format!("TLS: {error}"),
        error => error.to_string(),
    }
}

/// Returns whether an error ends its connection.
fn is_lost(error: &Error) -> bool {
    match error {
        // Shutdown, killed, idle for too long, packet too large, statement lost by
        // a proxy.
        Error::Server(error) => [1053, 1927, 4031, 1153, 1243].contains(&error.code),
        // Errors of the driver that leave the connection usable.
        Error::Driver(DriverError::StmtParamsMismatch { .. } | DriverError::Params(_)) => false,
        _ => true,
    }
}

/// Converts a failure to an outcome.
pub(super) fn refusal(error: &Error) -> Outcome {
    let Error::Server(said) = error else {
        return match error {
            Error::Driver(DriverError::PacketTooLarge) => {
                let words = "the packet is larger than the server takes (max_allowed_packet)";
                Outcome::failed(Status::BadRequest, words)
            }
            error if is_lost(error) => {
                Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {}", words(error)))
            }
            error => Outcome::error(words(error)),
        };
    };
    let status = match said.code {
        // No access to server, database, table or column; missing privileges.
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 => Status::Forbidden,
        // Too many connections, shutdown, out of memory, disk full, timeout of a
        // lock or statement, killed, read-only.
        1037 | 1038 | 1040 | 1041 | 1053 | 1114 | 1205 | 1290 | 1317 | 1792 | 1836 | 1927 | 1969 | 3024
        | 4031 => Status::ServiceUnavailable,
        // Duplicate key, deadlock, unknown statement.
        1062 | 1213 | 1243 => Status::Error,
        // Values and names: too long, invalid text, unknown.
        1054 | 1059 | 1064 | 1118 | 1146 | 1153 | 1264 | 1300 | 1366 | 1406 | 3988 => Status::BadRequest,
        _ if said.state.starts_with("22") || said.state.starts_with("42") => Status::BadRequest,
        _ => Status::Error,
    };
    let lost = if is_lost(error) && status == Status::ServiceUnavailable { "connection lost: " } else { "" };
    let words = match said.code {
        // The message contains the key, so all messages would differ.
        1062 => "there is a record under this key already".to_owned(),
        1406 => format!("{} (mysql.value_type says what a new table takes)", said.message),
        _ => said.message.clone(),
    };
    Outcome::failed(status, format!("{lost}{words}"))
}

/// Opens clients' connections to one server.
#[derive(Debug)]
pub(super) struct MysqlConnector {
    pub(super) servers: Arc<[MysqlServer]>,
    /// Number of the server.
    pub(super) shard: usize,
    pub(super) connect_timeout: Duration,
    /// Time limit of operations.
    pub(super) timeout: Option<Duration>,
    /// Fields of the schema.
    pub(super) fields: Arc<[String]>,
}

impl Connector for MysqlConnector {
    type Connection = MysqlConnection;
    type Error = Error;

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.timeout, property: TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<MysqlConnection, StoreError>> + 'static {
        let (servers, fields) = (Arc::clone(&self.servers), Arc::clone(&self.fields));
        let (shard, timeout) = (self.shard, self.connect_timeout);
        async move { servers[shard].connect(timeout, fields).await }
    }

    fn share(_: &MysqlConnection) -> Option<MysqlConnection> {
        None
    }

    fn failure(&self, _: &MysqlConnection, error: &Error) -> OperationFailure {
        let fate = if is_lost(error) { ConnectionFate::Lost } else { ConnectionFate::Kept };
        OperationFailure { fate, outcome: refusal(error) }
    }
}

/// A prepared statement of a connection.
#[derive(Debug)]
pub(super) struct PreparedStatement {
    pub(super) statement: Statement,
    /// For `SELECT *`: the field of each column; `None` for the key's column.
    pub(super) names: Vec<Option<String>>,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct MysqlConnection {
    pub(super) conn: Conn,
    /// The server's maximum packet, bytes.
    pub(super) packet_bytes_max: usize,
    fields: Arc<[String]>,
    statements: HashMap<String, Rc<PreparedStatement>>,
}

impl MysqlConnection {
    /// Returns the prepared statement of this text.
    pub(super) async fn prepared(&mut self, sql: &str) -> Result<Rc<PreparedStatement>, Error> {
        if let Some(found) = self.statements.get(sql) {
            return Ok(Rc::clone(found));
        }
        let statement = self.conn.prep(sql).await?;
        let names = statement.columns().iter().map(|column| self.field(&column.name_str())).collect();
        let prepared = Rc::new(PreparedStatement { statement, names });
        if self.statements.len() == STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), Rc::clone(&prepared));
        Ok(prepared)
    }

    fn field(&self, column: &str) -> Option<String> {
        let known = self.fields.iter().find(|field| field.eq_ignore_ascii_case(column));
        let name = known.map_or_else(|| column.to_owned(), String::clone);
        (!column.eq_ignore_ascii_case(super::KEY)).then_some(name)
    }
}
