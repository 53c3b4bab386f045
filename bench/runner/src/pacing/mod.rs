//! Intended starts: when each operation is due, and which client takes it. The law is in
//! `docs/pacing.md`.

mod poisson;
pub mod rate;

use poisson::PoissonArrivals;
use rate::RateSchedule;
use serval_model::Share;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How intended starts are spaced and divided among clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// An even schedule for each client, as in YCSB.
    Client,
    /// One even schedule; the next idle client takes the next start.
    Uniform,
    /// One schedule with exponential gaps; the next idle client takes the next start.
    Poisson,
}

impl Arrivals {
    /// Returns the name in properties and results.
    pub fn name(self) -> &'static str {
        match self {
            Arrivals::Client => "client",
            Arrivals::Uniform => "uniform",
            Arrivals::Poisson => "poisson",
        }
    }
}

/// A counter on a cache line of its own, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

#[derive(Debug)]
enum StartSource {
    /// Number of starts that each client has taken.
    Client(Box<[Padded]>),
    /// Number of starts taken.
    Uniform(AtomicU64),
    /// Random arrivals.
    Poisson(Box<PoissonArrivals>),
}

/// The intended starts of a run, shared by its clients. Instants are ns since the start of the
/// schedule.
#[derive(Debug)]
pub struct Schedule {
    rate: RateSchedule,
    clients: u64,
    source: StartSource,
    share: Share,
}

/// Starts that remain at the end and are listed one by one, for each client or for the shared
/// schedule. Of more, a sample is listed.
const SAMPLES: u64 = 1_000_000;

impl Schedule {
    /// Creates the schedule of a run. Of several processes, each has a `share` of one schedule:
    /// they take even arrivals in turn, and each draws its random arrivals.
    pub fn new(rate: RateSchedule, arrivals: Arrivals, clients: usize, share: Share, seed: u64) -> Self {
        let source = match arrivals {
            Arrivals::Client => StartSource::Client((0..clients).map(|_| Padded::default()).collect()),
            Arrivals::Uniform => StartSource::Uniform(AtomicU64::new(0)),
            Arrivals::Poisson => StartSource::Poisson(Box::new(PoissonArrivals::new(seed))),
        };
        Schedule { rate, clients: clients as u64, source, share }
    }

    /// Takes the next intended start for a client. Returns `None` if the schedule is over.
    pub fn take(&self, client: usize) -> Option<u64> {
        let due = match &self.source {
            StartSource::Client(taken) => {
                let taken = &taken[client].0;
                let k = taken.load(Relaxed);
                taken.store(k + 1, Relaxed);
                (k * self.clients + client as u64) as f64
            }
            StartSource::Uniform(taken) => taken.fetch_add(1, Relaxed) as f64,
            StartSource::Poisson(arrivals) => arrivals.take(),
        };
        self.start_of(due)
    }

    /// Returns the instant of this process's operation number `own`, ns.
    fn start_of(&self, own: f64) -> Option<u64> {
        let due = own * self.share.count() as f64 + self.phase();
        self.rate.time_of(due).map(|seconds| (seconds * 1e9) as u64)
    }

    /// Returns the offset of its operations from those of the first process, in operations of the
    /// whole group.
    fn phase(&self) -> f64 {
        if let StartSource::Poisson(_) = self.source { 0.0 } else { self.share.index() as f64 }
    }

    /// Returns how many of its operations are due within `span` ns after the start.
    fn own_due(&self, span: u64) -> f64 {
        self.share.of_rate(self.rate.due(span as f64 / 1e9) - self.phase()).max(0.0)
    }

    /// Takes all remaining starts before `end` (ns). Calls `each` with an intended start and the
    /// number of operations that it stands for: above a million for a client, an evenly spaced
    /// sample stands for all.
    pub fn take_rest(&self, end: u64, mut each: impl FnMut(u64, u64)) {
        let due_by_end = self.own_due(end);
        // For each part, the first k that is not taken, and the step to the next.
        let parts: Vec<(u64, u64)> = match &self.source {
            StartSource::Client(taken) => taken
                .iter()
                .enumerate()
                .map(|(i, taken)| (taken.0.load(Relaxed) * self.clients + i as u64, self.clients))
                .collect(),
            StartSource::Uniform(taken) => vec![(taken.load(Relaxed), 1)],
            StartSource::Poisson(arrivals) => {
                let mut due = arrivals.take();
                let few = due_by_end - due < SAMPLES as f64;
                loop {
                    let Some(start) = self.start_of(due).filter(|start| *start < end) else { return };
                    each(start, 1);
                    if !few {
                        break;
                    }
                    due = arrivals.take();
                }
                // The number of so many random arrivals varies by a thousandth at most: an even
                // sample stands for them.
                vec![(due.ceil() as u64, 1)]
            }
        };
        for (first, step) in parts {
            let left = ((due_by_end - first as f64) / step as f64).ceil().max(0.0) as u64;
            let stride = left.div_ceil(SAMPLES).max(1);
            let mut done = 0;
            while done < left {
                let stands_for = stride.min(left - done);
                let Some(start) = self.start_of((first + done * step) as f64) else { break };
                if start >= end {
                    break;
                }
                each(start, stands_for);
                done += stands_for;
            }
        }
    }

    /// Returns how many operations are due from `from` to `to`, ns since the start.
    pub fn due_between(&self, from: u64, to: u64) -> f64 {
        self.share.of_rate(self.rate.due(to as f64 / 1e9) - self.rate.due(from as f64 / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_workload::{Random, Rng};

    const MS: u64 = 1_000_000;

    /// Ending a run must not take time in proportion to the operations that were not started.
    #[test]
    fn a_large_backlog_is_sampled_with_weights() {
        for arrivals in [Arrivals::Client, Arrivals::Uniform, Arrivals::Poisson] {
            let schedule = schedule(1e9, arrivals, 4);
            let (mut calls, mut sum, mut last) = (0u64, 0u64, 0);
            schedule.take_rest(3_000_000_000, |start, n| (calls, sum, last) = (calls + 1, sum + n, start));
            assert!(calls <= 4 * SAMPLES && last < 3_000_000_000, "{arrivals:?}: {calls} calls");
            assert!(sum.abs_diff(3_000_000_000) < 10, "{arrivals:?}: {sum}");
        }
    }

    fn schedule(rate: f64, arrivals: Arrivals, clients: usize) -> Schedule {
        Schedule::new(RateSchedule::constant(rate), arrivals, clients, Share::WHOLE, 1)
    }

    #[test]
    fn clients_share_the_rate_evenly_and_out_of_phase() {
        let schedule = schedule(1000.0, Arrivals::Client, 4);
        for client in 0..4 {
            let starts: Vec<_> = (0..3).map(|_| schedule.take(client).unwrap() / MS).collect();
            let first = client as u64;
            assert_eq!(starts, [first, first + 4, first + 8]);
        }
    }

    /// Three processes together offer the load of one: even arrivals exactly, random arrivals in
    /// the mean.
    #[test]
    fn processes_share_a_schedule() {
        let part = |arrivals, index, seed| {
            let share = Share::new(index, 3).unwrap();
            Schedule::new(RateSchedule::constant(1000.0), arrivals, 2, share, seed)
        };
        for arrivals in [Arrivals::Client, Arrivals::Uniform] {
            let mut starts = Vec::new();
            for index in 0..3 {
                let schedule = part(arrivals, index, 1);
                schedule.take_rest(30 * MS, |start, n| {
                    starts.extend(std::iter::repeat_n(start / MS, n as usize))
                });
            }
            starts.sort_unstable();
            assert_eq!(starts, (0..30).collect::<Vec<_>>(), "{arrivals:?}");
        }
        let mut count = 0;
        for index in 0..3 {
            part(Arrivals::Poisson, index, index).take_rest(1000 * MS, |_, n| count += n);
        }
        // Poisson of mean 1000, five standard deviations.
        assert!((840..1160).contains(&count), "{count}");
        let due: f64 = (0..3).map(|index| part(Arrivals::Poisson, index, 1).due_between(0, 1000 * MS)).sum();
        assert!((due - 1000.0).abs() < 1e-6, "{due}");
    }

    #[test]
    fn an_idle_client_takes_the_next_start() {
        let schedule = schedule(1000.0, Arrivals::Uniform, 4);
        let starts: Vec<_> = [3, 3, 0, 2].map(|client| schedule.take(client).unwrap() / MS).into();
        assert_eq!(starts, [0, 1, 2, 3]);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let schedule = schedule(1000.0, Arrivals::Poisson, 1);
        let starts: Vec<u64> = (0..100_000).map(|_| schedule.take(0).unwrap()).collect();
        let gaps: Vec<f64> = starts.windows(2).map(|w| (w[1] - w[0]) as f64 / MS as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let above = |limit: f64| gaps.iter().filter(|gap| **gap > limit).count() as f64 / gaps.len() as f64;
        // Mean 1, P(gap > x) = e^-x; five standard deviations of the estimates.
        assert!((mean - 1.0).abs() < 5.0 / (gaps.len() as f64).sqrt(), "{mean}");
        for x in [0.5f64, 1.0, 3.0] {
            let p = (-x).exp();
            let sigma = (p * (1.0 - p) / gaps.len() as f64).sqrt();
            assert!((above(x) - p).abs() < 5.0 * sigma, "P(gap > {x}) = {}", above(x));
        }
    }

    /// Returns the starts by the law in `docs/pacing.md`.
    fn poisson_starts(rate: &RateSchedule, seed: u64, end: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        let mut sum = 0.0;
        let starts = std::iter::from_fn(|| {
            sum -= libm::log(1.0 - rng.next_f64());
            Some((rate.time_of(sum)? * 1e9) as u64)
        });
        starts.take_while(|start| *start < end).collect()
    }

    #[test]
    fn poisson_starts_and_the_backlog_follow_the_documented_law() {
        const CLIENTS: usize = 3;
        let end = 4_000 * MS;
        for (seed, text) in [(1, "4000"), (2, "ramp 1000..9000 for 3s; 2000"), (3, "5000 for 2s")] {
            let rate = RateSchedule::parse(text).unwrap();
            let expected = poisson_starts(&rate, seed, end);
            for taken in [0, 1, 5_000] {
                let schedule = Schedule::new(rate.clone(), Arrivals::Poisson, CLIENTS, Share::WHOLE, seed);
                let starts: Vec<u64> = (0..taken).map(|k| schedule.take(k % CLIENTS).unwrap()).collect();
                assert_eq!(starts, expected[..taken], "{text}");
                let mut rest = Vec::new();
                schedule.take_rest(end, |start, n| {
                    assert_eq!(n, 1);
                    rest.push(start);
                });
                assert_eq!(rest, expected[taken..], "{text} after {taken}");
            }
        }
    }

    #[test]
    fn the_backlog_is_the_starts_due_and_not_taken() {
        for arrivals in [Arrivals::Client, Arrivals::Uniform] {
            let schedule = schedule(1000.0, arrivals, 3);
            (0..10).for_each(|i| {
                schedule.take(i % 3);
            });
            let mut rest = Vec::new();
            schedule.take_rest(20 * MS, |start, n| rest.extend(std::iter::repeat_n(start / MS, n as usize)));
            rest.sort_unstable();
            assert_eq!(rest, (10..20).collect::<Vec<_>>(), "{arrivals:?}");
        }
        let poisson = schedule(1000.0, Arrivals::Poisson, 1);
        let mut count = 0;
        poisson.take_rest(1000 * MS, |start, n| {
            assert!(start < 1000 * MS);
            count += n;
        });
        // Poisson of mean 1000, five standard deviations.
        assert!((840..1160).contains(&count), "{count}");
    }

    #[test]
    fn a_huge_backlog_is_sampled_and_counted_exactly() {
        let schedule = schedule(1e6, Arrivals::Uniform, 1);
        let (mut samples, mut total) = (0u64, 0u64);
        schedule.take_rest(10_000 * MS, |_, n| {
            samples += 1;
            total += n;
        });
        assert_eq!(total, 10_000_000);
        assert!(samples <= 1_000_000);
    }
}
