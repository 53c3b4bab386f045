//! Which snapshots may still be read: the low-water mark.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use yesquel_model::Timestamp;

/// Moments apart by which the mark follows the present.
const STEP_MS: u64 = 50;

/// The snapshots that connections hold, and the recent past.
///
/// Any snapshot given out can be read for the grace time, within which whoever
/// got it says that he holds it; from then on until he says that he does not,
/// his connection ends, or it is older than the greatest age.
#[derive(Debug)]
pub(crate) struct Snapshots {
    grace_ms: u64,
    age_ms_max: u64,
    held: FxHashMap<u64, Timestamp>,
    /// What the clock said when, by time since the start, the oldest first.
    past: VecDeque<(u64, Timestamp)>,
    low: Timestamp,
    /// The oldest that the grace time keeps.
    recent: Timestamp,
    /// Those from before this time were let go of for want of memory, whoever
    /// still names them, and how many.
    gone: Timestamp,
    cancelled: u64,
}

impl Snapshots {
    pub(crate) fn new(grace_ms: u64, age_ms_max: u64, low: Timestamp) -> Snapshots {
        Snapshots {
            grace_ms,
            age_ms_max,
            held: FxHashMap::default(),
            past: VecDeque::new(),
            low,
            recent: low,
            gone: Timestamp::ZERO,
            cancelled: 0,
        }
    }

    /// The oldest snapshot that may be read.
    pub(crate) fn low(&self) -> Timestamp {
        self.low
    }

    /// The oldest that a connection holds.
    fn oldest_held(&self) -> Option<Timestamp> {
        self.held.values().copied().filter(|held| *held >= self.gone).min()
    }

    /// Those that were held and let go of for want of memory.
    pub(crate) fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// Connections that hold one.
    pub(crate) fn holders(&self) -> usize {
        self.held.len()
    }

    /// The oldest that this connection holds from now on.
    pub(crate) fn hold(&mut self, connection: u64, oldest: Option<Timestamp>) {
        match oldest {
            Some(oldest) => drop(self.held.insert(connection, oldest)),
            None => drop(self.held.remove(&connection)),
        }
    }

    /// Lets go of those that are held from before this time, but for what the
    /// grace time keeps; the mark goes on to the next one.
    pub(crate) fn cancel_before(&mut self, time: Timestamp) {
        if time > self.recent {
            return;
        }
        let before = self.held.values().filter(|held| (self.low..time).contains(held)).count();
        self.cancelled += before as u64;
        self.gone = self.gone.max(time);
        self.low = self.low.max(self.oldest_held().unwrap_or(self.recent).min(self.recent));
    }

    /// Time goes on: `last` is what the clock says.
    pub(crate) fn tick(&mut self, uptime_ms: u64, last: Timestamp) {
        if self.past.back().is_none_or(|(then, _)| then + STEP_MS <= uptime_ms) {
            self.past.push_back((uptime_ms, last));
        }
        let before = |age_ms: u64| {
            let passed = uptime_ms.checked_sub(age_ms)?;
            self.past.iter().rev().find(|(then, _)| *then <= passed).map(|(_, last)| *last)
        };
        let (recent, oldest) = (before(self.grace_ms), before(self.age_ms_max));
        let Some(mut low) = recent else { return };
        self.recent = self.recent.max(low);
        if let Some(held) = self.oldest_held() {
            low = low.min(held);
        }
        self.low = self.low.max(low).max(oldest.unwrap_or_default());
        // One that is as old as anything may be is enough.
        while self.past.get(1).is_some_and(|(then, _)| then + self.age_ms_max <= uptime_ms) {
            self.past.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_follows_at_the_grace_time_and_stops_at_what_is_held() {
        let mut snapshots = Snapshots::new(1_000, 60_000, Timestamp(5));
        for uptime in (0..=1_000).step_by(50) {
            snapshots.tick(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(100));
        snapshots.hold(1, Some(Timestamp(300)));
        snapshots.hold(2, Some(Timestamp(400)));
        for uptime in (1_050..=10_000).step_by(50) {
            snapshots.tick(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(300));
        snapshots.hold(1, None);
        snapshots.tick(10_050, Timestamp(10_150));
        assert_eq!(snapshots.low(), Timestamp(400));
        // The age that a snapshot may have.
        for uptime in (10_100..=70_000).step_by(50) {
            snapshots.tick(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(10_100));
        // It never goes back.
        snapshots.hold(3, Some(Timestamp(1)));
        snapshots.tick(70_050, Timestamp(70_150));
        assert_eq!(snapshots.low(), Timestamp(10_150));
        assert!(snapshots.past.len() <= 1_202);
    }
}
