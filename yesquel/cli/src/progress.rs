//! How far a copy is, where somebody sees it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar on the terminal, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new(title: &'static str, is_quiet: bool) -> Progress {
        let is_seen = std::io::stderr().is_terminal() && !is_quiet;
        let target =
            if is_seen { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_prefix(title);
        let progress = Progress { bar };
        progress.style("{prefix} {msg}");
        progress
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━╸─"));
        }
    }

    /// Says what is done now, which takes as long as it takes.
    pub(crate) fn say(&self, what: &'static str) {
        self.bar.set_length(0);
        self.style("{prefix} {msg} {elapsed}");
        self.bar.set_message(what);
        self.bar.enable_steady_tick(std::time::Duration::from_millis(100));
        self.bar.tick();
    }

    /// So many bytes of so many are done.
    pub(crate) fn at(&self, done: u64, all: u64) {
        if self.bar.length() != Some(all) {
            self.bar.set_length(all);
            self.style("{prefix} {bar:30} {percent:>3}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left");
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
