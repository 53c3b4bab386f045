//! Failures of commands, and their exit statuses.

use rusqlite::ErrorCode;
use std::{io, path::PathBuf};
use thiserror::Error;
use yesquel::{ConnectError, Denial, UpgradeError};
use yesquel_sqlite::SqlErrorKind;

#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error("{error}{}", advice(.0), error = .0)]
    Yesquel(#[from] yesquel::Error),
    #[error(transparent)]
    Address(#[from] yesquel::AddressError),
    /// A file of certificates or credentials cannot be used.
    #[error(transparent)]
    Secrets(#[from] yesquel::SecretsError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// The named object does not exist.
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Usage(String),
    /// Message of SQLite.
    #[error("{0}")]
    Sql(String),
    /// Conflict with another transaction, or a lock: message of SQLite.
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Unreachable(String),
    /// The file is not a database, or a damaged one.
    #[error("{0}")]
    Damaged(String),
    /// A server rejects the credential of an operator.
    #[error(
        "{0} (--peer-credential-file FILE: operators present the credential of servers. A server that has one for \
         clients only admits no operator)"
    )]
    Operator(yesquel::Error),
    /// A server cannot connect to another one of its cluster.
    #[error("{error}{}", connect_advice(.0, Connector::Server), error = .0)]
    Peer(ConnectError),
    /// Some groups of a cluster do not serve.
    #[error("{0} of {1} groups {verb} not serve", verb = if *.0 == 1 { "does" } else { "do" })]
    Unserved(usize, usize),
    /// A check has found faults.
    #[error("{0} {verb} found", verb = if *.0 == 1 { "fault was" } else { "faults were" })]
    Faults(u64),
    /// Transactions that are committed at some groups and aborted at others.
    #[error(
        "{0} {have} ended half: the client has decided while it was given up. Compare the rows at the groups",
        have = if *.0 == 1 { "transaction has" } else { "transactions have" }
    )]
    Half(u64),
    /// Interrupted by Ctrl-C.
    #[error("interrupted{0}")]
    Interrupted(&'static str),
    /// A folder cannot be upgraded.
    #[error("{0}")]
    Upgrade(UpgradeError),
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Returns the options that may help, which the library does not know.
fn advice(error: &yesquel::Error) -> &'static str {
    match error {
        yesquel::Error::Connect(error) => connect_advice(error, Connector::Client),
        _ => "",
    }
}

/// Who connects. The options have other names.
#[derive(Debug, Clone, Copy)]
enum Connector {
    Client,
    /// `yesquel serve`, to another server.
    Server,
}

fn connect_advice(error: &ConnectError, connector: Connector) -> &'static str {
    let (client, server) = match error {
        ConnectError::NoneAnswers(errors) => {
            return errors.first().map_or("", |error| connect_advice(error, connector));
        }
        ConnectError::NotTls { .. } => (
            ". Leave --tls and --tls-ca out if it is a server without a certificate",
            ". Leave --peer-tls-ca out if it is a server without a certificate",
        ),
        ConnectError::WantsTls { .. } => (
            ". Give --tls-ca FILE, or --tls if browsers trust its certificate",
            ". Give the certificate of the authority that signed its own: --peer-tls-ca FILE",
        ),
        ConnectError::Certificate { .. } => (
            ". Give the certificate of the authority that signed it: --tls-ca FILE",
            ". Give the certificate of the authority that signed it: --peer-tls-ca FILE",
        ),
        ConnectError::Closed { is_encrypted: false, .. } => (
            ". Encryption is asked for with --tls-ca FILE or --tls",
            ". Encryption is asked for with --peer-tls-ca FILE",
        ),
        ConnectError::Late { .. } => (" (--connect-timeout lets it take longer)", ""),
        ConnectError::Denied { denial: Denial::Credential, .. } => {
            (" (--credential-file FILE)", " (--peer-credential-file FILE)")
        }
        _ => ("", ""),
    };
    match connector {
        Connector::Client => client,
        Connector::Server => server,
    }
}

/// Returns SQLite's message, without rusqlite's prefix.
pub(crate) fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Like [`words`] for a step of a copy, for which SQLite gives a code only.
pub(crate) fn words_of_step(error: &rusqlite::Error) -> String {
    let message = error.sqlite_error().and_then(|error| yesquel_sqlite::last_message(error.extended_code));
    message.unwrap_or_else(|| words(error))
}

impl From<UpgradeError> for CliError {
    fn from(error: UpgradeError) -> CliError {
        match error {
            UpgradeError::Interrupted => {
                CliError::Interrupted(": run the command again, and the upgrade continues")
            }
            error => CliError::Upgrade(error),
        }
    }
}

impl From<rusqlite::Error> for CliError {
    fn from(error: rusqlite::Error) -> CliError {
        CliError::sql(&error)
    }
}

impl CliError {
    /// Classifies an error of SQLite, which may come from the store.
    pub(crate) fn sql(error: &rusqlite::Error) -> CliError {
        CliError::with(error, words(error))
    }

    /// Classifies an error of a step of a copy.
    pub(crate) fn step(error: &rusqlite::Error) -> CliError {
        CliError::with(error, words_of_step(error))
    }

    fn with(error: &rusqlite::Error, words: String) -> CliError {
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            return CliError::Interrupted("");
        }
        match yesquel_sqlite::last_error_kind() {
            _ if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => CliError::Busy(words),
            Some(SqlErrorKind::Unreachable) => CliError::Unreachable(words),
            Some(SqlErrorKind::NoDatabase) => CliError::Absent(words),
            Some(SqlErrorKind::Address) => CliError::Usage(words),
            _ => CliError::Sql(words),
        }
    }

    /// Exit status: 1 not done; 2 wrong usage; 3 the database, map or key does not exist; 4 the
    /// server cannot be reached; 130 Ctrl-C.
    pub(crate) fn status(&self) -> u8 {
        match self {
            CliError::Address(_) | CliError::Usage(_) | CliError::Yesquel(yesquel::Error::Name { .. }) => 2,
            CliError::Absent(_) | CliError::Yesquel(yesquel::Error::NoDatabase(_)) => 3,
            CliError::Yesquel(
                yesquel::Error::Connect(_)
                | yesquel::Error::Unavailable(_)
                | yesquel::Error::HomeGroupUnreachable(_)
                | yesquel::Error::Disconnected(_),
            )
            | CliError::Operator(_)
            | CliError::Peer(_)
            | CliError::Unreachable(_) => 4,
            CliError::Interrupted(_) => 130,
            CliError::Yesquel(_)
            | CliError::Unserved(..)
            | CliError::Faults(_)
            | CliError::Half(_)
            | CliError::File { .. }
            | CliError::Output(_)
            | CliError::Secrets(_)
            | CliError::Sql(_)
            | CliError::Busy(_)
            | CliError::Damaged(_)
            | CliError::Upgrade(_) => 1,
        }
    }
}
