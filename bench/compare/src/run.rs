//! One run, as far as it is compared.

use crate::{
    document::{Kind, Metric, RESPONSE, SERVICE},
    log::{self, Times},
    pieces::{LEFT_OUT, Pieces},
    setup,
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

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its result's file.
    pub(crate) path: PathBuf,
    /// The moment and seed of it, which no two runs share.
    pub(crate) identity: (String, u64, String),
    /// What it was, by name.
    pub(crate) setup: BTreeMap<String, String>,
    /// Its values, in the units of [`Kind`].
    pub(crate) values: BTreeMap<Metric, f64>,
    /// Successes by operation.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Operations that ended.
    pub(crate) operations: u64,
    /// Whether response and service times differ.
    pub(crate) two_times: bool,
    /// Whether throughput says something: it was not offered, or not reached.
    pub(crate) throughput_matters: bool,
    /// What must be known of it.
    pub(crate) notes: Vec<&'static str>,
    /// Its parts.
    pub(crate) pieces: Pieces,
    log: PathBuf,
}

/// What resampling a run needs, while it is looked at.
pub(crate) struct Parts {
    times: BTreeMap<(String, bool), Times>,
    /// The values of the whole, by the same ways as those of resamples.
    whole: BTreeMap<Metric, f64>,
}

fn latency_values(latency: &Latency, kinds: [Kind; 5]) -> Result<Vec<(Kind, f64)>, String> {
    let histogram = latency.to_histogram().map_err(|error| error.to_string())?;
    let value = |kind: Kind| match kind.percentile() {
        Some(percentile) => histogram.percentile(percentile) as f64,
        None => latency.mean_ns,
    };
    Ok(kinds.into_iter().map(|kind| (kind, value(kind))).collect())
}

impl Run {
    /// Takes a result.
    pub(crate) fn of(path: &Path, document: &ResultDocument) -> Result<Run, StoredError> {
        let mut values = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let overall = &document.overall;
        let of_run = |kind| Metric { operation: None, kind };
        values.insert(of_run(Kind::Throughput), overall.throughput);
        if overall.operations > 0 {
            let share = overall.failed as f64 / overall.operations as f64;
            values.insert(of_run(Kind::FailedShare), share.min(1.0));
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
                    // Times below a clock's step are as good as one of its steps.
                    values.insert(Metric { operation: Some(metric.name.clone()), kind }, value.max(1.0));
                }
                Ok(())
            };
            take(&ok.response, RESPONSE)?;
            if two_times {
                take(&ok.service, SERVICE)?;
            }
        }
        values.retain(|metric, value| value.is_finite() && (*value > 0.0 || !metric.kind.is_relative()));
        let mut notes = Vec::new();
        if overall.operations == 0 {
            notes.push("measured no operation");
        }
        match overall.ended_by.known() {
            Some(EndedBy::Interrupted) => notes.push("were interrupted"),
            Some(EndedBy::Failed) => notes.push("failed before their end"),
            _ => (),
        }
        if document.client.as_ref().is_some_and(|client| !client.bound_by_client.is_empty()) {
            notes.push("were bounded by the client, not the store");
        }
        if document.environment.debug {
            notes.push("are of a debug build of the client");
        }
        if document.censored.in_flight > 0 || document.censored.not_started > 0 {
            notes.push("left operations unfinished, whose times are missing from the percentiles");
        }
        let run = &document.run;
        Ok(Run {
            path: path.to_owned(),
            identity: (run.started.clone(), run.seed, document.environment.host.clone()),
            setup: setup::facts(document),
            values,
            counts,
            operations: overall.operations,
            two_times,
            throughput_matters: Offered::of(document).is_none_or(|offered| offered.is_missed()),
            notes,
            pieces: Pieces::of(&document.series),
            log: path.with_file_name(HISTOGRAM_LOG),
        })
    }

    /// Whether there is a histogram log.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_file()
    }

    /// Reads what resampling needs of some metrics. What the log has not whole is left out, and named.
    pub(crate) fn parts(&self, metrics: &[Metric]) -> (Parts, Option<String>) {
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
        let mut parts = Parts { times, whole: BTreeMap::new() };
        let once = vec![1; self.pieces.number()];
        for metric in metrics {
            if let Some(value) = parts.value(self, metric, &once) {
                parts.whole.insert(metric.clone(), value);
            }
        }
        let problem = problem.map(|problem| format!("{}: {problem}", self.log.display()));
        (parts, problem)
    }
}

impl Parts {
    fn value(&self, run: &Run, metric: &Metric, weights: &[u32]) -> Option<f64> {
        let Some(operation) = &metric.operation else {
            return match metric.kind {
                Kind::Throughput => Some(run.pieces.rate(weights)),
                _ => Some(run.pieces.failed_share(weights)),
            };
        };
        let times = self.times.get(&(operation.clone(), metric.kind.is_service()))?;
        Some(match metric.kind.percentile() {
            Some(percentile) => times.percentile(percentile, weights),
            None => times.mean(weights),
        })
    }

    /// How far a metric of the run with these pieces is from that of the whole:
    /// a difference of logarithms, or of shares.
    pub(crate) fn deviation(&self, run: &Run, metric: &Metric, weights: &[u32]) -> Option<f64> {
        let whole = *self.whole.get(metric)?;
        let value = self.value(run, metric, weights)?;
        Some(if metric.kind.is_relative() { (value / whole).ln() } else { value - whole })
    }
}
