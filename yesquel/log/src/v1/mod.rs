//! Checkpoints and logs of data folders of format 1, which `yesquel upgrade` reads.
//!
//! A record has one number there, the LSN, and files do not state their group. Nothing here changes
//! a file.

mod checkpoint;
mod format;
mod reader;

pub use checkpoint::{checkpoint_name, list_checkpoints, read_checkpoint};
pub use reader::{is_log_file, read_log};
