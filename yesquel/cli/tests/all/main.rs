//! The commands as a user runs them, one module per behaviour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod cluster;
mod commands;
mod dump;
mod export;
mod import;
mod interrupts;
mod joining;
mod machine_groups;
#[path = "../support/metrics.rs"]
mod metrics;
#[path = "../support/program.rs"]
mod program;
#[path = "../../../sqlite/tests/relay/mod.rs"]
mod relay;
mod secured;
mod shell;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod traced;
mod upgrade;
