//! What people see while a run goes: a bar on a terminal, plain lines
//! elsewhere, YCSB's status lines when asked for.

use crate::format::span;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serval_measure::histogram::Histogram;
use serval_plan::Plan;
use serval_report::units::count;
use serval_runner::{Interval, Observer, Progress};
use serval_workload::core::Phase;
use std::{
    collections::VecDeque,
    io::IsTerminal,
    time::{Duration, Instant},
};

/// Time between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Time over which the bar's rate is taken.
const RATE_OVER: Duration = Duration::from_secs(2);

/// Shortest interval whose percentiles replace earlier ones: the fragment at the end of a run may
/// have few operations, the slowest of them all.
const LATENCY_OVER: Duration = Duration::from_millis(100);

/// A bar, or lines.
pub(crate) struct Show {
    title: &'static str,
    bar: ProgressBar,
    terminal: bool,
    units: Option<u64>,
    time: Option<Duration>,
    /// How long the warm-up is; as it turns out, when it lasts until steady.
    warm_up: Duration,
    /// The longest warm-up, when it lasts until steady.
    until_steady: Option<Duration>,
    recent: VecDeque<(Instant, u64)>,
    latency: String,
    next_line: Duration,
}

impl Show {
    /// For a plan; silent when `quiet`, lines on a terminal too when `plain`.
    pub(crate) fn new(plan: &Plan, quiet: bool, plain: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet && !plain;
        let units = plan.workload.units().or(plan.options.units);
        let target =
            if terminal { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Show {
            title: if plan.phase == Phase::Load { "load" } else { "run" },
            bar,
            terminal: terminal || quiet,
            units,
            time: plan.options.time,
            warm_up: plan.options.warm_up,
            until_steady: plan.options.steady.map(|_| plan.options.warm_up_max()),
            recent: VecDeque::new(),
            latency: String::new(),
            next_line: LINE_EVERY,
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━╸─"));
        }
    }

    fn rate(&mut self, units: u64) -> f64 {
        let now = Instant::now();
        self.recent.push_back((now, units));
        while self.recent.len() > 2 && now - self.recent[0].0 > RATE_OVER {
            self.recent.pop_front();
        }
        let (since, before) = self.recent[0];
        let seconds = (now - since).as_secs_f64();
        if seconds > 0.0 { units.saturating_sub(before) as f64 / seconds } else { 0.0 }
    }

    fn remaining(&self, progress: &Progress, rate: f64) -> Option<Duration> {
        let measured = progress.elapsed.saturating_sub(self.warm_up);
        let by_time = self.time.map(|time| time.saturating_sub(measured));
        let by_units = self.units.filter(|_| rate > 0.0).map(|units| {
            Duration::from_secs_f64((units.saturating_sub(progress.units) as f64 / rate).min(3e8))
        });
        match (by_time, by_units) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn message(&mut self, progress: &Progress) -> String {
        if progress.warming_up {
            if let Some(max) = self.until_steady {
                let left = max.saturating_sub(progress.elapsed);
                return format!("warming up until steady, {} left at most", span(left));
            }
            let left = self.warm_up.saturating_sub(progress.elapsed);
            return format!("warming up, {} left", span(left));
        }
        let rate = self.rate(progress.units);
        let mut parts = Vec::new();
        // The first call after the warm-up has no earlier count to compare with.
        if self.recent.len() > 1 {
            parts.push(format!("{}/s", serval_report::units::rate(rate)));
        }
        if !self.latency.is_empty() {
            parts.push(self.latency.clone());
        }
        if progress.failed > 0 {
            parts.push(format!("{} failed", count(progress.failed)));
        }
        if let Some(left) = self.remaining(progress, rate).filter(|left| !left.is_zero()) {
            parts.push(format!("ETA {}", span(left)));
        }
        parts.join(" · ")
    }
}

impl Observer for Show {
    fn connected(&mut self, clients: usize, of: usize) {
        self.style("{prefix:>5} {msg}");
        self.bar.set_prefix(self.title);
        self.bar.set_message(format!("connecting {clients} of {of} clients"));
    }

    fn progress(&mut self, progress: &Progress) {
        if progress.warming_up && self.until_steady.is_some() {
            self.warm_up = progress.elapsed;
        }
        let message = self.message(progress);
        if !self.terminal && progress.elapsed >= self.next_line {
            // A run that hung for a while is not to be made up for line by line.
            while self.next_line <= progress.elapsed {
                self.next_line += LINE_EVERY;
            }
            let done = self.units.map_or_else(String::new, |units| format!(" of {}", count(units)));
            tell!(
                "{} {:>4}s: {}{done} · {message}",
                self.title,
                progress.elapsed.as_secs(),
                count(progress.units)
            );
        }
        match (self.units, self.time) {
            _ if progress.warming_up => self.style("{prefix:>5} {spinner} {msg}"),
            (Some(units), _) => {
                self.style("{prefix:>5} {wide_bar} {human_pos}/{human_len} {msg}");
                self.bar.set_length(units);
                self.bar.set_position(progress.units);
            }
            (None, Some(time)) => {
                self.style("{prefix:>5} {bar:24} {msg}");
                self.bar.set_length(time.as_millis() as u64);
                self.bar.set_position(progress.elapsed.saturating_sub(self.warm_up).as_millis() as u64);
            }
            (None, None) => self.style("{prefix:>5} {spinner} {msg}"),
        }
        self.bar.set_message(message);
        self.bar.tick();
    }

    fn interval(&mut self, interval: &Interval) {
        let mut all = Histogram::new();
        for ((metric, status), pair) in &interval.pairs {
            if status.is_ok() && metric.is_operation() {
                all.merge(if interval.paced { &pair.response } else { &pair.service });
            }
        }
        let is_fragment = interval.length < LATENCY_OVER && !self.latency.is_empty();
        if !all.is_empty() && !is_fragment {
            let time = |percentile| span(Duration::from_nanos(all.percentile(percentile)));
            self.latency = format!("p50 {} p99 {}", time(50.0), time(99.0));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;
    use serval_measure::recorder::Pair;
    use serval_model::{Metric, Status};
    use std::collections::BTreeMap;

    #[test]
    fn the_fragment_at_the_end_keeps_the_percentiles_shown() {
        let mut show = Show {
            title: "run",
            bar: ProgressBar::hidden(),
            terminal: true,
            units: None,
            time: None,
            warm_up: Duration::ZERO,
            until_steady: None,
            recent: VecDeque::new(),
            latency: String::new(),
            next_line: LINE_EVERY,
        };
        let interval = |ms: u64, ns: u64| {
            let mut pair = Pair::default();
            pair.service.record(ns);
            Interval {
                start: Duration::ZERO,
                length: Duration::from_millis(ms),
                warm_up: false,
                pairs: BTreeMap::from([((Metric::READ, Status::Ok), pair)]),
                paced: false,
                due: None,
                lateness: Histogram::new(),
            }
        };
        show.interval(&interval(1_000, 13_000));
        let whole = show.latency.clone();
        assert!(whole.contains("13"), "{whole}");
        show.interval(&interval(3, 9_400_000));
        assert_eq!(show.latency, whole);
        show.interval(&interval(1_000, 9_400_000));
        assert_ne!(show.latency, whole);
    }
}
