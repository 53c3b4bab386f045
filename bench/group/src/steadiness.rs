//! Detection of the steady state of a group (`docs/warm-up.md`), from the sum of its clients' samples.

use serval_result::load::Steadiness;
use serval_runner::{RunOptions, Sample, WarmUp, clock::nanoseconds};
use std::collections::VecDeque;

/// Interval of the sums, ns. Each client takes a sample every 50 ms at instants of its own; between two samples its
/// rate is assumed to be constant.
const STEP_NS: u64 = 100_000_000;

/// Most samples of a client that wait for those of others: almost an hour.
const WAITING_MAX: usize = 1 << 16;

/// The samples of a client.
#[derive(Debug, Default)]
struct ClientSamples {
    /// The last sample that is wholly in the sum, and later ones.
    before: Sample,
    later: VecDeque<Sample>,
    /// Contribution of the client to the sum.
    operations: f64,
    service_ns: f64,
    /// Whether the client has ended or is lost.
    ended: bool,
}

impl ClientSamples {
    /// Counts its work up to an instant; false if its samples do not reach that instant yet.
    fn count_to(&mut self, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            let Some(next) = self.later.front().copied() else { return self.ended };
            let until = to.min(next.at);
            let length = next.at.saturating_sub(self.before.at).max(1);
            let share = until.saturating_sub(at.max(self.before.at)) as f64 / length as f64;
            self.operations += share * next.operations.saturating_sub(self.before.operations) as f64;
            self.service_ns += share * next.service_ns.wrapping_sub(self.before.service_ns) as f64;
            if next.at <= to {
                self.before = next;
                self.later.pop_front();
            }
            at = until.max(at);
        }
        true
    }

    fn has_reported(&self, to: u64) -> bool {
        self.ended || self.later.back().is_some_and(|last| last.at >= to)
    }
}

/// Steady-state detector of a group.
#[derive(Debug)]
pub(crate) struct GroupSteadiness {
    warm_up: WarmUp,
    /// The shortest warm-up, ns.
    least: u64,
    /// The longest warm-up, ns; later samples are ignored.
    most: u64,
    clients: Vec<ClientSamples>,
    /// End of the sum, ns from the start.
    to: u64,
}

impl GroupSteadiness {
    /// Creates a detector for a run that warms up until steady; `None` for other runs.
    pub(crate) fn new(options: &RunOptions, clients: usize) -> Option<GroupSteadiness> {
        let steady = options.steady?;
        Some(GroupSteadiness {
            warm_up: WarmUp::new(steady, options.rate.is_some(), options.time, options.units, 0),
            least: nanoseconds(options.warm_up),
            most: nanoseconds(options.warm_up_max()),
            clients: (0..clients).map(|_| ClientSamples::default()).collect(),
            to: 0,
        })
    }

    /// Adds samples of a client. Ignores samples out of order or after the longest warm-up.
    pub(crate) fn take(&mut self, client: usize, samples: impl IntoIterator<Item = Sample>) {
        let Some(client) = self.clients.get_mut(client) else { return };
        for sample in samples {
            let last = client.later.back().unwrap_or(&client.before);
            if sample.at <= self.most
                && sample.at > last.at
                && sample.operations >= last.operations
                && client.later.len() < WAITING_MAX
            {
                client.later.push_back(sample);
            }
        }
    }

    /// Marks a client that has ended or is lost: it sends no more samples.
    pub(crate) fn set_ended(&mut self, client: usize) {
        if let Some(client) = self.clients.get_mut(client) {
            client.ended = true;
        }
    }

    /// Extends the sum. Returns whether it has just become steady. `lead` is the time until the measured part can
    /// begin, ns.
    pub(crate) fn update(&mut self, lead: u64) -> bool {
        let any_left = self.clients.iter().any(|client| !client.ended);
        while any_left && !self.warm_up.is_steady() {
            let to = self.to + STEP_NS;
            if !self.clients.iter().all(|client| client.has_reported(to)) {
                return false;
            }
            for client in &mut self.clients {
                client.count_to(self.to, to);
            }
            self.to = to;
            let sum = |count: fn(&ClientSamples) -> f64| self.clients.iter().map(count).sum::<f64>() as u64;
            let (operations, service_ns) = (sum(|client| client.operations), sum(|client| client.service_ns));
            if self.warm_up.sample(to, operations, service_ns, to.saturating_add(lead) >= self.least) {
                return true;
            }
        }
        false
    }

    /// Returns the result of the warm-up.
    pub(crate) fn ended(&self) -> Steadiness {
        self.warm_up.ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_runner::Steady;
    use std::time::Duration;

    fn steadily(clients: usize) -> GroupSteadiness {
        let options = RunOptions {
            steady: Some(Steady { max: Duration::from_secs(60), tolerance: Steady::TOLERANCE }),
            time: Some(Duration::from_secs(5)),
            ..RunOptions::default()
        };
        GroupSteadiness::new(&options, clients).unwrap()
    }

    /// Returns the samples of a client that takes one every `every` ms and does `rate(s)`
    /// operations/s of 1 ms each.
    fn samples(every: u64, seconds: u64, rate: impl Fn(f64) -> f64) -> Vec<Sample> {
        let mut done = 0.0;
        let samples = (1..=seconds * 1000 / every).map(|number| {
            let at_ms = number * every;
            done += rate(at_ms as f64 / 1000.0) * every as f64 / 1000.0;
            Sample { at: at_ms * 1_000_000, operations: done as u64, service_ns: done as u64 * 1_000_000 }
        });
        samples.collect()
    }

    #[test]
    fn steadiness_is_judged_by_the_sum_of_the_clients() {
        // One rate falls as the other rises: neither is steady, and their sum is.
        let mut both = steadily(2);
        both.take(0, samples(50, 20, |s| 1000.0 + 100.0 * s));
        both.take(1, samples(70, 20, |s| 4000.0 - 100.0 * s));
        assert!(both.update(0));
        assert!(both.to < 10_000_000_000, "{}", both.to);
        assert!(both.ended().steady && both.ended().throughput_drift.abs() < 0.05);
        let mut one = steadily(1);
        one.take(0, samples(50, 20, |s| 1000.0 + 100.0 * s));
        assert!(!one.update(0));
    }

    #[test]
    fn steadiness_is_judged_after_reports_of_all_clients_except_lost_ones() {
        let mut both = steadily(2);
        both.take(0, samples(50, 20, |_| 1000.0));
        assert!(!both.update(0));
        assert_eq!(both.to, 0);
        both.set_ended(1);
        assert!(both.update(0));
    }

    #[test]
    fn operations_count_once_whatever_the_times_of_samples() {
        let mut both = steadily(2);
        both.take(0, samples(50, 3, |_| 2000.0));
        both.take(1, samples(70, 3, |_| 3000.0));
        both.update(0);
        let counted: f64 = both.clients.iter().map(|client| client.operations).sum();
        let expected = 5000.0 * both.to as f64 / 1e9;
        assert!((counted - expected).abs() < 5.0, "{counted} of {expected}");
    }

    #[test]
    fn samples_out_of_order_are_ignored() {
        let mut one = steadily(1);
        let sample = |at, operations| Sample { at, operations, service_ns: 0 };
        one.take(
            0,
            [
                sample(5, 5),
                sample(5, 6),
                sample(3, 9),
                sample(9, 2),
                sample(u64::MAX, 7),
                sample(60_000_000_000, 7),
                sample(1, 8),
            ],
        );
        assert_eq!(one.clients[0].later, [sample(5, 5), sample(60_000_000_000, 7)]);
    }
}
