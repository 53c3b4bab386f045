//! Workloads written in Lua and loaded when Serval starts, as YCSB loads
//! workload classes. `docs/scripts.md` has the law, the functions and an
//! example worked through.
//!
//! A script goes over the core workload's records with the core's keys,
//! values and distributions, and is deterministic for a seed like any other
//! workload: it sees no clock, file or socket.

mod engine;
mod host;
mod place;
mod property_value;
mod script;
mod workload;

pub use script::{BUDGET, EXTENSION, PROPERTIES, Script, is_script};
pub use workload::ScriptWorkload;
