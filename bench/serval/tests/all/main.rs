//! The program as a user runs it, one module per behaviour, in one test program: linking takes long.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bad_input;
mod bench;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod drivers;
mod explain;
mod hbase;
mod java;
mod live;
mod one_sqlite;
mod outage;
mod phases;
mod report;
mod scripts;
mod sweep;
mod ycsb;
mod ycsb_text;
