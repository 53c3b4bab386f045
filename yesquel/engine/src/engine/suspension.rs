//! A disk that has failed, or is full: what is refused, and what can be read.
//! `docs/yesquel/log.md` describes both.

use super::Engine;
use crate::effects::Effects;
use yesquel_model::{Refusal, Timestamp};

/// State that can be read while nothing becomes durable: the log has failed, or has no space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadBounds {
    /// A restart gives no timestamp up to this one.
    pub(crate) ceiling: Timestamp,
    /// Everything up to this timestamp is durable.
    pub(crate) whole: Timestamp,
}

impl Engine {
    /// The bounds of reads: the log is durable up to `synced`, and the records after it have no
    /// effect before `pending`.
    fn bounds(&self, synced: u64, pending: Option<Timestamp>) -> ReadBounds {
        let ceiling = if self.ceiling_lsn <= synced { self.ceiling } else { self.ceiling_before };
        let before = pending.map_or(Timestamp::MAX, |pending| Timestamp(pending.0.saturating_sub(1)));
        ReadBounds { ceiling, whole: ceiling.min(before) }
    }

    /// Freezes the engine: the log takes no more records and is durable up to `synced`; the records
    /// after it have no effect before `lost`. Reads go on, at snapshots below everything lost and
    /// below whatever a restart gives out.
    pub fn freeze(&mut self, synced: u64, lost: Option<Timestamp>, effects: &mut Effects) {
        self.end_suspension();
        self.frozen = Some(self.bounds(synced, lost));
        self.refuse_waiting(Refusal::DiskFailed, effects);
    }

    /// Refuses new writes, because the disk is full: the log is durable up to `synced`, and the
    /// records after it, which become durable when there is space, have no effect before `pending`.
    /// Everything else goes on as with a slow disk. Reads at snapshots below the records wait for
    /// nothing, and those without a snapshot get such a one.
    pub fn suspend(&mut self, synced: u64, pending: Option<Timestamp>) {
        if self.frozen.is_none() {
            self.suspended = Some(self.bounds(synced, pending));
        }
    }

    /// Takes writes again, since the disk has space.
    pub fn end_suspension(&mut self) {
        self.suspended = None;
    }

    /// Lowers the bounds of reads below a commit that is applied now and is not durable.
    pub(super) fn read_below(&mut self, at: Timestamp) {
        if let Some(bounds) = &mut self.suspended {
            bounds.whole = bounds.whole.min(Timestamp(at.0.saturating_sub(1)));
        }
    }

    /// Notes that the log is durable up to a record.
    pub fn note_durable(&mut self, lsn: u64) {
        self.durable_lsn = self.durable_lsn.max(lsn);
    }

    /// Notes that the log is on disk up to a record.
    pub fn note_synced(&mut self, lsn: u64) {
        self.synced_lsn = lsn;
    }

    /// What can be read while nothing becomes durable.
    pub(crate) fn read_bounds(&self) -> Option<ReadBounds> {
        self.frozen.or(self.suspended)
    }

    /// Refuses what the disk does not allow now.
    pub(crate) fn check_disk(&self) -> Result<(), Refusal> {
        match (self.frozen, self.suspended) {
            (Some(_), _) => Err(Refusal::DiskFailed),
            (None, Some(_)) => Err(Refusal::DiskFull),
            (None, None) => Ok(()),
        }
    }
}
