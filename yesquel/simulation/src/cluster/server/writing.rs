//! A server writes its log: what `yesquel-server` does in a thread of its own, by events.

use crate::{
    ProtocolPath,
    cluster::{Cluster, SimulationEvent},
};
use yesquel_node::{CheckpointWriter, LogFailure, WriteAttempt};

/// The longest time that a reply waits for a sync which the durability does not make.
const SYNC_WITHIN_US: u64 = 1_000_000;
/// Time from one attempt to write to a full disk to the next.
const RETRY_US: u64 = 200_000;
impl Cluster {
    pub(super) fn begin_write(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let Some(running) = &mut server.running else { return };
        if running.is_writing || running.core.failure().is_some() {
            return;
        }
        let begins_us = match (running.core.records().is_empty(), running.sync_by_us) {
            _ if running.retry_at_us.is_some() => running.retry_at_us.unwrap_or(0),
            // What a reply waits for may be written already.
            _ if running.core.is_sync_wanted() => 0,
            (true, None) => return,
            (true, Some(by_us)) => by_us,
            (false, by_us) => running.pause_until_us.min(by_us.unwrap_or(u64::MAX)),
        };
        let (epoch, lsn) = (server.epoch, running.core.engine().lsn());
        let (known_us, now_us) = (running.write_at_us, self.now_us());
        let us = self.takes([4, at as u64, epoch, lsn]) / 4 + begins_us.saturating_sub(now_us);
        if known_us.is_some_and(|known_us| known_us <= now_us + us) {
            return;
        }
        if let Some(running) = &mut self.servers[at].running {
            running.write_at_us = Some(now_us + us);
        }
        self.after(us, SimulationEvent::Write { server: at, epoch });
    }

    pub(in crate::cluster) fn write(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let now_us = self.now_us();
        let Some(running) = &mut self.servers[at].running else { return };
        if running.is_writing || running.write_at_us.is_none_or(|begins_us| begins_us > now_us) {
            // Another write has begun earlier.
            return;
        }
        (running.is_writing, running.write_at_us) = (true, None);
        running.log.take(&mut running.core);
        if running.log.is_sync_wanted() {
            running.sync_by_us.get_or_insert(now_us + SYNC_WITHIN_US);
        }
        let was_full = running.retry_at_us.take().is_some();
        let written = running.log.append();
        let next = running.core.engine().lsn();
        match written {
            Ok(WriteAttempt::Written) if was_full => {
                self.servers[at].laws.paths.add(ProtocolPath::WrittenAfterFull);
            }
            Ok(WriteAttempt::Written) => {}
            Ok(WriteAttempt::DiskFull) => {
                running.retry_at_us = Some(now_us + RETRY_US);
                self.counts.full_disks += u64::from(!was_full);
            }
            Err(failure) => return self.disk_failed(at, failure),
        }
        let Some(running) = &mut self.servers[at].running else { return };
        let is_due = running.sync_by_us.is_some_and(|by_us| by_us <= now_us);
        if !running.log.must_sync(is_due) {
            return self.written(at);
        }
        let us = self.takes([5, at as u64, epoch, next]);
        self.after(us, SimulationEvent::Sync { server: at, epoch });
    }

    pub(in crate::cluster) fn sync(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let Some(running) = &mut self.servers[at].running else { return };
        let synced = running.log.sync();
        if let Err(failure) = synced {
            return self.disk_failed(at, failure);
        }
        if let Some(running) = &mut self.servers[at].running {
            running.sync_by_us = None;
        }
        self.written(at);
    }

    /// Releases the replies that waited for what was written.
    fn written(&mut self, at: usize) {
        let (now_us, epoch) = (self.now_us(), self.servers[at].epoch);
        let is_due = self.step(at, |running, _, sink| {
            running.is_writing = false;
            let pause_us = running.log.pause().map_or(0, |pause| pause.as_micros() as u64);
            running.pause_until_us = now_us + pause_us;
            running.log.release(&mut running.core, sink);
            let is_due = running.log.is_checkpoint_due();
            if is_due {
                running.checkpoint = Some(running.log.begin_checkpoint(&running.core));
            }
            (is_due, running.core.synced())
        });
        let Some((is_due, synced)) = is_due else { return };
        self.servers[at].synced = synced;
        if is_due {
            let us = self.takes([6, at as u64, epoch, 0]) * 4;
            self.after(us, SimulationEvent::Checkpoint { server: at, epoch });
        }
    }

    pub(in crate::cluster) fn write_checkpoint(&mut self, at: usize, epoch: u64) {
        if !self.is_up(at, epoch) {
            return;
        }
        let ended = self.step(at, |running, now, sink| {
            let written = running.checkpoint.take().map(CheckpointWriter::write);
            running.log.end_checkpoint(written, now, &mut running.core, sink)
        });
        if self.servers[at].disk.power_is_lost() {
            return self.lose_power(at);
        }
        // The log is complete without the checkpoint.
        self.counts.checkpoints += u64::from(ended.is_some_and(|ended| ended.is_ok()));
    }

    /// Handles a failed disk operation.
    fn disk_failed(&mut self, at: usize, failure: LogFailure) {
        if self.servers[at].disk.power_is_lost() {
            return self.lose_power(at);
        }
        self.counts.disk_failures += 1;
        self.step(at, |running, _, sink| running.log.fail(&failure, &mut running.core, sink));
    }
}
