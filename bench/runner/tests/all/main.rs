//! The tests of this crate in one program, one module per behaviour: linking each
//! separately takes longer than most of them run.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bounds;
mod buffers;
#[path = "../common/mod.rs"]
mod common;
mod drivers;
mod laws;
mod measured;
mod stationary;
mod steady;
mod warm_up;
