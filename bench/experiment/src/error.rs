//! The ends and errors of experiments.

use crate::journal::JournalError;
use serval_model::{StoreError, properties::Faults};
use serval_plan::{PlanError, folder::FolderError};

/// End of an experiment that was conducted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// All runs were performed.
    Complete,
    /// The user interrupted the experiment.
    Interrupted,
    /// The stores of some curves failed; the other curves are complete.
    CurvesLost,
}

/// Reason why an experiment cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ConductError {
    /// A configuration, a store or a run failed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The experiment's folder cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The user interrupted the experiment. Callers get [`Stopped::Interrupted`] instead.
    #[error("interrupted")]
    Interrupted,
}

impl ConductError {
    /// Makes an error of a store.
    pub(crate) fn store(store: &str, problem: impl Into<String>) -> ConductError {
        PlanError::Store(StoreError::new(store, problem.into())).into()
    }
}

impl From<Faults> for ConductError {
    fn from(faults: Faults) -> Self {
        ConductError::Plan(faults.into())
    }
}

impl From<FolderError> for ConductError {
    fn from(error: FolderError) -> Self {
        ConductError::Plan(error.into())
    }
}
