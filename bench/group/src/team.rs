//! Group whose clients have joined.

use crate::{
    error::GroupError,
    facts::facts,
    part::ClientPart,
    wire::CommandWire,
    work::{COMMAND, LOAD, RUN, SLACK, TICK, TIMEOUT},
};
use serval_coordination::{
    coordinator::{Coordinator, CoordinatorReport, Leading},
    group::OnLost,
    message::{ClientFacts, Work},
    properties::is_of_group,
    queue::QueueLocation,
};
use serval_lag::properties as lag;
use serval_plan::{Plan, properties as p};
use serval_runner::{Control, RunOptions};
use serval_workload::core::Phase;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Range,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

/// Silence after which removing the queue from ZooKeeper is abandoned.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(6);

/// A group whose clients have all joined.
#[derive(Debug)]
pub struct Team {
    pub(crate) coordinator: Coordinator,
    pub(crate) facts: Vec<ClientFacts>,
    pub(crate) lost: RefCell<Vec<Option<String>>>,
    /// Records of the last run whose inserts may not have ended; `None` if a lost client has not
    /// reported its own.
    pub(crate) unended: RefCell<Option<Range<u64>>>,
    pub(crate) on_lost: OnLost,
    pub(crate) trouble: fn(&str),
    cluster: String,
    root: String,
}

impl Team {
    /// Leads a group and waits until its clients have joined. `progress` receives the number of clients that have, and
    /// `trouble`, then and later, each problem that does not end the group.
    ///
    /// # Errors
    ///
    /// The group cannot be led, or some clients do not join in time.
    pub fn gather(
        leading: Leading,
        control: &Control,
        progress: &mut dyn FnMut(usize, usize, Option<&ClientFacts>),
        trouble: fn(&str),
    ) -> Result<Team, GroupError> {
        let (wanted, on_lost, cluster, root) = (
            leading.settings.clients,
            leading.settings.on_lost,
            leading.cluster.clone(),
            leading.root.clone(),
        );
        let within = Duration::from_nanos(leading.settings.wait);
        let own = facts();
        let coordinator = Coordinator::open(leading, &own.name())?;
        let mut facts: Vec<Option<ClientFacts>> = vec![None; wanted];
        progress(0, wanted, None);
        loop {
            if control.interrupted() {
                return Err(GroupError::Interrupted);
            }
            let report = match coordinator.next_within(TICK) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(GroupError::Broken("the coordinator has ended".to_owned()));
                }
            };
            let joined = |facts: &[Option<ClientFacts>]| facts.iter().flatten().count();
            match report {
                CoordinatorReport::Joined { client, facts: joined_facts } => {
                    if let Some(place) = facts.get_mut(client) {
                        *place = Some(joined_facts.clone());
                    }
                    progress(joined(&facts), wanted, Some(&joined_facts));
                }
                CoordinatorReport::Lost(lost) => {
                    if let Some(place) = facts.get_mut(lost.client) {
                        *place = None;
                    }
                    progress(joined(&facts), wanted, None);
                }
                CoordinatorReport::Complete => break,
                CoordinatorReport::Trouble(what) => trouble(&what),
                CoordinatorReport::Disbanded(Some(why)) => return Err(GroupError::Broken(why)),
                CoordinatorReport::Disbanded(None) => {
                    return Err(GroupError::TooFew { joined: joined(&facts), wanted, within, cluster });
                }
                // There is no phase yet.
                CoordinatorReport::Starts(_)
                | CoordinatorReport::Interval(..)
                | CoordinatorReport::Result(..)
                | CoordinatorReport::Ending(_)
                | CoordinatorReport::Over(_) => {}
            }
        }
        let facts: Vec<ClientFacts> = facts.into_iter().flatten().collect();
        let lost = RefCell::new(vec![None; facts.len()]);
        let unended = RefCell::default();
        Ok(Team { coordinator, facts, lost, unended, on_lost, trouble, cluster, root })
    }

    /// Returns the clients of the group.
    pub fn clients(&self) -> &[ClientFacts] {
        &self.facts
    }

    /// Returns the location of the group's own queue of sampled keys.
    pub(crate) fn queue(&self) -> QueueLocation {
        let leader = self.coordinator.leader();
        QueueLocation {
            cluster: self.cluster.clone(),
            node: format!("{}/lag/{}-{}", self.root.trim_matches('/'), leader.group, leader.epoch),
            timeout: QUEUE_TIMEOUT,
            max: 0,
        }
    }

    /// Returns the numbers of records whose inserts in the last run may not have ended: from the
    /// first (0 if a client was lost before the run and inserted none of its own) to one past the
    /// last that any client took.
    /// `None` if a lost client has not reported its numbers.
    pub fn unended_inserts(&self) -> Option<Range<u64>> {
        self.unended.borrow().clone()
    }

    /// Describes the lost clients; `None` if there are none.
    pub(crate) fn describe_lost(&self) -> Option<String> {
        let lost = self.lost.borrow();
        let lost = lost.iter().zip(&self.facts);
        let lost = lost.filter_map(|(why, facts)| Some(format!("client {} {}", facts.name(), why.as_ref()?)));
        let lost: Vec<String> = lost.collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }

    /// Returns each client's part of a plan.
    pub(crate) fn works(
        &self,
        plan: &Plan,
        parts: &[Option<ClientPart>],
        options: &RunOptions,
    ) -> Vec<Option<Work>> {
        // The options override the properties: a load of 'serval bench' has neither the time nor the target of
        // the run that follows.
        let paced = [&p::TARGET, &p::TARGET_SCHEDULE, &p::TARGET_ARRIVALS, &p::PACING_SLACK];
        let dropped = |name: &str| {
            is_of_group(name)
                || name == p::WATCH.name
                // The coordinator writes these files, for all clients.
                || name == p::HDR_FILE_OUTPUT.name
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
        let work = |(client, part): (usize, &Option<ClientPart>)| {
            let part = part.as_ref().filter(|_| self.is_present(client))?;
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
                // The group ends consumers.
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

    /// Describes the clients that cannot do their work.
    pub(crate) fn unfit(&self, works: &[Option<Work>]) -> Option<String> {
        unfit(&self.facts, works, env!("CARGO_PKG_VERSION"))
    }

    fn is_present(&self, client: usize) -> bool {
        self.lost.borrow().get(client).is_some_and(Option::is_none)
    }

    pub(crate) fn note_lost(&self, client: usize, why: String) {
        if let Some(place) = self.lost.borrow_mut().get_mut(client) {
            *place = Some(why);
        }
    }

    /// Waits for the coordinator's next report for at most `span`.
    pub(crate) fn next(&self, span: Duration) -> Result<Option<CoordinatorReport>, GroupError> {
        match self.coordinator.next_within(span) {
            Ok(report) => Ok(Some(report)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(GroupError::Broken("the group's coordinator has ended".to_owned()))
            }
        }
    }

    fn name(&self, client: usize) -> String {
        self.facts.get(client).map(ClientFacts::name).unwrap_or_default()
    }

    /// Waits for a time while the clients are idle. Returns false if it was interrupted.
    ///
    /// # Errors
    ///
    /// A lost client ended the group, or the group broke up.
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
            if let Some(report) = self.next(left.min(TICK))? {
                self.on_idle_report(report)?;
            }
        }
    }

    fn on_idle_report(&self, report: CoordinatorReport) -> Result<(), GroupError> {
        match report {
            CoordinatorReport::Lost(lost) => {
                let why = lost.why.to_string();
                self.note_lost(lost.client, why.clone());
                match self.on_lost {
                    OnLost::End => {
                        Err(GroupError::Broken(format!("client {} {why}", self.name(lost.client))))
                    }
                    OnLost::Continue => Ok(()),
                }
            }
            CoordinatorReport::Disbanded(why) => {
                Err(GroupError::Broken(why.unwrap_or_else(|| "the group is over".to_owned())))
            }
            CoordinatorReport::Ending(why) => Err(GroupError::Broken(why)),
            CoordinatorReport::Trouble(what) => {
                (self.trouble)(&what);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Runs a program on the clients, on all at the same instant. Returns the outcome by client,
    /// without lost clients.
    ///
    /// # Errors
    ///
    /// A lost client ended the group, or the group broke up.
    pub fn command(
        &self,
        command: &str,
        timeout: Duration,
        environment: &[(String, String)],
        parts: &[Option<ClientPart>],
        control: &Control,
    ) -> Result<Vec<(usize, CommandWire)>, GroupError> {
        let work = |(client, part): (usize, &Option<ClientPart>)| {
            part.as_ref().filter(|_| self.is_present(client))?;
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
        let works: Vec<Option<Work>> = parts.iter().enumerate().map(work).collect();
        if let Some(why) = self.unfit(&works) {
            return Err(GroupError::Broken(why));
        }
        self.coordinator.phase(works, Some(timeout + SLACK));
        let mut outcomes = Vec::new();
        let mut stopping = false;
        loop {
            if control.interrupted() && !std::mem::replace(&mut stopping, true) {
                self.coordinator.stop();
            }
            match self.next(TICK)? {
                // The result is empty if the client never began.
                Some(CoordinatorReport::Result(client, bytes)) if !bytes.is_empty() => {
                    let outcome = serde_json::from_slice(&bytes).map_err(|error| {
                        let name = self.name(client);
                        GroupError::Broken(format!("what client {name} sent cannot be read: {error}"))
                    })?;
                    outcomes.push((client, outcome));
                }
                Some(CoordinatorReport::Over(_)) if outcomes.is_empty() && !stopping => {
                    let why = self
                        .describe_lost()
                        .unwrap_or_else(|| format!("every client that was to run '{command}' is lost"));
                    return Err(GroupError::Broken(why));
                }
                Some(CoordinatorReport::Over(_)) => return Ok(outcomes),
                Some(report) => self.on_idle_report(report)?,
                None => {}
            }
        }
    }
}

/// Describes the clients of another version than this process, and those built without the store of
/// their work.
fn unfit(facts: &[ClientFacts], works: &[Option<Work>], version: &str) -> Option<String> {
    let problem = |(facts, work): (&ClientFacts, &Option<Work>)| {
        let Work { store, .. } = work.as_ref()?;
        let (name, client_version) = (facts.name(), &facts.version);
        if client_version != version {
            return Some(format!(
                "client {name} is Serval {client_version}, and this is {version}: use one version of Serval"
            ));
        }
        // A program needs no store.
        (!store.is_empty() && !facts.stores.contains(store)).then(|| {
            format!("client {name} was built without the store '{store}': build it with the same features as this one")
        })
    };
    let problems: Vec<String> = facts.iter().zip(works).filter_map(problem).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_cannot_do_their_work_are_named_before_it_begins() {
        let facts = |host: &str, version: &str, store: &str| ClientFacts {
            host: host.to_owned(),
            process: 7,
            version: version.to_owned(),
            processors: 1,
            stores: vec![store.to_owned()],
        };
        let work = Some(Work {
            phase: 0,
            kind: RUN.to_owned(),
            store: "redis".to_owned(),
            properties: Vec::new(),
            command: None,
        });
        let clients = [facts("a", "2", "redis"), facts("b", "1", "redis"), facts("c", "2", "noop")];
        let unfit = |works: &[Option<Work>]| unfit(&clients, works, "2").unwrap_or_default();
        let all = unfit(&[work.clone(), work.clone(), work.clone()]);
        assert_eq!(
            all,
            "client b (process 7) is Serval 1, and this is 2: use one version of Serval; client c (process 7) was built \
             without the store 'redis': build it with the same features as this one"
        );
        // A client without a part may have any version.
        assert_eq!(unfit(&[work, None, None]), "");
    }
}
