//! The conductor starts the clients, observes the run, ends it, and makes its record. It reads the
//! time from an injected clock and never sleeps: [`RunConductor::step`] returns the instant until
//! which its caller may sleep.

use crate::{
    client_state::{ClientState, ClientStatus},
    clock::{ConductorClock, nanoseconds},
    options::{Gate, RunOptions, Sample},
    pacing::{Schedule, rate::RateSchedule},
    record::{ClientExecution, EndedBy, Interval, Observer, Progress, RunError, RunRecord},
    run_barrier::RunBarrier,
    run_control::RunControl,
    stationarity::{StationarityMonitor, ended},
    warm_up::WarmUp,
};
use serval_measure::{
    histogram::Histogram,
    recorder::{Messages, Recorder, Totals},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Lateness tolerated before an idle client counts as late: a timer and a context switch may take
/// so long.
const LATE: Duration = Duration::from_millis(1);

/// Time after the end in which the conductor waits for operations in flight before it lets clients
/// close, ns.
const CLOSE_AFTER_NS: u64 = 100_000_000;

/// Time that a client may take to wake up, ns. An operation that was due before the end still
/// starts within this time after the end.
const WAKE_UP_NS: u64 = 1_000_000;

/// Longest wait for event loops to close at the end. They close immediately unless a store blocks
/// its loop.
const LOOPS_END_MAX: Duration = Duration::from_secs(1);

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Time from the detection of steady state to the measured part, ns. By then clients on other
/// threads see the new boundary, and the conductor wakes for it as for one known from the start.
const STEADY_LEAD_NS: u64 = 10_000_000;

/// Separates the random stream of the schedule from those of the clients.
const SCHEDULE_STREAM: u64 = 0x5ced_u64 << 32;

pub(crate) struct RunConductor<'a, C> {
    pub(crate) clock: C,
    pub(crate) barrier: &'a Arc<RunBarrier>,
    pub(crate) options: &'a RunOptions,
    /// Number of units of the whole run; `None` for no limit.
    pub(crate) units: Option<u64>,
    pub(crate) slack: Duration,
    pub(crate) recorders: Vec<Arc<Recorder>>,
    pub(crate) observer: &'a mut dyn Observer,
}

/// Returns the lateness from which an idle client counts as late. Operations that are due are held
/// for `slack`, to be sent together.
pub fn late_from(slack: Duration) -> Duration {
    LATE.max(2 * slack)
}

/// The interval of the series that is being recorded.
struct OpenInterval {
    since: u64,
    before: Totals,
}

/// State of a run that has started.
pub(crate) struct RunState<'s> {
    control: &'s RunControl,
    started: std::time::SystemTime,
    series: OpenInterval,
    /// CPU time at the start of the measured part; `None` before.
    cpu_before: Option<Duration>,
    /// Whether clients may close.
    pub(crate) closing: bool,
    /// CPU time of the measured part; zero until it has ended.
    cpu: Duration,
    /// End of the run.
    over_at: u64,
    ended_by: EndedBy,
    stopped: bool,
    next_tick: u64,
    warm_up: Option<WarmUp>,
    /// Monitors the measured part. `None` before it, and for an offered load that changes:
    /// throughput and service time then change with it.
    monitor: Option<StationarityMonitor>,
    /// Whether an interruption and a lost store were noticed by the last step.
    noticed: (bool, bool),
}

/// What follows a step.
pub(crate) enum Next {
    /// The next step: at this instant, or when the counts of the barrier change.
    At(u64),
    /// The run is over.
    Done,
}

impl<C: ConductorClock> RunConductor<'_, C> {
    /// Conducts a run in real time.
    pub(crate) fn conduct(mut self, verifies: bool) -> Result<RunRecord, RunError> {
        self.wait_for_connections()?;
        let barrier = Arc::clone(self.barrier);
        let begin = match self.options.gate.as_ref().map(Gate::wait) {
            Some(None) => {
                barrier.cancel();
                return Err(RunError::Interrupted);
            }
            begin => begin.flatten(),
        };
        let mut state = self.start(&barrier, verifies, begin);
        while let Next::At(wake) = self.step(&mut state) {
            let counts = self.barrier.counts();
            if counts.finished < self.options.clients
                && (state.closing || counts.done < self.options.clients)
                && (counts.interrupted, counts.lost.is_some()) == state.noticed
            {
                let span = Duration::from_nanos(wake.saturating_sub(self.clock.now()));
                drop(self.barrier.wait(counts, span));
            }
        }
        self.barrier.wait_for_loops(LOOPS_END_MAX);
        self.finish(state)
    }

    /// Starts the clients at `begin`, or as soon as possible.
    pub(crate) fn start<'s>(
        &mut self,
        barrier: &'s RunBarrier,
        verifies: bool,
        begin: Option<u64>,
    ) -> RunState<'s> {
        let options = self.options;
        let schedule = options.rate.as_ref().map(|rate| {
            let rate = rate.after_warm_up(options.warm_up.as_secs_f64());
            Schedule::new(
                rate,
                options.arrivals,
                options.clients,
                options.share,
                options.seed ^ SCHEDULE_STREAM,
            )
        });
        // While the clients still wait, so that the observer takes none of their time.
        let cpu_before = options.warm_up_max().is_zero().then(|| {
            self.observer.measuring();
            self.clock.cpu()
        });
        let started = self.clock.date();
        // Every client is awake when the first operation is due.
        let start = begin.unwrap_or_else(|| self.clock.now() + 1_000_000);
        let measure_from = start.saturating_add(nanoseconds(options.warm_up_max()));
        let end_at = self.time().map_or(u64::MAX, |time| measure_from.saturating_add(nanoseconds(time)));
        let control = barrier.go(RunControl {
            start,
            measure_from: AtomicU64::new(measure_from),
            end_at: AtomicU64::new(end_at),
            schedule,
            allowance: nanoseconds(self.slack).saturating_add(WAKE_UP_NS),
            late_from: nanoseconds(late_from(self.slack)),
            verifies,
            gave_up: AtomicBool::new(false),
            woke: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
        });
        self.observer.started(started);
        RunState {
            control,
            started,
            series: OpenInterval { since: start, before: Totals::default() },
            cpu_before,
            closing: false,
            cpu: Duration::ZERO,
            over_at: start,
            ended_by: EndedBy::Count,
            stopped: false,
            next_tick: start,
            warm_up: options
                .steady
                .map(|steady| WarmUp::new(steady, options.rate.is_some(), self.time(), self.units, start)),
            monitor: None,
            noticed: (false, false),
        }
    }

    /// Returns the length of the measured part, if it is bounded. The end of a schedule bounds it
    /// too: a store that hangs must not prolong the run.
    fn time(&self) -> Option<Duration> {
        self.options.time.into_iter().chain(self.scheduled()).min()
    }

    fn scheduled(&self) -> Option<Duration> {
        self.options.rate.as_ref().and_then(RateSchedule::length_s).map(Duration::from_secs_f64)
    }

    /// Makes the record of a run that is over.
    pub(crate) fn finish(mut self, mut state: RunState<'_>) -> Result<RunRecord, RunError> {
        let control = state.control;
        self.interval(&mut state.series, control, state.over_at);
        self.progress(control, state.over_at);
        if let Some(client) = self.barrier.counts().panicked {
            return Err(RunError::Panicked(client));
        }
        let mut totals = Totals::of(&self.recorders);
        let (in_flight, not_started, lateness) = self.unfinished(control);
        totals.lateness.merge(&lateness);
        // A schedule without remaining steps was completed, not cut off.
        let by_schedule =
            self.scheduled().is_some_and(|length| self.options.time.is_none_or(|time| length <= time));
        let all_done = in_flight.is_empty() && not_started.is_empty();
        let ended_by = match state.ended_by {
            EndedBy::Time if by_schedule && all_done => EndedBy::Count,
            ended_by => ended_by,
        };
        let (start, measure_from, end_at) = (control.start, control.measure_from(), control.end_at());
        let last_end = self.barrier.statuses.iter().map(|status| status.last_end()).max().unwrap_or(0);
        let ended = if ended_by == EndedBy::Count { last_end } else { last_end.max(end_at) };
        let warmed = ended >= measure_from;
        let warm_up = measure_from.min(ended).saturating_sub(start);
        let ended = ended.max(measure_from);
        Ok(RunRecord {
            started: state.started,
            began: control.began(),
            duration: Duration::from_nanos(ended - measure_from),
            warm_up: Duration::from_nanos(warm_up),
            steadiness: state.warm_up.filter(|_| warmed).map(|warm_up| warm_up.ended()),
            stationarity: state.monitor.and_then(|monitor| monitor.judged()),
            ended_by,
            totals,
            messages: {
                let all = self.recorders.iter().flat_map(|recorder| recorder.messages());
                let mut sum = Messages::new();
                all.for_each(|(key, count)| *sum.entry(key).or_default() += count);
                sum
            },
            legacy: self.recorders.iter().filter_map(|recorder| recorder.legacy()).collect(),
            in_flight,
            not_started,
            cpu: state.cpu,
            client_time: self
                .barrier
                .statuses
                .iter()
                .map(|status| Duration::from_nanos(status.last_end().saturating_sub(measure_from)))
                .sum(),
            clients: self.options.clients,
            execution: ClientExecution::VirtualTime,
            lost: self.barrier.counts().lost.take(),
            due: control.schedule.as_ref().map(|s| s.due_between(measure_from - start, ended - start)),
            slack: Duration::ZERO,
        })
    }

    fn wait_for_connections(&mut self) -> Result<(), RunError> {
        let mut seen = usize::MAX;
        let mut counts = self.barrier.counts();
        loop {
            if let Some(failure) = counts.failure.take() {
                drop(counts);
                self.barrier.cancel();
                return Err(failure.into());
            }
            if counts.interrupted || counts.panicked.is_some() {
                let panicked = counts.panicked;
                drop(counts);
                self.barrier.cancel();
                return Err(panicked.map_or(RunError::Interrupted, RunError::Panicked));
            }
            let connected = counts.connected;
            if connected != seen {
                seen = connected;
                drop(counts);
                self.observer.connected(connected, self.options.clients);
                counts = self.barrier.counts();
                continue;
            }
            if connected == self.options.clients {
                return Ok(());
            }
            counts = self.barrier.wait(counts, TICK);
        }
    }

    /// Does what is due: a progress report, the end of an interval, of the warm-up or of the run.
    pub(crate) fn step(&mut self, state: &mut RunState<'_>) -> Next {
        let control = state.control;
        let interval = nanoseconds(self.options.interval).max(1);
        loop {
            let now = self.clock.now();
            self.check_steadiness(state, now);
            let measure_from = control.measure_from();
            if state.cpu_before.is_none() && now.max(control.start) >= measure_from {
                state.cpu_before = Some(self.clock.cpu());
                self.observer.measuring();
            }
            let boundary = boundary(state.series.since, interval, control.start, measure_from);
            self.sample_measured_part(state, now);
            if now >= boundary {
                self.interval(&mut state.series, control, now);
                continue;
            }
            if now >= state.next_tick {
                self.progress(control, now);
                state.next_tick = now + nanoseconds(TICK);
            }
            let (interrupted, lost, done, all) = {
                let counts = self.barrier.counts();
                let done = counts.done == self.options.clients;
                let all = counts.finished == self.options.clients || counts.panicked.is_some();
                (counts.interrupted, counts.lost.is_some(), done, all)
            };
            if done || now >= control.end_at().saturating_add(CLOSE_AFTER_NS) {
                self.close(state);
            }
            state.noticed = (interrupted, lost);
            if lost && state.ended_by != EndedBy::Failed {
                state.ended_by = EndedBy::Failed;
                control.end_at.fetch_min(now, Relaxed);
            }
            if all {
                self.all_left(state);
                return self.over(state);
            }
            if interrupted && state.ended_by != EndedBy::Interrupted && !lost {
                state.ended_by = EndedBy::Interrupted;
                control.end_at.fetch_min(now, Relaxed);
            }
            let end_at = control.end_at();
            if now >= end_at && !state.stopped {
                state.stopped = true;
                if state.ended_by == EndedBy::Count {
                    state.ended_by = EndedBy::Time;
                }
                self.barrier.stop();
            }
            let given_up_at = end_at.saturating_add(nanoseconds(self.options.grace));
            if now >= given_up_at {
                return self.over(state);
            }
            let mut wake = boundary.min(state.next_tick);
            wake = wake.min(if state.stopped { given_up_at } else { end_at });
            if state.cpu_before.is_none() {
                wake = wake.min(measure_from);
                wake = wake.min(state.warm_up.as_ref().map_or(u64::MAX, WarmUp::next_sample));
            }
            wake = wake.min(state.monitor.as_ref().map_or(u64::MAX, StationarityMonitor::next_sample));
            return Next::At(wake);
        }
    }

    /// Ends the warm-up, and sets the end of the run, once the run is in steady state.
    fn check_steadiness(&self, state: &mut RunState<'_>, now: u64) {
        let Some(warm_up) = &mut state.warm_up else { return };
        let control = state.control;
        if warm_up.is_steady() || now >= control.measure_from() || now < warm_up.next_sample() {
            return;
        }
        let mut from = now + STEADY_LEAD_NS;
        let (operations, service_ns) = ended(&self.recorders);
        let steady = match &self.options.judge {
            Some(judge) => {
                let sample = Sample { at: now.saturating_sub(control.start), operations, service_ns };
                let steady_since = judge.judge(sample);
                warm_up.set_verdict(now, steady_since.is_some());
                // Operations that have ended were counted as warm-up.
                from = steady_since.map_or(from, |since| since.max(now));
                steady_since.is_some()
            }
            None => {
                let may = from >= control.start.saturating_add(nanoseconds(self.options.warm_up));
                warm_up.sample(now, operations, service_ns, may)
            }
        };
        if steady {
            control.measure_from.fetch_min(from, Relaxed);
            if let Some(time) = self.time() {
                control.end_at.fetch_min(from.saturating_add(nanoseconds(time)), Relaxed);
            }
        }
    }

    /// Samples the measured part while all clients are in it.
    fn sample_measured_part(&self, state: &mut RunState<'_>, now: u64) {
        let control = state.control;
        let Some(monitor) = &mut state.monitor else {
            let constant = self.options.rate.as_ref().is_none_or(RateSchedule::is_constant);
            if constant && now >= control.start.max(control.measure_from()) {
                state.monitor = Some(StationarityMonitor::new(&self.recorders, now));
            }
            return;
        };
        let counts = self.barrier.counts();
        if now > control.end_at() || counts.done > 0 || counts.interrupted || counts.lost.is_some() {
            monitor.end();
        }
        drop(counts);
        monitor.sample(&self.recorders, now);
    }

    /// Sets why the run ended, if all clients have finished. Clients read the end of the run
    /// themselves, so they may finish before the conductor notices the end.
    fn all_left(&self, state: &mut RunState<'_>) {
        let control = state.control;
        if state.ended_by != EndedBy::Count || !self.unfinished_units(control) {
            return;
        }
        let in_time = self.clock.now() < control.end_at();
        state.ended_by = match (in_time, control.gave_up.load(Relaxed)) {
            (false, _) => EndedBy::Time,
            (true, true) => EndedBy::Failed,
            (true, false) => EndedBy::Stopped,
        };
        if in_time {
            // The run lasted until the last client finished.
            control.end_at.fetch_min(self.clock.now(), Relaxed);
        }
    }

    /// Reports the end of the measured part, and lets clients close. Does so once.
    fn close(&mut self, state: &mut RunState<'_>) {
        if !state.closing {
            state.closing = true;
            self.observer.measured();
            self.barrier.close();
        }
    }

    fn over(&mut self, state: &mut RunState<'_>) -> Next {
        state.over_at = self.clock.now();
        state.cpu = self.clock.cpu().saturating_sub(state.cpu_before.unwrap_or_default());
        self.close(state);
        self.barrier.stop();
        self.barrier.abandon();
        Next::Done
    }

    /// Returns whether units were left when the clients finished: they ran out of time or stopped
    /// after failures.
    fn unfinished_units(&self, control: &RunControl) -> bool {
        let done: u64 = self.recorders.iter().map(|recorder| recorder.units().0).sum();
        match self.units {
            Some(units) => done < units,
            // Only the time or the schedule ends such a run. The last operation of a schedule may
            // end before the schedule.
            None => control.schedule.is_none() || self.clock.now() >= control.end_at(),
        }
    }

    fn interval(&mut self, series: &mut OpenInterval, control: &RunControl, now: u64) {
        let totals = Totals::of(&self.recorders);
        // The conductor wakes a little after the end of the warm-up. Operations measured by then
        // belong to the first interval of the measured part.
        let warm_up = series.since < control.measure_from();
        let interval = Interval {
            start: Duration::from_nanos(series.since - control.start),
            length: Duration::from_nanos(now.saturating_sub(series.since)),
            warm_up,
            pairs: totals.since(&series.before, warm_up),
            paced: totals.paced,
            due: control.schedule.as_ref().map(|schedule| {
                // No operation is due after the end.
                let until = now.min(control.end_at()).max(series.since);
                schedule.due_between(series.since - control.start, until - control.start)
            }),
            lateness: totals.lateness.since(&series.before.lateness),
        };
        series.since = now;
        series.before.lateness = totals.lateness;
        if warm_up {
            series.before.warm_up = totals.warm_up;
        } else {
            series.before.measured = totals.measured;
        }
        self.observer.interval(&interval);
    }

    fn progress(&mut self, control: &RunControl, now: u64) {
        let (units, failed) =
            self.recorders.iter().map(|r| r.units()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.observer.progress(&Progress {
            elapsed: Duration::from_nanos(now.saturating_sub(control.start)),
            warming_up: now < control.measure_from(),
            units,
            failed,
        });
    }

    /// Returns the ages of operations in flight, the ages of operations that were due and not
    /// started, and the lateness of the latter.
    fn unfinished(&self, control: &RunControl) -> (Histogram, Histogram, Histogram) {
        let now = self.clock.now();
        let end_at = control.end_at();
        let (mut in_flight, mut not_started, mut late) = <(Histogram, Histogram, Histogram)>::default();
        let done: u64 = self.recorders.iter().map(|recorder| recorder.units().0).sum();
        // A schedule continues beyond the units asked for, which were never to be done.
        let mut left = self.units.map_or(u64::MAX, |units| units.saturating_sub(done));
        // Read once: a client may still continue.
        let states: Vec<ClientState> = self.barrier.statuses.iter().map(ClientStatus::state).collect();
        let begun = states.iter().filter(|state| matches!(state, ClientState::InFlight(_)));
        left = left.saturating_sub(begun.count() as u64);
        let mut waiting = |intended: u64, n: u64| {
            let n = n.min(left);
            if intended < end_at && n > 0 {
                left -= n;
                not_started.record_n(end_at - intended, n);
                late.record_n(end_at - intended, n);
            }
        };
        for state in states {
            match state {
                ClientState::InFlight(intended) => in_flight.record(now.saturating_sub(intended)),
                ClientState::Waiting(intended) => waiting(intended, 1),
                ClientState::Idle => {}
            }
        }
        if let Some(schedule) = &control.schedule
            && end_at != u64::MAX
        {
            // A run may end before its start.
            let span = end_at.saturating_sub(control.start);
            schedule.take_rest(span, |intended, n| waiting(control.start.saturating_add(intended), n));
        }
        (in_flight, not_started, late)
    }
}

/// Returns the end of the interval that began at `since`.
///
/// Ends lie on a grid from the start, and on another from the beginning of the measured part. So a
/// late end does not delay the following ones, and the intervals of several processes agree. No
/// interval is shorter than half of `interval`, except for the last of the warm-up.
fn boundary(since: u64, interval: u64, start: u64, measure_from: u64) -> u64 {
    let (from, until) = if since < measure_from { (start, measure_from) } else { (measure_from, u64::MAX) };
    let next = from.saturating_add((since.saturating_sub(from) / interval + 1).saturating_mul(interval));
    let next = if next.saturating_sub(since) < interval / 2 { next.saturating_add(interval) } else { next };
    next.min(until)
}

#[cfg(test)]
mod tests {
    use super::boundary;

    #[test]
    fn intervals_end_on_a_grid_whatever_the_lateness_of_one() {
        // The warm-up from 1000 to 1250, intervals of 100.
        assert_eq!(
            [1000, 1003, 1080, 1160, 1249].map(|since| boundary(since, 100, 1000, 1250)),
            [1100, 1100, 1200, 1250, 1250]
        );
        // The measured part has a grid of its own.
        assert_eq!(
            [1250, 1257, 1349, 1350].map(|since| boundary(since, 100, 1000, 1250)),
            [1350, 1350, 1450, 1450]
        );
        // A boundary that is not known yet is far away.
        assert_eq!(boundary(u64::MAX - 5, 100, 0, u64::MAX), u64::MAX);
    }
}
