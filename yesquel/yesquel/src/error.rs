//! What can go wrong, for callers to match on.

use std::io;
use thiserror::Error;
use yesquel_client::CommitError;
use yesquel_log::LogError;
use yesquel_model::{Refusal, TreeId};
use yesquel_server::{CoreError, FolderError};
use yesquel_transport::{Cause, ConnectError};
use yesquel_tree::TreeError;

/// Why something was not done, or may not have been.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction was first: roll back and begin again.
    #[error("{0}")]
    Conflict(Refusal),
    /// The transaction was open for longer than the server keeps what its
    /// snapshot sees: roll back and begin again.
    #[error("{0}")]
    SnapshotTooOld(Refusal),
    /// A key that was to be inserted is there.
    #[error("the key exists already")]
    Exists,
    /// The map was dropped.
    #[error("the map is not there any more (tree {0})")]
    NoMap(TreeId),
    /// The map was got from another store than the one that it is used with.
    #[error("the map is of another store: ask this one's database for it")]
    OtherStore,
    /// The transaction cannot come back to the savepoint.
    #[error("not a savepoint to roll back to: {0}")]
    Savepoint(&'static str),
    /// There is no database of this name.
    #[error("there is no database '{0}': create it, or see which there are")]
    NoDatabase(String),
    /// There is one.
    #[error("there is a database '{0}' already")]
    DatabaseExists(String),
    /// What cannot be a name.
    #[error("'{name}' cannot be a name: {what}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A key or value is longer than they may be.
    #[error("{what} of {bytes} bytes is longer than the {bytes_max} that are taken")]
    TooLong {
        /// A key, or a value.
        what: &'static str,
        /// How long.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Another one holds a [lease](crate::Lease) there: wait, and begin again.
    #[error("{0}")]
    Leased(Refusal),
    /// The numbers for rows are used up.
    #[error("there are no numbers left for rows of the map")]
    NoRowIds,
    /// The server's memory is spent. Deletes are taken, and reads go on.
    #[error("{0}")]
    OutOfMemory(Refusal),
    /// The server's disk has failed or is full. Reads go on.
    #[error("{0}")]
    DiskFailed(Refusal),
    /// The server did not answer; nothing was done.
    #[error("{0}")]
    Unavailable(String),
    /// Whoever waited for the server gave up, as its [`Patience`](crate::Patience)
    /// said; nothing was done.
    #[error("{0}")]
    Interrupted(String),
    /// The connection to the server has ended, as when it is started anew; nothing
    /// was done. What has read nothing may be done again.
    #[error("{0}")]
    Disconnected(String),
    /// It is not known, and cannot be found out, whether the commit was done.
    #[error(
        "{0}; whether the transaction was committed is not known: do not run it again before you have looked"
    )]
    OutcomeUnknown(String),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another process has the folder, or this one has it already.
    #[error(transparent)]
    InUse(CoreError),
    /// What is in the folder was written once and cannot be read any more, or
    /// is missing.
    #[error(transparent)]
    Damaged(CoreError),
    /// The system does not allow this process to use the folder.
    #[error(transparent)]
    Denied(CoreError),
    /// The folder cannot be opened for another reason.
    #[error(transparent)]
    Open(CoreError),
    /// A location that makes no sense.
    #[error("'{location}': {what}")]
    Location {
        /// What was given.
        location: String,
        /// What is wrong with it.
        what: String,
    },
    /// The server says what it must not.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Whether the transaction may be begun again: another one was first, or
    /// holds a lease.
    pub fn is_retryable(&self) -> bool {
        self.lost_to().is_some()
    }

    /// What the transaction has lost to, if it may be begun again.
    pub(crate) fn lost_to(&self) -> Option<Refusal> {
        match self {
            Error::Conflict(refusal) | Error::SnapshotTooOld(refusal) | Error::Leased(refusal) => {
                Some(*refusal)
            }
            _ => None,
        }
    }
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Error {
        match &error {
            CoreError::Folder(FolderError::InUse { .. }) => Error::InUse(error),
            CoreError::Checkpoint { .. }
            | CoreError::Log(LogError::Damaged { .. } | LogError::Missing { .. } | LogError::NoLog { .. }) => {
                Error::Damaged(error)
            }
            CoreError::Folder(FolderError::Io { error: cause, .. })
            | CoreError::Log(LogError::Io { error: cause, .. })
                if cause.kind() == io::ErrorKind::PermissionDenied =>
            {
                Error::Denied(error)
            }
            _ => Error::Open(error),
        }
    }
}

impl From<FolderError> for Error {
    fn from(error: FolderError) -> Error {
        CoreError::from(error).into()
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Conflict(_) | Refusal::GivenUp(_) => Error::Conflict(refusal),
            Refusal::SnapshotTooOld { .. } => Error::SnapshotTooOld(refusal),
            Refusal::Leased { .. } => Error::Leased(refusal),
            Refusal::OutOfMemory => Error::OutOfMemory(refusal),
            Refusal::DiskFailed | Refusal::DiskLost => Error::DiskFailed(refusal),
            Refusal::Exists(_) => Error::Exists,
            other => Error::Internal(other.to_string()),
        }
    }
}

impl From<yesquel_client::Error> for Error {
    fn from(error: yesquel_client::Error) -> Error {
        match error {
            yesquel_client::Error::Refused(refusal) => refusal.into(),
            yesquel_client::Error::Lost(lost) if lost.cause == Cause::GivenUp => {
                Error::Interrupted(lost.to_string())
            }
            yesquel_client::Error::Lost(lost) if lost.cause == Cause::Ended => {
                Error::Disconnected(lost.to_string())
            }
            yesquel_client::Error::Lost(lost) => Error::Unavailable(lost.to_string()),
            other => Error::Internal(other.to_string()),
        }
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Error {
        match error {
            CommitError::Refused { refusal, .. } => refusal.into(),
            CommitError::Failed(error) => match error.into() {
                Error::Internal(why) => Error::Unavailable(why),
                error => error,
            },
            CommitError::Unknown(yesquel_client::Error::Refused(refusal @ Refusal::DiskLost)) => {
                Error::OutcomeUnknown(refusal.to_string())
            }
            CommitError::Unknown(error) => Error::OutcomeUnknown(error.to_string()),
        }
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        match error {
            TreeError::Client(error) => error.into(),
            TreeError::Commit(error) => error.into(),
            TreeError::Exists => Error::Exists,
            TreeError::NoTree(tree) => Error::NoMap(tree),
            TreeError::TooLong { what, bytes, bytes_max } => Error::TooLong { what, bytes, bytes_max },
            TreeError::Abandoned => Error::OutcomeUnknown(TreeError::Abandoned.to_string()),
            TreeError::Savepoint(why) => Error::Savepoint(why),
            other @ TreeError::Damaged(..) => Error::Internal(other.to_string()),
        }
    }
}
