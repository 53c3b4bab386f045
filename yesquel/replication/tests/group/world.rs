//! A group of machines in virtual time.

use crate::{
    counts::FaultCounts,
    ledger::{Ledger, mix},
    machine::{Effects, GroupDurability, Machine},
    network::SimulatedNetwork,
};
use std::collections::{BTreeMap, BTreeSet};
use yesquel_log::LogError;
use yesquel_replication::{CheckpointHead, OutgoingMessage, ReceiveError, ReplicaRole};
use yesquel_seeds::Random;
use yesquel_simulation::EventQueue;

/// What happens at a time.
pub enum GroupEvent {
    Tick { id: u64, start: u64 },
    Arrival { to: u64, bytes: Vec<u8> },
    Synced { id: u64, start: u64, number: u64 },
    Start { id: u64 },
    Client,
    Fault,
}

/// A group, its clients and its faults.
pub struct World {
    pub queue: EventQueue<GroupEvent>,
    pub random: Random,
    pub machines: BTreeMap<u64, Machine>,
    pub network: SimulatedNetwork,
    pub ledger: Ledger,
    pub counts: FaultCounts,
    pub durability: GroupDurability,
    pub is_faulty: bool,
    pub next_id: u64,
    next_number: u64,
    /// Reads under way, with the largest index acknowledged when each began.
    reads: BTreeMap<u64, u64>,
    /// Checksum of everything that happened.
    pub digest: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let replicas = if random.next(2) == 0 { 3 } else { 5 };
        let durability = if random.next(2) == 0 { GroupDurability::Sync } else { GroupDurability::Interval };
        let first = CheckpointHead::first(1..=replicas);
        let ledger = Ledger::new(first.membership.clone());
        let mut world = World {
            queue: EventQueue::default(),
            machines: (1..=replicas).map(|id| (id, Machine::new(id, Some(&first)))).collect(),
            network: SimulatedNetwork::default(),
            ledger,
            counts: FaultCounts::default(),
            durability,
            is_faulty: false,
            next_id: replicas + 1,
            next_number: 1,
            reads: BTreeMap::new(),
            digest: seed,
            random,
        };
        (1..=replicas).for_each(|id| world.start(id));
        world.queue.after(1_000_000, GroupEvent::Client);
        world.queue.after(2_000_000, GroupEvent::Fault);
        world
    }

    /// Runs until a time.
    pub fn run_until(&mut self, us: u64) {
        while self.queue.now() < us {
            let Some(event) = self.queue.next() else { return };
            self.happen(event);
        }
    }

    fn happen(&mut self, event: GroupEvent) {
        let id = match &event {
            GroupEvent::Tick { id, .. } | GroupEvent::Synced { id, .. } => *id,
            GroupEvent::Arrival { to, .. } => *to,
            _ => 0,
        };
        if let Some(machine) = self.machines.get(&id)
            && machine.frozen_until_us > self.queue.now()
        {
            let wait = machine.frozen_until_us - self.queue.now();
            self.queue.after(wait, event);
            return;
        }
        match event {
            GroupEvent::Tick { id, start } => self.tick(id, start),
            GroupEvent::Arrival { to, bytes } => self.arrive(to, &bytes),
            GroupEvent::Synced { id, start, number } => self.synced(id, start, number),
            GroupEvent::Start { id } => self.start(id),
            GroupEvent::Client => self.client(),
            GroupEvent::Fault => self.fault(),
        }
    }

    pub fn start(&mut self, id: u64) {
        let (seed, durability) = (self.random.next(1 << 30), self.durability);
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.running.is_none()) else {
            return;
        };
        machine.start(seed, durability).unwrap();
        machine.frozen_until_us = 0;
        let start = machine.starts;
        self.queue.after(1 + self.random.next(100_000), GroupEvent::Tick { id, start });
        self.work(id);
    }

    fn tick(&mut self, id: u64, start: u64) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.starts == start) else {
            return;
        };
        let Some(running) = &mut machine.running else { return };
        running.replica.tick();
        self.queue.after(machine.tick_us, GroupEvent::Tick { id, start });
        self.work(id);
    }

    fn arrive(&mut self, to: u64, bytes: &[u8]) {
        let Some(running) = self.machines.get_mut(&to).and_then(|machine| machine.running.as_mut()) else {
            return;
        };
        match running.replica.receive(bytes) {
            Ok(()) => {}
            Err(ReceiveError::EarlierStart) => self.counts.one("messages of an earlier start refused"),
            Err(ReceiveError::Stranger) => self.counts.one("messages of strangers refused"),
            Err(error) => panic!("replica {to} refuses a message of a correct peer: {error}"),
        }
        self.work(to);
    }

    fn synced(&mut self, id: u64, start: u64, number: u64) {
        let Some(machine) =
            self.machines.get_mut(&id).filter(|machine| (machine.starts, machine.syncs) == (start, number))
        else {
            return;
        };
        machine.syncs += 1;
        let Some(running) = &mut machine.running else { return };
        match running.sync() {
            Ok(messages) => {
                self.send(id, messages);
                self.work(id);
            }
            Err(error) => self.fail(id, &error),
        }
    }

    /// Does the work of a machine, and checks it.
    pub fn work(&mut self, id: u64) {
        let durability = self.durability;
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(running) = &mut machine.running else { return };
        let effects = match running.work(&machine.disk, durability) {
            Ok(effects) => effects,
            Err(error) => return self.fail(id, &error),
        };
        if self.ledger.lead(id, &running.replica) {
            self.counts.one("elections");
        }
        if running.needs_sync() {
            let event = GroupEvent::Synced { id, start: machine.starts, number: machine.syncs };
            self.queue.after(machine.sync_us, event);
        }
        if effects.is_readmitted {
            machine.readmitted();
            self.counts.one("lost replicas readmitted");
        }
        self.digest = mix(self.digest, mix(id, self.queue.now()));
        self.take_effect(id, effects);
    }

    fn take_effect(&mut self, id: u64, effects: Effects) {
        if let Some((_, entries)) = effects.cut {
            self.counts.one("suffixes cut");
            self.counts.add("entries cut", entries);
        }
        if effects.rebuilds {
            self.counts.one("states rebuilt: a leader's entries cut");
        }
        if effects.is_deposed {
            self.counts.one("leaders deposed");
        }
        if let Some((index, state)) = effects.restored {
            self.ledger.restored(id, index, state);
            self.counts.one("checkpoints received");
        }
        let term = self.machines[&id].running.as_ref().map_or(0, |running| running.replica.status().term);
        for (entry, state) in &effects.committed {
            self.ledger.commit((id, term), entry, *state);
        }
        self.counts.add("entries applied", effects.committed.len() as u64);
        if let Some((index, membership)) = effects.membership
            && index > self.ledger.membership.0
        {
            let is_joint = membership.is_joint();
            self.counts.one(if is_joint { "joint memberships entered" } else { "joint memberships left" });
            self.ledger.members_ever.extend(membership.replicas());
            self.ledger.membership = (index, membership);
        }
        for (entry, proposal) in effects.acknowledged {
            self.ledger.acknowledge(entry.index, entry.term, proposal);
            self.counts.one("proposals acknowledged");
        }
        for read in effects.failed_reads {
            self.reads.remove(&read);
        }
        for (read, index) in effects.reads {
            let floor = self.reads.remove(&read).expect("a read is answered once");
            assert!(index >= floor, "a read at {id} sees {index}, and {floor} was acknowledged before it");
            let applied = self.machines[&id].running.as_ref().map_or(0, |running| running.replica.applied());
            assert!(applied >= index, "a read at {id} is answered before {index} is applied");
            self.counts.one("reads answered");
        }
        self.send(id, effects.messages);
    }

    fn send(&mut self, from: u64, messages: Vec<OutgoingMessage>) {
        for OutgoingMessage { to, bytes } in messages {
            for delay in self.network.send(from, to, &mut self.random, &mut self.counts) {
                self.queue.after(delay, GroupEvent::Arrival { to, bytes: bytes.clone() });
            }
        }
    }

    /// A disk operation has failed: the machine ends, as what its disk holds is not known.
    pub fn fail(&mut self, id: u64, error: &LogError) {
        assert!(self.machines[&id].disk.power_is_lost(), "the disk of {id} fails: {error}");
        self.counts.one("machines ended by their disk");
        self.stop(id, true);
    }

    /// Ends a machine's process, for some time.
    pub fn stop(&mut self, id: u64, power: bool) {
        let mut random = Random::new(self.random.next(1 << 30));
        // A vote that was forgotten shows only at once, in the same election.
        let longest_us = [20_000_000, 20_000, 2_000_000, 2_000_000][self.random.next(4) as usize];
        let down_us = 1 + self.random.next(longest_us);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let power = power || machine.disk.power_is_lost();
        machine.stop(power.then_some(&mut random));
        machine.syncs += 1;
        self.queue.after(down_us, GroupEvent::Start { id });
    }

    /// A client proposes or reads, mostly where it believes the leader is.
    fn client(&mut self) {
        let ids: Vec<u64> = self.machines.keys().copied().collect();
        let leaders = self.leaders();
        let from = if leaders.is_empty() || self.random.next(10) == 0 { &ids } else { &leaders };
        let id = from[self.random.next(from.len() as u64) as usize];
        let number = self.next_number;
        self.next_number += 1;
        let (is_read, padding) = (self.random.next(5) == 0, self.random.next(300) as usize);
        if is_read {
            self.read(id, number);
        } else {
            self.propose(id, number, padding);
        }
        let pause = 1_000 + self.random.next(150_000);
        self.queue.after(pause, GroupEvent::Client);
    }

    fn read(&mut self, id: u64, number: u64) {
        let Some(running) = self.machines.get_mut(&id).and_then(|machine| machine.running.as_mut()) else {
            return;
        };
        if running.replica.read(number).is_ok() {
            self.counts.one("reads");
            self.reads.insert(number, self.ledger.acknowledged());
            self.work(id);
        }
    }

    pub fn propose(&mut self, id: u64, number: u64, padding: usize) {
        let Some(running) = self.machines.get_mut(&id).and_then(|machine| machine.running.as_mut()) else {
            return;
        };
        let mut data = number.to_le_bytes().to_vec();
        data.resize(8 + padding, number as u8);
        if let Ok(entry) = running.replica.propose(data) {
            self.counts.one("proposals");
            running.held.insert(entry, number);
            self.work(id);
        }
    }

    /// The machines that believe that they lead.
    pub fn leaders(&self) -> Vec<u64> {
        let leads = |machine: &&Machine| {
            let running = machine.running.as_ref();
            running.is_some_and(|running| running.replica.status().role == ReplicaRole::Leader)
        };
        self.machines.values().filter(leads).map(|machine| machine.id).collect()
    }

    /// Compares the logs of all pairs.
    pub fn compare_logs(&self) {
        let replicas: Vec<_> = self
            .machines
            .values()
            .filter_map(|machine| Some((machine.id, &machine.running.as_ref()?.replica)))
            .collect();
        for (at, one) in replicas.iter().enumerate() {
            for other in &replicas[at + 1..] {
                Ledger::match_logs(*one, *other);
            }
        }
    }

    /// Ends all faults, and expects progress within a time: a leader, every member whole and up to
    /// date, and a proposal acknowledged.
    pub fn heal(&mut self, within_us: u64) {
        self.is_faulty = false;
        self.network.heal();
        let ids: Vec<u64> = self.machines.keys().copied().collect();
        for id in ids {
            if let Some(machine) = self.machines.get_mut(&id) {
                (machine.tick_us, machine.sync_us, machine.frozen_until_us) = (100_000, 300, 0);
                if machine.running.is_some() {
                    // It would be found at the next operation.
                    if machine.disk.power_is_lost() {
                        self.stop(id, true);
                    } else {
                        machine.repair();
                    }
                }
            }
            self.start(id);
        }
        let (began, acknowledged) = (self.queue.now(), self.ledger.acknowledged());
        while !self.is_healthy(acknowledged) {
            assert!(
                self.queue.now() < began + within_us,
                "no progress after {within_us} us: {}",
                self.describe()
            );
            let next = self.queue.now() + 50_000;
            self.run_until(next);
        }
        let took = self.queue.now() - began;
        let longest = self.counts.0.entry("longest recovery in ms").or_default();
        *longest = (*longest).max(took / 1000);
        self.counts.one("recoveries");
        self.is_faulty = true;
    }

    fn is_healthy(&self, acknowledged: u64) -> bool {
        let membership = &self.ledger.membership.1;
        let up_to_date = |id: &u64| {
            let running = self.machines.get(id).and_then(|machine| machine.running.as_ref());
            running.is_some_and(|running| {
                !running.replica.status().is_lost && running.replica.applied() + 3 >= self.ledger.committed()
            })
        };
        let members: BTreeSet<u64> = membership.replicas();
        self.ledger.acknowledged() > acknowledged && !membership.is_joint() && members.iter().all(up_to_date)
    }

    fn describe(&self) -> String {
        let mut text = format!("committed {}, {:?}", self.ledger.committed(), self.ledger.membership);
        for machine in self.machines.values() {
            let status = machine.running.as_ref().map(|running| running.replica.status());
            text += &format!("\n  {}: {status:?}", machine.id);
        }
        text
    }
}
