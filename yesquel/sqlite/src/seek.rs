//! Seeks, and where they arrive.

/// Where a seek is to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seek {
    /// There; or at the next, or at the last of all.
    Exact,
    Less,
    LessOrEqual,
    GreaterOrEqual,
    Greater,
}

/// How where a seek has arrived compares to where it was to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// As SQLite counts: negative is before.
    pub(crate) place: i32,
    /// Something with these fields was seen.
    pub(crate) is_equal: bool,
}
