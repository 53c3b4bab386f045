//! Membership of an agent in a group.

use super::{AgentEvent, AgentSession, ForWorker, FromWorker, JobHandle, quit_requested};
use crate::{
    directory::{Directory, Leader},
    member::{Member, MemberAction, MemberEvent},
    message::{self, Frame, PROTOCOL, ToClient, ToCoordinator},
    presence::Presence,
};
use std::{io, time::Duration};
use tokio::{
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{self, Instant},
};

/// A frame that was read, or the error that ended the connection.
type Received = io::Result<Frame<ToClient>>;

/// A connection that the coordinator has accepted.
struct Accepted {
    stream: TcpStream,
    /// This client's number.
    client: u64,
    /// Longest silence of the coordinator, ms.
    timeout_ms: u64,
}

impl AgentSession {
    /// Serves a group until it is over. Returns the reason of its end.
    pub(super) async fn serve_group(&mut self, directory: &Directory, leader: &Leader) -> String {
        let Accepted { stream, client, timeout_ms } = match self.connect(leader).await {
            Ok(accepted) => accepted,
            Err(why) => return why,
        };
        self.report(AgentEvent::Joined(client, leader.name.clone()));
        let (reading, writing) = stream.into_split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        tokio::spawn(send_frames(writing, queue));
        let (received, mut incoming) = mpsc::unbounded_channel();
        let clock = self.joining.clock;
        let reader = tokio::spawn(receive_frames(reading, clock, outgoing.clone(), received));
        let mut membership = Membership {
            member: Member::new(timeout_ms.saturating_mul(1_000_000), clock()),
            client,
            leader: leader.clone(),
            presence: Presence::new(directory.clone(), &self.joining, leader),
            outgoing,
            phase: 0,
        };
        membership.presence.add(format!("members/{client}"));
        let mut quitting = self.quitting.clone();
        let mut beat = time::interval(Duration::from_millis((timeout_ms / 6).max(1)));
        beat.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            let wake = membership.member.wake_at().saturating_sub(clock()).min(1 << 40);
            let wake = Instant::now() + Duration::from_nanos(wake);
            let mut actions = Vec::new();
            let mut why = None;
            tokio::select! {
                frame = incoming.recv() => why = self.on_frame(frame, &mut membership, &mut actions),
                Some(from) = self.done.recv() => self.on_worker(from, &mut membership, &mut actions),
                _ = beat.tick() => membership.send(ToCoordinator::Beat),
                () = time::sleep_until(wake) => membership.member.tick(clock(), &mut actions),
                () = quit_requested(&mut quitting) => {
                    membership.send(ToCoordinator::Failed { why: "was ended on its own machine".to_owned() });
                    why = Some("ended on its own machine".to_owned());
                }
            }
            for action in actions {
                if let Some(over) = self.perform(action, &mut membership) {
                    why.get_or_insert(over);
                }
            }
            if let Some(why) = why {
                // Lets the writer send what is queued.
                drop(membership);
                // The reader of a connection to a dead machine would never end.
                reader.abort();
                tokio::task::yield_now().await;
                return why;
            }
        }
    }

    /// Connects to the coordinator and introduces this client.
    ///
    /// # Errors
    ///
    /// The reason for which the client is not in the group.
    async fn connect(&self, leader: &Leader) -> Result<Accepted, String> {
        let (address, timeout) = (&leader.address, self.joining.timeout);
        let disconnected =
            |error: io::Error| format!("the coordinator at {address} closed the connection: {error}");
        let mut stream = match time::timeout(timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(format!(
                    "the coordinator at {address} cannot be reached from here: {error}. Has its machine another address \
                     (coordination.listen), or a firewall?"
                ));
            }
            Err(_) => return Err(format!("the coordinator at {address} does not answer within {timeout:?}")),
        };
        let _ = stream.set_nodelay(true);
        let hello = ToCoordinator::Hello {
            protocol: PROTOCOL,
            epoch: leader.epoch,
            token: leader.token.clone(),
            facts: self.joining.facts.clone(),
        };
        message::write(&mut stream, &Frame::Message(hello)).await.map_err(disconnected)?;
        let greeting = message::read::<ToClient>(&mut stream, message::HELLO_MAX);
        match time::timeout(timeout, greeting).await {
            Ok(Ok(Frame::Message(ToClient::Welcome { client, timeout_ms }))) => {
                Ok(Accepted { stream, client, timeout_ms })
            }
            Ok(Ok(Frame::Message(ToClient::Refused { why }))) => Err(why),
            Ok(Err(error)) => Err(disconnected(error)),
            _ => Err(format!("the process that listens at {address} is not a coordinator")),
        }
    }

    /// Handles a frame of the coordinator. Returns the reason if the group is over for
    /// this client.
    fn on_frame(
        &mut self,
        frame: Option<Received>,
        membership: &mut Membership,
        actions: &mut Vec<MemberAction>,
    ) -> Option<String> {
        let now = (self.joining.clock)();
        let message = match frame {
            Some(Ok(Frame::Message(message))) => message,
            Some(Ok(_)) => return None,
            Some(Err(error)) => {
                membership.member.on(MemberEvent::Gone, now, actions);
                return Some(format!("the connection to the coordinator ended: {error}"));
            }
            None => return Some("the connection to the coordinator ended".to_owned()),
        };
        let event = match message {
            ToClient::Prepare { work } => {
                membership.phase = work.phase;
                let job = JobHandle::new(self.out.clone());
                self.job = Some(job.clone());
                membership.member.on(MemberEvent::Prepare, now, actions);
                let _ = self.jobs.send(ForWorker::Work(Box::new(work), job));
                return None;
            }
            ToClient::Propose { attempt, at } => MemberEvent::Proposed { attempt, at },
            ToClient::Confirm { attempt } => MemberEvent::Confirmed { attempt },
            ToClient::Measure { at } => {
                if let Some(job) = &self.job {
                    job.set_measure(at);
                }
                MemberEvent::Heard
            }
            ToClient::Stop { hurry } => {
                if let Some(job) = self.job.as_ref().filter(|_| hurry) {
                    job.set_hurry();
                }
                MemberEvent::Stop
            }
            ToClient::Refused { why } => return Some(why),
            ToClient::Farewell => return Some("the group is over".to_owned()),
            ToClient::Beat | ToClient::Ask { .. } | ToClient::Welcome { .. } => MemberEvent::Heard,
        };
        membership.member.on(event, now, actions);
        None
    }

    fn on_worker(&mut self, from: FromWorker, membership: &mut Membership, actions: &mut Vec<MemberAction>) {
        let now = (self.joining.clock)();
        match from {
            FromWorker::Ready => membership.member.on(MemberEvent::Ready, now, actions),
            FromWorker::Began(at) => membership.send(ToCoordinator::Began { at }),
            FromWorker::Interval(bytes) => {
                let _ = membership.outgoing.send(Frame::Interval(bytes));
            }
            FromWorker::Finished(Ok(bytes)) => {
                self.job = None;
                let _ = membership.outgoing.send(Frame::Result(bytes));
                membership.member.on(MemberEvent::Finished, now, actions);
            }
            FromWorker::Finished(Err(why)) => {
                self.job = None;
                membership.send(ToCoordinator::Failed { why });
            }
        }
    }

    /// Performs an action. Returns the reason if the client leaves the group.
    fn perform(&mut self, action: MemberAction, membership: &mut Membership) -> Option<String> {
        match action {
            MemberAction::Enter => {
                membership.presence.add(format!("{}/entered/{}", membership.phase, membership.client));
                membership.send(ToCoordinator::Entered);
            }
            MemberAction::Agree(attempt) => membership.send(ToCoordinator::Agreed { attempt }),
            MemberAction::Go(at) => {
                if let Some(job) = &self.job {
                    job.start(at);
                }
            }
            MemberAction::Late => {
                membership.send(ToCoordinator::Late);
                self.end_job();
            }
            MemberAction::End => self.end_job(),
            MemberAction::Leave => {
                membership.send(ToCoordinator::Left);
                membership.presence.add(format!("{}/left/{}", membership.phase, membership.client));
            }
            MemberAction::Abandon => {
                self.end_job();
                return Some(format!(
                    "the coordinator at {} has been silent for the timeout; the load was ended",
                    membership.leader.address
                ));
            }
        }
        None
    }

    fn end_job(&self) {
        if let Some(job) = &self.job {
            job.end();
        }
    }
}

/// Sends frames until their queue is closed or the connection ends.
async fn send_frames(mut writing: OwnedWriteHalf, mut queue: UnboundedReceiver<Frame<ToCoordinator>>) {
    while let Some(frame) = queue.recv().await {
        let Err(error) = message::write(&mut writing, &frame).await else { continue };
        // The reader notices a connection that ended; a frame that is too long is reported.
        if error.kind() == io::ErrorKind::InvalidInput {
            let why = Frame::Message(ToCoordinator::Failed { why: error.to_string() });
            let _ = message::write(&mut writing, &why).await;
        }
        break;
    }
}

/// Receives frames until the connection ends. Answers requests for the client's time
/// at once, whatever else the client does.
async fn receive_frames(
    mut reading: OwnedReadHalf,
    clock: fn() -> u64,
    answers: UnboundedSender<Frame<ToCoordinator>>,
    received: UnboundedSender<Received>,
) {
    loop {
        let frame = message::read::<ToClient>(&mut reading, message::FRAME_MAX).await;
        let is_over = match frame {
            Ok(Frame::Message(ToClient::Ask { asked })) => {
                answers.send(Frame::Message(ToCoordinator::Answer { asked, answered: clock() })).is_err()
            }
            frame => {
                let failed = frame.is_err();
                received.send(frame).is_err() || failed
            }
        };
        if is_over {
            break;
        }
    }
}

/// State of this client in a group.
struct Membership {
    member: Member,
    client: u64,
    leader: Leader,
    presence: Presence,
    outgoing: UnboundedSender<Frame<ToCoordinator>>,
    phase: u64,
}

impl Membership {
    fn send(&self, message: ToCoordinator) {
        let _ = self.outgoing.send(Frame::Message(message));
    }
}
