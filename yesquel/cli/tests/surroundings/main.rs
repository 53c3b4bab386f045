//! Behaviour of a server towards its machine and its parent process.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod commit_metrics;
mod doubt;
mod exits;
mod full_disk;
mod groups;
#[path = "../support/metrics.rs"]
mod metrics;
mod process;
#[path = "../support/mod.rs"]
mod support;

const PROGRAM: &str = env!("CARGO_BIN_EXE_yesquel");
