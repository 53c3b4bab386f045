//! What others are told of a run while it goes: sums since the start of the
//! process, in the form that both Prometheus and OpenTelemetry take.
//!
//! Counts only ever grow, over all runs of an experiment, so that whoever asks
//! now and then loses nothing between. `part` says which of them: `load`,
//! `warm-up` or `measured`; those of `measured` add up to the results'.

use serval_experiment::watcher::ExperimentStep;
use serval_measure::histogram::Histogram;
use serval_model::{Metric, Status};
use serval_result::experiment::RunKind;
use serval_runner::{Interval, clock};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Upper ends of the buckets, ns: three a decade, from a store in memory to a
/// store that hangs.
pub(crate) const BOUNDS_NS: [u64; 22] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Times in buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counts {
    /// How many in each bucket, those above all bounds last.
    pub(crate) buckets: [u64; BOUNDS_NS.len() + 1],
    /// All of them.
    pub(crate) count: u64,
    /// Their sum, s.
    pub(crate) sum_s: f64,
}

impl Counts {
    fn add(&mut self, histogram: &Histogram) {
        for (ns, count) in histogram.iter() {
            self.buckets[BOUNDS_NS.partition_point(|bound| *bound < ns)] += count;
        }
        self.count += histogram.count();
        self.sum_s += histogram.mean() * histogram.count() as f64 / 1e9;
    }
}

/// A number, or many.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// It only grows.
    Counter(f64),
    /// It is what it is now.
    Gauge(f64),
    /// Times.
    Histogram(Counts),
    /// Always 1: the labels tell.
    Info,
}

/// A value and what tells it from others of its family.
pub(crate) type Sample = (Vec<(&'static str, String)>, Value);

/// Values of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// Its name, without unit.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) help: &'static str,
    /// Whether it is in seconds; else it counts.
    pub(crate) seconds: bool,
    /// The values, all of one kind.
    pub(crate) samples: Vec<Sample>,
}

/// What a series is told apart by: part, metric, status.
type Key = (&'static str, String, &'static str);

/// All sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    times: BTreeMap<Key, (Counts, Counts)>,
    lateness: Counts,
    offered: Option<f64>,
    throughput: Option<f64>,
    clients: usize,
    warming_up: bool,
    elapsed: Option<Duration>,
    /// Whether what runs is a load.
    pub(crate) loading: bool,
    /// Curve, kind and words of the step.
    step: Option<[String; 3]>,
    runs: Option<(u64, u64)>,
    remaining: Option<(Duration, Instant)>,
    /// Names of the workload's own metrics.
    pub(crate) custom: Vec<String>,
}

fn kind(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Load => "load",
        RunKind::Search => "search",
        RunKind::Point => "point",
    }
}

impl Totals {
    pub(crate) fn step(&mut self, step: &ExperimentStep, curve: &str, now: Instant) {
        self.loading = step.kind == RunKind::Load;
        self.step = Some([curve.to_owned(), kind(step.kind).to_owned(), step.what.clone()]);
        self.runs = Some((step.done, step.planned));
        self.remaining = Some((step.remaining, now));
        self.between();
    }

    /// A run of no experiment begins.
    pub(crate) fn run(&mut self, name: &str, loading: bool) {
        self.loading = loading;
        let kind = if loading { "load" } else { "run" };
        self.step = Some([String::new(), kind.to_owned(), name.to_owned()]);
        self.between();
    }

    /// No run is under way: what was true of the last is not true now.
    pub(crate) fn between(&mut self) {
        (self.offered, self.throughput, self.elapsed) = (None, None, None);
        (self.clients, self.warming_up) = (0, false);
    }

    pub(crate) fn done(&mut self, done: u64, planned: u64) {
        self.runs = Some((done, planned));
    }

    pub(crate) fn connected(&mut self, clients: usize) {
        self.clients = clients;
    }

    pub(crate) fn progress(&mut self, elapsed: Duration, warming_up: bool) {
        (self.elapsed, self.warming_up) = (Some(elapsed), warming_up);
    }

    pub(crate) fn rate(&mut self, done: f64, offered: Option<f64>) {
        (self.throughput, self.offered) = (Some(done), offered);
    }

    pub(crate) fn interval(&mut self, interval: &Interval) {
        let part = match (self.loading, interval.warm_up) {
            (true, _) => "load",
            (_, true) => "warm-up",
            (_, false) => "measured",
        };
        let custom: Vec<&str> = self.custom.iter().map(String::as_str).collect();
        for ((metric, status), pair) in &interval.pairs {
            let (metric, status): (&Metric, &Status) = (metric, status);
            let key = (part, metric.name(&custom).to_owned(), status.name());
            let (response, service) = self.times.entry(key).or_default();
            response.add(if interval.paced { &pair.response } else { &pair.service });
            service.add(&pair.service);
        }
        self.lateness.add(&interval.lateness);
    }

    /// The families, those without a value left out.
    pub(crate) fn families(&self) -> Vec<Family> {
        let labels = |(part, metric, status): &Key| {
            vec![("part", (*part).to_owned()), ("metric", metric.clone()), ("status", (*status).to_owned())]
        };
        let times = |of: fn(&(Counts, Counts)) -> Value| -> Vec<Sample> {
            self.times.iter().map(|(key, counts)| (labels(key), of(counts))).collect()
        };
        let one = |value: Option<Value>| -> Vec<Sample> {
            value.map(|value| (Vec::new(), value)).into_iter().collect()
        };
        let gauge = |value: Option<f64>| one(value.map(Value::Gauge));
        let family = |name, help, samples| Family { name, help, seconds: false, samples };
        let seconds = |name, help, samples| Family { name, help, seconds: true, samples };
        let step = self.step.iter().map(|[curve, kind, what]| {
            let names = [("curve", curve), ("kind", kind), ("step", what)];
            (names.map(|(name, text)| (name, text.clone())).to_vec(), Value::Info)
        });
        let remaining = self.remaining.map(|(left, since)| left.saturating_sub(since.elapsed()));
        let lateness = (self.lateness.count > 0).then(|| Value::Histogram(self.lateness.clone()));
        let mut all = vec![
            family("serval_operations", "Operations", times(|(all, _)| Value::Counter(all.count as f64))),
            seconds(
                "serval_response",
                "Response times, from the intended start",
                times(|(response, _)| Value::Histogram(response.clone())),
            ),
            seconds(
                "serval_service",
                "Service times, from the actual start",
                times(|(_, service)| Value::Histogram(service.clone())),
            ),
            seconds("serval_lateness", "Actual after intended starts, measured", one(lateness)),
            family("serval_throughput", "Operations a second in the last interval", gauge(self.throughput)),
            family(
                "serval_offered_load",
                "Operations a second due in the last interval",
                gauge(self.offered),
            ),
            family("serval_clients", "Clients that are connected", gauge(Some(self.clients as f64))),
            family(
                "serval_warming_up",
                "1: what is done now is left out of the results",
                gauge(Some(f64::from(u8::from(self.warming_up)))),
            ),
            seconds(
                "serval_run_elapsed",
                "Since the run's start",
                gauge(self.elapsed.map(|elapsed| elapsed.as_secs_f64())),
            ),
            family("serval_step", "What is under way", step.collect()),
            family("serval_runs_done", "Runs that are done", gauge(self.runs.map(|(done, _)| done as f64))),
            family("serval_runs_planned", "Runs of the plan", gauge(self.runs.map(|(_, all)| all as f64))),
            seconds(
                "serval_remaining",
                "What the rest of the plan takes, as far as is known",
                gauge(remaining.map(|left| left.as_secs_f64())),
            ),
            seconds(
                "serval_client_cpu",
                "CPU time of the client's process",
                one(Some(Value::Counter(clock::process_cpu().as_secs_f64()))),
            ),
        ];
        all.retain(|family| !family.samples.is_empty());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample_run, *};

    #[test]
    fn intervals_add_up_and_parts_are_kept_apart() {
        let mut totals = Totals::default();
        for second in 0..5 {
            totals.interval(&sample_run::interval(second, 10_000, 7));
        }
        totals.loading = true;
        totals.interval(&sample_run::interval(9, 10_000, 0));
        let families = totals.families();
        let count = |part: &str, status: &str| -> f64 {
            let of = |(labels, value): &Sample| match value {
                Value::Counter(n) if labels[0].1 == part && labels[2].1 == status => *n,
                _ => 0.0,
            };
            families[0].samples.iter().map(of).sum()
        };
        assert_eq!((count("warm-up", "OK"), count("warm-up", "ERROR")), (29_979.0, 21.0));
        assert_eq!((count("measured", "OK"), count("measured", "ERROR")), (19_986.0, 14.0));
        assert_eq!((count("load", "OK"), count("load", "ERROR")), (10_000.0, 0.0));
    }

    #[test]
    fn a_time_is_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::new();
        for ns in [1, 900, 1_100, 9_000_000_000, 11_000_000_000] {
            histogram.record(ns);
        }
        let mut counts = Counts::default();
        counts.add(&histogram);
        assert_eq!((counts.buckets[0], counts.buckets[1]), (2, 1));
        assert_eq!(counts.buckets[BOUNDS_NS.len() - 1..], [1, 1]);
        assert_eq!(counts.count, counts.buckets.iter().sum::<u64>());
        assert!((counts.sum_s - 20.000_002_001).abs() < 1e-9, "{}", counts.sum_s);
        assert!(BOUNDS_NS.is_sorted());
    }
}
