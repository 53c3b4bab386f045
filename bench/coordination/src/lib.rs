//! Many clients as one (`docs/coordination.md`): who is in a group, how all
//! begin a phase at the same instant, what becomes of one that dies or stands
//! still. How work is divided is [`serval_model::Share`]'s.
//!
//! The coordinator's side ([`group`]) and the client's ([`member`]) are state
//! machines without clock, socket or thread: they are told what happened and
//! when, and say what to do. Instants are nanoseconds of a monotonic clock.

pub mod agent;
pub mod barrier;
mod calling;
pub mod clock;
pub mod coordinator;
pub mod directory;
pub mod group;
pub mod member;
pub mod message;
pub mod properties;
pub mod queue;
mod stand;
