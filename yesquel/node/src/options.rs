//! Options of a group's log.

use std::fmt;

/// When a committed write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before its reply is sent.
    #[default]
    Sync,
    /// Within this many milliseconds: a crash loses up to that much.
    Interval(u64),
    /// When the operating system writes it.
    None,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Interval(ms) => write!(f, "interval {ms}"),
            Durability::None => f.write_str("none"),
        }
    }
}

/// Options of a group's log.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// When a committed write is on disk.
    pub durability: Durability,
    /// Bytes of log after which a checkpoint is made, but not before the log is half as large as
    /// the last checkpoint.
    pub checkpoint_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { durability: Durability::Sync, checkpoint_bytes: 64 << 20 }
    }
}
