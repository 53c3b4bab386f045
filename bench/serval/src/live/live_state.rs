//! Live state of a run and its experiment: small, written by the conductor's thread once an
//! interval, shown by others.

use serval_experiment::watcher::ExperimentStep;
use serval_measure::histogram::Histogram;
use serval_model::Metric;
use serval_result::{
    document::{IntervalTimes, ResultDocument},
    experiment::{ExperimentDocument, ExperimentKind, Flag, RunEntry, RunKind},
    word::Word,
};
use serval_runner::{Interval, Progress};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Number of intervals kept for the plot: ten minutes at one per second.
pub(crate) const RATES_MAX: usize = 600;
/// Number of points kept.
pub(crate) const POINTS_MAX: usize = 100;
/// Number of notes kept.
pub(crate) const NOTES_MAX: usize = 50;
/// Maximum length of a note, characters.
const NOTE_MAX: usize = 500;

/// Stage of the current run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RunPart {
    /// There is no current run.
    #[default]
    Between,
    /// Clients connected so far, and all clients.
    Connecting(usize, usize),
    /// Warming up.
    WarmUp,
    /// Measuring, or loading.
    Measured,
}

/// Throughput of one interval, operations/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    /// Achieved rate.
    pub(crate) done: f64,
    /// Offered load, if the run is paced.
    pub(crate) offered: Option<f64>,
    /// Length of the interval.
    pub(crate) length: Duration,
}

/// Counts of one operation in the last interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveOperation {
    /// Its metric name.
    pub(crate) name: String,
    /// How many succeeded.
    pub(crate) ok: u64,
    /// How many failed.
    pub(crate) failed: u64,
    /// Response times of those that succeeded.
    pub(crate) times: IntervalTimes,
}

/// The last interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LastInterval {
    /// Its throughput.
    pub(crate) rate: Rate,
    /// Its operations.
    pub(crate) operations: Vec<LiveOperation>,
    /// All operations of the store together, if any succeeded.
    pub(crate) all: Option<IntervalTimes>,
}

/// A finished run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FinishedRun {
    /// The curve's name.
    pub(crate) curve: String,
    /// Its purpose.
    pub(crate) what: String,
    /// Offered load, operations/s.
    pub(crate) offered: Option<f64>,
    /// Operations/s.
    pub(crate) achieved: f64,
    /// Median response time, ns, if any operation succeeded.
    pub(crate) p50_ns: Option<u64>,
    /// 99th percentile of the response time, ns.
    pub(crate) p99_ns: Option<u64>,
    /// Operations that failed.
    pub(crate) failed: u64,
    /// Its flags.
    pub(crate) flags: Vec<Flag>,
}

/// The whole state.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveState {
    /// The experiment's title.
    pub(crate) title: String,
    /// Kind of experiment, once known.
    pub(crate) kind: Option<Word<ExperimentKind>>,
    /// The published figure that it reproduces.
    pub(crate) figure: String,
    /// The curves' names.
    pub(crate) curves: Vec<String>,
    /// The current step and its start.
    pub(crate) step: Option<(ExperimentStep, Instant)>,
    /// Number of finished runs.
    pub(crate) done: u64,
    /// Number of planned runs.
    pub(crate) planned: u64,
    /// Stage of the current run.
    pub(crate) part: RunPart,
    /// Progress of the current run.
    pub(crate) progress: Option<Progress>,
    /// Start of the measured part, since the start of the run.
    pub(crate) measured_from: Option<Duration>,
    /// Throughput, oldest first, without the time between runs.
    pub(crate) rates: VecDeque<Rate>,
    /// The last interval.
    pub(crate) last: Option<LastInterval>,
    /// Whether the interval after that was skipped as a remainder.
    left_over: bool,
    /// Finished runs, oldest first.
    pub(crate) points: VecDeque<FinishedRun>,
    /// Operations and failures of all finished runs.
    pub(crate) ended: (u64, u64),
    /// Notes, the oldest first.
    pub(crate) notes: VecDeque<String>,
    /// Whether a stop was requested.
    pub(crate) ending: bool,
    /// Names of the workload's own metrics.
    pub(crate) custom: Vec<String>,
}

/// An interval shorter than this share of the previous one is a run's remainder.
const LEFT_OVER: f64 = 0.2;

/// Returns untrusted text on one line, without control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    while queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Operations that ended in an interval. A read-modify-write counts once, although its read and
/// update have metrics of their own.
fn operations(interval: &Interval) -> u64 {
    let of = |wanted: &dyn Fn(Metric) -> bool| -> u64 {
        let pairs = interval.pairs.iter().filter(|((metric, _), _)| wanted(*metric));
        pairs.map(|(_, pair)| pair.service.count()).sum()
    };
    match of(&Metric::is_operation) {
        0 => of(&|metric| (0..Metric::CUSTOM_MAX).any(|index| metric == Metric::custom(index))),
        verbs => verbs.saturating_sub(of(&|metric| metric == Metric::READ_MODIFY_WRITE)),
    }
}

/// Response times of all store operations of a run.
fn whole(result: &ResultDocument) -> Option<Histogram> {
    let mut all = Histogram::new();
    for metric in &result.metrics {
        let is_operation = Metric::all().any(|known| known.is_operation() && known.name(&[]) == metric.name);
        if is_operation && let Some(times) = &metric.ok {
            all.merge(&times.response.to_histogram().ok()?);
        }
    }
    (!all.is_empty()).then_some(all)
}

impl LiveState {
    /// Name of a curve of the plan.
    pub(crate) fn curve(&self, index: usize) -> &str {
        self.curves.get(index).map_or("", String::as_str)
    }

    /// Operations and failures of all runs, including the current one.
    pub(crate) fn failures(&self) -> (u64, u64) {
        let (operations, failed) = self.ended;
        self.progress.map_or((operations, failed), |now| (operations + now.units, failed + now.failed))
    }

    /// Estimated time of the rest of the plan, given the duration of the current step so far.
    pub(crate) fn remaining(&self, taken: Duration) -> Option<Duration> {
        self.step.as_ref().map(|(step, _)| step.remaining.saturating_sub(taken))
    }

    pub(crate) fn experiment(&mut self, document: &ExperimentDocument) {
        self.title = plain(&document.title);
        self.kind = Some(document.kind.clone());
        self.figure = plain(&document.figure);
        self.curves = document.curves.iter().map(|curve| plain(&curve.name)).collect();
        self.planned = document.runs_planned;
        let points = document.runs.iter().filter(|run| run.kind == RunKind::Point).count();
        self.done = (points + document.phases.len()) as u64;
    }

    pub(crate) fn begin(&mut self, step: &ExperimentStep, now: Instant) {
        self.done = step.done;
        self.planned = step.planned;
        if self.step.as_ref().is_some_and(|(before, _)| before.kind == RunKind::Load) {
            // A load is so much faster that it would flatten the rest of the plot.
            self.rates.clear();
        }
        let step = ExperimentStep { what: plain(&step.what), ..step.clone() };
        self.step = Some((step, now));
        self.part = RunPart::Between;
        self.progress = None;
        self.measured_from = None;
        self.last = None;
        self.left_over = false;
    }

    pub(crate) fn ended(&mut self, entry: &RunEntry, result: &ResultDocument) {
        let all = whole(result);
        let what = match (&self.step, entry.kind) {
            (Some((step, _)), kind) if step.kind == kind && step.curve == entry.curve => step.what.clone(),
            (_, RunKind::Load) => "load".to_owned(),
            (_, RunKind::Search) => "search".to_owned(),
            (_, RunKind::Point) => format!("point {}, repeat {}", entry.point + 1, entry.repeat + 1),
        };
        let point = FinishedRun {
            curve: self.curve(entry.curve).to_owned(),
            what,
            offered: entry.target,
            achieved: entry.throughput,
            p50_ns: all.as_ref().map(|all| all.percentile(50.0)),
            p99_ns: all.as_ref().map(|all| all.percentile(99.0)),
            failed: result.overall.failed,
            flags: entry.flags.clone(),
        };
        self.ended.0 = self.ended.0.saturating_add(result.overall.operations);
        self.ended.1 = self.ended.1.saturating_add(point.failed);
        if entry.kind == RunKind::Point {
            // The document may be updated before or after this.
            self.done = self.step.as_ref().map_or(self.done, |(step, _)| step.done) + 1;
        }
        self.part = RunPart::Between;
        self.progress = None;
        bounded(&mut self.points, point, POINTS_MAX);
    }

    pub(crate) fn note(&mut self, words: &str) {
        let words: String = plain(words).chars().take(NOTE_MAX).collect();
        bounded(&mut self.notes, words, NOTES_MAX);
    }

    pub(crate) fn connected(&mut self, clients: usize, of: usize) {
        self.part = RunPart::Connecting(clients, of);
    }

    pub(crate) fn progress(&mut self, progress: &Progress) {
        self.part = if progress.warming_up { RunPart::WarmUp } else { RunPart::Measured };
        if !progress.warming_up {
            self.measured_from.get_or_insert(progress.elapsed);
        }
        self.progress = Some(*progress);
    }

    pub(crate) fn interval(&mut self, interval: &Interval) {
        let seconds = interval.length.as_secs_f64();
        // A remainder is the grace time of the last operations, or empty: its rate is not the
        // run's.
        if seconds < 1e-3 {
            return;
        }
        let usual = self.last.as_ref().map_or(0.0, |last| last.rate.length.as_secs_f64());
        let left_over = seconds < LEFT_OVER * usual;
        // If another interval follows, this was no remainder: the previous one was long because of
        // a stall.
        if left_over && !std::mem::replace(&mut self.left_over, true) {
            return;
        }
        self.left_over = false;
        let rate = Rate {
            done: operations(interval) as f64 / seconds,
            offered: interval.due.map(|due| due / seconds),
            length: interval.length,
        };
        let custom: Vec<&str> = self.custom.iter().map(String::as_str).collect();
        let mut all = Histogram::new();
        let mut operations: Vec<LiveOperation> = Vec::new();
        for metric in Metric::all() {
            let mut times = Histogram::new();
            let (mut ok, mut failed) = (0, 0);
            for ((_, status), pair) in interval.pairs.iter().filter(|((m, _), _)| *m == metric) {
                if status.is_ok() {
                    ok += pair.service.count();
                    times.merge(if interval.paced { &pair.response } else { &pair.service });
                } else {
                    failed += pair.service.count();
                }
            }
            if ok + failed == 0 {
                continue;
            }
            if metric.is_operation() {
                all.merge(&times);
            }
            let times = IntervalTimes::of(&times);
            operations.push(LiveOperation { name: plain(metric.name(&custom)), ok, failed, times });
        }
        bounded(&mut self.rates, rate, RATES_MAX);
        let all = (!all.is_empty()).then(|| IntervalTimes::of(&all));
        self.last = Some(LastInterval { rate, operations, all });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample_run, *};

    #[test]
    fn what_is_left_over_at_the_end_is_no_interval() {
        let mut seen = LiveState::default();
        for second in 3..6 {
            seen.interval(&sample_run::interval(second, 12_000, 0));
        }
        let nothing = Interval { pairs: Default::default(), ..sample_run::interval(6, 12_000, 0) };
        seen.interval(&Interval { length: Duration::from_millis(30), ..nothing });
        assert_eq!((seen.rates.len(), seen.last.as_ref().unwrap().rate.done), (3, 12_000.0));
        // After a long one those that follow are short, and no end.
        let long = Interval { length: Duration::from_secs(9), ..sample_run::interval(6, 12_000, 0) };
        seen.interval(&long);
        (7..10).for_each(|second| seen.interval(&sample_run::interval(second, 12_000, 0)));
        assert_eq!((seen.rates.len(), seen.last.as_ref().unwrap().rate.length), (6, Duration::from_secs(1)));
        // A whole one in which nothing was done is one: the store stalls.
        let stall = Interval { pairs: Default::default(), ..sample_run::interval(7, 12_000, 0) };
        seen.interval(&stall);
        assert_eq!((seen.rates.len(), seen.last.as_ref().unwrap().rate.done), (7, 0.0));
    }
}
