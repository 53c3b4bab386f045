//! Coordination by ZooKeeper, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod barrier;
#[path = "../common/mod.rs"]
mod common;
mod group;
mod queue;
mod restarts;
mod zookeeper;
