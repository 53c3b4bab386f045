//! Timestamps: the server never gives one twice, nor one that a restart may give again.
//! `docs/yesquel/nodes.md` has the law of the ceiling.

use super::{Engine, suspension::ReadBounds};
use crate::{
    effects::{Effects, Now, Stop},
    record::LogRecord,
    snapshots::Readable,
};
use yesquel_model::{
    HybridClock, Refusal, ServerId, Timestamp, TooFarAhead,
    limits::{CLOCK_AHEAD_MS_MAX, CLOCK_HELD_MS_MAX},
};
use yesquel_wire::{ByteWriter, Participants, Request};

/// Distance of the ceiling above the clock, and the remaining distance at which it is raised: two
/// records a second, each with half a second to become durable before a request waits for it.
const CEILING_MS: u64 = 1_000;
const CEILING_NEAR_MS: u64 = 500;

/// Interval at which the low-water mark is raised while there are changes.
const LOW_WATER_MS: u64 = 1_000;

/// Longest wait of a starting server for a clock behind its promises. A crash costs less; a clock
/// further behind was set.
const WAIT_MS_MAX: u64 = 5_000;

impl Engine {
    /// Advances the clock to a timestamp of a request, or stops the request: until the timestamp is
    /// near enough, if that is soon.
    pub(crate) fn witness(&mut self, now: Now, seen: Timestamp) -> Result<(), Stop> {
        self.clock.witness(seen, now.wall_ms).map_err(|_| self.too_far_ahead(now, seen))
    }

    /// Stops a request whose timestamp is too far ahead: until it is near enough, if that is soon.
    pub(crate) fn too_far_ahead(&self, now: Now, given: Timestamp) -> Stop {
        if self.frozen.is_none() && given.ms() <= now.wall_ms.saturating_add(CLOCK_HELD_MS_MAX) {
            return Stop::Delay { fits_at_ms: given.ms().saturating_sub(CLOCK_AHEAD_MS_MAX) };
        }
        Refusal::from(TooFarAhead { given, ours: Timestamp::from_ms(now.wall_ms) }).into()
    }

    /// Answers the requests whose timestamps are near enough now.
    pub(crate) fn answer_delayed(&mut self, now: Now, effects: &mut Effects) {
        if self.delayed.iter().all(|delayed| delayed.fits_at_ms > now.wall_ms) {
            return;
        }
        for delayed in std::mem::take(&mut self.delayed) {
            if delayed.fits_at_ms > now.wall_ms {
                self.delayed.push(delayed);
                continue;
            }
            // The request was checked when it arrived.
            let handled = self.handle(now, delayed.caller, &delayed.request, effects);
            debug_assert!(handled.is_ok());
        }
    }

    /// The record that must be durable before a timestamp is given out; `None` if the ceiling must
    /// be raised first, or reads are bounded.
    pub(crate) fn is_under_ceiling(&self, given: Timestamp) -> Option<u64> {
        if self.read_bounds().is_some() || given.ms() + CEILING_NEAR_MS > self.ceiling.ms() {
            return None;
        }
        Some(if given > self.ceiling_before { self.ceiling_lsn } else { 0 })
    }

    /// Raises the ceiling in the log if necessary, and returns the record that must be durable
    /// before a timestamp is given out.
    pub(crate) fn under_ceiling(&mut self, given: Timestamp, effects: &mut Effects) -> u64 {
        if let Some(last) = self.frozen {
            return if given > last.ceiling { u64::MAX } else { 0 };
        }
        if given.ms() + CEILING_NEAR_MS > self.ceiling.ms() {
            // A ceiling that the log may still lose bounds nothing.
            if self.ceiling_lsn <= self.durable_lsn {
                self.ceiling_before = self.ceiling;
            }
            self.ceiling = Timestamp::from_ms(given.ms() + CEILING_MS);
            self.log(&LogRecord::Ceiling(self.ceiling), effects);
            self.ceiling_lsn = self.lsn;
        }
        if given > self.ceiling_before { self.ceiling_lsn } else { 0 }
    }

    /// The snapshot of a request: its own, if it is still readable, or the present.
    pub(crate) fn snapshot(&mut self, now: Now, snapshot: Option<Timestamp>) -> Result<Timestamp, Stop> {
        let Some(snapshot) = snapshot else {
            return Ok(self.clock.now(now.wall_ms));
        };
        // Later commits must be above it.
        self.witness(now, snapshot)?;
        if self.snapshots.serves(snapshot) {
            Ok(snapshot)
        } else {
            Err(Refusal::SnapshotTooOld { snapshot, oldest: self.snapshots.oldest_served() }.into())
        }
    }

    /// A snapshot at a server where nothing becomes durable: not behind what the client has seen,
    /// perhaps elsewhere.
    pub(crate) fn bounded_snapshot(
        &mut self,
        now: Now,
        bounds: ReadBounds,
        seen: Timestamp,
    ) -> Result<Timestamp, Refusal> {
        let present = self.clock.now(now.wall_ms).min(bounds.ceiling);
        let whole = present.min(bounds.whole);
        if seen <= whole && self.snapshots.serves(whole) {
            Ok(whole)
        } else if seen <= present && self.snapshots.serves(present) {
            // The read is refused later if it meets lost changes, and waits if they become durable.
            Ok(present)
        } else {
            self.check_disk().and(Err(Refusal::DiskFailed))
        }
    }

    /// Returns the clock, once the transactions have ended that had voted when the request came, or
    /// up to a time, and that have participants which are not asked. A commit over several groups is
    /// acknowledged when all have voted, and its time is the last vote. If all participants are asked,
    /// that group's clock is not below it. Otherwise the commit must be decided here.
    pub(crate) fn present_clock(
        &mut self,
        now: Now,
        (asked, seen, votes_until): (Participants<'_>, Timestamp, Option<Timestamp>),
        effects: &mut Effects,
    ) -> Result<(Timestamp, u64), Stop> {
        let clock = self.clock.now(now.wall_ms);
        let until = votes_until.unwrap_or(clock);
        let is_asked = |server: &ServerId| asked.iter().any(|asked| asked == *server);
        let voted = self
            .prepared
            .iter()
            .find(|(_, prepared)| prepared.at <= until && !prepared.participants.iter().all(is_asked));
        if let Some((txn, _)) = voted {
            // Later votes do not make it wait longer.
            let mut waits = Vec::new();
            let request = Request::Present { asked, seen, votes_until: Some(until) };
            request.write(&mut ByteWriter(&mut waits));
            self.present_after_wait = Some(waits);
            return Err(Stop::Wait(*txn));
        }
        Ok((clock, self.under_ceiling(clock, effects)))
    }

    /// Milliseconds that a server must wait after a crash so that other servers accept its
    /// timestamps, which start above all that it may have given before. Zero if the wait would be
    /// too long; timestamps still never go back.
    pub fn wait_ms(&self, now: Now) -> u64 {
        let ahead = self.clock.last().ms().saturating_sub(now.wall_ms);
        let wait = ahead.saturating_sub(CLOCK_AHEAD_MS_MAX);
        if wait > WAIT_MS_MAX { 0 } else { wait }
    }

    /// Begins to serve after a start. `is_synced`: replies will wait until the records that they
    /// depend on are on disk.
    ///
    /// If those of the last run did not, and it has not ended in order, clients may have read what is
    /// lost, and have got timestamps of which the log says nothing. Snapshots of that run are too old
    /// from now on: the clock begins above all timestamps that the run may have given out, which were
    /// not further ahead of its wall clock than is accepted.
    pub fn begin(&mut self, now: Now, is_synced: bool, effects: &mut Effects) {
        if !self.is_synced {
            let ahead = Timestamp::from_ms(now.wall_ms.saturating_add(CLOCK_AHEAD_MS_MAX + 1));
            let start = self.clock.last().max(self.ceiling).max(ahead);
            self.clock = HybridClock::above(start);
            self.snapshots.after_restart(start, 0);
            self.set_low_water(Readable { low: start, next: start }, effects);
        }
        self.set_synced(is_synced, effects);
    }

    fn set_synced(&mut self, is_synced: bool, effects: &mut Effects) {
        if is_synced != self.is_synced {
            self.is_synced = is_synced;
            self.log(&LogRecord::Synced(is_synced), effects);
        }
    }

    /// Shuts down cleanly: no more timestamps are given, and a restart continues from here.
    pub fn end(&mut self, effects: &mut Effects) {
        if self.frozen.is_some() {
            return;
        }
        // If they are equal, no timestamp was given since the last start.
        if self.ceiling != self.clock.last() {
            // Above the last timestamp given: no snapshot survives a restart.
            let above = Timestamp(self.clock.last().0.saturating_add(1));
            (self.ceiling, self.ceiling_before) = (above, above);
            self.log(&LogRecord::Ceiling(above), effects);
        }
        // No client returns to a server that was stopped, so what only their snapshots see need not
        // be kept.
        let low = self.ceiling;
        if self.last_change > self.snapshots.low() {
            self.set_low_water(Readable { low, next: low }, effects);
        }
        // Whatever is on disk up to this record, nothing before it is lost.
        self.set_synced(true, effects);
        self.frozen = Some(ReadBounds { ceiling: self.ceiling, whole: self.ceiling });
    }

    /// Returns the ceiling: no timestamp above it has been given out.
    pub fn ceiling(&self) -> Timestamp {
        self.ceiling
    }

    /// Raises the low-water mark as proposed, by a record, if that lets something be collected: once a
    /// second, or at once when memory is nearly spent. An engine in which nothing changes writes no
    /// record.
    pub(crate) fn raise_low_water(&mut self, now: Now, proposed: Readable, effects: &mut Effects) {
        let Readable { low, next } = self.snapshots.readable();
        let (queued, pinned) = self.store.garbage_waits();
        let pinned = pinned || self.values.waits_for_mark();
        let helps = |from: Timestamp, to: Timestamp, waits| to > from && (self.last_change > from || waits);
        if !helps(low, proposed.low, queued || pinned) && !helps(next, proposed.next, queued) {
            return;
        }
        let interval_ms = LOW_WATER_MS.min(self.settings.grace_ms);
        let is_due = self.raised_at_ms.is_none_or(|raised| now.uptime_ms >= raised + interval_ms);
        if is_due || self.is_near() {
            self.raised_at_ms = Some(now.uptime_ms);
            self.set_low_water(proposed, effects);
        }
    }

    pub(crate) fn set_low_water(&mut self, Readable { low, next }: Readable, effects: &mut Effects) {
        self.log(&LogRecord::LowWater { low, next }, effects);
        self.move_mark(low, next);
    }

    /// Returns the present by the server's clock.
    pub fn clock(&mut self, now: Now) -> Timestamp {
        self.clock.now(now.wall_ms)
    }
}
