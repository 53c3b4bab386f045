//! Agents that wait for work, and the coordinators that call them.

use super::{Directory, DirectoryError, Leader};
use crate::message::ClientFacts;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use zookeeper_client::{Acls, CreateMode, Error, OneshotWatcher};

/// Contents of an agent's node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Facts about the agent.
    pub facts: ClientFacts,
    /// The coordinator that has called the agent.
    pub called: Option<Leader>,
}

/// A waiting agent that a coordinator has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Name of the agent's node.
    node: String,
    /// Facts about the agent.
    pub(crate) facts: ClientFacts,
    version: i32,
}

/// Agents' nodes that have been read; `None` for an agent that must not be called.
#[derive(Debug, Default)]
pub(crate) struct KnownAgents(HashMap<String, Option<Waiting>>);

impl KnownAgents {
    /// Marks an agent that was called, or that has changed: it must not be called again.
    pub(crate) fn called(&mut self, agent: &Waiting) {
        self.0.insert(agent.node.clone(), None);
    }

    /// Forgets an agent whose call may have failed, so that its node is read again.
    pub(crate) fn forget(&mut self, agent: &Waiting) {
        self.0.remove(&agent.node);
    }
}

impl Directory {
    /// Creates the node of a waiting agent. Returns the node's name.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub async fn announce(&self, facts: &ClientFacts) -> Result<String, DirectoryError> {
        let agent = Agent { facts: facts.clone(), called: None };
        let data = serde_json::to_vec(&agent).unwrap_or_default();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let path = self.path("agents/a-");
        let (_, number) = self.ask("wait for work", self.session.create(&path, &data, &options)).await?;
        Ok(format!("a-{number}"))
    }

    /// Returns the contents of an agent's node and a watcher of it; `None` if there
    /// is no such node.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub async fn agent(&self, node: &str) -> Result<Option<(Agent, OneshotWatcher)>, DirectoryError> {
        let path = self.path(&format!("agents/{node}"));
        let reading = self.session.get_and_watch_data(&path);
        let found = self.ask_unless("look for work", &[Error::NoNode], reading).await?;
        found.map(|(data, _, watcher)| Ok((self.decode(&path, &data)?, watcher))).transpose()
    }

    /// Removes an agent's node.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub async fn retire(&self, node: &str) -> Result<(), DirectoryError> {
        let path = self.path(&format!("agents/{node}"));
        self.remove(&path).await
    }

    /// Returns the agents that wait for work, in order of arrival, without those that `known` marks as called; and a
    /// watcher for more. Reads each node once. Reports a node that is not an agent's to `trouble` and
    /// skips it.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
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
            if let Some(agent) = known.0.get(&node) {
                waiting.extend(agent.clone());
                continue;
            }
            let path = format!("{folder}/{node}");
            let reading = self.session.get_data(&path);
            let found = self.ask_unless("read an agent's node", &[Error::NoNode], reading).await?;
            let Some((data, stat)) = found else { continue };
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

    /// Calls an agent into a group. Returns whether it was still waiting.
    ///
    /// # Errors
    ///
    /// ZooKeeper fails the request.
    pub(crate) async fn call(&self, agent: &Waiting, leader: &Leader) -> Result<bool, DirectoryError> {
        let record = Agent { facts: agent.facts.clone(), called: Some(leader.clone()) };
        let data = serde_json::to_vec(&record).unwrap_or_default();
        let path = self.path(&format!("agents/{}", agent.node));
        let writing = self.session.set_data(&path, &data, Some(agent.version));
        let called = self.ask_unless("call an agent", &[Error::NoNode, Error::BadVersion], writing).await?;
        Ok(called.is_some())
    }
}
