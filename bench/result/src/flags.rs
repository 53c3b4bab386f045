//! The flags of a run, derived from its numbers. This is their only
//! derivation.

use crate::document::{EndedBy, ResultDocument};
use serde::{Deserialize, Serialize};

/// Number of operations below which tail percentiles are unreliable.
const SAMPLES_MIN: u64 = 1000;

/// Share of the offered load below which a run missed it.
const TARGET_REACHED: f64 = 0.99;

/// The phase whose operations are no sample: a load has one for each record.
const LOAD: &str = "load";

/// A property of a run that a reader of its numbers must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// The warm-up ended before throughput and service time were steady.
    Unsteady,
    /// Throughput or service time changed in the measured time.
    Changed,
    /// The measured time contains stalls.
    Stalled,
    /// The store did not keep up with the offered load: the backlog and the
    /// response times grow as long as the run lasts.
    Overloaded,
    /// The client bounded the result.
    ClientBound,
    /// Operations failed or were in flight at the end, or buffered writes were not done.
    Failures,
    /// Too few operations for the tail percentiles.
    FewSamples,
    /// The run ended early: it was interrupted, or it failed.
    Interrupted,
}

impl Flag {
    /// Returns the flag's text.
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

/// Offered load and throughput of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offered {
    /// Offered load, operations/s.
    pub target: f64,
    /// Whether arrivals are random, so that their number varies.
    pub random: bool,
    /// Throughput, operations/s.
    pub throughput: f64,
    /// Measured time, s.
    pub duration_s: f64,
}

impl Offered {
    /// Returns the offered load of a run; `None` if it was not paced.
    pub fn of(document: &ResultDocument) -> Option<Offered> {
        let (pacing, overall) = (document.pacing.as_ref()?, &document.overall);
        Some(Offered {
            target: pacing.target,
            random: pacing.arrivals == "poisson",
            throughput: overall.throughput,
            duration_s: overall.duration_s,
        })
    }

    /// Whether the throughput is below the offered load by more than chance.
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

/// Returns the flags of a run.
pub fn flags(document: &ResultDocument) -> Vec<Flag> {
    let overall = &document.overall;
    let stationarity = document.stationarity.as_ref();
    let raised = [
        (Flag::Unsteady, document.steadiness.as_ref().is_some_and(|steadiness| !steadiness.steady)),
        (
            Flag::Changed,
            stationarity.is_some_and(|found| found.throughput.is_some() || found.service.is_some()),
        ),
        (Flag::Stalled, stationarity.is_some_and(|found| found.stalls.is_some())),
        (Flag::Overloaded, Offered::of(document).is_some_and(|offered| offered.is_missed())),
        (Flag::ClientBound, !document.client_bounds().is_empty()),
        (Flag::Failures, document.failed() > 0 || document.censored.in_flight > 0),
        (Flag::FewSamples, has_few_samples(document)),
        (Flag::Interrupted, overall.ended_by.known().is_some_and(|ended| ended >= EndedBy::Interrupted)),
    ];
    raised.into_iter().filter_map(|(flag, raised)| raised.then_some(flag)).collect()
}
