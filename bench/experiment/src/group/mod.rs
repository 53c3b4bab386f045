//! Several client processes at work as one (`docs/coordination.md`).
//!
//! A group looks like a store that is open: a plan is carried out on it as on any other
//! [`Session`], and what comes of it is a record like that of one process. So all
//! that is made of runs (results, sweeps, searches, reports) is made of a group's too.

mod agent;
mod barrier;
mod merged;
pub mod properties;
mod steady;
mod wire;

pub use agent::{Agent, agent};
pub use barrier::AtBarrier;
pub use serval_coordination::{agent::Quit, coordinator::Leading, message::ClientFacts};

use crate::{plan::Plan, properties as p, session::Session};
use merged::{Intervals, Left};
use serval_coordination::{
    coordinator::{Coordinator, LeadError, Report},
    group::OnLost,
    message::Work,
};
use serval_model::{
    Execution, OperationKinds, Outcome, Purpose, Reply, Schema, Share, StoreError,
    properties::{Fault, Faults, Property},
};
use serval_runner::{Control, EndedBy, Lost, Observer, RunError, RunOptions, RunRecord, clock};
use serval_workload::{Workload, core::Phase};
use std::{
    cell::RefCell,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, SystemTime},
};
use steady::Steadily;
use wire::{IntervalWire, LooksWire, RecordWire};

/// How often a group is asked whether somebody wants it to end.
const TICK: Duration = Duration::from_millis(50);

/// What a client adds to the time of a run: connecting took place before its start, what it
/// saw is handed over after it.
const SLACK: Duration = Duration::from_secs(10);

/// Troubles that a result tells of, at most.
const TROUBLES_MAX: usize = 100;

/// How long after clients were found steady the measured part begins, ns: all have been told by then.
const MEASURE_LEAD_NS: u64 = 300_000_000;

/// Kinds of work.
const LOAD: &str = "load";
const RUN: &str = "run";

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// It cannot be led.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Not all came.
    #[error(
        "only {joined} of {wanted} clients came within {within:?} (coordination.wait): start more with \
         'serval agent --join {cluster}'"
    )]
    TooFew {
        /// How many did.
        joined: usize,
        /// How many were wanted.
        wanted: usize,
        /// How long they were waited for.
        within: Duration,
        /// ZooKeeper's address.
        cluster: String,
    },
    /// It broke up.
    #[error("{0}")]
    Broken(String),
    /// Somebody asked for the end.
    #[error("interrupted before all clients had come")]
    Interrupted,
}

/// A group whose clients have all come.
#[derive(Debug)]
pub struct Team {
    coordinator: Coordinator,
    facts: Vec<ClientFacts>,
    lost: RefCell<Vec<Option<String>>>,
    on_lost: OnLost,
    trouble: fn(&str),
}

impl Team {
    /// Leads a group and waits until its clients have come; `came` is told how many have, and `trouble`, then and
    /// later, what goes wrong and is no failure yet.
    ///
    /// # Errors
    ///
    /// That it cannot be led, or that not all come in time.
    pub fn gather(
        leading: Leading,
        control: &Control,
        came: &mut dyn FnMut(usize, usize, Option<&ClientFacts>),
        trouble: fn(&str),
    ) -> Result<Team, GroupError> {
        let (wanted, on_lost, cluster) =
            (leading.settings.clients, leading.settings.on_lost, leading.cluster.clone());
        let within = Duration::from_nanos(leading.settings.wait);
        let own = agent::facts();
        let coordinator = Coordinator::open(leading, &own.name())?;
        let mut facts: Vec<Option<ClientFacts>> = vec![None; wanted];
        came(0, wanted, None);
        loop {
            let report = match coordinator.next_within(TICK) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) if control.interrupted() => {
                    return Err(GroupError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(GroupError::Broken("the coordinator has ended".to_owned()));
                }
            };
            let joined = |facts: &[Option<ClientFacts>]| facts.iter().flatten().count();
            match report {
                Report::Joined { client, facts: theirs } => {
                    if let Some(place) = facts.get_mut(client) {
                        *place = Some(theirs.clone());
                    }
                    came(joined(&facts), wanted, Some(&theirs));
                }
                Report::Lost(lost) => {
                    if let Some(place) = facts.get_mut(lost.client) {
                        *place = None;
                    }
                    came(joined(&facts), wanted, None);
                }
                Report::Complete => break,
                Report::Trouble(what) => trouble(&what),
                Report::Disbanded(Some(why)) => return Err(GroupError::Broken(why)),
                Report::Disbanded(None) => {
                    return Err(GroupError::TooFew { joined: joined(&facts), wanted, within, cluster });
                }
                // There is no phase yet.
                Report::Starts(_)
                | Report::Interval(..)
                | Report::Result(..)
                | Report::Ending(_)
                | Report::Over(_) => {}
            }
        }
        let facts: Vec<ClientFacts> = facts.into_iter().flatten().collect();
        let lost = RefCell::new(vec![None; facts.len()]);
        Ok(Team { coordinator, facts, lost, on_lost, trouble })
    }

    /// Its clients.
    pub fn clients(&self) -> &[ClientFacts] {
        &self.facts
    }

    /// Refuses what several processes cannot do as one.
    ///
    /// # Errors
    ///
    /// A fault for each setting that asks for it.
    pub fn check(plan: &Plan, raw: bool) -> Result<(), Faults> {
        let mut faults = Vec::new();
        let mut refuse = |property: &Property, problem: &str| {
            let origin = plan.properties.setting(property).map(|(_, setting)| setting.origin.clone());
            faults.push(Fault { origin, problem: format!("{}: {problem}", property.name) });
        };
        if !matches!(plan.output.measurement_type, "hdrhistogram") || raw {
            refuse(&p::MEASUREMENT_TYPE, "single times and the older types are kept by one process only");
        }
        if plan.options.share != Share::WHOLE {
            refuse(&p::SHARE, "a group divides the work itself");
        }
        if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
    }

    /// The group as a store that is open. `local` is the store as it is opened here, by
    /// which records are prepared and looked for.
    pub fn session<'a>(&'a self, local: &'a dyn Session, plan: &'a Plan) -> Box<dyn Session + 'a> {
        Box::new(GroupSession { team: self, local, plan })
    }

    /// Those that are lost, in words; `None` if nobody is.
    fn who_is_lost(&self) -> Option<String> {
        let lost = self.lost.borrow();
        let lost = lost.iter().zip(&self.facts);
        let lost = lost.filter_map(|(why, facts)| Some(format!("client {} {}", facts.name(), why.as_ref()?)));
        let lost: Vec<String> = lost.collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }

    /// Each client's part of a plan.
    fn works(&self, plan: &Plan, options: &RunOptions) -> Vec<Option<Work>> {
        let lost = self.lost.borrow();
        let count = self.facts.len() as u64;
        let own = |name: &str| name.starts_with("coordination.") || name.starts_with("barrier-");
        // What is carried out is what the options say: a load of 'serval bench' leaves out the time and the
        // target of the run that follows.
        let paced = [&p::TARGET, &p::TARGET_SCHEDULE, &p::TARGET_ARRIVALS, &p::PACING_SLACK];
        let dropped = |name: &str| {
            own(name)
                || matches!(name, "watch" | "share" | "seed")
                || (options.time.is_none() && name == p::MAX_EXECUTION_TIME.name)
                || (options.rate.is_none() && paced.iter().any(|property| property.name == name))
        };
        (0..count)
            .map(|index| {
                if lost.get(index as usize).is_some_and(Option::is_some) {
                    return None;
                }
                let share = Share::new(index, count)?;
                let mut properties: Vec<(String, String)> = plan
                    .properties
                    .iter()
                    .filter(|(name, _)| !dropped(name))
                    .map(|(name, setting)| (name.to_owned(), setting.value.clone()))
                    .collect();
                properties.push(("share".to_owned(), share.to_string()));
                properties.push(("seed".to_owned(), options.seed.to_string()));
                Some(Work {
                    phase: 0,
                    kind: if plan.phase == Phase::Load { LOAD } else { RUN }.to_owned(),
                    store: plan.store.name.to_owned(),
                    properties,
                    command: None,
                })
            })
            .collect()
    }
}

/// Why clients of a group cannot have an embedded store that is kept where `property` says.
pub(crate) fn embedded(property: &str) -> Faults {
    Faults::one(format!(
        "an embedded store ({property}) is in one process, and clients of a group are several: name a store that is a server"
    ))
}

/// What carries a plan out: the group that has been gathered, clients that meet at a barrier if the plan's
/// properties speak of one, or else the store as it is open here. What people want to know is
/// `told`.
///
/// # Errors
///
/// Faults of a barrier's properties.
pub fn conducted<'a>(
    local: &'a dyn Session,
    plan: &'a Plan,
    team: Option<&'a Team>,
    told: fn(&str),
) -> Result<Box<dyn Session + 'a>, Faults> {
    if let Some(team) = team {
        return Ok(team.session(local, plan));
    }
    Ok(match AtBarrier::of(local, plan, told)? {
        Some(at) => Box::new(at),
        None => Box::new(local),
    })
}

/// A plan on a group.
struct GroupSession<'a> {
    team: &'a Team,
    local: &'a dyn Session,
    plan: &'a Plan,
}

impl GroupSession<'_> {
    /// The longest that the run may last, if anything bounds it.
    fn length_max(options: &RunOptions) -> Option<Duration> {
        Some(options.warm_up_max() + options.time? + options.grace + SLACK)
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

impl Session for GroupSession<'_> {
    fn execution(&self) -> Execution {
        self.local.execution()
    }

    fn capabilities(&self) -> OperationKinds {
        self.local.capabilities()
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        self.local.prepare(schema, purpose)
    }

    fn describe(&self) -> Vec<(String, String)> {
        self.local.describe()
    }

    fn count_records(&self, table: &str, keys: &[String]) -> Result<usize, StoreError> {
        self.local.count_records(table, keys)
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
        team.coordinator.phase(team.works(self.plan, options), Self::length_max(options));
        let count = team.facts.len();
        let mut left: Vec<Left> = (0..count).map(|_| Left::default()).collect();
        let mut intervals = Intervals::new(count);
        let mut steadily = Steadily::new(options, count);
        for (client, lost) in team.lost.borrow().iter().enumerate() {
            if lost.is_some() {
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
                    let read = serde_json::from_slice::<IntervalWire>(&bytes).map_err(wire::WireError::from);
                    read.and_then(|wire| intervals.take(client, &wire))
                        .map_err(|error| unreadable(client, error))?;
                }
                Some(Report::Result(client, bytes)) => {
                    // Nothing where it never began.
                    if !bytes.is_empty() {
                        let record: RecordWire = serde_json::from_slice(&bytes)
                            .map_err(|error| unreadable(client, error.into()))?;
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
                    team.lost.borrow_mut()[lost.client] = Some(why.clone());
                    left[lost.client].lost = Some(why);
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
        let record = merged::record(started, &team.facts, &left, &intervals.rates, end.skew, fatal);
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

    fn ask(
        &self,
        questions: &mut dyn FnMut() -> Option<crate::session::Question>,
        answer: &mut dyn FnMut(Outcome, &Reply),
    ) -> Result<(), StoreError> {
        self.local.ask(questions, answer)
    }
}
