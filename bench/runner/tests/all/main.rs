//! The tests of this crate in one program, a behaviour a module: to link each by itself
//! takes longer than most of them run.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

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
