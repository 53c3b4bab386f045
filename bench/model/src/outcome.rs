//! What became of an operation.

/// YCSB's statuses, by their names in its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok,
    /// Taken into a batch or buffer that the store sends later.
    BatchedOk,
    /// The operation failed.
    Error,
    /// There is no such record.
    NotFound,
    /// The store has no such operation.
    NotImplemented,
    /// Reported as done, but the result was not as expected.
    UnexpectedState,
    /// The request was not valid.
    BadRequest,
    /// Not allowed.
    Forbidden,
    /// Something that the store depends on is not there.
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

    /// The name, as YCSB prints it.
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

    /// The status of a name that YCSB prints.
    pub fn from_name(name: &str) -> Option<Status> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether the operation counts as done.
    pub fn is_ok(self) -> bool {
        matches!(self, Self::Ok | Self::BatchedOk)
    }
}

/// A status, and on failure the store's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// What the store said of a failure; `None` for success.
    pub message: Option<Box<str>>,
}

impl Outcome {
    /// Success.
    pub const OK: Outcome = Outcome { status: Status::Ok, message: None };
    /// No such record.
    pub const NOT_FOUND: Outcome = Outcome { status: Status::NotFound, message: None };

    /// A failure in the store's words.
    pub fn failed(status: Status, message: impl Into<String>) -> Self {
        Outcome { status, message: Some(message.into().into_boxed_str()) }
    }

    /// A failure of no more particular kind.
    pub fn error(message: impl Into<String>) -> Self {
        Self::failed(Status::Error, message)
    }

    /// Whether the operation counts as done.
    pub fn is_ok(&self) -> bool {
        self.status.is_ok()
    }
}
