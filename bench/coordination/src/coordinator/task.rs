//! Task of the coordinator: owns all state, receives all events, and performs the group's actions.

use super::{CoordinatorCommand, CoordinatorReport, CoordinatorTask, Incoming, connections::accept};
use crate::{
    clock::{ClockTrack, Exchange},
    directory::{EpochChange, EpochWatch},
    group::{GroupAction, GroupEvent, Loss},
    message::{Frame, ToClient, ToCoordinator},
    recruiting::Arrival,
};
use serval_model::properties::units::nanoseconds;
use std::{collections::VecDeque, sync::PoisonError, time::Duration};
use tokio::{
    net::TcpListener,
    sync::mpsc::UnboundedReceiver,
    time::{self, Instant},
};

impl CoordinatorTask {
    pub(super) fn now(&self) -> u64 {
        (self.leading.clock)()
    }

    /// Changes the record of a client's clock.
    pub(super) fn track(&self, client: usize, change: impl FnOnce(&mut ClockTrack)) {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        if tracks.len() <= client {
            tracks.resize_with(client + 1, ClockTrack::default);
        }
        change(&mut tracks[client]);
    }

    pub(super) fn send_report(&self, report: CoordinatorReport) {
        // A dropped receiver ends the group.
        let _ = self.report.send(report);
    }

    pub(super) async fn run(
        mut self,
        listener: TcpListener,
        mut events: UnboundedReceiver<Incoming>,
        mut commands: UnboundedReceiver<CoordinatorCommand>,
        mut watch: EpochWatch,
    ) {
        let mut beat = time::interval(Duration::from_nanos(self.leading.settings.timeout / 6));
        beat.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut watching = true;
        // New connections are identified concurrently.
        let accepting = tokio::spawn(accept(listener, self.incoming.clone(), self.report.clone()));
        if self.leading.calls_agents {
            self.call_agents();
        }
        while !self.done {
            let now = self.now();
            let wake =
                Instant::now() + Duration::from_nanos(self.group.wake_at().saturating_sub(now).min(1 << 40));
            let mut actions = Vec::new();
            tokio::select! {
                Some(incoming) = events.recv() => match incoming {
                    Incoming::Watching(anew) => {
                        watch = anew;
                        self.list_barriers();
                    }
                    incoming => self.on_incoming(incoming, &mut actions),
                },
                command = commands.recv() => self.on_command(command.unwrap_or(CoordinatorCommand::Farewell), &mut actions),
                change = watch.next(), if watching => {
                    watching = change != EpochChange::Over;
                    self.on_epoch_change(change, &mut actions);
                }
                _ = beat.tick() => self.beat(),
                () = time::sleep_until(wake) => self.group.tick(self.now(), &mut actions),
            }
            self.perform(actions);
        }
        accepting.abort();
        self.send_all(|_| Some(ToClient::Farewell));
        // Closes the queues, so that the writers send the farewells and end.
        self.connections.clear();
        let mut writers = std::mem::take(&mut self.writers);
        let _ = time::timeout(Duration::from_secs(1), async { while writers.join_next().await.is_some() {} })
            .await;
        let resigning = self.directory.resign(&self.leading.group, self.leader.epoch);
        let _ = time::timeout(Duration::from_secs(2), resigning).await;
    }

    fn on_incoming(&mut self, incoming: Incoming, actions: &mut Vec<GroupAction>) {
        match incoming {
            Incoming::Greeted { facts, stream } => self.join(facts, stream, actions),
            Incoming::Received { connection, at, frame } => self.on_frame(connection, at, frame, actions),
            Incoming::Ended { connection, how } => {
                if let Some(connection) = self.connections.remove(&connection) {
                    self.group.on(connection.client, GroupEvent::Lost(Loss::Gone(how)), self.now(), actions);
                }
            }
            Incoming::StartWritten(Err(error)) => {
                self.send_report(CoordinatorReport::Trouble(error.to_string()))
            }
            // The loop of `run` handles the watch.
            Incoming::StartWritten(Ok(())) | Incoming::Watching(_) => {}
            Incoming::Connected { stream, place } => self.greet(stream, place),
            // The answer for a phase that is over.
            Incoming::PhaseOpened { phase, .. } if phase != self.phase => {}
            Incoming::PhaseOpened { opened: Ok(()), .. } => self.send_works(),
            Incoming::PhaseOpened { opened: Err(error), .. } => self.disband(Some(error.to_string())),
            Incoming::AtBarrier { place, clients } => {
                for client in clients {
                    self.on_barrier_node(&place, client, actions);
                }
            }
        }
    }

    fn on_frame(
        &mut self,
        connection: u64,
        at: u64,
        frame: Frame<ToCoordinator>,
        actions: &mut Vec<GroupAction>,
    ) {
        let Some(client) = self.connections.get(&connection).map(|connection| connection.client) else {
            return;
        };
        let event = match frame {
            Frame::Interval(bytes) => {
                self.send_report(CoordinatorReport::Interval(client, bytes));
                GroupEvent::Heard
            }
            Frame::Result(bytes) => {
                self.send_report(CoordinatorReport::Result(client, bytes));
                GroupEvent::Heard
            }
            Frame::Message(message) => match message {
                ToCoordinator::Answer { asked, answered } => {
                    let exchange = Exchange { asked, answered, received: at };
                    self.track(client, |track| track.add(exchange));
                    self.group.on(client, GroupEvent::Clock(exchange), self.now(), actions);
                    let first = self.connections.get_mut(&connection).is_some_and(|connection| {
                        connection.first_exchanges = connection.first_exchanges.saturating_sub(1);
                        connection.first_exchanges > 0
                    });
                    if let Some(next) = self.asking.answered() {
                        self.send(next, ToClient::Ask { asked: 0 });
                    }
                    if first || self.group.wants_clock(client, self.now()) {
                        self.ask_clock(client);
                    }
                    return;
                }
                ToCoordinator::Agreed { attempt } => GroupEvent::Agreed(attempt),
                ToCoordinator::Began { at } => GroupEvent::Began(at),
                ToCoordinator::Late => GroupEvent::Lost(Loss::Late),
                ToCoordinator::Failed { why } => GroupEvent::Lost(Loss::Failed(why)),
                ToCoordinator::Left => {
                    if let Some(connection) = self.connections.get_mut(&connection) {
                        connection.result_received = true;
                    }
                    if self.has_left(client) { GroupEvent::Left } else { GroupEvent::Heard }
                }
                // ZooKeeper reports which clients have entered.
                ToCoordinator::Entered | ToCoordinator::Beat | ToCoordinator::Hello { .. } => {
                    GroupEvent::Heard
                }
            },
        };
        self.group.on(client, event, self.now(), actions);
    }

    fn on_command(&mut self, command: CoordinatorCommand, actions: &mut Vec<GroupAction>) {
        match command {
            CoordinatorCommand::Phase { works, length_max } => {
                let takes_part = |client| works.get(client).is_some_and(Option::is_some);
                self.group.prepare(self.now(), takes_part, length_max.map(nanoseconds), actions);
                self.works = works;
                for connection in self.connections.values_mut() {
                    (connection.result_received, connection.at_barrier) = (false, false);
                }
                self.open_phase();
            }
            CoordinatorCommand::Measure(at) => {
                let instants: Vec<Option<u64>> = (0..self.by_client.len())
                    .map(|client| Some(self.group.offset(client, at)?.to_client(at)))
                    .collect();
                self.send_all(|client| Some(ToClient::Measure { at: (*instants.get(client)?)? }));
            }
            CoordinatorCommand::Finish(clients) => {
                clients.into_iter().for_each(|client| self.send(client, ToClient::Stop { hurry: false }));
            }
            CoordinatorCommand::Stop => self.group.stop(self.now(), actions),
            CoordinatorCommand::Farewell => self.done = true,
        }
    }

    fn beat(&mut self) {
        self.send_all(|_| Some(ToClient::Beat));
        self.asking.forget();
        for client in 0..self.by_client.len() {
            self.ask_clock(client);
        }
    }

    fn perform(&mut self, actions: Vec<GroupAction>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                GroupAction::Complete => {
                    self.arrivals = None;
                    self.send_report(CoordinatorReport::Complete);
                }
                GroupAction::Propose { attempt, at } => {
                    for client in 0..self.by_client.len() {
                        if let Some(offset) = self.group.offset(client, at) {
                            self.send(client, ToClient::Propose { attempt, at: offset.to_client(at) });
                        }
                    }
                }
                GroupAction::AskClocks => {
                    let now = self.now();
                    self.asking.forget();
                    for client in 0..self.by_client.len() {
                        if self.group.wants_clock(client, now) {
                            self.ask_clock(client);
                        }
                    }
                }
                GroupAction::Confirm { attempt, at } => {
                    self.send_all(|_| Some(ToClient::Confirm { attempt }));
                    self.send_report(CoordinatorReport::Starts(at));
                    self.write_start(at);
                }
                GroupAction::Dismiss(lost) => {
                    if let Some(connection) = self.by_client.get_mut(lost.client).and_then(Option::take)
                        && let Some(connection) = self.connections.remove(&connection)
                    {
                        let why =
                            format!("the coordinator has lost {}: it {}", connection.facts.name(), lost.why);
                        let _ = connection.out.send(Frame::Message(ToClient::Refused { why }));
                    }
                    if let Some(arrivals) = &self.arrivals {
                        let _ = arrivals.send(Arrival::Left);
                    }
                    self.send_report(CoordinatorReport::Lost(lost));
                }
                GroupAction::Stop => {
                    self.send_all(|_| Some(ToClient::Stop { hurry: true }));
                    // Clients that have not received their work have nothing to do.
                    let mut more = Vec::new();
                    for (client, work) in std::mem::take(&mut self.works).into_iter().enumerate() {
                        if work.is_some() {
                            self.group.on(client, GroupEvent::Left, self.now(), &mut more);
                        }
                    }
                    actions.extend(more);
                }
                GroupAction::Over(end) => {
                    self.phase += 1;
                    self.done |= !end.go_on;
                    self.send_report(CoordinatorReport::Over(end));
                }
                GroupAction::Disband => self.disband(None),
            }
        }
    }

    pub(super) fn disband(&mut self, why: Option<String>) {
        self.done = true;
        self.send_report(CoordinatorReport::Disbanded(why));
    }
}
