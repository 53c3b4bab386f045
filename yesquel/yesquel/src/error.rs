//! Errors, for callers to match on.

use std::{io, path::PathBuf};
use thiserror::Error;
use yesquel_client::CommitError;
use yesquel_log::LogError;
use yesquel_model::{Refusal, TreeId};
use yesquel_node::OpenError;
use yesquel_server::{CoreError, DataFolderError};
use yesquel_transport::{Address, ConnectError, LossCause};
use yesquel_tree::TreeError;
use yesquel_wire::machines::ManagementRefusal;

/// Reason for which an operation failed, or may have failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction was first: roll back and retry.
    #[error("{0}")]
    Conflict(Refusal),
    /// The server no longer keeps the transaction's snapshot, which is too old: roll back and
    /// retry.
    #[error("{0}")]
    SnapshotTooOld(Refusal),
    /// The key to insert exists.
    #[error("the key exists already")]
    Exists,
    /// The map was dropped.
    #[error("the map is not there any more (tree {0})")]
    NoMap(TreeId),
    /// The map belongs to another store than the one it is used with.
    #[error("the map is of another store: ask this one's database for it")]
    OtherStore,
    /// The transaction cannot roll back to this savepoint.
    #[error("not a savepoint to roll back to: {0}")]
    Savepoint(&'static str),
    /// There is no database of this name.
    #[error("there is no database '{0}': create it, or see which there are")]
    NoDatabase(String),
    /// The server knows no group of this number.
    #[error("group {0} is not known: `yesquel cluster status` lists the groups")]
    NoGroup(u16),
    /// A database of this name exists.
    #[error("there is a database '{0}' already")]
    DatabaseExists(String),
    /// The name is invalid.
    #[error("'{name}' cannot be a name: {what}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A key or value is too long.
    #[error("{what} of {bytes} bytes is longer than the {bytes_max} that are taken")]
    TooLong {
        /// "a key" or "a value".
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Another client holds a [lease](crate::Lease) there: wait and retry.
    #[error("{0}")]
    Leased(Refusal),
    /// A new server has the number of a group that a machine of the cluster hosts.
    #[error("group {group} is at {place}: start the server with another number (--server)")]
    GroupTaken {
        /// The number.
        group: u16,
        /// The machine's address.
        place: String,
    },
    /// A new server with peers joins the cluster of the one with the lowest number, which does not
    /// answer.
    #[error("a new server joins the cluster of server {server}, which must be started first: {error}")]
    NoFounder {
        /// The server that founds the cluster.
        server: u16,
        /// Why it cannot be asked.
        error: ConnectError,
    },
    /// A command for the machines of the cluster is refused.
    #[error(transparent)]
    Management(#[from] ManagementRefusal),
    /// The servers there have not issued the token with which a machine wants to join.
    #[error(
        "{0}: the server has not issued the token, or the credential of servers has changed since: write another token \
         with `yesquel cluster add`"
    )]
    RejectedToken(Address),
    /// The token would be sent to a machine that cannot be verified.
    #[error(
        "{0}: the token is not sent without encryption: give the certificate that signs those of the servers \
         (--peer-tls-ca FILE)"
    )]
    ExposedToken(Address),
    /// The credential of servers would be presented to machines that cannot be verified.
    #[error(
        "this machine got the credential of its cluster's servers over TLS, and does not present it without: give the \
         certificate that signs those of the servers (--peer-tls-ca FILE)"
    )]
    ExposedCredential,
    /// A join was interrupted.
    #[error(
        "{}: the join of this folder to a cluster was interrupted: continue it with --join and --token-file, or name \
         another folder",
        .0.display()
    )]
    UnfinishedJoin(PathBuf),
    /// A machine that joins a cluster must be reachable.
    #[error("others cannot find this server: give the address at which they reach it (--advertise)")]
    NoAddress,
    /// The machine of the data folder runs already.
    #[error("machine {machine} runs already, at {address}: stop it, or delete this folder if it is a copy")]
    MachineRuns {
        /// Number of the machine.
        machine: u32,
        /// Where it answers.
        address: Address,
    },
    /// The machine has started with another copy of the data folder.
    #[error(
        "{}: machine {machine} has started {incarnation} times, the last time not with this folder: it is a copy, or \
         older than one. Start the machine with the other folder, and delete this one",
        folder.display()
    )]
    CopiedFolder {
        /// The folder.
        folder: PathBuf,
        /// Number of the machine.
        machine: u32,
        /// Number of the last start.
        incarnation: u64,
    },
    /// The data folder lacks log records that the machine had on disk.
    #[error(
        "{}: the log of group {group} ends with record {log_end}, and machine {machine} had {known} on disk: the folder is \
         an older copy. Start the newer one; if that is lost, --accept-loss starts this one without what it lacks",
        folder.display()
    )]
    OlderCopy {
        /// The folder.
        folder: PathBuf,
        /// Number of the machine.
        machine: u32,
        /// Number of the group.
        group: u16,
        /// Its last log record.
        log_end: u64,
        /// The last one that the directory has seen.
        known: u64,
    },
    /// The data folder lacks a group that its machine had.
    #[error(
        "{}: the folder lacks group {group}, which its machine had: it is an older copy, or the folder of the group is \
         lost. Start the newer one, or restore the folder of the group",
        folder.display()
    )]
    LostGroup {
        /// The folder.
        folder: PathBuf,
        /// Number of the group.
        group: u16,
    },
    /// A machine of a cluster without a directory was to get further groups.
    #[error(
        "a machine that knows others by --peer hosts one group until it is in the directory: issue a token at any \
         machine with `yesquel cluster add`, start this one without --groups, and then with it"
    )]
    NoDirectory,
    /// A machine cannot host so many groups.
    #[error("--groups {0}: a machine hosts from 1 to {most} groups, whose numbers are at most 65535", most = yesquel_server::GROUPS_MAX)]
    GroupCount(u16),
    /// The machine was started again while this process runs.
    #[error(
        "machine {machine} was started again (start {incarnation}) with a copy of this data folder: this process ends"
    )]
    StartedAgain {
        /// Number of the machine.
        machine: u32,
        /// Number of the start.
        incarnation: u64,
    },
    /// The machine was removed from the cluster.
    #[error(
        "machine {machine} was removed from the cluster: to join it again, name a new data folder and a new token"
    )]
    MachineRemoved {
        /// Number of the machine.
        machine: u32,
    },
    /// The row numbers of the map are used up.
    #[error("there are no numbers left for rows of the map")]
    NoRowIds,
    /// The server's memory is exhausted. Deletes and reads still work.
    #[error("{0}")]
    OutOfMemory(Refusal),
    /// The server's disk has failed. Reads still work.
    #[error("{0}")]
    DiskFailed(Refusal),
    /// The server's disk is full. The operation had no effect. Reads still work, and writes when there
    /// is space.
    #[error("{0}")]
    DiskFull(Refusal),
    /// The clock of the server's machine differs from those of the other servers: it serves nothing.
    #[error("{0}")]
    ClockDiffers(Refusal),
    /// The clock of the server's machine is far behind that of another server which this client has used:
    /// the server answers this client when its clock has come near.
    #[error("{0}")]
    ClockBehind(Refusal),
    /// The server did not answer. The operation had no effect.
    #[error("{0}")]
    Unavailable(String),
    /// The home group, which has the names of databases and maps, did not answer, and no other machine has
    /// a copy that suffices. The operation had no effect.
    #[error(
        "the home group of the cluster cannot be reached: {0}. Until it answers, tables and databases are neither created \
         nor dropped; those whose groups answer can be read and written"
    )]
    HomeGroupUnreachable(String),
    /// The caller's [`CancelCheck`](crate::CancelCheck) cancelled the wait for the server. The
    /// operation had no effect.
    #[error("{0}")]
    Interrupted(String),
    /// The connection has ended, as after a restart of the server. The operation had no effect; a
    /// transaction that has read nothing can be repeated.
    #[error("{0}")]
    Disconnected(String),
    /// It cannot be determined whether the transaction committed.
    #[error(
        "{0}; whether the transaction was committed is not known: do not run it again before you have looked"
    )]
    OutcomeUnknown(String),
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The folder is in use by another process, or by this one.
    #[error(transparent)]
    InUse(CoreError),
    /// The folder is of an older release: `yesquel upgrade` converts it.
    #[error(transparent)]
    OldFormat(CoreError),
    /// A file of the folder is damaged or missing.
    #[error(transparent)]
    Damaged(CoreError),
    /// The system denies this process access to the folder.
    #[error(transparent)]
    Denied(CoreError),
    /// The folder cannot be opened for another reason.
    #[error(transparent)]
    Open(CoreError),
    /// The location is invalid.
    #[error("'{location}': {what}")]
    Location {
        /// The location.
        location: String,
        /// What is wrong with it.
        what: String,
    },
    /// The server sent an answer that does not make sense.
    #[error("{0}")]
    Internal(String),
}

impl From<yesquel_secrets::SecretsError> for Error {
    fn from(error: yesquel_secrets::SecretsError) -> Error {
        let yesquel_secrets::SecretsError { location, what } = error;
        Error::Location { location, what }
    }
}

impl Error {
    /// Returns whether the transaction may be retried: another one was first or holds a lease.
    pub fn is_retryable(&self) -> bool {
        self.lost_to().is_some()
    }

    /// Returns the refusal that the transaction lost to, if it may be retried.
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
            CoreError::Folder(DataFolderError::InUse { .. }) => Error::InUse(error),
            CoreError::Folder(DataFolderError::OldFormat { .. }) => Error::OldFormat(error),
            CoreError::Folder(
                DataFolderError::NoMachine { .. }
                | DataFolderError::NoGroup { .. }
                | DataFolderError::DamagedFile { .. },
            )
            | CoreError::Open(
                OpenError::Checkpoint { .. }
                | OpenError::Log(LogError::Damaged { .. } | LogError::Missing { .. } | LogError::NoLog { .. }),
            ) => Error::Damaged(error),
            CoreError::Folder(DataFolderError::Io { error: cause, .. })
            | CoreError::Open(OpenError::Log(LogError::Io { error: cause, .. }))
                if cause.kind() == io::ErrorKind::PermissionDenied =>
            {
                Error::Denied(error)
            }
            _ => Error::Open(error),
        }
    }
}

impl From<DataFolderError> for Error {
    fn from(error: DataFolderError) -> Error {
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
            Refusal::DiskFull => Error::DiskFull(refusal),
            Refusal::Exists(_) => Error::Exists,
            Refusal::ClockDiffers { .. } => Error::ClockDiffers(refusal),
            Refusal::TooFarAhead(_) => Error::ClockBehind(refusal),
            other => Error::Internal(other.to_string()),
        }
    }
}

impl From<yesquel_client::RequestError> for Error {
    fn from(error: yesquel_client::RequestError) -> Error {
        match error {
            yesquel_client::RequestError::Refused(refusal) => refusal.into(),
            yesquel_client::RequestError::Lost(lost) if lost.cause == LossCause::Cancelled => {
                Error::Interrupted(lost.to_string())
            }
            yesquel_client::RequestError::Lost(lost) if lost.cause == LossCause::Disconnected => {
                Error::Disconnected(lost.to_string())
            }
            yesquel_client::RequestError::Lost(lost) => Error::Unavailable(lost.to_string()),
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
            CommitError::Unknown(yesquel_client::RequestError::Refused(refusal @ Refusal::DiskLost)) => {
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
