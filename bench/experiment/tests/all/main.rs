//! Experiments, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod records;
mod sweep;
