//! Calls waiting agents into a group until it is complete.

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

/// Pause before a failed request to ZooKeeper is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A client that joined the group, or left it before it was complete.
#[derive(Debug)]
pub(crate) enum Arrival {
    Joined(ClientFacts),
    Left,
}

fn count(arrival: Arrival, joined: &mut usize, called: &mut HashMap<String, Instant>) {
    match arrival {
        Arrival::Joined(facts) => {
            *joined += 1;
            called.remove(&facts.name());
        }
        Arrival::Left => *joined = joined.saturating_sub(1),
    }
}

/// Calls as many agents as the group still needs, until the `arrivals` channel closes. An agent that does not join
/// within `patience`, perhaps because its machine is dead or a firewall blocks it, is replaced by the next.
pub(crate) async fn call_agents(
    directory: Directory,
    leader: Leader,
    wanted: usize,
    patience: Duration,
    mut arrivals: UnboundedReceiver<Arrival>,
    trouble: impl Fn(DirectoryError),
) {
    let mut known = KnownAgents::default();
    // Agents that have not joined yet, with their deadlines; and the same in order of deadline.
    let mut called: HashMap<String, Instant> = HashMap::new();
    let mut order: VecDeque<(String, Instant)> = VecDeque::new();
    let mut joined: usize = 0;
    loop {
        // Calls take time: count the clients that joined meanwhile before any is given up.
        loop {
            match arrivals.try_recv() {
                Ok(arrival) => count(arrival, &mut joined, &mut called),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        let now = Instant::now();
        while let Some((name, until)) = order.pop_front_if(|(_, until)| *until <= now) {
            // The agent may have been called again since.
            if called.get(&name) == Some(&until) {
                called.remove(&name);
            }
        }
        let mut agents_changed = None;
        if joined + called.len() < wanted {
            let (waiting, changed) = match directory.waiting(&mut known, &trouble).await {
                Ok(found) => found,
                Err(error) => {
                    trouble(error);
                    if directory.is_over() {
                        return;
                    }
                    time::sleep(RETRY_PAUSE).await;
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
                time::sleep(RETRY_PAUSE).await;
                continue;
            }
            if joined + called.len() < wanted {
                agents_changed = Some(changed);
            }
        }
        let expires = order.front().map(|(_, until)| *until);
        let more = async {
            match agents_changed {
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
            arrival = arrivals.recv() => match arrival {
                Some(arrival) => count(arrival, &mut joined, &mut called),
                None => return,
            },
            () = more => {}
            () = expiry => {}
        }
    }
}
