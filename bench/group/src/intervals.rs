//! The intervals of the clients of a group, and their sums while it runs.

use crate::wire::{IntervalWire, WireError, add, both};
use serval_runner::{Interval, Progress};
use std::{collections::VecDeque, time::Duration};

/// Intervals of a client that wait for those of others, at most: an hour of seconds. A
/// client that is so far behind is lost long before.
const WAITING_MAX: usize = 3600;

/// Intervals of all clients, and the sums of those that are complete.
#[derive(Debug)]
pub(crate) struct Intervals {
    waiting: Vec<VecDeque<(Interval, u64, u64)>>,
    gone: Vec<bool>,
    /// Units of each client by its last interval, and failures.
    units: Vec<(u64, u64)>,
    /// Intervals that could not be kept until those of others had come.
    pub(crate) missed: u64,
    /// Operations/s of each client in each interval.
    pub(crate) rates: Vec<Vec<f64>>,
    /// Clients that only read sampled keys; their reads are not part of the work.
    consumes: Vec<bool>,
    length: Duration,
}

impl Intervals {
    /// Of as many clients; says which of them only read sampled keys. Their intervals are so long as a
    /// rule.
    pub(crate) fn new(consumes: Vec<bool>, length: Duration) -> Intervals {
        let clients = consumes.len();
        Intervals {
            waiting: (0..clients).map(|_| VecDeque::new()).collect(),
            gone: vec![false; clients],
            units: vec![(0, 0); clients],
            missed: 0,
            rates: vec![Vec::new(); clients],
            consumes,
            length,
        }
    }

    /// A client's next interval.
    pub(crate) fn take(&mut self, client: usize, wire: &IntervalWire) -> Result<(), WireError> {
        let interval = wire.interval()?;
        match self.waiting.get_mut(client) {
            Some(waiting) if waiting.len() < WAITING_MAX => {
                waiting.push_back((interval, wire.units, wire.failed));
            }
            _ => self.missed += 1,
        }
        Ok(())
    }

    /// Takes what lies in a window, and adds it up; `None` if no client that works has anything there.
    fn take_window(&mut self, window: &IntervalWindow) -> Option<Interval> {
        let mut sum: Option<Interval> = None;
        let mut rates = Vec::with_capacity(self.rates.len());
        for (client, waiting) in self.waiting.iter_mut().enumerate() {
            let (mut operations, mut length) = (0u64, Duration::ZERO);
            while let Some((interval, units, failed)) =
                waiting.pop_front_if(|(interval, ..)| window.has(interval))
            {
                operations += interval.pairs.values().map(|pair| pair.service.count()).sum::<u64>();
                length += interval.length;
                if self.consumes[client] {
                    continue;
                }
                self.units[client] = (units, failed);
                match &mut sum {
                    None => sum = Some(interval),
                    Some(sum) => {
                        let last = end(sum).max(end(&interval));
                        sum.start = sum.start.min(interval.start);
                        sum.length = last.saturating_sub(sum.start);
                        add(&mut sum.pairs, &interval.pairs);
                        sum.lateness.merge(&interval.lateness);
                        sum.due = both(sum.due, interval.due);
                    }
                }
            }
            rates.push(operations as f64 / length.as_secs_f64().max(1e-9));
        }
        if sum.is_some() {
            self.rates.iter_mut().zip(rates).for_each(|(all, rate)| all.push(rate));
        }
        sum
    }

    /// A client that sends no more: it has ended, or is lost.
    pub(crate) fn gone(&mut self, client: usize) {
        if let Some(gone) = self.gone.get_mut(client) {
            *gone = true;
        }
    }

    /// Whether it sends no more.
    pub(crate) fn is_gone(&self, client: usize) -> bool {
        self.gone.get(client).is_none_or(|gone| *gone)
    }

    /// The next time of which there is a sum: from the earliest interval that waits to where all begin
    /// another. A client that stood still has made one long interval of several.
    fn window(&self) -> Option<IntervalWindow> {
        let fronts = || self.waiting.iter().filter_map(|waiting| waiting.front().map(|(front, ..)| front));
        let first = fronts().min_by_key(|front| front.start)?;
        let half = self.length.min(first.length) / 2;
        let mut window = IntervalWindow { end: end(first), half, warm_up: first.warm_up };
        loop {
            let inside = self.waiting.iter().flatten().map(|(interval, ..)| interval);
            let last = inside.filter(|interval| window.has(interval)).map(end).max()?;
            if last <= window.end {
                return Some(window);
            }
            window.end = last;
        }
    }

    /// The sum of the next interval, once all that are there have sent theirs.
    pub(crate) fn next(&mut self) -> Option<(Interval, Progress)> {
        if self.waiting.iter().zip(&self.gone).any(|(waiting, gone)| !gone && waiting.is_empty()) {
            return None;
        }
        let sum = loop {
            let window = self.window()?;
            let told = |waiting: &VecDeque<(Interval, u64, u64)>| {
                waiting.back().is_some_and(|(last, ..)| window.is_over(last))
            };
            if !self.waiting.iter().zip(&self.gone).all(|(waiting, gone)| *gone || told(waiting)) {
                return None;
            }
            // What consumers alone did is in no series.
            if let Some(sum) = self.take_window(&window) {
                break sum;
            }
        };
        let (units, failed) =
            self.units.iter().fold((0, 0), |(a, b), (units, failed)| (a + units, b + failed));
        let progress = Progress { elapsed: sum.start + sum.length, warming_up: sum.warm_up, units, failed };
        Some((sum, progress))
    }
}

pub(crate) fn end(interval: &Interval) -> Duration {
    interval.start + interval.length
}

/// A span of time whose intervals are added up.
#[derive(Debug)]
struct IntervalWindow {
    end: Duration,
    /// Half of an interval: by so much ends of one differ from client to client at most.
    half: Duration,
    warm_up: bool,
}

impl IntervalWindow {
    fn has(&self, interval: &Interval) -> bool {
        interval.warm_up == self.warm_up && interval.start + self.half < self.end
    }

    /// Whether what comes after this interval lies beyond.
    fn is_over(&self, interval: &Interval) -> bool {
        end(interval) + self.half >= self.end || self.warm_up && !interval.warm_up
    }
}
