//! Use of ZooKeeper by the coordinator: calls of agents, and the barriers of phases.

use super::{CoordinatorReport, CoordinatorTask, Incoming, RETRY_PAUSE};
use crate::{
    directory::{Epoch, EpochChange},
    group::{GroupAction, GroupEvent},
    recruiting::call_agents,
};
use std::time::Duration;
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};

impl CoordinatorTask {
    fn epoch(&self) -> Epoch {
        self.directory.epoch(&self.leading.group, self.leader.epoch)
    }

    /// Creates the barriers of the phase; retries while ZooKeeper fails.
    pub(super) fn open_phase(&self) {
        let (epoch, phase, incoming) = (self.epoch(), self.phase, self.incoming.clone());
        let until = Instant::now() + Duration::from_nanos(self.leading.settings.wait);
        tokio::spawn(async move {
            let opened = loop {
                match epoch.open_phase(phase).await {
                    Err(_) if !epoch.is_over() && Instant::now() < until => time::sleep(RETRY_PAUSE).await,
                    done => break done,
                }
            };
            let _ = incoming.send(Incoming::PhaseOpened { phase, opened });
        });
    }

    /// Calls agents until [`CoordinatorTask::arrivals`] is dropped.
    pub(super) fn call_agents(&mut self) {
        let (sender, arrivals) = mpsc::unbounded_channel();
        self.arrivals = Some(sender);
        let report = self.report.clone();
        tokio::spawn(call_agents(
            self.directory.clone(),
            self.leader.clone(),
            self.leading.settings.clients,
            Duration::from_nanos(self.leading.settings.timeout),
            arrivals,
            move |error| {
                let _ = report.send(CoordinatorReport::Trouble(error.to_string()));
            },
        ));
    }

    /// Handles a change of the group's nodes.
    pub(super) fn on_epoch_change(&mut self, change: EpochChange, actions: &mut Vec<GroupAction>) {
        match change {
            EpochChange::There(path) => {
                if let Some((place, client)) = path.rsplit_once('/')
                    && let Ok(client) = client.parse()
                {
                    self.on_barrier_node(place, client, actions);
                }
            }
            // A healthy client creates its node again, and a dead one is silent on its
            // connection too.
            EpochChange::Gone => {}
            EpochChange::Missed => self.watch_again(),
            EpochChange::Over => self.lose_zookeeper(actions),
        }
    }

    /// Watches again after the connection was lost, and then lists the barriers, so that no
    /// change in between is missed.
    fn watch_again(&self) {
        let (epoch, incoming) = (self.epoch(), self.incoming.clone());
        tokio::spawn(async move {
            while !epoch.is_over() && !incoming.is_closed() {
                match epoch.watch().await {
                    Ok(watch) => {
                        let _ = incoming.send(Incoming::Watching(watch));
                        break;
                    }
                    Err(_) => time::sleep(RETRY_PAUSE).await,
                }
            }
        });
    }

    /// Lists the clients at the barriers of the current phase.
    pub(super) fn list_barriers(&self) {
        for barrier in ["entered", "left"] {
            let place = format!("{}/{barrier}", self.phase);
            let (epoch, incoming) = (self.epoch(), self.incoming.clone());
            tokio::spawn(async move {
                while !epoch.is_over() && !incoming.is_closed() {
                    match epoch.standing(&place).await {
                        Ok(Some(clients)) => {
                            let _ = incoming.send(Incoming::AtBarrier { place, clients });
                            break;
                        }
                        // The phase does not exist yet; the watch reports all of it.
                        Ok(None) => break,
                        Err(_) => time::sleep(RETRY_PAUSE).await,
                    }
                }
            });
        }
    }

    /// Ends the group. A running phase ends in order: clients send their results by their connections.
    fn lose_zookeeper(&mut self, actions: &mut Vec<GroupAction>) {
        let why = "the coordinator's session with ZooKeeper is over: it was away for longer than the timeout";
        if !self.group.is_running() {
            return self.disband(Some(why.to_owned()));
        }
        self.zookeeper_lost = true;
        self.send_report(CoordinatorReport::Ending(why.to_owned()));
        self.group.stop(self.now(), actions);
        for client in 0..self.by_client.len() {
            if self.has_left(client) {
                self.group.on(client, GroupEvent::Left, self.now(), actions);
            }
        }
    }

    /// Handles a client's node at a barrier.
    pub(super) fn on_barrier_node(&mut self, place: &str, client: u64, actions: &mut Vec<GroupAction>) {
        let Some((phase, barrier)) = place.split_once('/') else { return };
        if phase.parse() != Ok(self.phase) {
            return;
        }
        let client = client as usize;
        let event = match barrier {
            "entered" => GroupEvent::Entered,
            "left" => {
                if let Some(connection) = self.connection_of(client) {
                    connection.at_barrier = true;
                }
                if !self.has_left(client) {
                    return;
                }
                GroupEvent::Left
            }
            _ => return,
        };
        self.group.on(client, event, self.now(), actions);
    }

    pub(super) fn has_left(&mut self, client: usize) -> bool {
        let zookeeper_lost = self.zookeeper_lost;
        self.connection_of(client)
            .is_some_and(|connection| connection.result_received && (connection.at_barrier || zookeeper_lost))
    }

    pub(super) fn write_start(&self, at: u64) {
        let (epoch, phase, incoming) = (self.epoch(), self.phase, self.incoming.clone());
        tokio::spawn(async move {
            let written = epoch.started(phase, at).await;
            let _ = incoming.send(Incoming::StartWritten(written));
        });
    }
}
