//! The conductor: lets the clients go, looks on, ends the run, and makes its
//! record. It has the time from a clock that is handed in, and it never sleeps
//! itself: [`Conductor::step`] says until when whoever drives it may.

use crate::{
    client::Course,
    clock::{Clock, nanoseconds},
    looks::{Looks, ended},
    pacing::{Schedule, rate::RateSchedule},
    run::{
        ClientExecution, EndedBy, Gate, Interval, Look, Observer, Progress, RunError, RunOptions, RunRecord,
    },
    slot::{Seen, Slot},
    stage::Stage,
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

/// Lateness of which a free client is not guilty: what a timer and a switch of
/// processes may take.
const LATE: Duration = Duration::from_millis(1);

/// How long after the end clients that have no outcome yet are waited for before
/// the others may close.
const CLOSE_AFTER_NS: u64 = 100_000_000;

/// Time that waking up may take: what was due this long before the end is
/// still started.
const WAKE_UP_NS: u64 = 1_000_000;

/// Longest wait for event loops to close at the end, which takes them no time
/// unless a store holds its loop.
const LOOPS_END_MAX: Duration = Duration::from_secs(1);

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(100);

/// How long after the run was found steady the measured part begins. Clients
/// on other threads have seen the new boundary by then, and the conductor
/// wakes for it as for one that was known from the start.
const STEADY_LEAD_NS: u64 = 10_000_000;

/// Sets the schedule's random stream apart from the clients'.
const SCHEDULE_STREAM: u64 = 0x5ced_u64 << 32;

pub(crate) struct Conductor<'a, C> {
    pub(crate) clock: C,
    pub(crate) stage: &'a Arc<Stage>,
    pub(crate) options: &'a RunOptions,
    /// Units of the whole run, if they are bounded.
    pub(crate) units: Option<u64>,
    pub(crate) slack: Duration,
    pub(crate) recorders: Vec<Arc<Recorder>>,
    pub(crate) observer: &'a mut dyn Observer,
}

/// Lateness from which a free client that starts an operation has overslept, when
/// operations that are due are held for `slack` to be sent together.
pub fn late_from(slack: Duration) -> Duration {
    LATE.max(2 * slack)
}

/// The series as it grows.
struct Series {
    since: u64,
    before: Totals,
}

/// A run on its way.
pub(crate) struct Watch<'s> {
    course: &'s Course,
    started: std::time::SystemTime,
    series: Series,
    /// CPU time at the start of the measured part, once it has begun.
    cpu_before: Option<Duration>,
    /// Whether clients may close.
    pub(crate) closing: bool,
    /// CPU time of the measured part, once it has ended.
    cpu: Duration,
    /// When it ended.
    over_at: u64,
    ended_by: EndedBy,
    stopped: bool,
    next_tick: u64,
    warm_up: Option<WarmUp>,
    /// What is seen of the measured part, once it has begun; nothing of a load
    /// that changes, with which throughput and service time do.
    looks: Option<Looks>,
    /// What had been seen of the stage when it was last looked at.
    seen: (bool, bool),
}

/// What follows a look at a run.
pub(crate) enum Next {
    /// Look again at this instant, or when the stage changes.
    At(u64),
    /// The run is over.
    Done,
}

impl<C: Clock> Conductor<'_, C> {
    /// The whole of a run in real time.
    pub(crate) fn conduct(mut self, verifies: bool) -> Result<RunRecord, RunError> {
        self.wait_for_connections()?;
        let stage = Arc::clone(self.stage);
        let begin = match self.options.gate.as_ref().map(Gate::wait) {
            Some(None) => {
                stage.cancel();
                return Err(RunError::Interrupted);
            }
            begin => begin.flatten(),
        };
        let mut watch = self.start(&stage, verifies, begin);
        while let Next::At(wake) = self.step(&mut watch) {
            let tally = self.stage.tally();
            if tally.finished < self.options.clients
                && (watch.closing || tally.done < self.options.clients)
                && (tally.interrupted, tally.lost.is_some()) == watch.seen
            {
                let span = Duration::from_nanos(wake.saturating_sub(self.clock.now()));
                drop(self.stage.wait(tally, span));
            }
        }
        self.stage.wait_for_loops(LOOPS_END_MAX);
        self.finish(watch)
    }

    /// Lets the clients go; they begin at this instant, or as soon as they can.
    pub(crate) fn start<'s>(&mut self, stage: &'s Stage, verifies: bool, begin: Option<u64>) -> Watch<'s> {
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
        // While the clients still wait, so that what looks on takes none of their time.
        let cpu_before = options.warm_up_max().is_zero().then(|| {
            self.observer.measuring();
            self.clock.cpu()
        });
        let started = self.clock.date();
        // Long enough for every client to be awake when the first is due.
        let start = begin.unwrap_or_else(|| self.clock.now() + 1_000_000);
        let measure_from = start.saturating_add(nanoseconds(options.warm_up_max()));
        let end_at = self.time().map_or(u64::MAX, |time| measure_from.saturating_add(nanoseconds(time)));
        let course = stage.go(Course {
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
        Watch {
            course,
            started,
            series: Series { since: start, before: Totals::default() },
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
            looks: None,
            seen: (false, false),
        }
    }

    /// The time that is measured, if something bounds it. A schedule that ends
    /// does as a time does: a store that hangs must not hold it for ever.
    fn time(&self) -> Option<Duration> {
        self.options.time.into_iter().chain(self.scheduled()).min()
    }

    fn scheduled(&self) -> Option<Duration> {
        self.options.rate.as_ref().and_then(RateSchedule::length_s).map(Duration::from_secs_f64)
    }

    /// The record of a run that is over.
    pub(crate) fn finish(mut self, mut watch: Watch<'_>) -> Result<RunRecord, RunError> {
        let course = watch.course;
        self.interval(&mut watch.series, course, watch.over_at);
        self.progress(course, watch.over_at);
        if let Some(client) = self.stage.tally().panicked {
            return Err(RunError::Panicked(client));
        }
        let mut totals = Totals::of(&self.recorders);
        let (in_flight, not_started, lateness) = self.unfinished(course);
        totals.lateness.merge(&lateness);
        // A schedule that is over with nothing left was done, not cut off.
        let by_schedule =
            self.scheduled().is_some_and(|length| self.options.time.is_none_or(|time| length <= time));
        let all_done = in_flight.is_empty() && not_started.is_empty();
        let ended_by = match watch.ended_by {
            EndedBy::Time if by_schedule && all_done => EndedBy::Count,
            ended_by => ended_by,
        };
        let (start, measure_from, end_at) = (course.start, course.measure_from(), course.end_at());
        let last_end = self.stage.slots.iter().map(|slot| slot.last_end()).max().unwrap_or(0);
        let ended = if ended_by == EndedBy::Count { last_end } else { last_end.max(end_at) };
        let warmed = ended >= measure_from;
        let warm_up = measure_from.min(ended).saturating_sub(start);
        let ended = ended.max(measure_from);
        Ok(RunRecord {
            started: watch.started,
            began: course.began(),
            duration: Duration::from_nanos(ended - measure_from),
            warm_up: Duration::from_nanos(warm_up),
            steadiness: watch.warm_up.filter(|_| warmed).map(|warm_up| warm_up.ended()),
            stationarity: watch.looks.and_then(|looks| looks.judged()),
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
            cpu: watch.cpu,
            client_time: self
                .stage
                .slots
                .iter()
                .map(|slot| Duration::from_nanos(slot.last_end().saturating_sub(measure_from)))
                .sum(),
            clients: self.options.clients,
            execution: ClientExecution::VirtualTime,
            lost: self.stage.tally().lost.take(),
            due: course.schedule.as_ref().map(|s| s.due_between(measure_from - start, ended - start)),
            slack: Duration::ZERO,
        })
    }

    fn wait_for_connections(&mut self) -> Result<(), RunError> {
        let mut seen = usize::MAX;
        let mut tally = self.stage.tally();
        loop {
            if let Some(failure) = tally.failure.take() {
                drop(tally);
                self.stage.cancel();
                return Err(failure.into());
            }
            if tally.interrupted || tally.panicked.is_some() {
                let panicked = tally.panicked;
                drop(tally);
                self.stage.cancel();
                return Err(panicked.map_or(RunError::Interrupted, RunError::Panicked));
            }
            let connected = tally.connected;
            if connected != seen {
                seen = connected;
                drop(tally);
                self.observer.connected(connected, self.options.clients);
                tally = self.stage.tally();
                continue;
            }
            if connected == self.options.clients {
                return Ok(());
            }
            tally = self.stage.wait(tally, TICK);
        }
    }

    /// Looks at the run, and does what is due: progress, the end of an interval
    /// or of the warm-up, the end.
    pub(crate) fn step(&mut self, watch: &mut Watch<'_>) -> Next {
        let course = watch.course;
        let interval = nanoseconds(self.options.interval).max(1);
        loop {
            let now = self.clock.now();
            self.look_for_steadiness(watch, now);
            let measure_from = course.measure_from();
            if watch.cpu_before.is_none() && now.max(course.start) >= measure_from {
                watch.cpu_before = Some(self.clock.cpu());
                self.observer.measuring();
            }
            let boundary = boundary(watch.series.since, interval, course.start, measure_from);
            self.look_for_changes(watch, now);
            if now >= boundary {
                self.interval(&mut watch.series, course, now);
                continue;
            }
            if now >= watch.next_tick {
                self.progress(course, now);
                watch.next_tick = now + nanoseconds(TICK);
            }
            let (interrupted, lost, done, all) = {
                let tally = self.stage.tally();
                let done = tally.done == self.options.clients;
                let all = tally.finished == self.options.clients || tally.panicked.is_some();
                (tally.interrupted, tally.lost.is_some(), done, all)
            };
            if done || now >= course.end_at().saturating_add(CLOSE_AFTER_NS) {
                self.close(watch);
            }
            watch.seen = (interrupted, lost);
            if lost && watch.ended_by != EndedBy::Failed {
                watch.ended_by = EndedBy::Failed;
                course.end_at.fetch_min(now, Relaxed);
            }
            if all {
                self.all_left(watch);
                return self.over(watch);
            }
            if interrupted && watch.ended_by != EndedBy::Interrupted && !lost {
                watch.ended_by = EndedBy::Interrupted;
                course.end_at.fetch_min(now, Relaxed);
            }
            let end_at = course.end_at();
            if now >= end_at && !watch.stopped {
                watch.stopped = true;
                if watch.ended_by == EndedBy::Count {
                    watch.ended_by = EndedBy::Time;
                }
                self.stage.stop();
            }
            let given_up_at = end_at.saturating_add(nanoseconds(self.options.grace));
            if now >= given_up_at {
                return self.over(watch);
            }
            let mut wake = boundary.min(watch.next_tick);
            wake = wake.min(if watch.stopped { given_up_at } else { end_at });
            if watch.cpu_before.is_none() {
                wake = wake.min(measure_from);
                wake = wake.min(watch.warm_up.as_ref().map_or(u64::MAX, WarmUp::next_look));
            }
            wake = wake.min(watch.looks.as_ref().map_or(u64::MAX, Looks::next_look));
            return Next::At(wake);
        }
    }

    /// Ends the warm-up, and brings the end of the run nearer, when the run is
    /// found steady.
    fn look_for_steadiness(&self, watch: &mut Watch<'_>, now: u64) {
        let Some(warm_up) = &mut watch.warm_up else { return };
        let course = watch.course;
        if warm_up.is_steady() || now >= course.measure_from() || now < warm_up.next_look() {
            return;
        }
        let mut from = now + STEADY_LEAD_NS;
        let (operations, service_ns) = ended(&self.recorders);
        let steady = match &self.options.judge {
            Some(judge) => {
                let look = Look { at: now.saturating_sub(course.start), operations, service_ns };
                let told = judge.look(look);
                warm_up.told(now, told.is_some());
                // What has ended already was counted as warm-up.
                from = told.map_or(from, |told| told.max(now));
                told.is_some()
            }
            None => {
                let may = from >= course.start.saturating_add(nanoseconds(self.options.warm_up));
                warm_up.look(now, operations, service_ns, may)
            }
        };
        if steady {
            course.measure_from.fetch_min(from, Relaxed);
            if let Some(time) = self.time() {
                course.end_at.fetch_min(from.saturating_add(nanoseconds(time)), Relaxed);
            }
        }
    }

    /// Looks at the measured part as long as all clients are in it.
    fn look_for_changes(&self, watch: &mut Watch<'_>, now: u64) {
        let course = watch.course;
        let Some(looks) = &mut watch.looks else {
            let constant = self.options.rate.as_ref().is_none_or(RateSchedule::is_constant);
            if constant && now >= course.start.max(course.measure_from()) {
                watch.looks = Some(Looks::new(&self.recorders, now));
            }
            return;
        };
        let tally = self.stage.tally();
        if now > course.end_at() || tally.done > 0 || tally.interrupted || tally.lost.is_some() {
            looks.end();
        }
        drop(tally);
        looks.look(&self.recorders, now);
    }

    /// Says why all clients have left. They see the end of the time for
    /// themselves, and may all have left by now.
    fn all_left(&self, watch: &mut Watch<'_>) {
        let course = watch.course;
        if watch.ended_by != EndedBy::Count || !self.unfinished_units(course) {
            return;
        }
        let in_time = self.clock.now() < course.end_at();
        watch.ended_by = match (in_time, course.gave_up.load(Relaxed)) {
            (false, _) => EndedBy::Time,
            (true, true) => EndedBy::Failed,
            (true, false) => EndedBy::Stopped,
        };
        if in_time {
            // It lasted until the last of them left, and no longer.
            course.end_at.fetch_min(self.clock.now(), Relaxed);
        }
    }

    /// Has what was measured told, and lets clients close; once.
    fn close(&mut self, watch: &mut Watch<'_>) {
        if !watch.closing {
            watch.closing = true;
            self.observer.measured();
            self.stage.close();
        }
    }

    fn over(&mut self, watch: &mut Watch<'_>) -> Next {
        watch.over_at = self.clock.now();
        watch.cpu = self.clock.cpu().saturating_sub(watch.cpu_before.unwrap_or_default());
        self.close(watch);
        self.stage.stop();
        self.stage.abandon();
        Next::Done
    }

    /// Whether clients that have left did so for the time, or for failures,
    /// and not because all was done.
    fn unfinished_units(&self, course: &Course) -> bool {
        let done: u64 = self.recorders.iter().map(|recorder| recorder.units().0).sum();
        match self.units {
            Some(units) => done < units,
            // Nothing but the time, or the schedule, ends such a run. The last
            // of a schedule may be done before it is over.
            None => course.schedule.is_none() || self.clock.now() >= course.end_at(),
        }
    }

    fn interval(&mut self, series: &mut Series, course: &Course, now: u64) {
        let totals = Totals::of(&self.recorders);
        // The conductor comes a little late to the end of the warm-up. What
        // has been measured by then belongs to the first interval after it.
        let warm_up = series.since < course.measure_from();
        let interval = Interval {
            start: Duration::from_nanos(series.since - course.start),
            length: Duration::from_nanos(now.saturating_sub(series.since)),
            warm_up,
            pairs: totals.since(&series.before, warm_up),
            paced: totals.paced,
            due: course.schedule.as_ref().map(|schedule| {
                // Nothing is due after the end.
                let until = now.min(course.end_at()).max(series.since);
                schedule.due_between(series.since - course.start, until - course.start)
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

    fn progress(&mut self, course: &Course, now: u64) {
        let (units, failed) =
            self.recorders.iter().map(|r| r.units()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.observer.progress(&Progress {
            elapsed: Duration::from_nanos(now.saturating_sub(course.start)),
            warming_up: now < course.measure_from(),
            units,
            failed,
        });
    }

    /// Ages of what is in flight and of what was due and never started, and
    /// the lateness that the latter has reached.
    fn unfinished(&self, course: &Course) -> (Histogram, Histogram, Histogram) {
        let now = self.clock.now();
        let end_at = course.end_at();
        let (mut in_flight, mut not_started, mut late) = <(Histogram, Histogram, Histogram)>::default();
        let done: u64 = self.recorders.iter().map(|recorder| recorder.units().0).sum();
        // A schedule knows no end; what is beyond the units asked for was
        // never to be done.
        let mut left = self.units.map_or(u64::MAX, |units| units.saturating_sub(done));
        // Looked at once: a client may still go on.
        let seen: Vec<Seen> = self.stage.slots.iter().map(Slot::seen).collect();
        let begun = seen.iter().filter(|seen| matches!(seen, Seen::InFlight(_)));
        left = left.saturating_sub(begun.count() as u64);
        let mut waiting = |intended: u64, n: u64| {
            let n = n.min(left);
            if intended < end_at && n > 0 {
                left -= n;
                not_started.record_n(end_at - intended, n);
                late.record_n(end_at - intended, n);
            }
        };
        for seen in seen {
            match seen {
                Seen::InFlight(intended) => in_flight.record(now.saturating_sub(intended)),
                Seen::Waiting(intended) => waiting(intended, 1),
                Seen::Idle => {}
            }
        }
        if let Some(schedule) = &course.schedule
            && end_at != u64::MAX
        {
            // A run may be ended before it begins.
            let span = end_at.saturating_sub(course.start);
            schedule.take_rest(span, |intended, n| waiting(course.start.saturating_add(intended), n));
        }
        (in_flight, not_started, late)
    }
}

/// When the interval that has begun at `since` ends. Ends lie on a grid, from the start and then from the
/// beginning of the measured part: that one was late does not put off all that follow, and the intervals
/// of several processes stay the same. None is shorter than half of what was asked for, but the last of
/// the warm-up.
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
    fn intervals_end_on_one_grid_however_late_one_was() {
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
        // What is not known yet is far away.
        assert_eq!(boundary(u64::MAX - 5, 100, 0, u64::MAX), u64::MAX);
    }
}
