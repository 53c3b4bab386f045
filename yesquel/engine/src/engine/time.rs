//! The times that a server gives out: never one twice, never one that a restart
//! may give again. `docs/yesquel/nodes.md` has the law of the ceiling.

use super::{Engine, Frozen};
use crate::{
    effects::{Effects, Now},
    record::Record,
};
use yesquel_model::{Refusal, Timestamp, limits::CLOCK_AHEAD_MS_MAX};

/// How far the ceiling of timestamps is put above the clock, and how near the
/// clock may come to it before it is put higher: two records a second, each of
/// which has half a second to reach the disk before anybody waits for it.
const CEILING_MS: u64 = 1_000;
const CEILING_NEAR_MS: u64 = 500;

/// How long a server that starts waits at most for a clock that is behind what
/// it has promised. Crashes cost less; a clock that is further behind was set.
const WAIT_MS_MAX: u64 = 5_000;

impl Engine {
    pub(crate) fn witness(&mut self, now: Now, seen: Timestamp) -> Result<(), Refusal> {
        Ok(self.clock.witness(seen, now.wall_ms)?)
    }

    /// The record that must be on disk before a timestamp is given out, if the
    /// ceiling needs not be raised for it.
    pub(crate) fn is_under_ceiling(&self, given: Timestamp) -> Option<u64> {
        if self.frozen.is_some() || given.ms() + CEILING_NEAR_MS > self.ceiling.ms() {
            return None;
        }
        Some(if given > self.ceiling_before { self.ceiling_lsn } else { 0 })
    }

    /// Sees to it that a timestamp that is given out is below a ceiling in the
    /// log; returns the record that must be on disk before.
    pub(crate) fn under_ceiling(&mut self, given: Timestamp, effects: &mut Effects) -> u64 {
        if let Some(last) = self.frozen {
            return if given > last.ceiling { u64::MAX } else { 0 };
        }
        if given.ms() + CEILING_NEAR_MS > self.ceiling.ms() {
            self.ceiling_before = self.ceiling;
            self.ceiling = Timestamp::from_ms(given.ms() + CEILING_MS);
            self.log(&Record::Ceiling(self.ceiling), effects);
            self.ceiling_lsn = self.lsn;
        }
        if given > self.ceiling_before { self.ceiling_lsn } else { 0 }
    }

    /// The snapshot of a request: its own, which must not be too old, or now.
    pub(crate) fn snapshot(&mut self, now: Now, snapshot: Option<Timestamp>) -> Result<Timestamp, Refusal> {
        let Some(snapshot) = snapshot else {
            return Ok(self.clock.now(now.wall_ms));
        };
        // A later commit must be above it.
        self.clock.witness(snapshot, now.wall_ms)?;
        let readable = self.snapshots.readable();
        if readable.contains(snapshot) {
            Ok(snapshot)
        } else {
            Err(Refusal::SnapshotTooOld { snapshot, oldest: readable.low })
        }
    }

    /// A snapshot of a server whose disk has failed: not behind what the client
    /// has seen, maybe elsewhere.
    pub(crate) fn frozen_snapshot(
        &mut self,
        now: Now,
        frozen: Frozen,
        seen: Timestamp,
    ) -> Result<Timestamp, Refusal> {
        let present = self.clock.now(now.wall_ms).min(frozen.ceiling);
        let whole = present.min(frozen.whole);
        let readable = self.snapshots.readable();
        if seen <= whole && readable.contains(whole) {
            Ok(whole)
        } else if seen <= present && readable.contains(present) {
            // What is lost in nodes that it asks for is not told.
            Ok(present)
        } else {
            Err(Refusal::DiskFailed)
        }
    }

    /// How long a server is to wait before it begins, lest others refuse its
    /// times, which begin above what it may have given before it fell. Zero
    /// also where it would take too long: times do not go back for all that.
    pub fn wait_ms(&self, now: Now) -> u64 {
        let ahead = self.clock.last().ms().saturating_sub(now.wall_ms);
        let wait = ahead.saturating_sub(CLOCK_AHEAD_MS_MAX);
        if wait > WAIT_MS_MAX { 0 } else { wait }
    }

    /// It ends in order: nothing more is given out, and a restart begins where
    /// this one has stopped.
    pub fn end(&mut self, effects: &mut Effects) {
        if self.frozen.is_some() {
            return;
        }
        // Where they are the same, nothing was given since the last start.
        if self.ceiling != self.clock.last() {
            // Above the last that was given: no snapshot outlives a restart.
            let above = Timestamp(self.clock.last().0.saturating_add(1));
            (self.ceiling, self.ceiling_before) = (above, above);
            self.log(&Record::Ceiling(above), effects);
        }
        self.frozen = Some(Frozen { ceiling: self.ceiling, whole: self.ceiling });
    }

    /// The highest timestamp that it has given or seen.
    pub fn clock(&mut self, now: Now) -> Timestamp {
        self.clock.now(now.wall_ms)
    }
}
