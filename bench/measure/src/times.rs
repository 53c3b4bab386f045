//! The two times of an operation.

/// The two times of an operation, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// From the actual start to the outcome: the time of the store.
    pub service: u64,
    /// From the intended start to the outcome: the time that a user waits. In a closed loop it
    /// equals the service time.
    pub response: u64,
}
