//! Groups as a user starts them, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod ensemble;
mod faults;
mod moments;
mod sweeps;
