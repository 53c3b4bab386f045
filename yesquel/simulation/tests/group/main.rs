//! One group on a simulated disk: what its log and its durability promise, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod durabilities;
mod horizon;
mod support;
