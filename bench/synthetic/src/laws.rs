//! Laws of service times. Times are ns of the virtual clock.

use serval_workload::{Random, Rng};
use std::{cmp::Reverse, collections::BinaryHeap};

/// A law that determines the end of operations.
pub trait Law: Send + 'static {
    /// Returns the end of an operation that starts now. Called in order of time.
    fn serve(&mut self, now: u64) -> u64;

    /// Describes the law.
    fn describe(&self) -> String;

    /// Called at the start of a run.
    fn begin_run(&mut self) {}
}

/// Distribution of service times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceDistribution {
    /// All equal to the mean.
    Constant,
    /// P(S > s) = e^(-s/mean).
    Exponential,
}

/// Draws service times, deterministically for a seed.
#[derive(Debug, Clone)]
pub struct Service {
    mean_ns: f64,
    shape: ServiceDistribution,
    rng: Rng,
}

impl Service {
    /// Returns a distribution of this mean, above zero, and shape.
    pub fn new(mean_ns: f64, shape: ServiceDistribution, seed: u64) -> Self {
        Service { mean_ns, shape, rng: Rng::new(seed) }
    }

    /// Draws the next, with the mean multiplied by `factor`.
    pub(crate) fn draw(&mut self, factor: f64) -> u64 {
        let unit = match self.shape {
            ServiceDistribution::Constant => 1.0,
            // 1 - u is in (0, 1], so that the logarithm is finite.
            ServiceDistribution::Exponential => -libm::log(1.0 - self.rng.next_f64()),
        };
        (self.mean_ns * factor * unit).round() as u64
    }

    fn words(&self) -> String {
        let shape = match self.shape {
            ServiceDistribution::Constant => "constant",
            ServiceDistribution::Exponential => "exponential",
        };
        format!("{shape} service, mean {} ns", self.mean_ns)
    }
}

/// A FIFO queue before `c` servers of rate μ = 1/mean.
///
/// With Poisson arrivals at rate λ, one server and exponential service it is
/// M/M/1: times in the store are exponential with rate μ − λ, so that their
/// percentile p is at −ln(1 − p) / (μ − λ). The throughput of a closed loop is
/// at most c μ, and is that with c clients or more and no time between
/// operations.
#[derive(Debug)]
pub struct MultiServerQueue {
    service: Service,
    servers: usize,
    /// When each server becomes free.
    free_at: BinaryHeap<Reverse<u64>>,
}

impl MultiServerQueue {
    /// Returns a queue with at least one server.
    pub fn new(servers: usize, service: Service) -> Self {
        let servers = servers.max(1);
        MultiServerQueue { service, servers, free_at: (0..servers).map(|_| Reverse(0)).collect() }
    }
}

impl Law for MultiServerQueue {
    fn serve(&mut self, now: u64) -> u64 {
        let free_at = self.free_at.pop().map_or(0, |Reverse(instant)| instant);
        let end = free_at.max(now) + self.service.draw(1.0);
        self.free_at.push(Reverse(end));
        end
    }

    fn describe(&self) -> String {
        format!("queue with {} servers, {}", self.servers, self.service.words())
    }
}

/// Unlimited concurrency with one stall: from `at` on for `length` no operation makes
/// progress, so that each ends later by its overlap with the stall.
///
/// With service time s, an offered load λ and one client, the delayed operations are
/// those due in the stall and until the queue is empty again: λ length / (1 − λ s) of
/// them, the first for the whole length.
#[derive(Debug)]
pub struct Stall {
    /// Service times without the stall.
    pub service: Service,
    /// Start of the stall.
    pub at: u64,
    /// Length of the stall.
    pub length: u64,
}

impl Law for Stall {
    fn serve(&mut self, now: u64) -> u64 {
        let end = now + self.service.draw(1.0);
        let over = self.at + self.length;
        if end <= self.at || now >= over { end } else { end + over - now.max(self.at) }
    }

    fn describe(&self) -> String {
        format!("{}, stall of {} ns at {} ns", self.service.words(), self.length, self.at)
    }
}

/// Unlimited concurrency. From `at` on, service times are `factor` times as
/// long.
#[derive(Debug)]
pub struct StepChange {
    /// Service times before the step.
    pub service: Service,
    /// Time of the step.
    pub at: u64,
    /// Above zero.
    pub factor: f64,
}

impl Law for StepChange {
    fn serve(&mut self, now: u64) -> u64 {
        now + self.service.draw(if now < self.at { 1.0 } else { self.factor })
    }

    fn describe(&self) -> String {
        format!("{}, {} times from {} ns on", self.service.words(), self.factor, self.at)
    }
}

/// Unlimited concurrency. The mean service time grows linearly: at instant t it
/// is mean (1 + t / doubling).
#[derive(Debug)]
pub struct Drift {
    /// Service times at instant 0.
    pub service: Service,
    /// When the mean has doubled, ns; above zero.
    pub doubling: f64,
}

impl Law for Drift {
    fn serve(&mut self, now: u64) -> u64 {
        now + self.service.draw(1.0 + now as f64 / self.doubling)
    }

    fn describe(&self) -> String {
        format!("{}, twice that after {} ns", self.service.words(), self.doubling)
    }
}

/// Unlimited concurrency on a noisy machine: in step k of the clock (of `step` ns)
/// and run r the mean service time is mean (1 + x(k) + y(r)), at least a tenth of the
/// mean, where
///
/// x(k) = φ x(k−1) + σ √(1 − φ²) z(k) is an AR(1) process of standard deviation σ and
/// correlation φ from one step to the next, and y(r) is normal with standard
/// deviation `between`; the z are normal with variance 1.
///
/// Two stores with different seeds and means that differ by 5 % are a pair for a
/// comparison; with the same mean, an A/A pair.
#[derive(Debug)]
pub struct Noisy {
    service: Service,
    step: u64,
    correlation: f64,
    deviation: f64,
    between: f64,
    rng: Rng,
    /// Step of the clock of `x`.
    at: u64,
    x: f64,
    y: f64,
}

impl Noisy {
    /// Service times before the noise; the clock's step (ns, above zero), φ (from
    /// 0 to below 1) and σ within runs; the standard deviation between runs.
    pub fn new(
        service: Service,
        step: u64,
        correlation: f64,
        deviation: f64,
        between: f64,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let x = deviation * normal(&mut rng);
        Noisy { service, step: step.max(1), correlation, deviation, between, rng, at: 0, x, y: 0.0 }
    }
}

/// Draws a normal number by the Box-Muller transform.
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.next_f64(), rng.next_f64());
    libm::sqrt(-2.0 * libm::log(u)) * libm::cos(std::f64::consts::TAU * v)
}

impl Law for Noisy {
    fn serve(&mut self, now: u64) -> u64 {
        let step = now / self.step;
        let innovation = self.deviation * libm::sqrt(1.0 - self.correlation * self.correlation);
        while self.at < step {
            self.at += 1;
            self.x = self.correlation * self.x + innovation * normal(&mut self.rng);
        }
        now + self.service.draw((1.0 + self.x + self.y).max(0.1))
    }

    fn describe(&self) -> String {
        format!(
            "{}, AR(1) noise of {} (correlation {} over {} ns) and {} between runs",
            self.service.words(),
            self.deviation,
            self.correlation,
            self.step,
            self.between
        )
    }

    fn begin_run(&mut self) {
        self.y = self.between * normal(&mut self.rng);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(ns: f64) -> Service {
        Service::new(ns, ServiceDistribution::Constant, 1)
    }

    #[test]
    fn a_queue_serves_in_order_with_all_its_servers() {
        let mut one = MultiServerQueue::new(1, constant(10.0));
        assert_eq!([0, 1, 2, 50].map(|now| one.serve(now)), [10, 20, 30, 60]);
        let mut two = MultiServerQueue::new(2, constant(10.0));
        assert_eq!([0, 1, 2, 50].map(|now| two.serve(now)), [10, 11, 20, 60]);
    }

    #[test]
    fn nothing_is_served_in_a_stall() {
        let mut stall = Stall { service: constant(10.0), at: 100, length: 50 };
        let ends = [80, 90, 95, 100, 149, 150].map(|now| stall.serve(now));
        assert_eq!(ends, [90, 100, 155, 160, 160, 160]);
    }

    #[test]
    fn exponential_times_have_their_mean_and_spread() {
        let mut service = Service::new(1e6, ServiceDistribution::Exponential, 3);
        let times: Vec<f64> = (0..100_000).map(|_| service.draw(1.0) as f64 / 1e6).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len() as f64;
        // Standard errors 1/316 and √8/316; five of them.
        assert!((mean - 1.0).abs() < 0.016 && (variance - 1.0).abs() < 0.045, "{mean} {variance}");
    }

    #[test]
    fn a_step_and_a_drift_are_at_their_configured_times() {
        let mut step = StepChange { service: constant(10.0), at: 100, factor: 3.0 };
        assert_eq!([0, 99, 100].map(|now| step.serve(now) - now), [10, 10, 30]);
        let mut drift = Drift { service: constant(100.0), doubling: 1e4 };
        assert_eq!([0, 5_000, 10_000].map(|now| drift.serve(now) - now), [100, 150, 200]);
    }

    #[test]
    fn noise_is_an_ar1_process() {
        const STEPS: usize = 100_000;
        let mut noisy = Noisy::new(constant(1e9), 10, 0.8, 0.02, 0.0, 5);
        let x: Vec<f64> = (0..STEPS as u64)
            .map(|k| noisy.serve(k * 10) as f64 - (k * 10) as f64)
            .map(|ns| ns / 1e9 - 1.0)
            .collect();
        let covariance = |lag: usize| x.iter().zip(&x[lag..]).map(|(a, b)| a * b).sum::<f64>() / STEPS as f64;
        // Of 100,000 with this correlation the deviation is known to about 0.5 %.
        assert!((covariance(0).sqrt() - 0.02).abs() < 0.02 * 0.025, "{}", covariance(0).sqrt());
        for (lag, expected) in [(1, 0.8), (2, 0.64), (5, 0.328)] {
            let correlation = covariance(lag) / covariance(0);
            assert!((correlation - expected).abs() < 0.02, "{lag}: {correlation}");
        }
    }
}
