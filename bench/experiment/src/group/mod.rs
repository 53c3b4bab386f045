//! Several client processes at work as one (`docs/coordination.md`).
//!
//! A group looks like a store that is open: a plan is carried out on it as on any other
//! [`Session`], and what comes of it is a record like that of one process. So all
//! that is made of runs (results, sweeps, searches, reports) is made of a group's too.

mod agent;
mod merged;
pub mod properties;
mod wire;

pub use agent::{Agent, agent};
pub use serval_coordination::agent::Quit;

use crate::{plan::Plan, properties as p, session::Session};
use merged::{Intervals, Left};
use serval_coordination::{
    coordinator::{Coordinator, LeadError, Leading, Report},
    group::OnLost,
    message::{ClientFacts, Work},
    queue::{self, Place},
};
use serval_lag::properties as lag;
use serval_model::{
    Execution, OperationKinds, Outcome, Purpose, Reply, Schema, Share, StoreError,
    properties::{Fault, Faults, Properties, Property, Reader},
};
use serval_runner::{Control, Observer, RunError, RunOptions, RunRecord, clock};
use serval_workload::{Workload, core::Phase};
use std::{
    cell::RefCell,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, SystemTime},
};
pub(crate) use wire::LagWire;
use wire::{IntervalWire, RecordWire};

/// How often a group is asked whether somebody wants it to end.
const TICK: Duration = Duration::from_millis(50);

/// What a client adds to the time of a run: connecting took place before its start, what it
/// saw is handed over after it.
const SLACK: Duration = Duration::from_secs(10);

/// Kinds of work.
const LOAD: &str = "load";
const RUN: &str = "run";

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

/// A group whose clients have all come.
#[derive(Debug)]
pub struct Team {
    coordinator: Coordinator,
    facts: Vec<ClientFacts>,
    lost: RefCell<Vec<Option<String>>>,
    on_lost: OnLost,
    cluster: String,
    root: String,
}

impl Team {
    /// Leads a group and waits until its clients have come; `came` is told how many have.
    ///
    /// # Errors
    ///
    /// That it cannot be led, or that not all come in time.
    pub fn gather(
        leading: Leading,
        control: &Control,
        came: &mut dyn FnMut(usize, usize, Option<&ClientFacts>),
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
                Report::Disbanded(Some(why)) => return Err(GroupError::Broken(why)),
                Report::Disbanded(None) => {
                    return Err(GroupError::TooFew { joined: joined(&facts), wanted, within, cluster });
                }
                _ => {}
            }
        }
        let facts: Vec<ClientFacts> = facts.into_iter().flatten().collect();
        let lost = RefCell::new(vec![None; facts.len()]);
        Ok(Team { coordinator, facts, lost, on_lost, cluster, root })
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
        if plan.options.steady.is_some() {
            refuse(&p::WARM_UP_MAX, "clients of a group warm up for a time that is given: set warmup alone");
        }
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
    /// which records are prepared and looked for.
    pub fn session<'a>(&'a self, local: Box<dyn Session>, plan: &'a Plan) -> Box<dyn Session + 'a> {
        Box::new(GroupSession { team: self, local, plan })
    }

    /// Each client's part of a plan.
    fn works(&self, plan: &Plan, options: &RunOptions) -> Vec<Option<Work>> {
        let lost = self.lost.borrow();
        let count = self.facts.len() as u64;
        let consumers = consumers(&plan.properties) as u64;
        let producers = count.saturating_sub(consumers);
        let queue = self.queue();
        let roles = [lag::ROLE, lag::ZOOKEEPER, lag::QUEUE, lag::CONSUMER_CLIENTS];
        let roles: Vec<&str> = roles
            .iter()
            .flat_map(|property| [property.name].into_iter().chain(property.aliases.iter().copied()))
            .collect();
        let own = |name: &str| name.starts_with("coordination.") || name.starts_with("barrier-");
        (0..count)
            .map(|index| {
                if lost.get(index as usize).is_some_and(Option::is_some) {
                    return None;
                }
                let consumes = index >= producers;
                let share = if consumes { Share::WHOLE } else { Share::new(index, producers)? };
                let mut properties: Vec<(String, String)> = plan
                    .properties
                    .iter()
                    .filter(|(name, _)| !own(name) && !matches!(*name, "watch" | "share" | "seed"))
                    .map(|(name, setting)| (name.to_owned(), setting.value.clone()))
                    .collect();
                properties.push(("share".to_owned(), share.to_string()));
                properties.push(("seed".to_owned(), options.seed.to_string()));
                if consumers > 0 {
                    // A consumer's end is the group's to say.
                    let unbounded: &[&str] =
                        if consumes { &[p::MAX_EXECUTION_TIME.name, lag::IDLE.name] } else { &[] };
                    let replaced: Vec<&str> = roles.iter().chain(unbounded).copied().collect();
                    properties.retain(|(name, _)| !replaced.contains(&name.as_str()));
                    let role = if consumes { "consumer" } else { "producer" };
                    for (property, value) in [
                        (&lag::ROLE, role.to_owned()),
                        (&lag::ZOOKEEPER, queue.cluster.clone()),
                        (&lag::QUEUE, queue.node.clone()),
                    ] {
                        properties.push((property.name.to_owned(), value));
                    }
                    if consumes {
                        properties.push((lag::IDLE.name.to_owned(), "0".to_owned()));
                    }
                }
                Some(Work {
                    phase: 0,
                    kind: if plan.phase == Phase::Load && !consumes { LOAD } else { RUN }.to_owned(),
                    store: plan.store.name.to_owned(),
                    properties,
                    command: None,
                })
            })
            .collect()
    }
}

/// A plan on a group.
struct GroupSession<'a> {
    team: &'a Team,
    local: Box<dyn Session>,
    plan: &'a Plan,
}

impl GroupSession<'_> {
    /// The longest that the run may last, if anything bounds it.
    fn length_max(&self, options: &RunOptions) -> Option<Duration> {
        let mut reader = Reader::new(&self.plan.properties);
        let drain = reader.duration(&lag::DRAIN);
        Some(options.warm_up + options.time? + options.grace + drain + SLACK)
    }
}

/// The measured part of a run, as it is seen to begin and to end.
struct Course {
    start: Option<u64>,
    warm_up: Duration,
    measuring: bool,
    measured: bool,
}

impl Course {
    fn look(&mut self, now: u64, observer: &mut dyn Observer) {
        let from = self.start.map(|start| start.saturating_add(self.warm_up.as_nanos() as u64));
        if !self.measuring && from.is_some_and(|from| now >= from) {
            self.measuring = true;
            observer.measuring();
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
        team.coordinator.phase(team.works(self.plan, options), self.length_max(options));
        let count = team.facts.len();
        let mut left: Vec<Left> = (0..count).map(|_| Left::default()).collect();
        let producers = count.saturating_sub(consumers(&self.plan.properties));
        let mut intervals = Intervals::new(count, producers);
        let mut finishing = producers == count;
        for (client, lost) in team.lost.borrow().iter().enumerate() {
            if lost.is_some() {
                intervals.gone(client);
            }
        }
        let mut course = Course { start: None, warm_up: options.warm_up, measuring: false, measured: false };
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
                Some(Report::Trouble(_)) => {}
                Some(Report::Starts(at)) => {
                    course.start = Some(at);
                    started = SystemTime::now() + Duration::from_nanos(at.saturating_sub(clock::now()));
                    observer.started(started);
                }
                Some(Report::Interval(client, bytes)) => {
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
                    let why = lost.why.to_string();
                    team.lost.borrow_mut()[lost.client] = Some(why.clone());
                    left[lost.client].lost = Some(why);
                    intervals.gone(lost.client);
                }
                Some(Report::Over(end)) => break end,
                Some(Report::Disbanded(why)) => {
                    return Err(broken(why.unwrap_or_else(|| "the group is over".to_owned())));
                }
            }
            // Nothing more is written: consumers may finish.
            if !finishing && (0..producers).all(|client| intervals.is_gone(client)) {
                finishing = true;
                team.coordinator.finish((producers..count).collect());
            }
            while let Some((interval, progress)) = intervals.next() {
                observer.interval(&interval);
                observer.progress(&progress);
            }
        };
        course.end(observer);
        let fatal = team.on_lost == OnLost::End;
        if end.start.is_none() || left.iter().all(|left| left.record.is_none()) {
            let lost: Vec<String> = left
                .iter()
                .zip(&team.facts)
                .filter_map(|(left, facts)| Some(format!("client {} {}", facts.name(), left.lost.as_ref()?)))
                .collect();
            return Err(match lost.is_empty() {
                true => RunError::Interrupted,
                false => broken(lost.join("; ")),
            });
        }
        if producers < count {
            // What is left there is nobody's. If it stays it is in nobody's way: no other group has its
            // name.
            let _ = queue::remove(&team.queue());
        }
        let clocks = team.coordinator.clocks();
        let setting = crate::lag::setting(&self.plan.properties);
        let seen =
            merged::Seen { rates: &intervals.rates, producers, skew: end.skew, clocks: &clocks, setting };
        let record = merged::record(started, &team.facts, left, &seen, fatal);
        record.map_err(|error| broken(format!("what a client sent cannot be read: {error}")))
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
