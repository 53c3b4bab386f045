//! Read-after-write lag as a user measures it, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod delay;
mod stores;
