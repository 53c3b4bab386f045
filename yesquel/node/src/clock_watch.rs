//! Comparison of a machine's wall clock with those of its peers.
//! `docs/yesquel/cluster/time.md` has the reasons.

use std::{collections::BTreeMap, fmt};
use yesquel_engine::Now;
use yesquel_model::ServerId;
use yesquel_wire::status::PeerClock;

/// Largest difference from the median of the clocks, in milliseconds. Two servers that serve
/// differ by at most twice as much, which leaves room below the limit for timestamps of requests.
const DIFFERENCE_MS_MAX: u64 = 100;
/// Age in milliseconds beyond which a comparison does not count.
const VALID_MS: u64 = 2_000;
/// Time in milliseconds after a start for which a server waits for its peers. After that it serves
/// by its own clock: clocks that cannot be compared must not keep a cluster down.
const WAIT_MS: u64 = 10_000;

/// Interval in milliseconds of the judgements.
const JUDGE_EVERY_MS: u64 = 20;

/// What the comparison says about this machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockState {
    /// Too few peers have answered yet.
    Comparing,
    /// The clock is near the median, or there are no peers.
    Agrees,
    /// Too few peers can be reached; the server goes on by its own clock.
    Alone,
    /// The clock differs from the others: the server must not serve.
    Differs {
        /// How far it is ahead, in milliseconds; negative: behind.
        ahead_ms: i64,
    },
}

impl ClockState {
    /// Whether the server may serve.
    pub fn serves(self) -> bool {
        matches!(self, ClockState::Agrees | ClockState::Alone)
    }
}

impl fmt::Display for ClockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockState::Comparing => f.write_str("its clock is being compared with those of other servers"),
            ClockState::Agrees => f.write_str("its clock agrees with those of other servers"),
            ClockState::Alone => f.write_str("its clock cannot be compared with those of other servers"),
            ClockState::Differs { ahead_ms } => {
                let side = if *ahead_ms < 0 { "behind" } else { "ahead of" };
                write!(f, "its clock is {} ms {side} those of other servers: set it", ahead_ms.unsigned_abs())
            }
        }
    }
}

/// A comparison with another machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct ComparedClock {
    /// First group of the other machine.
    pub peer: ServerId,
    /// Its wall clock.
    pub wall_ms: u64,
    /// Time between question and answer.
    pub round_trip_ms: u64,
    /// The own clocks at the answer.
    pub received: Now,
}

/// A comparison with a peer, as it is kept.
#[derive(Debug, Clone, Copy)]
struct ClockComparison {
    /// The peer's wall clock less the own monotonic clock. The own wall clock is not part of it, so
    /// that its jumps show at once, in all comparisons.
    base_ms: i64,
    /// Half of the round trip.
    error_ms: u64,
    /// Monotonic clock at the comparison.
    at_ms: u64,
}

/// A wall clock less a monotonic one.
fn base_ms(clocks: Now) -> i64 {
    i64::try_from(i128::from(clocks.wall_ms) - i128::from(clocks.uptime_ms)).unwrap_or(i64::MAX)
}

/// The comparisons of a server.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    server: ServerId,
    /// Number of the other servers.
    peers: usize,
    /// Time in milliseconds after the start for which the server waits for them.
    wait_ms: u64,
    comparisons: BTreeMap<ServerId, ClockComparison>,
    state: ClockState,
    judged_at_ms: u64,
}

impl ClockWatch {
    pub(crate) fn new(server: ServerId, peers: usize) -> ClockWatch {
        let state = if peers == 0 { ClockState::Agrees } else { ClockState::Comparing };
        ClockWatch { server, peers, wait_ms: WAIT_MS, comparisons: BTreeMap::new(), state, judged_at_ms: 0 }
    }

    /// Shortens the wait for the other servers: those that are not up wait for this one.
    pub(crate) fn wait_for(&mut self, wait_ms: u64) {
        self.wait_ms = wait_ms;
    }

    /// Sets the number of the other servers, of which some have joined or left. A server that serves
    /// goes on.
    pub(crate) fn set_peers(&mut self, peers: usize) {
        self.peers = peers;
    }

    /// Forgets a server, which has left.
    pub(crate) fn forget(&mut self, peer: ServerId) {
        self.comparisons.remove(&peer);
    }

    /// Whether the clock must be judged again.
    pub(crate) fn is_due(&self, clocks: Now) -> bool {
        self.peers > 0 && clocks.uptime_ms >= self.judged_at_ms + JUDGE_EVERY_MS
    }

    pub(crate) fn state(&self) -> ClockState {
        self.state
    }

    /// How far each peer's clock is ahead of the own one, by the last comparison.
    pub(crate) fn offsets(&self, clocks: Now) -> impl Iterator<Item = PeerClock> {
        let own = base_ms(clocks);
        self.comparisons.iter().map(move |(peer, known)| PeerClock {
            server: peer.0,
            ahead_ms: known.base_ms.saturating_sub(own),
            age_ms: clocks.uptime_ms.saturating_sub(known.at_ms),
        })
    }

    /// Takes a peer's wall clock, which arrived at `received` by the own clocks after a round trip.
    pub(crate) fn compare(&mut self, peer: ServerId, wall_ms: u64, round_trip_ms: u64, received: Now) {
        let uptime_ms = received.uptime_ms.saturating_sub(round_trip_ms / 2);
        let base_ms = base_ms(Now { wall_ms, uptime_ms });
        // Clocks count whole milliseconds.
        let error_ms = round_trip_ms / 2 + 1;
        let at_ms = received.uptime_ms;
        self.comparisons.insert(peer, ClockComparison { base_ms, error_ms, at_ms });
    }

    /// Judges the own clock by the comparisons.
    pub(crate) fn judge(&mut self, clocks: Now) -> ClockState {
        let (own, uptime_ms) = (base_ms(clocks), clocks.uptime_ms);
        self.judged_at_ms = uptime_ms;
        let valid = self.comparisons.iter().filter(|(_, known)| known.at_ms + VALID_MS >= uptime_ms);
        let mut clocks: Vec<(i64, u64)> =
            valid.clone().map(|(_, known)| (known.base_ms.saturating_sub(own), known.error_ms)).collect();
        // Of two servers the one with the higher number gives way.
        let gives_way = valid.map(|(peer, _)| *peer).next().is_some_and(|peer| self.server > peer);
        let is_enough = clocks.len() >= 2 || (self.peers == 1 && clocks.len() == 1);
        self.state = if self.peers == 0 {
            ClockState::Agrees
        } else if is_enough {
            let is_pair = clocks.len() == 1;
            let (offset_ms, error_ms) = match clocks.as_slice() {
                [other] => *other,
                _ => {
                    // The own clock.
                    clocks.push((0, 0));
                    clocks.sort_unstable();
                    median(&clocks)
                }
            };
            let differs = offset_ms.unsigned_abs() > DIFFERENCE_MS_MAX + error_ms;
            match differs && (!is_pair || gives_way) {
                true => ClockState::Differs { ahead_ms: -offset_ms },
                false => ClockState::Agrees,
            }
        } else {
            match self.state {
                ClockState::Comparing if uptime_ms < self.wait_ms => ClockState::Comparing,
                // Known to be wrong, until a comparison says otherwise.
                ClockState::Differs { ahead_ms } => ClockState::Differs { ahead_ms },
                _ => ClockState::Alone,
            }
        };
        self.state
    }
}

/// The median of sorted clocks: of an even number, the one in the middle that is nearer to the own
/// clock.
fn median(clocks: &[(i64, u64)]) -> (i64, u64) {
    let upper = clocks.get(clocks.len() / 2).copied().unwrap_or_default();
    let lower = clocks.get((clocks.len() - 1) / 2).copied().unwrap_or_default();
    if lower.0.unsigned_abs() <= upper.0.unsigned_abs() { lower } else { upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn at(wall_ms: u64, uptime_ms: u64) -> Now {
        Now { wall_ms, uptime_ms }
    }

    /// The state of server 2 after comparisons with peers whose clocks are so far ahead.
    fn judged(offsets: &[i64]) -> ClockState {
        let mut watch = ClockWatch::new(ServerId(2), offsets.len());
        for (peer, offset_ms) in offsets.iter().enumerate() {
            let peer = ServerId([0, 1, 3, 4, 5][peer]);
            watch.compare(peer, (10_000_000 + offset_ms) as u64, 0, at(10_000_000, 1_000));
        }
        watch.judge(at(10_000_000, 1_000))
    }

    #[test]
    fn the_median_of_the_clocks_decides() {
        assert_eq!(judged(&[]), ClockState::Agrees);
        assert_eq!(judged(&[50, -80]), ClockState::Agrees);
        // One clock of three is wrong: another one's, or the own.
        assert_eq!(judged(&[0, HOUR_MS]), ClockState::Agrees);
        assert_eq!(judged(&[-HOUR_MS, -HOUR_MS + 9]), ClockState::Differs { ahead_ms: HOUR_MS - 9 });
        assert_eq!(judged(&[150, 160]), ClockState::Differs { ahead_ms: -150 });
        // Of an even number, the middle that is nearer.
        assert_eq!(judged(&[0, 5, HOUR_MS]), ClockState::Agrees);
        assert_eq!(judged(&[90, HOUR_MS, HOUR_MS]), ClockState::Agrees);
        assert_eq!(judged(&[HOUR_MS, HOUR_MS, HOUR_MS]), ClockState::Differs { ahead_ms: -HOUR_MS });
    }

    #[test]
    fn of_two_servers_the_later_one_gives_way() {
        for (server, serves) in [(0, true), (2, false)] {
            let mut watch = ClockWatch::new(ServerId(server), 1);
            watch.compare(ServerId(1), 10_000, 0, at(20_000, 50));
            assert_eq!(watch.judge(at(20_000, 50)).serves(), serves, "server {server}");
        }
    }

    #[test]
    fn a_round_trip_widens_the_limit() {
        let mut watch = ClockWatch::new(ServerId(2), 1);
        watch.compare(ServerId(1), 1_400, 400, at(1_400, 500));
        assert_eq!(watch.judge(at(1_400, 500)), ClockState::Agrees);
        watch.compare(ServerId(1), 1_400, 10, at(1_010, 500));
        assert_eq!(watch.judge(at(1_010, 500)), ClockState::Differs { ahead_ms: -395 });
    }

    #[test]
    fn a_server_waits_ten_seconds_for_its_peers() {
        let mut watch = ClockWatch::new(ServerId(2), 2);
        assert_eq!(watch.judge(at(1_000, 9_999)), ClockState::Comparing);
        // One of two peers is too few.
        watch.compare(ServerId(1), 9_000_000, 0, at(1_000, 9_999));
        assert_eq!(watch.judge(at(1_000, 9_999)), ClockState::Comparing);
        assert_eq!(watch.judge(at(1_001, 10_000)), ClockState::Alone);
        watch.compare(ServerId(1), 9_000_000, 0, at(1_000, 12_000));
        watch.compare(ServerId(3), 9_000_000, 0, at(1_000, 12_000));
        let differs = ClockState::Differs { ahead_ms: -8_999_000 };
        assert_eq!(watch.judge(at(1_000, 12_000)), differs);
        // A wrong clock stays wrong while no peer answers.
        assert_eq!(watch.judge(at(89_000, 100_000)), differs);
    }

    #[test]
    fn a_server_that_serves_goes_on_when_others_join_and_leave() {
        let mut watch = ClockWatch::new(ServerId(0), 0);
        watch.set_peers(1);
        assert!(watch.judge(at(1_000, 50)).serves());
        watch.compare(ServerId(1), 1_000, 0, at(1_000, 50));
        assert_eq!(watch.judge(at(1_000, 100)), ClockState::Agrees);
        watch.set_peers(2);
        assert!(watch.judge(at(1_000, 100)).serves());
        watch.forget(ServerId(1));
        watch.set_peers(0);
        assert_eq!(watch.judge(at(1_000, 100)), ClockState::Agrees);
        assert_eq!(watch.offsets(at(1_000, 100)).count(), 0);
    }

    #[test]
    fn a_server_that_others_wait_for_waits_less() {
        let mut watch = ClockWatch::new(ServerId(0), 2);
        watch.wait_for(1_000);
        assert_eq!(watch.judge(at(1_000, 999)), ClockState::Comparing);
        assert_eq!(watch.judge(at(1_001, 1_000)), ClockState::Alone);
    }

    #[test]
    fn a_jump_of_the_own_clock_shows_without_another_comparison() {
        let mut watch = ClockWatch::new(ServerId(2), 2);
        for peer in [0, 1] {
            watch.compare(ServerId(peer), 10_000, 0, at(10_000, 50));
        }
        assert_eq!(watch.judge(at(10_100, 150)), ClockState::Agrees);
        let known = |server, ahead_ms| PeerClock { server, ahead_ms, age_ms: 100 };
        assert_eq!(watch.offsets(at(10_100, 150)).collect::<Vec<_>>(), [known(0, 0), known(1, 0)]);
        assert_eq!(watch.judge(at(3_610_150, 200)), ClockState::Differs { ahead_ms: HOUR_MS });
        assert_eq!(watch.judge(at(10_200, 250)), ClockState::Agrees);
    }
}
