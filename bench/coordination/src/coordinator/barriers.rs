//! What goes by ZooKeeper: agents that are called, barriers of phases, and who stands there.

use super::{AGAIN, Desk, Incoming, Report};
use crate::{
    calling::call_agents,
    directory::Change,
    group::{Action, Event},
};
use std::time::Duration;
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};

impl Desk {
    /// Makes the barriers of the phase, as soon as ZooKeeper can.
    pub(super) fn open_phase(&self) {
        let (directory, group, epoch, phase) =
            (self.directory.clone(), self.leading.group.clone(), self.leader.epoch, self.phase);
        let (incoming, patience) = (self.incoming.clone(), Duration::from_nanos(self.leading.settings.wait));
        tokio::spawn(async move {
            let until = Instant::now() + patience;
            let opened = loop {
                match directory.open_phase(&group, epoch, phase).await {
                    Err(_) if !directory.is_over() && Instant::now() < until => time::sleep(AGAIN).await,
                    done => break done,
                }
            };
            let _ = incoming.send(Incoming::PhaseOpened { phase, opened });
        });
    }

    /// Calls agents, until [`Desk::coming`] is gone.
    pub(super) fn call_agents(&mut self) {
        let (said, coming) = mpsc::unbounded_channel();
        self.coming = Some(said);
        let report = self.report.clone();
        tokio::spawn(call_agents(
            self.directory.clone(),
            self.leader.clone(),
            self.leading.settings.clients,
            Duration::from_nanos(self.leading.settings.timeout),
            coming,
            move |error| {
                let _ = report.send(Report::Trouble(error.to_string()));
            },
        ));
    }

    pub(super) fn changed(&mut self, change: Change, actions: &mut Vec<Action>) {
        match change {
            Change::There(path) => {
                if let Some((place, client)) = path.rsplit_once('/')
                    && let Ok(client) = client.parse()
                {
                    self.stands(place, client, actions);
                }
            }
            // A client that is well makes its node anew, and one that is not says
            // nothing by its connection either.
            Change::Gone => {}
            Change::Missed => self.watch_again(),
            Change::Over => self.lose_zookeeper(actions),
        }
    }

    /// Watches anew after the connection was lost, and then looks at who stands there: so nothing that
    /// happens in between is missed, whatever has become of the watch at the server.
    fn watch_again(&self) {
        let (directory, incoming) = (self.directory.clone(), self.incoming.clone());
        let (group, epoch) = (self.leading.group.clone(), self.leader.epoch);
        tokio::spawn(async move {
            while !directory.is_over() && !incoming.is_closed() {
                match directory.watch(&group, epoch).await {
                    Ok(watch) => {
                        let _ = incoming.send(Incoming::Watching(watch));
                        break;
                    }
                    Err(_) => time::sleep(AGAIN).await,
                }
            }
        });
    }

    /// Looks at who stands at the barriers of the present phase.
    pub(super) fn look_at_barriers(&self) {
        for barrier in ["entered", "left"] {
            let place = format!("{}/{barrier}", self.phase);
            let (directory, incoming) = (self.directory.clone(), self.incoming.clone());
            let (group, epoch) = (self.leading.group.clone(), self.leader.epoch);
            tokio::spawn(async move {
                while !directory.is_over() && !incoming.is_closed() {
                    match directory.standing(&group, epoch, &place).await {
                        Ok(clients) => {
                            let _ = incoming.send(Incoming::Standing { place, clients });
                            break;
                        }
                        // There is no such phase yet: it is watched from its beginning.
                        Err(error) if error.is_no_node() => break,
                        Err(_) => time::sleep(AGAIN).await,
                    }
                }
            });
        }
    }

    /// The group cannot go on. What its clients have measured they hand over by their connections, so that a
    /// phase that runs is ended in order.
    fn lose_zookeeper(&mut self, actions: &mut Vec<Action>) {
        let why = "the coordinator's session with ZooKeeper is over: it was away for longer than the timeout";
        if !self.group.is_running() {
            return self.disband(Some(why.to_owned()));
        }
        self.blind = true;
        self.tell(Report::Ending(why.to_owned()));
        self.group.stop(self.now(), actions);
        for client in 0..self.by_client.len() {
            if self.has_left(client) {
                self.group.on(client, Event::Left, self.now(), actions);
            }
        }
    }

    /// A client stands at a barrier.
    pub(super) fn stands(&mut self, place: &str, client: u64, actions: &mut Vec<Action>) {
        let Some((phase, barrier)) = place.split_once('/') else { return };
        if phase.parse() != Ok(self.phase) {
            return;
        }
        let client = client as usize;
        let event = match barrier {
            "entered" => Event::Entered,
            "left" => {
                if let Some(line) = self.line_of(client) {
                    line.at_barrier = true;
                }
                if !self.has_left(client) {
                    return;
                }
                Event::Left
            }
            _ => return,
        };
        self.group.on(client, event, self.now(), actions);
    }

    pub(super) fn has_left(&mut self, client: usize) -> bool {
        let blind = self.blind;
        self.line_of(client).is_some_and(|line| line.handed_over && (line.at_barrier || blind))
    }

    pub(super) fn write_start(&self, at: u64) {
        let (directory, group, epoch, phase) =
            (self.directory.clone(), self.leading.group.clone(), self.leader.epoch, self.phase);
        let incoming = self.incoming.clone();
        tokio::spawn(async move {
            let written = directory.started(&group, epoch, phase, at).await;
            let _ = incoming.send(Incoming::StartWritten(written));
        });
    }
}
