//! Groups: several client processes that perform one plan (`docs/coordination.md`).
//!
//! A group behaves like an open store: a plan is performed on it as on any other
//! [`Session`], and its result is a record like that of one process. So results, sweeps,
//! searches and reports work with groups as well.

mod agent;
mod barrier;
mod check;
mod error;
mod facts;
mod intervals;
mod merged;
mod part;
pub mod program;
mod session;
pub mod settings;
mod stall;
mod steadiness;
mod team;
#[cfg(test)]
mod tests;
mod wire;
mod work;

pub use agent::{AgentSettings, agent};
pub use barrier::AtBarrier;
pub use check::{check, unshared};
pub use error::GroupError;
pub use part::ClientPart;
pub use serval_coordination::{agent::Quit, coordinator::Leading, message::ClientFacts};
pub use session::GroupSession;
pub use team::Team;
pub use wire::CommandWire;

use serval_model::properties::Faults;
use serval_plan::{Plan, session::Session};

/// Returns the session that performs a plan instead of `local`, the store opened by this process:
/// the given group, or clients that meet at a barrier if the plan's properties name one; `None` if
/// there is neither. `say` gets messages for the user.
///
/// # Errors
///
/// Faults of a barrier's properties.
pub fn conducted<'a>(
    local: &'a dyn Session,
    plan: &'a Plan,
    team: Option<&'a Team>,
    say: fn(&str),
) -> Result<Option<Box<dyn Session + 'a>>, Faults> {
    if let Some(team) = team {
        return Ok(Some(Box::new(GroupSession::new(team, local, plan))));
    }
    Ok(AtBarrier::of(local, plan, say)?.map(|at| -> Box<dyn Session> { Box::new(at) }))
}
