//! Reasons for which a data folder cannot be used.

use std::{io, path::PathBuf};
use thiserror::Error;
use yesquel_model::ServerId;

/// Format of the folder as a whole: its files and their meaning.
pub(crate) const FORMAT: u32 = 2;
/// The same for several groups, which earlier releases do not know.
pub(crate) const FORMAT_OF_SEVERAL: u32 = 3;

/// Reason for which a data folder cannot be used.
#[derive(Debug, Error)]
pub enum DataFolderError {
    /// The system reported an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process has locked the folder.
    #[error("{}: in use by {holder}: stop that, or name another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process, as the lock file names it.
        holder: String,
    },
    /// The folder holds foreign files.
    #[error("{}: has files that are not Yesquel's, such as '{file}': name another folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Name of one of the files.
        file: String,
    },
    /// The folder belongs to another server.
    #[error(
        "{}: is the folder of server {}, and this is server {}: its databases would not be found. Start it with \
         --server {}, or name another folder",
        path.display(), owner.0, asked.0, owner.0
    )]
    OtherServer {
        /// The folder.
        path: PathBuf,
        /// The server it belongs to.
        owner: ServerId,
        /// The server that is starting.
        asked: ServerId,
    },
    /// A newer version has written the folder.
    #[error("{}: the folder has format {format}, and this version of Yesquel knows {FORMAT_OF_SEVERAL}", path.display())]
    OtherFormat {
        /// The file that states the format.
        path: PathBuf,
        /// The format.
        format: u32,
    },
    /// An older version has written the folder, or its upgrade has not finished.
    #[error(
        "{}: {}, and this version of Yesquel knows {FORMAT}. Convert it: yesquel upgrade --data {}",
        path.display(),
        if *is_interrupted { "the upgrade of the folder has not finished" } else { "the folder has format 1" },
        path.display()
    )]
    OldFormat {
        /// The folder.
        path: PathBuf,
        /// An upgrade has begun, and the older version does not open the folder any more.
        is_interrupted: bool,
    },
    /// The file that states whose the folder is is damaged or missing.
    #[error(
        "{}: damaged: it does not say of which cluster and group the folder is. Restore the folder from a copy",
        path.display()
    )]
    NoMachine {
        /// The file.
        path: PathBuf,
    },
    /// The directory of the cluster does not admit the start.
    #[error("{}: the cluster does not admit the start of this machine", path.display())]
    NotAdmitted {
        /// The folder.
        path: PathBuf,
    },
    /// A file about the cluster is damaged.
    #[error("{}: damaged. Restore the file from a copy of the folder", path.display())]
    DamagedFile {
        /// The file.
        path: PathBuf,
    },
    /// The folder has the credentials of servers twice.
    #[error(
        "{}: has both '{}' and '{}', and only one can be right: delete the first one if the cluster encrypts its \
         connections, else the other one",
        path.display(), names[0], names[1]
    )]
    TwoPeerCredentials {
        /// The folder.
        path: PathBuf,
        /// The files: that of a cluster without encryption, and the other one.
        names: [&'static str; 2],
    },
    /// The folder of the group is missing.
    #[error("{}: there is no such folder, which has all data. Restore it from a copy", path.display())]
    NoGroup {
        /// The folder of the group.
        path: PathBuf,
    },
    /// The file of format 1 that names the server is damaged.
    #[error(
        "{}: damaged: it does not say whose the folder is. Delete it: the upgrade finds the server's number in what is \
         stored",
        path.display()
    )]
    NoOwner {
        /// The file.
        path: PathBuf,
    },
}
