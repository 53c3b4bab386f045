//! The values and the resampling of one run.

use crate::{
    document::{MetricId, MetricKind, RESPONSE, SERVICE},
    log::{self, PieceTimes},
    pieces::{LEFT_OUT, Pieces},
    setup::{Setup, setup},
};
use serval_report::{
    json::ReadError,
    stored::{HISTOGRAM_LOG, StoredError},
    summary::two_times,
};
use serval_result::{
    document::{EndedBy, Latency, ResultDocument},
    flags::Offered,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// One run of a side.
#[derive(Debug)]
pub(crate) struct ComparedRun {
    /// The result's file.
    pub(crate) path: PathBuf,
    pub(crate) identity: RunIdentity,
    pub(crate) setup: Setup,
    /// Values, in the units of [`MetricKind`].
    pub(crate) values: BTreeMap<MetricId, f64>,
    /// Successful operations, by operation.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Finished operations.
    pub(crate) operations: u64,
    /// Whether response and service times differ.
    pub(crate) two_times: bool,
    /// Whether throughput is a result: the load was not paced, or its target was missed.
    pub(crate) throughput_matters: bool,
    /// What a reader must know before quoting its numbers.
    pub(crate) notes: Vec<&'static str>,
    /// Parts of the measured time, which resampling draws.
    pub(crate) pieces: Pieces,
    log: PathBuf,
}

/// What no two runs share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunIdentity {
    pub(crate) started: String,
    pub(crate) seed: u64,
    pub(crate) host: String,
}

/// Times of one run's operations by piece, held while it is resampled.
pub(crate) struct ResamplingData {
    /// By operation, and whether they are service times.
    times: BTreeMap<(String, bool), PieceTimes>,
    /// The values of the whole run, computed as those of resamples are.
    whole: BTreeMap<MetricId, f64>,
}

fn latency_values(latency: &Latency, kinds: [MetricKind; 5]) -> Result<Vec<(MetricKind, f64)>, String> {
    let histogram = latency.to_histogram().map_err(|error| error.to_string())?;
    let value = |kind: MetricKind| match kind.percentile() {
        Some(percentile) => histogram.percentile(percentile) as f64,
        None => latency.mean_ns,
    };
    Ok(kinds.into_iter().map(|kind| (kind, value(kind))).collect())
}

/// Returns what a reader must know of a run, as the end of a sentence about several runs.
fn notes(document: &ResultDocument) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if document.overall.operations == 0 {
        notes.push("measured no operation");
    }
    match document.overall.ended_by.known() {
        Some(EndedBy::Interrupted) => notes.push("were interrupted"),
        Some(EndedBy::Failed) => notes.push("failed before their end"),
        _ => (),
    }
    if !document.client_bounds().is_empty() {
        notes.push("were bounded by the client, not the store");
    }
    if document.environment.debug {
        notes.push("are of a debug build of the client");
    }
    if document.censored.in_flight > 0 || document.censored.not_started > 0 {
        notes.push("left operations unfinished, whose times are missing from the percentiles");
    }
    notes
}

impl ComparedRun {
    /// Takes the values of a result.
    pub(crate) fn of(path: &Path, document: &ResultDocument) -> Result<ComparedRun, StoredError> {
        let mut values = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let overall = &document.overall;
        let of_run = |kind| MetricId { operation: None, kind };
        values.insert(of_run(MetricKind::Throughput), overall.throughput);
        if overall.operations > 0 {
            let share = document.failed() as f64 / overall.operations as f64;
            values.insert(of_run(MetricKind::FailedShare), share.min(1.0));
        }
        let two_times = two_times(document);
        for metric in document.metrics.iter().filter(|metric| !LEFT_OUT.contains(&metric.name.as_str())) {
            let Some(ok) = metric.ok.as_ref().filter(|ok| ok.response.count > 0) else { continue };
            counts.insert(metric.name.clone(), ok.response.count);
            let mut take = |latency, kinds| {
                let found = latency_values(latency, kinds).map_err(|problem| StoredError::Result {
                    path: path.to_owned(),
                    error: ReadError::NotAResult(format!("{}: {problem}", metric.name)),
                })?;
                for (kind, value) in found {
                    // 0 ns means less than one step of the clock, and has no logarithm.
                    values.insert(MetricId { operation: Some(metric.name.clone()), kind }, value.max(1.0));
                }
                Ok(())
            };
            take(&ok.response, RESPONSE)?;
            if two_times {
                take(&ok.service, SERVICE)?;
            }
        }
        values.retain(|metric, value| value.is_finite() && (*value > 0.0 || !metric.kind.is_relative()));
        let run = &document.run;
        Ok(ComparedRun {
            path: path.to_owned(),
            identity: RunIdentity {
                started: run.started.clone(),
                seed: run.seed,
                host: document.environment.host.clone(),
            },
            setup: setup(document),
            values,
            counts,
            operations: overall.operations,
            two_times,
            throughput_matters: Offered::of(document).is_none_or(|offered| offered.is_missed()),
            notes: notes(document),
            pieces: Pieces::of(&document.series),
            log: path.with_file_name(HISTOGRAM_LOG),
        })
    }

    /// Whether a histogram log lies beside the result.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_file()
    }

    /// Reads what resampling needs of some metrics, and says why the log lacks times of one of them, if it does.
    pub(crate) fn resampling_data(&self, metrics: &[MetricId]) -> (ResamplingData, Option<String>) {
        let mut problem = None;
        let mut times = BTreeMap::new();
        let operations: BTreeSet<(&str, bool)> = metrics
            .iter()
            .filter_map(|metric| Some((metric.operation.as_deref()?, metric.kind.is_service())))
            .collect();
        if self.has_log() && self.pieces.number() > 1 {
            let tags: BTreeSet<String> =
                operations.iter().map(|(name, service)| log::tag(name, *service)).collect();
            match log::read(&self.log, &self.pieces, |tag| tags.contains(tag)) {
                Ok(mut found) => {
                    for (name, service) in operations {
                        let read = found.remove(&log::tag(name, service));
                        if let Some(read) = read.filter(|read| Some(&read.total()) == self.counts.get(name)) {
                            times.insert((name.to_owned(), service), read);
                        } else {
                            problem.get_or_insert_with(|| {
                                format!("it has not as many times of {name} as the result: it is not of this run, or cut off")
                            });
                        }
                    }
                }
                Err(error) => problem = Some(error),
            }
        }
        let mut data = ResamplingData { times, whole: BTreeMap::new() };
        let once = vec![1; self.pieces.number()];
        for metric in metrics {
            if let Some(value) = data.value(self, metric, &once) {
                data.whole.insert(metric.clone(), value);
            }
        }
        let problem = problem.map(|problem| format!("{}: {problem}", self.log.display()));
        (data, problem)
    }
}

impl ResamplingData {
    fn value(&self, run: &ComparedRun, metric: &MetricId, weights: &[u32]) -> Option<f64> {
        let Some(operation) = &metric.operation else {
            return match metric.kind {
                MetricKind::Throughput => Some(run.pieces.rate(weights)),
                _ => Some(run.pieces.failed_share(weights)),
            };
        };
        let times = self.times.get(&(operation.clone(), metric.kind.is_service()))?;
        Some(match metric.kind.percentile() {
            Some(percentile) => times.percentile(percentile, weights),
            None => times.mean(weights),
        })
    }

    /// Difference of a metric between a resample of the run and the whole run: of logarithms, or of shares.
    pub(crate) fn deviation(&self, run: &ComparedRun, metric: &MetricId, weights: &[u32]) -> Option<f64> {
        let whole = *self.whole.get(metric)?;
        let value = self.value(run, metric, weights)?;
        Some(if metric.kind.is_relative() { (value / whole).ln() } else { value - whole })
    }
}
