//! Why a plan has no result.

use crate::folder::FolderError;
use serval_model::{StoreError, properties::Faults};
use serval_runner::RunError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The configuration is wrong.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// The store cannot do what is asked, or does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Several runs that belong together cannot run together.
    #[error("{0}")]
    Group(String),
    /// The result cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
}
