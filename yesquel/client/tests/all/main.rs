//! The client, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod corrections;
mod group_commit;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
