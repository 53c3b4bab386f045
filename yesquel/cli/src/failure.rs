//! Why a command failed, and with which status it ends.

use rusqlite::ErrorCode;
use std::{io, path::PathBuf};
use thiserror::Error;
use yesquel::{ConnectError, Denial};
use yesquel_sqlite::Trouble;

#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{error}{}", advice(.0), error = .0)]
    Yesquel(#[from] yesquel::Error),
    #[error(transparent)]
    Address(#[from] yesquel::AddressError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// What was asked for is not there.
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Usage(String),
    /// SQLite's message.
    #[error("{0}")]
    Sql(String),
    /// Another transaction was first, or holds a lock: SQLite's message.
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Unreachable(String),
    /// What was asked for is not a database, or not a whole one.
    #[error("{0}")]
    Damaged(String),
    /// By Ctrl-C.
    #[error("interrupted{0}")]
    Interrupted(&'static str),
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// The options that may help, of which the library knows nothing.
fn advice(error: &yesquel::Error) -> &'static str {
    let yesquel::Error::Connect(error) = error else { return "" };
    match error {
        ConnectError::NotTls { .. } => {
            ". Leave --tls and --tls-ca out if it is a server without a certificate"
        }
        ConnectError::WantsTls { .. } => ". Give --tls-ca FILE, or --tls if browsers trust its certificate",
        ConnectError::Certificate { .. } => ". Give the certificate of whoever signed it: --tls-ca FILE",
        ConnectError::Closed { is_encrypted: false, .. } => {
            ". Encryption is asked for with --tls-ca FILE or --tls"
        }
        ConnectError::Late { .. } => " (--connect-timeout lets it take longer)",
        ConnectError::Denied { denial: Denial::Credential, .. } => " (--credential-file FILE)",
        _ => "",
    }
}

/// What SQLite says of an error, without the words of the crate between.
pub(crate) fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// The same of a step of a copy, of which SQLite gives a code only.
pub(crate) fn words_of_step(error: &rusqlite::Error) -> String {
    let told = error.sqlite_error().and_then(|error| yesquel_sqlite::last_words(error.extended_code));
    told.unwrap_or_else(|| words(error))
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::sql(&error)
    }
}

impl Failure {
    /// An error of SQLite's, which may be one of the store's.
    pub(crate) fn sql(error: &rusqlite::Error) -> Failure {
        Failure::with(error, words(error))
    }

    /// An error of a step of a copy.
    pub(crate) fn step(error: &rusqlite::Error) -> Failure {
        Failure::with(error, words_of_step(error))
    }

    fn with(error: &rusqlite::Error, words: String) -> Failure {
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            return Failure::Interrupted("");
        }
        match yesquel_sqlite::last_trouble() {
            _ if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Failure::Busy(words),
            Some(Trouble::Unreachable) => Failure::Unreachable(words),
            Some(Trouble::NoDatabase) => Failure::Absent(words),
            Some(Trouble::Address) => Failure::Usage(words),
            _ => Failure::Sql(words),
        }
    }

    /// 1: it was not done; 2: it was asked for wrongly; 3: there is no such
    /// database, map or key; 4: the server cannot be reached; 130: Ctrl-C.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Address(_) | Failure::Usage(_) | Failure::Yesquel(yesquel::Error::Name { .. }) => 2,
            Failure::Absent(_) | Failure::Yesquel(yesquel::Error::NoDatabase(_)) => 3,
            Failure::Yesquel(
                yesquel::Error::Connect(_) | yesquel::Error::Unavailable(_) | yesquel::Error::Disconnected(_),
            )
            | Failure::Unreachable(_) => 4,
            Failure::Interrupted(_) => 130,
            Failure::Yesquel(_)
            | Failure::File { .. }
            | Failure::Output(_)
            | Failure::Sql(_)
            | Failure::Busy(_)
            | Failure::Damaged(_) => 1,
        }
    }
}
