//! What coordinator and clients call the work of a group, and how long they wait for it.

use std::time::Duration;

/// How often the coordinator polls for a stop request.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Time that a client takes beyond the run itself: it connects before the start and hands
/// its record over after the end.
pub(crate) const SLACK: Duration = Duration::from_secs(10);

/// Kinds of work.
pub(crate) const LOAD: &str = "load";
pub(crate) const RUN: &str = "run";
pub(crate) const COMMAND: &str = "command";

/// The property of a command's work that has its time limit, ns.
pub(crate) const TIMEOUT: &str = "timeout";
