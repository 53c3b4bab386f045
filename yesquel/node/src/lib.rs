//! State machine of one group (a logical server), without I/O.
//!
//! [`GroupCore`] holds an engine, the replies that wait for the disk, the records for the log, and
//! the questions to other groups. Messages, completed disk operations and times go in; replies,
//! records and questions come out. `yesquel-server` drives it with threads and sockets, and
//! `yesquel-simulation` with virtual time; neither has a copy of what is here.
//!
//! [`GroupLog`] decides what is written, synced and checkpointed, over any
//! [`Disk`](yesquel_log::disk::Disk). [`Maintainer`] performs splits, as a client of its own group.

mod clock_watch;
mod core;
mod group_loads;
mod group_locations;
mod log;
mod machine_clock;
mod maintenance;
mod open;
mod options;
mod records;
mod replies;
mod reply_queues;
mod reply_sink;

pub use crate::core::{GroupCore, LOCAL_CONNECTION, LastCheckpoint, PeerQuery, Settled, SyncWanted};
pub use clock_watch::{ClockState, ComparedClock};
pub use log::{CheckpointWriter, GroupLog, LogFailure, LogSizes, WriteAttempt, WrittenCheckpoint};
pub use machine_clock::MachineClock;
pub use maintenance::{GroupWork, Maintainer, MaintenanceStep, SplitSource};
pub use open::{OpenError, OpenedGroup, open_group};
pub use options::{Durability, LogOptions};
pub use records::RecordBatch;
pub use reply_queues::{ConnectionReplies, Filled, NoticeSockets, ReplyQueues, write_notices};
pub use reply_sink::ReplySink;
pub use yesquel_tree::GroupLoad;
