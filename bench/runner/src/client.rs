//! The loop of one client: take a ticket, ask the workload, call the store,
//! write down the times. The measured path, the same for every store.

use crate::{
    clock::nanoseconds,
    pacing::Schedule,
    run::Lost,
    slot::{Seen, Slot},
    stage::Stage,
    timers::Sleeper,
};
use serval_measure::{
    recorder::{Moment, RecorderHandle},
    times::Times,
};
use serval_model::{Client, Metric, Operation, OperationKind, Outcome, Reply, Status};
use serval_workload::{ClientWorkload, End, Last, Step};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What all clients of a run look at. Instants are of the run's clock.
#[derive(Debug)]
pub(crate) struct Course {
    /// The start of the run, pacing included.
    pub(crate) start: u64,
    /// The end of warm-up: what ends later counts. Comes nearer, once, when
    /// the warm-up is to last until steady.
    pub(crate) measure_from: AtomicU64,
    /// When no further unit may begin; moved by an interruption.
    pub(crate) end_at: AtomicU64,
    /// Intended starts, if the run is paced.
    pub(crate) schedule: Option<Schedule>,
    /// How long after the end an operation that was due before it may still
    /// start: it was asleep when the end came.
    pub(crate) allowance: u64,
    /// Lateness from which a client was too late that was free for the
    /// operation when it was due, ns.
    pub(crate) late_from: u64,
    /// Whether the time that comparing data takes is measured.
    pub(crate) verifies: bool,
    /// A client has left because of a failure.
    pub(crate) gave_up: AtomicBool,
    /// When the first client was awake at the start, and the last.
    pub(crate) woke: (AtomicU64, AtomicU64),
}

/// What one client has beside the store.
pub(crate) struct Seat<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) course: &'a Course,
    pub(crate) slot: &'a Slot,
    pub(crate) recorder: &'a RecorderHandle,
    pub(crate) index: usize,
    pub(crate) workload: Box<dyn ClientWorkload>,
    pub(crate) table: &'a str,
    /// Units to do after warm-up; `None` without bound.
    pub(crate) units: Option<u64>,
    /// Why the run cannot go on, once it cannot.
    pub(crate) lost: Option<Lost>,
}

/// The intended start of a unit.
#[derive(Clone, Copy)]
struct Due {
    at: u64,
    /// Whether the client was free when it came.
    free: bool,
}

/// When the next unit begins.
enum NextUnit {
    /// At once: nothing is paced.
    Now,
    /// Not before its intended start.
    At(Due),
    /// Not at all: the run or the schedule is over.
    Never,
}

/// A unit that has begun.
struct Unit {
    intended: u64,
    start: u64,
    last_end: u64,
    /// Whether its last operation ended after the warm-up. Asked once an
    /// operation, so that all that is written down of it agrees.
    measured: bool,
}

/// When an operation was to start, started and ended.
struct Span {
    intended: u64,
    start: u64,
    end: u64,
    at: Moment,
}

/// What became of a unit.
enum UnitEnd {
    /// The run was over before it began.
    NotBegun,
    /// It ended without an operation.
    Empty(End),
    /// It ended after at least one operation.
    Done(Unit, End),
}

impl UnitEnd {
    fn of(unit: Option<Unit>, end: End) -> UnitEnd {
        match unit {
            None => UnitEnd::Empty(end),
            Some(unit) => UnitEnd::Done(unit, end),
        }
    }
}

impl Course {
    /// The end of warm-up, as it stands.
    #[inline]
    pub(crate) fn measure_from(&self) -> u64 {
        self.measure_from.load(Relaxed)
    }

    /// When no further unit may begin.
    #[inline]
    pub(crate) fn end_at(&self) -> u64 {
        self.end_at.load(Relaxed)
    }

    fn woke(&self, now: u64) {
        self.woke.0.fetch_min(now, Relaxed);
        self.woke.1.fetch_max(now, Relaxed);
    }

    /// When the first client began, and the last.
    pub(crate) fn began(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.woke.0.load(Relaxed), self.woke.1.load(Relaxed));
        (first <= last).then_some((first, last))
    }
}

async fn send<C: Client>(client: &mut C, operation: &Operation, reply: &mut Reply) -> Outcome {
    let Operation { table, key, fields, record, .. } = operation;
    match operation.kind {
        OperationKind::Read => client.read(table, key, fields, reply).await,
        OperationKind::Update => client.update(table, key, record).await,
        OperationKind::Insert if operation.batch().is_empty() => client.insert(table, key, record).await,
        OperationKind::Insert => client.insert_batch(table, operation.batch()).await,
        OperationKind::Scan => client.scan(table, key, operation.scan_length, fields, reply).await,
        OperationKind::Delete => client.delete(table, key).await,
    }
}

impl Seat<'_> {
    fn moment(&self, warm_up: bool, end: u64) -> Moment {
        Moment { warm_up, client: self.index as u32, end_ns: end.saturating_sub(self.course.start) }
    }

    /// Waits for the intended start of the next unit.
    async fn next_unit<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) -> NextUnit {
        let Some(schedule) = &self.course.schedule else { return NextUnit::Now };
        let Some(after_start) = schedule.take(self.index) else { return NextUnit::Never };
        let intended = self.course.start.saturating_add(after_start);
        self.slot.wait(intended);
        let free = sleeper.now() < intended;
        let due = !free || self.sleep(client, sleeper, intended).await || sleeper.now() >= intended;
        // What is not due before the end stays with the slot, which tells
        // whoever counts what was left.
        if due { NextUnit::At(Due { at: intended, free }) } else { NextUnit::Never }
    }

    /// Sleeps until an instant, and sends what the client has buffered when that
    /// falls due before. `false` when the run was stopped meanwhile.
    async fn sleep<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S, instant: u64) -> bool {
        let waits = matches!(self.slot.seen(), Seen::Waiting(_));
        while client.buffers()
            && let Some(send_at) = client.send_at().filter(|send_at| *send_at < instant)
        {
            if !sleeper.until(send_at).await {
                return false;
            }
            self.send_what_is_due(client, sleeper).await;
            if self.lost.is_some() {
                return false;
            }
            if waits {
                self.slot.wait(instant);
            }
        }
        sleeper.until(instant).await
    }

    /// Sends what the client has buffered if that is due by now, and writes down
    /// the flushes that it tells of.
    async fn send_what_is_due<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) {
        if client.send_at().is_some_and(|send_at| send_at <= sleeper.now()) {
            self.send_buffered(client, sleeper).await;
        }
        self.flushed(client, sleeper.now());
    }

    /// Sends what the client has buffered. A flush that hangs is seen as an
    /// operation in flight.
    async fn send_buffered<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) {
        self.slot.begin(sleeper.now());
        // Boxed: most clients have no buffer, and their state need not have room for it.
        Box::pin(client.send_buffered()).await;
        self.slot.end(self.slot.last_end());
    }

    /// Writes down the flushes that the client tells of, and returns how many.
    #[cold]
    fn flushed<C: Client>(&mut self, client: &mut C, now: u64) -> u64 {
        let mut count = 0;
        while let Some(flush) = client.flushed() {
            count += 1;
            let end = now.saturating_sub(flush.ago_ns);
            self.recorder.flush(&flush, self.moment(end < self.course.measure_from(), end));
            if !flush.outcome.is_ok()
                && self.lost.is_none()
                && let Some(error) = client.lost()
            {
                self.lost = Some(Lost::Store(error));
            }
        }
        count
    }

    /// Sends what a client that operates no more has buffered. That belongs to
    /// what was measured: what lies in a buffer is not yet done.
    async fn send_the_last<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) {
        self.send_buffered(client, sleeper).await;
        let now = sleeper.now();
        if self.flushed(client, now) > 0 {
            self.slot.end(now);
        }
    }

    /// Runs the client until its units, the schedule or the run are over.
    /// Returns why the whole run cannot go on, if it cannot.
    pub(crate) async fn run<C: Client, S: Sleeper>(mut self, client: &mut C, sleeper: &S) -> Option<Lost> {
        let course = self.course;
        let mut operation = Operation::new(self.table);
        let mut reply = Reply::new();
        let mut left = self.units.unwrap_or(u64::MAX);
        sleeper.until(course.start).await;
        course.woke(sleeper.now());
        while left > 0 {
            let due = match self.next_unit(client, sleeper).await {
                NextUnit::Now => None,
                NextUnit::At(due) => Some(due),
                NextUnit::Never => break,
            };
            let end = match self.unit(client, sleeper, due, &mut operation, &mut reply).await {
                UnitEnd::NotBegun => break,
                UnitEnd::Empty(end) => end,
                UnitEnd::Done(unit, end) => {
                    let units = operation.units();
                    // What began in the warm-up and ends after it is measured:
                    // a stall at the boundary must not vanish.
                    if unit.measured {
                        self.recorder.unit(units, end.ok);
                        left = left.saturating_sub(units);
                    }
                    if let Some(metric) = end.composite {
                        self.composite(metric, &unit, end.ok);
                    }
                    end
                }
            };
            if end.stop {
                course.gave_up.fetch_or(!end.ok, Relaxed);
                break;
            }
        }
        if self.lost.is_none() && client.buffers() {
            self.send_the_last(client, sleeper).await;
        }
        let failure = self.lost.take().or_else(|| self.workload.failure().map(Lost::Workload));
        if failure.is_some() {
            return failure;
        }
        self.stage.done().await;
        let start = sleeper.now();
        let outcome = client.close().await;
        let end = sleeper.now();
        let times = Times { service: end - start, response: end - start };
        self.recorder.record(Metric::CLEANUP, &outcome, times, self.moment(false, end));
        if client.buffers() {
            self.flushed(client, end);
        }
        None
    }

    /// One unit.
    async fn unit<C: Client, S: Sleeper>(
        &mut self,
        client: &mut C,
        sleeper: &S,
        due: Option<Due>,
        operation: &mut Operation,
        reply: &mut Reply,
    ) -> UnitEnd {
        let stop = |ok| End { composite: None, verified: None, ok, stop: true };
        let mut unit: Option<Unit> = None;
        let mut looked = false;
        let mut step = self.workload.step(Last::Begin, operation);
        loop {
            let (more, unmeasured): (bool, &[Status]) = match step {
                Step::Issue { more } => (more, &[]),
                Step::Probe => {
                    looked = true;
                    (true, &Status::ALL)
                }
                Step::Seek => (true, &[Status::NotFound]),
                Step::Wait(span) => {
                    let until = sleeper.now().saturating_add(nanoseconds(span));
                    if !self.sleep(client, sleeper, until).await {
                        return UnitEnd::of(unit, stop(false));
                    }
                    step = self.workload.step(Last::Waited, operation);
                    continue;
                }
                Step::End(end) => return UnitEnd::of(unit, end),
                Step::Stop => return UnitEnd::of(unit, stop(true)),
            };
            let start = sleeper.now();
            // Later operations of a unit were due with it, as in YCSB. What follows a look for
            // records was not: looking is not in the results.
            let (begun, intended) = match unit {
                Some(ref mut begun) => {
                    let intended = if due.is_some() && !looked { begun.intended } else { start };
                    (begun, intended)
                }
                None if self.is_over(due, start) => return UnitEnd::NotBegun,
                None => {
                    let begun = unit.insert(self.begin(due, start));
                    let intended = begun.intended;
                    (begun, intended)
                }
            };
            self.slot.begin(intended);
            if matches!(operation.kind, OperationKind::Read | OperationKind::Scan) {
                reply.clear();
            }
            let outcome = send(client, operation, reply).await;
            let end = sleeper.now();
            self.slot.end(end);
            begun.last_end = end;
            begun.measured = end >= self.course.measure_from();
            let at = self.moment(!begun.measured, end);
            let span = Span { intended, start, end, at };
            self.record(client, operation, reply, &outcome, &span, unmeasured);
            // Before a flush: what a workload does with the answer is timed by itself.
            if more && self.lost.is_none() {
                step = self.workload.step(Last::Outcome(&outcome, reply), operation);
                if self.course.verifies
                    && let Step::End(End { verified: Some(status), .. }) = step
                {
                    self.verified(status, sleeper.now() - end, at);
                }
            }
            if client.buffers() {
                self.send_what_is_due(client, sleeper).await;
            }
            if self.lost.is_some() {
                return UnitEnd::of(unit, End { stop: true, ..End::of(&outcome) });
            }
            if !more {
                return UnitEnd::of(unit, End::of(&outcome));
            }
        }
    }

    /// Whether the run is over for a unit that would begin now.
    fn is_over(&self, due: Option<Due>, now: u64) -> bool {
        let end_at = self.course.end_at();
        let was_due = due.is_some_and(|due| due.at < end_at);
        now >= end_at && (!was_due || now >= end_at.saturating_add(self.course.allowance))
    }

    /// A unit that begins now; writes down how late it is.
    fn begin(&self, due: Option<Due>, now: u64) -> Unit {
        if let Some(due) = due
            && now >= self.course.measure_from()
        {
            let late = now - due.at;
            self.recorder.late(late, due.free && late >= self.course.late_from);
        }
        let intended = due.map_or(now, |due| due.at);
        Unit { intended, start: now, last_end: now, measured: false }
    }

    /// Writes down an operation, and notes whether the store is lost.
    #[inline]
    fn record<C: Client>(
        &mut self,
        client: &mut C,
        operation: &Operation,
        reply: &Reply,
        outcome: &Outcome,
        span: &Span,
        unmeasured: &[Status],
    ) {
        let took = span.end - span.start;
        let service = match client.service_ns() {
            None => took,
            Some(ns) => self.hop(took, ns, span.at),
        };
        let times = Times { service, response: span.end - span.intended };
        if !unmeasured.contains(&outcome.status) {
            match operation.batch().len() as u64 {
                0 => self.recorder.record(operation.kind.into(), outcome, times, span.at),
                inserts => self.recorder.record_batch(inserts, outcome, times, span.at),
            }
        }
        if operation.kind == OperationKind::Scan && outcome.is_ok() {
            self.per_record(times, reply.records().len() as u64, span.at);
        }
        if !outcome.is_ok()
            && let Some(error) = client.lost()
        {
            self.lost = Some(Lost::Store(error));
        }
    }

    /// Times the comparison of what was read with what should have been.
    fn verified(&self, status: Status, took: u64, at: Moment) {
        let outcome = Outcome { status, message: None };
        self.recorder.record(Metric::VERIFY, &outcome, Times { service: took, response: took }, at);
    }

    /// Times the way to the driver of an operation that took `took` in all and
    /// `service` in the driver. Returns the service time: two clocks may
    /// disagree, and a part is not longer than the whole.
    fn hop(&self, took: u64, service: u64, at: Moment) -> u64 {
        let service = service.min(took);
        let times = Times { service: took - service, response: took - service };
        self.recorder.record(Metric::DRIVER_HOP, &Outcome::OK, times, at);
        service
    }

    #[cold]
    fn per_record(&self, times: Times, records: u64, at: Moment) {
        if let (Some(service), Some(response)) =
            (times.service.checked_div(records), times.response.checked_div(records))
        {
            let times = Times { service, response };
            self.recorder.record(Metric::SCAN_PER_RECORD, &Outcome::OK, times, at);
        }
    }

    fn composite(&self, metric: Metric, unit: &Unit, ok: bool) {
        let times = Times { service: unit.last_end - unit.start, response: unit.last_end - unit.intended };
        let status = if ok { Status::Ok } else { Status::Error };
        let outcome = Outcome { status, message: None };
        self.recorder.record(metric, &outcome, times, self.moment(!unit.measured, unit.last_end));
    }
}
