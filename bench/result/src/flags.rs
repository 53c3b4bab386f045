//! What a reader of a run's numbers must know, by the numbers themselves: the
//! one derivation of a run's flags.

use crate::document::{EndedBy, ResultDocument};
use serde::{Deserialize, Serialize};

/// Operations below which tail percentiles say little.
const SAMPLES_MIN: u64 = 1000;

/// Share of the offered load below which a run did not reach it.
const TARGET_REACHED: f64 = 0.99;

/// The phase whose operations are not sampled: a load has as many as there are
/// records.
const LOAD: &str = "load";

/// Something about a run that a reader of its numbers must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// The warm-up was cut off before throughput and service time were steady.
    Unsteady,
    /// Throughput or service time changed while they were measured.
    Changed,
    /// For some time of the measured part nearly nothing was done.
    Stalled,
    /// The offered load was more than the store did: what waits grows, and
    /// with it response times, for as long as the run lasts.
    Overloaded,
    /// The client bounded the result.
    ClientBound,
    /// Operations failed.
    Failures,
    /// Too few operations for the tail percentiles.
    FewSamples,
    /// The run was ended before its time.
    Interrupted,
}

impl Flag {
    /// The flag in words.
    pub fn words(self) -> &'static str {
        match self {
            Flag::Unsteady => "never steady",
            Flag::Changed => "changed",
            Flag::Stalled => "stalled",
            Flag::Overloaded => "overloaded",
            Flag::ClientBound => "client bound",
            Flag::Failures => "failures",
            Flag::FewSamples => "few samples",
            Flag::Interrupted => "interrupted",
        }
    }
}

/// An offered load and what was done of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offered {
    /// Operations/s that the schedule asked for.
    pub target: f64,
    /// Whether arrivals are random: fewer than asked for may then be chance.
    pub random: bool,
    /// Operations/s that were done.
    pub throughput: f64,
    /// Measured time, s.
    pub duration_s: f64,
}

impl Offered {
    /// The offered load of a run; `None` if there was none.
    pub fn of(document: &ResultDocument) -> Option<Offered> {
        let (pacing, overall) = (document.pacing.as_ref()?, &document.overall);
        Some(Offered {
            target: pacing.target,
            random: pacing.arrivals == "poisson",
            throughput: overall.throughput,
            duration_s: overall.duration_s,
        })
    }

    /// Whether less was done than asked for, by more than chance.
    pub fn is_missed(&self) -> bool {
        let due = self.target * self.duration_s;
        // The number of random arrivals varies by the square root of its mean.
        let chance = if self.random { 4.0 * due.sqrt() } else { 0.0 };
        due - self.throughput * self.duration_s > due * (1.0 - TARGET_REACHED) + chance
    }
}

/// Whether there are too few operations for tail percentiles.
pub(crate) fn has_few_samples(document: &ResultDocument) -> bool {
    document.overall.operations < SAMPLES_MIN && document.run.phase != LOAD
}

/// The flags of a run.
pub fn flags(document: &ResultDocument) -> Vec<Flag> {
    let overall = &document.overall;
    let stationarity = document.stationarity.as_ref();
    let raised = [
        (Flag::Unsteady, document.steadiness.as_ref().is_some_and(|steadiness| !steadiness.steady)),
        (Flag::Changed, stationarity.is_some_and(|told| told.throughput.is_some() || told.service.is_some())),
        (Flag::Stalled, stationarity.is_some_and(|told| told.stalls.is_some())),
        (Flag::Overloaded, Offered::of(document).is_some_and(|offered| offered.is_missed())),
        (Flag::ClientBound, !document.client_bounds().is_empty()),
        (Flag::Failures, document.failed() > 0 || document.censored.in_flight > 0),
        (Flag::FewSamples, has_few_samples(document)),
        (Flag::Interrupted, overall.ended_by.known().is_some_and(|ended| ended >= EndedBy::Interrupted)),
    ];
    raised.into_iter().filter_map(|(flag, raised)| raised.then_some(flag)).collect()
}
