//! Calling agents that wait into a group, until all its places are taken.

use crate::{
    directory::{Directory, DirectoryError, KnownAgents, Leader},
    message::ClientFacts,
};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, error::TryRecvError},
    time::{self, Instant},
};

/// Pause before ZooKeeper is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// Who has come into the group, or has gone before it was complete.
#[derive(Debug)]
pub(crate) enum Coming {
    Joined(ClientFacts),
    Parted,
}

fn note(said: Coming, joined: &mut usize, called: &mut HashMap<String, Instant>) {
    match said {
        Coming::Joined(facts) => {
            *joined += 1;
            called.remove(&facts.name());
        }
        Coming::Parted => *joined = joined.saturating_sub(1),
    }
}

/// Calls as many agents as places are free, until whoever tells of those that come is gone. One that
/// was called and does not come within `patience` (its machine may be dead, its way to the
/// coordinator barred) leaves its place to the next.
pub(crate) async fn call_agents(
    directory: Directory,
    leader: Leader,
    wanted: usize,
    patience: Duration,
    mut coming: UnboundedReceiver<Coming>,
    trouble: impl Fn(DirectoryError),
) {
    let mut known = KnownAgents::default();
    // Those that have not come yet, and in the order in which they were called until when.
    let mut called: HashMap<String, Instant> = HashMap::new();
    let mut order: VecDeque<(String, Instant)> = VecDeque::new();
    let mut joined: usize = 0;
    loop {
        // Calls take time: who has come meanwhile is not given up.
        loop {
            match coming.try_recv() {
                Ok(said) => note(said, &mut joined, &mut called),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        let now = Instant::now();
        while let Some((name, until)) = order.pop_front_if(|(_, until)| *until <= now) {
            // It may have been called again since.
            if called.get(&name) == Some(&until) {
                called.remove(&name);
            }
        }
        let mut others = None;
        if joined + called.len() < wanted {
            let (waiting, changed) = match directory.waiting(&mut known, &trouble).await {
                Ok(found) => found,
                Err(error) => {
                    trouble(error);
                    if directory.is_over() {
                        return;
                    }
                    time::sleep(AGAIN).await;
                    continue;
                }
            };
            let mut failed = false;
            for agent in waiting.iter().take(wanted - joined - called.len()) {
                match directory.call(agent, &leader).await {
                    Ok(true) => {
                        let until = Instant::now() + patience;
                        called.insert(agent.facts.name(), until);
                        order.push_back((agent.facts.name(), until));
                    }
                    Ok(false) => {}
                    Err(error) => {
                        trouble(error);
                        known.forget(agent);
                        failed = true;
                        break;
                    }
                }
                known.called(agent);
            }
            if failed {
                if directory.is_over() {
                    return;
                }
                time::sleep(AGAIN).await;
                continue;
            }
            if joined + called.len() < wanted {
                others = Some(changed);
            }
        }
        let expires = order.front().map(|(_, until)| *until);
        let more = async {
            match others {
                Some(changed) => drop(changed.changed().await),
                None => std::future::pending().await,
            }
        };
        let expiry = async {
            match expires {
                Some(until) => time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            said = coming.recv() => match said {
                Some(said) => note(said, &mut joined, &mut called),
                None => return,
            },
            () = more => {}
            () = expiry => {}
        }
    }
}
