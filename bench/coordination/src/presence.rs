//! A client's ephemeral nodes in ZooKeeper: its membership and the barriers that it has reached.

use crate::{
    agent::Joining,
    directory::{Directory, Leader},
};
use std::time::Duration;
use tokio::{
    sync::mpsc::{self, UnboundedSender},
    time,
};

/// Pause before a failed request to ZooKeeper is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Creates this client's nodes in order and retries until they exist. If the
/// session ends, opens another and creates all nodes again. Dropping this
/// removes them.
pub(crate) struct Presence(UnboundedSender<String>);

impl Presence {
    pub(crate) fn new(directory: Directory, joining: &Joining, leader: &Leader) -> Presence {
        let (requests, mut requested) = mpsc::unbounded_channel::<String>();
        let (joining, leader) = (joining.clone(), leader.clone());
        tokio::spawn(async move {
            let mut epoch = directory.epoch(&leader.group, leader.epoch);
            let mut nodes: Vec<String> = Vec::new();
            let mut next = 0;
            loop {
                while next >= nodes.len() {
                    match requested.recv().await {
                        Some(node) => nodes.push(node),
                        None => {
                            for node in &nodes {
                                epoch.remove_node(node).await;
                            }
                            return;
                        }
                    }
                }
                match epoch.create_node(&nodes[next]).await {
                    Ok(true) => next += 1,
                    // The epoch is over. The connection to the coordinator reports that too.
                    Ok(false) => return,
                    Err(_) => {
                        time::sleep(RETRY_PAUSE).await;
                        if requested.is_closed() {
                            return;
                        }
                        if epoch.is_over()
                            && let Ok(opened) =
                                Directory::open(&joining.cluster, &joining.root, joining.timeout).await
                        {
                            epoch = opened.epoch(&leader.group, leader.epoch);
                            next = 0;
                        }
                    }
                }
            }
        });
        Presence(requests)
    }

    /// Adds a node, given by its path below the epoch.
    pub(crate) fn add(&self, node: String) {
        let _ = self.0.send(node);
    }
}
