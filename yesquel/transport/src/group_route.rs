//! What a sender knows of a group, and how replies correct it.

use crate::{LossCause, LostCall, Transport, wait::was_cancelled};
use std::{str::FromStr, time::Duration};
use yesquel_model::{GroupEpoch, ServerId};
use yesquel_wire::{Correction, Destination};

/// Number of times a request is repeated that replies have corrected.
const REPEATS_MAX: u32 = 8;
/// Pause before a request is repeated although its sender knows no more than before. It doubles
/// each time, to five seconds in all.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Corrections without effect after which a sender forgets the address and the epoch that it knows, which
/// may be wrong.
const USELESS_MAX: u32 = 4;

/// Which attempt a request was whose reply is a correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It was sent once.
    First,
    /// It was corrected before.
    Repeated,
}

/// What a sender knows of a group: its epoch, and where its leader is.
#[derive(Debug, Clone)]
pub struct GroupRoute<A> {
    group: ServerId,
    epoch: GroupEpoch,
    term: u64,
    /// The address that the sender was given first.
    first: Option<A>,
    /// The address in the last reply that named one.
    corrected: Option<A>,
    /// Corrections since the last one with news.
    useless: u32,
}

impl<A: PartialEq + FromStr> GroupRoute<A> {
    /// Creates the route to a group of unknown epoch.
    pub fn new(group: ServerId, address: Option<A>) -> GroupRoute<A> {
        GroupRoute { group, epoch: GroupEpoch::UNKNOWN, term: 0, first: address, corrected: None, useless: 0 }
    }

    /// Returns the destination of requests.
    pub fn destination(&self) -> Destination {
        Destination { group: self.group, epoch: self.epoch }
    }

    /// Returns the address to use.
    pub fn address(&self) -> Option<&A> {
        self.corrected.as_ref().or(self.first.as_ref())
    }

    /// Takes the epoch of a greeting.
    pub fn greeted(&mut self, epoch: GroupEpoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Takes the address of the group's machine, if none is known.
    pub fn found(&mut self, address: &A)
    where
        A: Clone,
    {
        if self.address().is_none() {
            self.first = Some(address.clone());
        }
    }

    /// The address cannot be connected to, or is doubtful: the first one counts again.
    pub fn failed(&mut self) {
        if self.first.is_some() {
            self.corrected = None;
        }
    }

    fn take_address(&mut self, address: &str) {
        if !address.is_empty()
            && let Ok(address) = address.parse()
        {
            self.corrected = Some(address);
        }
    }

    /// Takes the correction of a request. Returns whether the sender knows more than when it sent the
    /// request.
    ///
    /// Of several requests at once, all are corrected, and all but one tell nothing new. So corrections
    /// that agree with what is known are in dispute only for a repeated request.
    pub fn correct(&mut self, correction: &Correction<'_>, attempt: Attempt, is_connected: bool) -> bool {
        let knows_more = match correction {
            Correction::WrongGroup(Some(location)) if location.group == self.group => {
                if attempt == Attempt::First && is_connected && location.epoch == self.epoch {
                    return true;
                }
                let is_new = location.epoch > self.epoch;
                // Where the group is at this epoch; the machine there may have moved. Without a
                // connection to it, another machine was asked.
                let address = location.address.parse::<A>().ok();
                let is_indirect = location.epoch == self.epoch && !is_connected && address.is_some();
                if is_indirect && address == self.corrected {
                    return true;
                }
                let is_elsewhere = is_indirect && address.as_ref() != self.address();
                if is_new || is_elsewhere {
                    self.epoch = location.epoch;
                    self.take_address(location.address);
                }
                is_new || is_elsewhere
            }
            Correction::WrongGroup(_) => false,
            Correction::NotLeader { term, .. } if attempt == Attempt::First && *term == self.term => {
                return true;
            }
            Correction::NotLeader { term, leader } => {
                let is_new = *term > self.term;
                if is_new {
                    self.term = *term;
                    self.take_address(leader);
                }
                is_new
            }
        };
        self.useless = if knows_more { 0 } else { self.useless + 1 };
        if self.useless >= USELESS_MAX {
            (self.epoch, self.term, self.useless) = (GroupEpoch::UNKNOWN, 0, 0);
            self.failed();
        }
        knows_more
    }
}

/// Goes on after a reply that is a [`Correction`]: repeats the request where the group is. Nothing
/// of it was examined before. `repeats` is called for each attempt.
pub async fn repeat_corrected<T: Transport>(
    transport: &T,
    group: ServerId,
    request: &[u8],
    mut reply: Vec<u8>,
    repeats: impl Fn(),
) -> Result<Vec<u8>, LostCall> {
    for repeat in 0..REPEATS_MAX {
        let Some(correction) = Correction::of(&reply) else { return Ok(reply) };
        let attempt = if repeat == 0 { Attempt::First } else { Attempt::Repeated };
        if !transport.correct(group, &correction, attempt) {
            transport.pause(FIRST_PAUSE * (1 << repeat)).await;
            if was_cancelled() {
                return Err(LostCall::cancelled(format!("group {}", group.0)));
            }
        }
        repeats();
        reply = transport.call(group, request).await?;
    }
    match Correction::of(&reply) {
        None => Ok(reply),
        Some(_) => Err(LostCall {
            place: format!("group {}", group.0),
            cause: LossCause::Misdirected,
            why: "no machine that was asked serves it, nor knows where it is".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Attempt::{First, Repeated},
        *,
    };
    use yesquel_wire::GroupLocation;

    const GROUP: ServerId = ServerId(3);

    fn at(index: u64) -> GroupEpoch {
        GroupEpoch { era: 0, index }
    }

    fn located(index: u64, address: &str) -> Correction<'_> {
        Correction::WrongGroup(Some(GroupLocation { group: GROUP, epoch: at(index), address }))
    }

    fn route() -> GroupRoute<String> {
        let mut route = GroupRoute::new(GROUP, Some("first".to_owned()));
        route.greeted(at(5));
        route
    }

    #[test]
    fn only_a_higher_epoch_is_taken() {
        let mut route = route();
        for (index, address) in [(4, "old"), (0, "unknown"), (5, "first")] {
            assert!(!route.correct(&located(index, address), Repeated, true));
            assert_eq!((route.destination().epoch, route.address().unwrap().as_str()), (at(5), "first"));
        }
        assert!(route.correct(&located(6, "next"), Repeated, true));
        assert_eq!((route.destination().epoch, route.address().unwrap().as_str()), (at(6), "next"));
        // An entry without an address keeps the one that is known.
        assert!(route.correct(&located(7, ""), Repeated, true));
        assert_eq!((route.destination().epoch, route.address().unwrap().as_str()), (at(7), "next"));
        let other = GroupLocation { group: ServerId(4), epoch: at(9), address: "x" };
        assert!(!route.correct(&Correction::WrongGroup(Some(other)), Repeated, true));
        // A higher era counts more than any index.
        let recovered = GroupEpoch { era: 1, index: 1 };
        let entry = GroupLocation { group: GROUP, epoch: recovered, address: "" };
        assert!(route.correct(&Correction::WrongGroup(Some(entry)), Repeated, true));
        assert_eq!(route.destination(), Destination { group: GROUP, epoch: recovered });
    }

    #[test]
    fn an_address_of_the_same_epoch_counts_without_a_connection() {
        let mut route = route();
        assert!(!route.correct(&located(5, "moved"), Repeated, true));
        assert!(route.correct(&located(5, "moved"), Repeated, false));
        // Of several requests that were sent at once, all are corrected.
        for _ in 0..2 * USELESS_MAX {
            assert_eq!((route.destination().epoch, route.address().unwrap().as_str()), (at(5), "moved"));
            assert!(route.correct(&located(5, "moved"), Repeated, false));
        }
        assert!(!route.correct(&located(5, "moved"), Repeated, true), "the machine there says so itself");
        route.failed();
        assert_eq!(route.address().unwrap(), "first");
    }

    /// Requests that were sent at once with an old epoch are all corrected. If the sender forgot the
    /// epoch, it would send the next ones without it, and none would ever be examined.
    #[test]
    fn what_requests_at_once_confirm_is_not_forgotten() {
        let mut route = route();
        for index in [6, 7] {
            for _ in 0..4 * USELESS_MAX {
                assert!(route.correct(&located(index, "next"), First, true));
                assert_eq!(route.destination().epoch, at(index));
                assert_eq!(route.address().unwrap(), "next");
            }
        }
        for _ in 0..4 * USELESS_MAX {
            assert!(route.correct(&Correction::NotLeader { term: 2, leader: "b" }, First, true));
        }
        // A machine that names itself and does not serve the group is not asked for ever.
        assert!(route.correct(&located(u64::MAX, "trap"), First, true));
        assert!((0..USELESS_MAX).all(|_| !route.correct(&located(u64::MAX, "trap"), Repeated, true)));
        assert_eq!((route.destination().epoch, route.address().unwrap().as_str()), (at(0), "first"));
    }

    #[test]
    fn only_a_leader_of_a_higher_term_is_taken() {
        let mut route = route();
        assert!(route.correct(&Correction::NotLeader { term: 2, leader: "b" }, Repeated, true));
        for term in [0, 1, 2] {
            assert!(!route.correct(&Correction::NotLeader { term, leader: "c" }, Repeated, true));
            assert_eq!(route.address().unwrap(), "b");
        }
        assert!(route.correct(&Correction::NotLeader { term: 3, leader: "" }, Repeated, true));
        assert_eq!((route.destination().epoch, route.address().unwrap().as_str()), (at(5), "b"));
    }

    /// A machine has named the largest epoch, which the group refuses without an entry.
    #[test]
    fn a_wrong_epoch_is_forgotten() {
        let mut route = route();
        assert!(route.correct(&located(u64::MAX, "trap"), Repeated, true));
        for _ in 0..USELESS_MAX - 1 {
            assert!(!route.correct(&Correction::WrongGroup(None), Repeated, true));
            assert_eq!(route.destination().epoch, at(u64::MAX));
        }
        assert!(!route.correct(&Correction::WrongGroup(None), Repeated, true));
        assert_eq!(route.destination().epoch, GroupEpoch::UNKNOWN);
        assert_eq!(route.address().unwrap(), "first");
        assert!(route.correct(&located(5, "first"), Repeated, true));
        assert_eq!(route.destination().epoch, at(5));
    }
}
