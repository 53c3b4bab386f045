//! A plan on a group.

use crate::{
    check::consumers,
    merged,
    merged::{Intervals, Left},
    part::Part,
    stall::Still,
    steadiness::Steadily,
    team::Team,
    wire,
    wire::{IntervalWire, LooksWire, RecordWire},
    work::{SLACK, TICK},
};
use serval_coordination::{
    coordinator::{Coordinator, Report},
    group::{OnLost, PhaseEnd},
    queue,
};
use serval_lag::properties as lag;
use serval_model::properties::Reader;
use serval_plan::{
    Plan, PlanError, lag as plan_lag,
    session::{Opened, Ran, RunLost, Session},
};
use serval_report::units::are;
use serval_runner::{Control, EndedBy, Observer, RunError, RunOptions, clock, pacing::rate::RateSchedule};
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

/// A group as an open store.
pub struct GroupSession<'a> {
    team: &'a Team,
    local: &'a dyn Session,
    plan: &'a Plan,
    parts: Vec<Option<Part>>,
}

impl<'a> GroupSession<'a> {
    /// A session in which all clients have even parts of a plan. `local` is the store as this
    /// process has it open: it prepares and counts records.
    pub fn new(team: &'a Team, local: &'a dyn Session, plan: &'a Plan) -> GroupSession<'a> {
        Self::with_parts(team, local, plan, Part::even(team.clients().len()))
    }

    /// A session in which each client has its own part; a client without one does nothing.
    pub fn with_parts(
        team: &'a Team,
        local: &'a dyn Session,
        plan: &'a Plan,
        parts: Vec<Option<Part>>,
    ) -> GroupSession<'a> {
        let parts = Part::with_consumers(parts, consumers(&plan.properties));
        GroupSession { team, local, plan, parts }
    }
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

/// A run of a group, as it is seen from where it is led.
struct Seeing<'a> {
    team: &'a Team,
    options: &'a RunOptions,
    /// Clients that only read sampled keys.
    consumes: Vec<bool>,
    left: Vec<Left>,
    intervals: Intervals,
    steadily: Option<Steadily>,
    still: Still,
    course: Course,
    started: SystemTime,
    /// Whether consumers were told to finish.
    finishing: bool,
    troubles: Vec<String>,
    /// Why the group ends with this run, if it does.
    ending: Option<String>,
}

impl<'a> Seeing<'a> {
    fn new(team: &'a Team, parts: &[Option<Part>], options: &'a RunOptions, has_work: &[bool]) -> Seeing<'a> {
        let count = team.facts.len();
        let part = |client: usize| parts.get(client).and_then(Option::as_ref);
        let consumes: Vec<bool> = (0..count).map(|client| part(client).is_some_and(|p| p.consumes)).collect();
        let left = (0..count)
            .map(|client| Left { writes: has_work[client] && !consumes[client], ..Left::default() })
            .collect();
        let mut seeing = Seeing {
            team,
            options,
            left,
            intervals: Intervals::new(consumes.clone(), options.interval),
            steadily: Steadily::new(options, count),
            still: Still::new(count, clock::now()),
            course: Course { start: None, from: None, measuring: false, measured: false },
            started: SystemTime::now(),
            finishing: !consumes.contains(&true),
            consumes,
            troubles: Vec::new(),
            ending: None,
        };
        for (client, lost) in team.lost.borrow().iter().enumerate() {
            // How steady consumers are is nobody's question.
            if seeing.consumes[client] {
                seeing.steadily.iter_mut().for_each(|steadily| steadily.gone(client));
            }
            if lost.is_some() || part(client).is_none() {
                seeing.gone(client);
                seeing.left[client].lost = lost.clone();
            }
        }
        seeing
    }

    /// Nothing more comes from a client.
    fn gone(&mut self, client: usize) {
        self.intervals.gone(client);
        self.steadily.iter_mut().for_each(|steadily| steadily.gone(client));
    }

    fn unreadable(&self, client: usize, error: impl Into<wire::WireError>) -> PlanError {
        let (name, error) = (self.team.facts[client].name(), error.into());
        PlanError::Group(format!("what client {name} sent cannot be read: {error}"))
    }

    /// Hears what the coordinator tells. How the run ended, once it has.
    fn hear(&mut self, report: Report, observer: &mut dyn Observer) -> Result<Option<PhaseEnd>, PlanError> {
        let team = self.team;
        match report {
            Report::Joined { .. } | Report::Complete => {}
            Report::Trouble(what) => {
                // What is tried again and again is one trouble.
                if !self.troubles.contains(&what) && self.troubles.len() < TROUBLES_MAX {
                    (team.trouble)(&what);
                    self.troubles.push(what);
                }
            }
            Report::Ending(why) => {
                (team.trouble)(&why);
                self.ending = Some(why);
            }
            Report::Starts(at) => {
                self.course.start = Some(at);
                self.course.from = Some(at.saturating_add(self.options.warm_up_max().as_nanos() as u64));
                self.started = SystemTime::now() + Duration::from_nanos(at.saturating_sub(clock::now()));
                observer.started(self.started);
            }
            Report::Interval(client, bytes) => self.interval(client, &bytes)?,
            Report::Result(client, bytes) => {
                // Nothing where it never began.
                if !bytes.is_empty() {
                    let record: RecordWire =
                        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(client, error))?;
                    if record.lost.is_some() && team.on_lost == OnLost::End {
                        team.coordinator.stop();
                    }
                    self.left[client].record = Some(record);
                    self.course.end(observer);
                }
                self.intervals.gone(client);
            }
            Report::Lost(lost) => {
                let since = self.course.start.map(|start| lost.at.saturating_sub(start) as f64 / 1e9);
                let why = match since {
                    Some(since) => format!("{} ({since:.1} s after the start)", lost.why),
                    None => lost.why.to_string(),
                };
                self.left[lost.client].lost = Some(why.clone());
                team.note_lost(lost.client, why);
                self.gone(lost.client);
            }
            Report::Over(end) => return Ok(Some(end)),
            Report::Disbanded(why) => {
                let why = why.or_else(|| team.who_is_lost());
                return Err(PlanError::Group(why.unwrap_or_else(|| "the group is over".to_owned())));
            }
        }
        Ok(None)
    }

    /// An interval of a client, or what it has done in its warm-up.
    fn interval(&mut self, client: usize, bytes: &[u8]) -> Result<(), PlanError> {
        if let Some(steadily) = &mut self.steadily
            && let Ok(wire) = serde_json::from_slice::<LooksWire>(bytes)
        {
            steadily.take(client, wire.looks());
            self.course.look_for_steadiness(steadily, &self.team.coordinator);
            return Ok(());
        }
        let wire: IntervalWire =
            serde_json::from_slice(bytes).map_err(|error| self.unreadable(client, error))?;
        self.left[client].writer = wire.writer;
        self.still.done(client, wire.units, clock::now());
        self.intervals.take(client, &wire).map_err(|error| self.unreadable(client, error))
    }

    /// Looks at how far all have come.
    fn look(&mut self, observer: &mut dyn Observer) {
        let Seeing { team, consumes, intervals, still, .. } = self;
        let works = |client: usize| !consumes[client] && !intervals.is_gone(client);
        if self.course.start.is_some() {
            for client in still.look(works, clock::now()) {
                let what = format!(
                    "client {} has ended no operation for a minute, and the others have done their part and wait for it: its \
                     store does not answer. Ctrl-C ends the run",
                    team.facts[client].name()
                );
                (team.trouble)(&what);
                self.troubles.push(what);
            }
        }
        // Nothing more is written: consumers may finish.
        if !self.finishing && !(0..consumes.len()).any(works) {
            self.finishing = true;
            team.coordinator.finish((0..consumes.len()).filter(|client| consumes[*client]).collect());
        }
        while let Some((interval, progress)) = self.intervals.next() {
            observer.interval(&interval);
            observer.progress(&progress);
        }
    }
}

impl GroupSession<'_> {
    /// What a run came to that has ended.
    fn record(&self, seeing: Seeing<'_>, end: PhaseEnd, has_work: &[bool]) -> Result<Ran, PlanError> {
        let team = self.team;
        let Seeing { left, intervals, mut troubles, ending, steadily, started, consumes, .. } = seeing;
        if end.start.is_none() || left.iter().all(|left| left.record.is_none()) {
            return Err(ending
                .or_else(|| team.who_is_lost())
                .map_or(RunError::Interrupted.into(), PlanError::Group));
        }
        if intervals.missed > 0 {
            troubles
                .push(format!("{} missing from the series of clients", are(intervals.missed, "interval")));
        }
        if consumes.contains(&true) {
            // What is left there is nobody's. If it stays it is in nobody's way: no other group has its
            // name.
            let _ = queue::remove(&team.queue());
        }
        let inserts =
            |client: &usize| self.parts.get(*client).is_some_and(|part| part.is_some()) && !consumes[*client];
        let unended = (0..consumes.len()).filter(inserts).map(|client| match has_work[client] {
            true => left[client].record.as_ref()?.unended,
            // Lost before: none of the keys that it would have been dealt is there.
            false => Some((0, 0)),
        });
        team.unended.replace(unended.collect::<Option<Vec<_>>>().map(|all| whole(&all)));
        let clocks = team.coordinator.clocks();
        let seen = merged::Seen {
            rates: &intervals.rates,
            parts: &self.parts,
            skew: end.skew,
            clocks: &clocks,
            setting: plan_lag::setting(&self.plan.properties),
        };
        let mut ran = merged::record(started, &team.facts, left, &seen, team.on_lost == OnLost::End)
            .map_err(|error| PlanError::Group(format!("what a client sent cannot be read: {error}")))?;
        if let Some(group) = &mut ran.group {
            group.troubles = troubles;
        }
        ran.record.steadiness = steadily.map(|steadily| steadily.ended());
        if let Some(why) = ending {
            ran.lost = Some(RunLost::Clients(why));
            ran.record.ended_by = EndedBy::Failed;
        }
        Ok(ran)
    }
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
    ) -> Result<Ran, PlanError> {
        let team = self.team;
        let works = team.works(self.plan, &self.parts, options);
        team.unended.replace(None);
        if let Some(why) = team.unfit(&works) {
            return Err(PlanError::Group(why));
        }
        let has_work: Vec<bool> = works.iter().map(Option::is_some).collect();
        team.coordinator.phase(works, self.length_max(options));
        let mut seeing = Seeing::new(team, &self.parts, options, &has_work);
        let mut stopping = false;
        let end = loop {
            let report = match team.coordinator.next_within(TICK) {
                Ok(report) => Some(report),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PlanError::Group("the group's coordinator has ended".to_owned()));
                }
            };
            seeing.course.look(clock::now(), observer);
            if control.interrupted() && !std::mem::replace(&mut stopping, true) {
                team.coordinator.stop();
            }
            if let Some(report) = report
                && let Some(end) = seeing.hear(report, observer)?
            {
                break end;
            }
            seeing.look(observer);
        };
        seeing.course.end(observer);
        self.record(seeing, end, &has_work)
    }

    fn is_group(&self) -> bool {
        true
    }
}
