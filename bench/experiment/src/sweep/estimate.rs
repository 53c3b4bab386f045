//! Estimates of the time and the written bytes of an experiment.

use super::curves::{Experiment, REPEATED_RATES, Renewal};
use crate::file::{CurveObjective, StatePolicy};
use std::time::Duration;

/// Typical number of runs of a search for the saturation: 1 to 32 clients, and two more that gain nothing.
const SEARCH_RUNS: f64 = 8.0;

/// Number of runs of a bisection.
const HALVINGS: f64 = 5.0;

/// Warm-up until steady of a store that is steady at once.
const STEADY_AT_ONCE: Duration = Duration::from_secs(2);

/// Approximate bytes of a run's folder, and of each measured second in it.
const RESULT_BYTES: f64 = 60_000.0;
const SECOND_BYTES: f64 = 6_000.0;

/// Estimate of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Approximate number of runs of searches.
    pub searches: u64,
    /// Number of runs of points.
    pub runs: u64,
    /// Time of all runs with warm-up if every run is steady at once, without loads.
    pub least: Duration,
    /// Time of all runs if every warm-up takes its longest, without loads.
    pub most: Duration,
    /// Number of records of all loads.
    pub records: u64,
    /// Approximate size of their values, bytes.
    pub bytes: f64,
    /// Number of loads.
    pub loads: u64,
    /// Approximate size of the results, bytes.
    pub result_bytes: f64,
}

impl Experiment {
    /// Estimates the experiment's time and bytes.
    pub fn estimate(&self) -> Estimate {
        let (run, curves) = (&self.file.run, self.curves.len() as f64);
        let (per_curve, halvings, needs) = match &self.file.question {
            CurveObjective::Sweep(points) => {
                (points.len() as f64, 0.0, points.iter().any(|point| point.needs_saturation()))
            }
            CurveObjective::Max(_) => (REPEATED_RATES as f64, HALVINGS, true),
        };
        let saturation = match (run.clients, needs) {
            (None, _) => SEARCH_RUNS,
            (Some(_), true) => 1.0,
            (Some(_), false) => 0.0,
        };
        let searches = curves * (saturation + halvings);
        let runs = curves * per_curve * run.repeats as f64;
        let time = run.time.as_secs_f64();
        let measured = runs * time + curves * (saturation * time / 3.0 + halvings * time);
        let warm = |each: Duration| each.as_secs_f64() * (searches + runs);
        let longest = if run.warm_up_max.is_zero() { run.warm_up } else { run.warm_up_max };
        let shortest = if run.warm_up_max.is_zero() {
            run.warm_up
        } else {
            run.warm_up.max(STEADY_AT_ONCE).min(longest)
        };
        let loads = |renewal: Renewal, uses: f64| match (run.load, run.state, renewal) {
            (false, _, _) => 0.0,
            (_, StatePolicy::Continue | StatePolicy::Snapshot, _) => 1.0,
            (_, StatePolicy::Reload, _) => 1.0 + uses * per_curve * run.repeats as f64,
        };
        let (mut all_loads, mut records, mut bytes) = (0.0, 0.0, 0.0);
        for (index, set) in self.datasets.iter().enumerate() {
            let uses = self.curves.iter().filter(|curve| curve.dataset == index).count() as f64;
            let loads = loads(set.renewal, uses);
            all_loads += loads;
            records += loads * set.records as f64;
            bytes += loads * set.bytes;
        }
        Estimate {
            searches: searches as u64,
            runs: runs as u64,
            least: seconds(measured + warm(shortest)),
            most: seconds(measured + warm(longest)),
            records: records as u64,
            bytes,
            loads: all_loads as u64,
            result_bytes: (searches + runs) * (RESULT_BYTES + SECOND_BYTES * time),
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    // The estimate is at most ten years, because a Duration cannot hold every f64.
    Duration::from_secs_f64(seconds.min(3.2e8))
}
