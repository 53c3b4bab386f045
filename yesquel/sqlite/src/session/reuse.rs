//! Read statements of their own that continue the transaction of the statement before
//! (`?staleness=`), so that what that has read costs no round trip.

use super::SqlSession;
use crate::code::ResultCode;
use std::time::Duration;

/// Reuse of transactions by a session.
#[derive(Debug, Default)]
pub(super) struct TransactionReuse {
    /// Maximum age of a transaction at the beginning of a statement.
    staleness: Duration,
    /// Uptime of the store when the present transaction began, and the number of commits at that time.
    began: Option<(Duration, u64)>,
    /// Whether all its statements only read, each in a transaction of its own.
    only_reads: bool,
    /// Whether the transaction has no statement and waits for the next one.
    is_idle: bool,
}

impl TransactionReuse {
    /// Whether all statements of the transaction only read, each in a transaction of its own.
    pub(super) fn only_reads(&self) -> bool {
        self.only_reads
    }
}

impl SqlSession {
    /// Sets the maximum age of the snapshot of a read statement, unless it is less already.
    pub(crate) fn limit_staleness(&mut self, staleness: Duration, is_first: bool) {
        let before = self.reuse.staleness;
        self.reuse.staleness = if is_first { staleness } else { before.min(staleness) };
    }

    /// Notes the beginning of a transaction. The snapshot is that of its first read, hence later.
    pub(super) fn note_began(&mut self) {
        let is_used = !self.reuse.staleness.is_zero();
        self.reuse.began = is_used.then(|| (self.shared.uptime(), self.shared.commits()));
    }

    /// Whether the transaction is young enough for another statement, and no connection of this
    /// process has committed since it began.
    fn is_fresh(&self) -> bool {
        self.reuse.began.is_some_and(|(at, commits)| {
            self.shared.uptime().saturating_sub(at) < self.reuse.staleness && commits == self.shared.commits()
        })
    }

    /// Keeps the transaction of a read statement for the next one, instead of ending it. Returns
    /// whether it is kept.
    pub(super) fn keep_for_reuse(&mut self) -> bool {
        let only_reads = self.reuse.only_reads && self.lost.is_none() && self.leases.held.is_none();
        if !only_reads || !self.is_fresh() || self.shared.is_of_parent() {
            return false;
        }
        let Some(open) = &mut self.open else { return false };
        // An idle connection must not hold a snapshot.
        open.with_dependent_mut(|_, running| running.as_mut().map(|running| running.release_snapshot()));
        self.reuse.is_idle = true;
        true
    }

    /// Begins a statement. One that only reads, in a transaction of its own, continues the
    /// transaction that was kept.
    pub(crate) fn begin_statement(&mut self, only_reads: bool) -> Result<(), ResultCode> {
        self.reuse_or_end(only_reads);
        let is_first = self.databases_in_transaction == 0 && self.open.is_none();
        let only_reads = only_reads && (is_first || self.reuse.only_reads);
        let had_only_reads = std::mem::replace(&mut self.reuse.only_reads, only_reads);
        if had_only_reads && !only_reads && self.open.is_some() {
            // It may write now, and what it has read must be checked by its commit.
            return self.with(|transaction| transaction.pin());
        }
        Ok(())
    }

    /// Continues the transaction that was kept, or ends it.
    pub(super) fn reuse_or_end(&mut self, may_reuse: bool) {
        if !self.reuse.is_idle {
            return;
        }
        if may_reuse && !self.shared.is_of_parent() && self.is_fresh() {
            self.reuse.is_idle = false;
            if let Some(open) = &mut self.open {
                open.with_dependent_mut(|_, running| running.as_mut().map(|running| running.hold_snapshot()));
            }
        } else {
            self.drop_transaction(false);
        }
    }

    /// Notes the end of a transaction.
    pub(super) fn end_reuse(&mut self, is_committed: bool) {
        (self.reuse.began, self.reuse.is_idle) = (None, false);
        if is_committed {
            self.shared.note_commit();
        }
    }
}
