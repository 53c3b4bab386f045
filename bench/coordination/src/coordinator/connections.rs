//! Connections of clients: accepting, identifying, receiving and sending.

use super::{
    Connection, CoordinatorReport, CoordinatorTask, FIRST_EXCHANGES, GREETING, GREETINGS_MAX, Incoming,
    RETRY_PAUSE,
};
use crate::{
    clock::ClockTrack,
    group::GroupAction,
    message::{self, ClientFacts, Frame, PROTOCOL, ToClient, ToCoordinator, Work},
    recruiting::Arrival,
};
use std::{
    io,
    sync::{Arc, mpsc as blocking},
};
use tokio::{
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
    time,
};

/// Accepts connections; at most [`GREETINGS_MAX`] at a time are unidentified.
pub(super) async fn accept(
    listener: TcpListener,
    incoming: UnboundedSender<Incoming>,
    report: blocking::Sender<CoordinatorReport>,
) {
    let greeted = Arc::new(Semaphore::new(GREETINGS_MAX));
    let mut refused = false;
    while let Ok(place) = Arc::clone(&greeted).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                refused = false;
                if incoming.send(Incoming::Connected { stream, place }).is_err() {
                    break;
                }
            }
            Err(error) => {
                // Report once, however long it lasts.
                if !std::mem::replace(&mut refused, true) {
                    let what = format!("cannot accept a client's connection: {error}");
                    let _ = report.send(CoordinatorReport::Trouble(what));
                }
                // Too many open files, most likely, which takes a while to change.
                time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

impl CoordinatorTask {
    pub(super) fn greet(&self, mut stream: TcpStream, place: OwnedSemaphorePermit) {
        let (incoming, epoch, token) = (self.incoming.clone(), self.leader.epoch, self.leader.token.clone());
        let report = self.report.clone();
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let _place = place;
            let greeting = message::read::<ToCoordinator>(&mut stream, message::HELLO_MAX);
            let Ok(Ok(Frame::Message(ToCoordinator::Hello { protocol, epoch: theirs, token: sent, facts }))) =
                time::timeout(GREETING, greeting).await
            else {
                return;
            };
            let why = if sent != token || theirs != epoch {
                "this coordinator leads another group, or a later epoch of it".to_owned()
            } else if protocol != PROTOCOL {
                let why = format!(
                    "it uses version {protocol} of the messages, and the coordinator {PROTOCOL}: use one version of Serval"
                );
                let _ = report
                    .send(CoordinatorReport::Trouble(format!("client {} was refused: {why}", facts.name())));
                why
            } else {
                let _ = incoming.send(Incoming::Greeted { facts, stream });
                return;
            };
            let refusal = Frame::Message(ToClient::Refused { why });
            let _ = time::timeout(GREETING, message::write(&mut stream, &refusal)).await;
        });
    }

    pub(super) fn join(&mut self, facts: ClientFacts, stream: TcpStream, actions: &mut Vec<GroupAction>) {
        let now = self.now();
        let number = self.group.join(now, actions);
        let (out, queue) = mpsc::unbounded_channel();
        let (reading, mut writing) = stream.into_split();
        let clock = self.leading.clock;
        // Removes the writers that have ended.
        while self.writers.try_join_next().is_some() {}
        self.writers.spawn(async move {
            let mut queue: UnboundedReceiver<Frame<ToClient>> = queue;
            while let Some(mut frame) = queue.recv().await {
                if let Frame::Message(ToClient::Ask { asked }) = &mut frame {
                    *asked = clock();
                }
                if message::write(&mut writing, &frame).await.is_err() {
                    break;
                }
            }
        });
        let Some(client) = number else {
            let why = "the group has all the clients that it needs".to_owned();
            let _ = out.send(Frame::Message(ToClient::Refused { why }));
            return;
        };
        let connection = self.next_connection;
        self.next_connection += 1;
        let timeout_ms = self.leading.settings.timeout / 1_000_000;
        let _ = out.send(Frame::Message(ToClient::Welcome { client: client as u64, timeout_ms }));
        self.listen(connection, reading);
        if self.by_client.len() <= client {
            self.by_client.resize(client + 1, None);
        }
        self.by_client[client] = Some(connection);
        self.track(client, |track| *track = ClockTrack::default());
        self.connections.insert(
            connection,
            Connection {
                client,
                facts: facts.clone(),
                out,
                result_received: false,
                at_barrier: false,
                first_exchanges: FIRST_EXCHANGES,
            },
        );
        if let Some(arrivals) = &self.arrivals {
            let _ = arrivals.send(Arrival::Joined(facts.clone()));
        }
        self.ask_clock(client);
        self.send_report(CoordinatorReport::Joined { client, facts });
    }

    fn listen(&self, connection: u64, mut reading: OwnedReadHalf) {
        let (incoming, clock) = (self.incoming.clone(), self.leading.clock);
        tokio::spawn(async move {
            loop {
                // Each part of a long result counts as a heartbeat.
                let heard = || {
                    let frame = Frame::Message(ToCoordinator::Beat);
                    let _ = incoming.send(Incoming::Received { connection, at: clock(), frame });
                };
                let received = match message::read_noting(&mut reading, message::FRAME_MAX, heard).await {
                    Ok(frame) => Incoming::Received { connection, at: clock(), frame },
                    Err(error) => {
                        let ended = matches!(
                            error.kind(),
                            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                        );
                        let how = if ended { "its connection ended".to_owned() } else { error.to_string() };
                        let _ = incoming.send(Incoming::Ended { connection, how });
                        break;
                    }
                };
                if incoming.send(received).is_err() {
                    break;
                }
            }
        });
    }

    /// Requests a client's time, or queues the request.
    pub(super) fn ask_clock(&mut self, client: usize) {
        if !self.group.is_lost(client) && self.asking.want(client) {
            self.send(client, ToClient::Ask { asked: 0 });
        }
    }

    pub(super) fn send(&self, client: usize, message: ToClient) {
        let connection = self
            .by_client
            .get(client)
            .copied()
            .flatten()
            .and_then(|connection| self.connections.get(&connection));
        if let Some(connection) = connection {
            let _ = connection.out.send(Frame::Message(message));
        }
    }

    pub(super) fn send_all(&self, message: impl Fn(usize) -> Option<ToClient>) {
        for connection in
            self.connections.values().filter(|connection| !self.group.is_lost(connection.client))
        {
            if let Some(message) = message(connection.client) {
                let _ = connection.out.send(Frame::Message(message));
            }
        }
    }

    pub(super) fn connection_of(&mut self, client: usize) -> Option<&mut Connection> {
        let connection = self.by_client.get(client).copied().flatten()?;
        self.connections.get_mut(&connection)
    }

    /// Sends the clients their work of the phase.
    pub(super) fn send_works(&mut self) {
        let (works, phase) = (std::mem::take(&mut self.works), self.phase);
        for (client, work) in works.into_iter().enumerate() {
            if let Some(work) = work {
                self.send(client, ToClient::Prepare { work: Work { phase, ..work } });
            }
        }
    }
}
