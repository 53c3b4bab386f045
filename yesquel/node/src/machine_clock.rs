//! Machine time: a wall clock whose jumps do not reach the timestamps.

use yesquel_engine::Now;

/// Machine time follows the wall clock, but by at most a tenth faster or slower than the monotonic
/// clock. A wall clock that jumps by an hour therefore moves it slowly; a start takes the wall clock
/// as it is.
///
/// ```
/// use yesquel_engine::Now;
/// use yesquel_node::MachineClock;
///
/// let mut clock = MachineClock::default();
/// assert_eq!(clock.read(Now { wall_ms: 5_000, uptime_ms: 0 }).wall_ms, 5_000);
/// // An hour ahead within a second.
/// assert_eq!(clock.read(Now { wall_ms: 3_606_000, uptime_ms: 1_000 }).wall_ms, 6_100);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineClock {
    /// The last reading: machine time in tenths of a millisecond, and the monotonic clock.
    last: Option<(u64, u64)>,
}

impl MachineClock {
    /// Returns the time with the wall clock replaced by machine time.
    pub fn read(&mut self, Now { wall_ms, uptime_ms }: Now) -> Now {
        let wall = wall_ms.saturating_mul(10);
        let machine = match self.last {
            None => wall,
            Some((machine, before_ms)) => {
                let elapsed = uptime_ms.saturating_sub(before_ms);
                wall.clamp(machine + 9 * elapsed, machine + 11 * elapsed)
            }
        };
        self.last = Some((machine, uptime_ms));
        Now { wall_ms: machine / 10, uptime_ms }
    }

    /// Takes the wall clock as it is, after a comparison with other machines.
    pub fn set(&mut self, clocks: Now) {
        self.last = None;
        self.read(clocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(clock: &mut MachineClock, wall_ms: u64, uptime_ms: u64) -> u64 {
        clock.read(Now { wall_ms, uptime_ms }).wall_ms
    }

    #[test]
    fn small_corrections_of_the_wall_clock_are_followed() {
        let mut clock = MachineClock::default();
        for uptime in 0..1_000 {
            // The wall clock gains five per cent.
            let wall = 10_000 + uptime + uptime / 20;
            assert!(read(&mut clock, wall, uptime).abs_diff(wall) <= 1);
        }
    }

    #[test]
    fn jumps_are_followed_by_a_tenth_of_the_time_that_passes() {
        let mut clock = MachineClock::default();
        assert_eq!(read(&mut clock, 10_000, 0), 10_000);
        let ahead = (1..=100).map(|uptime| read(&mut clock, 9_000_000 + uptime, uptime)).last();
        assert_eq!(ahead, Some(10_110));
        let behind = (101..=200).map(|uptime| read(&mut clock, uptime, uptime)).last();
        assert_eq!(behind, Some(10_200));
        clock.set(Now { wall_ms: 77, uptime_ms: 201 });
        assert_eq!(read(&mut clock, 78, 202), 78);
    }
}
