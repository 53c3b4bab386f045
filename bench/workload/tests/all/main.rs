//! The workloads, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bijection;
#[path = "../common/mod.rs"]
mod common;
mod core_workload;
mod counter;
mod golden;
mod golden_java;
mod laws;
mod ranges;
mod rest;
mod timeseries;
