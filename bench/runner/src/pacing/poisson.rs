//! Poisson arrivals without a lock: one sequence for all clients, drawn ahead into a queue.

use crossbeam_queue::ArrayQueue;
use serval_workload::{Random, Rng};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Arrivals that the queue holds: what clients take in 20 ms at 100,000/s, while the client that
/// draws more has lost its processor.
const AHEAD: usize = 2048;

/// Arrivals drawn at a time: 1 µs of one client, before its operation is due.
const BATCH: usize = 64;

/// Partial sums of exponential gaps with mean 1, in order.
#[derive(Debug)]
struct Generator {
    rng: Rng,
    sum: f64,
    /// Drawn, but not yet in the queue.
    drawn: Option<f64>,
}

impl Generator {
    fn draw(&mut self) -> f64 {
        if let Some(drawn) = self.drawn.take() {
            return drawn;
        }
        // 1 - u is in (0, 1], so that the logarithm is finite.
        self.sum -= libm::log(1.0 - self.rng.next_f64());
        self.sum
    }
}

/// The arrivals of a Poisson process of rate 1, shared by all clients: each takes the next one.
///
/// An arrival depends on the one before, so only one client draws at a time. The others take from
/// the queue meanwhile. A client waits for the lock only if the queue is empty, that is if the
/// client that draws does not run while the others take [`AHEAD`] arrivals.
#[derive(Debug)]
pub(super) struct PoissonArrivals {
    /// Capacity is twice the usual length: a client that loses its processor while it takes an
    /// arrival keeps that place of the queue occupied, and the queue is full when the place is
    /// needed again.
    ahead: ArrayQueue<f64>,
    /// Locked while arrivals are drawn and added to the queue, which keeps the order.
    generator: Mutex<Generator>,
}

impl PoissonArrivals {
    pub(super) fn new(seed: u64) -> Self {
        let arrivals = PoissonArrivals {
            ahead: ArrayQueue::new(2 * AHEAD),
            generator: Mutex::new(Generator { rng: Rng::new(seed), sum: 0.0, drawn: None }),
        };
        while arrivals.ahead.len() < AHEAD {
            arrivals.draw_batch(&mut arrivals.lock());
        }
        arrivals
    }

    /// Takes the next arrival.
    pub(super) fn take(&self) -> f64 {
        let Some(arrival) = self.ahead.pop() else { return self.take_from_empty() };
        if self.ahead.len() < AHEAD {
            match self.generator.try_lock() {
                Ok(mut generator) => self.draw_batch(&mut generator),
                Err(TryLockError::Poisoned(error)) => self.draw_batch(&mut error.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        arrival
    }

    #[cold]
    fn take_from_empty(&self) -> f64 {
        let mut generator = self.lock();
        // Another client may have drawn meanwhile. If the queue is empty under the lock, the next
        // draw is the next arrival.
        let arrival = self.ahead.pop().unwrap_or_else(|| generator.draw());
        self.draw_batch(&mut generator);
        arrival
    }

    /// Draws the next arrivals and adds them to the queue.
    fn draw_batch(&self, generator: &mut Generator) {
        for _ in 0..BATCH {
            if let Err(arrival) = self.ahead.push(generator.draw()) {
                // No arrival is lost: the next draw returns it.
                generator.drawn = Some(arrival);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generator> {
        self.generator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    /// Returns arrivals by the law in `docs/pacing.md`.
    fn law(seed: u64, count: usize) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        let gaps = std::iter::repeat_with(move || -libm::log(1.0 - rng.next_f64()));
        let sums = gaps.scan(0.0, |sum, gap| {
            *sum += gap;
            Some(*sum)
        });
        sums.take(count).collect()
    }

    #[test]
    fn one_client_takes_the_partial_sums_of_the_gaps() {
        for seed in [1, 42, u64::MAX] {
            let arrivals = PoissonArrivals::new(seed);
            let taken: Vec<f64> = (0..5 * AHEAD).map(|_| arrivals.take()).collect();
            assert_eq!(taken, law(seed, 5 * AHEAD), "seed {seed}");
        }
    }

    #[test]
    fn many_clients_take_each_arrival_once_and_each_client_in_order() {
        const CLIENTS: usize = 4;
        const EACH: usize = 20_000;
        for seed in [1, 42] {
            let arrivals = PoissonArrivals::new(seed);
            let mut all: Vec<f64> = thread::scope(|scope| {
                let take = || (0..EACH).map(|_| arrivals.take()).collect::<Vec<f64>>();
                let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(take)).collect();
                let taken = clients.into_iter().map(|client| client.join().unwrap());
                taken.inspect(|of_client| assert!(of_client.is_sorted(), "seed {seed}")).flatten().collect()
            });
            all.sort_unstable_by(f64::total_cmp);
            assert_eq!(all, law(seed, CLIENTS * EACH), "seed {seed}");
        }
    }

    #[test]
    fn a_full_queue_loses_no_arrival() {
        let arrivals = PoissonArrivals::new(3);
        let mut generator = arrivals.lock();
        (0..2 * AHEAD).for_each(|_| arrivals.draw_batch(&mut generator));
        drop(generator);
        let taken: Vec<f64> = (0..5 * AHEAD).map(|_| arrivals.take()).collect();
        assert_eq!(taken, law(3, 5 * AHEAD));
    }

    /// One client at a time never empties the queue, so it never waits for the lock.
    #[test]
    fn the_queue_is_refilled_long_before_it_is_empty() {
        let arrivals = PoissonArrivals::new(7);
        for taken in 0..10 * AHEAD {
            assert!(arrivals.ahead.len() >= AHEAD, "after {taken}");
            arrivals.take();
        }
    }

    #[test]
    fn clients_do_not_wait_for_the_client_that_draws() {
        // Only a failing test waits this long.
        const STUCK: Duration = Duration::from_secs(20);
        const CLIENTS: usize = 4;
        let arrivals = PoissonArrivals::new(3);
        let (sender, taken) = mpsc::channel();
        let (arrivals, sender) = (&arrivals, &sender);
        let count = thread::scope(|scope| {
            let drawing = arrivals.lock();
            for _ in 0..CLIENTS {
                scope.spawn(move || (0..AHEAD / CLIENTS).for_each(|_| sender.send(arrivals.take()).unwrap()));
            }
            let count = (0..AHEAD).map_while(|_| taken.recv_timeout(STUCK).ok()).count();
            drop(drawing);
            count
        });
        assert_eq!(count, AHEAD);
    }

    /// The client that draws lost its processor for too long: the others continue the sequence.
    #[test]
    fn an_empty_queue_continues_the_sequence() {
        let arrivals = PoissonArrivals::new(9);
        let before: Vec<f64> = std::iter::from_fn(|| arrivals.ahead.pop()).collect();
        let after: Vec<f64> = (0..AHEAD).map(|_| arrivals.take()).collect();
        assert_eq!([&before[..], &after[..]].concat(), law(9, before.len() + AHEAD));
    }
}
