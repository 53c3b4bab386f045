//! A storage server around an engine: its time, its log, its recovery.
//!
//! [`Core`] is what servers on sockets and embedded ones share: it takes
//! requests from any thread, steps the engine under a lock that reads share,
//! has a thread of its own write the log, and lets no reply out before what it depends on is
//! durable (`docs/yesquel/log.md`).

mod core;
mod folder;
mod log_writer;
mod options;
mod recovery;
mod reply_sink;
mod socket_counters;
mod sockets;
mod state;
mod state_lock;
mod time;
mod wake_flag;

pub use crate::core::{Core, Session, Work};
pub use folder::{DataFolder, FolderError};
pub use options::{CoreError, Durability, Options};
pub use reply_sink::ReplySink;
pub use socket_counters::SocketCounters;
pub use sockets::{Listener, REQUESTS_MAX, SocketOptions, SocketReplies, Sockets};
pub use time::{ManualTime, Time, WallTime};
