//! The intervals of the clients of a group, and their sums while it runs.

use crate::wire::{IntervalWire, WireError, add, both};
use serval_runner::{Interval, Progress};
use std::{collections::VecDeque, time::Duration};

/// Most intervals of a client that wait for those of others: an hour at 1 s. A client that lags so far is lost long
/// before.
const WAITING_MAX: usize = 3600;

/// Intervals of all clients, and the sums of those that are complete.
#[derive(Debug)]
pub(crate) struct Intervals {
    waiting: Vec<VecDeque<(Interval, u64, u64)>>,
    /// Whether each client has ended or is lost.
    ended: Vec<bool>,
    /// Units and failed units of each client at its last interval.
    units: Vec<(u64, u64)>,
    /// Number of intervals that were dropped because too many waited.
    pub(crate) missed: u64,
    /// Operations/s of each client in each interval.
    pub(crate) rates: Vec<Vec<f64>>,
    /// Whether each client only reads sampled keys. Such reads are not part of the work.
    consumes: Vec<bool>,
    length: Duration,
}

impl Intervals {
    /// Creates the intervals of a group. `consumes` has, for each client, whether it only reads sampled keys. `length`
    /// is the usual length of an interval.
    pub(crate) fn new(consumes: Vec<bool>, length: Duration) -> Intervals {
        let clients = consumes.len();
        Intervals {
            waiting: (0..clients).map(|_| VecDeque::new()).collect(),
            ended: vec![false; clients],
            units: vec![(0, 0); clients],
            missed: 0,
            rates: vec![Vec::new(); clients],
            consumes,
            length,
        }
    }

    /// Adds a client's next interval.
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

    /// Removes the intervals in a window and returns their sum; `None` if no working client has any.
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

    /// Marks a client that has ended or is lost: it sends no more intervals.
    pub(crate) fn set_ended(&mut self, client: usize) {
        if let Some(ended) = self.ended.get_mut(client) {
            *ended = true;
        }
    }

    /// Returns whether a client sends no more intervals.
    pub(crate) fn has_ended(&self, client: usize) -> bool {
        self.ended.get(client).is_none_or(|ended| *ended)
    }

    /// Returns the span of the next sum: from the earliest waiting interval to an instant at which every client
    /// begins another interval. A client that froze has one long interval instead of several.
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

    /// Returns the sum of the next interval, once all remaining clients have sent theirs.
    pub(crate) fn next(&mut self) -> Option<(Interval, Progress)> {
        if self.waiting.iter().zip(&self.ended).any(|(waiting, ended)| !ended && waiting.is_empty()) {
            return None;
        }
        let sum = loop {
            let window = self.window()?;
            let has_reported = |waiting: &VecDeque<(Interval, u64, u64)>| {
                waiting.back().is_some_and(|(last, ..)| window.is_over(last))
            };
            if !self.waiting.iter().zip(&self.ended).all(|(waiting, ended)| *ended || has_reported(waiting)) {
                return None;
            }
            // A window with reads of consumers only is in no series.
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
    /// Half of an interval: the largest difference between the clients' ends of one interval.
    half: Duration,
    warm_up: bool,
}

impl IntervalWindow {
    fn has(&self, interval: &Interval) -> bool {
        interval.warm_up == self.warm_up && interval.start + self.half < self.end
    }

    /// Returns whether all later intervals lie beyond the window.
    fn is_over(&self, interval: &Interval) -> bool {
        end(interval) + self.half >= self.end || self.warm_up && !interval.warm_up
    }
}
