//! Workloads: the operations, keys and values that clients send to a store.
//!
//! All of this crate is deterministic for a seed and independent of stores and
//! clocks. The caller opens files ([`files::InputFiles`]).

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
