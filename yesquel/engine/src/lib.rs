//! The nodes of one storage server: multi-version, transactional, and a pure state machine without
//! clock, socket, file or thread.
//!
//! [`Engine::handle`] takes a request and the time, and returns replies and log records;
//! [`Engine::replay`] rebuilds the same state from the records. `docs/yesquel/nodes.md` has the
//! laws.

mod answer;
mod cell;
mod cells;
mod checkpoint;
mod checkpoint_copies;
mod commit_counts;
mod effects;
mod engine;
mod leases;
mod load;
mod node;
mod node_record;
mod outcomes;
mod queue;
mod record;
mod recovery_timer;
mod refused;
mod settings;
mod snapshots;
mod staging;
mod store;
mod techniques;
#[cfg(test)]
mod tests;
mod transaction;
mod values;
mod wanted_lease;
mod watches;
mod write_target;

pub use checkpoint::Checkpoint;
pub use effects::{
    AddressedReply, Caller, Effects, EndQuery, Now, OWN_CONNECTION, ReplyDurability, ValueMessage,
    ValueQuery, VoteQuery,
};
pub use engine::{Engine, SplitPlan};
pub use record::LogRecord;
pub use settings::EngineSettings;
pub use techniques::Techniques;
