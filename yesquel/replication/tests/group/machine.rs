//! A machine with one replica: its disk, its log and its state.

use crate::ledger::{proposal_of, state_after};
use std::collections::{BTreeMap, VecDeque};
use yesquel_log::{LogError, LogEvent, LogIdentity, LogPoint, SegmentWriter, checkpoint, open};
use yesquel_replication::{
    CheckpointHead, CommittedEntry, EntryId, Membership, OutgoingMessage, ReadyWork, RecoveredLog, Replica,
    ReplicaOptions,
};
use yesquel_seeds::Random;
use yesquel_simulation::disk::SimulatedDisk;

/// Silence after which elections begin, in ticks of 100 ms.
const ELECTION_TICKS: usize = 10;

/// When an acknowledged entry is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupDurability {
    /// Before it is acknowledged.
    Sync,
    /// Some time later.
    Interval,
}

/// A work whose record waits for the disk.
struct UnwrittenWork {
    number: u64,
    needs_sync: bool,
    messages: Vec<OutgoingMessage>,
}

/// A replica while it runs.
pub struct RunningReplica {
    pub replica: Replica,
    writer: SegmentWriter<SimulatedDisk>,
    /// Number of the record that holds each entry.
    positions: BTreeMap<u64, u64>,
    unwritten: VecDeque<UnwrittenWork>,
    /// Checksum of the state at `replica.applied()`.
    pub state: u64,
    /// Proposals that wait to be committed.
    pub held: BTreeMap<EntryId, u64>,
}

/// What a machine does besides its own work.
#[derive(Default)]
pub struct Effects {
    pub messages: Vec<OutgoingMessage>,
    pub committed: Vec<(CommittedEntry, u64)>,
    pub restored: Option<(u64, u64)>,
    pub membership: Option<(u64, Membership)>,
    pub acknowledged: Vec<(EntryId, u64)>,
    pub reads: Vec<(u64, u64)>,
    pub failed_reads: Vec<u64>,
    /// Index and number of the entries cut.
    pub cut: Option<(u64, u64)>,
    /// Whether the state had entries that were cut, as a leader applies before they are committed.
    pub rebuilds: bool,
    pub is_deposed: bool,
    pub is_readmitted: bool,
}

impl RunningReplica {
    /// Starts from what is on disk.
    pub fn start(disk: &SimulatedDisk, id: u64, options: ReplicaOptions) -> Result<RunningReplica, LogError> {
        let newest = checkpoint::list(disk)?.pop();
        let (mut log, mut state, after) = (RecoveredLog::empty(id), 0, newest.unwrap_or(0));
        if newest.is_some() {
            let mut parts: Vec<Vec<u8>> = Vec::new();
            checkpoint::read(disk, LogIdentity::default(), after, |record| {
                parts.push(record.to_vec());
                Ok(())
            })?;
            let head = CheckpointHead::decode(&parts[0]).unwrap();
            state = u64::from_le_bytes(parts[1][..8].try_into().unwrap());
            log = RecoveredLog::after(id, &head, parts[1].clone());
        }
        let mut positions = BTreeMap::new();
        let opened = open(disk.clone(), LogIdentity::default(), at(after), |event| {
            // Records without an index cut nothing.
            let LogEvent::Record(record) = event else { panic!("the log restarts") };
            if let Some((first, last)) = log.replay(record.bytes).unwrap() {
                positions.split_off(&first);
                positions.extend((first..=last).map(|index| (index, record.point.position)));
            }
            Ok(())
        })?;
        let mut writer = opened.writer;
        writer.segment_bytes_max(8 << 10);
        let replica = Replica::start(log, options).unwrap();
        let (unwritten, held) = (VecDeque::new(), BTreeMap::new());
        Ok(RunningReplica { replica, writer, positions, unwritten, state, held })
    }

    /// Does all work there is. An error ends the machine.
    pub fn work(&mut self, disk: &SimulatedDisk, durability: GroupDurability) -> Result<Effects, LogError> {
        let mut effects = Effects::default();
        while let Some(work) = self.replica.take_work().unwrap() {
            self.carry_out(work, disk, durability, &mut effects)?;
            self.finish_written(&mut effects);
        }
        Ok(effects)
    }

    fn carry_out(
        &mut self,
        work: ReadyWork,
        disk: &SimulatedDisk,
        durability: GroupDurability,
        effects: &mut Effects,
    ) -> Result<(), LogError> {
        if work.is_deposed {
            effects.is_deposed = true;
            effects.rebuilds |= work.cut.is_some_and(|cut| self.held.keys().any(|id| id.index >= cut));
            self.held.clear();
        }
        effects.failed_reads.extend(work.failed_reads);
        effects.messages.extend(work.messages);
        if let Some((head, data)) = &work.restored {
            self.writer.sync()?;
            write_checkpoint(disk, self.writer.next_position() - 1, head, data)?;
            let head = CheckpointHead::decode(head).unwrap();
            self.state = u64::from_le_bytes(data[..8].try_into().unwrap());
            self.positions.clear();
            effects.restored = Some((head.index, self.state));
        }
        if let Some(cut) = work.cut {
            let gone = self.positions.split_off(&cut);
            effects.cut = Some((cut, gone.len() as u64));
        }
        if !work.record.is_empty() {
            let position = self.writer.next_position();
            self.writer.append(0, 0, &work.record, &[work.record.len()])?;
            if let Some((first, last)) = work.entries {
                self.positions.extend((first..=last).map(|index| (index, position)));
            }
        }
        let holds_entries = work.entries.is_some() && durability == GroupDurability::Sync;
        self.unwritten.push_back(UnwrittenWork {
            number: work.number,
            needs_sync: work.holds_vote || holds_entries,
            messages: work.messages_after,
        });
        for entry in work.committed {
            self.state = state_after(self.state, &entry);
            while let Some(first) =
                self.held.first_entry().filter(|first| first.key().index <= entry.id.index)
            {
                let (id, proposal) = first.remove_entry();
                // Another entry at its index: the lead was lost and won again.
                if id == entry.id && proposal == proposal_of(&entry) {
                    effects.acknowledged.push((id, proposal));
                }
            }
            effects.committed.push((entry, self.state));
        }
        effects.membership = work.membership.or(effects.membership.take());
        effects.reads.extend(work.reads);
        effects.is_readmitted |= work.is_readmitted;
        Ok(())
    }

    /// Reports works that need no sync.
    fn finish_written(&mut self, effects: &mut Effects) {
        while let Some(work) = self.unwritten.pop_front_if(|work| !work.needs_sync) {
            self.replica.written(work.number);
            effects.messages.extend(work.messages);
        }
    }

    pub fn needs_sync(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Makes all records durable.
    pub fn sync(&mut self) -> Result<Vec<OutgoingMessage>, LogError> {
        self.writer.sync()?;
        let mut messages = Vec::new();
        for work in self.unwritten.drain(..) {
            self.replica.written(work.number);
            messages.extend(work.messages);
        }
        Ok(messages)
    }

    /// Writes a checkpoint, and deletes the log before it.
    pub fn checkpoint(&mut self, disk: &SimulatedDisk, keep: u64) -> Result<bool, LogError> {
        let data = self.state.to_le_bytes().to_vec();
        let Some(head) = self.replica.checkpoint(data.clone(), keep) else { return Ok(false) };
        self.writer.sync()?;
        // Records with later entries stay.
        let next = self.positions.range(head.index + 1..).map(|(_, position)| *position).min();
        let covered = next.unwrap_or(self.writer.next_position()) - 1;
        if checkpoint::list(disk)?.last().is_some_and(|last| *last >= covered) {
            return Ok(false);
        }
        write_checkpoint(disk, covered, &head.encode(), &data)?;
        self.writer.delete_up_to(covered)?;
        Ok(true)
    }
}

/// A record at a position, without an index: entries have theirs in the records.
fn at(position: u64) -> LogPoint {
    LogPoint { position, ..LogPoint::default() }
}

fn write_checkpoint(disk: &SimulatedDisk, position: u64, head: &[u8], data: &[u8]) -> Result<(), LogError> {
    checkpoint::write(disk, LogIdentity::default(), at(position), |put| {
        put(head)?;
        put(data)
    })?;
    Ok(())
}

/// A machine, running or not.
pub struct Machine {
    pub id: u64,
    pub disk: SimulatedDisk,
    pub running: Option<RunningReplica>,
    /// Starts of the process. Events of an earlier one are void.
    pub starts: u64,
    /// Starts of the machine: power was lost in between.
    boots: u64,
    /// The boot in which nothing is lost, durable.
    whole_boot: u64,
    pub tick_us: u64,
    pub sync_us: u64,
    pub frozen_until_us: u64,
    pub syncs: u64,
    /// Whether its power goes in one of the next operations.
    pub is_doomed: bool,
}

impl Machine {
    /// A machine with a first checkpoint, or with nothing.
    pub fn new(id: u64, first: Option<&CheckpointHead>) -> Machine {
        let disk = SimulatedDisk::new();
        if let Some(head) = first {
            write_checkpoint(&disk, 0, &head.encode(), &0u64.to_le_bytes()).unwrap();
        }
        Machine {
            id,
            disk,
            running: None,
            starts: 0,
            boots: 1,
            whole_boot: 1,
            tick_us: 100_000,
            sync_us: 300,
            frozen_until_us: 0,
            syncs: 0,
            is_doomed: false,
        }
    }

    /// Ends the process. With a loss of power, unsynced bytes are lost.
    pub fn stop(&mut self, power: Option<&mut Random>) {
        self.running = None;
        let lost_in_operation = self.disk.power_is_lost();
        if let Some(random) = power {
            self.disk.crash(random);
            self.boots += 1;
        } else {
            assert!(!lost_in_operation, "the power goes without a loss");
        }
        self.repair();
    }

    pub fn repair(&mut self) {
        self.disk.repair();
        self.is_doomed = false;
    }

    /// Whether a start now would find that power was lost, without a sync at each write.
    pub fn is_weak(&self, durability: GroupDurability) -> bool {
        durability == GroupDurability::Interval && self.boots != self.whole_boot
    }

    pub fn start(&mut self, seed: u64, durability: GroupDurability) -> Result<(), LogError> {
        self.starts += 1;
        let options = ReplicaOptions {
            incarnation: self.starts,
            seed: seed ^ self.starts,
            election_ticks: ELECTION_TICKS,
            message_bytes: 2_000,
            is_lost: self.is_weak(durability),
        };
        self.running = Some(RunningReplica::start(&self.disk, self.id, options)?);
        Ok(())
    }

    pub fn readmitted(&mut self) {
        self.whole_boot = self.boots;
    }
}
