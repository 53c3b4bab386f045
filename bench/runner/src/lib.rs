//! One run: clients, pacing, warm-up and stop. Turns a workload into
//! operations on a store and writes down the times.

mod client;
pub mod clock;
mod conductor;
mod crew;
mod looks;
pub mod pacing;
mod probe;
mod run;
mod slot;
mod stage;
mod timers;
pub mod virtual_time;
mod warm_up;

pub use conductor::late_from;
pub use probe::probe;
pub use run::{
    ClientExecution, Control, EndedBy, GATHER_RATE, GATHER_SLACK, Gate, Interval, Judge, Look, Lost,
    Observer, Progress, RunError, RunOptions, RunRecord, Steady, run,
};
pub use warm_up::WarmUp;
