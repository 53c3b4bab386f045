//! Plans: one load or run of one workload on one store, from properties to the result document.

mod client_bound;
mod costs;
mod document;
pub mod embedded;
mod environment;
mod error;
pub mod folder;
pub mod foreign_properties;
pub mod lag;
mod names;
mod options;
mod output;
pub mod perform;
mod plan;
pub mod properties;
pub mod properties_file;
mod recording;
pub mod secrets;
pub mod session;
pub mod workloads;

pub use document::timestamp;
pub use environment::environment;
pub use error::PlanError;
pub use names::names;
pub use options::fresh_seed;
pub use output::OutputOptions;
pub use plan::{Plan, PlanRequest, default_to};
