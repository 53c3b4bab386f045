//! Coordination of several client processes (`docs/coordination.md`): membership of a group, a simultaneous start of
//! each phase, and detection of clients that die or freeze. [`serval_model::Share`] divides the work.
//!
//! The coordinator's side ([`group`]) and the client's ([`member`]) are state
//! machines without clock, socket or thread. Their input is an event with its
//! time, their output is actions. Times are nanoseconds of a monotonic clock.

pub mod agent;
pub mod barrier;
pub mod clock;
pub mod coordinator;
pub mod directory;
pub mod group;
pub mod member;
pub mod message;
mod presence;
pub mod properties;
pub mod queue;
mod recruiting;
