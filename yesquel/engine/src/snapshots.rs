//! Readable snapshots and the low-water mark.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use yesquel_model::Timestamp;

/// The snapshots that may still be read: the oldest, and all from the next one on. No snapshot
/// between the two is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readable {
    pub(crate) low: Timestamp,
    pub(crate) next: Timestamp,
}

impl Readable {
    /// All from this one on.
    #[cfg(test)]
    pub(crate) fn from(low: Timestamp) -> Readable {
        Readable { low, next: low }
    }

    pub(crate) fn contains(self, snapshot: Timestamp) -> bool {
        snapshot >= self.next || snapshot == self.low
    }

    /// Whether one of them sees something that exists from one time until another.
    pub(crate) fn sees(self, from: Timestamp, until: Timestamp) -> bool {
        until > self.next || (from..until).contains(&self.low)
    }
}

/// A connection's report on its snapshots: the oldest, the next one, and whether it holds others
/// above them.
#[derive(Debug, Clone, Copy)]
struct HeldSnapshots {
    oldest: [Option<Timestamp>; 2],
    more: bool,
}

/// Resolution of the recent past.
const STEP_MS: u64 = 50;

/// The low-water mark as the log has it; the snapshots that connections hold, and the recent past,
/// from which a higher mark is proposed.
///
/// Every snapshot stays readable for the grace time, in which its client reports that it holds it;
/// from then on until the client releases it, its connection ends, or it exceeds the maximum age.
#[derive(Debug)]
pub(crate) struct Snapshots {
    grace_ms: u64,
    age_ms_max: u64,
    held: FxHashMap<u64, HeldSnapshots>,
    /// The clock by uptime, the oldest entry first.
    past: VecDeque<(u64, Timestamp)>,
    /// By the last record.
    readable: Readable,
    /// The mark that was proposed last.
    proposed: Timestamp,
    /// Snapshots before this time are refused, whatever is readable: they are from before a restart.
    served_from: Timestamp,
    /// How long after the first tick the mark stays, so that clients report again; then when that
    /// ends.
    return_ms: u64,
    returned_at_ms: Option<u64>,
    /// The oldest snapshot that the grace time keeps.
    recent: Timestamp,
    /// Snapshots before this time were cancelled to free memory, even if clients still report them;
    /// and how many.
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
            readable: Readable { low, next: low },
            proposed: low,
            served_from: Timestamp::ZERO,
            return_ms: 0,
            returned_at_ms: None,
            recent: low,
            gone: Timestamp::ZERO,
            cancelled: 0,
        }
    }

    /// After a restart whose clock began at `start`: the mark stays where the log has it. Clients
    /// have `return_ms` to report the snapshots that they hold; zero: none of them is served.
    pub(crate) fn after_restart(&mut self, start: Timestamp, return_ms: u64) {
        self.return_ms = return_ms;
        if return_ms == 0 {
            (self.served_from, self.recent, self.gone) = (start, start, start);
        }
    }

    /// Sets the mark, as a record says.
    pub(crate) fn set(&mut self, low: Timestamp, next: Timestamp) {
        self.readable = Readable { low, next: next.max(low) };
    }

    /// Whether reads at a snapshot are answered.
    pub(crate) fn serves(&self, snapshot: Timestamp) -> bool {
        snapshot >= self.served_from && self.readable.contains(snapshot)
    }

    /// The oldest snapshot at which reads are answered, or a lower bound.
    pub(crate) fn oldest_served(&self) -> Timestamp {
        self.readable.low.max(self.served_from)
    }

    /// The mark that was proposed last.
    pub(crate) fn proposed(&self) -> Timestamp {
        self.proposed
    }

    /// The low-water mark: the oldest readable snapshot.
    pub(crate) fn low(&self) -> Timestamp {
        self.readable.low
    }

    /// All readable snapshots.
    pub(crate) fn readable(&self) -> Readable {
        self.readable
    }

    /// Readable snapshots that connections have reported.
    fn reported(&self) -> impl Iterator<Item = Timestamp> {
        let reported = self.held.values().flat_map(|held| held.oldest).flatten();
        reported.filter(|held| *held >= self.gone && self.readable.contains(*held))
    }

    /// Lower bounds on snapshots that are held but not yet reported: each is above the two that its
    /// connection has reported. If those are no longer readable, the client reports further ones
    /// when it is refused.
    fn unreported_bounds(&self) -> impl Iterator<Item = Timestamp> {
        let low = self.low();
        self.held.values().filter(|held| held.more).filter_map(move |held| {
            let above = held.oldest[1]?;
            let may_be_oldest = above < low && self.gone <= low;
            Some(if may_be_oldest { low } else { above.max(self.gone) })
        })
    }

    /// Lower bound on all held snapshots.
    fn oldest_held(&self) -> Option<Timestamp> {
        self.reported().chain(self.unreported_bounds()).min()
    }

    /// Lower bound on held snapshots above the oldest.
    fn next_held(&self, low: Timestamp) -> Option<Timestamp> {
        let reported = self.reported().filter(|held| *held > low);
        reported.chain(self.unreported_bounds().map(|unreported_bounds| unreported_bounds.max(low))).min()
    }

    /// The readable snapshots after raising the mark, if it is lower. It never stops between the
    /// readable snapshots.
    fn raised(&self, low: Timestamp) -> Readable {
        let Readable { low: before, next } = self.readable;
        let low = if low > before { low.max(next) } else { before };
        let after = self.next_held(low).unwrap_or(self.recent).min(self.recent);
        Readable { low, next: next.max(after).max(low) }
    }

    /// Held snapshots that were cancelled to free memory.
    pub(crate) fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// Connections that hold a snapshot.
    pub(crate) fn holders(&self) -> usize {
        self.held.len()
    }

    /// The oldest two snapshots of some connections, in order, and whether they hold others above.
    pub(crate) fn held_by(&self, is_meant: impl Fn(u64) -> bool) -> ([Option<Timestamp>; 2], bool) {
        let held = || self.held.iter().filter(|(connection, _)| is_meant(**connection)).map(|(_, held)| held);
        let mut all: Vec<Timestamp> = held().flat_map(|held| held.oldest).flatten().collect();
        all.sort_unstable();
        all.dedup();
        let more = all.len() > 2 || held().any(|held| held.more);
        ([all.first().copied(), all.get(1).copied()], more)
    }

    /// Records a connection's report.
    pub(crate) fn hold(&mut self, connection: u64, oldest: [Option<Timestamp>; 2], more: bool) {
        if oldest == [None; 2] {
            self.held.remove(&connection);
        } else {
            self.held.insert(connection, HeldSnapshots { oldest, more });
        }
    }

    /// Cancels held snapshots from before a time, except within the grace time, and proposes the
    /// next one as the mark.
    pub(crate) fn cancel_before(&mut self, time: Timestamp) -> Readable {
        if time > self.recent {
            return self.readable;
        }
        let before = self.reported().filter(|held| (self.low()..time).contains(held)).count();
        self.cancelled += before as u64;
        self.gone = self.gone.max(time);
        self.raised(self.oldest_held().unwrap_or(self.recent).min(self.recent))
    }

    /// Keeps snapshots that are not held for so long at least.
    pub(crate) fn raise_grace(&mut self, grace_ms: u64) {
        self.grace_ms = self.grace_ms.max(grace_ms);
    }

    /// Advances time: `last` is the present by the server's clock. Returns what may be readable from
    /// now on.
    pub(crate) fn tick(&mut self, uptime_ms: u64, last: Timestamp) -> Readable {
        if self.past.back().is_none_or(|(then, _)| then + STEP_MS <= uptime_ms) {
            self.past.push_back((uptime_ms, last));
        }
        let before = |age_ms: u64| {
            let passed = uptime_ms.checked_sub(age_ms)?;
            self.past.iter().rev().find(|(then, _)| *then <= passed).map(|(_, last)| *last)
        };
        let (recent, oldest) = (before(self.grace_ms), before(self.age_ms_max));
        self.recent = self.recent.max(recent.unwrap_or_default());
        let low = self.oldest_held().map_or(self.recent, |held| held.min(self.recent));
        let returned_at_ms = *self.returned_at_ms.get_or_insert(uptime_ms.saturating_add(self.return_ms));
        // One entry beyond the maximum age is enough.
        while self.past.get(1).is_some_and(|(then, _)| then + self.age_ms_max <= uptime_ms) {
            self.past.pop_front();
        }
        let proposed = if uptime_ms < returned_at_ms {
            self.readable
        } else {
            self.raised(low.max(oldest.unwrap_or_default()))
        };
        self.proposed = proposed.low;
        proposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Snapshots {
        /// Ticks, and sets the mark as proposed.
        fn advance(&mut self, uptime_ms: u64, last: Timestamp) {
            self.readable = self.tick(uptime_ms, last);
        }
    }

    #[test]
    fn the_mark_follows_the_grace_time_and_stops_at_held_snapshots() {
        let mut snapshots = Snapshots::new(1_000, 60_000, Timestamp(5));
        for uptime in (0..=1_000).step_by(50) {
            snapshots.advance(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(100));
        snapshots.hold(1, [Some(Timestamp(300)), None], false);
        snapshots.hold(2, [Some(Timestamp(400)), None], false);
        for uptime in (1_050..=10_000).step_by(50) {
            snapshots.advance(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(300));
        snapshots.hold(1, [None; 2], false);
        snapshots.advance(10_050, Timestamp(10_150));
        assert_eq!(snapshots.low(), Timestamp(400));
        // Snapshots at the maximum age expire.
        for uptime in (10_100..=60_300).step_by(50) {
            snapshots.advance(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(400));
        for uptime in (60_350..=70_000).step_by(50) {
            snapshots.advance(uptime, Timestamp(100 + uptime));
        }
        assert_eq!(snapshots.low(), Timestamp(69_100));
        // The mark never goes back.
        snapshots.hold(3, [Some(Timestamp(1)), None], false);
        snapshots.advance(70_050, Timestamp(70_150));
        assert_eq!(snapshots.low(), Timestamp(69_150));
        assert!(snapshots.past.len() <= 1_202);
    }

    #[test]
    fn snapshots_between_the_oldest_and_the_next_are_not_readable() {
        let mut snapshots = Snapshots::new(1_000, 60_000, Timestamp(5));
        let mut now = 0;
        let mut pass = |snapshots: &mut Snapshots, until: u64| {
            while now < until {
                now += 50;
                snapshots.advance(now, Timestamp(now));
            }
            let Readable { low, next } = snapshots.readable();
            (low.0, next.0)
        };
        assert_eq!(pass(&mut snapshots, 2_000), (1_000, 1_000));
        snapshots.hold(1, [Some(Timestamp(1_500)), None], false);
        assert_eq!(pass(&mut snapshots, 2_200), (1_200, 1_200));
        // Recent snapshots are still within the grace time.
        assert_eq!(pass(&mut snapshots, 3_000), (1_500, 2_000));
        snapshots.hold(2, [Some(Timestamp(2_500)), Some(Timestamp(2_600))], false);
        assert_eq!(pass(&mut snapshots, 10_000), (1_500, 2_500));
        let reads = |snapshots: &Snapshots, at| snapshots.readable().contains(Timestamp(at));
        assert_eq!(
            [1_499, 1_500, 1_501, 2_499, 2_500].map(|at| reads(&snapshots, at)),
            [false, true, false, false, true]
        );
        // A report that comes too late holds nothing, and the mark does not stop at it.
        snapshots.hold(3, [Some(Timestamp(1_700)), None], false);
        snapshots.hold(1, [Some(Timestamp(2_550)), None], false);
        assert_eq!(pass(&mut snapshots, 10_100), (2_500, 2_550));
        snapshots.hold(2, [Some(Timestamp(2_600)), None], false);
        assert_eq!(pass(&mut snapshots, 10_200), (2_550, 2_600));
        snapshots.readable = snapshots.cancel_before(Timestamp(2_560));
        assert_eq!(
            (snapshots.readable(), snapshots.cancelled()),
            (Readable { low: Timestamp(2_600), next: Timestamp(9_200) }, 1)
        );
        // The maximum age.
        assert_eq!(pass(&mut snapshots, 70_000), (69_000, 69_000));
    }

    /// The mark at 1,500, the next snapshot at 2,500, and the report of a second connection that
    /// was away meanwhile.
    fn with_a_gap(oldest: [Option<u64>; 2], more: bool) -> Snapshots {
        let mut snapshots = Snapshots::new(1_000, 60_000, Timestamp(5));
        snapshots.hold(1, [Some(Timestamp(1_500)), Some(Timestamp(2_500))], false);
        for uptime in (0..=10_000).step_by(50) {
            snapshots.advance(uptime, Timestamp(uptime));
        }
        assert_eq!(marks(&snapshots), (1_500, 2_500));
        snapshots.hold(1, [Some(Timestamp(2_500)), None], false);
        snapshots.hold(2, oldest.map(|held| held.map(Timestamp)), more);
        snapshots
    }

    fn marks(snapshots: &Snapshots) -> (u64, u64) {
        let Readable { low, next } = snapshots.readable();
        (low.0, next.0)
    }

    fn told_at_last(oldest: [Option<u64>; 2], more: bool) -> (u64, u64) {
        let mut snapshots = with_a_gap(oldest, more);
        snapshots.advance(10_050, Timestamp(10_050));
        let once = marks(&snapshots);
        snapshots.advance(10_100, Timestamp(10_100));
        assert_eq!(once.0, marks(&snapshots).0, "{oldest:?} {more}");
        marks(&snapshots)
    }

    #[test]
    fn unreadable_snapshots_do_not_stop_the_mark() {
        assert_eq!(told_at_last([Some(1_700), None], false), (2_500, 9_100));
        assert_eq!(told_at_last([Some(1_700), Some(1_800)], false), (2_500, 9_100));
        assert_eq!(told_at_last([Some(1_000), Some(1_100)], false), (2_500, 9_100));
        // The first snapshot is between the readable ones, the second is readable.
        assert_eq!(told_at_last([Some(1_700), Some(3_000)], false), (2_500, 3_000));
        assert_eq!(told_at_last([Some(1_500), Some(1_800)], false), (1_500, 2_500));
        // Nor in the gap while an older snapshot is read.
        let mut snapshots = with_a_gap([Some(1_700), Some(3_000)], false);
        snapshots.hold(1, [Some(Timestamp(1_500)), None], false);
        snapshots.advance(10_050, Timestamp(10_050));
        assert_eq!(marks(&snapshots), (1_500, 3_000));
        snapshots.hold(2, [Some(Timestamp(1_700)), Some(Timestamp(1_800))], false);
        snapshots.advance(10_100, Timestamp(10_100));
        assert_eq!(marks(&snapshots), (1_500, 9_100));
    }

    /// A third snapshot is above the second: the mark waits where it may be.
    #[test]
    fn unreported_snapshots_are_kept() {
        assert_eq!(told_at_last([Some(1_000), Some(1_100)], true), (1_500, 2_500));
        assert_eq!(told_at_last([Some(1_400), Some(1_500)], true), (1_500, 2_500));
        assert_eq!(told_at_last([Some(1_700), Some(1_800)], true), (2_500, 2_500));
        assert_eq!(told_at_last([Some(2_600), Some(2_700)], true), (2_500, 2_600));
    }

    /// However little is reported, everything before a time can be cancelled.
    #[test]
    fn cancelling_always_raises_the_mark() {
        for (oldest, more) in [
            ([Some(1_700), Some(1_800)], true),
            ([Some(1_000), Some(1_100)], true),
            ([Some(1_500), Some(1_800)], true),
            ([Some(1_500), Some(2_700)], true),
            ([Some(1_700), Some(3_500)], false),
        ] {
            let mut snapshots = with_a_gap(oldest, more);
            for time in [1_600, 2_400, 2_501, 2_800, 3_400, 3_600, 8_000] {
                snapshots.advance(10_050, Timestamp(10_050));
                snapshots.readable = snapshots.cancel_before(Timestamp(time));
                assert!(marks(&snapshots).0 >= time, "{time} of {oldest:?} {more}: {snapshots:?}");
            }
            // A connection whose two snapshots are gone and that has no others holds nothing.
            snapshots.hold(2, oldest.map(|held| held.map(Timestamp)), false);
            snapshots.advance(10_100, Timestamp(10_100));
            assert_eq!(marks(&snapshots), (9_100, 9_100));
        }
    }

    #[test]
    fn readable_snapshots_see_a_version() {
        let readable = Readable { low: Timestamp(10), next: Timestamp(20) };
        for (from, until) in (0..30).flat_map(|from| (from + 1..31).map(move |until| (from, until))) {
            let sees = (from..until).any(|at| readable.contains(Timestamp(at)));
            assert_eq!(readable.sees(Timestamp(from), Timestamp(until)), sees, "{from}..{until}");
        }
    }
}
