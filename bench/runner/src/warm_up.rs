//! Warming up until steady: looks at what clients do, and says when they may
//! be measured. The test is `serval_statistics::steady`'s.

use crate::run::Steady;
use serval_result::load::Steadiness;
use serval_statistics::steady::{Interval, Terms, Verdict, judge};
use std::time::Duration;

/// How often is looked. The window then has its sixteen parts after 1.6 s, and
/// the sums of a thousand clients cost nothing yet.
const LOOK_NS: u64 = 50_000_000;

/// The longest time over which a change is taken to go on at its pace. Caches
/// fill ever more slowly: beyond that it says more than is known.
const HORIZON_MAX: Duration = Duration::from_secs(20);

/// Time to be measured when nothing says how long that will be.
const HORIZON: Duration = Duration::from_secs(10);

/// What has been seen of a warm-up.
#[derive(Debug)]
pub struct WarmUp {
    steady: Steady,
    is_paced: bool,
    time: Option<Duration>,
    units: Option<u64>,
    start: u64,
    since: u64,
    before: (u64, u64),
    seen: Vec<Interval>,
    verdict: Verdict,
}

impl WarmUp {
    /// A warm-up from `start` on, ns, before so much time or so many units.
    pub fn new(
        steady: Steady,
        is_paced: bool,
        time: Option<Duration>,
        units: Option<u64>,
        start: u64,
    ) -> Self {
        let (before, seen, verdict) = Default::default();
        WarmUp { steady, is_paced, time, units, start, since: start, before, seen, verdict }
    }

    /// When to look next.
    pub(crate) fn next_look(&self) -> u64 {
        self.since + LOOK_NS
    }

    /// Whether the run was found steady.
    pub fn is_steady(&self) -> bool {
        self.verdict.steady
    }

    /// Somebody else looks, and says whether it is steady.
    pub(crate) fn told(&mut self, now: u64, steady: bool) {
        self.since = now;
        self.verdict.steady = steady;
    }

    /// Looks, at `now`, at how many operations have ended and at the sum of their service times, ns. Returns
    /// whether the run is steady, which it is not said to be before it `may` be.
    pub fn look(&mut self, now: u64, operations: u64, ns: u64, may: bool) -> bool {
        self.seen.push(Interval {
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
        self.verdict = judge(&self.seen, &terms);
        self.verdict.steady &= may;
        self.verdict.steady
    }

    /// The time to be measured, at a rate of so many operations/s.
    fn horizon(&self, rate: f64) -> Duration {
        let by_units = self.units.map(|units| {
            Duration::from_secs_f64((units as f64 / rate.max(1.0)).min(HORIZON_MAX.as_secs_f64()))
        });
        self.time.into_iter().chain(by_units).min().unwrap_or(HORIZON).min(HORIZON_MAX)
    }

    /// How it has ended.
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
    fn the_horizon_is_what_will_be_measured() {
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
