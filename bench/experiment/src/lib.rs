//! Plans: what is run with what, from properties to a result folder. Knows
//! runs, not threads.

pub mod bench;
mod bounds;
mod costs;
mod document;
mod environment;
mod error;
pub mod file;
pub mod folder;
pub mod foreign;
pub mod group;
mod kept;
mod lag;
pub mod perform;
pub mod phases;
pub mod plan;
pub mod promise;
pub mod properties;
mod recording;
pub mod session;
pub mod sweep;
pub mod watching;
pub mod workloads;

pub use document::{timestamp, without_secrets};
pub use environment::environment;
