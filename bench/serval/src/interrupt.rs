//! Ctrl-C: the first asks for a clean end, the second ends at once.

use crate::locked;
use serval_runner::Control;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Signals this soon after the first are the first again: `timeout` sends one
/// to the process and one to its group, a terminal that closes several kinds.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// A terminal that something is drawn on.
pub(crate) trait Screen: Send + Sync {
    /// An end was asked for.
    fn ending(&self);
    /// Gives the terminal back as it was. Nothing is drawn on it any more.
    fn give_back(&self);
}

/// What to put right when ending at once.
#[derive(Clone, Default)]
pub(crate) struct Unfinished(Arc<InterruptState>);

#[derive(Default)]
struct InterruptState {
    folder: Mutex<Option<PathBuf>>,
    screen: Mutex<Option<Arc<dyn Screen>>>,
    /// When an end was first asked for.
    first: Mutex<Option<Instant>>,
}

impl Unfinished {
    /// Remembers the folder of a result in the making.
    pub(crate) fn set(&self, path: Option<PathBuf>) {
        *locked(&self.0.folder) = path;
    }

    /// Remembers the terminal that is drawn on.
    pub(crate) fn set_screen(&self, screen: Option<Arc<dyn Screen>>) {
        *locked(&self.0.screen) = screen;
    }

    /// An end is asked for, by a signal or by the key that stands for it.
    pub(crate) fn asked(&self, control: &Control, signal: i32) {
        let mut first = locked(&self.0.first);
        let screen = locked(&self.0.screen).clone();
        if let Some(first) = *first {
            if first.elapsed() < SAME_SIGNAL {
                return;
            }
            if let Some(path) = locked(&self.0.folder).take() {
                let _ = std::fs::remove_dir_all(path);
            }
            if let Some(screen) = screen {
                screen.give_back();
            }
            std::process::exit(128 + signal);
        }
        match screen {
            Some(screen) => screen.ending(),
            None => tell!("\nending; once more ends at once"),
        }
        control.interrupt();
        *first = Some(Instant::now());
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
    let (for_signals, for_all) = (control.clone(), unfinished.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            for_all.asked(&for_signals, signal);
        }
    });
    (control, unfinished)
}
