//! Sweeps, and searches for the highest rate (`docs/experiments.md`).

pub(crate) mod conduct;
pub(crate) mod curves;
mod datasets;
mod estimate;
mod highest;
mod loading;
mod refusals;
mod saturation;

pub use curves::{CurvePlan, Experiment};
pub use datasets::{RealStores, Stores};
pub use estimate::Estimate;
