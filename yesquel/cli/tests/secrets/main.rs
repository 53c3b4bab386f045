//! Certificates and credentials that change while servers run, one module a behaviour. Tests wait for
//! metrics and for the end of work, never for time.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod broken_files;
mod certificates;
mod joined_machines;
mod machine;
#[path = "../support/metrics.rs"]
mod metrics;
mod revocation;
mod roles;
mod rotation;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod waiting;

const PROGRAM: &str = env!("CARGO_BIN_EXE_yesquel");
