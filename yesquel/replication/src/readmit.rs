//! Replicas that have lost entries that they acknowledged.
//!
//! Without a sync at each write, a replica that loses power may forget what it acknowledged. It says
//! so in every message ([`is_lost`](crate::message::PeerMessage::is_lost)), and neither votes nor
//! campaigns. The leader forgets what it knew of that replica's log, confirms its lead by a majority
//! without the replica, and readmits it when it has every entry that the leader had at that time.
//!
//! Messages carry the number of their sender's start. An acknowledgement from before the power was
//! lost is refused when one from after it has arrived: it would count entries that are gone.

use std::collections::BTreeMap;

/// What is known of the other replicas' starts.
#[derive(Debug, Default)]
pub(crate) struct PeerStarts {
    known: BTreeMap<u64, PeerStart>,
}

#[derive(Debug, Default)]
struct PeerStart {
    incarnation: u64,
    /// Whether it has sent a message of this start without the mark of a loss.
    is_whole: bool,
    readmission: Option<Readmission>,
}

/// A lost replica at its leader.
#[derive(Debug)]
struct Readmission {
    /// The leader's last index when it learned of the loss.
    target: u64,
    /// The round by which the lead is confirmed, once it has begun.
    round: Option<u64>,
    is_confirmed: bool,
    is_granted: bool,
}

impl PeerStarts {
    /// Records a message's sender. Returns whether the message is of its last known start.
    pub(crate) fn observe(&mut self, from: u64, incarnation: u64, is_lost: bool) -> bool {
        let peer = self.known.entry(from).or_default();
        if incarnation < peer.incarnation {
            return false;
        }
        if incarnation > peer.incarnation {
            *peer = PeerStart { incarnation, ..PeerStart::default() };
        }
        if !is_lost {
            (peer.is_whole, peer.readmission) = (true, None);
        }
        true
    }

    /// Begins to readmit a lost replica at its leader. Returns false if that is under way, or done.
    pub(crate) fn begin(&mut self, from: u64, target: u64) -> bool {
        let Some(peer) = self.known.get_mut(&from) else { return false };
        if peer.is_whole || peer.readmission.is_some() {
            return false;
        }
        peer.readmission = Some(Readmission { target, round: None, is_confirmed: false, is_granted: false });
        true
    }

    /// Whether a readmission waits for a round to begin.
    pub(crate) fn needs_round(&self) -> bool {
        self.readmissions().any(|readmission| readmission.round.is_none())
    }

    /// A round begins, after all losses known by now.
    pub(crate) fn begin_round(&mut self, round: u64) {
        for readmission in self.readmissions_mut().filter(|readmission| readmission.round.is_none()) {
            readmission.round = Some(round);
        }
    }

    /// A majority, without the lost replicas, has confirmed the lead in a round.
    pub(crate) fn confirm(&mut self, round: u64) {
        for readmission in self.readmissions_mut().filter(|readmission| readmission.round == Some(round)) {
            readmission.is_confirmed = true;
        }
    }

    /// Readmits replicas that have everything, given the last index known of each.
    pub(crate) fn grant(&mut self, matched: impl Fn(u64) -> u64) {
        for (replica, peer) in &mut self.known {
            if let Some(readmission) = &mut peer.readmission {
                readmission.is_granted |= readmission.is_confirmed && matched(*replica) >= readmission.target;
            }
        }
    }

    /// The incarnation of a replica, if it is readmitted; otherwise 0.
    pub(crate) fn readmitted(&self, replica: u64) -> u64 {
        let peer = self.known.get(&replica);
        let granted = peer.filter(|peer| peer.readmission.as_ref().is_some_and(|one| one.is_granted));
        granted.map_or(0, |peer| peer.incarnation)
    }

    /// The lead is lost, and with it what was promised.
    pub(crate) fn abandon(&mut self) {
        for peer in self.known.values_mut() {
            peer.readmission = None;
        }
    }

    fn readmissions(&self) -> impl Iterator<Item = &Readmission> {
        self.known.values().filter_map(|peer| peer.readmission.as_ref())
    }

    fn readmissions_mut(&mut self) -> impl Iterator<Item = &mut Readmission> {
        self.known.values_mut().filter_map(|peer| peer.readmission.as_mut())
    }
}
