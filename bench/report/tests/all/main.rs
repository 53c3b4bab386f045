//! Reports, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod browser;
mod searches;
mod stored_results;
#[path = "../synthetic/mod.rs"]
mod synthetic;
