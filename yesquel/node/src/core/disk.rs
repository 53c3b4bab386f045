//! What a group does as its disk goes on: replies leave when their records are durable. On a full disk
//! they wait for space, but not for long, and new writes are refused.

use super::GroupCore;
use crate::{ReplySink, records::RecordBatch};
use yesquel_wire::status::DiskFullStatus;

/// The longest time that replies wait for space on a full disk, in milliseconds. A checkpoint that
/// ends may free space by itself within this time.
const SPACE_WITHIN_MS: u64 = 5_000;

/// A disk without space.
#[derive(Debug)]
pub(super) struct FullDisk {
    /// The error of the write.
    error: String,
    /// Uptime of that write.
    since_ms: u64,
    /// Replies wait no more.
    pub(super) has_lasted: bool,
}

impl GroupCore {
    /// Releases the replies whose records are on disk. Records up to `reached` count as durable, by
    /// the durability.
    pub(crate) fn release(&mut self, synced: u64, reached: u64, log_bytes: u64, sink: &dyn ReplySink) {
        (self.synced, self.log_bytes) = (synced, log_bytes);
        self.engine.note_durable(reached);
        self.engine.note_synced(synced);
        self.held.release(synced, sink);
    }

    /// Records that nothing becomes durable any more: the disk has everything up to `reached`, and
    /// `batch` was being written.
    pub(crate) fn fail(&mut self, error: String, reached: u64, batch: &RecordBatch, sink: &dyn ReplySink) {
        self.failed = Some(error);
        self.full = None;
        let lost = batch.first_seen().into_iter().chain(self.records.first_seen()).min();
        self.engine.freeze(reached, lost, &mut self.effects);
        self.held.refuse(sink);
        self.settle(None, sink);
    }

    /// Notes that a batch waits for space: everything up to `reached` is durable.
    pub(crate) fn note_full(&mut self, error: &str, reached: u64, batch: &RecordBatch) {
        if self.full.is_none() {
            let pending = batch.first_seen().into_iter().chain(self.records.first_seen()).min();
            self.engine.suspend(reached, pending);
            let (error, since_ms) = (error.to_owned(), self.clocks.uptime_ms);
            self.full = Some(FullDisk { error, since_ms, has_lasted: false });
            self.full_count += 1;
        }
    }

    /// Notes that all batches are written.
    pub(crate) fn note_space(&mut self) {
        if self.full.take().is_some() {
            self.engine.end_suspension();
        }
    }

    /// Refuses the replies that have waited for space for too long. Returns whether there were any.
    pub(super) fn refuse_late(&mut self, sink: &dyn ReplySink) -> bool {
        let now_ms = self.clocks.uptime_ms;
        match &mut self.full {
            Some(full) if !full.has_lasted && now_ms >= full.since_ms + SPACE_WITHIN_MS => {
                full.has_lasted = true;
                self.held.refuse(sink)
            }
            _ => false,
        }
    }

    pub(super) fn full_status(&self) -> Option<DiskFullStatus> {
        let full = self.full.as_ref()?;
        let since_ms = self.clocks.uptime_ms.saturating_sub(full.since_ms);
        Some(DiskFullStatus { error: full.error.clone(), since_ms })
    }
}
