//! The two times of an operation.

/// The two times of an operation, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// From the actual start to the outcome: what the store took.
    pub service: u64,
    /// From the intended start to the outcome: what a user waited. Equal to
    /// the service time when nothing is paced.
    pub response: u64,
}
