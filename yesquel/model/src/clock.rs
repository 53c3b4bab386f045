//! Hybrid logical clocks (Kulkarni et al., 2014): close to physical time where
//! that behaves, in order where it does not.

use crate::limits::CLOCK_AHEAD_MS_MAX;
use std::fmt;

/// A moment: milliseconds since 1970 in the upper 48 bits, below them a
/// counter that carries into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before everything.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After everything.
    pub const MAX: Timestamp = Timestamp(u64::MAX);
    /// Highest commit time of a transaction of several servers, in the year 6429. Each participant
    /// must apply whatever time the others have applied, and its clock goes on from there, so it needs
    /// room above.
    pub const DECIDED_MAX: Timestamp = Timestamp(u64::MAX >> 1);

    /// The first moment of a millisecond since 1970.
    pub const fn from_ms(ms: u64) -> Timestamp {
        Timestamp(ms << 16)
    }

    /// Its millisecond since 1970.
    pub const fn ms(self) -> u64 {
        self.0 >> 16
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ms(), self.0 & 0xffff)
    }
}

/// A timestamp was further in the future than clocks may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the time {given} is {} ms ahead of the server's, {ours}; at most {CLOCK_AHEAD_MS_MAX} ms are taken: set the clock",
    given.ms().saturating_sub(ours.ms())
)]
pub struct TooFarAhead {
    /// What was refused.
    pub given: Timestamp,
    /// What the clock says.
    pub ours: Timestamp,
}

/// A hybrid logical clock. It never goes back.
///
/// Physical time is handed in, in milliseconds since 1970; a value below an
/// earlier one is harmless.
///
/// ```
/// use yesquel_model::{Clock, Timestamp};
///
/// let mut clock = Clock::default();
/// let snapshot = clock.now(5_000);
/// assert_eq!(snapshot, Timestamp::from_ms(5_000));
/// // What commits later is above every snapshot given, even if time stands still or goes back.
/// assert!(clock.tick(4_000) > snapshot);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    last: Timestamp,
}

impl Clock {
    /// A clock that begins above a moment, as after a restart.
    pub fn above(last: Timestamp) -> Clock {
        Clock { last }
    }

    /// The highest timestamp that it has given or seen.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// A snapshot: at or above all that was given and seen.
    pub fn now(&mut self, physical_ms: u64) -> Timestamp {
        self.last = self.last.max(Timestamp::from_ms(physical_ms));
        self.last
    }

    /// A commit: above all that was given and seen.
    pub fn tick(&mut self, physical_ms: u64) -> Timestamp {
        self.now(physical_ms);
        self.last.0 += 1;
        self.last
    }

    /// Takes note of a timestamp that comes from elsewhere, unless it is more
    /// than [`CLOCK_AHEAD_MS_MAX`] ahead.
    pub fn witness(&mut self, given: Timestamp, physical_ms: u64) -> Result<(), TooFarAhead> {
        let ours = self.last.max(Timestamp::from_ms(physical_ms));
        if given.ms() > ours.ms().saturating_add(CLOCK_AHEAD_MS_MAX) {
            return Err(TooFarAhead { given, ours });
        }
        self.last = self.last.max(given);
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
        /// The law, against the list of everything given and seen.
        #[test]
        fn commits_are_above_and_snapshots_not_below_all_before(steps in steps()) {
            let (mut clock, mut highest, mut physical_max) = (Clock::default(), Timestamp::ZERO, 0);
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
                        let far = given.ms() > highest.ms().max(physical) + CLOCK_AHEAD_MS_MAX;
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
        let mut clock = Clock::above(Timestamp(0x1_ffff));
        assert_eq!(clock.tick(0), Timestamp(0x2_0000));
        assert_eq!(clock.tick(1), Timestamp(0x2_0001));
        assert_eq!(Timestamp(0x2_0001).to_string(), "2.1");
    }

    #[test]
    fn a_stamp_of_the_far_future_is_refused_with_both_times() {
        let mut clock = Clock::default();
        let error = clock.witness(Timestamp::from_ms(1_501), 1_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the time 1501.0 is 501 ms ahead of the server's, 1000.0; at most 500 ms are taken: set the clock"
        );
        assert_eq!(clock.last(), Timestamp::ZERO);
        clock.witness(Timestamp::from_ms(1_500), 1_000).unwrap();
    }
}
