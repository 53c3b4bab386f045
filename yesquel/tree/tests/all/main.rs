//! Tests of this crate in one program, as linking takes longer than most of them run.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod attributes;
mod bulk_load;
mod check;
mod circles;
mod durable;
mod growth;
mod long_keys;
mod round_trips;
mod techniques;
mod two_servers;
mod watched;
