//! A client as long as it belongs to a group.

use super::{ForWorker, FromWorker, Life, Line, News};
use crate::{
    directory::{Directory, Leader},
    member::{Action, Event, Member},
    message::{self, Frame, PROTOCOL, ToClient, ToCoordinator},
    stand::Stand,
};
use std::time::Duration;
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, UnboundedSender},
    time::{self, Instant},
};

impl Life {
    /// Belongs to a group until it is over. Why it is.
    pub(super) async fn belong(&mut self, directory: &Directory, leader: &Leader) -> String {
        let connecting = TcpStream::connect(&leader.address);
        let mut stream = match time::timeout(self.joining.timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return format!(
                    "the coordinator at {} cannot be reached from here: {error}. Has its machine another address \
                     (coordination.listen), or a firewall?",
                    leader.address
                );
            }
            Err(_) => return format!("the coordinator at {} does not answer", leader.address),
        };
        let _ = stream.set_nodelay(true);
        let hello = ToCoordinator::Hello {
            protocol: PROTOCOL,
            epoch: leader.epoch,
            token: leader.token.clone(),
            facts: self.joining.facts.clone(),
        };
        if let Err(error) = message::write(&mut stream, &Frame::Message(hello)).await {
            return format!("the coordinator at {} hung up: {error}", leader.address);
        }
        let greeting = message::read::<ToClient>(&mut stream, message::HELLO_MAX);
        let (client, timeout_ms) = match time::timeout(self.joining.timeout, greeting).await {
            Ok(Ok(Frame::Message(ToClient::Welcome { client, timeout_ms }))) => (client, timeout_ms),
            Ok(Ok(Frame::Message(ToClient::Refused { why }))) => return why,
            Ok(Err(error)) => return format!("the coordinator at {} hung up: {error}", leader.address),
            _ => return format!("what listens at {} is no coordinator", leader.address),
        };
        self.news(News::Joined(client, leader.name.clone()));
        let (mut reading, mut writing) = stream.into_split();
        let (said, mut queue) = mpsc::unbounded_channel::<Frame<ToCoordinator>>();
        tokio::spawn(async move {
            while let Some(frame) = queue.recv().await {
                let Err(error) = message::write(&mut writing, &frame).await else { continue };
                // What cannot be sent at all is said; a connection that has ended is found by who reads from it.
                if error.kind() == std::io::ErrorKind::InvalidInput {
                    let why = Frame::Message(ToCoordinator::Failed { why: error.to_string() });
                    let _ = message::write(&mut writing, &why).await;
                }
                break;
            }
        });
        let (heard, mut hearing) = mpsc::unbounded_channel();
        let (clock, answers) = (self.joining.clock, said.clone());
        let reader = tokio::spawn(async move {
            loop {
                match message::read::<ToClient>(&mut reading, message::FRAME_MAX).await {
                    // At once, whatever else there is to do.
                    Ok(Frame::Message(ToClient::Ask { asked })) => {
                        let answer = ToCoordinator::Answer { asked, answered: clock() };
                        if answers.send(Frame::Message(answer)).is_err() {
                            break;
                        }
                    }
                    Ok(frame) => {
                        if heard.send(Ok(frame)).is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        let _ = heard.send(Err(error));
                        break;
                    }
                }
            }
        });
        let now = clock();
        let mut belonging = Belonging {
            member: Member::new(timeout_ms.saturating_mul(1_000_000), now),
            client,
            leader: leader.clone(),
            stand: Stand::new(directory.clone(), &self.joining, leader),
            said,
            phase: 0,
        };
        belonging.stand.at(format!("members/{client}"));
        let mut quitting = self.quitting.clone();
        let mut beat = time::interval(Duration::from_millis((timeout_ms / 6).max(1)));
        beat.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            let now = clock();
            let wake = belonging.member.wake_at().saturating_sub(now).min(1 << 40);
            let wake = Instant::now() + Duration::from_nanos(wake);
            let mut actions = Vec::new();
            let mut why = None;
            tokio::select! {
                frame = hearing.recv() => why = self.hear(frame, &mut belonging, &mut actions),
                Some(from) = self.done.recv() => self.worker_said(from, &mut belonging, &mut actions),
                _ = beat.tick() => belonging.say(ToCoordinator::Beat),
                () = time::sleep_until(wake) => belonging.member.tick(clock(), &mut actions),
                () = asked_to_end(&mut quitting) => {
                    belonging.say(ToCoordinator::Failed { why: "was told to end on its own machine".to_owned() });
                    why = Some("told to end".to_owned());
                }
            }
            for action in actions {
                if let Some(over) = self.act(action, &mut belonging) {
                    why.get_or_insert(over);
                }
            }
            if let Some(why) = why {
                // What was said last is still on its way.
                drop(belonging);
                // Of a coordinator whose machine is gone nothing would ever come, not even an end.
                reader.abort();
                tokio::task::yield_now().await;
                return why;
            }
        }
    }

    fn hear(
        &mut self,
        frame: Option<std::io::Result<Frame<ToClient>>>,
        belonging: &mut Belonging,
        actions: &mut Vec<Action>,
    ) -> Option<String> {
        let now = (self.joining.clock)();
        let message = match frame {
            Some(Ok(Frame::Message(message))) => message,
            Some(Ok(_)) => return None,
            Some(Err(error)) => {
                belonging.member.on(Event::Gone, now, actions);
                return Some(format!("the coordinator is gone: {error}"));
            }
            None => return Some("the coordinator is gone".to_owned()),
        };
        let event = match message {
            ToClient::Prepare { work } => {
                belonging.phase = work.phase;
                let line = Line::new(self.out.clone());
                self.busy = Some(line.clone());
                belonging.member.on(Event::Prepare, now, actions);
                let _ = self.jobs.send(ForWorker::Work(Box::new(work), line));
                return None;
            }
            ToClient::Propose { attempt, at } => Event::Proposed { attempt, at },
            ToClient::Confirm { attempt } => Event::Confirmed { attempt },
            ToClient::Measure { at } => {
                if let Some(line) = &self.busy {
                    line.state().measure = Some(at);
                }
                Event::Heard
            }
            ToClient::Stop { hurry } => {
                if let Some(line) = &self.busy {
                    line.state().hurry |= hurry;
                }
                Event::Stop
            }
            ToClient::Refused { why } => return Some(why),
            ToClient::Farewell => return Some("the group is over".to_owned()),
            ToClient::Beat | ToClient::Ask { .. } | ToClient::Welcome { .. } => Event::Heard,
        };
        belonging.member.on(event, now, actions);
        None
    }

    fn worker_said(&mut self, from: FromWorker, belonging: &mut Belonging, actions: &mut Vec<Action>) {
        let now = (self.joining.clock)();
        match from {
            FromWorker::Ready => belonging.member.on(Event::Ready, now, actions),
            FromWorker::Began(at) => belonging.say(ToCoordinator::Began { at }),
            FromWorker::Interval(bytes) => {
                let _ = belonging.said.send(Frame::Interval(bytes));
            }
            FromWorker::Finished(Ok(bytes)) => {
                self.busy = None;
                let _ = belonging.said.send(Frame::Result(bytes));
                belonging.member.on(Event::Finished, now, actions);
            }
            FromWorker::Finished(Err(why)) => {
                self.busy = None;
                belonging.say(ToCoordinator::Failed { why });
            }
        }
    }

    /// Why the client belongs to the group no more, if that is so.
    fn act(&mut self, action: Action, belonging: &mut Belonging) -> Option<String> {
        let end = |life: &Life| {
            if let Some(line) = &life.busy {
                line.end();
            }
        };
        match action {
            Action::Enter => {
                belonging.stand.at(format!("{}/entered/{}", belonging.phase, belonging.client));
                belonging.say(ToCoordinator::Entered);
            }
            Action::Agree(attempt) => belonging.say(ToCoordinator::Agreed { attempt }),
            Action::Go(at) => {
                if let Some(line) = &self.busy {
                    line.go(at);
                }
            }
            Action::Late => {
                belonging.say(ToCoordinator::Late);
                end(self);
            }
            Action::End => end(self),
            Action::Leave => {
                belonging.say(ToCoordinator::Left);
                belonging.stand.at(format!("{}/left/{}", belonging.phase, belonging.client));
            }
            Action::Abandon => {
                end(self);
                return Some(format!(
                    "nothing was heard of the coordinator at {} for the timeout: the load was ended",
                    belonging.leader.address
                ));
            }
        }
        None
    }
}

async fn asked_to_end(quitting: &mut tokio::sync::watch::Receiver<bool>) {
    // Nobody who could ask is as good as somebody who asks.
    let _ = quitting.wait_for(|quit| *quit).await;
}

/// A client's place in a group.
struct Belonging {
    member: Member,
    client: u64,
    leader: Leader,
    stand: Stand,
    said: UnboundedSender<Frame<ToCoordinator>>,
    phase: u64,
}

impl Belonging {
    fn say(&self, message: ToCoordinator) {
        let _ = self.said.send(Frame::Message(message));
    }
}
