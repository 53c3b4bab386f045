//! Why two sides cannot be compared.

use serval_report::stored::StoredError;
use std::path::PathBuf;

/// Two sides cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Something stored cannot be read.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// A folder cannot be looked through.
    #[error("{path}: cannot be read: {error}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A place has no result in it or below it.
    #[error(
        "{0}: there is no result in it: no result.json and no experiment.json, there or in folders below"
    )]
    Empty(PathBuf),
    /// Too much.
    #[error("{path}: there are more than {max} {what}, which is the most that is looked at; name less")]
    TooMany {
        /// Where.
        path: PathBuf,
        /// The limit.
        max: usize,
        /// Of what.
        what: &'static str,
    },
    /// What is there cannot be compared.
    #[error("{0}")]
    Unfit(String),
}
