//! Agents that wait for work, and who calls them.

use super::{Directory, DirectoryError, Leader};
use crate::message::ClientFacts;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use zookeeper_client::{Acls, CreateMode, Error, OneshotWatcher};

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

    /// Whether it was called is not known: it is looked at again.
    pub(crate) fn forget(&mut self, agent: &Waiting) {
        self.0.remove(&agent.node);
    }
}

impl Directory {
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
}
