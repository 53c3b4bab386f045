//! Messages between machines: lost, late, doubled, out of order, and cut off in any direction.

use crate::counts::FaultCounts;
use std::collections::BTreeSet;
use yesquel_seeds::Random;

/// The state of the network. Frequencies are in thousandths.
#[derive(Default)]
pub struct SimulatedNetwork {
    /// Directions in which nothing travels.
    blocked: BTreeSet<(u64, u64)>,
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

impl SimulatedNetwork {
    /// Delays after which copies of a message arrive.
    pub fn send(&self, from: u64, to: u64, random: &mut Random, counts: &mut FaultCounts) -> Vec<u64> {
        counts.one("messages sent");
        if self.blocked.contains(&(from, to)) {
            counts.one("messages blocked by a partition");
            return Vec::new();
        }
        if random.next(1000) < self.lost {
            counts.one("messages lost");
            return Vec::new();
        }
        let mut delays = vec![self.delay(random, counts)];
        if random.next(1000) < self.doubled {
            counts.one("messages doubled");
            delays.push(self.delay(random, counts));
        }
        delays
    }

    fn delay(&self, random: &mut Random, counts: &mut FaultCounts) -> u64 {
        if random.next(1000) < self.late {
            counts.one("messages late");
            random.next(4_000_000)
        } else {
            100 + random.next(2_000)
        }
    }

    pub fn heal(&mut self) {
        *self = SimulatedNetwork::default();
    }

    pub fn unblock(&mut self) {
        self.blocked.clear();
    }

    /// Cuts machines off from each other in a shape drawn.
    pub fn partition(&mut self, ids: &[u64], random: &mut Random, counts: &mut FaultCounts) {
        let one = ids[random.next(ids.len() as u64) as usize];
        let pairs = |meant: &mut dyn FnMut(u64, u64) -> bool| -> Vec<(u64, u64)> {
            let all = ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to)));
            all.filter(|(from, to)| from != to && meant(*from, *to)).collect()
        };
        let (name, blocked) = match random.next(6) {
            0 => ("partitions: one machine alone", pairs(&mut |from, to| from == one || to == one)),
            1 => ("partitions: one machine cannot send", pairs(&mut |from, _| from == one)),
            2 => ("partitions: one machine cannot receive", pairs(&mut |_, to| to == one)),
            3 => {
                let side: BTreeSet<u64> = ids.iter().copied().filter(|_| random.next(2) == 0).collect();
                ("partitions: two sides", pairs(&mut |from, to| side.contains(&from) != side.contains(&to)))
            }
            4 => {
                // Each machine reaches its neighbours only.
                let place = |id: u64| ids.iter().position(|one| *one == id).unwrap() as i64;
                let far = |from, to| ![1, ids.len() as i64 - 1].contains(&(place(from) - place(to)).abs());
                ("partitions: a ring", pairs(&mut |from, to| far(from, to)))
            }
            _ => ("partitions: directions at random", pairs(&mut |_, _| random.next(3) == 0)),
        };
        counts.one(name);
        self.blocked = blocked.into_iter().collect();
    }
}
