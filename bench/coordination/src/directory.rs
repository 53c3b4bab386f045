//! ZooKeeper: who is there, and who leads which group in which epoch.
//!
//! ```text
//! ROOT/agents/a-0000000007          ephemeral   an agent, and what it is called to
//! ROOT/groups/NAME                  persistent  the last epoch
//! ROOT/groups/NAME/coordinator      ephemeral   who leads it, where, in which epoch
//! ROOT/groups/NAME/E/members/I      ephemeral   a client of the epoch E
//! ROOT/groups/NAME/E/K/entered/I    ephemeral   it is ready for the phase K
//! ROOT/groups/NAME/E/K/start        persistent  when that began
//! ROOT/groups/NAME/E/K/left/I       ephemeral   it has done its part
//! ```

use crate::message::ClientFacts;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, time::Duration};
use tokio::{net::TcpStream, time::Instant};
use zookeeper_client::{
    Acls, AddWatchMode, Client as Session, CreateMode, CreateOptions, Error, EventType, OneshotWatcher,
    PersistentWatcher, SessionState,
};

/// Why ZooKeeper could not serve.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// No session.
    #[error("ZooKeeper at {cluster} cannot be reached: {error}. Does it run, and is that its address?")]
    Unreachable {
        /// Its address.
        cluster: String,
        /// The driver's words.
        error: Error,
    },
    /// No answer in time.
    #[error("ZooKeeper at {cluster} does not answer within {within:?}")]
    Silent {
        /// Its address.
        cluster: String,
        /// How long it was given.
        within: Duration,
    },
    /// A request failed.
    #[error("ZooKeeper at {cluster}: cannot {what}: {error}")]
    Request {
        /// Its address.
        cluster: String,
        /// What was asked.
        what: String,
        /// The driver's words.
        error: Error,
    },
    /// A node of ours that somebody else has written.
    #[error("ZooKeeper at {cluster}: {path} holds what is none of Serval's; choose another root")]
    Foreign {
        /// Its address.
        cluster: String,
        /// The node.
        path: String,
    },
    /// Somebody leads the group.
    #[error(
        "the group '{group}' is led already, by {by}. Wait for its end, or give this one another name \
         (coordination.group)"
    )]
    Led {
        /// The group.
        group: String,
        /// Who.
        by: String,
    },
}

impl DirectoryError {
    /// Whether it is only that a node is not there.
    pub(crate) fn is_no_node(&self) -> bool {
        matches!(self, DirectoryError::Request { error: Error::NoNode, .. })
    }
}

/// What a coordinator says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The group's name.
    pub group: String,
    /// Its epoch.
    pub epoch: u64,
    /// Where it listens.
    pub address: String,
    /// What a client must say to be heard.
    pub token: String,
    /// Host and process, for people.
    pub name: String,
}

/// What stands in an agent's node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// What it says of itself.
    pub facts: ClientFacts,
    /// Who has called it, if somebody has.
    pub called: Option<Leader>,
}

/// An agent that waits, as a coordinator finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Its node's name.
    node: String,
    /// What it says of itself.
    pub(crate) facts: ClientFacts,
    version: i32,
}

/// Agents' nodes that have been read: who waits there, if it is to be called.
#[derive(Debug, Default)]
pub(crate) struct KnownAgents(HashMap<String, Option<Waiting>>);

impl KnownAgents {
    /// It was called, or is not what it was: not to be called again.
    pub(crate) fn called(&mut self, agent: &Waiting) {
        self.0.insert(agent.node.clone(), None);
    }
}

/// What has changed below a group's epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node is there: its path below the epoch, `0/entered/3`.
    There(String),
    /// A node is gone.
    Gone(String),
    /// The connection was lost and is back: what came meanwhile is not told.
    Missed,
    /// The session is over.
    Over,
}

/// Names, and the version of the node that has them, if it is there.
pub(crate) type List = (Vec<String>, Option<i32>);

/// A session with ZooKeeper.
#[derive(Debug, Clone)]
pub struct Directory {
    session: Session,
    cluster: String,
    root: String,
    timeout: Duration,
}

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

impl Directory {
    /// Opens a session with `cluster` (`host:2181,host2:2181`), and makes the root
    /// if it is not there. A session whose process says nothing for `timeout`
    /// is over.
    ///
    /// # Errors
    ///
    /// That it cannot be reached, or not within `timeout`.
    pub async fn open(cluster: &str, root: &str, timeout: Duration) -> Result<Directory, DirectoryError> {
        let directory = Self::connect(cluster, root, timeout).await?;
        for folder in ["agents", "groups"] {
            let path = directory.path(folder);
            directory.ask("make the root", directory.session.mkdir(&path, &PERSISTENT)).await?;
        }
        Ok(directory)
    }

    /// The same, and makes nothing.
    pub(crate) async fn connect(
        cluster: &str,
        root: &str,
        timeout: Duration,
    ) -> Result<Directory, DirectoryError> {
        let connecting =
            Session::connector().with_session_timeout(timeout).with_fail_eagerly().connect(cluster);
        let session = match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => return Err(DirectoryError::Unreachable { cluster: cluster.to_owned(), error }),
            Err(_) => return Err(DirectoryError::Silent { cluster: cluster.to_owned(), within: timeout }),
        };
        // YCSB++'s roots come with and without a slash.
        let root = format!("/{}", root.trim_matches('/'));
        Ok(Directory { session, cluster: cluster.to_owned(), root, timeout })
    }

    /// The root's node.
    pub(crate) fn place(&self) -> &str {
        &self.root
    }

    /// The session's number, which no other has.
    pub(crate) fn session_id(&self) -> i64 {
        self.session.session_id().0
    }

    /// Puts an ephemeral node into a folder, which is made if it is not there.
    pub(crate) async fn come(&self, folder: &str, name: &str) -> Result<(), DirectoryError> {
        let folder = self.path(folder);
        self.ask("make a barrier", self.session.mkdir(&folder, &PERSISTENT)).await?;
        let path = format!("{folder}/{name}");
        match self.ask("stand at a barrier", self.session.create(&path, b"", &EPHEMERAL)).await {
            Err(DirectoryError::Request { error: Error::NodeExists, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The nodes of a folder, those first that came first.
    pub(crate) async fn names(&self, folder: &str) -> Result<Vec<String>, DirectoryError> {
        let folder = self.path(folder);
        let names = match self.ask("look at a barrier", self.session.list_children(&folder)).await {
            Err(error) if error.is_no_node() => return Ok(Vec::new()),
            names => names?,
        };
        let mut numbered = Vec::new();
        for name in names {
            let path = format!("{folder}/{name}");
            if let Some(stat) = self.ask("look at a barrier", self.session.check_stat(&path)).await? {
                numbered.push((stat.czxid, name));
            }
        }
        numbered.sort();
        Ok(numbered.into_iter().map(|(_, name)| name).collect())
    }

    /// The names in a list's node and its version, if it is there, and what tells that it has
    /// changed.
    pub(crate) async fn list_of(&self, list: &str) -> Result<(List, OneshotWatcher), DirectoryError> {
        let path = self.path(list);
        loop {
            let asking = self.session.check_and_watch_stat(&path);
            let (there, changed) = self.ask("look at a barrier", asking).await?;
            if there.is_none() {
                return Ok(((Vec::new(), None), changed));
            }
            match self.ask("look at a barrier", self.session.get_data(&path)).await {
                Ok((data, stat)) => return Ok(((self.decode(&path, &data)?, Some(stat.version)), changed)),
                // It was removed just then.
                Err(error) if error.is_no_node() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a list's node, if it is still that of this version; else somebody else has.
    pub(crate) async fn write_list(
        &self,
        list: &str,
        names: &[String],
        version: Option<i32>,
    ) -> Result<(), DirectoryError> {
        let path = self.path(list);
        let data = serde_json::to_vec(names).unwrap_or_default();
        let written = match version {
            Some(version) => {
                let writing = self.session.set_data(&path, &data, Some(version));
                self.ask("open a barrier", writing).await.map(drop)
            }
            None => {
                self.ask("open a barrier", self.session.create(&path, &data, &PERSISTENT)).await.map(drop)
            }
        };
        match written {
            Err(DirectoryError::Request {
                error: Error::NoNode | Error::NodeExists | Error::BadVersion,
                ..
            }) => Ok(()),
            written => written,
        }
    }

    /// Whether its servers are there at the moment.
    pub fn is_connected(&self) -> bool {
        self.session.state() == SessionState::SyncConnected
    }

    /// Whether the session is over, and another must be opened.
    pub fn is_over(&self) -> bool {
        self.session.state().is_terminated()
    }

    fn path(&self, below: &str) -> String {
        if self.root == "/" { format!("/{below}") } else { format!("{}/{below}", self.root) }
    }

    async fn ask<T>(
        &self,
        what: &str,
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, DirectoryError> {
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                Err(DirectoryError::Request { cluster: self.cluster.clone(), what: what.to_owned(), error })
            }
            Err(_) => Err(DirectoryError::Silent { cluster: self.cluster.clone(), within: self.timeout }),
        }
    }

    fn decode<T: for<'a> Deserialize<'a>>(&self, path: &str, bytes: &[u8]) -> Result<T, DirectoryError> {
        serde_json::from_slice(bytes)
            .map_err(|_| DirectoryError::Foreign { cluster: self.cluster.clone(), path: path.to_owned() })
    }

    /// Says that an agent waits here. Its node's name.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn announce(&self, facts: &ClientFacts) -> Result<String, DirectoryError> {
        let agent = Agent { facts: facts.clone(), called: None };
        let data = serde_json::to_vec(&agent).unwrap_or_default();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let path = self.path("agents/a-");
        let (_, number) = self.ask("wait for work", self.session.create(&path, &data, &options)).await?;
        Ok(format!("a-{number}"))
    }

    /// What stands in an agent's node, and what tells that it has changed; `None`
    /// if there is none.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn agent(&self, node: &str) -> Result<Option<(Agent, OneshotWatcher)>, DirectoryError> {
        let path = self.path(&format!("agents/{node}"));
        match self.ask("look for work", self.session.get_and_watch_data(&path)).await {
            Ok((data, _, watcher)) => Ok(Some((self.decode(&path, &data)?, watcher))),
            Err(DirectoryError::Request { error: Error::NoNode, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes an agent's node away.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn retire(&self, node: &str) -> Result<(), DirectoryError> {
        let path = self.path(&format!("agents/{node}"));
        self.remove(&path).await
    }

    async fn remove(&self, path: &str) -> Result<(), DirectoryError> {
        match self.ask("remove a node", self.session.delete(path, None)).await {
            Err(DirectoryError::Request { error: Error::NoNode, .. }) => Ok(()),
            done => done,
        }
    }

    /// The agents that wait for work and are not known to be called already, in the order in which they came; and
    /// what tells that there are others. Each node is read once. One that is no agent's is told
    /// of, and passed over.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub(crate) async fn waiting(
        &self,
        known: &mut KnownAgents,
        trouble: &impl Fn(DirectoryError),
    ) -> Result<(Vec<Waiting>, OneshotWatcher), DirectoryError> {
        let folder = self.path("agents");
        let (mut nodes, _, watcher) =
            self.ask("look for agents", self.session.get_and_watch_children(&folder)).await?;
        nodes.sort();
        known.0.retain(|node, _| nodes.binary_search(node).is_ok());
        let mut waiting = Vec::new();
        for node in nodes {
            if let Some(seen) = known.0.get(&node) {
                waiting.extend(seen.clone());
                continue;
            }
            let path = format!("{folder}/{node}");
            let (data, stat) = match self.ask("look at an agent", self.session.get_data(&path)).await {
                Ok(found) => found,
                Err(DirectoryError::Request { error: Error::NoNode, .. }) => continue,
                Err(error) => return Err(error),
            };
            let agent = self.decode::<Agent>(&path, &data).map_err(trouble).ok();
            let agent = agent.filter(|agent| agent.called.is_none()).map(|agent| Waiting {
                node: node.clone(),
                facts: agent.facts,
                version: stat.version,
            });
            waiting.extend(agent.clone());
            known.0.insert(node, agent);
        }
        Ok((waiting, watcher))
    }

    /// Calls an agent into a group; whether it was still free.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub(crate) async fn call(&self, agent: &Waiting, leader: &Leader) -> Result<bool, DirectoryError> {
        let record = Agent { facts: agent.facts.clone(), called: Some(leader.clone()) };
        let data = serde_json::to_vec(&record).unwrap_or_default();
        let path = self.path(&format!("agents/{}", agent.node));
        match self.ask("call an agent", self.session.set_data(&path, &data, Some(agent.version))).await {
            Ok(_) => Ok(true),
            Err(DirectoryError::Request { error: Error::NoNode | Error::BadVersion, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Leads a group from now on, in an epoch that no other has had.
    ///
    /// # Errors
    ///
    /// [`DirectoryError::Led`] if somebody does; those of ZooKeeper.
    pub async fn lead(&self, group: &str, leader: impl Fn(u64) -> Leader) -> Result<Leader, DirectoryError> {
        let path = self.path(&format!("groups/{group}"));
        self.ask("make the group", self.session.mkdir(&path, &PERSISTENT)).await?;
        let seat = format!("{path}/coordinator");
        loop {
            let (data, stat) = self.ask("read the epoch", self.session.get_data(&path)).await?;
            let last: u64 = if data.is_empty() { 0 } else { self.decode(&path, &data)? };
            let leader = leader(last + 1);
            let record = serde_json::to_vec(&leader).unwrap_or_default();
            // The epoch is raised by who has the seat, and by nobody else.
            match self.ask("lead the group", self.session.create(&seat, &record, &EPHEMERAL)).await {
                Ok(_) => {}
                Err(DirectoryError::Request { error: Error::NodeExists, .. }) => {
                    self.wait_for_seat(group, &seat).await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let epoch = (last + 1).to_string();
            match self
                .ask("raise the epoch", self.session.set_data(&path, epoch.as_bytes(), Some(stat.version)))
                .await
            {
                Ok(_) => {}
                // Somebody had the seat in between.
                Err(DirectoryError::Request { error: Error::BadVersion, .. }) => {
                    self.remove(&seat).await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.sweep(&path).await;
            let members = format!("{path}/{epoch}/members");
            self.ask("make the epoch", self.session.mkdir(&members, &PERSISTENT)).await?;
            return Ok(leader);
        }
    }

    /// Waits until nobody leads a group: the node of one that died goes with its session.
    async fn wait_for_seat(&self, group: &str, seat: &str) -> Result<(), DirectoryError> {
        // What a server grants may be more than was asked for.
        let until = Instant::now() + self.session.session_timeout().max(self.timeout) * 2;
        loop {
            let asking = self.session.check_and_watch_stat(seat);
            let (there, changed) = self.ask("look for the coordinator", asking).await?;
            if there.is_none() {
                return Ok(());
            }
            let Some(there) = self.leader(group).await? else { return Ok(()) };
            let led = || DirectoryError::Led { group: group.to_owned(), by: there.name.clone() };
            let answers = tokio::time::timeout(self.timeout, TcpStream::connect(&there.address)).await;
            if answers.is_ok_and(|connected| connected.is_ok()) {
                return Err(led());
            }
            if tokio::time::timeout_at(until, changed.changed()).await.is_err() {
                return Err(led());
            }
        }
    }

    /// Removes what earlier epochs have left, as far as it can be.
    async fn sweep(&self, group: &str) {
        let Ok(epochs) = self.ask("look for old epochs", self.session.list_children(group)).await else {
            return;
        };
        for epoch in epochs.iter().filter(|name| name.parse::<u64>().is_ok()) {
            self.remove_all(&format!("{group}/{epoch}")).await;
        }
    }

    async fn remove_all(&self, path: &str) {
        let mut paths = vec![path.to_owned()];
        let mut next = 0;
        while let Some(path) = paths.get(next).cloned() {
            next += 1;
            if let Ok(children) = self.ask("look for old nodes", self.session.list_children(&path)).await {
                paths.extend(children.into_iter().map(|child| format!("{path}/{child}")));
            }
        }
        for path in paths.iter().rev() {
            let _ = self.remove(path).await;
        }
    }

    /// Who leads a group.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn leader(&self, group: &str) -> Result<Option<Leader>, DirectoryError> {
        let path = self.path(&format!("groups/{group}/coordinator"));
        match self.ask("look for the coordinator", self.session.get_data(&path)).await {
            Ok((data, _)) => self.decode(&path, &data).map(Some),
            Err(DirectoryError::Request { error: Error::NoNode, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Leads a group no more.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn resign(&self, group: &str, epoch: u64) -> Result<(), DirectoryError> {
        let path = self.path(&format!("groups/{group}"));
        self.remove_all(&format!("{path}/{epoch}")).await;
        self.remove(&format!("{path}/coordinator")).await
    }

    fn below(&self, group: &str, epoch: u64, path: &str) -> String {
        self.path(&format!("groups/{group}/{epoch}/{path}"))
    }

    /// Makes the barriers of a phase.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn open_phase(&self, group: &str, epoch: u64, phase: u64) -> Result<(), DirectoryError> {
        for barrier in ["entered", "left"] {
            let path = self.below(group, epoch, &format!("{phase}/{barrier}"));
            self.ask("make a barrier", self.session.mkdir(&path, &PERSISTENT)).await?;
        }
        Ok(())
    }

    /// Writes down when a phase began, ns by the coordinator's clock.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn started(&self, group: &str, epoch: u64, phase: u64, at: u64) -> Result<(), DirectoryError> {
        let path = self.below(group, epoch, &format!("{phase}/start"));
        let text = at.to_string();
        match self.ask("write the start", self.session.create(&path, text.as_bytes(), &PERSISTENT)).await {
            Err(DirectoryError::Request { error: Error::NodeExists, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Puts a node of a client's there that goes with its session: `members/3`, `0/entered/3`.
    /// False if the epoch is over.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn stand(&self, group: &str, epoch: u64, node: &str) -> Result<bool, DirectoryError> {
        let path = self.below(group, epoch, node);
        match self.ask("stand at a barrier", self.session.create(&path, b"", &EPHEMERAL)).await {
            // It was there already: the answer to the first attempt was lost.
            Ok(_) | Err(DirectoryError::Request { error: Error::NodeExists, .. }) => Ok(true),
            Err(DirectoryError::Request { error: Error::NoNode, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes a client's node away, as far as it can be.
    pub async fn part(&self, group: &str, epoch: u64, node: &str) {
        let _ = self.remove(&self.below(group, epoch, node)).await;
    }

    /// Tells of all changes below an epoch from now on.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn watch(&self, group: &str, epoch: u64) -> Result<EpochWatch, DirectoryError> {
        let path = self.path(&format!("groups/{group}/{epoch}"));
        let watcher =
            self.ask("watch the group", self.session.watch(&path, AddWatchMode::PersistentRecursive)).await?;
        Ok(EpochWatch { watcher, prefix: format!("{path}/"), away: false })
    }

    /// The clients that stand somewhere: at `members`, `0/entered`.
    ///
    /// # Errors
    ///
    /// Those of ZooKeeper.
    pub async fn standing(&self, group: &str, epoch: u64, place: &str) -> Result<Vec<u64>, DirectoryError> {
        let path = self.below(group, epoch, place);
        let names = self.ask("look at a barrier", self.session.list_children(&path)).await?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

/// What happens below an epoch.
#[derive(Debug)]
pub struct EpochWatch {
    watcher: PersistentWatcher,
    prefix: String,
    away: bool,
}

impl EpochWatch {
    /// The next change. Not to be asked again after [`Change::Over`].
    pub async fn next(&mut self) -> Change {
        loop {
            let event = self.watcher.changed().await;
            let below = || event.path.strip_prefix(&self.prefix).map(str::to_owned);
            match (event.event_type, event.session_state) {
                (EventType::Session, SessionState::Disconnected) => self.away = true,
                (EventType::Session, SessionState::SyncConnected) if std::mem::take(&mut self.away) => {
                    return Change::Missed;
                }
                (EventType::Session, state) if state.is_terminated() => return Change::Over,
                (EventType::NodeCreated, _) => {
                    if let Some(below) = below() {
                        return Change::There(below);
                    }
                }
                (EventType::NodeDeleted, _) => {
                    if let Some(below) = below() {
                        return Change::Gone(below);
                    }
                }
                _ => {}
            }
        }
    }
}
