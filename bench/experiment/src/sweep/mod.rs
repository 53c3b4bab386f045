//! Experiments: the runs of a sweep, or of a search for the highest rate,
//! planned, carried out and written down. `docs/experiments.md`.

mod conduct;
mod curves;
mod datasets;
mod estimate;
mod flags;
mod highest;
mod journal;
mod loading;
mod refusals;
mod saturation;

pub use conduct::{ConductError, Stopped};
pub use curves::{CurvePlan, Experiment};
pub use datasets::{RealStores, Stores};
pub use estimate::Estimate;
pub use journal::{Journal, JournalError};
