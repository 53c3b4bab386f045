//! Outcomes of operations.

/// YCSB's statuses, by their names in its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok,
    /// Added to a batch or buffer that the store sends later.
    BatchedOk,
    /// The operation failed.
    Error,
    /// The record does not exist.
    NotFound,
    /// The store does not support the operation.
    NotImplemented,
    /// Reported as done, with an unexpected result.
    UnexpectedState,
    /// The request is invalid.
    BadRequest,
    /// The client lacks permission.
    Forbidden,
    /// A service that the store depends on is unavailable.
    ServiceUnavailable,
}

impl Status {
    /// All statuses.
    pub const ALL: [Status; 9] = [
        Self::Ok,
        Self::BatchedOk,
        Self::Error,
        Self::NotFound,
        Self::NotImplemented,
        Self::UnexpectedState,
        Self::BadRequest,
        Self::Forbidden,
        Self::ServiceUnavailable,
    ];

    /// Returns the name that YCSB prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::BatchedOk => "BATCHED_OK",
            Self::Error => "ERROR",
            Self::NotFound => "NOT_FOUND",
            Self::NotImplemented => "NOT_IMPLEMENTED",
            Self::UnexpectedState => "UNEXPECTED_STATE",
            Self::BadRequest => "BAD_REQUEST",
            Self::Forbidden => "FORBIDDEN",
            Self::ServiceUnavailable => "SERVICE_UNAVAILABLE",
        }
    }

    /// Returns the status with a name that YCSB prints.
    pub fn from_name(name: &str) -> Option<Status> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether the operation counts as done.
    pub fn is_ok(self) -> bool {
        matches!(self, Self::Ok | Self::BatchedOk)
    }
}

/// A status, and for a failure the store's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub status: Status,
    /// The store's message for a failure; `None` for success.
    pub message: Option<Box<str>>,
}

impl Outcome {
    /// Success.
    pub const OK: Outcome = Outcome { status: Status::Ok, message: None };
    /// The record does not exist.
    pub const NOT_FOUND: Outcome = Outcome { status: Status::NotFound, message: None };

    /// Returns a failure with the store's message.
    pub fn failed(status: Status, message: impl Into<String>) -> Self {
        Outcome { status, message: Some(message.into().into_boxed_str()) }
    }

    /// Returns a failure with status `ERROR`.
    pub fn error(message: impl Into<String>) -> Self {
        Self::failed(Status::Error, message)
    }

    /// Whether the operation counts as done.
    pub fn is_ok(&self) -> bool {
        self.status.is_ok()
    }
}
