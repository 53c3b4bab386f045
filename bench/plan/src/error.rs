//! Errors of performing a plan.

use crate::folder::FolderError;
use serval_model::{StoreError, properties::Faults};
use serval_runner::RunError;

/// Reason why a plan has no result.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The configuration is wrong.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// The store refuses a request or does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The processes or parts of a run cannot run together.
    #[error("{0}")]
    Group(String),
    /// The result cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
}
