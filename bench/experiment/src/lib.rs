//! Experiments: sweeps, searches and phases of many runs, their files and their journal.

pub mod bench;
mod document;
mod error;
pub mod file;
mod journal;
pub mod phases;
mod plan_differences;
pub mod promise;
mod run_folder;
pub mod sweep;
pub mod watcher;

pub use error::{ConductError, Stopped};
pub use journal::{ExperimentJournal, JournalError};
pub use plan_differences::PlanDifferences;
