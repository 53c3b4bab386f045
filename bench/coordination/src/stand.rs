//! A client's nodes in ZooKeeper: that it is a member, and at which barriers it stands.

use crate::{
    agent::Joining,
    directory::{Directory, Leader},
};
use std::time::Duration;
use tokio::{
    sync::mpsc::{self, UnboundedSender},
    time,
};

/// Pause before ZooKeeper is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Puts this client's nodes into ZooKeeper, one after the other, for as long as it takes; a
/// session that is over is replaced, and what stood by it is put there again.
pub(crate) struct Stand(UnboundedSender<String>);

impl Stand {
    pub(crate) fn new(directory: Directory, joining: &Joining, leader: &Leader) -> Stand {
        let (asked, mut asking) = mpsc::unbounded_channel::<String>();
        let (joining, epoch) = (joining.clone(), leader.epoch);
        let group = leader.group.clone();
        tokio::spawn(async move {
            let mut directory = directory;
            let mut nodes: Vec<String> = Vec::new();
            let mut next = 0;
            loop {
                while next >= nodes.len() {
                    match asking.recv().await {
                        Some(node) => nodes.push(node),
                        // The place is given up, and the nodes with it.
                        None => {
                            for node in &nodes {
                                directory.part(&group, epoch, node).await;
                            }
                            return;
                        }
                    }
                }
                match directory.stand(&group, epoch, &nodes[next]).await {
                    Ok(true) => next += 1,
                    // The epoch is over, which the connection tells too.
                    Ok(false) => return,
                    Err(_) => {
                        time::sleep(AGAIN).await;
                        if asking.is_closed() {
                            return;
                        }
                        if directory.is_over()
                            && let Ok(opened) =
                                Directory::open(&joining.cluster, &joining.root, joining.timeout).await
                        {
                            directory = opened;
                            next = 0;
                        }
                    }
                }
            }
        });
        Stand(asked)
    }

    pub(crate) fn at(&self, node: String) {
        let _ = self.0.send(node);
    }
}
