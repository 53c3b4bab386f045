//! Instants of several clocks and their order.

use serde::{Deserialize, Serialize};

/// Clock of one process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum PartClock {
    /// The clock that all instants are converted to.
    #[default]
    Common,
    /// Measured offsets, in rising order of time.
    Known(Vec<OffsetSample>),
    /// An unknown offset: its instants can only be compared with each other.
    Unknown,
}

/// Offset of a clock from the common clock at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OffsetSample {
    /// The instant, ns of the process's clock.
    pub at: u64,
    /// How far the clock was ahead, ns; negative if it was behind.
    pub ahead: f64,
    /// Largest difference from the true offset, ns.
    pub error: f64,
    /// Growth of the error per second before or after, ns.
    pub drift: f64,
}

impl OffsetSample {
    fn error_at(&self, instant: u64) -> f64 {
        self.error + self.at.abs_diff(instant) as f64 / 1e9 * self.drift
    }
}

/// Number of offsets before and after an instant that are considered.
const NEAR: usize = 3;

/// An instant of the common clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClockInstant {
    /// ns.
    pub(crate) at: i64,
    /// ns of its own clock. Two instants of one clock are compared by this.
    own: i64,
    /// Largest error, ns; infinite if the clock is unknown.
    pub(crate) error: f64,
    /// The clock that it was taken from.
    pub(crate) clock: usize,
}

/// Three-valued truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certainty {
    Yes,
    No,
    Open,
}

impl PartClock {
    pub(crate) fn moment(&self, clock: usize, instant: u64) -> ClockInstant {
        let own = i64::try_from(instant).unwrap_or(i64::MAX);
        match self {
            PartClock::Common => ClockInstant { at: own, own, error: 0.0, clock },
            PartClock::Unknown => ClockInstant { at: own, own, error: f64::INFINITY, clock },
            PartClock::Known(offsets) => {
                let after = offsets.partition_point(|offset| offset.at < instant);
                let near = offsets.get(after.saturating_sub(NEAR)..(after + NEAR).min(offsets.len()));
                let best = near
                    .unwrap_or_default()
                    .iter()
                    .min_by(|a, b| a.error_at(instant).total_cmp(&b.error_at(instant)));
                match best {
                    None => ClockInstant { at: own, own, error: f64::INFINITY, clock },
                    Some(offset) => ClockInstant {
                        at: own.saturating_sub(offset.ahead as i64),
                        own,
                        error: offset.error_at(instant),
                        clock,
                    },
                }
            }
        }
    }
}

impl ClockInstant {
    /// Returns the largest error of the difference of two instants, ns.
    pub(crate) fn error_to(self, other: ClockInstant) -> f64 {
        if self.clock == other.clock { 0.0 } else { self.error + other.error }
    }

    /// Returns whether this was before the other, or at the same time.
    pub(crate) fn before(self, other: ClockInstant) -> Certainty {
        let (error, span) = (self.error_to(other), self.span_to(other) as f64);
        if span >= error {
            Certainty::Yes
        } else if span < -error {
            Certainty::No
        } else {
            Certainty::Open
        }
    }

    /// Returns the ns from this to the other; negative if the other was earlier.
    pub(crate) fn span_to(self, other: ClockInstant) -> i64 {
        if self.clock == other.clock {
            other.own.saturating_sub(self.own)
        } else {
            other.at.saturating_sub(self.at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_one_clock_compare_exactly_and_of_two_within_their_errors() {
        let offsets = vec![OffsetSample { at: 1000, ahead: 500.0, error: 10.0, drift: 0.0 }];
        let (a, b) = (PartClock::Common, PartClock::Known(offsets));
        let (x, y) = (a.moment(0, 500), b.moment(1, 1005));
        assert_eq!((x.span_to(y), x.before(y), y.before(x)), (5, Certainty::Open, Certainty::Open));
        let z = b.moment(1, 1010);
        assert_eq!(
            (x.before(z), z.before(x), y.before(z), z.before(y)),
            (Certainty::Yes, Certainty::Open, Certainty::Yes, Certainty::No)
        );
        let nothing = PartClock::Unknown.moment(2, 1);
        assert_eq!((nothing.before(x), x.before(nothing)), (Certainty::Open, Certainty::Open));
        assert_eq!(nothing.before(PartClock::Unknown.moment(2, 2)), Certainty::Yes);
    }

    #[test]
    fn the_offset_with_the_smallest_error_counts() {
        let offset = |at, error| OffsetSample { at, ahead: at as f64, error, drift: 1e9 };
        let clock = PartClock::Known(vec![offset(100, 1.0), offset(200, 50.0), offset(300, 1.0)]);
        assert_eq!([90, 201, 290].map(|at| clock.moment(0, at).at), [-10, 1, -10]);
        // Of one clock, whatever offsets are nearest.
        assert_eq!(clock.moment(0, 90).span_to(clock.moment(0, 201)), 111);
        assert_eq!(clock.moment(0, 201).error, 51.0);
    }
}
