//! Progress of a copy, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Progress bar, or nothing.
pub(crate) struct CopyProgress {
    bar: ProgressBar,
}

impl CopyProgress {
    pub(crate) fn new(title: &'static str, is_quiet: bool) -> CopyProgress {
        let is_seen = std::io::stderr().is_terminal() && !is_quiet;
        let target =
            if is_seen { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_prefix(title);
        let progress = CopyProgress { bar };
        progress.style("{prefix} {msg}");
        progress
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━╸─"));
        }
    }

    /// Shows a phase of unknown length.
    pub(crate) fn say(&self, what: &'static str) {
        self.bar.set_length(0);
        self.style("{prefix} {msg} {elapsed}");
        self.bar.set_message(what);
        self.bar.enable_steady_tick(std::time::Duration::from_millis(100));
        self.bar.tick();
    }

    /// Shows the number of bytes done.
    pub(crate) fn at(&self, done: u64, all: u64) {
        if self.bar.length() != Some(all) {
            self.bar.set_length(all);
            self.style("{prefix} {bar:30} {percent:>3}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left");
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
    }

    /// Shows how many of a number of things are done, and a note.
    pub(crate) fn count(&self, done: u64, all: u64, note: String) {
        if self.bar.length() != Some(all) {
            self.bar.set_length(all);
            self.style("{prefix} {bar:30} {pos} of {len} {msg}");
        }
        self.bar.set_message(note);
        self.bar.set_position(done);
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
