//! The nodes of one storage server: multi-version, transactional, and a pure
//! state machine without clock, socket, file or thread.
//!
//! `docs/yesquel/nodes.md` has the laws. [`Engine::handle`] takes a request
//! and the time, and gives replies and records of the log; [`Engine::replay`]
//! takes records and gives the same state.

mod answer;
mod cell;
mod cells;
mod checkpoint;
mod copies;
mod effects;
mod engine;
mod leases;
mod load;
mod node;
mod record;
mod settings;
mod snapshots;
mod staging;
mod store;
mod target;
mod techniques;
#[cfg(test)]
mod tests;
mod transaction;

pub use checkpoint::Checkpoint;
pub use effects::{Ask, Asker, Effects, Now, ReplyTo};
pub use engine::Engine;
pub use record::Record;
pub use settings::Settings;
pub use techniques::Techniques;
