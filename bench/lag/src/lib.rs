//! How stale a read can be (`docs/lag.md`): producers stamp what they write and hand the
//! keys of a share of it on, consumers read them until they see it, and what both noted is
//! held against each other.
//!
//! Nothing here has a thread, a clock or a socket of its own.

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

/// The monotonic clock that all instants are of, ns.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;
