//! Placement: the group of a new leaf (section 4.3 of the paper).

use yesquel_model::ServerId;

/// Where the new leaf of a split is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeafPlacement {
    /// At the group of the leaf that is split.
    #[default]
    Local,
    /// At the groups of the tree in turn.
    Spread,
    /// At the group with the least load, if the load of the group of the leaf that is split is
    /// clearly higher.
    Load,
}

/// Load of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupLoad {
    /// Bytes of its nodes.
    pub memory_bytes: u64,
    /// Requests in the last second.
    pub requests: u64,
}

/// What the placement is to balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalancedLoad {
    /// Memory: the leaf is too large.
    Memory,
    /// Requests: the leaf is accessed too often.
    Requests,
}

/// Memory and requests a second by which a group must exceed another one before leaves go there, and
/// the same as a part of the load of the other: small tables stay together.
const MEMORY_APART: u64 = 4 << 20;
const REQUESTS_APART: u64 = 500;
const PART_APART: u64 = 4;

/// Chooses groups of new leaves.
#[derive(Debug)]
pub struct LeafPlacer {
    placement: LeafPlacement,
    turn: usize,
}

impl LeafPlacer {
    /// Creates a placer.
    pub fn new(placement: LeafPlacement) -> LeafPlacer {
        LeafPlacer { placement, turn: 0 }
    }

    /// Whether it may choose another group than that of the leaf that is split.
    pub fn is_distributing(&self) -> bool {
        self.placement != LeafPlacement::Local
    }

    /// Chooses the group of a new leaf, from the groups that answer, with their loads. Among them is
    /// that of the leaf that is split, `own`.
    pub fn choose(
        &mut self,
        own: ServerId,
        groups: &[(ServerId, GroupLoad)],
        balanced: BalancedLoad,
    ) -> ServerId {
        match self.placement {
            LeafPlacement::Local => own,
            LeafPlacement::Spread => {
                self.turn += 1;
                groups.get(self.turn % groups.len().max(1)).map_or(own, |(group, _)| *group)
            }
            LeafPlacement::Load => {
                let (load, apart): (fn(&GroupLoad) -> u64, u64) = match balanced {
                    BalancedLoad::Memory => (|load| load.memory_bytes, MEMORY_APART),
                    BalancedLoad::Requests => (|load| load.requests, REQUESTS_APART),
                };
                let of_own = groups.iter().find(|(group, _)| *group == own).map(|(_, own)| load(own));
                let least = groups.iter().map(|(group, of)| (load(of), *group)).min();
                match (of_own, least) {
                    (Some(of_own), Some((least, group))) if of_own > least + least / PART_APART + apart => {
                        group
                    }
                    _ => own,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(memory: &[u64]) -> Vec<(ServerId, GroupLoad)> {
        let load = |memory_bytes: &u64| GroupLoad { memory_bytes: *memory_bytes, requests: 0 };
        (0..).map(ServerId).zip(memory.iter().map(load)).collect()
    }

    #[test]
    fn small_differences_move_nothing() {
        let mut placer = LeafPlacer::new(LeafPlacement::Load);
        let mut choose = |memory: &[u64]| placer.choose(ServerId(0), &loads(memory), BalancedLoad::Memory).0;
        assert_eq!(choose(&[3 << 20, 0, 0]), 0);
        assert_eq!(choose(&[5 << 20, 1 << 20, 0]), 2);
        assert_eq!(choose(&[124 << 20, 100 << 20, 100 << 20]), 0);
        assert_eq!(choose(&[130 << 20, 100 << 20, 100 << 20]), 1);
        assert_eq!(choose(&[0, 100 << 20]), 0);
        assert_eq!(choose(&[]), 0);
    }

    #[test]
    fn spread_takes_turns() {
        let mut placer = LeafPlacer::new(LeafPlacement::Spread);
        let mut chosen = [0; 3];
        for _ in 0..30 {
            chosen[usize::from(placer.choose(ServerId(1), &loads(&[0; 3]), BalancedLoad::Requests).0)] += 1;
        }
        assert_eq!(chosen, [10; 3]);
        let mut local = LeafPlacer::new(LeafPlacement::Local);
        assert_eq!(local.choose(ServerId(1), &loads(&[0; 3]), BalancedLoad::Memory), ServerId(1));
    }
}
