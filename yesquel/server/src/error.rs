//! Reasons for which a server cannot start.

use crate::DataFolderError;
use thiserror::Error;
use yesquel_node::OpenError;

/// Reason for which a server cannot start or has stopped accepting writes.
#[derive(Debug, Error)]
pub enum CoreError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] DataFolderError),
    /// The log or a checkpoint cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}
