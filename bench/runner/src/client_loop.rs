//! The loop of one client: take an intended start, ask the workload for a step, call the store,
//! record the times. This is the measured path, the same for every store.

use crate::{
    client_state::{ClientState, ClientStatus},
    clock::nanoseconds,
    record::AbortCause,
    run_barrier::RunBarrier,
    run_control::RunControl,
    timers::Sleeper,
};
use serval_measure::{
    recorder::{RecorderHandle, SampleOrigin},
    times::Times,
};
use serval_model::{Client, Metric, Operation, OperationKind, Outcome, Reply, Status};
use serval_workload::{ClientWorkload, End, Last, Step};
use std::sync::atomic::Ordering::Relaxed;

/// State of one client, except for its connection to the store.
pub(crate) struct ClientLoop<'a> {
    pub(crate) barrier: &'a RunBarrier,
    pub(crate) control: &'a RunControl,
    pub(crate) status: &'a ClientStatus,
    pub(crate) recorder: &'a RecorderHandle,
    pub(crate) index: usize,
    pub(crate) workload: Box<dyn ClientWorkload>,
    pub(crate) table: &'a str,
    /// Number of units to do after the warm-up; `None` for no limit.
    pub(crate) units: Option<u64>,
    /// Why the run cannot continue.
    pub(crate) lost: Option<AbortCause>,
}

/// Intended start of a unit.
#[derive(Clone, Copy)]
struct IntendedStart {
    at: u64,
    /// Whether the client was idle at that instant.
    free: bool,
}

/// When the next unit begins.
enum NextUnit {
    /// Immediately: the run is not paced.
    Now,
    /// Its intended start has come.
    At(IntendedStart),
    /// Not at all: the run or the schedule is over.
    Never,
}

/// A unit that has begun.
struct Unit {
    intended: u64,
    start: u64,
    last_end: u64,
    /// Whether its last operation ended after the warm-up. Decided once per operation, so that
    /// all records of the operation agree.
    measured: bool,
}

/// Outcomes of an operation that are not recorded.
#[derive(Clone, Copy)]
enum Unrecorded {
    None,
    NotFound,
    All,
}

impl Unrecorded {
    fn contains(self, status: Status) -> bool {
        match self {
            Unrecorded::None => false,
            Unrecorded::NotFound => status == Status::NotFound,
            Unrecorded::All => true,
        }
    }
}

/// How a unit ended.
enum UnitEnd {
    /// The run was over before the unit began.
    NotBegun,
    /// The unit ended without an operation.
    Empty(End),
    /// The unit ended after at least one operation.
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

impl ClientLoop<'_> {
    fn origin(&self, warm_up: bool, end: u64) -> SampleOrigin {
        SampleOrigin { warm_up, client: self.index as u32, end_ns: end.saturating_sub(self.control.start) }
    }

    /// Waits for the intended start of the next unit.
    async fn next_unit<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) -> NextUnit {
        let Some(schedule) = &self.control.schedule else { return NextUnit::Now };
        let Some(after_start) = schedule.take(self.index) else { return NextUnit::Never };
        let intended = self.control.start.saturating_add(after_start);
        self.status.wait(intended);
        let free = sleeper.now() < intended;
        let due = !free || self.sleep(client, sleeper, intended).await || sleeper.now() >= intended;
        // If the run ends first, the status keeps the intended start: the conductor counts the
        // operation as not started.
        if due { NextUnit::At(IntendedStart { at: intended, free }) } else { NextUnit::Never }
    }

    /// Sleeps until an instant. Flushes the client's write buffer if that is due earlier. Returns
    /// `false` if the run was stopped meanwhile.
    async fn sleep<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S, instant: u64) -> bool {
        let waits = matches!(self.status.state(), ClientState::Waiting(_));
        while client.buffers()
            && let Some(send_at) = client.send_at().filter(|send_at| *send_at < instant)
        {
            if !sleeper.until(send_at).await {
                return false;
            }
            self.flush_if_due(client, sleeper).await;
            if self.lost.is_some() {
                return false;
            }
            if waits {
                self.status.wait(instant);
            }
        }
        sleeper.until(instant).await
    }

    /// Flushes the write buffer if that is due, and records the flushes that the client reports.
    async fn flush_if_due<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) {
        if client.send_at().is_some_and(|send_at| send_at <= sleeper.now()) {
            self.flush(client, sleeper).await;
        }
        self.record_flushes(client, sleeper.now());
    }

    /// Flushes the write buffer. A flush that hangs counts as an operation in flight.
    async fn flush<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) {
        self.status.begin(sleeper.now());
        // Boxed: most clients have no buffer, and their futures need no room for this one.
        Box::pin(client.send_buffered()).await;
        self.status.end(self.status.last_end());
    }

    /// Records the flushes that the client reports. Returns their number.
    #[cold]
    fn record_flushes<C: Client>(&mut self, client: &mut C, now: u64) -> u64 {
        let mut count = 0;
        while let Some(flush) = client.flushed() {
            count += 1;
            let end = now.saturating_sub(flush.ago_ns);
            self.recorder.flush(&flush, self.origin(end < self.control.measure_from(), end));
            if !flush.outcome.is_ok()
                && self.lost.is_none()
                && let Some(error) = client.lost()
            {
                self.lost = Some(AbortCause::Store(error));
            }
        }
        count
    }

    /// Flushes the write buffer after the last operation. The flush belongs to the measured part:
    /// a buffered write is not done yet.
    async fn flush_at_end<C: Client, S: Sleeper>(&mut self, client: &mut C, sleeper: &S) {
        self.flush(client, sleeper).await;
        let now = sleeper.now();
        if self.record_flushes(client, now) > 0 {
            self.status.end(now);
        }
    }

    /// Runs the client until its units, the schedule or the run are over. Returns why the run
    /// cannot continue, if it cannot.
    pub(crate) async fn run<C: Client, S: Sleeper>(
        mut self,
        client: &mut C,
        sleeper: &S,
    ) -> Option<AbortCause> {
        let control = self.control;
        let mut operation = Operation::new(self.table);
        let mut reply = Reply::new();
        let mut left = self.units.unwrap_or(u64::MAX);
        sleeper.until(control.start).await;
        control.woke(sleeper.now());
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
                    // A unit that begins in the warm-up and ends after it is measured: a stall at
                    // the boundary must not vanish.
                    if unit.measured {
                        self.recorder.unit(units, end.ok);
                        left = left.saturating_sub(units);
                    }
                    if let Some(metric) = end.composite {
                        self.record_composite(metric, &unit, end.ok);
                    }
                    end
                }
            };
            if end.stop {
                control.gave_up.fetch_or(!end.ok, Relaxed);
                break;
            }
        }
        if self.lost.is_none() && client.buffers() {
            self.flush_at_end(client, sleeper).await;
        }
        let failure = self.lost.take().or_else(|| self.workload.failure().map(AbortCause::Workload));
        if failure.is_some() {
            return failure;
        }
        self.barrier.done().await;
        let start = sleeper.now();
        let outcome = client.close().await;
        let end = sleeper.now();
        let times = Times { service: end - start, response: end - start };
        self.recorder.record(Metric::CLEANUP, &outcome, times, self.origin(false, end));
        if client.buffers() {
            self.record_flushes(client, end);
        }
        None
    }

    /// Runs one unit.
    async fn unit<C: Client, S: Sleeper>(
        &mut self,
        client: &mut C,
        sleeper: &S,
        due: Option<IntendedStart>,
        operation: &mut Operation,
        reply: &mut Reply,
    ) -> UnitEnd {
        let stop = |ok| End { composite: None, verified: None, ok, stop: true };
        let mut unit: Option<Unit> = None;
        let mut probed = false;
        let mut step = self.workload.step(Last::Begin, operation);
        loop {
            let (more, unrecorded) = match step {
                Step::Issue { more } => (more, Unrecorded::None),
                Step::Probe => {
                    probed = true;
                    (true, Unrecorded::All)
                }
                Step::Seek => (true, Unrecorded::NotFound),
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
            // Later operations of a unit were due with it, as in YCSB. After a probe for
            // records they were not, since probes are not in the results.
            let (begun, intended) = match unit {
                Some(ref mut begun) => {
                    let intended = if due.is_some() && !probed { begun.intended } else { start };
                    (begun, intended)
                }
                None if self.is_over(due, start) => return UnitEnd::NotBegun,
                None => {
                    let begun = unit.insert(self.begin(due, start));
                    let intended = begun.intended;
                    (begun, intended)
                }
            };
            self.status.begin(intended);
            if matches!(operation.kind, OperationKind::Read | OperationKind::Scan) {
                reply.clear();
            }
            let outcome = send(client, operation, reply).await;
            let end = sleeper.now();
            self.status.end(end);
            let measured = end >= self.control.measure_from();
            (begun.last_end, begun.measured) = (end, measured);
            let origin = self.origin(!measured, end);
            let service = self.service_time(client, end - start, origin);
            let times = Times { service, response: end - intended };
            if !unrecorded.contains(outcome.status) {
                self.record(operation, &outcome, times, origin);
            }
            if operation.kind == OperationKind::Scan && outcome.is_ok() {
                self.record_scan_per_record(times, reply.records().len() as u64, origin);
            }
            if !outcome.is_ok()
                && let Some(error) = client.lost()
            {
                self.lost = Some(AbortCause::Store(error));
            }
            // Before a flush: a verification is timed by itself.
            if more && self.lost.is_none() {
                step = self.workload.step(Last::Outcome(&outcome, reply), operation);
                if self.control.verifies
                    && let Step::End(End { verified: Some(status), .. }) = step
                {
                    self.record_verification(status, sleeper.now() - end, origin);
                }
            }
            if client.buffers() {
                self.flush_if_due(client, sleeper).await;
            }
            if self.lost.is_some() {
                return UnitEnd::of(unit, End { stop: true, ..End::of(&outcome) });
            }
            if !more {
                return UnitEnd::of(unit, End::of(&outcome));
            }
        }
    }

    /// Returns whether the run is over for a unit that would begin now.
    fn is_over(&self, due: Option<IntendedStart>, now: u64) -> bool {
        let end_at = self.control.end_at();
        let was_due = due.is_some_and(|due| due.at < end_at);
        now >= end_at && (!was_due || now >= end_at.saturating_add(self.control.allowance))
    }

    /// Begins a unit, and records its lateness.
    fn begin(&self, due: Option<IntendedStart>, now: u64) -> Unit {
        if let Some(due) = due
            && now >= self.control.measure_from()
        {
            let late = now - due.at;
            self.recorder.late(late, due.free && late >= self.control.late_from);
        }
        let intended = due.map_or(now, |due| due.at);
        Unit { intended, start: now, last_end: now, measured: false }
    }

    /// Records an operation.
    #[inline]
    fn record(&self, operation: &Operation, outcome: &Outcome, times: Times, origin: SampleOrigin) {
        match operation.batch().len() as u64 {
            0 => self.recorder.record(operation.kind.into(), outcome, times, origin),
            inserts => self.recorder.record_batch(inserts, outcome, times, origin),
        }
    }

    /// Returns the service time of an operation that took `took` ns: that which the driver reports,
    /// or all of it.
    fn service_time<C: Client>(&self, client: &C, took: u64, origin: SampleOrigin) -> u64 {
        client.service_ns().map_or(took, |ns| self.record_driver_hop(took, ns, origin))
    }

    /// Records a verification of data that took `took` ns.
    fn record_verification(&self, status: Status, took: u64, origin: SampleOrigin) {
        let outcome = Outcome { status, message: None };
        self.recorder.record(Metric::VERIFY, &outcome, Times { service: took, response: took }, origin);
    }

    /// Records the round trip to the driver's process of an operation that took `took` ns in all
    /// and `service` ns in the driver. Returns the service time, which is at most `took`: the two
    /// clocks may disagree.
    fn record_driver_hop(&self, took: u64, service: u64, origin: SampleOrigin) -> u64 {
        let service = service.min(took);
        let times = Times { service: took - service, response: took - service };
        self.recorder.record(Metric::DRIVER_HOP, &Outcome::OK, times, origin);
        service
    }

    #[cold]
    fn record_scan_per_record(&self, times: Times, records: u64, origin: SampleOrigin) {
        if let (Some(service), Some(response)) =
            (times.service.checked_div(records), times.response.checked_div(records))
        {
            let times = Times { service, response };
            self.recorder.record(Metric::SCAN_PER_RECORD, &Outcome::OK, times, origin);
        }
    }

    fn record_composite(&self, metric: Metric, unit: &Unit, ok: bool) {
        let times = Times { service: unit.last_end - unit.start, response: unit.last_end - unit.intended };
        let status = if ok { Status::Ok } else { Status::Error };
        let outcome = Outcome { status, message: None };
        self.recorder.record(metric, &outcome, times, self.origin(!unit.measured, unit.last_end));
    }
}
