//! Samples throughput and service time during the measured part, to detect a change. The test is
//! in `serval_statistics::stationary`.

use serval_measure::recorder::Recorder;
use serval_result::load::{Change, ChangeShape, Stalls, Stationarity};
use serval_statistics::{
    stationary::{self, ChangePattern},
    steady::SteadinessInterval,
};
use std::sync::Arc;

/// First sampling interval, ns: enough samples to judge a run of 3 s.
const SAMPLE_NS: u64 = 50_000_000;

/// Samples kept at most: 1.5 MB, almost an hour. Beyond this length, adjacent samples are merged
/// and the interval doubles.
const SAMPLES_MAX: usize = 1 << 16;

/// Samples of the measured part.
#[derive(Debug)]
pub(crate) struct StationarityMonitor {
    every: u64,
    since: u64,
    before: (u64, u64),
    samples: Vec<SteadinessInterval>,
    /// Whether sampling has ended: a client is done, or the time is over.
    over: bool,
}

/// Returns the number of operations that have ended (units, after the warm-up), and the sum of
/// their service times, ns.
pub(crate) fn ended(recorders: &[Arc<Recorder>]) -> (u64, u64) {
    let sums = recorders.iter().map(|recorder| recorder.ended());
    sums.fold((0, 0), |a, b| (a.0 + b.0, a.1.wrapping_add(b.1)))
}

impl StationarityMonitor {
    /// Starts to sample.
    pub(crate) fn new(recorders: &[Arc<Recorder>], now: u64) -> StationarityMonitor {
        StationarityMonitor {
            every: SAMPLE_NS,
            since: now,
            before: ended(recorders),
            samples: Vec::new(),
            over: false,
        }
    }

    /// Returns the instant of the next sample.
    pub(crate) fn next_sample(&self) -> u64 {
        if self.over { u64::MAX } else { self.since.saturating_add(self.every) }
    }

    /// Ends the sampling.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// Takes a sample if it is due.
    pub(crate) fn sample(&mut self, recorders: &[Arc<Recorder>], now: u64) {
        if now < self.next_sample() {
            return;
        }
        let (operations, ns) = ended(recorders);
        self.samples.push(SteadinessInterval {
            length_s: (now - self.since) as f64 / 1e9,
            operations: operations - self.before.0,
            service_s: ns.wrapping_sub(self.before.1) as f64 / 1e9,
        });
        (self.since, self.before) = (now, (operations, ns));
        if self.samples.len() >= SAMPLES_MAX {
            self.every = self.every.saturating_mul(2);
            self.samples = self.samples.chunks(2).map(together).collect();
        }
    }

    /// Returns the verdict; `None` if there are too few samples.
    pub(crate) fn judged(&self) -> Option<Stationarity> {
        let verdict = stationary::judge(&self.samples)?;
        let change = |change: stationary::QuantityChange, unit: f64| Change {
            shape: match change.shape {
                ChangePattern::Drift => ChangeShape::Drift,
                ChangePattern::Step => ChangeShape::Step,
                ChangePattern::Episode => ChangeShape::Episode,
            },
            from_s: change.from_s,
            to_s: change.to_s,
            before: change.before * unit,
            after: change.after * unit,
            change: change.share(),
        };
        let stalls = verdict.stalls;
        Some(Stationarity {
            judged_s: verdict.judged_s,
            throughput: verdict.throughput.map(|found| change(found, 1.0)),
            service: verdict.service.map(|found| change(found, 1e9)),
            stalls: (stalls.count > 0).then_some(Stalls {
                count: stalls.count,
                total_s: stalls.total_s,
                longest_s: stalls.longest_s,
                longest_at_s: stalls.longest_at_s,
            }),
        })
    }
}

fn together(pair: &[SteadinessInterval]) -> SteadinessInterval {
    pair.iter().fold(SteadinessInterval::default(), |a, b| SteadinessInterval {
        length_s: a.length_s + b.length_s,
        operations: a.operations + b.operations,
        service_s: a.service_s + b.service_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_sampled_less_often_without_loss() {
        let mut monitor = StationarityMonitor::new(&[], 0);
        for n in 1..=3 * SAMPLES_MAX as u64 {
            monitor.sample(&[], n * SAMPLE_NS);
        }
        assert!(
            monitor.samples.len() < SAMPLES_MAX && monitor.every == 4 * SAMPLE_NS,
            "{}",
            monitor.samples.len()
        );
        let total: f64 = monitor.samples.iter().map(|interval| interval.length_s).sum();
        assert!((total - monitor.since as f64 / 1e9).abs() < 1e-3);
        monitor.end();
        assert_eq!(monitor.next_sample(), u64::MAX);
    }
}
