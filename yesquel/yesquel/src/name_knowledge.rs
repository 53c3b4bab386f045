//! What a process knows of its cluster's names, and where names were read.

use std::{sync::atomic::AtomicU64, time::Duration};

/// Time for which the home group is asked before a copy is. A connection that is refused ends it at once;
/// a machine that is gone does not answer at all.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a process knows of its cluster's names.
#[derive(Debug)]
pub(crate) struct NameKnowledge {
    /// Time of the last change of names that this process has made. An older copy lacks it.
    pub(crate) changed: AtomicU64,
    /// Uptime in milliseconds, plus one, at which the home group was not reached; zero: it was, since.
    pub(crate) failed_at_ms: AtomicU64,
    /// Time in milliseconds for which the home group is asked before a copy is.
    pub(crate) patience_ms: AtomicU64,
}

impl Default for NameKnowledge {
    fn default() -> NameKnowledge {
        NameKnowledge {
            changed: AtomicU64::new(0),
            failed_at_ms: AtomicU64::new(0),
            patience_ms: AtomicU64::new(milliseconds(PATIENCE)),
        }
    }
}

/// Returns a time in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Where names were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameSource {
    Home,
    /// A copy at another machine, because the home group was not reached.
    Copy,
}
