//! Looks at what clients do while they are measured, so that a change in that
//! time can be told. The test is `serval_statistics::stationary`'s.

use serval_measure::recorder::Recorder;
use serval_result::load::{Change, ChangeShape, Stalls, Stationarity};
use serval_statistics::{
    stationary::{self, Shape},
    steady::Interval,
};
use std::sync::Arc;

/// How often is looked at first: a run of 3 s can then be judged.
const LOOK_NS: u64 = 50_000_000;

/// What is kept at most, 1.5 MB and almost an hour. Of longer runs two looks are
/// then made one, and every second is left out from then on.
const LOOKS_MAX: usize = 1 << 16;

/// What has been seen of a measured part.
#[derive(Debug)]
pub(crate) struct Looks {
    every: u64,
    since: u64,
    before: (u64, u64),
    seen: Vec<Interval>,
    /// Whether it is over: a client operates no more, or the time has ended.
    over: bool,
}

/// What has ended (units, after the warm-up), and the sum of the service
/// times, ns.
pub(crate) fn ended(recorders: &[Arc<Recorder>]) -> (u64, u64) {
    let sums = recorders.iter().map(|recorder| recorder.ended());
    sums.fold((0, 0), |a, b| (a.0 + b.0, a.1.wrapping_add(b.1)))
}

impl Looks {
    /// From now on.
    pub(crate) fn new(recorders: &[Arc<Recorder>], now: u64) -> Looks {
        Looks { every: LOOK_NS, since: now, before: ended(recorders), seen: Vec::new(), over: false }
    }

    /// When to look next.
    pub(crate) fn next_look(&self) -> u64 {
        if self.over { u64::MAX } else { self.since.saturating_add(self.every) }
    }

    /// Looks no more.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// Looks, if it is time to.
    pub(crate) fn look(&mut self, recorders: &[Arc<Recorder>], now: u64) {
        if now < self.next_look() {
            return;
        }
        let (operations, ns) = ended(recorders);
        self.seen.push(Interval {
            length_s: (now - self.since) as f64 / 1e9,
            operations: operations - self.before.0,
            service_s: ns.wrapping_sub(self.before.1) as f64 / 1e9,
        });
        (self.since, self.before) = (now, (operations, ns));
        if self.seen.len() >= LOOKS_MAX {
            self.every = self.every.saturating_mul(2);
            self.seen = self.seen.chunks(2).map(together).collect();
        }
    }

    /// What can be said, if anything.
    pub(crate) fn judged(&self) -> Option<Stationarity> {
        let verdict = stationary::judge(&self.seen)?;
        let change = |change: stationary::Change, unit: f64| Change {
            shape: match change.shape {
                Shape::Drift => ChangeShape::Drift,
                Shape::Step => ChangeShape::Step,
                Shape::Episode => ChangeShape::Episode,
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
            throughput: verdict.throughput.map(|told| change(told, 1.0)),
            service: verdict.service.map(|told| change(told, 1e9)),
            stalls: (stalls.count > 0).then_some(Stalls {
                count: stalls.count,
                total_s: stalls.total_s,
                longest_s: stalls.longest_s,
                longest_at_s: stalls.longest_at_s,
            }),
        })
    }
}

fn together(pair: &[Interval]) -> Interval {
    pair.iter().fold(Interval::default(), |a, b| Interval {
        length_s: a.length_s + b.length_s,
        operations: a.operations + b.operations,
        service_s: a.service_s + b.service_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_looked_at_less_often_and_nothing_is_lost() {
        let mut looks = Looks::new(&[], 0);
        for n in 1..=3 * LOOKS_MAX as u64 {
            looks.look(&[], n * LOOK_NS);
        }
        assert!(looks.seen.len() < LOOKS_MAX && looks.every == 4 * LOOK_NS, "{}", looks.seen.len());
        let seen: f64 = looks.seen.iter().map(|interval| interval.length_s).sum();
        assert!((seen - looks.since as f64 / 1e9).abs() < 1e-3);
        looks.end();
        assert_eq!(looks.next_look(), u64::MAX);
    }
}
