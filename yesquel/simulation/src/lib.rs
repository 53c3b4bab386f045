//! A simulated cluster for tests: three storage servers and three client processes, whose network,
//! disks, clocks and crashes follow from a seed.
//!
//! Servers are the real engine with the real log and checkpoints on a [simulated disk](disk).
//! Clients are whatever futures a test runs over [`Network`], polled by the simulation. A test
//! implements [`Application`] and calls [`run`], which plays [`InjectedFault`]s against it, heals the
//! cluster, and asks the application to verify what it saw. `docs/yesquel/testing.md` lists what is
//! simulated and which laws hold.
//!
//! For tests only; nothing that is shipped depends on this crate.

mod blocking;
mod cluster;
pub mod disk;
mod fault;
mod outcomes;
mod paths;
mod run;
mod schedule;
mod simulated_transport;
mod tasks;

pub use blocking::{BlockingNetwork, blocking_task, compute, is_alive, sleep};
pub use cluster::{Cluster, EventCounts, LocalTransport, LogFact, Network, SharedCluster, next_work, pause};
pub use fault::{
    InjectedFault, PROCESSES, SERVERS_MAX, TASKS, TASKS_PER_PROCESS, draw_faults, draw_full_disks,
    draw_stops, draw_watching, process_of, server_count,
};
pub use outcomes::outcomes;
pub use paths::{PathCounts, ProtocolPath};
pub use run::{Application, run};
pub use schedule::EventQueue;
pub use simulated_transport::{SimulatedCall, SimulatedTransport};
pub use tasks::{OBSERVER, TaskFuture};
