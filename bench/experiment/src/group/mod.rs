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

use crate::{kept::Kept, plan::Plan, properties as p, session::Session};
use merged::{Intervals, Left};
use serval_coordination::{
    coordinator::{Coordinator, LeadError, Report},
    group::OnLost,
    message::Work,
    queue::{self, Place},
};
use serval_lag::properties as lag;
use serval_model::{
    Execution, OperationKinds, Outcome, Purpose, Reply, Schema, Share, StoreError,
    properties::{Fault, Faults, Properties, Property, Reader},
};
use serval_runner::{Control, EndedBy, Lost, Observer, RunError, RunOptions, RunRecord, clock};
use serval_stores::StoreInfo;
use serval_workload::{Workload, core::Phase};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant, SystemTime},
};
use steady::Steadily;
pub use wire::CommandWire;
pub(crate) use wire::LagWire;
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
const COMMAND: &str = "command";

/// Where the work of a program says how long it may take, ns.
const TIMEOUT: &str = "timeout";

/// Silence after which ZooKeeper is given up when the queue is taken away.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(6);

/// Clients of a group that consume.
fn consumers(properties: &Properties) -> usize {
    Reader::new(properties).count(&lag::CONSUMER_CLIENTS) as usize
}

fn clients(properties: &Properties) -> usize {
    Reader::new(properties).count(&properties::CLIENTS) as usize
}

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

/// What one client has to do of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its place among those that take part, from 0.
    pub place: u64,
    /// How many take part.
    pub of: u64,
    /// Whether it reads sampled keys instead of working on the plan: it is counted among those that
    /// do.
    pub consumes: bool,
    /// Properties that it has instead of the plan's.
    pub properties: Vec<(String, String)>,
}

impl Part {
    /// Even parts for all of `count` clients.
    pub fn even(count: usize) -> Vec<Option<Part>> {
        let of = count as u64;
        (0..of).map(|place| Some(Part { place, of, consumes: false, properties: Vec::new() })).collect()
    }

    /// The same parts, the last `consumers` of them to read sampled keys; the others divide the
    /// work.
    fn with_consumers(mut parts: Vec<Option<Part>>, consumers: usize) -> Vec<Option<Part>> {
        let all = parts.iter().flatten().count();
        let producers = all.saturating_sub(consumers);
        for (nth, part) in parts.iter_mut().flatten().enumerate() {
            part.consumes = nth >= producers;
            (part.place, part.of) = match part.consumes {
                true => ((nth - producers) as u64, (all - producers) as u64),
                false => (nth as u64, producers as u64),
            };
        }
        parts
    }

    /// What people call it.
    fn label(&self) -> String {
        if self.consumes {
            return format!("consumer {}", Share::new(self.place, self.of).unwrap_or_default());
        }
        self.share()
    }

    /// What divides the work: its own share if it was given one.
    fn share(&self) -> String {
        if self.consumes {
            return Share::WHOLE.to_string();
        }
        let own = self.properties.iter().find(|(name, _)| name == p::SHARE.name);
        own.map_or_else(
            || Share::new(self.place, self.of).unwrap_or_default().to_string(),
            |(_, share)| share.clone(),
        )
    }
}

/// A group whose clients have all come.
#[derive(Debug)]
pub struct Team {
    coordinator: Coordinator,
    facts: Vec<ClientFacts>,
    lost: RefCell<Vec<Option<String>>>,
    /// What the last run has left, where all that took part have said it.
    unended: RefCell<Option<Range<u64>>>,
    on_lost: OnLost,
    trouble: fn(&str),
    cluster: String,
    root: String,
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
        let (wanted, on_lost, cluster, root) = (
            leading.settings.clients,
            leading.settings.on_lost,
            leading.cluster.clone(),
            leading.root.clone(),
        );
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
        let unended = RefCell::default();
        Ok(Team { coordinator, facts, lost, unended, on_lost, trouble, cluster, root })
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
        let mut faults = unshared(plan.store, &plan.properties).map_or_else(Vec::new, |faults| faults.0);
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
        let (consumers, clients) = (consumers(&plan.properties), clients(&plan.properties));
        if consumers > 0 && consumers >= clients {
            refuse(&lag::CONSUMER_CLIENTS, "somebody must write: fewer than coordination.clients");
        }
        if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
    }

    /// Where the group's own queue of sampled keys is.
    fn queue(&self) -> Place {
        let leader = self.coordinator.leader();
        Place {
            cluster: self.cluster.clone(),
            node: format!("{}/lag/{}-{}", self.root.trim_matches('/'), leader.group, leader.epoch),
            timeout: QUEUE_TIMEOUT,
            max: 0,
        }
    }

    /// The group as a store that is open. `local` is the store as it is opened here, by
    /// which records are prepared and looked for. All clients have even parts.
    pub fn session<'a>(&'a self, local: &'a dyn Session, plan: &'a Plan) -> Box<dyn Session + 'a> {
        self.session_of(local, plan, Part::even(self.facts.len()))
    }

    /// The same, where `parts` says what each client does.
    pub fn session_of<'a>(
        &'a self,
        local: &'a dyn Session,
        plan: &'a Plan,
        parts: Vec<Option<Part>>,
    ) -> Box<dyn Session + 'a> {
        let parts = Part::with_consumers(parts, consumers(&plan.properties));
        Box::new(GroupSession { team: self, local, plan, parts })
    }

    /// Numbers of records of which it is not known that their inserts in the last run have ended: from the
    /// first, to one past the last that anybody took. `None` where somebody has not said it, for it was lost.
    pub(crate) fn unended_inserts(&self) -> Option<Range<u64>> {
        self.unended.borrow().clone()
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
    fn works(&self, plan: &Plan, parts: &[Option<Part>], options: &RunOptions) -> Vec<Option<Work>> {
        let own = |name: &str| name.starts_with("coordination.") || name.starts_with("barrier-");
        // What is carried out is what the options say: a load of 'serval bench' leaves out the time and the
        // target of the run that follows.
        let paced = [&p::TARGET, &p::TARGET_SCHEDULE, &p::TARGET_ARRIVALS, &p::PACING_SLACK];
        let dropped = |name: &str| {
            own(name)
                || name == p::WATCH.name
                || (options.time.is_none() && name == p::MAX_EXECUTION_TIME.name)
                || (options.rate.is_none() && paced.iter().any(|property| property.name == name))
        };
        let consumers = parts.iter().flatten().any(|part| part.consumes);
        let queue = self.queue();
        let roles = [lag::ROLE, lag::ZOOKEEPER, lag::QUEUE, lag::CONSUMER_CLIENTS];
        let roles: Vec<&str> = roles
            .iter()
            .flat_map(|property| [property.name].into_iter().chain(property.aliases.iter().copied()))
            .collect();
        let work = |(client, part): (usize, &Option<Part>)| {
            let part = part.as_ref().filter(|_| self.is_there(client))?;
            let mut properties: BTreeMap<String, String> = plan
                .properties
                .iter()
                .filter(|(name, _)| !dropped(name))
                .map(|(name, setting)| (name.to_owned(), setting.value.clone()))
                .collect();
            properties.insert(p::SEED.name.to_owned(), options.seed.to_string());
            properties.extend(part.properties.iter().cloned());
            properties.insert(p::SHARE.name.to_owned(), part.share());
            if consumers {
                properties.retain(|name, _| !roles.contains(&name.as_str()));
                let role = if part.consumes { "consumer" } else { "producer" };
                properties.insert(lag::ROLE.name.to_owned(), role.to_owned());
                properties.insert(lag::ZOOKEEPER.name.to_owned(), queue.cluster.clone());
                properties.insert(lag::QUEUE.name.to_owned(), queue.node.clone());
            }
            if part.consumes {
                // Their end is the group's to say.
                properties.remove(p::MAX_EXECUTION_TIME.name);
                properties.insert(lag::IDLE.name.to_owned(), "0".to_owned());
            }
            Some(Work {
                phase: 0,
                kind: if plan.phase == Phase::Load && !part.consumes { LOAD } else { RUN }.to_owned(),
                store: plan.store.name.to_owned(),
                properties: properties.into_iter().collect(),
                command: None,
            })
        };
        parts.iter().enumerate().map(work).collect()
    }

    fn is_there(&self, client: usize) -> bool {
        self.lost.borrow().get(client).is_some_and(Option::is_none)
    }

    fn note_lost(&self, client: usize, why: String) {
        if let Some(place) = self.lost.borrow_mut().get_mut(client) {
            *place = Some(why);
        }
    }

    fn name(&self, client: usize) -> String {
        self.facts.get(client).map(ClientFacts::name).unwrap_or_default()
    }

    /// Lets time go by with the clients at rest. False if somebody asked for the end before.
    ///
    /// # Errors
    ///
    /// That a client was lost, if that ends the group, or that the group broke up.
    pub fn rest(&self, span: Duration, control: &Control) -> Result<bool, GroupError> {
        let until = Instant::now() + span;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if control.interrupted() {
                return Ok(false);
            }
            if left.is_zero() {
                return Ok(true);
            }
            match self.coordinator.next_within(left.min(TICK)) {
                Ok(report) => self.at_rest(report)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(GroupError::Broken("the group's coordinator has ended".to_owned()));
                }
            }
        }
    }

    fn at_rest(&self, report: Report) -> Result<(), GroupError> {
        match report {
            Report::Lost(lost) => {
                let why = lost.why.to_string();
                self.note_lost(lost.client, why.clone());
                match self.on_lost {
                    OnLost::End => {
                        Err(GroupError::Broken(format!("client {} {why}", self.name(lost.client))))
                    }
                    OnLost::Continue => Ok(()),
                }
            }
            Report::Disbanded(why) => {
                Err(GroupError::Broken(why.unwrap_or_else(|| "the group is over".to_owned())))
            }
            Report::Ending(why) => Err(GroupError::Broken(why)),
            Report::Trouble(what) => {
                (self.trouble)(&what);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Has clients run a program, all at the same instant. What came of it, by client; those
    /// that were lost are not in it.
    ///
    /// # Errors
    ///
    /// That a client was lost, if that ends the group, or that the group broke up.
    pub fn command(
        &self,
        command: &str,
        timeout: Duration,
        environment: &[(String, String)],
        parts: &[Option<Part>],
        control: &Control,
    ) -> Result<Vec<(usize, CommandWire)>, GroupError> {
        let work = |(client, part): (usize, &Option<Part>)| {
            part.as_ref().filter(|_| self.is_there(client))?;
            let mut properties = environment.to_vec();
            properties.push((TIMEOUT.to_owned(), timeout.as_nanos().to_string()));
            properties.push(("SERVAL_CLIENT".to_owned(), (client + 1).to_string()));
            Some(Work {
                phase: 0,
                kind: COMMAND.to_owned(),
                store: String::new(),
                properties,
                command: Some(command.to_owned()),
            })
        };
        let works = parts.iter().enumerate().map(work).collect();
        self.coordinator.phase(works, Some(timeout + SLACK));
        let mut outcomes = Vec::new();
        let mut stopping = false;
        loop {
            if control.interrupted() && !std::mem::replace(&mut stopping, true) {
                self.coordinator.stop();
            }
            match self.coordinator.next_within(TICK) {
                Ok(Report::Result(client, bytes)) => {
                    // Nothing where it never began.
                    if !bytes.is_empty() {
                        let outcome = serde_json::from_slice(&bytes).map_err(|error| {
                            let name = self.name(client);
                            GroupError::Broken(format!("what client {name} sent cannot be read: {error}"))
                        })?;
                        outcomes.push((client, outcome));
                    }
                }
                Ok(Report::Over(_)) => return Ok(outcomes),
                Ok(report) => self.at_rest(report)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(GroupError::Broken("the group's coordinator has ended".to_owned()));
                }
            }
        }
    }
}

/// A store whose records end with the process, and with each part of the work.
const MEMORY: &str = "memory";

/// Why clients of a group cannot have a store, as these properties set it up; `None` if they can.
pub(crate) fn unshared(store: &StoreInfo, properties: &Properties) -> Option<Faults> {
    if store.name == MEMORY {
        return Some(Faults::one(
            "memory: each client of a group would have records of its own, and lose them with its part of the work: name a \
             store that is a server",
        ));
    }
    let kept = Kept::of(store, properties)?;
    Some(Faults::one(format!(
        "{}: nothing says where this embedded store is, so that each client of a group would have one of its own: name a \
         store that is a server, or set {}",
        store.name, kept.property
    )))
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
    parts: Vec<Option<Part>>,
}

impl GroupSession<'_> {
    /// The longest that the run may last, if anything bounds it.
    fn length_max(&self, options: &RunOptions) -> Option<Duration> {
        let mut reader = Reader::new(&self.plan.properties);
        let drain = reader.duration(&lag::DRAIN);
        Some(options.warm_up_max() + options.time? + options.grace + drain + SLACK)
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
        let works = team.works(self.plan, &self.parts, options);
        team.unended.replace(None);
        let works_on = |client: usize| works.get(client).is_some_and(Option::is_some);
        let workers: Vec<bool> = (0..team.facts.len()).map(works_on).collect();
        team.coordinator.phase(works, self.length_max(options));
        let count = team.facts.len();
        let mut left: Vec<Left> = (0..count).map(|_| Left::default()).collect();
        let part = |client: usize| self.parts.get(client).and_then(Option::as_ref);
        let takes_part = |client: usize| part(client).is_some();
        let consumes: Vec<bool> = (0..count).map(|client| part(client).is_some_and(|p| p.consumes)).collect();
        let mut intervals = Intervals::new(consumes.clone());
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
        let unended =
            left.iter().zip(&workers).zip(&consumes).filter(|((_, works), consumes)| **works && !**consumes);
        let unended = unended.map(|((left, _), _)| left.record.as_ref()?.unended);
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

    fn beside(&self) -> Option<Box<dyn Session + Send>> {
        None
    }

    fn is_group(&self) -> bool {
        true
    }

    fn ask(
        &self,
        questions: &mut dyn FnMut() -> Option<crate::session::Question>,
        answer: &mut dyn FnMut(Outcome, &Reply),
    ) -> Result<(), StoreError> {
        self.local.ask(questions, answer)
    }
}
