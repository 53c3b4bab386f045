//! What is asked of a store: which operations, on which keys, with which values.
//!
//! Everything here is deterministic for a seed and knows neither stores nor
//! clocks. Files are handed in ([`files::InputFiles`]).

pub mod core;
pub mod distribution;
pub mod files;
pub mod hash;
pub mod keys;
pub mod occupancy;
pub mod random;
pub mod rest;
pub mod timeseries;
pub mod values;
pub mod workload;

pub use files::InputFiles;
pub use random::{Random, Rng};
pub use workload::{ClientWorkload, Demand, End, Last, Place, Step, Workload};
