//! Progress of an experiment as plain lines, for logs and pipes.

use super::live_state::{FinishedRun, LiveState, RunPart, plain};
use crate::format::span;
use serval_experiment::watcher::ExperimentStep;
use serval_report::units::{count, plural, rate, time};
use serval_result::experiment::ExperimentKind;
use std::time::Duration;

/// Interval of the lines of a run.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Writes a line to its destination.
pub(super) type LineSink = Box<dyn FnMut(&str) + Send>;

/// Plain lines.
pub(super) struct PlainLines {
    write: LineSink,
    begun: bool,
    next: Duration,
}

impl PlainLines {
    pub(super) fn new(write: LineSink) -> Self {
        PlainLines { write, begun: false, next: LINE_EVERY }
    }

    pub(super) fn experiment(&mut self, seen: &LiveState) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let figure = if seen.figure.is_empty() { String::new() } else { format!(" [{}]", seen.figure) };
        let goes_on = if seen.done > 0 { format!(", {} done", seen.done) } else { String::new() };
        let Some(kind) = &seen.kind else { return };
        (self.write)(&format!(
            "{} '{}'{figure}: {} {} planned{goes_on}: {}",
            plain(&kind.to_string()),
            seen.title,
            seen.planned,
            if *kind == ExperimentKind::Phases { "phases" } else { "runs" },
            seen.curves.join(", ")
        ));
    }

    pub(super) fn step(&mut self, seen: &LiveState, step: &ExperimentStep) {
        self.next = LINE_EVERY;
        let mut parts = vec![named(seen.curve(step.curve), &plain(&step.what))];
        if !step.names_clients() {
            parts.push(plural(step.clients as u64, "client"));
        }
        if let Some(target) = step.target {
            parts.push(format!("offered {}/s", rate(target)));
        }
        if let Some(units) = step.units {
            parts.push(plural(units, "operation"));
        }
        if !step.warm_up_max.is_zero() {
            parts.push(format!("warm-up at most {}", span(step.warm_up_max)));
        }
        if let Some(time) = step.time {
            parts.push(format!("{} measured", span(time)));
        }
        let left =
            if step.remaining.is_zero() { String::new() } else { format!("; {} left", span(step.remaining)) };
        (self.write)(&format!("[{}/{}] begin {}{left}", seen.done, seen.planned, parts.join(", ")));
    }

    pub(super) fn progress(&mut self, seen: &LiveState) {
        let Some(progress) = &seen.progress else { return };
        if progress.elapsed < self.next {
            return;
        }
        // After a stall, do not print the missed lines.
        while self.next <= progress.elapsed {
            self.next += LINE_EVERY;
        }
        let mut parts = Vec::new();
        if seen.part == RunPart::WarmUp {
            parts.push("warming up".to_owned());
        }
        if let Some(last) = &seen.last {
            parts.push(format!("{}/s", rate(last.rate.done)));
            if let Some(offered) = last.rate.offered {
                parts.push(format!("offered {}/s", rate(offered)));
            }
            if let Some(all) = &last.all {
                parts.push(format!("p50 {} p99 {}", time(all.p50_ns as f64), time(all.p99_ns as f64)));
            }
        }
        if progress.failed > 0 {
            parts.push(format!("{} failed", count(progress.failed)));
        }
        if let Some(left) = seen.remaining(progress.elapsed).filter(|left| !left.is_zero()) {
            parts.push(format!("ETA {}", span(left)));
        }
        (self.write)(&format!("  {:>4}s: {}", progress.elapsed.as_secs(), parts.join(" · ")));
    }

    pub(super) fn ended(&mut self, seen: &LiveState) {
        let Some(point) = seen.points.back() else { return };
        (self.write)(&format!("[{}/{}] done  {}", seen.done, seen.planned, result(point)));
    }

    pub(super) fn note(&mut self, words: &str) {
        (self.write)(&format!("note: {words}"));
    }
}

/// Formats a curve and its step.
pub(super) fn named(curve: &str, what: &str) -> String {
    if curve.is_empty() { what.to_owned() } else { format!("{curve}, {what}") }
}

fn result(point: &FinishedRun) -> String {
    let offered = point.offered.map_or_else(String::new, |load| format!(" of {}/s offered", rate(load)));
    let mut parts = vec![format!("{}/s{offered}", rate(point.achieved))];
    if let (Some(p50), Some(p99)) = (point.p50_ns, point.p99_ns) {
        parts.push(format!("p50 {} p99 {}", time(p50 as f64), time(p99 as f64)));
    }
    if point.failed > 0 {
        parts.push(format!("{} failed", count(point.failed)));
    }
    parts.extend(point.flags.iter().map(|flag| flag.words().to_owned()));
    format!("{}: {}", named(&point.curve, &point.what), parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::{super::sample_run, *};
    use serval_measure::recorder::Pair;
    use serval_model::{Metric, Status};
    use serval_result::experiment::Flag;
    use serval_runner::Interval;
    use std::{
        sync::{Arc, Mutex},
        time::Instant,
    };

    #[test]
    fn a_line_has_times_of_batches_and_none_where_nothing_succeeded() {
        let (tell, written) = std::sync::mpsc::channel();
        let mut lines = PlainLines::new(Box::new(move |line| tell.send(line.to_owned()).unwrap()));
        let mut seen = LiveState::default();
        for (second, key, has_times) in
            [(10, (Metric::INSERT_BATCH, Status::Ok), true), (20, (Metric::INSERT, Status::Error), false)]
        {
            let mut pair = Pair::default();
            pair.service.record_n(2_000_000, 5);
            let pairs = [(key, pair)].into();
            seen.interval(&Interval { pairs, paced: false, ..sample_run::interval(second, 100, 0) });
            seen.progress(&sample_run::progress(second, 5 * second, 0));
            lines.progress(&seen);
            let line = written.recv().unwrap();
            assert_eq!(line.contains("p50 2.00 ms"), has_times, "{line}");
            assert_eq!(line.contains("p99"), has_times, "{line}");
        }
    }

    #[test]
    fn an_experiment_in_lines() {
        let written = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&written);
        let mut lines = PlainLines::new(Box::new(move |line| *sink.lock().unwrap() += &format!("{line}\n")));
        let mut seen = LiveState::default();
        let document = sample_run::experiment();
        for _ in 0..2 {
            // Told again after each run; the line is written once.
            seen.experiment(&document);
            lines.experiment(&seen);
        }
        let begin = |seen: &mut LiveState, lines: &mut PlainLines, step: &ExperimentStep| {
            seen.begin(step, Instant::now());
            lines.step(seen, step);
        };
        begin(&mut seen, &mut lines, &sample_run::load());
        begin(&mut seen, &mut lines, &sample_run::step(7));
        for second in 0..=23 {
            let failed = if second > 12 { 7 } else { 0 };
            seen.progress(&sample_run::progress(second * 2, second * 24_000, failed));
            // What comes between two lines is not a line of its own.
            lines.progress(&seen);
            if second != 18 {
                seen.interval(&sample_run::interval(second * 2, 12_000 + second, failed));
            }
        }
        seen.ended(&sample_run::entry(1, vec![]), &sample_run::result(0));
        lines.ended(&seen);
        begin(
            &mut seen,
            &mut lines,
            &ExperimentStep { what: "up\u{1b}[2J".into(), target: None, ..sample_run::step(8) },
        );
        seen.ended(&sample_run::entry(2, vec![Flag::Failures, Flag::Overloaded]), &sample_run::result(1234));
        lines.ended(&seen);
        lines.note("the load average was 1.3");
        super::super::golden("lines.txt", &written.lock().unwrap());
    }
}
