//! Giving memory back to the system.
//!
//! A split leaves copies that nobody needs a second later; what a load leaves of
//! them the allocator keeps, in holes between what lives. A server that has
//! stopped growing and takes much more than it counts has it look for whole
//! pages in them.

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

/// Time between two looks.
const STEP: Duration = Duration::from_secs(1);
/// Looks that are left out at most where there was little to be had.
const PAUSE_MAX: u32 = 64;
/// Memory that is no node's: programs, buffers, what is not worth the trouble.
const BESIDE: u64 = 24 << 20;

/// Bytes of memory at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct MemorySample {
    /// What the server counts.
    counted: u64,
    /// What the process has.
    resident: u64,
}

/// When it is worth while.
#[derive(Debug, Default)]
struct Rule {
    before: u64,
    /// Looks that are left out after one that brought little, and those that
    /// are to come.
    pause: u32,
    left_out: u32,
}

impl Rule {
    /// Whether to ask for memory now.
    fn is_time(&mut self, look: MemorySample) -> bool {
        // Whoever grows will need it again at once.
        let grows = look.counted > self.before + self.before / 64;
        self.before = look.counted;
        if grows || look.resident <= look.counted + look.counted / 5 + BESIDE {
            return false;
        }
        self.left_out += 1;
        self.left_out > self.pause
    }

    /// What it has brought.
    fn brought(&mut self, before: u64, after: u64) {
        let much = before.saturating_sub(after) > before / 16;
        self.pause = if much { 0 } else { (self.pause * 2).clamp(1, PAUSE_MAX) };
        self.left_out = 0;
    }
}

/// Bytes of memory that the process has.
fn resident() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Has the allocator give back what it can.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes a number and may be called by any thread at any time;
    // the allocator is the system's, and no other one is linked.
    #[expect(unsafe_code, reason = "the system's allocator has no other interface")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators look after themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

/// Looks now and then until it is dropped.
#[derive(Debug)]
pub(crate) struct Trimming {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Trimming {
    fn drop(&mut self) {
        self.ends = None;
        // Until it has let go of the server, which is to end in order.
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
            let counted = server.host().transport().core().with_engine(|engine| engine.memory()) as u64;
            // Without it the server is as good.
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
    fn a_server_that_has_stopped_growing_gives_back_what_it_does_not_use() {
        let mut rule = Rule::default();
        assert!(!rule.is_time(look(100, 300)), "it grows");
        assert!(!rule.is_time(look(200, 400)), "it grows");
        assert!(rule.is_time(look(200, 400)));
        rule.brought(400 * MIB, 250 * MIB);
        assert!(!rule.is_time(look(200, 250)), "it takes little more than it uses");
        assert!(rule.is_time(look(100, 250)), "it has shrunk");
    }

    #[test]
    fn where_there_is_little_to_be_had_it_asks_more_and_more_seldom() {
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
    fn the_allocator_is_asked_and_the_process_has_memory() {
        trim();
        assert!(resident().is_ok_and(|bytes| bytes > 0));
    }
}
