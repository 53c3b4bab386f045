//! Workloads in Lua, loaded when Serval starts, as YCSB loads workload classes.
//! `docs/scripts.md` has the rules, the functions and an example.
//!
//! A script uses the core workload's records, keys, values and distributions. Like
//! any workload it is deterministic for a seed: it has no clock, file or socket.

mod engine;
mod host;
mod property_value;
mod script;
mod source;
mod workload;

pub use script::{BUDGET, EXTENSION, PROPERTIES, Script, is_script};
pub use workload::ScriptWorkload;
