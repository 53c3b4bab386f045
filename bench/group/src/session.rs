//! Execution of a plan on a group.

use crate::{
    check::consumers,
    intervals::Intervals,
    merged::{self, ClientOutcome},
    part::ClientPart,
    stall::StallDetector,
    steadiness::GroupSteadiness,
    team::Team,
    wire,
    wire::{IntervalWire, RecordWire, SamplesWire},
    work::{SLACK, TICK},
};
use serval_coordination::{
    coordinator::{Coordinator, CoordinatorReport},
    group::{OnLost, PhaseEnd},
    queue,
};
use serval_lag::properties as lag;
use serval_model::properties::Reader;
use serval_plan::{
    Plan, PlanError, lag as plan_lag,
    session::{OpenStore, Ran, RunLost, Session},
};
use serval_report::units::are;
use serval_runner::{
    Control, EndedBy, Observer, RunError, RunOptions,
    clock::{self, nanoseconds},
    pacing::rate::RateSchedule,
};
use serval_workload::Workload;
use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Most troubles that a result lists.
const TROUBLES_MAX: usize = 100;

/// Time from the steady state to the measured part, ns: all clients have the message by then.
const MEASURE_LEAD_NS: u64 = 300_000_000;

/// A group as an open store.
pub struct GroupSession<'a> {
    team: &'a Team,
    local: &'a dyn Session,
    plan: &'a Plan,
    parts: Vec<Option<ClientPart>>,
}

impl<'a> GroupSession<'a> {
    /// Creates a session in which all clients have even parts of a plan. `local` is the store as this
    /// process has opened it: it prepares and counts records.
    pub fn new(team: &'a Team, local: &'a dyn Session, plan: &'a Plan) -> GroupSession<'a> {
        Self::with_parts(team, local, plan, ClientPart::even(team.clients().len()))
    }

    /// Creates a session in which each client has its own part; a client without one does nothing.
    pub fn with_parts(
        team: &'a Team,
        local: &'a dyn Session,
        plan: &'a Plan,
        parts: Vec<Option<ClientPart>>,
    ) -> GroupSession<'a> {
        let parts = ClientPart::with_consumers(parts, consumers(&plan.properties));
        GroupSession { team, local, plan, parts }
    }
}

impl GroupSession<'_> {
    /// Returns the longest time that the run may last, if its length is bounded.
    fn length_max(&self, options: &RunOptions) -> Option<Duration> {
        let mut reader = Reader::new(&self.plan.properties);
        let drain = reader.duration(&lag::DRAIN);
        let scheduled = options.rate.as_ref().and_then(RateSchedule::length_s).map(Duration::from_secs_f64);
        let time = options.time.into_iter().chain(scheduled).min()?;
        Some(options.warm_up_max() + time + options.grace + drain + SLACK)
    }
}

/// The measured part of a run.
struct MeasuredWindow {
    start: Option<u64>,
    /// Instant at which the measured part begins, as far as it is known.
    from: Option<u64>,
    measuring: bool,
    measured: bool,
}

impl MeasuredWindow {
    fn update(&mut self, now: u64, observer: &mut dyn Observer) {
        if !self.measuring && self.from.is_some_and(|from| now >= from) {
            self.measuring = true;
            observer.measuring();
        }
    }

    /// Starts the measured part for all clients once they are steady together.
    fn begin_if_steady(&mut self, steadiness: &mut GroupSteadiness, coordinator: &Coordinator) {
        let (Some(start), Some(latest)) = (self.start, self.from) else { return };
        if steadiness.update(MEASURE_LEAD_NS) {
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

/// Returns the smallest range that covers all ranges.
fn covering_range(ranges: &[(u64, u64)]) -> Range<u64> {
    let start = ranges.iter().map(|range| range.0).min().unwrap_or_default();
    start..ranges.iter().map(|range| range.1).max().unwrap_or_default()
}

/// A run of a group, as the coordinator observes it.
struct GroupRun<'a> {
    team: &'a Team,
    options: &'a RunOptions,
    /// Clients that only read sampled keys.
    consumes: Vec<bool>,
    outcomes: Vec<ClientOutcome>,
    intervals: Intervals,
    steadiness: Option<GroupSteadiness>,
    stall: StallDetector,
    window: MeasuredWindow,
    started: SystemTime,
    /// Whether consumers have been asked to finish.
    finishing: bool,
    troubles: Vec<String>,
    /// Reason if the group ends with this run.
    ending: Option<String>,
}

impl<'a> GroupRun<'a> {
    fn new(
        team: &'a Team,
        parts: &[Option<ClientPart>],
        options: &'a RunOptions,
        has_work: &[bool],
    ) -> GroupRun<'a> {
        let count = team.facts.len();
        let part = |client: usize| parts.get(client).and_then(Option::as_ref);
        let consumes: Vec<bool> = (0..count).map(|client| part(client).is_some_and(|p| p.consumes)).collect();
        let outcomes = (0..count)
            .map(|client| ClientOutcome {
                writes: has_work[client] && !consumes[client],
                ..ClientOutcome::default()
            })
            .collect();
        let mut run = GroupRun {
            team,
            options,
            outcomes,
            intervals: Intervals::new(consumes.clone(), options.interval),
            steadiness: GroupSteadiness::new(options, count),
            stall: StallDetector::new(count, clock::now()),
            window: MeasuredWindow { start: None, from: None, measuring: false, measured: false },
            started: SystemTime::now(),
            finishing: !consumes.contains(&true),
            consumes,
            troubles: Vec::new(),
            ending: None,
        };
        for (client, lost) in team.lost.borrow().iter().enumerate() {
            // Consumers do not count for the steady state.
            if run.consumes[client] {
                run.steadiness.iter_mut().for_each(|steadiness| steadiness.set_ended(client));
            }
            if lost.is_some() || part(client).is_none() {
                run.set_ended(client);
                run.outcomes[client].lost = lost.clone();
            }
        }
        run
    }

    /// Notes that a client sends nothing more.
    fn set_ended(&mut self, client: usize) {
        self.intervals.set_ended(client);
        self.steadiness.iter_mut().for_each(|steadiness| steadiness.set_ended(client));
    }

    fn unreadable(&self, client: usize, error: impl Into<wire::WireError>) -> PlanError {
        let (name, error) = (self.team.facts[client].name(), error.into());
        PlanError::Group(format!("what client {name} sent cannot be read: {error}"))
    }

    /// Handles a report of the coordinator. Returns the end of the phase once the run has ended.
    fn on_report(
        &mut self,
        report: CoordinatorReport,
        observer: &mut dyn Observer,
    ) -> Result<Option<PhaseEnd>, PlanError> {
        let team = self.team;
        match report {
            CoordinatorReport::Joined { .. } | CoordinatorReport::Complete => {}
            CoordinatorReport::Trouble(what) => {
                // A repeated attempt is one trouble.
                if !self.troubles.contains(&what) && self.troubles.len() < TROUBLES_MAX {
                    (team.trouble)(&what);
                    self.troubles.push(what);
                }
            }
            CoordinatorReport::Ending(why) => {
                (team.trouble)(&why);
                self.ending = Some(why);
            }
            CoordinatorReport::Starts(at) => {
                self.window.start = Some(at);
                self.window.from = Some(at.saturating_add(nanoseconds(self.options.warm_up_max())));
                self.started = SystemTime::now() + Duration::from_nanos(at.saturating_sub(clock::now()));
                observer.started(self.started);
            }
            CoordinatorReport::Interval(client, bytes) => self.on_interval(client, &bytes)?,
            CoordinatorReport::Result(client, bytes) => {
                // The result is empty if the client never began.
                if !bytes.is_empty() {
                    let record: RecordWire =
                        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(client, error))?;
                    if record.lost.is_some() && team.on_lost == OnLost::End {
                        team.coordinator.stop();
                    }
                    self.outcomes[client].record = Some(record);
                    self.window.end(observer);
                }
                self.intervals.set_ended(client);
            }
            CoordinatorReport::Lost(lost) => {
                let since = self.window.start.map(|start| lost.at.saturating_sub(start) as f64 / 1e9);
                let why = match since {
                    Some(since) => format!("{} ({since:.1} s after the start)", lost.why),
                    None => lost.why.to_string(),
                };
                self.outcomes[lost.client].lost = Some(why.clone());
                team.note_lost(lost.client, why);
                self.set_ended(lost.client);
            }
            CoordinatorReport::Over(end) => return Ok(Some(end)),
            CoordinatorReport::Disbanded(why) => {
                let why = why.or_else(|| team.describe_lost());
                return Err(PlanError::Group(why.unwrap_or_else(|| "the group is over".to_owned())));
            }
        }
        Ok(None)
    }

    /// Handles an interval of a client, or samples of its warm-up.
    fn on_interval(&mut self, client: usize, bytes: &[u8]) -> Result<(), PlanError> {
        if let Some(steadiness) = &mut self.steadiness
            && let Ok(wire) = serde_json::from_slice::<SamplesWire>(bytes)
        {
            steadiness.take(client, wire.samples());
            self.window.begin_if_steady(steadiness, &self.team.coordinator);
            return Ok(());
        }
        let wire: IntervalWire =
            serde_json::from_slice(bytes).map_err(|error| self.unreadable(client, error))?;
        self.outcomes[client].writer = wire.writer;
        self.stall.record(client, wire.units, clock::now());
        self.intervals.take(client, &wire).map_err(|error| self.unreadable(client, error))
    }

    /// Reports stalled clients, lets consumers finish, and passes complete intervals on.
    fn update(&mut self, observer: &mut dyn Observer) {
        let GroupRun { team, consumes, intervals, stall, .. } = self;
        let works = |client: usize| !consumes[client] && !intervals.has_ended(client);
        if self.window.start.is_some() {
            for client in stall.stalled(works, clock::now()) {
                let what = format!(
                    "client {} has ended no operation for a minute, and the other clients have done their part and wait \
                     for it: its store does not answer. Ctrl-C ends the run",
                    team.facts[client].name()
                );
                (team.trouble)(&what);
                self.troubles.push(what);
            }
        }
        // No client writes any more: consumers may finish.
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
    /// Returns the record of a run that has ended.
    fn record(&self, run: GroupRun<'_>, end: PhaseEnd, has_work: &[bool]) -> Result<Ran, PlanError> {
        let team = self.team;
        let GroupRun { outcomes, intervals, mut troubles, ending, steadiness, started, consumes, .. } = run;
        if end.start.is_none() || outcomes.iter().all(|outcome| outcome.record.is_none()) {
            return Err(ending
                .or_else(|| team.describe_lost())
                .map_or(RunError::Interrupted.into(), PlanError::Group));
        }
        if intervals.missed > 0 {
            troubles
                .push(format!("{} missing from the series of clients", are(intervals.missed, "interval")));
        }
        if consumes.contains(&true) {
            // A queue that is not removed is harmless: no other group uses its name.
            let _ = queue::remove(&team.queue());
        }
        let inserts =
            |client: &usize| self.parts.get(*client).is_some_and(|part| part.is_some()) && !consumes[*client];
        let unended = (0..consumes.len()).filter(inserts).map(|client| match has_work[client] {
            true => outcomes[client].record.as_ref()?.unended,
            // The client was lost before the run and inserted none of its keys.
            false => Some((0, 0)),
        });
        team.unended.replace(unended.collect::<Option<Vec<_>>>().map(|all| covering_range(&all)));
        let clocks = team.coordinator.clocks();
        let view = merged::CoordinatorView {
            rates: &intervals.rates,
            parts: &self.parts,
            skew: end.skew,
            clocks: &clocks,
            setting: plan_lag::setting(&self.plan.properties),
        };
        let mut ran = merged::record(started, &team.facts, outcomes, &view, team.on_lost == OnLost::End)
            .map_err(|error| PlanError::Group(format!("what a client sent cannot be read: {error}")))?;
        if let Some(group) = &mut ran.group {
            group.troubles = troubles;
        }
        ran.record.steadiness = steadiness.map(|steadiness| steadiness.ended());
        if let Some(why) = ending {
            ran.lost = Some(RunLost::Clients(why));
            ran.record.ended_by = EndedBy::Failed;
        }
        Ok(ran)
    }
}

impl Session for GroupSession<'_> {
    fn store(&self) -> &dyn OpenStore {
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
        let mut run = GroupRun::new(team, &self.parts, options, &has_work);
        let mut stopping = false;
        let end = loop {
            let report = team.next(TICK).map_err(|error| PlanError::Group(error.to_string()))?;
            run.window.update(clock::now(), observer);
            if control.interrupted() && !std::mem::replace(&mut stopping, true) {
                team.coordinator.stop();
            }
            if let Some(report) = report
                && let Some(end) = run.on_report(report, observer)?
            {
                break end;
            }
            run.update(observer);
        };
        run.window.end(observer);
        self.record(run, end, &has_work)
    }

    fn is_group(&self) -> bool {
        true
    }
}
