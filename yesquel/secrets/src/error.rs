//! Errors.

use std::path::Path;
use thiserror::Error;

/// A file of secrets cannot be used, or the secrets contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{location}: {what}")]
pub struct SecretsError {
    /// The file.
    pub location: String,
    /// What is wrong with it.
    pub what: String,
}

impl SecretsError {
    pub(crate) fn file(path: &Path, what: impl ToString) -> SecretsError {
        SecretsError { location: path.display().to_string(), what: what.to_string() }
    }
}
