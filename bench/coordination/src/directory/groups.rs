//! Groups: who leads which in which epoch, and what stands at its barriers.

use super::{Directory, DirectoryError, EPHEMERAL, PERSISTENT};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::Instant};
use zookeeper_client::{AddWatchMode, Error, EventType, PersistentWatcher, SessionState};

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

/// What has changed below a group's epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node is there: its path below the epoch, `0/entered/3`.
    There(String),
    /// A node is gone.
    Gone,
    /// The connection was lost and is back: what came meanwhile is not told.
    Missed,
    /// The session is over.
    Over,
}

impl Directory {
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
            // Nobody has led so often.
            let next = last.checked_add(1).ok_or_else(|| self.foreign(&path))?;
            let leader = leader(next);
            let record = serde_json::to_vec(&leader).unwrap_or_default();
            // The epoch is raised by who has the seat, and by nobody else.
            match self.ask("lead the group", self.session.create(&seat, &record, &EPHEMERAL)).await {
                Ok(_) => {}
                Err(DirectoryError::Request { error: Error::NodeExists, .. }) => {
                    self.wait_for_seat(group, &seat, &leader.address).await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let epoch = next.to_string();
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

    /// Waits until nobody leads a group: the node of one that died goes with its session. Where this
    /// process listens already, at `own`, nobody else does.
    async fn wait_for_seat(&self, group: &str, seat: &str, own: &str) -> Result<(), DirectoryError> {
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
            if there.address != own && answers.is_ok_and(|connected| connected.is_ok()) {
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
        // The seat first: there may be no time for the rest, which the next leader sweeps away.
        let resigned = self.remove(&format!("{path}/coordinator")).await;
        self.remove_all(&format!("{path}/{epoch}")).await;
        resigned
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
                (EventType::NodeDeleted, _) if below().is_some() => return Change::Gone,
                _ => {}
            }
        }
    }
}
