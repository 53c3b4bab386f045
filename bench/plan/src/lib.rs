//! A plan: one load or run of one workload on one store, from properties to its
//! result document.

mod client_bound;
mod costs;
mod document;
pub mod embedded;
mod environment;
mod error;
pub mod folder;
pub mod foreign_properties;
pub mod lag;
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
pub use plan::{OutputOptions, Plan, Request, default_to, fresh_seed, names};
