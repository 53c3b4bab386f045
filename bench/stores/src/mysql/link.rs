//! Connections: how one is opened, with its prepared statements, and what the
//! server's refusals mean.

use super::TIMEOUT;
use crate::reconnecting::{Connector, Failure, Fate, Limit};
use mysql_async::{Conn, DriverError, Error, IoError, Opts, Statement, prelude::Queryable};
use serval_model::{Outcome, Status, StoreError};
use serval_tls::TlsFailure;
use std::{collections::HashMap, rc::Rc, sync::Arc, time::Duration};
use tokio::time;

/// Statements that a connection keeps prepared. A workload uses a handful of
/// shapes and one more for each field that it may read or update alone.
const STATEMENTS_MAX: usize = 256;

/// The driver closes those used longest ago beyond this many. Ours are always
/// among the last so many that it prepared or was asked for.
pub(super) const DRIVER_STATEMENTS_MAX: usize = 2 * STATEMENTS_MAX;

const TLS_ADVICE: &str = "Does the server offer TLS, and is mysql.sslmode right? With verify-full, does \
    mysql.sslrootcert hold the signer of its certificate, and does that name the host?";

/// Where a server is and how to connect to it.
#[derive(Debug)]
pub(super) struct Server {
    /// Host and port.
    pub(super) address: String,
    options: Opts,
}

impl Server {
    pub(super) fn new(address: String, options: Opts) -> Self {
        Server { address, options }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("mysql at {}", self.address), problem)
    }

    /// What the server refused while it was being prepared.
    pub(super) fn refused(&self, error: &Error) -> StoreError {
        let advice = match code(error) {
            1142 | 1044 => ": grant it to the user, or set mysql.user or mysql.database",
            _ => "",
        };
        self.error(format!("{}{advice}", words(error)))
    }

    /// What went wrong before the first operation, and what to do.
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

    /// Opens a connection; field names are those that the schema has.
    pub(super) async fn connect(&self, timeout: Duration, fields: Arc<[String]>) -> Result<Link, StoreError> {
        let connecting = async {
            let mut conn = Conn::new(self.options.clone()).await?;
            let packet_bytes_max = conn.query_first("SELECT @@max_allowed_packet").await?.unwrap_or(1 << 20);
            Ok(Link { conn, packet_bytes_max, fields, statements: HashMap::new() })
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

/// The server's number of an error; 0 if it is not the server's.
fn code(error: &Error) -> u16 {
    if let Error::Server(error) = error { error.code } else { 0 }
}

/// The server's own words, or the cause that the driver knows.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::Server(error) => error.message.clone(),
        Error::Driver(error) => error.to_string(),
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Io(IoError::Tls(error)) => format!("TLS: {error}"),
        error => error.to_string(),
    }
}

/// Whether nothing more can be asked on the connection of this error.
fn is_lost(error: &Error) -> bool {
    match error {
        // Shutdown, killed, idle for too long, a packet that was too large, a
        // statement that a proxy has lost.
        Error::Server(error) => [1053, 1927, 4031, 1153, 1243].contains(&error.code),
        // Those of the driver's that leave the connection as it was.
        Error::Driver(DriverError::StmtParamsMismatch { .. } | DriverError::Params(_)) => false,
        _ => true,
    }
}

/// The outcome of a failure.
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
        // No right to the server, database, table, column; or to do such things.
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 => Status::Forbidden,
        // Connections, shutdown, memory, full, a lock's or a statement's time,
        // killed, read-only.
        1037 | 1038 | 1040 | 1041 | 1053 | 1114 | 1205 | 1290 | 1317 | 1792 | 1836 | 1927 | 1969 | 3024
        | 4031 => Status::ServiceUnavailable,
        // A key that is there; a deadlock; no such statement.
        1062 | 1213 | 1243 => Status::Error,
        // Values and names: too long, not of the character set, not there.
        1054 | 1059 | 1064 | 1118 | 1146 | 1153 | 1264 | 1300 | 1366 | 1406 | 3988 => Status::BadRequest,
        _ if said.state.starts_with("22") || said.state.starts_with("42") => Status::BadRequest,
        _ => Status::Error,
    };
    let lost = if is_lost(error) && status == Status::ServiceUnavailable { "connection lost: " } else { "" };
    let words = match said.code {
        // The server says which, so no two messages would be alike.
        1062 => "there is a record under this key already".to_owned(),
        1406 => format!("{} (mysql.value_type says what a new table takes)", said.message),
        _ => said.message.clone(),
    };
    Outcome::failed(status, format!("{lost}{words}"))
}

/// Opens connections of clients to one server.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) servers: Arc<[Server]>,
    /// The server's number.
    pub(super) shard: usize,
    pub(super) connect_timeout: Duration,
    /// Of an operation.
    pub(super) timeout: Option<Duration>,
    /// The fields of the schema.
    pub(super) fields: Arc<[String]>,
}

impl Connector for Opener {
    type Connection = Link;
    type Error = Error;

    fn limit(&self) -> Limit {
        Limit { time: self.timeout, property: TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<Link, StoreError>> + 'static {
        let (servers, fields) = (Arc::clone(&self.servers), Arc::clone(&self.fields));
        let (shard, timeout) = (self.shard, self.connect_timeout);
        async move { servers[shard].connect(timeout, fields).await }
    }

    fn share(_: &Link) -> Option<Link> {
        None
    }

    fn failure(&self, _: &Link, error: &Error) -> Failure {
        let fate = if is_lost(error) { Fate::Lost } else { Fate::Kept };
        Failure { fate, outcome: refusal(error) }
    }
}

/// A statement that a connection has prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) statement: Statement,
    /// For `SELECT *`: the field of each column; `None` for the key.
    pub(super) names: Vec<Option<String>>,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) conn: Conn,
    /// The largest packet that the server takes.
    pub(super) packet_bytes_max: usize,
    fields: Arc<[String]>,
    statements: HashMap<String, Rc<Prepared>>,
}

impl Link {
    /// The statement of this text, prepared once.
    pub(super) async fn prepared(&mut self, sql: &str) -> Result<Rc<Prepared>, Error> {
        if let Some(found) = self.statements.get(sql) {
            return Ok(Rc::clone(found));
        }
        let statement = self.conn.prep(sql).await?;
        let names = statement.columns().iter().map(|column| self.field(&column.name_str())).collect();
        let prepared = Rc::new(Prepared { statement, names });
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
