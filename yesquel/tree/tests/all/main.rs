//! Tests of this crate in one program, as linking takes longer than most of them run.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod bulk_load;
mod circles;
mod durable;
mod growth;
mod long_keys;
mod round_trips;
mod techniques;
mod two_servers;
