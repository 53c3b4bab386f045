//! Faults, and an operator who changes the group.

use crate::{
    machine::{GroupDurability, Machine},
    world::{GroupEvent, World},
};
use yesquel_replication::{Membership, MembershipChange};

/// Most machines of a group.
const MACHINES_MAX: usize = 7;

impl World {
    /// A fault or an operator's command, and the next one.
    pub fn fault(&mut self) {
        let pause = 200_000 + self.random.next(1_800_000);
        self.queue.after(pause, GroupEvent::Fault);
        self.compare_logs();
        self.checkpoint_where_wanted();
        if !self.is_faulty {
            return;
        }
        let ids: Vec<u64> = self.machines.keys().copied().collect();
        let id = ids[self.random.next(ids.len() as u64) as usize];
        match self.random.next(16) {
            0 | 1 => self.network.partition(&ids, &mut self.random, &mut self.counts),
            2 | 3 => self.network.unblock(),
            4 => self.disturb_network(),
            5 => self.stop_fault(id, false),
            6 => self.stop_fault(id, true),
            7 => self.lose_power_in_operation(id),
            8 => self.freeze(id),
            9 => self.slow(id),
            10 => self.transfer(),
            11 | 12 => self.change_membership(),
            13 => self.checkpoint(id),
            14 => self.stop_leader(),
            _ => {}
        }
    }

    fn disturb_network(&mut self) {
        let quarter = |random: &mut yesquel_seeds::Random, most| {
            if random.next(2) == 0 { random.next(most) } else { 0 }
        };
        self.network.lost = quarter(&mut self.random, 300);
        self.network.doubled = quarter(&mut self.random, 300);
        self.network.late = quarter(&mut self.random, 100);
        self.counts.one("network disturbances");
    }

    fn stop_leader(&mut self) {
        let leaders = self.leaders();
        if let Some(leader) = leaders.first() {
            let power = self.random.next(2) == 0;
            self.stop_fault(*leader, power);
        }
    }

    /// Whether another machine may lose its power. Without a sync at each write, a majority that loses
    /// power does not start by itself, by design.
    fn may_lose_power(&self, id: u64) -> bool {
        let is_weak = |machine: &Machine| machine.is_weak(self.durability) || machine.is_doomed;
        self.durability == GroupDurability::Sync
            || !self.machines.values().any(|machine| machine.id != id && is_weak(machine))
    }

    fn stop_fault(&mut self, id: u64, power: bool) {
        if self.machines[&id].running.is_none() || (power && !self.may_lose_power(id)) {
            return;
        }
        self.counts.one(if power { "machines without power" } else { "processes killed" });
        self.stop(id, power);
    }

    fn lose_power_in_operation(&mut self, id: u64) {
        if !self.may_lose_power(id) {
            return;
        }
        let (operations, seed) = (self.random.next(40), self.random.next(1 << 30));
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.running.is_some()) else {
            return;
        };
        machine.disk.lose_power_after(operations, seed);
        machine.is_doomed = true;
        self.counts.one("power lost within an operation");
    }

    fn freeze(&mut self, id: u64) {
        let until = self.queue.now() + self.random.next(8_000_000);
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.frozen_until_us = until;
            self.counts.one("processes frozen");
        }
    }

    fn slow(&mut self, id: u64) {
        let (tick_us, sync_us) = (30_000 + self.random.next(270_000), self.random.next(1_500_000));
        let is_clock = self.random.next(2) == 0;
        let Some(machine) = self.machines.get_mut(&id) else { return };
        if is_clock {
            machine.tick_us = tick_us;
            self.counts.one("clocks of another speed");
        } else {
            machine.sync_us = sync_us;
            self.counts.one("slow disks");
        }
    }

    fn transfer(&mut self) {
        let leaders = self.leaders();
        let Some(leader) = leaders.first().copied() else { return };
        let voters: Vec<u64> = self.ledger.membership.1.voters.iter().copied().collect();
        let to = voters[self.random.next(voters.len() as u64) as usize];
        let running = self.machines.get_mut(&leader).and_then(|machine| machine.running.as_mut());
        if running.is_some_and(|running| running.replica.transfer(to).is_ok()) {
            self.counts.one("transfers begun");
            self.work(leader);
        }
    }

    fn checkpoint(&mut self, id: u64) {
        let keep = self.random.next(100);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(running) = &mut machine.running else { return };
        match running.checkpoint(&machine.disk, keep) {
            Ok(true) => self.counts.one("checkpoints written"),
            Ok(false) => {}
            Err(error) => self.fail(id, &error),
        }
        self.work(id);
    }

    fn checkpoint_where_wanted(&mut self) {
        let wants = |machine: &&Machine| {
            let running = machine.running.as_ref();
            running.is_some_and(|running| running.replica.status().wants_checkpoint)
        };
        let wanting: Vec<u64> = self.machines.values().filter(wants).map(|machine| machine.id).collect();
        for id in wanting {
            self.checkpoint(id);
        }
    }

    /// An operator adds, promotes, replaces, demotes or removes replicas, and takes away machines whose
    /// replicas are removed.
    fn change_membership(&mut self) {
        let membership = self.ledger.membership.1.clone();
        let joining = self.next_id - 1;
        let has_joined = self.ledger.members_ever.contains(&joining);
        let gone = |id: u64| !membership.contains(id) && (id != joining || has_joined);
        let removed: Vec<u64> = self.machines.keys().copied().filter(|id| gone(*id)).collect();
        if !membership.is_joint() {
            for id in removed {
                self.machines.remove(&id);
                self.counts.one("machines taken away");
            }
        }
        let leaders = self.leaders();
        let Some(leader) = leaders.first().copied() else { return };
        let change = self.draw_change(&membership, joining);
        let running = self.machines.get_mut(&leader).and_then(|machine| machine.running.as_mut());
        if running.is_some_and(|running| running.replica.propose_change(&change).is_ok()) {
            self.counts.one("changes of membership proposed");
            self.work(leader);
        }
    }

    fn draw_change(&mut self, membership: &Membership, joining: u64) -> MembershipChange {
        let mut change = MembershipChange::default();
        let voters: Vec<u64> = membership.voters.iter().copied().collect();
        let voter = voters[self.random.next(voters.len() as u64) as usize];
        let learner = membership.learners.first().copied();
        match (self.random.next(5), learner) {
            (0 | 1, Some(learner)) => {
                change.voters.insert(learner);
                if voters.len() >= 5 || (voters.len() > 3 && self.random.next(2) == 0) {
                    change.removed.insert(voter);
                }
            }
            (2, Some(learner)) => drop(change.removed.insert(learner)),
            (3, _) if voters.len() > 3 => drop(change.removed.insert(voter)),
            (4, _) if voters.len() > 3 => drop(change.learners.insert(voter)),
            _ if !membership.contains(joining) && self.machines.contains_key(&joining) => {
                change.learners.insert(joining);
            }
            _ if self.machines.len() < MACHINES_MAX => {
                let id = self.next_id;
                self.next_id += 1;
                self.machines.insert(id, Machine::new(id, None));
                self.start(id);
                change.learners.insert(id);
            }
            _ => change.removed.extend(learner),
        }
        change
    }
}
