//! Faults of the crate, and how its use here excludes them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![allow(unreachable_pub, reason = "modules of one test")]

mod messages;
mod published;
mod support;
