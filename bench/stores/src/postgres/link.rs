//! Connections with their prepared statements, and the meaning of their
//! errors.

use super::TIMEOUT;
use crate::reconnecting::{ConnectionFate, Connector, OperationFailure, TimeLimit};
use rustls::ClientConfig;
use serval_model::{Outcome, Status, StoreError};
use serval_tls::TlsFailure;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    error::Error as _,
    rc::Rc,
    sync::Arc,
    task::Context,
    time::Duration,
};
use tokio::{task::AbortHandle, time};
use tokio_postgres::{
    Client, Config, Error, Statement,
    error::{Severity, SqlState},
    types::Type,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Maximum number of prepared statements of a connection. A workload uses a few, plus
/// one for each field that it reads or updates alone.
const STATEMENTS_MAX: usize = 256;

/// The server's address and connection options.
#[derive(Debug)]
pub(super) struct PostgresEndpoint {
    /// Hosts and ports.
    pub(super) address: String,
    pub(super) connect_timeout: Duration,
    /// Time limit of operations.
    pub(super) timeout: Option<Duration>,
    config: Config,
    tls: Arc<ClientConfig>,
}

impl PostgresEndpoint {
    pub(super) fn new(
        address: String,
        config: Config,
        tls: ClientConfig,
        connect_timeout: Duration,
        timeout: Option<Duration>,
    ) -> Self {
        PostgresEndpoint { address, config, tls: Arc::new(tls), connect_timeout, timeout }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("postgres at {}", self.address), problem)
    }

    /// Returns a refusal of the server during preparation.
    pub(super) fn refused(&self, error: &Error) -> StoreError {
        let advice = match error.code() {
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
                ": grant it to the user, or set postgres.user, postgres.database or postgres.schema"
            }
            Some(code) if *code == SqlState::INVALID_SCHEMA_NAME => {
                ": no schema to make it in; make one, or set postgres.schema"
            }
            _ => "",
        };
        self.error(format!("{}{advice}", words(error)))
    }

    /// Returns an error of the set-up, with advice.
    fn failed(&self, error: &Error) -> StoreError {
        let (code, kind) = (error.code().map_or("", SqlState::code), DriverErrorKind::of(error));
        let advice = match code {
            "28P01" => {
                "Check postgres.user (db.user) and postgres.password (db.passwd), and the server's pg_hba.conf"
            }
            "28000" => {
                "Check postgres.user (db.user) and postgres.password (db.passwd), the certificate if the server wants \
                 one (postgres.sslcert), and the server's pg_hba.conf"
            }
            "3D000" => {
                "Make the database (CREATE DATABASE), or set postgres.database or db.url to one that is there"
            }
            "53300" => "Raise the server's max_connections, or let clients share some (postgres.connections)",
            "57P03" => "The server is starting or stopping: try again",
            _ if kind == Some(DriverErrorKind::Tls) => {
                "Does the server offer TLS, and is postgres.sslmode right? With verify-full, does postgres.sslrootcert \
                 hold the signer of its certificate, and does that name the host?"
            }
            // The server's verdict on a client certificate comes with the first answer.
            _ if TlsFailure::of(error) == Some(TlsFailure::Alert) => {
                "The server does not take the client's certificate: is postgres.sslcert right, and does the server \
                 know its signer?"
            }
            _ if kind == Some(DriverErrorKind::Credentials) => {
                "The server wants credentials: set postgres.password (db.passwd)"
            }
            _ => "Is the server running, and do postgres.host and postgres.port, or db.url, name it?",
        };
        self.error(format!("cannot connect: {}. {advice}", words(error)))
    }

    /// Opens a connection. Columns map to the schema's field names.
    pub(super) async fn connect(&self, fields: Arc<[String]>) -> Result<PostgresConnection, StoreError> {
        let tls = MakeRustlsConnect::new(ClientConfig::clone(&self.tls));
        let connecting = self.config.connect(tls);
        let (client, connection) = match time::timeout(self.connect_timeout, connecting).await {
            Ok(result) => result.map_err(|error| self.failed(&error))?,
            Err(_) => {
                return Err(self.error(format!(
                    "cannot connect: no answer within {:?} (postgres.connect_timeout). Do postgres.host and \
                     postgres.port, or db.url, name a PostgreSQL server?",
                    self.connect_timeout
                )));
            }
        };
        let end = Arc::new(std::sync::Mutex::new(None));
        let reason = Arc::clone(&end);
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await
                && let Ok(mut end) = reason.lock()
            {
                *end = Some(words(&error));
            }
        });
        Ok(PostgresConnection {
            client,
            task: task.abort_handle(),
            end,
            fields,
            statements: RefCell::default(),
            is_over: Cell::new(false),
        })
    }
}

/// Kinds of the driver's errors that have a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverErrorKind {
    Tls,
    /// No credentials, or none for the server's method.
    Credentials,
}

impl DriverErrorKind {
    /// Recognises the kind by the start of the error's text: the driver does not expose
    /// it.
    fn of(error: &Error) -> Option<DriverErrorKind> {
        let words = error.to_string();
        if words.starts_with("error performing TLS handshake") {
            return Some(DriverErrorKind::Tls);
        }
        let credentials = ["authentication error", "invalid configuration"];
        credentials.iter().any(|start| words.starts_with(start)).then_some(DriverErrorKind::Credentials)
    }
}

/// Returns the message of an error: the server's, or the driver's
/// cause.
pub(super) fn words(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return db.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Converts a server's error to an outcome.
pub(super) fn refusal(error: &Error) -> Outcome {
    let code = error.code().map_or("", SqlState::code);
    let status = match code {
        // Insufficient privilege, invalid authorization.
        "42501" | "28000" | "28P01" => Status::Forbidden,
        // Read-only transaction, lock not available, cancelled (a timeout).
        "25006" | "55P03" | "57014" => Status::ServiceUnavailable,
        // Data exceptions, unknown names, limits of the program.
        _ if ["22", "42", "54"].iter().any(|class| code.starts_with(class)) => Status::BadRequest,
        // Connection, resources, the operator, the system.
        _ if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
            Status::ServiceUnavailable
        }
        // A local error: the statement could not be encoded.
        "" => Status::BadRequest,
        _ => Status::Error,
    };
    Outcome::failed(status, words(error))
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
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    task: AbortHandle,
    /// Why the connection ended.
    end: Arc<std::sync::Mutex<Option<String>>>,
    fields: Arc<[String]>,
    statements: RefCell<HashMap<String, Rc<PreparedStatement>>>,
    /// Whether a client has received a fatal error on it.
    is_over: Cell<bool>,
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        // A lost connection may wait for an answer for ever. A regular close says
        // goodbye first.
        if self.end.lock().is_ok_and(|end| end.is_some()) {
            self.task.abort();
        }
    }
}

impl PostgresConnection {
    /// Returns the prepared statement of this text.
    pub(super) async fn prepared(&self, sql: &str) -> Result<Rc<PreparedStatement>, Error> {
        if let Some(found) = self.statements.borrow().get(sql) {
            return Ok(Rc::clone(found));
        }
        let mut statement = self.client.prepare(sql).await?;
        if statement.columns().iter().any(|column| !is_readable(column.type_())) {
            statement = self.client.prepare(&with_casts(sql, &statement)).await?;
        }
        let names = statement.columns().iter().map(|column| self.field(column.name())).collect();
        let prepared = Rc::new(PreparedStatement { statement, names });
        let mut statements = self.statements.borrow_mut();
        if statements.len() == STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert(sql.to_owned(), Rc::clone(&prepared));
        Ok(prepared)
    }

    fn field(&self, column: &str) -> Option<String> {
        let known = self.fields.iter().find(|field| field.eq_ignore_ascii_case(column));
        (column != super::KEY).then(|| known.map_or_else(|| column.to_owned(), String::clone))
    }

    /// Returns whether the connection has ended.
    fn is_lost(&self, error: &Error) -> bool {
        // A fatal error may arrive before the end of the connection.
        let last = |error: &tokio_postgres::error::DbError| {
            matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        };
        let is_over = error.is_closed() || self.client.is_closed() || error.as_db_error().is_some_and(last);
        self.is_over.set(self.is_over.get() || is_over);
        is_over
    }

    /// Returns whether the connection is known to have ended.
    fn is_over(&self) -> bool {
        self.is_over.get() || self.client.is_closed()
    }

    /// Forgets a prepared statement if the error says that the table has changed or that
    /// a pooler has lost the statement.
    pub(super) fn forget_stale(&self, sql: &str, error: &Error) {
        let stale = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_SQL_STATEMENT_NAME];
        if error.code().is_some_and(|code| stale.contains(code)) {
            self.statements.borrow_mut().remove(sql);
        }
    }

    /// Closes the connection at once.
    pub(super) fn give_up(&self, why: &str) {
        if let Ok(mut end) = self.end.lock() {
            end.get_or_insert_with(|| why.to_owned());
        }
        self.task.abort();
    }

    fn why(&self, error: &Error) -> String {
        if error.as_db_error().is_some() {
            return words(error);
        }
        let end = self.end.lock().ok().and_then(|end| end.clone());
        end.unwrap_or_else(|| words(error))
    }
}

/// Types whose binary format is the value's bytes.
fn is_readable(kind: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::BYTEA, Type::JSON, Type::JSONB].contains(kind)
}

/// Returns a query that converts columns of other types, in another tool's table, to text.
fn with_casts(sql: &str, statement: &Statement) -> String {
    let mut cast = String::from("SELECT ");
    for (index, column) in statement.columns().iter().enumerate() {
        cast.push_str(if index == 0 { "" } else { ", " });
        super::sql::quote(&mut cast, column.name());
        if !is_readable(column.type_()) {
            cast.push_str("::text AS ");
            super::sql::quote(&mut cast, column.name());
        }
    }
    cast + " FROM (" + sql + ") AS row"
}

/// Opens clients' connections.
#[derive(Debug)]
pub(super) struct PostgresConnector {
    server: Arc<PostgresEndpoint>,
    /// Fields of the schema.
    fields: Arc<[String]>,
}

impl PostgresConnector {
    pub(super) fn new(server: &Arc<PostgresEndpoint>, fields: Arc<[String]>) -> PostgresConnector {
        PostgresConnector { server: Arc::clone(server), fields }
    }
}

impl Connector for PostgresConnector {
    type Connection = Rc<PostgresConnection>;
    type Error = Error;

    fn limit(&self) -> TimeLimit {
        TimeLimit { time: self.server.timeout, property: TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<Rc<PostgresConnection>, StoreError>> + 'static {
        let (server, fields) = (Arc::clone(&self.server), Arc::clone(&self.fields));
        async move { Ok(Rc::new(server.connect(fields).await?)) }
    }

    fn share(link: &Rc<PostgresConnection>) -> Option<Rc<PostgresConnection>> {
        Some(Rc::clone(link))
    }

    fn is_usable(link: &mut Rc<PostgresConnection>, _: &mut Context<'_>) -> bool {
        !link.is_over()
    }

    fn failure(&self, link: &Rc<PostgresConnection>, error: &Error) -> OperationFailure {
        if link.is_lost(error) {
            let words = format!("connection lost: {}", link.why(error));
            return OperationFailure {
                fate: ConnectionFate::Lost,
                outcome: Outcome::failed(Status::ServiceUnavailable, words),
            };
        }
        OperationFailure { fate: ConnectionFate::Kept, outcome: refusal(error) }
    }

    fn abandon(link: &Rc<PostgresConnection>) {
        link.give_up("another operation of this connection ran into postgres.timeout");
    }
}
