//! Live metrics: sums since the start of the process, in a form that suits both Prometheus and
//! OpenTelemetry.
//!
//! Counters grow over all runs of an experiment, so a slow scraper loses nothing. The label `part`
//! is `load`, `warm-up` or `measured`; the sums of `measured` equal those of the results.

use serval_experiment::watcher::ExperimentStep;
use serval_measure::histogram::Histogram;
use serval_model::{Metric, Status};
use serval_result::experiment::RunKind;
use serval_runner::{Interval, clock};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Upper bounds of the buckets, ns: three per decade, from a store in memory to a hanging store.
#[rustfmt::skip]
pub(crate) const BOUNDS_NS: [u64; 22] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000,
    1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000,
];

/// A histogram with fixed buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BucketCounts {
    /// Count of each bucket; the last is for times above all bounds.
    pub(crate) buckets: [u64; BOUNDS_NS.len() + 1],
    /// Total count.
    pub(crate) count: u64,
    /// Sum of the times, s.
    pub(crate) sum_s: f64,
}

impl BucketCounts {
    fn add(&mut self, histogram: &Histogram) {
        for (ns, count) in histogram.iter() {
            self.buckets[BOUNDS_NS.partition_point(|bound| *bound < ns)] += count;
        }
        self.count += histogram.count();
        self.sum_s += histogram.mean() * histogram.count() as f64 / 1e9;
    }
}

/// Value of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SeriesValue {
    /// A monotonic count.
    Counter(f64),
    /// A current value.
    Gauge(f64),
    /// Times, as a histogram.
    Histogram(BucketCounts),
    /// Always 1; the labels carry the information.
    Info,
}

/// The labels and the value of a series.
pub(crate) type SeriesSample = (Vec<(&'static str, String)>, SeriesValue);

/// All series of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// Its name, without unit.
    pub(crate) name: &'static str,
    /// Help text.
    pub(crate) help: &'static str,
    /// Whether the unit is seconds; otherwise it is a count.
    pub(crate) seconds: bool,
    /// The series, all of one kind.
    pub(crate) samples: Vec<SeriesSample>,
}

/// Labels of a series: part, metric, status.
type SeriesKey = (&'static str, String, &'static str);

/// All sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveTotals {
    times: BTreeMap<SeriesKey, (BucketCounts, BucketCounts)>,
    lateness: BucketCounts,
    offered: Option<f64>,
    throughput: Option<f64>,
    clients: usize,
    warming_up: bool,
    elapsed: Option<Duration>,
    /// Whether the current run is a load.
    pub(crate) loading: bool,
    /// Curve, kind and description of the current step.
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

impl LiveTotals {
    pub(crate) fn step(&mut self, step: &ExperimentStep, curve: &str, now: Instant) {
        self.loading = step.kind == RunKind::Load;
        self.step = Some([curve.to_owned(), kind(step.kind).to_owned(), step.what.clone()]);
        self.runs = Some((step.done, step.planned));
        self.remaining = Some((step.remaining, now));
        self.between();
    }

    /// Starts a run outside an experiment.
    pub(crate) fn run(&mut self, name: &str, loading: bool) {
        self.loading = loading;
        let kind = if loading { "load" } else { "run" };
        self.step = Some([String::new(), kind.to_owned(), name.to_owned()]);
        self.between();
    }

    /// Resets the gauges of the last run: no run is active.
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

    /// Returns the families that have a value.
    pub(crate) fn families(&self) -> Vec<Family> {
        let labels = |(part, metric, status): &SeriesKey| {
            vec![("part", (*part).to_owned()), ("metric", metric.clone()), ("status", (*status).to_owned())]
        };
        let times = |of: fn(&(BucketCounts, BucketCounts)) -> SeriesValue| -> Vec<SeriesSample> {
            self.times.iter().map(|(key, counts)| (labels(key), of(counts))).collect()
        };
        let one = |value: Option<SeriesValue>| -> Vec<SeriesSample> {
            value.map(|value| (Vec::new(), value)).into_iter().collect()
        };
        let gauge = |value: Option<f64>| one(value.map(SeriesValue::Gauge));
        let family = |name, help, samples| Family { name, help, seconds: false, samples };
        let seconds = |name, help, samples| Family { name, help, seconds: true, samples };
        let step = self.step.iter().map(|[curve, kind, what]| {
            let names = [("curve", curve), ("kind", kind), ("step", what)];
            (names.map(|(name, text)| (name, text.clone())).to_vec(), SeriesValue::Info)
        });
        let remaining = self.remaining.map(|(left, since)| left.saturating_sub(since.elapsed()));
        let lateness = (self.lateness.count > 0).then(|| SeriesValue::Histogram(self.lateness.clone()));
        let mut all = vec![
            family(
                "serval_operations",
                "Operations",
                times(|(all, _)| SeriesValue::Counter(all.count as f64)),
            ),
            seconds(
                "serval_response",
                "Response times, from the intended start",
                times(|(response, _)| SeriesValue::Histogram(response.clone())),
            ),
            seconds(
                "serval_service",
                "Service times, from the actual start",
                times(|(_, service)| SeriesValue::Histogram(service.clone())),
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
                one(Some(SeriesValue::Counter(clock::process_cpu().as_secs_f64()))),
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
        let mut totals = LiveTotals::default();
        for second in 0..5 {
            totals.interval(&sample_run::interval(second, 10_000, 7));
        }
        totals.loading = true;
        totals.interval(&sample_run::interval(9, 10_000, 0));
        let families = totals.families();
        let count = |part: &str, status: &str| -> f64 {
            let of = |(labels, value): &SeriesSample| match value {
                SeriesValue::Counter(n) if labels[0].1 == part && labels[2].1 == status => *n,
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
        let mut counts = BucketCounts::default();
        counts.add(&histogram);
        assert_eq!((counts.buckets[0], counts.buckets[1]), (2, 1));
        assert_eq!(counts.buckets[BOUNDS_NS.len() - 1..], [1, 1]);
        assert_eq!(counts.count, counts.buckets.iter().sum::<u64>());
        assert!((counts.sum_s - 20.000_002_001).abs() < 1e-9, "{}", counts.sum_s);
        assert!(BOUNDS_NS.is_sorted());
    }
}
