//! The replicas of a group, and changes of them.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use std::collections::BTreeSet;
use yesquel_wire::{ByteReader, ByteWriter, Malformed};

/// Most replicas that one set of a membership may name.
const REPLICAS_MAX: usize = 64;

/// The replicas of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// Replicas that vote.
    pub voters: BTreeSet<u64>,
    /// Voters of the membership that a joint one replaces. Empty: it is not joint.
    pub outgoing: BTreeSet<u64>,
    /// Replicas that receive entries only.
    pub learners: BTreeSet<u64>,
    /// Outgoing voters that become learners.
    pub learners_next: BTreeSet<u64>,
}

impl Membership {
    /// A membership of voters only.
    pub fn of_voters(voters: impl IntoIterator<Item = u64>) -> Membership {
        Membership { voters: voters.into_iter().collect(), ..Membership::default() }
    }

    /// Whether two majorities decide.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether a replica is named in any set.
    pub fn contains(&self, replica: u64) -> bool {
        [&self.voters, &self.outgoing, &self.learners].iter().any(|set| set.contains(&replica))
    }

    /// All replicas.
    pub fn replicas(&self) -> BTreeSet<u64> {
        [&self.voters, &self.outgoing, &self.learners].into_iter().flatten().copied().collect()
    }

    /// Whether the crate can restore it. It ends the process otherwise.
    pub(crate) fn is_valid(&self) -> bool {
        let none_is_zero = !self.contains(0) && !self.learners_next.contains(&0);
        none_is_zero
            && !self.voters.is_empty()
            && self.learners.is_disjoint(&self.voters)
            && self.learners.is_disjoint(&self.outgoing)
            && self.learners_next.is_subset(&self.outgoing)
            && self.learners_next.is_disjoint(&self.voters)
    }

    pub(crate) fn to_crate(&self) -> ConfState {
        let mut state = ConfState::default();
        let list = |set: &BTreeSet<u64>| set.iter().copied().collect();
        state.set_voters(list(&self.voters));
        state.set_voters_outgoing(list(&self.outgoing));
        state.set_learners(list(&self.learners));
        state.set_learners_next(list(&self.learners_next));
        state
    }

    pub(crate) fn from_crate(state: &ConfState) -> Membership {
        let set = |list: &[u64]| list.iter().copied().collect();
        Membership {
            voters: set(state.get_voters()),
            outgoing: set(state.get_voters_outgoing()),
            learners: set(state.get_learners()),
            learners_next: set(state.get_learners_next()),
        }
    }

    pub(crate) fn put(&self, writer: &mut ByteWriter<'_>) {
        for set in [&self.voters, &self.outgoing, &self.learners, &self.learners_next] {
            put_set(writer, set);
        }
    }

    pub(crate) fn read(reader: &mut ByteReader<'_>) -> Result<Membership, Malformed> {
        let before = *reader;
        let membership = Membership {
            voters: read_set(reader)?,
            outgoing: read_set(reader)?,
            learners: read_set(reader)?,
            learners_next: read_set(reader)?,
        };
        let invalid = || before.malformed("a membership whose sets contradict each other");
        if membership.is_valid() { Ok(membership) } else { Err(invalid()) }
    }
}

/// A change of a group's replicas. Changes of voters are joint. An empty change leaves the joint
/// membership.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MembershipChange {
    /// Replicas to add as learners, or voters to demote to learners.
    pub learners: BTreeSet<u64>,
    /// Replicas to make voters.
    pub voters: BTreeSet<u64>,
    /// Replicas to remove.
    pub removed: BTreeSet<u64>,
}

impl MembershipChange {
    /// Whether the change only leaves a joint membership.
    pub(crate) fn leaves_joint(&self) -> bool {
        self.learners.is_empty() && self.voters.is_empty() && self.removed.is_empty()
    }

    pub(crate) fn to_crate(&self) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        if self.leaves_joint() {
            return change;
        }
        // Explicit: the leader leaves the joint membership by an entry of its own, which is sent at
        // once. The crate's automatic exit waits for the next heartbeat.
        change.set_transition(ConfChangeTransition::Explicit);
        let kinds = [
            (&self.learners, ConfChangeType::AddLearnerNode),
            (&self.voters, ConfChangeType::AddNode),
            (&self.removed, ConfChangeType::RemoveNode),
        ];
        let singles = kinds.into_iter().flat_map(|(set, kind)| {
            set.iter().map(move |replica| {
                let mut single = ConfChangeSingle { node_id: *replica, ..ConfChangeSingle::default() };
                single.set_change_type(kind);
                single
            })
        });
        change.set_changes(singles.collect::<Vec<_>>().into());
        change
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = ByteWriter(&mut bytes);
        for set in [&self.learners, &self.voters, &self.removed] {
            put_set(&mut writer, set);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<MembershipChange, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        let change = MembershipChange {
            learners: read_set(&mut reader)?,
            voters: read_set(&mut reader)?,
            removed: read_set(&mut reader)?,
        };
        reader.finish()?;
        let sets = [&change.learners, &change.voters, &change.removed];
        let named: BTreeSet<u64> = sets.into_iter().flatten().copied().collect();
        if named.len() != sets.iter().map(|set| set.len()).sum::<usize>() || named.contains(&0) {
            return Err(before.malformed("a change that names a replica twice"));
        }
        Ok(change)
    }
}

fn put_set(writer: &mut ByteWriter<'_>, set: &BTreeSet<u64>) {
    writer.number(set.len() as u64);
    for replica in set {
        writer.number(*replica);
    }
}

/// Reads a set in ascending order, so that each set has one encoding.
fn read_set(reader: &mut ByteReader<'_>) -> Result<BTreeSet<u64>, Malformed> {
    let count = reader.count()?;
    if count > REPLICAS_MAX {
        return Err(reader.malformed("more replicas than a group may have"));
    }
    let mut set = BTreeSet::new();
    for _ in 0..count {
        let replica = reader.number()?;
        if set.last().is_some_and(|last| *last >= replica) {
            return Err(reader.malformed("replicas out of order"));
        }
        set.insert(replica);
    }
    Ok(set)
}
