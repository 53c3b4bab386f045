//! The engine, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod lease_queue;
mod peer_holds;
mod recovery;
