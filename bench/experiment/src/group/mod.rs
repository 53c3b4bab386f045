//! Several client processes at work as one (`docs/coordination.md`).
//!
//! A group looks like a store that is open: a plan is carried out on it as on any other
//! [`Session`], and what comes of it is a record like that of one process. So all
//! that is made of runs (results, sweeps, searches, reports) is made of a group's too.

mod agent;
mod barrier;
mod merged;
mod part;
pub mod properties;
mod run;
mod steady;
mod still;
mod team;
mod wire;

pub use agent::{Agent, agent};
pub use barrier::AtBarrier;
pub use part::Part;
pub use serval_coordination::{agent::Quit, coordinator::Leading, message::ClientFacts};
pub use team::Team;
pub use wire::CommandWire;
pub(crate) use wire::LagWire;

use crate::{kept::Kept, plan::Plan, session::Session};
use serval_coordination::coordinator::LeadError;
use serval_model::properties::{Faults, Properties};
use serval_stores::StoreInfo;
use std::time::Duration;

/// How often a group is asked whether somebody wants it to end.
const TICK: Duration = Duration::from_millis(50);

/// What a client adds to the time of a run: connecting took place before its start, what it
/// saw is handed over after it.
const SLACK: Duration = Duration::from_secs(10);

/// Kinds of work.
const LOAD: &str = "load";
const RUN: &str = "run";
const COMMAND: &str = "command";

/// Where the work of a program says how long it may take, ns.
const TIMEOUT: &str = "timeout";

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// It cannot be led.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Not all came.
    #[error(
        "only {joined} of {wanted} clients came within {within:?} (coordination.wait): start more with \
         'serval agent --join {cluster}'"
    )]
    TooFew {
        /// How many did.
        joined: usize,
        /// How many were wanted.
        wanted: usize,
        /// How long they were waited for.
        within: Duration,
        /// ZooKeeper's address.
        cluster: String,
    },
    /// It broke up.
    #[error("{0}")]
    Broken(String),
    /// Somebody asked for the end.
    #[error("interrupted before all clients had come")]
    Interrupted,
}

/// A store whose records end with the process, and with each part of the work.
const MEMORY: &str = "memory";

/// Why clients of a group cannot have a store, as these properties set it up; `None` if they can.
pub(crate) fn unshared(store: &StoreInfo, properties: &Properties) -> Option<Faults> {
    if store.name == MEMORY {
        return Some(Faults::one(
            "memory: each client of a group would have records of its own, and lose them with its part of the work: name a \
             store that is a server",
        ));
    }
    let kept = Kept::of(store, properties)?;
    Some(Faults::one(format!(
        "{}: nothing says where this embedded store is, so that each client of a group would have one of its own: name a \
         store that is a server, or set {}",
        store.name, kept.property
    )))
}

/// What carries a plan out: the group that has been gathered, clients that meet at a barrier if the plan's
/// properties speak of one, or else the store as it is open here. What people want to know is
/// `told`.
///
/// # Errors
///
/// Faults of a barrier's properties.
pub fn conducted<'a>(
    local: &'a dyn Session,
    plan: &'a Plan,
    team: Option<&'a Team>,
    told: fn(&str),
) -> Result<Box<dyn Session + 'a>, Faults> {
    if let Some(team) = team {
        return Ok(team.session(local, plan));
    }
    Ok(match AtBarrier::of(local, plan, told)? {
        Some(at) => Box::new(at),
        None => Box::new(local),
    })
}
