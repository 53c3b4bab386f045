//! Offsets between the monotonic clocks of two machines.
//!
//! The coordinator sends its time t0, the client answers with its own time t1, and
//! the answer arrives at t2. Whatever the delay of either direction,
//!
//! ```text
//! offset = t1 - (t0 + t2) / 2        error <= (t2 - t0) / 2
//! ```
//!
//! Of several exchanges, the one with the shortest round trip has the smallest
//! error (the minimum round-trip filter of Mills, "Internet Time Synchronization:
//! The Network Time Protocol", RFC 1129, 1989). Clocks drift: the error of an
//! exchange grows by [`DRIFT`] with its age.

use std::collections::VecDeque;

/// Largest relative drift of two quartz clocks, ns per second.
pub const DRIFT: f64 = 100_000.0;

/// Number of exchanges that are kept: four minutes at one a second.
const EXCHANGES_MAX: usize = 256;

/// A request for the client's time, and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Instant of the request, ns of the coordinator's clock.
    pub asked: u64,
    /// Instant of the answer, ns of the client's clock.
    pub answered: u64,
    /// Instant of the answer's arrival, ns of the coordinator's clock.
    pub received: u64,
}

impl Exchange {
    /// Returns the round trip, ns.
    pub fn round_trip(&self) -> u64 {
        self.received.saturating_sub(self.asked)
    }

    /// Returns the instant at which the client is assumed to have answered, ns of
    /// the coordinator's clock.
    pub fn middle(&self) -> u64 {
        self.asked + self.round_trip() / 2
    }

    /// Returns the offset at [`middle`](Self::middle).
    pub fn offset(&self) -> ClockOffset {
        let middle = self.middle();
        let ahead = if self.answered >= middle {
            (self.answered - middle) as f64
        } else {
            -((middle - self.answered) as f64)
        };
        // Half a nanosecond for rounding of the middle.
        ClockOffset { ahead, error: self.round_trip() as f64 / 2.0 + 0.5 }
    }
}

/// Offset of a client's clock from the coordinator's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockOffset {
    /// Time by which the client's clock is ahead, ns; negative if it is behind.
    pub ahead: f64,
    /// Largest difference from the true offset, ns.
    pub error: f64,
}

impl ClockOffset {
    /// Converts an instant of the coordinator's clock to the client's, ns.
    pub fn to_client(self, coordinator: u64) -> u64 {
        add(coordinator, self.ahead)
    }

    /// Converts an instant of the client's clock to the coordinator's, ns.
    pub fn to_coordinator(self, client: u64) -> u64 {
        add(client, -self.ahead)
    }
}

fn add(instant: u64, span: f64) -> u64 {
    // Offsets are differences of uptimes. An f64 is exact up to 2^53 ns, a hundred days.
    if span < 0.0 { instant.saturating_sub(-span as u64) } else { instant.saturating_add(span as u64) }
}

/// The best recent exchanges with one client's clock.
#[derive(Debug, Clone, Default)]
pub struct OffsetFilter {
    exchanges: Vec<Exchange>,
    next: usize,
}

impl OffsetFilter {
    /// Adds an exchange. Ignores one whose answer arrived before its request.
    pub fn add(&mut self, exchange: Exchange) {
        if exchange.received < exchange.asked {
            return;
        }
        if self.exchanges.len() < EXCHANGES_MAX {
            self.exchanges.push(exchange);
        } else {
            self.exchanges[self.next % EXCHANGES_MAX] = exchange;
        }
        self.next += 1;
    }

    /// Returns the shortest round trip, ns.
    pub fn round_trip_min(&self) -> Option<u64> {
        self.exchanges.iter().map(Exchange::round_trip).min()
    }

    /// Returns the offset at an instant of the coordinator's clock, of the
    /// exchange whose error, drift included, is smallest then. `None` before the
    /// first exchange.
    pub fn at(&self, instant: u64) -> Option<ClockOffset> {
        self.exchanges
            .iter()
            .map(|exchange| {
                let apart_s = exchange.middle().abs_diff(instant) as f64 / 1e9;
                let offset = exchange.offset();
                ClockOffset { error: offset.error + apart_s * DRIFT, ..offset }
            })
            .min_by(|a, b| a.error.total_cmp(&b.error))
    }
}

/// Offsets of one clock during a run: the best exchange of each span of a few seconds.
#[derive(Debug, Clone, Default)]
pub struct ClockTrack {
    best: Vec<Exchange>,
    /// Number of the last exchange's span, from 0.
    span: u64,
}

impl ClockTrack {
    /// Length of a span, ns.
    const SPAN: u64 = 5_000_000_000;

    /// Maximum number of spans: 14 hours.
    const SPANS_MAX: usize = 10_000;

    /// Adds an exchange.
    pub fn add(&mut self, exchange: Exchange) {
        if exchange.received < exchange.asked {
            return;
        }
        let span = exchange.middle() / Self::SPAN;
        let full = self.best.len() >= Self::SPANS_MAX;
        match self.best.last_mut() {
            Some(last) if self.span == span && exchange.round_trip() >= last.round_trip() => {}
            Some(last) if self.span == span => *last = exchange,
            _ if !full => {
                self.span = span;
                self.best.push(exchange);
            }
            _ => {}
        }
    }

    /// Returns instants of the client's clock, ns, in rising order, and the offset at each.
    pub fn offsets(&self) -> Vec<(u64, ClockOffset)> {
        self.best.iter().map(|exchange| (exchange.answered, exchange.offset())).collect()
    }
}

/// Maximum number of time requests in flight. The answers of more would queue at the coordinator,
/// and queueing counts as round trip.
const IN_FLIGHT_MAX: usize = 32;

/// Queue of clients whose time is to be requested; limits the requests in flight.
#[derive(Debug, Default)]
pub struct Asking {
    in_flight: usize,
    waiting: VecDeque<usize>,
}

impl Asking {
    /// Adds a client. Returns whether to send it a request now.
    #[must_use]
    pub fn want(&mut self, client: usize) -> bool {
        let now = self.in_flight < IN_FLIGHT_MAX;
        if now {
            self.in_flight += 1;
        } else {
            self.waiting.push_back(client);
        }
        now
    }

    /// Handles an answer. Returns the client to send a request to now.
    #[must_use]
    pub fn answered(&mut self) -> Option<usize> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let next = self.waiting.pop_front()?;
        self.in_flight += 1;
        Some(next)
    }

    /// Forgets the requests in flight, some of them never answered, and the queue.
    pub fn forget(&mut self) {
        *self = Asking::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_in_the_document_is_correct() {
        let mut filter = OffsetFilter::default();
        filter.add(Exchange { asked: 100_000_000, answered: 7_340_120_000, received: 100_400_000 });
        let offset = filter.at(100_200_000).unwrap();
        assert_eq!((offset.ahead, offset.error), (7_239_920_000.0, 200_000.5));
        assert_eq!(offset.to_client(400_000_000), 7_639_920_000);
    }

    #[test]
    fn few_clients_are_asked_at_a_time_and_all_in_turn() {
        let mut asking = Asking::default();
        let mut asked: Vec<usize> = (0..100).filter(|client| asking.want(*client)).collect();
        assert_eq!(asked.len(), IN_FLIGHT_MAX);
        asked.extend(std::iter::from_fn(|| asking.answered()));
        assert_eq!(asked, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn offsets_are_unknown_before_the_first_exchange_and_invalid_exchanges_are_ignored() {
        let mut filter = OffsetFilter::default();
        assert_eq!(filter.at(0), None);
        filter.add(Exchange { asked: 2, answered: 9, received: 1 });
        assert_eq!(filter.at(0), None);
    }

    #[test]
    fn a_track_keeps_the_best_exchange_of_each_span() {
        let mut track = ClockTrack::default();
        for (asked, back) in [(0, 900), (1_000, 100), (2_000, 500), (7_000_000_000, 700)] {
            track.add(Exchange { asked, answered: asked + 50, received: asked + back });
        }
        let offsets = track.offsets();
        assert_eq!(offsets.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1_050, 7_000_000_050]);
        assert_eq!(offsets[0].1, ClockOffset { ahead: 0.0, error: 50.5 });
    }

    proptest! {
        /// Whatever the delays and the drift within its bound, the true offset
        /// lies within the error.
        #[test]
        fn the_true_offset_is_within_the_error(
            ahead in -1e15f64..1e15,
            drift in -DRIFT..DRIFT,
            ways in proptest::collection::vec((0u64..20_000_000_000, 0u64..5_000_000, 0u64..5_000_000), 1..40),
            when in 0u64..30_000_000_000,
        ) {
            const BASE: u64 = 2_000_000_000_000_000;
            let truth = |at: u64| ahead + drift * (at - BASE) as f64 / 1e9;
            let mut filter = OffsetFilter::default();
            for (asked, there, back) in ways {
                let asked = BASE + asked;
                let reached = asked + there;
                filter.add(Exchange { asked, answered: add(reached, truth(reached)), received: reached + back });
            }
            let offset = filter.at(BASE + when).unwrap();
            let off = (offset.ahead - truth(BASE + when)).abs();
            // The clocks drift during the delay too.
            prop_assert!(off <= offset.error + 2_000.0, "{off} > {}", offset.error);
        }

        #[test]
        fn conversion_to_another_clock_and_back_returns_the_instant(ahead in -1e12f64..1e12, instant in 2_000_000_000_000u64..4_000_000_000_000) {
            let offset = ClockOffset { ahead: ahead.trunc(), error: 0.0 };
            prop_assert_eq!(offset.to_coordinator(offset.to_client(instant)), instant);
        }
    }
}
