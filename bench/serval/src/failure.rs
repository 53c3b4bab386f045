//! What went wrong, and the exit status that says so.

use serval_model::{StoreError, properties::Faults};
use serval_plan::{PlanError, folder::FolderError, session::RunLost};
use serval_runner::{AbortCause, RunError};
use std::{fmt, process::ExitCode};

/// The exit statuses of what does not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Operations failed, more than allowed.
    OperationsFailed,
    /// A comparison has something worse.
    Worse,
    /// Wrong usage or configuration.
    Usage,
    /// The store cannot be used.
    Store,
    /// The result cannot be written.
    Output,
    /// A comparison has too few runs to say.
    Inconclusive,
    /// Interrupted before the end.
    Interrupted,
}

impl Exit {
    /// The number that the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::OperationsFailed | Exit::Worse => 1,
            Exit::Usage => 2,
            Exit::Store => 3,
            Exit::Output => 4,
            Exit::Inconclusive => 5,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// A failure for the user: words and an exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, message)
    }

    pub(crate) fn store(message: impl Into<String>) -> Self {
        Failure::new(Exit::Store, message)
    }

    pub(crate) fn output(message: impl Into<String>) -> Self {
        Failure::new(Exit::Output, message)
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.exit.into()
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
        Failure::store(error.to_string())
    }
}

impl From<RunLost> for Failure {
    fn from(lost: RunLost) -> Self {
        match lost {
            RunLost::Run(AbortCause::Store(error)) => error.into(),
            // What was configured asks for what cannot be done.
            RunLost::Run(AbortCause::Workload(problem)) => Failure::usage(problem),
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
        PlanError::Run(error).into()
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Faults(faults) => faults.into(),
            PlanError::Store(error) => error.into(),
            PlanError::Folder(error) => error.into(),
            PlanError::Run(RunError::Store(error)) => error.into(),
            PlanError::Run(error @ RunError::ChangingRate) => Failure::usage(error.to_string()),
            PlanError::Run(error @ RunError::Interrupted) => {
                Failure::new(Exit::Interrupted, error.to_string())
            }
            PlanError::Run(error @ RunError::Panicked(_)) => Failure::store(error.to_string()),
            PlanError::Group(problem) => Failure::store(problem),
        }
    }
}
