//! Warm-up until steady state: samples throughput and service time, and decides when the measured
//! part begins. The test is in `serval_statistics::steady`.

use crate::options::Steady;
use serval_result::load::Steadiness;
use serval_statistics::steady::{SteadinessInterval, SteadinessVerdict, Terms, judge};
use std::time::Duration;

/// Sampling interval, ns. The window then has its sixteen parts after 1.6 s, and the sums of a
/// thousand clients cost nothing yet.
const SAMPLE_NS: u64 = 50_000_000;

/// Longest time over which a trend is extrapolated. Caches fill ever more slowly, so a longer
/// extrapolation claims more than is known.
const HORIZON_MAX: Duration = Duration::from_secs(20);

/// Assumed length of the measured part if nothing bounds it.
const HORIZON: Duration = Duration::from_secs(10);

/// Samples of a warm-up, and the verdict.
#[derive(Debug)]
pub struct WarmUp {
    steady: Steady,
    is_paced: bool,
    time: Option<Duration>,
    units: Option<u64>,
    start: u64,
    since: u64,
    before: (u64, u64),
    samples: Vec<SteadinessInterval>,
    verdict: SteadinessVerdict,
}

impl WarmUp {
    /// Starts a warm-up at `start`, ns. `time` and `units` bound the measured part.
    pub fn new(
        steady: Steady,
        is_paced: bool,
        time: Option<Duration>,
        units: Option<u64>,
        start: u64,
    ) -> Self {
        let (before, samples, verdict) = Default::default();
        WarmUp { steady, is_paced, time, units, start, since: start, before, samples, verdict }
    }

    /// Returns the instant of the next sample.
    pub(crate) fn next_sample(&self) -> u64 {
        self.since + SAMPLE_NS
    }

    /// Returns whether the run is in steady state.
    pub fn is_steady(&self) -> bool {
        self.verdict.steady
    }

    /// Takes the verdict of another process.
    pub(crate) fn set_verdict(&mut self, now: u64, steady: bool) {
        self.since = now;
        self.verdict.steady = steady;
    }

    /// Takes a sample at `now`: the number of operations that have ended, and the sum of their
    /// service times, ns. Returns whether the run is in steady state; `false` unless it `may` be.
    pub fn sample(&mut self, now: u64, operations: u64, ns: u64, may: bool) -> bool {
        self.samples.push(SteadinessInterval {
            length_s: (now - self.since) as f64 / 1e9,
            operations: operations - self.before.0,
            service_s: ns.wrapping_sub(self.before.1) as f64 / 1e9,
        });
        (self.since, self.before) = (now, (operations, ns));
        let rate = operations as f64 / ((now - self.start) as f64 / 1e9);
        let terms = Terms {
            horizon_s: self.horizon(rate).as_secs_f64(),
            tolerance: self.steady.tolerance,
            patience: ((now - self.start) as f64 / self.steady.max.as_nanos().max(1) as f64).min(1.0),
            is_paced: self.is_paced,
        };
        self.verdict = judge(&self.samples, &terms);
        self.verdict.steady &= may;
        self.verdict.steady
    }

    /// Returns the expected length of the measured part at this rate, operations/s.
    fn horizon(&self, rate: f64) -> Duration {
        let by_units = self.units.map(|units| {
            Duration::from_secs_f64((units as f64 / rate.max(1.0)).min(HORIZON_MAX.as_secs_f64()))
        });
        self.time.into_iter().chain(by_units).min().unwrap_or(HORIZON).min(HORIZON_MAX)
    }

    /// Returns how the warm-up ended.
    pub fn ended(&self) -> Steadiness {
        Steadiness {
            steady: self.verdict.steady,
            max_s: self.steady.max.as_secs_f64(),
            window_s: self.verdict.window_s,
            throughput_drift: self.verdict.throughput.change,
            service_drift: self.verdict.service.change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_the_expected_measured_time() {
        let second = Duration::from_secs(1);
        for (time, units, expected) in [
            (None, None, HORIZON),
            (Some(3 * second), None, 3 * second),
            (Some(3600 * second), None, HORIZON_MAX),
            (None, Some(500), 5 * second),
            (Some(3 * second), Some(500), 3 * second),
            (None, Some(u64::MAX), HORIZON_MAX),
        ] {
            let steady = Steady { max: 60 * second, tolerance: 0.05 };
            let horizon = WarmUp::new(steady, false, time, units, 0).horizon(100.0);
            assert_eq!(horizon, expected, "{time:?} {units:?}");
        }
    }
}
