//! Kinds of seeks, and their results.

/// Target of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seek {
    /// The key; otherwise the next one, or the last of all.
    Exact,
    Less,
    LessOrEqual,
    GreaterOrEqual,
    Greater,
}

/// Position that a seek has reached, relative to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeekPosition {
    /// Sign as SQLite defines it: negative is before the target.
    pub(crate) place: i32,
    /// Whether an entry with the sought fields was seen.
    pub(crate) is_equal: bool,
}
