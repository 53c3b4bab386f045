//! One run: clients, pacing, warm-up and stop. Turns a workload into operations on a store and
//! records their times.

mod client_loop;
mod client_pool;
mod client_state;
pub mod clock;
mod conductor;
mod options;
pub mod pacing;
mod probe;
mod record;
mod run;
mod run_barrier;
mod run_control;
mod stationarity;
mod timers;
pub mod virtual_time;
mod warm_up;

pub use conductor::late_from;
pub use options::{GATHER_RATE, GATHER_SLACK, Gate, RunOptions, Sample, Steady, WarmUpJudge};
pub use probe::probe;
pub use record::{AbortCause, ClientExecution, EndedBy, Interval, Observer, Progress, RunError, RunRecord};
pub use run::{Control, run};
pub use warm_up::WarmUp;
