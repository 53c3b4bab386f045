//! Reads the results of an experiment once, and keeps what its reports need.
//!
//! Percentiles of a point come from the merged histograms of its repeats: percentiles cannot be
//! averaged. The spread of a number is its minimum and maximum over the repeats.

use crate::{
    html::series::{all_operations, without_end},
    notes::notes,
    plot::{chunk_of, distribution},
    stored::{StoredError, StoredExperiment},
    sums::{add, sum, sums},
    text::printable,
};
use serval_measure::histogram::Histogram;
use serval_result::{
    document::{IntervalSummary, ResultDocument, TimesResult, parse_levels},
    experiment::{Flag, RunEntry, RunKind},
    flags::Offered,
    load::Usage,
    note::Note,
};
use std::collections::{BTreeMap, BTreeSet};

/// What reports need of the results of an experiment's runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loaded {
    /// By the index of the curve in the document.
    pub(super) curves: Vec<CurveResults>,
    /// Results of phases, by their index in the document; `None` for a phase without a result.
    pub(super) phases: Vec<Option<ResultDocument>>,
    /// Errors of results that cannot be read.
    pub(super) unreadable: Vec<String>,
}

/// Results of one curve.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CurveResults {
    /// In the order of the plan.
    pub(super) points: Vec<Point>,
    /// Facts that the store reports of itself.
    pub(super) facts: BTreeMap<String, String>,
    /// Classes of the workloads.
    pub(super) workloads: BTreeSet<String>,
    /// How the clients ran: on event loops or threads.
    pub(super) executions: BTreeSet<String>,
}

/// Results of one point, all repeats merged.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Point {
    pub(super) place: usize,
    pub(super) target: Option<f64>,
    pub(super) clients: u64,
    pub(super) repeats: u64,
    pub(super) flags: BTreeSet<Flag>,
    /// Operations/s: all operations divided by all measured time.
    pub(super) throughput: Spread,
    pub(super) operations: u64,
    pub(super) failed: u64,
    /// Measured time of all repeats, s.
    pub(super) duration_s: f64,
    /// Whether arrivals are random, so that fewer than offered may be chance.
    pub(super) random: bool,
    /// Operations without an outcome at the end.
    pub(super) unfinished: u64,
    pub(super) metrics: Vec<LoadMetric>,
    /// Resource usage of the client.
    pub(super) client: Option<Used>,
    /// Resource usage of the watched processes.
    pub(super) store: Option<Used>,
    /// Names of the watched processes.
    pub(super) processes: BTreeSet<String>,
    /// Reasons why the client bounded the point.
    pub(super) bound: BTreeSet<String>,
    /// Notes of its results, without duplicates.
    pub(super) notes: Vec<Note>,
    /// Messages of failures, with counts.
    pub(super) messages: BTreeMap<String, u64>,
    /// The measured time of all repeats, one after the other.
    pub(super) slices: Vec<Slice>,
}

/// A number, and its minimum and maximum over the repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// One operation at one point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadMetric {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) failed: u64,
    /// Of successful operations, if there are any.
    pub(super) response: Option<LoadTimes>,
    pub(super) service: Option<LoadTimes>,
}

/// Times in ns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadTimes {
    pub(super) mean: Spread,
    pub(super) p50: Spread,
    pub(super) p95: Spread,
    pub(super) p99: Spread,
    pub(super) p999: Spread,
    pub(super) max_ns: u64,
    /// For plots by percentile.
    pub(super) distribution: Vec<(f64, f64)>,
}

/// Resource usage over a point's repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    /// CPU seconds.
    pub(super) cpu_s: f64,
    /// Bytes sent and received, where known.
    pub(super) network_bytes: Option<u64>,
    /// Maximum over the repeats.
    pub(super) memory_bytes: Option<u64>,
    /// Operations of the repeats whose usage is known.
    pub(super) operations: u64,
}

/// Adjacent intervals, merged.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Slice {
    pub(super) length_s: f64,
    /// Operations that ended.
    pub(super) operations: f64,
    /// Operations that were due, with an offered load.
    pub(super) due: Option<f64>,
    pub(super) failed: u64,
    /// By operation: levels of response times, and the highest p99 of the intervals in ns.
    pub(super) metrics: BTreeMap<String, (Vec<(u32, u64)>, u64)>,
}

impl Loaded {
    /// Reads the results of all points and phases of an experiment. Reports name those that cannot
    /// be read; if all fail, returns the first error.
    pub(super) fn read(experiment: &StoredExperiment) -> Result<Loaded, StoredError> {
        let mut entries: Vec<&RunEntry> =
            experiment.document.runs.iter().filter(|entry| entry.kind == RunKind::Point).collect();
        entries.sort_by_key(|entry| (entry.curve, entry.point, entry.repeat));
        let mut loaded = Loaded::empty(experiment.document.curves.len());
        let mut first: Option<StoredError> = None;
        let mut any = false;
        // One point at a time: histograms of all points would take much memory.
        for group in entries.chunk_by(|a, b| (a.curve, a.point) == (b.curve, b.point)) {
            let mut gathering = Gathering::default();
            for entry in group {
                match experiment.result(entry) {
                    Ok(document) => gathering.add(entry, &document, &mut loaded.curves[entry.curve]),
                    Err(error) => {
                        loaded.unreadable.push(printable(&error.to_string(), 300));
                        first.get_or_insert(error);
                    }
                }
            }
            if let Some(point) = gathering.finish() {
                loaded.curves[group[0].curve].points.push(point);
                any = true;
            }
        }
        for phase in &experiment.document.phases {
            let result = phase.folder.as_ref().map(|folder| experiment.result_in(folder)).transpose();
            any |= matches!(result, Ok(Some(_)));
            loaded.phases.push(result.unwrap_or_else(|error| {
                loaded.unreadable.push(printable(&error.to_string(), 300));
                first.get_or_insert(error);
                None
            }));
        }
        match first {
            Some(error) if !any => Err(error),
            _ => Ok(loaded),
        }
    }

    /// A single result, as an experiment of one curve with one point.
    pub(super) fn of_result(entry: &RunEntry, document: &ResultDocument) -> Loaded {
        let mut loaded = Loaded::empty(1);
        let mut gathering = Gathering::default();
        gathering.add(entry, document, &mut loaded.curves[0]);
        loaded.curves[0].points.extend(gathering.finish());
        loaded
    }

    fn empty(curves: usize) -> Loaded {
        Loaded { curves: vec![CurveResults::default(); curves], phases: Vec::new(), unreadable: Vec::new() }
    }
}

impl Spread {
    /// The spread of a value over the values of the repeats.
    fn of(value: f64, each: impl Iterator<Item = f64>) -> Spread {
        each.fold(Spread { value, low: value, high: value }, |spread, one| Spread {
            low: spread.low.min(one),
            high: spread.high.max(one),
            ..spread
        })
    }
}

impl Point {
    /// Whether it has a flag.
    pub(super) fn flagged(&self) -> bool {
        !self.flags.is_empty() || self.target_missed()
    }

    /// Its flags in words.
    pub(super) fn flag_words(&self) -> Vec<&'static str> {
        let missed = (self.target_missed() && !self.overloaded()).then_some("target missed");
        self.flags.iter().map(|flag| flag.words()).chain(missed).collect()
    }

    pub(super) fn overloaded(&self) -> bool {
        self.flags.contains(&Flag::Overloaded)
    }

    /// Whether throughput is below the offered load by more than chance.
    pub(super) fn target_missed(&self) -> bool {
        let (random, throughput, duration_s) = (self.random, self.throughput.value, self.duration_s);
        self.target.is_some_and(|target| Offered { target, random, throughput, duration_s }.is_missed())
    }

    /// Its name on the curve: the offered load, or the number of clients.
    pub(super) fn load(&self) -> String {
        match self.target {
            Some(target) => format!("{}/s", crate::units::rate(target)),
            None => crate::units::plural(self.clients, "client"),
        }
    }

    pub(super) fn metric(&self, name: &str) -> Option<&LoadMetric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// Flags of a run in words.
pub(super) fn flag_text(flags: &[Flag], between: &str) -> String {
    flags.iter().map(|flag| flag.words()).collect::<Vec<_>>().join(between)
}

impl Used {
    /// Adds what processes used for the operations of a repeat.
    fn add<'u>(&mut self, usages: impl Iterator<Item = &'u Usage> + Clone, operations: u64) {
        let memory = usages.clone().filter_map(|usage| usage.memory_bytes).reduce(u64::saturating_add);
        self.memory_bytes = self.memory_bytes.max(memory);
        add(&mut self.operations, operations);
        for usage in usages {
            self.cpu_s += usage.cpu_s;
            for bytes in usage.sent_bytes.into_iter().chain(usage.received_bytes) {
                add(self.network_bytes.get_or_insert(0), bytes);
            }
        }
    }
}

/// Times while repeats are merged.
#[derive(Default)]
struct Adding {
    all: Histogram,
    /// Mean, p50, p95, p99, p99.9 of each repeat.
    each: Vec<[f64; 5]>,
}

const PERCENTILES: [f64; 4] = [50.0, 95.0, 99.0, 99.9];

impl Adding {
    fn add(&mut self, histogram: &Histogram) {
        if histogram.is_empty() {
            return;
        }
        self.all.merge(histogram);
        self.each.push(Self::numbers(histogram));
    }

    fn numbers(histogram: &Histogram) -> [f64; 5] {
        let [p50, p95, p99, p999] = PERCENTILES.map(|p| histogram.percentile(p) as f64);
        [histogram.mean(), p50, p95, p99, p999]
    }

    fn finish(&self) -> Option<LoadTimes> {
        if self.all.is_empty() {
            return None;
        }
        let whole = Self::numbers(&self.all);
        let spread = |at: usize| Spread::of(whole[at], self.each.iter().map(|numbers| numbers[at]));
        Some(LoadTimes {
            mean: spread(0),
            p50: spread(1),
            p95: spread(2),
            p99: spread(3),
            p999: spread(4),
            max_ns: self.all.max(),
            distribution: distribution(&self.all),
        })
    }
}

/// Counts and times of an operation while repeats are merged.
#[derive(Default)]
struct AddingMetric {
    count: u64,
    failed: u64,
    response: Adding,
    service: Adding,
}

impl AddingMetric {
    fn add(&mut self, times: &TimesResult) {
        // Times that cannot be decoded are left out; the counts stay.
        let Ok(response) = times.response.to_histogram() else { return };
        self.response.add(&response);
        if times.service.histogram == times.response.histogram {
            self.service.add(&response);
        } else if let Ok(service) = times.service.to_histogram() {
            self.service.add(&service);
        }
    }
}

/// A point while its repeats are merged.
#[derive(Default)]
struct Gathering {
    point: Point,
    throughputs: Vec<f64>,
    metrics: BTreeMap<String, AddingMetric>,
}

impl Gathering {
    fn add(&mut self, entry: &RunEntry, document: &ResultDocument, curve: &mut CurveResults) {
        let (overall, point) = (&document.overall, &mut self.point);
        point.place = entry.point;
        point.target = entry.target;
        point.clients = entry.clients;
        point.repeats += 1;
        point.flags.extend(&entry.flags);
        add(&mut point.operations, overall.operations);
        add(&mut point.failed, overall.failed);
        point.duration_s += overall.duration_s;
        point.random |= Offered::of(document).is_some_and(|offered| offered.random);
        add(&mut point.unfinished, document.censored.unfinished());
        for note in notes(document) {
            if !point.notes.contains(&note) {
                point.notes.push(note);
            }
        }
        self.throughputs.push(overall.throughput);
        for metric in &document.metrics {
            let adding = self.metrics.entry(printable(&metric.name, 60)).or_default();
            add(&mut adding.count, metric.count());
            add(&mut adding.failed, metric.failed());
            if let Some(times) = &metric.ok {
                adding.add(times);
            }
            for message in metric.messages.iter().take(20) {
                let words =
                    format!("{}: {}", printable(&message.status, 40), printable(&message.message, 200));
                add(point.messages.entry(words).or_default(), message.count);
            }
        }
        point.bound.extend(document.client_bounds().iter().map(|sentence| printable(sentence, 1000)));
        // Without the client's load, only its CPU time is known.
        let cpu_only = Usage { cpu_s: overall.client_cpu_s, ..Usage::default() };
        let client = document.client.as_ref().map(|client| &client.usage);
        if let Some(usage) = client.or((cpu_only.cpu_s > 0.0).then_some(&cpu_only)) {
            point.client.get_or_insert_default().add([usage].into_iter(), overall.operations);
        }
        if !document.processes.is_empty() {
            let usages = document.processes.iter().map(|process| &process.usage);
            point.store.get_or_insert_default().add(usages, overall.operations);
        }
        point.processes.extend(document.processes.iter().map(|process| printable(&process.name, 60)));
        point.slices.extend(slices(&document.series));
        let clean = |(name, value): (&String, &String)| (printable(name, 100), printable(value, 300));
        curve.facts.extend(document.run.store_facts.iter().map(clean));
        curve.workloads.insert(printable(&document.run.workload, 200));
        curve.executions.insert(printable(&document.run.execution, 100));
    }

    fn finish(self) -> Option<Point> {
        let mut point = self.point;
        if point.repeats == 0 {
            return None;
        }
        let throughput = match self.throughputs[..] {
            [only] => only,
            _ if point.duration_s > 0.0 => point.operations as f64 / point.duration_s,
            _ => 0.0,
        };
        point.throughput = Spread::of(throughput, self.throughputs.into_iter());
        point.metrics = self
            .metrics
            .into_iter()
            .map(|(name, AddingMetric { count, failed, response, service })| LoadMetric {
                name,
                count,
                failed,
                response: response.finish(),
                service: service.finish(),
            })
            .collect();
        Some(point)
    }
}

/// The measured time of a run, without its warm-up.
fn slices(series: &[IntervalSummary]) -> Vec<Slice> {
    let measured = without_end(series).iter().filter(|interval| !interval.warm_up);
    let measured: Vec<Slice> = measured.map(Slice::of).collect();
    measured.chunks(chunk_of(measured.len())).map(Slice::together).collect()
}

impl Slice {
    fn of(interval: &IntervalSummary) -> Slice {
        let metrics = interval.metrics.iter().map(|(name, metric)| {
            let p99_ns = if metric.ok > 0 { metric.response.p99_ns } else { 0 };
            (printable(name, 60), (parse_levels(&metric.levels).collect(), p99_ns))
        });
        Slice {
            length_s: interval.length_s,
            operations: all_operations(interval),
            due: interval.pacing.map(|pacing| pacing.due),
            failed: sum(interval.metrics.values().map(|metric| metric.failed)),
            metrics: metrics.collect(),
        }
    }

    /// Merges slices.
    pub(super) fn together(slices: &[Slice]) -> Slice {
        let mut whole = Slice::default();
        for slice in slices {
            whole.length_s += slice.length_s;
            whole.operations += slice.operations;
            add(&mut whole.failed, slice.failed);
            if let Some(due) = slice.due {
                *whole.due.get_or_insert(0.0) += due;
            }
            for (name, (levels, highest)) in &slice.metrics {
                let (all, most) = whole.metrics.entry(name.clone()).or_default();
                *all = sums(all.drain(..).chain(levels.iter().copied())).into_iter().collect();
                *most = (*most).max(*highest);
            }
        }
        whole
    }
}
