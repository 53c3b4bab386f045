//! Measures how stale reads can be (`docs/lag.md`). Producers stamp the values that they
//! write and put a sample of the keys into a queue. Consumers read these keys until they
//! see the write. The analysis compares the journals of both.
//!
//! This crate has no thread, clock or socket of its own.

pub mod analysis;
mod consumer;
pub mod journal;
mod producer;
pub mod properties;
pub mod queue;
pub mod stamp;

pub use consumer::{Consumer, Consuming};
pub use producer::{Producer, Producing};

use std::sync::Arc;

/// Monotonic clock of all instants, ns.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;
