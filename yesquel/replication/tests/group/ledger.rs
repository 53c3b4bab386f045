//! What the group has promised, and the invariants.

use std::collections::{BTreeMap, BTreeSet};
use yesquel_replication::{CommittedEntry, Membership, Replica, ReplicaRole};

/// Mixes a number into a checksum.
pub fn mix(sum: u64, number: u64) -> u64 {
    let mixed = (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The checksum of a state after an entry.
pub fn state_after(state: u64, entry: &CommittedEntry) -> u64 {
    let words = entry.data.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let state = mix(mix(state, entry.id.index), entry.id.term);
    words.fold(state, mix)
}

/// The first word of an entry's data: which proposal it is.
pub fn proposal_of(entry: &CommittedEntry) -> u64 {
    entry.data.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

struct LedgerEntry {
    term: u64,
    /// Term of the first replica that took it as committed: at least that of the leader who did.
    committed_in: u64,
    proposal: u64,
    /// Checksum of the state after it.
    state: u64,
}

/// All entries that any replica has taken as committed.
#[derive(Default)]
pub struct Ledger {
    entries: Vec<LedgerEntry>,
    leaders: BTreeMap<u64, u64>,
    /// Largest index of which a client was told.
    acknowledged: u64,
    /// The newest membership, and its index.
    pub membership: (u64, Membership),
    /// Replicas that were in any membership but the first. A number is never given twice.
    pub members_ever: BTreeSet<u64>,
}

impl Ledger {
    pub fn new(first: Membership) -> Ledger {
        let entries = vec![LedgerEntry { term: 1, committed_in: 1, proposal: 0, state: 0 }];
        Ledger { entries, membership: (1, first), ..Ledger::default() }
    }

    pub fn committed(&self) -> u64 {
        self.entries.len() as u64
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn entry(&self, index: u64) -> &LedgerEntry {
        &self.entries[index as usize - 1]
    }

    /// State machine safety: all replicas apply the same entry at an index, and have the same state
    /// after it.
    pub fn commit(&mut self, replica: (u64, u64), entry: &CommittedEntry, state: u64) {
        let (replica, committed_in) = replica;
        let (index, term, proposal) = (entry.id.index, entry.id.term, proposal_of(entry));
        if index == self.committed() + 1 {
            self.entries.push(LedgerEntry { term, committed_in, proposal, state });
            return;
        }
        let known = self.entry(index);
        assert_eq!(
            (known.term, known.proposal, known.state),
            (term, proposal, state),
            "replica {replica} applies another entry at {index}"
        );
    }

    /// A replica has replaced its state by a checkpoint.
    pub fn restored(&self, replica: u64, index: u64, state: u64) {
        assert!(index <= self.committed(), "replica {replica} restores {index}, which is not committed");
        assert_eq!(self.entry(index).state, state, "replica {replica} restores another state at {index}");
    }

    /// Records that a leader has acknowledged a proposal.
    pub fn acknowledge(&mut self, index: u64, term: u64, proposal: u64) {
        let known = self.entry(index);
        assert_eq!(
            (known.term, known.proposal),
            (term, proposal),
            "another entry is acknowledged at {index}"
        );
        self.acknowledged = self.acknowledged.max(index);
    }

    /// Election safety and leader completeness. Returns whether the leader is new.
    pub fn lead(&mut self, id: u64, replica: &Replica) -> bool {
        let status = replica.status();
        if status.role != ReplicaRole::Leader {
            return false;
        }
        match self.leaders.get(&status.term) {
            Some(leader) => {
                assert_eq!(*leader, id, "two replicas lead in term {}", status.term);
                return false;
            }
            None => drop(self.leaders.insert(status.term, id)),
        }
        // A candidate may get its votes late: nothing is promised of entries committed in later terms.
        for index in (replica.covered()..=self.committed()).rev() {
            let known = self.entry(index);
            if known.committed_in < status.term {
                let term = replica.log().term_of(index);
                assert_eq!(
                    term,
                    Some(known.term),
                    "leader {id} lacks the committed entry {index}: {status:?}"
                );
            }
        }
        true
    }

    /// Log matching: two logs that have the same term at an index are equal up to there.
    pub fn match_logs(a: (u64, &Replica), b: (u64, &Replica)) {
        let (first, second) = (a.1.log(), b.1.log());
        let last = first.last().min(second.last());
        let Some(from) = (last.saturating_sub(300)..=last)
            .rev()
            .find(|index| first.term_of(*index).is_some_and(|term| second.term_of(*index) == Some(term)))
        else {
            return;
        };
        for index in (from.saturating_sub(100)..=from).rev() {
            let (Some(one), Some(other)) = (first.entry(index), second.entry(index)) else { break };
            assert!(
                one.term == other.term && one.data == other.data && one.context == other.context,
                "replicas {} and {} have the same term at {from}, and differ at {index}",
                a.0,
                b.0
            );
        }
    }
}
