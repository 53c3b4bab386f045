//! Yesquel on simulated machines whose processors and networks take time: its figures at more servers
//! than a machine has processors for (SOSP'15, sections 6.1.2 and 6.2).
//!
//! Servers are the production core of a group (`yesquel-node`) in memory. Clients are whatever code a
//! [`VirtualLoad`] runs on its threads, with the production library over a simulated network; SQLite
//! among it. The executed code decides what is sent and in which order; a [`CostModel`] says how much
//! processor time each message and statement takes. Nothing fails. A run follows from its plan.
//!
//! `docs/yesquel/cluster/virtual-time.md` describes what is modelled, how costs are measured, and what
//! the result cannot show. For benchmarks and tests only.

mod client;
mod cluster;
mod costs;
mod executor;
mod maintenance;
mod network;
mod plan;
mod processor;
mod result;
mod run;
mod server;

pub use client::{LoadError, VirtualClient, VirtualLoad};
pub use costs::{ClientCosts, CostError, CostModel, NetworkCosts, ServerCosts};
pub use plan::{PlanError, SERVERS_MAX, VirtualPlan};
pub use processor::{Processor, Quota};
pub use result::VirtualResult;
pub use run::{VirtualError, run};
