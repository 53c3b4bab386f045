//! Names of a group's kinds of work, and their time limits.

use std::time::Duration;

/// Interval at which the coordinator polls for a stop request.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Time that a client may take beyond the run itself: it connects before the start and sends
/// its record after the end.
pub(crate) const SLACK: Duration = Duration::from_secs(10);

/// Kinds of work.
pub(crate) const LOAD: &str = "load";
pub(crate) const RUN: &str = "run";
pub(crate) const COMMAND: &str = "command";

/// Property of a command's work with its time limit, ns.
pub(crate) const TIMEOUT: &str = "timeout";
