//! Hybrid logical clocks (Kulkarni et al., 2014): close to physical time where that behaves, and
//! monotonic where it does not.

use crate::limits::CLOCK_AHEAD_MS_MAX;
use std::fmt;

/// A hybrid logical timestamp: milliseconds since 1970 in the upper 48 bits, and below them a
/// counter that carries into the milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before all other timestamps.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After all other timestamps.
    pub const MAX: Timestamp = Timestamp(u64::MAX);
    /// Highest commit time of a transaction of several servers, in the year 6429. Each participant
    /// must apply whatever time the others have applied, and its clock goes on from there, so it needs
    /// room above.
    pub const DECIDED_MAX: Timestamp = Timestamp(u64::MAX >> 1);

    /// Returns the first timestamp of a millisecond since 1970.
    pub const fn from_ms(ms: u64) -> Timestamp {
        Timestamp(ms << 16)
    }

    /// Returns its millisecond since 1970.
    pub const fn ms(self) -> u64 {
        self.0 >> 16
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ms(), self.0 & 0xffff)
    }
}

/// A timestamp is further in the future than clocks may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "timestamp {given} is {} ms ahead of the server's clock, {ours}; the limit is {CLOCK_AHEAD_MS_MAX} ms: set the clock",
    given.ms().saturating_sub(ours.ms())
)]
pub struct TooFarAhead {
    /// The timestamp that was refused.
    pub given: Timestamp,
    /// The time of the server's clock.
    pub ours: Timestamp,
}

/// A hybrid logical clock. It never goes back.
///
/// The caller passes physical time in milliseconds since 1970; a value below an earlier one is
/// harmless.
///
/// ```
/// use yesquel_model::{HybridClock, Timestamp};
///
/// let mut clock = HybridClock::default();
/// let snapshot = clock.now(5_000);
/// assert_eq!(snapshot, Timestamp::from_ms(5_000));
/// // A later commit is above every snapshot given, even if physical time stands still or goes back.
/// assert!(clock.tick(4_000) > snapshot);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct HybridClock {
    last: Timestamp,
}

impl HybridClock {
    /// Creates a clock that starts above a timestamp, as after a restart.
    pub fn above(last: Timestamp) -> HybridClock {
        HybridClock { last }
    }

    /// Highest timestamp that the clock has given or seen.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// Returns a snapshot timestamp: at or above every timestamp given and seen.
    pub fn now(&mut self, physical_ms: u64) -> Timestamp {
        self.last = self.last.max(Timestamp::from_ms(physical_ms));
        self.last
    }

    /// Returns a commit timestamp: above every timestamp given and seen.
    pub fn tick(&mut self, physical_ms: u64) -> Timestamp {
        self.now(physical_ms);
        self.last.0 += 1;
        self.last
    }

    /// Advances the clock to a timestamp from another machine, unless it is above the last timestamp
    /// and more than [`CLOCK_AHEAD_MS_MAX`] ahead of physical time. Timestamps alone therefore never
    /// move the clock further ahead, however often they are repeated.
    pub fn witness(&mut self, given: Timestamp, physical_ms: u64) -> Result<(), TooFarAhead> {
        if given <= self.last {
            return Ok(());
        }
        if given.ms() > physical_ms.saturating_add(CLOCK_AHEAD_MS_MAX) {
            return Err(TooFarAhead { given, ours: Timestamp::from_ms(physical_ms) });
        }
        self.last = given;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Now(u64),
        Tick(u64),
        Witness(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let physical = 0..3000u64;
        let step = prop_oneof![
            physical.clone().prop_map(Step::Now),
            physical.clone().prop_map(Step::Tick),
            (0..4000u64 << 16, physical).prop_map(|(given, physical)| Step::Witness(given, physical)),
        ];
        prop::collection::vec(step, 0..100)
    }

    proptest! {
        /// Checks the clock against the list of all timestamps given and seen.
        #[test]
        fn commits_exceed_and_snapshots_are_at_least_all_earlier_times(steps in steps()) {
            let (mut clock, mut highest, mut physical_max) = (HybridClock::default(), Timestamp::ZERO, 0);
            for step in steps {
                match step {
                    Step::Now(physical) => {
                        let snapshot = clock.now(physical);
                        prop_assert!(snapshot >= highest && snapshot.ms() >= physical);
                        highest = snapshot;
                        physical_max = physical_max.max(physical);
                    }
                    Step::Tick(physical) => {
                        let commit = clock.tick(physical);
                        prop_assert!(commit > highest && commit.ms() >= physical);
                        highest = commit;
                        physical_max = physical_max.max(physical);
                    }
                    Step::Witness(given, physical) => {
                        let given = Timestamp(given);
                        let far = given > highest && given.ms() > physical + CLOCK_AHEAD_MS_MAX;
                        prop_assert_eq!(clock.witness(given, physical).is_err(), far);
                        if !far {
                            highest = highest.max(given);
                        }
                    }
                }
                prop_assert_eq!(clock.last(), highest);
            }
        }
    }

    #[test]
    fn the_counter_carries_into_milliseconds() {
        let mut clock = HybridClock::above(Timestamp(0x1_ffff));
        assert_eq!(clock.tick(0), Timestamp(0x2_0000));
        assert_eq!(clock.tick(1), Timestamp(0x2_0001));
        assert_eq!(Timestamp(0x2_0001).to_string(), "2.1");
    }

    #[test]
    fn a_timestamp_far_ahead_is_refused_with_both_times() {
        let mut clock = HybridClock::default();
        let error = clock.witness(Timestamp::from_ms(1_501), 1_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timestamp 1501.0 is 501 ms ahead of the server's clock, 1000.0; the limit is 500 ms: set the clock"
        );
        assert_eq!(clock.last(), Timestamp::ZERO);
        clock.witness(Timestamp::from_ms(1_500), 1_000).unwrap();
    }

    #[test]
    fn repeated_timestamps_do_not_move_the_clock_away_from_physical_time() {
        let mut clock = HybridClock::default();
        let mut refused = 0;
        for _ in 0..100 {
            let ahead = Timestamp::from_ms(clock.now(1_000).ms() + 499);
            refused += u32::from(clock.witness(ahead, 1_000).is_err());
        }
        assert_eq!((clock.last(), refused), (Timestamp::from_ms(1_499), 99));
        // The clock may be ahead for another reason: what it has given is accepted.
        let mut clock = HybridClock::above(Timestamp::from_ms(9_000));
        clock.witness(Timestamp::from_ms(9_000), 1_000).unwrap();
        clock.witness(Timestamp::from_ms(9_001), 1_000).unwrap_err();
    }
}
