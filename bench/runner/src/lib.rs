//! One run: clients, pacing, warm-up and stop. Turns a workload into operations on a store and
//! records their times.

mod client_loop;
mod client_pool;
mod client_state;
pub mod clock;
mod conductor;
pub mod pacing;
mod probe;
mod run;
mod run_barrier;
mod stationarity;
mod timers;
pub mod virtual_time;
mod warm_up;

pub use conductor::late_from;
pub use probe::probe;
pub use run::{
    ClientExecution, Control, EndedBy, GATHER_RATE, GATHER_SLACK, Gate, Interval, Judge, Lost, Observer,
    Progress, RunError, RunOptions, RunRecord, Sample, Steady, run,
};
pub use warm_up::WarmUp;
