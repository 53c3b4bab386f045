//! Returns free memory to the system.
//!
//! A split leaves copies that are garbage a second later, and after a load the allocator keeps
//! their memory in holes between live data. When a server has stopped growing and its resident
//! memory far exceeds what it counts, the allocator is asked to return whole pages from these
//! holes.

use std::{
    fs, io,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use yesquel::Server;

/// Interval of the checks.
const STEP: Duration = Duration::from_secs(1);
/// Maximum number of skipped checks after a trim with little effect.
const PAUSE_MAX: u32 = 64;
/// Memory besides nodes (program, buffers) and memory not worth a trim.
const BESIDE: u64 = 24 << 20;

/// Memory sizes in bytes at one time.
#[derive(Debug, Clone, Copy, Default)]
struct MemorySample {
    /// Memory that the server counts.
    counted: u64,
    /// Resident memory of the process.
    resident: u64,
}

/// Rule that decides about trims.
#[derive(Debug, Default)]
struct Rule {
    before: u64,
    /// Number of checks to skip after a trim with little effect, and the number left.
    pause: u32,
    left_out: u32,
}

impl Rule {
    /// Returns whether to trim now.
    fn is_time(&mut self, look: MemorySample) -> bool {
        // A growing server would need the memory again at once.
        let grows = look.counted > self.before + self.before / 64;
        self.before = look.counted;
        if grows || look.resident <= look.counted + look.counted / 5 + BESIDE {
            return false;
        }
        self.left_out += 1;
        self.left_out > self.pause
    }

    /// Records the effect of a trim.
    fn brought(&mut self, before: u64, after: u64) {
        let much = before.saturating_sub(after) > before / 16;
        self.pause = if much { 0 } else { (self.pause * 2).clamp(1, PAUSE_MAX) };
        self.left_out = 0;
    }
}

/// Returns the resident memory of the process in bytes.
fn resident() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Asks the allocator to return memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes a number and may be called on any thread at any time; the allocator is the
    // system's, and no other one is linked.
    #[expect(unsafe_code, reason = "the system's allocator has no other interface")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators return memory themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

/// Thread that trims until it is dropped.
#[derive(Debug)]
pub(crate) struct Trimming {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Trimming {
    fn drop(&mut self) {
        self.ends = None;
        // Wait until it has released the server, which must stop cleanly.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn begin(server: &Arc<Server>) -> io::Result<Trimming> {
    let (ends, ended) = channel();
    let server = Arc::downgrade(server);
    let thread = thread::Builder::new().name("yesquel-trim".to_owned()).spawn(move || {
        let mut rule = Rule::default();
        while ended.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
            let Some(server) = server.upgrade() else { return };
            let groups = server.host().groups().iter();
            let counted = groups.map(|group| group.with_engine(|engine| engine.memory()) as u64).sum();
            // On systems without this file nothing is trimmed.
            let Ok(resident_before) = resident() else { return };
            if rule.is_time(MemorySample { counted, resident: resident_before }) {
                trim();
                let after = resident().unwrap_or(resident_before);
                rule.brought(resident_before, after);
                tracing::debug!(counted, before = resident_before, after, "gave memory back");
            }
        }
    })?;
    Ok(Trimming { ends: Some(ends), thread: Some(thread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(counted: u64, resident: u64) -> MemorySample {
        MemorySample { counted: counted * MIB, resident: resident * MIB }
    }

    #[test]
    fn a_server_that_stopped_growing_returns_free_memory() {
        let mut rule = Rule::default();
        assert!(!rule.is_time(look(100, 300)), "it grows");
        assert!(!rule.is_time(look(200, 400)), "it grows");
        assert!(rule.is_time(look(200, 400)));
        rule.brought(400 * MIB, 250 * MIB);
        assert!(!rule.is_time(look(200, 250)), "it takes little more than it uses");
        assert!(rule.is_time(look(100, 250)), "it has shrunk");
    }

    #[test]
    fn trims_that_free_little_become_rare() {
        let mut rule = Rule { before: 100 * MIB, ..Rule::default() };
        let mut asked = Vec::new();
        for second in 0..400 {
            if rule.is_time(look(100, 400)) {
                asked.push(second);
                rule.brought(400 * MIB, 399 * MIB);
            }
        }
        assert_eq!(asked[..5], [0, 2, 5, 10, 19]);
        assert_eq!(asked.last(), Some(&(asked[asked.len() - 2] + 65)));
    }

    #[test]
    fn trimming_and_reading_resident_memory_work() {
        trim();
        assert!(resident().is_ok_and(|bytes| bytes > 0));
    }
}
