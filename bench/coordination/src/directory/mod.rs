//! Agents, groups and their coordinators in ZooKeeper.
//!
//! ```text
//! ROOT/agents/a-0000000007          ephemeral   an agent, and the coordinator that calls it
//! ROOT/groups/NAME                  persistent  the last epoch
//! ROOT/groups/NAME/coordinator      ephemeral   the coordinator: its name, address and epoch
//! ROOT/groups/NAME/E/members/I      ephemeral   client I of epoch E
//! ROOT/groups/NAME/E/K/entered/I    ephemeral   client I is ready for phase K
//! ROOT/groups/NAME/E/K/start        persistent  start of phase K
//! ROOT/groups/NAME/E/K/left/I       ephemeral   client I has done its part of phase K
//! ```

mod agents;
mod groups;
mod lists;

pub use agents::Agent;
pub(crate) use agents::KnownAgents;
pub use groups::{Epoch, EpochChange, EpochWatch, Leader};

use serde::Deserialize;
use std::time::Duration;
use zookeeper_client::{Acls, Client as Session, CreateMode, CreateOptions, Error};

/// A failure of ZooKeeper.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// No session could be opened.
    #[error("ZooKeeper at {cluster} cannot be reached: {error}. Does it run, and is that its address?")]
    Unreachable {
        /// Address of ZooKeeper.
        cluster: String,
        /// The driver's error.
        error: Error,
    },
    /// No answer in time.
    #[error("ZooKeeper at {cluster} does not answer within {within:?}")]
    Silent {
        /// Address of ZooKeeper.
        cluster: String,
        /// The time limit.
        within: Duration,
    },
    /// A request failed.
    #[error("ZooKeeper at {cluster}: cannot {what}: {error}")]
    Request {
        /// Address of ZooKeeper.
        cluster: String,
        /// The request, as an infinitive.
        what: String,
        /// The driver's error.
        error: Error,
    },
    /// A node that another program has written.
    #[error("ZooKeeper at {cluster}: {path} was not written by Serval; choose another root")]
    Foreign {
        /// Address of ZooKeeper.
        cluster: String,
        /// The node.
        path: String,
    },
    /// The group has a coordinator.
    #[error(
        "the group '{group}' has a coordinator already, {by}. Wait for its end, or give this group another name \
         (coordination.group)"
    )]
    Led {
        /// The group.
        group: String,
        /// The coordinator's name.
        by: String,
    },
}

impl DirectoryError {
    /// Returns whether the failure may be temporary, because ZooKeeper is not up yet.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            DirectoryError::Unreachable { error, .. } => !matches!(error, Error::BadArguments(_)),
            DirectoryError::Silent { .. } => true,
            _ => false,
        }
    }
}

/// A session with ZooKeeper.
#[derive(Debug, Clone)]
pub struct Directory {
    pub(crate) session: Session,
    cluster: String,
    root: String,
    timeout: Duration,
}

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

impl Directory {
    /// Opens a session with `cluster` (`host:2181,host2:2181`), and creates the root
    /// if it is missing. The session ends when this process is silent for `timeout`.
    ///
    /// # Errors
    ///
    /// ZooKeeper cannot be reached, or does not answer within `timeout`.
    pub async fn open(cluster: &str, root: &str, timeout: Duration) -> Result<Directory, DirectoryError> {
        let directory = Self::connect(cluster, root, timeout).await?;
        for folder in ["agents", "groups"] {
            let path = directory.path(folder);
            directory.ask("make the root", directory.session.mkdir(&path, &PERSISTENT)).await?;
        }
        Ok(directory)
    }

    /// As [`open`](Self::open), but creates nothing.
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
        // YCSB++ writes roots with and without a slash.
        let root = format!("/{}", root.trim_matches('/'));
        Ok(Directory { session, cluster: cluster.to_owned(), root, timeout })
    }

    /// Returns the root node.
    pub(crate) fn place(&self) -> &str {
        &self.root
    }

    /// Returns the session's unique number.
    pub(crate) fn session_id(&self) -> i64 {
        self.session.session_id().0
    }

    /// Returns whether the session is over and another must be opened.
    pub fn is_over(&self) -> bool {
        self.session.state().is_terminated()
    }

    fn path(&self, below: &str) -> String {
        if self.root == "/" { format!("/{below}") } else { format!("{}/{below}", self.root) }
    }

    /// Waits for an answer of the session, for at most the timeout. `what` is the request for messages, as an
    /// infinitive.
    pub(crate) async fn ask<T>(
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

    /// As [`ask`](Self::ask), but returns `None` if the request fails with one of these errors.
    async fn ask_unless<T>(
        &self,
        what: &str,
        expected: &[Error],
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, DirectoryError> {
        match self.ask(what, asking).await {
            Err(DirectoryError::Request { error, .. }) if expected.contains(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }

    fn decode<T: for<'a> Deserialize<'a>>(&self, path: &str, bytes: &[u8]) -> Result<T, DirectoryError> {
        serde_json::from_slice(bytes).map_err(|_| self.foreign(path))
    }

    fn foreign(&self, path: &str) -> DirectoryError {
        DirectoryError::Foreign { cluster: self.cluster.clone(), path: path.to_owned() }
    }

    async fn remove(&self, path: &str) -> Result<(), DirectoryError> {
        self.ask_unless("remove a node", &[Error::NoNode], self.session.delete(path, None)).await.map(drop)
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
}
