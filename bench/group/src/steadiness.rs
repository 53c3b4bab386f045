//! Whether a group is steady (`docs/warm-up.md`): the sum of the samples that its clients send.

use serval_result::load::Steadiness;
use serval_runner::{RunOptions, Sample, WarmUp, clock::nanoseconds};
use std::collections::VecDeque;

/// Interval of the sums, ns. Each client takes a sample every 50 ms at instants of its own;
/// between two samples its rate is taken as constant.
const STEP_NS: u64 = 100_000_000;

/// Most samples of a client that wait for those of others: almost an hour.
const WAITING_MAX: usize = 1 << 16;

/// The samples of a client.
#[derive(Debug, Default)]
struct ClientSamples {
    /// The last sample before the sum, and later ones.
    before: Sample,
    later: VecDeque<Sample>,
    /// What is in the sum.
    operations: f64,
    service_ns: f64,
    gone: bool,
}

impl ClientSamples {
    /// Counts its work up to an instant; false if its samples do not reach it yet.
    fn count_to(&mut self, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            let Some(next) = self.later.front().copied() else { return self.gone };
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
        self.gone || self.later.back().is_some_and(|last| last.at >= to)
    }
}

/// The samples of all clients, and whether their sum is steady.
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
    /// Creates it for a run that warms up until steady; `None` for other runs.
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

    /// Takes samples of a client. Samples out of order, or after the longest warm-up, are left out.
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

    /// A client sends no more samples.
    pub(crate) fn gone(&mut self, client: usize) {
        if let Some(client) = self.clients.get_mut(client) {
            client.gone = true;
        }
    }

    /// Adds the samples up. Returns whether the sum has just become steady; `lead` is the time until
    /// the measured part can begin, ns.
    pub(crate) fn update(&mut self, lead: u64) -> bool {
        let some = self.clients.iter().any(|client| !client.gone);
        while some && !self.warm_up.is_steady() {
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

    /// The result of the warm-up.
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

    /// A client that looks every `every` ms and does `rate(s)` operations/s, each in 1 ms.
    fn looks(every: u64, seconds: u64, rate: impl Fn(f64) -> f64) -> Vec<Sample> {
        let mut done = 0.0;
        let looks = (1..=seconds * 1000 / every).map(|number| {
            let at_ms = number * every;
            done += rate(at_ms as f64 / 1000.0) * every as f64 / 1000.0;
            Sample { at: at_ms * 1_000_000, operations: done as u64, service_ns: done as u64 * 1_000_000 }
        });
        looks.collect()
    }

    #[test]
    fn the_sum_counts_and_not_what_one_does() {
        // One falls as the other rises: neither is steady, and together they are.
        let mut both = steadily(2);
        both.take(0, looks(50, 20, |s| 1000.0 + 100.0 * s));
        both.take(1, looks(70, 20, |s| 4000.0 - 100.0 * s));
        assert!(both.update(0));
        assert!(both.to < 10_000_000_000, "{}", both.to);
        assert!(both.ended().steady && both.ended().throughput_drift.abs() < 0.05);
        let mut one = steadily(1);
        one.take(0, looks(50, 20, |s| 1000.0 + 100.0 * s));
        assert!(!one.update(0));
    }

    #[test]
    fn nobody_is_judged_before_all_have_told_and_the_lost_are_not_waited_for() {
        let mut both = steadily(2);
        both.take(0, looks(50, 20, |_| 1000.0));
        assert!(!both.update(0));
        assert_eq!(both.to, 0);
        both.gone(1);
        assert!(both.update(0));
    }

    #[test]
    fn operations_are_counted_once_wherever_looks_fall() {
        let mut both = steadily(2);
        both.take(0, looks(50, 3, |_| 2000.0));
        both.take(1, looks(70, 3, |_| 3000.0));
        both.update(0);
        let counted: f64 = both.clients.iter().map(|client| client.operations).sum();
        let expected = 5000.0 * both.to as f64 / 1e9;
        assert!((counted - expected).abs() < 5.0, "{counted} of {expected}");
    }

    #[test]
    fn looks_out_of_order_are_left_out() {
        let mut one = steadily(1);
        let look = |at, operations| Sample { at, operations, service_ns: 0 };
        one.take(
            0,
            [
                look(5, 5),
                look(5, 6),
                look(3, 9),
                look(9, 2),
                look(u64::MAX, 7),
                look(60_000_000_000, 7),
                look(1, 8),
            ],
        );
        assert_eq!(one.clients[0].later, [look(5, 5), look(60_000_000_000, 7)]);
    }
}
