//! A plan on a group.

use super::{
    Part, SLACK, TICK, Team, merged,
    merged::{Intervals, Left},
    steady::Steadily,
    still::Still,
    wire,
    wire::{IntervalWire, LooksWire, RecordWire},
};
use crate::{
    plan::Plan,
    session::{Opened, Session},
};
use serval_coordination::{
    coordinator::{Coordinator, Report},
    group::OnLost,
    queue,
};
use serval_lag::properties as lag;
use serval_model::properties::Reader;
use serval_runner::{
    Control, EndedBy, Lost, Observer, RunError, RunOptions, RunRecord, clock, pacing::rate::RateSchedule,
};
use serval_workload::Workload;
use std::{
    ops::Range,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, SystemTime},
};

/// Troubles that a result tells of, at most.
const TROUBLES_MAX: usize = 100;

/// How long after clients were found steady the measured part begins, ns: all have been told by then.
const MEASURE_LEAD_NS: u64 = 300_000_000;

/// A plan on a group.
pub(super) struct GroupSession<'a> {
    pub(super) team: &'a Team,
    pub(super) local: &'a dyn Session,
    pub(super) plan: &'a Plan,
    pub(super) parts: Vec<Option<Part>>,
}

impl GroupSession<'_> {
    /// The longest that the run may last, if anything bounds it.
    fn length_max(&self, options: &RunOptions) -> Option<Duration> {
        let mut reader = Reader::new(&self.plan.properties);
        let drain = reader.duration(&lag::DRAIN);
        let scheduled = options.rate.as_ref().and_then(RateSchedule::length_s).map(Duration::from_secs_f64);
        let time = options.time.into_iter().chain(scheduled).min()?;
        Some(options.warm_up_max() + time + options.grace + drain + SLACK)
    }
}

/// The measured part of a run, as it is seen to begin and to end.
struct Course {
    start: Option<u64>,
    /// When the measured part begins, as far as is known.
    from: Option<u64>,
    measuring: bool,
    measured: bool,
}

impl Course {
    fn look(&mut self, now: u64, observer: &mut dyn Observer) {
        if !self.measuring && self.from.is_some_and(|from| now >= from) {
            self.measuring = true;
            observer.measuring();
        }
    }

    /// Has the measured part begin for all, when they are found steady together.
    fn look_for_steadiness(&mut self, steadily: &mut Steadily, coordinator: &Coordinator) {
        let (Some(start), Some(latest)) = (self.start, self.from) else { return };
        if steadily.look(MEASURE_LEAD_NS) {
            let at = clock::now().max(start).saturating_add(MEASURE_LEAD_NS);
            if at < latest {
                coordinator.measure(at);
                self.from = Some(at);
            }
        }
    }

    fn end(&mut self, observer: &mut dyn Observer) {
        if self.measuring && !std::mem::replace(&mut self.measured, true) {
            observer.measured();
        }
    }
}

/// From the smallest beginning to the largest end.
fn whole(ranges: &[(u64, u64)]) -> Range<u64> {
    let start = ranges.iter().map(|range| range.0).min().unwrap_or_default();
    start..ranges.iter().map(|range| range.1).max().unwrap_or_default()
}

impl Session for GroupSession<'_> {
    fn store(&self) -> &dyn Opened {
        self.local.store()
    }

    fn run(
        &self,
        _: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<RunRecord, RunError> {
        let team = self.team;
        let broken = |what: String| RunError::Group(what);
        let works = team.works(self.plan, &self.parts, options);
        team.unended.replace(None);
        if let Some(why) = team.unfit(&works) {
            return Err(broken(why));
        }
        let has_work: Vec<bool> = works.iter().map(Option::is_some).collect();
        team.coordinator.phase(works, self.length_max(options));
        let count = team.facts.len();
        let mut left: Vec<Left> = (0..count).map(|_| Left::default()).collect();
        let part = |client: usize| self.parts.get(client).and_then(Option::as_ref);
        let takes_part = |client: usize| part(client).is_some();
        let consumes: Vec<bool> = (0..count).map(|client| part(client).is_some_and(|p| p.consumes)).collect();
        for (client, left) in left.iter_mut().enumerate() {
            left.writes = has_work[client] && !consumes[client];
        }
        let mut intervals = Intervals::new(consumes.clone(), options.interval);
        let mut steadily = Steadily::new(options, count);
        // How steady consumers are is nobody's question.
        (0..count).filter(|client| consumes[*client]).for_each(|client| {
            steadily.iter_mut().for_each(|steadily| steadily.gone(client));
        });
        let mut finishing = !consumes.contains(&true);
        for (client, lost) in team.lost.borrow().iter().enumerate() {
            if lost.is_some() || !takes_part(client) {
                intervals.gone(client);
                steadily.iter_mut().for_each(|steadily| steadily.gone(client));
                left[client].lost = lost.clone();
            }
        }
        let mut troubles: Vec<String> = Vec::new();
        let mut ending = None;
        let mut course = Course { start: None, from: None, measuring: false, measured: false };
        let mut started = SystemTime::now();
        let mut stopping = false;
        let mut still = Still::new(count, clock::now());
        let end = loop {
            let report = match team.coordinator.next_within(TICK) {
                Ok(report) => Some(report),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(broken("the group's coordinator has ended".to_owned()));
                }
            };
            course.look(clock::now(), observer);
            if control.interrupted() && !std::mem::replace(&mut stopping, true) {
                team.coordinator.stop();
            }
            let unreadable = |client: usize, error: wire::WireError| {
                broken(format!("what client {} sent cannot be read: {error}", team.facts[client].name()))
            };
            match report {
                None | Some(Report::Joined { .. } | Report::Complete) => {}
                Some(Report::Trouble(what)) => {
                    // What is tried again and again is one trouble.
                    if !troubles.contains(&what) && troubles.len() < TROUBLES_MAX {
                        (team.trouble)(&what);
                        troubles.push(what);
                    }
                }
                Some(Report::Ending(why)) => {
                    (team.trouble)(&why);
                    ending = Some(why);
                }
                Some(Report::Starts(at)) => {
                    course.start = Some(at);
                    course.from = Some(at.saturating_add(options.warm_up_max().as_nanos() as u64));
                    started = SystemTime::now() + Duration::from_nanos(at.saturating_sub(clock::now()));
                    observer.started(started);
                }
                Some(Report::Interval(client, bytes)) => {
                    if let Some(steadily) = &mut steadily
                        && let Ok(wire) = serde_json::from_slice::<LooksWire>(&bytes)
                    {
                        steadily.take(client, wire.looks());
                        course.look_for_steadiness(steadily, &team.coordinator);
                        continue;
                    }
                    let wire: IntervalWire =
                        serde_json::from_slice(&bytes).map_err(|error| unreadable(client, error.into()))?;
                    left[client].writer = wire.writer;
                    still.done(client, wire.units, clock::now());
                    intervals.take(client, &wire).map_err(|error| unreadable(client, error))?;
                }
                Some(Report::Result(client, bytes)) => {
                    // Nothing where it never began.
                    if !bytes.is_empty() {
                        let record: RecordWire = serde_json::from_slice(&bytes)
                            .map_err(|error| unreadable(client, error.into()))?;
                        if record.lost.is_some() && team.on_lost == OnLost::End {
                            team.coordinator.stop();
                        }
                        left[client].record = Some(record);
                        course.end(observer);
                    }
                    intervals.gone(client);
                }
                Some(Report::Lost(lost)) => {
                    let since = course.start.map(|start| lost.at.saturating_sub(start) as f64 / 1e9);
                    let why = match since {
                        Some(since) => format!("{} ({since:.1} s after the start)", lost.why),
                        None => lost.why.to_string(),
                    };
                    left[lost.client].lost = Some(why.clone());
                    team.note_lost(lost.client, why);
                    intervals.gone(lost.client);
                    steadily.iter_mut().for_each(|steadily| steadily.gone(lost.client));
                }
                Some(Report::Over(end)) => break end,
                Some(Report::Disbanded(why)) => {
                    return Err(broken(
                        why.or_else(|| team.who_is_lost()).unwrap_or_else(|| "the group is over".to_owned()),
                    ));
                }
            }
            if course.start.is_some() {
                for client in
                    still.look(|client| !consumes[client] && !intervals.is_gone(client), clock::now())
                {
                    let what = format!(
                        "client {} has ended no operation for a minute, and the others have done their part and wait for it: its \
                         store does not answer. Ctrl-C ends the run",
                        team.facts[client].name()
                    );
                    (team.trouble)(&what);
                    troubles.push(what);
                }
            }
            // Nothing more is written: consumers may finish.
            if !finishing && (0..count).all(|client| consumes[client] || intervals.is_gone(client)) {
                finishing = true;
                team.coordinator.finish((0..count).filter(|client| consumes[*client]).collect());
            }
            while let Some((interval, progress)) = intervals.next() {
                observer.interval(&interval);
                observer.progress(&progress);
            }
        };
        course.end(observer);
        let fatal = team.on_lost == OnLost::End;
        if end.start.is_none() || left.iter().all(|left| left.record.is_none()) {
            return Err(match ending.or_else(|| team.who_is_lost()) {
                None => RunError::Interrupted,
                Some(why) => broken(why),
            });
        }
        if intervals.missed > 0 {
            troubles.push(format!("{} intervals of clients are missing from the series", intervals.missed));
        }
        if consumes.contains(&true) {
            // What is left there is nobody's. If it stays it is in nobody's way: no other group has its
            // name.
            let _ = queue::remove(&team.queue());
        }
        let inserts = |client: &usize| part(*client).is_some_and(|part| !part.consumes);
        let unended = (0..count).filter(inserts).map(|client| match has_work[client] {
            true => left[client].record.as_ref()?.unended,
            // Lost before: none of the keys that it would have been dealt is there.
            false => Some((0, 0)),
        });
        team.unended.replace(unended.collect::<Option<Vec<_>>>().map(|all| whole(&all)));
        let clocks = team.coordinator.clocks();
        let setting = crate::lag::setting(&self.plan.properties);
        let seen = merged::Seen {
            rates: &intervals.rates,
            parts: &self.parts,
            skew: end.skew,
            clocks: &clocks,
            setting,
        };
        let record = merged::record(started, &team.facts, left, &seen, fatal);
        let mut record =
            record.map_err(|error| broken(format!("what a client sent cannot be read: {error}")))?;
        if let Some(group) = &mut record.group {
            group.troubles = troubles;
        }
        record.steadiness = steadily.map(|steadily| steadily.ended());
        if let Some(why) = ending {
            record.lost = Some(Lost::Clients(why));
            record.ended_by = EndedBy::Failed;
        }
        Ok(record)
    }

    fn is_group(&self) -> bool {
        true
    }
}
