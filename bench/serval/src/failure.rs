//! What went wrong, and the exit status that says so.

use serval_experiment::{folder::FolderError, perform::ExperimentError, session::RunLost};
use serval_model::{StoreError, properties::Faults};
use serval_runner::{Lost, RunError};
use std::{fmt, process::ExitCode};

/// Operations failed, more than allowed.
pub(crate) const OPERATIONS_FAILED: u8 = 1;
/// Wrong usage or configuration.
pub(crate) const USAGE: u8 = 2;
/// The store cannot be used.
pub(crate) const STORE: u8 = 3;
/// The result cannot be written.
pub(crate) const OUTPUT: u8 = 4;
/// A comparison has something worse.
pub(crate) const WORSE: u8 = 1;
/// A comparison has too few runs to say.
pub(crate) const INCONCLUSIVE: u8 = 5;
/// Interrupted before the end.
pub(crate) const INTERRUPTED: u8 = 130;

/// A failure for the user: words and an exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { status: USAGE, message: message.into() }
    }

    pub(crate) fn store(message: impl Into<String>) -> Self {
        Failure { status: STORE, message: message.into() }
    }

    pub(crate) fn output(message: impl Into<String>) -> Self {
        Failure { status: OUTPUT, message: message.into() }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        let message = match faults.0.as_slice() {
            [fault] => fault.to_string(),
            many => {
                let lines: Vec<String> = many.iter().map(|fault| format!("  {fault}")).collect();
                format!("{} things are wrong with the configuration:\n{}", many.len(), lines.join("\n"))
            }
        };
        Failure::usage(message)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure { status: STORE, message: error.to_string() }
    }
}

impl From<RunLost> for Failure {
    fn from(lost: RunLost) -> Self {
        match lost {
            RunLost::Run(Lost::Store(error)) => error.into(),
            // What was configured asks for what cannot be done.
            RunLost::Run(Lost::Workload(problem)) => Failure::usage(problem),
            RunLost::Clients(problem) => Failure::store(problem),
        }
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        Failure::output(error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        ExperimentError::Run(error).into()
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        match error {
            ExperimentError::Faults(faults) => faults.into(),
            ExperimentError::Store(error) => error.into(),
            ExperimentError::Folder(error) => error.into(),
            ExperimentError::Run(RunError::Store(error)) => error.into(),
            ExperimentError::Run(error @ RunError::ChangingRate) => Failure::usage(error.to_string()),
            ExperimentError::Run(error @ RunError::Interrupted) => {
                Failure { status: INTERRUPTED, message: error.to_string() }
            }
            ExperimentError::Run(error @ RunError::Panicked(_)) => Failure::store(error.to_string()),
            ExperimentError::Group(problem) => Failure::store(problem),
        }
    }
}
