//! Groups: their coordinators, epochs and barriers.

use super::{Directory, DirectoryError, EPHEMERAL, PERSISTENT};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::Instant};
use zookeeper_client::{AddWatchMode, Error, EventType, PersistentWatcher, SessionState};

/// Facts about a coordinator, in its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The group's name.
    pub group: String,
    /// Epoch of the group.
    pub epoch: u64,
    /// Address on which the coordinator listens.
    pub address: String,
    /// Token that clients must send to the coordinator.
    pub token: String,
    /// Host and process, for messages.
    pub name: String,
}

/// A change below a group's epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EpochChange {
    /// A node was created: its path below the epoch, `0/entered/3`.
    There(String),
    /// A node was removed.
    Gone,
    /// The connection was lost and is back; changes in between were missed.
    Missed,
    /// The session is over.
    Over,
}

impl Directory {
    /// Becomes the coordinator of a group, in a new epoch.
    ///
    /// # Errors
    ///
    /// [`DirectoryError::Led`] if the group has a coordinator; ZooKeeper fails a request.
    pub async fn lead(&self, group: &str, leader: impl Fn(u64) -> Leader) -> Result<Leader, DirectoryError> {
        let path = self.path(&format!("groups/{group}"));
        self.ask("make the group", self.session.mkdir(&path, &PERSISTENT)).await?;
        let node = format!("{path}/coordinator");
        loop {
            let (data, stat) = self.ask("read the epoch", self.session.get_data(&path)).await?;
            let last: u64 = if data.is_empty() { 0 } else { self.decode(&path, &data)? };
            // No group reaches this epoch: the node is not Serval's.
            let next = last.checked_add(1).ok_or_else(|| self.foreign(&path))?;
            let leader = leader(next);
            let record = serde_json::to_vec(&leader).unwrap_or_default();
            // Only the owner of the coordinator's node raises the epoch.
            let creating = self.session.create(&node, &record, &EPHEMERAL);
            if self.ask_unless("lead the group", &[Error::NodeExists], creating).await?.is_none() {
                self.wait_for_node(group, &node, &leader.address).await?;
                continue;
            }
            let epoch = next.to_string();
            let raising = self.session.set_data(&path, epoch.as_bytes(), Some(stat.version));
            if self.ask_unless("raise the epoch", &[Error::BadVersion], raising).await?.is_none() {
                // Another process was the coordinator in between.
                self.remove(&node).await?;
                continue;
            }
            self.sweep(&path).await;
            let members = format!("{path}/{epoch}/members");
            self.ask("make the epoch", self.session.mkdir(&members, &PERSISTENT)).await?;
            return Ok(leader);
        }
    }

    /// Waits until a group has no coordinator: a dead one's node disappears with its session. `own` is
    /// the address at which this process listens, so an earlier coordinator there is dead.
    async fn wait_for_node(&self, group: &str, node: &str, own: &str) -> Result<(), DirectoryError> {
        // A server may grant a longer session timeout than requested.
        let until = Instant::now() + self.session.session_timeout().max(self.timeout) * 2;
        loop {
            let asking = self.session.check_and_watch_stat(node);
            let (found, changed) = self.ask("look for the coordinator", asking).await?;
            if found.is_none() {
                return Ok(());
            }
            let Some(leader) = self.leader(group).await? else { return Ok(()) };
            let led = || DirectoryError::Led { group: group.to_owned(), by: leader.name.clone() };
            let answers = tokio::time::timeout(self.timeout, TcpStream::connect(&leader.address)).await;
            if leader.address != own && answers.is_ok_and(|connected| connected.is_ok()) {
                return Err(led());
            }
            if tokio::time::timeout_at(until, changed.changed()).await.is_err() {
                return Err(led());
            }
        }
    }

    /// Removes the nodes of earlier epochs, as far as possible.
    async fn sweep(&self, group: &str) {
        let Ok(epochs) = self.ask("look for old epochs", self.session.list_children(group)).await else {
            return;
        };
        for epoch in epochs.iter().filter(|name| name.parse::<u64>().is_ok()) {
            self.remove_all(&format!("{group}/{epoch}")).await;
        }
    }

    /// Returns the coordinator of a group.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub async fn leader(&self, group: &str) -> Result<Option<Leader>, DirectoryError> {
        let path = self.path(&format!("groups/{group}/coordinator"));
        let reading = self.session.get_data(&path);
        let found = self.ask_unless("look for the coordinator", &[Error::NoNode], reading).await?;
        found.map(|(data, _)| self.decode(&path, &data)).transpose()
    }

    /// Stops being the coordinator of a group.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub async fn resign(&self, group: &str, epoch: u64) -> Result<(), DirectoryError> {
        let path = self.path(&format!("groups/{group}"));
        // The coordinator's node first: there may be no time for the rest, which the next coordinator removes.
        let resigned = self.remove(&format!("{path}/coordinator")).await;
        self.remove_all(&format!("{path}/{epoch}")).await;
        resigned
    }

    /// Returns the nodes of an epoch of a group.
    pub fn epoch(&self, group: &str, epoch: u64) -> Epoch {
        Epoch { directory: self.clone(), path: self.path(&format!("groups/{group}/{epoch}")) }
    }
}

/// Nodes of an epoch of a group.
#[derive(Debug, Clone)]
pub struct Epoch {
    directory: Directory,
    path: String,
}

impl Epoch {
    /// Returns whether the session is over.
    pub(crate) fn is_over(&self) -> bool {
        self.directory.is_over()
    }

    /// Creates the barriers of a phase.
    pub(crate) async fn open_phase(&self, phase: u64) -> Result<(), DirectoryError> {
        for barrier in ["entered", "left"] {
            let path = format!("{}/{phase}/{barrier}", self.path);
            self.directory.ask("make a barrier", self.directory.session.mkdir(&path, &PERSISTENT)).await?;
        }
        Ok(())
    }

    /// Records the start of a phase, ns of the coordinator's clock.
    pub(crate) async fn started(&self, phase: u64, at: u64) -> Result<(), DirectoryError> {
        let (path, text) = (format!("{}/{phase}/start", self.path), at.to_string());
        let creating = self.directory.session.create(&path, text.as_bytes(), &PERSISTENT);
        self.directory.ask_unless("write the start", &[Error::NodeExists], creating).await.map(drop)
    }

    /// Creates an ephemeral node of a client: `members/3`, `0/entered/3`. Returns false if the
    /// epoch is over.
    pub(crate) async fn create_node(&self, node: &str) -> Result<bool, DirectoryError> {
        let path = format!("{}/{node}", self.path);
        let creating = async {
            match self.directory.session.create(&path, b"", &EPHEMERAL).await {
                // The answer to the first attempt was lost.
                Ok(_) | Err(Error::NodeExists) => Ok(()),
                Err(error) => Err(error),
            }
        };
        let created = self.directory.ask_unless("join a barrier", &[Error::NoNode], creating).await?;
        Ok(created.is_some())
    }

    /// Removes a client's node, if possible.
    pub(crate) async fn remove_node(&self, node: &str) {
        let _ = self.directory.remove(&format!("{}/{node}", self.path)).await;
    }

    /// Watches all changes below the epoch.
    pub(crate) async fn watch(&self) -> Result<EpochWatch, DirectoryError> {
        let watching = self.directory.session.watch(&self.path, AddWatchMode::PersistentRecursive);
        let watcher = self.directory.ask("watch the group", watching).await?;
        Ok(EpochWatch { watcher, prefix: format!("{}/", self.path), disconnected: false })
    }

    /// Returns the clients that have a node in a folder such as `members` or `0/entered`; `None` if the folder does not
    /// exist.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub async fn standing(&self, place: &str) -> Result<Option<Vec<u64>>, DirectoryError> {
        let path = format!("{}/{place}", self.path);
        let listing = self.directory.session.list_children(&path);
        let names = self.directory.ask_unless("read a barrier", &[Error::NoNode], listing).await?;
        Ok(names.map(|names| names.iter().filter_map(|name| name.parse().ok()).collect()))
    }
}

/// Watcher of an epoch's nodes.
#[derive(Debug)]
pub struct EpochWatch {
    watcher: PersistentWatcher,
    prefix: String,
    /// Whether the connection is lost.
    disconnected: bool,
}

impl EpochWatch {
    /// Waits for the next change. Must not be called after [`EpochChange::Over`].
    pub async fn next(&mut self) -> EpochChange {
        loop {
            let event = self.watcher.changed().await;
            let below = || event.path.strip_prefix(&self.prefix).map(str::to_owned);
            match (event.event_type, event.session_state) {
                (EventType::Session, SessionState::Disconnected) => self.disconnected = true,
                (EventType::Session, SessionState::SyncConnected)
                    if std::mem::take(&mut self.disconnected) =>
                {
                    return EpochChange::Missed;
                }
                (EventType::Session, state) if state.is_terminated() => return EpochChange::Over,
                (EventType::NodeCreated, _) => {
                    if let Some(below) = below() {
                        return EpochChange::There(below);
                    }
                }
                (EventType::NodeDeleted, _) if below().is_some() => return EpochChange::Gone,
                _ => {}
            }
        }
    }
}
