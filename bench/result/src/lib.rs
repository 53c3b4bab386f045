//! The documents that Serval writes: the result of a run and its parts, and
//! the list of an experiment's runs.

pub mod document;
pub mod experiment;
pub mod flags;
pub mod group;
pub mod lag;
pub mod latency;
pub mod load;
pub mod metric;
pub mod note;
pub mod notes;
#[cfg(feature = "schema")]
pub mod schema;
pub mod series;
pub mod word;
