//! The laws. Times are ns of the virtual clock.

use serval_workload::{Random, Rng};
use std::{cmp::Reverse, collections::BinaryHeap};

/// When operations end, given when they begin.
pub trait Law: Send + 'static {
    /// The end of an operation that begins now. Called in order of time.
    fn serve(&mut self, now: u64) -> u64;

    /// In words.
    fn describe(&self) -> String;

    /// A run begins.
    fn begin_run(&mut self) {}
}

/// How service times are spread about their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Not at all.
    Constant,
    /// P(S > s) = e^(-s/mean).
    Exponential,
}

/// Draws service times, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Service {
    mean_ns: f64,
    shape: Shape,
    rng: Rng,
}

impl Service {
    /// Of this mean, above zero, and shape.
    pub fn new(mean_ns: f64, shape: Shape, seed: u64) -> Self {
        Service { mean_ns, shape, rng: Rng::new(seed) }
    }

    /// The next, its mean multiplied by `factor`.
    pub(crate) fn draw(&mut self, factor: f64) -> u64 {
        let unit = match self.shape {
            Shape::Constant => 1.0,
            // 1 - u is in (0, 1], so that the logarithm is finite.
            Shape::Exponential => -libm::log(1.0 - self.rng.next_f64()),
        };
        (self.mean_ns * factor * unit).round() as u64
    }

    fn words(&self) -> String {
        let shape = match self.shape {
            Shape::Constant => "constant",
            Shape::Exponential => "exponential",
        };
        format!("{shape} service, mean {} ns", self.mean_ns)
    }
}

/// One queue, first come first served, before `c` servers of rate μ = 1/mean.
///
/// With Poisson arrivals at rate λ, one server and exponential service it is
/// M/M/1: times in the store are exponential with rate μ − λ, so that their
/// percentile p is at −ln(1 − p) / (μ − λ). The throughput of a closed loop is
/// at most c μ, and is that with c clients or more and no time between
/// operations.
#[derive(Debug)]
pub struct Queue {
    service: Service,
    servers: usize,
    /// When each server is free.
    free_at: BinaryHeap<Reverse<u64>>,
}

impl Queue {
    /// A queue with so many servers, one at least.
    pub fn new(servers: usize, service: Service) -> Self {
        let servers = servers.max(1);
        Queue { service, servers, free_at: (0..servers).map(|_| Reverse(0)).collect() }
    }
}

impl Law for Queue {
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

/// Any number of operations at the same time, each of its service time; but
/// from `at` on for `length` nothing goes on at all: what is in flight then,
/// and what begins in that time, ends the later by what it has seen of the stall.
///
/// With service time s, an offered load λ and one client, the operations
/// that wait for it are those due in the stall and while their queue is worked
/// off: λ length / (1 − λ s) of them, the first for the whole length.
#[derive(Debug)]
pub struct Stall {
    /// Without the stall.
    pub service: Service,
    /// When nothing goes on any more.
    pub at: u64,
    /// For how long.
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

/// Any number of operations at the same time. From `at` on service times are
/// `factor` times as long.
#[derive(Debug)]
pub struct StepChange {
    /// Before the step.
    pub service: Service,
    /// When it comes.
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

/// Any number of operations at the same time. The mean service time grows
/// evenly: at instant t it is mean (1 + t / doubling).
#[derive(Debug)]
pub struct Drift {
    /// At instant 0.
    pub service: Service,
    /// When the mean is twice that, ns; above zero.
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

/// Any number of operations at the same time, on a machine that is not the
/// same all the time: in step k of the clock (of `step` ns) and run r the mean
/// service time is mean (1 + x(k) + y(r)), a tenth of the mean at least, where
///
/// x(k) = φ x(k−1) + σ √(1 − φ²) z(k) is an AR(1) process of standard deviation σ and
/// correlation φ from one step to the next, and y(r) is normal with standard
/// deviation `between`; the z are normal with variance 1.
///
/// Two stores whose means differ by 5 % and whose seeds differ are a pair for
/// a comparison; of the same mean, an A/A pair.
#[derive(Debug)]
pub struct Noisy {
    service: Service,
    step: u64,
    correlation: f64,
    deviation: f64,
    between: f64,
    rng: Rng,
    /// The step of the clock that `x` is of.
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

/// Box and Muller's.
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
        Service::new(ns, Shape::Constant, 1)
    }

    #[test]
    fn a_queue_serves_in_order_with_all_its_servers() {
        let mut one = Queue::new(1, constant(10.0));
        assert_eq!([0, 1, 2, 50].map(|now| one.serve(now)), [10, 20, 30, 60]);
        let mut two = Queue::new(2, constant(10.0));
        assert_eq!([0, 1, 2, 50].map(|now| two.serve(now)), [10, 11, 20, 60]);
    }

    #[test]
    fn nothing_goes_on_in_a_stall() {
        let mut stall = Stall { service: constant(10.0), at: 100, length: 50 };
        let ends = [80, 90, 95, 100, 149, 150].map(|now| stall.serve(now));
        assert_eq!(ends, [90, 100, 155, 160, 160, 160]);
    }

    #[test]
    fn exponential_times_have_their_mean_and_spread() {
        let mut service = Service::new(1e6, Shape::Exponential, 3);
        let times: Vec<f64> = (0..100_000).map(|_| service.draw(1.0) as f64 / 1e6).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len() as f64;
        // Standard errors 1/316 and √8/316; five of them.
        assert!((mean - 1.0).abs() < 0.016 && (variance - 1.0).abs() < 0.045, "{mean} {variance}");
    }

    #[test]
    fn a_step_and_a_drift_are_where_they_are_said_to_be() {
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
