//! Messages from a client of a group to its coordinator: intervals and records, without loss.

use serde::{Deserialize, Serialize};
use serval_measure::{
    histogram::{DecodeError, Histogram, SparseHistogram},
    recorder::{Buffered, Messages, Pair, Totals},
};
use serval_model::{Metric, Status};
use serval_plan::{lag::LagNotes, session::RunLost};
use serval_result::load::ClientLoad;
use serval_runner::{EndedBy, Interval, RunRecord, Sample, clock::nanoseconds};
use std::{collections::BTreeMap, time::Duration};

/// Times by metric and status.
pub(crate) type Pairs = BTreeMap<(Metric, Status), Pair>;

/// Error of reading a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Histogram(#[from] DecodeError),
    #[error("it contains '{0}', which this Serval does not know: use one version of Serval")]
    Unknown(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct PairWire {
    metric: usize,
    status: String,
    service: SparseHistogram,
    response: SparseHistogram,
    /// Number of inserts, if these are batches.
    #[serde(default)]
    batched: u64,
}

fn to_wire(pairs: &Pairs) -> Vec<PairWire> {
    let wire = pairs.iter().map(|((metric, status), pair)| PairWire {
        metric: metric.index(),
        status: status.name().to_owned(),
        service: pair.service.to_cells(),
        response: pair.response.to_cells(),
        batched: pair.batched,
    });
    wire.collect()
}

fn status(name: &str) -> Result<Status, WireError> {
    Status::from_name(name).ok_or_else(|| WireError::Unknown(name.to_owned()))
}

fn metric(index: usize) -> Result<Metric, WireError> {
    Metric::from_index(index).ok_or_else(|| WireError::Unknown(format!("metric {index}")))
}

fn from_wire(wire: &[PairWire]) -> Result<Pairs, WireError> {
    let pairs = wire.iter().map(|pair| {
        let key = (metric(pair.metric)?, status(&pair.status)?);
        let service = Histogram::from_cells(&pair.service)?;
        let response = Histogram::from_cells(&pair.response)?;
        Ok((key, Pair { service, response, batched: pair.batched }))
    });
    pairs.collect()
}

/// Adds pairs to a sum.
pub(crate) fn add(sum: &mut Pairs, pairs: &Pairs) {
    for (key, pair) in pairs {
        sum.entry(*key).or_default().merge(pair);
    }
}

/// Returns the sum of the known values; `None` if none is known.
pub(crate) fn both(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(|a, b| a + b)
}

/// Result of a program that a client ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandWire {
    /// Description of the failure; `None` if the program succeeded.
    pub failure: Option<String>,
    /// Last lines of output.
    pub output: Vec<String>,
}

/// An interval of a client, and its progress at the end of the interval.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IntervalWire {
    start_ns: u64,
    length_ns: u64,
    warm_up: bool,
    paced: bool,
    due: Option<f64>,
    lateness: SparseHistogram,
    pairs: Vec<PairWire>,
    /// Units finished since the warm-up, and how many of them failed.
    pub(crate) units: u64,
    pub(crate) failed: u64,
    /// Number of the client as a writer, which identifies its values if its journal is lost.
    #[serde(default)]
    pub(crate) writer: Option<u64>,
}

impl IntervalWire {
    pub(crate) fn of(interval: &Interval, (units, failed): (u64, u64), writer: Option<u64>) -> IntervalWire {
        IntervalWire {
            start_ns: nanoseconds(interval.start),
            length_ns: nanoseconds(interval.length),
            warm_up: interval.warm_up,
            paced: interval.paced,
            due: interval.due,
            lateness: interval.lateness.to_cells(),
            pairs: to_wire(&interval.pairs),
            units,
            failed,
            writer,
        }
    }

    pub(crate) fn interval(&self) -> Result<Interval, WireError> {
        Ok(Interval {
            start: Duration::from_nanos(self.start_ns),
            length: Duration::from_nanos(self.length_ns),
            warm_up: self.warm_up,
            pairs: from_wire(&self.pairs)?,
            paced: self.paced,
            due: self.due,
            lateness: Histogram::from_cells(&self.lateness)?,
        })
    }
}

/// Samples of a client's progress in its warm-up.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SamplesWire {
    /// Instant from the start, operations, sum of service times: ns, as in [`Sample`].
    looks: Vec<(u64, u64, u64)>,
}

impl SamplesWire {
    pub(crate) fn of(samples: &[Sample]) -> SamplesWire {
        SamplesWire { looks: samples.iter().map(|s| (s.at, s.operations, s.service_ns)).collect() }
    }

    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> {
        self.looks.iter().map(|&(at, operations, service_ns)| Sample { at, operations, service_ns })
    }
}

/// Result of a run of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordWire {
    pub(crate) duration_ns: u64,
    pub(crate) warm_up_ns: u64,
    pub(crate) ended_by: EndedBy,
    warm_up: Vec<PairWire>,
    measured: Vec<PairWire>,
    lateness: SparseHistogram,
    overslept: u64,
    pub(crate) units: u64,
    pub(crate) units_failed: u64,
    /// Buffered writes: sent, lost, never sent.
    buffered: (u64, u64, u64),
    paced: bool,
    messages: Vec<(usize, String, String, u64)>,
    in_flight: SparseHistogram,
    not_started: SparseHistogram,
    pub(crate) cpu_ns: u64,
    pub(crate) client_time_ns: u64,
    pub(crate) clients: usize,
    pub(crate) execution: String,
    /// Reason if the client could not continue.
    pub(crate) lost: Option<String>,
    pub(crate) due: Option<f64>,
    pub(crate) slack_ns: u64,
    pub(crate) load: Option<ClientLoad>,
    /// Warnings of its workload.
    pub(crate) warnings: Vec<String>,
    /// Journal of producers and consumers.
    #[serde(default)]
    pub(crate) lag: Option<LagNotes>,
    /// Records whose insert may still be in flight, by
    /// [`CoreWorkload::unended_inserts`](serval_workload::core::CoreWorkload::unended_inserts).
    #[serde(default)]
    pub(crate) unended: Option<(u64, u64)>,
}

impl RecordWire {
    pub(crate) fn of(record: &RunRecord, lost: Option<&RunLost>) -> RecordWire {
        let messages = record.messages.iter().map(|((metric, status, words), count)| {
            (metric.index(), status.name().to_owned(), words.to_string(), *count)
        });
        RecordWire {
            duration_ns: nanoseconds(record.duration),
            warm_up_ns: nanoseconds(record.warm_up),
            ended_by: record.ended_by,
            warm_up: to_wire(&record.totals.warm_up),
            measured: to_wire(&record.totals.measured),
            lateness: record.totals.lateness.to_cells(),
            overslept: record.totals.overslept,
            units: record.totals.units,
            units_failed: record.totals.units_failed,
            buffered: {
                let Buffered { sent, lost, unsent } = record.totals.buffered;
                (sent, lost, unsent)
            },
            paced: record.totals.paced,
            messages: messages.collect(),
            in_flight: record.in_flight.to_cells(),
            not_started: record.not_started.to_cells(),
            cpu_ns: nanoseconds(record.cpu),
            client_time_ns: nanoseconds(record.client_time),
            clients: record.clients,
            execution: record.execution.to_string(),
            lost: lost.map(ToString::to_string),
            due: record.due,
            slack_ns: nanoseconds(record.slack),
            load: None,
            warnings: Vec::new(),
            lag: None,
            unended: None,
        }
    }

    /// Returns everything recorded.
    pub(crate) fn totals(&self) -> Result<Totals, WireError> {
        Ok(Totals {
            warm_up: from_wire(&self.warm_up)?,
            measured: from_wire(&self.measured)?,
            lateness: Histogram::from_cells(&self.lateness)?,
            overslept: self.overslept,
            units: self.units,
            units_failed: self.units_failed,
            buffered: {
                let (sent, lost, unsent) = self.buffered;
                Buffered { sent, lost, unsent }
            },
            paced: self.paced,
        })
    }

    /// Returns the ages of operations in flight at the end, and of operations due and not
    /// started.
    pub(crate) fn unfinished(&self) -> Result<(Histogram, Histogram), WireError> {
        Ok((Histogram::from_cells(&self.in_flight)?, Histogram::from_cells(&self.not_started)?))
    }

    /// Returns the store's messages.
    pub(crate) fn messages(&self) -> Result<Messages, WireError> {
        let one = |(index, name, words, count): &(usize, String, String, u64)| {
            Ok(((metric(*index)?, status(name)?, words.as_str().into()), *count))
        };
        self.messages.iter().map(one).collect()
    }
}
