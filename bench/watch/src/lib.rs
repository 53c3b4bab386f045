//! Resource usage of processes on Linux: CPU time, run-queue wait, memory and network.
//!
//! A [`ProcessGroup`] is found once. A [`Snapshot`] of it is taken at each
//! end of a span of time; [`Snapshot::since`] is what the group used in between:
//!
//! ```
//! use serval_watch::{MemoryReading, Snapshot, System};
//! let system = System::this();
//! let own = system.own();
//! let earlier = Snapshot::take(&system.look(), &own, MemoryReading::Leave);
//! let later = Snapshot::take(&system.look(), &own, MemoryReading::Read);
//! assert!(later.since(&earlier).cpu_s >= 0.0);
//! ```
//!
//! A [`Usage`](serval_result::load::Usage) omits what the system does not report. Bytes are the
//! payload of TCP connections that are open at the end: connections closed in between are not
//! counted, and Unix sockets have no counters. On systems other than Linux every field is absent.

mod group;
mod machine;
mod parse;
mod snapshot;
mod tcp;

pub use group::{NotFound, ProcessGroup, Selection};
pub use machine::Machine;
pub use snapshot::{MemoryReading, Snapshot, SystemReading, ThreadShare};
pub use tcp::{SocketBytes, Sockets};

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

/// Bytes read of a file of `/proc` at most: command lines and lists of mappings are unbounded.
const READ_MAX: u64 = 64 << 10;

/// Lists the kernel's TCP sockets.
type AskSockets = fn() -> std::io::Result<Sockets>;

/// Sources of the figures: `/proc` and the kernel's table of sockets.
#[derive(Clone)]
pub struct System {
    root: PathBuf,
    sockets: AskSockets,
    ticks_per_s: f64,
    own: u32,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("root", &self.root).finish_non_exhaustive()
    }
}

impl System {
    /// The local machine.
    pub fn this() -> System {
        System {
            root: PathBuf::from("/proc"),
            sockets: tcp::sockets,
            ticks_per_s: rustix::param::clock_ticks_per_second().max(1) as f64,
            own: std::process::id(),
        }
    }

    /// A machine whose figures are in files below `root`, laid out as in `/proc`, at 100 ticks per
    /// second. `own` plays the part of this process.
    pub fn at(root: &Path, sockets: AskSockets, own: u32) -> System {
        System { root: root.to_owned(), sockets, ticks_per_s: 100.0, own }
    }

    /// Reads the beginning of a file below the root; `None` if it cannot be read.
    fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let file = fs::File::open(self.root.join(path)).ok()?;
        let mut bytes = Vec::with_capacity(512);
        file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(path)?).into_owned())
    }

    /// Numbers that name entries of a folder: processes, threads, descriptors.
    fn numbers(&self, path: impl AsRef<Path>) -> std::io::Result<Vec<u32>> {
        let entries = fs::read_dir(self.root.join(path))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// CPU time of the machine since its start.
    pub fn machine(&self) -> Option<Machine> {
        parse::machine(&self.text("stat")?)
    }

    /// The name of a thread, cut to 15 characters by the kernel.
    pub fn thread_name(&self, process: u32, thread: u32) -> Option<String> {
        let name = self.text(format!("{process}/task/{thread}/comm"))?;
        Some(name.trim_end_matches('\n').to_owned())
    }
}
