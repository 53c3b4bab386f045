//! A storage server around an engine: its time, its log, its recovery.
//!
//! [`Core`] is what servers on sockets and embedded ones share: it takes
//! requests from any thread, steps the engine under a lock, has a thread of
//! its own write the log, and lets no reply out before what it depends on is
//! durable (`docs/yesquel/log.md`).

mod core;
mod folder;
mod time;

pub use crate::core::{Core, CoreError, Deliver, Durability, Options};
pub use folder::{DataFolder, FolderError};
pub use time::{Time, WallTime};
