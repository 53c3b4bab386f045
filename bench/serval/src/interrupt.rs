//! Ctrl-C: the first asks for a clean end, the second ends at once.

use serval_runner::Control;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Signals this soon after the first are the first again: `timeout` sends one
/// to the process and one to its group, a terminal that closes several kinds.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Folders to remove when ending at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unfinished(Arc<Mutex<Option<PathBuf>>>);

impl Unfinished {
    /// Remembers the folder of a result in the making.
    pub(crate) fn set(&self, path: Option<PathBuf>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }
}

/// The signals that are ignored, a bit each, the first the lowest: none where
/// the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Has signals end runs under the control that is returned.
pub(crate) fn control() -> (Control, Unfinished) {
    let (control, unfinished) = (Control::default(), Unfinished::default());
    // A signal that nohup, or a shell in the background, has had ignored
    // stays so.
    let ignored = ignored();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let Ok(mut signals) = Signals::new(wanted) else {
        // Then signals do what they do by default.
        return (control, unfinished);
    };
    let (for_signals, folder) = (control.clone(), unfinished.clone());
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            if let Some(first) = first {
                if first.elapsed() < SAME_SIGNAL {
                    continue;
                }
                if let Some(path) = folder.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    let _ = std::fs::remove_dir_all(path);
                }
                std::process::exit(128 + signal);
            }
            anstream::eprintln!("\nending; once more ends at once");
            for_signals.interrupt();
            first = Some(Instant::now());
        }
    });
    (control, unfinished)
}
