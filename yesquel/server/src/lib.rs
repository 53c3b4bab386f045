//! Storage server around an engine: clock, log and recovery.
//!
//! [`Core`] is the part that embedded and socket servers share. It takes requests from any thread
//! and steps the engine under a lock that reads share. A thread of its own writes the log, and no
//! reply leaves before the records that it depends on are durable (`docs/yesquel/log.md`).

mod cluster_files;
mod core;
mod error;
mod folder;
mod folder_error;
mod log_writer;
mod machine_cores;
mod machine_file;
mod management;
mod opened_machine;
mod recovery;
mod socket_counters;
mod sockets;
mod state;
mod state_lock;
mod time;
mod token_proof;
mod upgrade;
mod wake_flag;

pub use crate::core::{Core, CoreSession};
pub use cluster_files::{ClusterFiles, StoredCredential};
pub use error::CoreError;
pub use folder::{DataFolder, LogEnds};
pub use folder_error::DataFolderError;
pub use machine_cores::MachineCores;
pub use machine_file::{MachineIdentity, MachineStart};
pub use management::PendingCommand;
pub use opened_machine::{GROUPS_MAX, OpenedMachine, share_of_group};
pub use socket_counters::SocketCounters;
pub use sockets::{Listener, REQUESTS_MAX, Revocations, SocketReplies, SocketServer, SocketServerOptions};
pub use time::{ManualTime, Time, WallTime};
pub use token_proof::{entry_proof, is_authentic, is_entry_authentic, issue_token, token_digest};
pub use upgrade::{UpgradeError, UpgradeOutcome, UpgradeProgress, upgrade};
pub use yesquel_node::{
    ClockState, ComparedClock, Durability, GroupWork, LOCAL_CONNECTION, LogOptions, ReplySink,
};
