//! A client process of a group: an agent that waits for work, or a process that has joined
//! a group by itself.
//!
//! What goes over the network lives on a thread of its own, so that questions about
//! the clock are answered at once; the load runs on the thread that called.

use crate::{
    directory::{Directory, DirectoryError, Leader},
    member::{Action, Event, Member},
    message::{self, ClientFacts, Frame, PROTOCOL, ToClient, ToCoordinator, Work},
    stand::Stand,
};
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc as blocking},
    thread,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{self, Instant},
};

/// Pause before something is tried again that failed.
const AGAIN: Duration = Duration::from_millis(500);

/// Where an agent waits for work.
#[derive(Debug, Clone)]
pub struct Joining {
    /// ZooKeeper's address.
    pub cluster: String,
    /// The node that everything is below.
    pub root: String,
    /// Silence after which the session, and a coordinator, is given up.
    pub timeout: Duration,
    /// Whether it ends after one group.
    pub once: bool,
    /// Who it is.
    pub facts: ClientFacts,
    /// The monotonic clock, ns.
    pub clock: fn() -> u64,
}

/// What an agent tells people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It waits for work.
    Waiting,
    /// It belongs to a group: its number, and who leads it.
    Joined(u64, String),
    /// The group is over, or it belongs to it no more; why.
    Parted(String),
    /// Something does not work, and is tried again.
    Trouble(String),
}

/// Does what an agent is asked.
pub trait Worker {
    /// A part of a phase. Calls [`Line::ready`] when all is ready. What it saw; or why it
    /// cannot.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn work(&mut self, work: Work, line: &Line) -> Result<Vec<u8>, String>;
    /// For people.
    fn news(&mut self, news: News);
}

#[derive(Default)]
struct LineState {
    start: Option<u64>,
    measure: Option<u64>,
    ended: bool,
    abandoned: bool,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

struct LineInner {
    state: Mutex<LineState>,
    changed: Condvar,
    out: UnboundedSender<FromWorker>,
}

/// How a load hears from its group, and tells it what it sees.
#[derive(Clone)]
pub struct Line(Arc<LineInner>);

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl Line {
    fn new(out: UnboundedSender<FromWorker>) -> Line {
        Line(Arc::new(LineInner { state: Mutex::default(), changed: Condvar::new(), out }))
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that all is ready, and waits for the instant at which the group begins, ns
    /// by this machine's clock. `None` if it does not.
    pub fn ready(&self) -> Option<u64> {
        let _ = self.0.out.send(FromWorker::Ready);
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            if let Some(start) = state.start {
                return Some(start);
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Says when the load really began, ns by this machine's clock.
    pub fn began(&self, at: u64) {
        let _ = self.0.out.send(FromWorker::Began(at));
    }

    /// Hands over what an interval saw.
    pub fn interval(&self, bytes: Vec<u8>) {
        let _ = self.0.out.send(FromWorker::Interval(bytes));
    }

    /// Has this called, on another thread, when the load must end; at once if it must
    /// already.
    pub fn on_end(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.ended {
            drop(state);
            call();
        } else {
            state.on_end = Some(Box::new(call));
        }
    }

    /// When the measured part begins, ns by this machine's clock, if the group has
    /// said so.
    pub fn measure(&self) -> Option<u64> {
        self.state().measure
    }

    /// Whether nobody wants to know what it saw.
    pub fn abandoned(&self) -> bool {
        self.state().abandoned
    }

    fn go(&self, at: u64) {
        self.state().start = Some(at);
        self.0.changed.notify_all();
    }

    fn end(&self, abandon: bool) {
        let mut state = self.state();
        state.ended = true;
        state.abandoned |= abandon;
        let call = state.on_end.take();
        drop(state);
        self.0.changed.notify_all();
        if let Some(call) = call {
            call();
        }
    }
}

enum FromWorker {
    Ready,
    Began(u64),
    Interval(Vec<u8>),
    Finished(Result<Vec<u8>, String>),
}

enum ForWorker {
    Work(Box<Work>, Line),
    News(News),
    /// There will be no more.
    End(Result<(), DirectoryError>),
}

/// Ends an agent from outside: from a signal handler's thread, say.
#[derive(Debug, Clone)]
pub struct Quit(tokio::sync::watch::Sender<bool>);

impl Default for Quit {
    fn default() -> Self {
        Quit(tokio::sync::watch::Sender::new(false))
    }
}

impl Quit {
    /// Asks the agent to end. A load that runs is ended, and its group told.
    pub fn quit(&self) {
        self.0.send_replace(true);
    }
}

/// Waits for work and does it, until it is told to end; with `once`, until the first
/// group is over.
///
/// # Errors
///
/// That ZooKeeper cannot be reached at the start. Later it is waited for.
pub fn serve(joining: &Joining, quit: &Quit, worker: &mut dyn Worker) -> Result<(), DirectoryError> {
    let (jobs, asked) = blocking::channel();
    let (out, done) = mpsc::unbounded_channel();
    let (joining, quitting, back) = (joining.clone(), quit.0.subscribe(), out.clone());
    let network = thread::Builder::new().name("agent".to_owned()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = jobs.send(ForWorker::News(News::Trouble(error.to_string())));
                return;
            }
        };
        let mut life = Life {
            joining,
            jobs: jobs.clone(),
            done,
            out: back,
            busy: None,
            announced: None,
            told: None,
            quitting,
        };
        let ended = runtime.block_on(life.live());
        let _ = jobs.send(ForWorker::End(ended));
        runtime.shutdown_timeout(Duration::from_millis(100));
    });
    while let Ok(job) = asked.recv() {
        match job {
            ForWorker::Work(work, line) => {
                let result = worker.work(*work, &line);
                let _ = out.send(FromWorker::Finished(result));
            }
            ForWorker::News(news) => worker.news(news),
            ForWorker::End(ended) => {
                if let Ok(network) = network {
                    let _ = network.join();
                }
                return ended;
            }
        }
    }
    Ok(())
}

/// The part of an agent that the network sees.
struct Life {
    joining: Joining,
    jobs: blocking::Sender<ForWorker>,
    done: UnboundedReceiver<FromWorker>,
    out: UnboundedSender<FromWorker>,
    /// The line of the load that runs.
    busy: Option<Line>,
    /// The node by which it is found.
    announced: Option<String>,
    /// What was told last.
    told: Option<News>,
    quitting: tokio::sync::watch::Receiver<bool>,
}

impl Life {
    fn news(&mut self, news: News) {
        // What is tried again and again is said once.
        if self.told.as_ref() != Some(&news) {
            self.told = Some(news.clone());
            let _ = self.jobs.send(ForWorker::News(news));
        }
    }

    async fn live(&mut self) -> Result<(), DirectoryError> {
        let mut directory = self.open().await?;
        while !*self.quitting.borrow() {
            if directory.is_over() {
                match self.open().await {
                    Ok(opened) => {
                        directory = opened;
                        self.announced = None;
                    }
                    Err(error) => {
                        self.news(News::Trouble(error.to_string()));
                        self.pause().await;
                        continue;
                    }
                }
            }
            let leader = match self.wait_for_work(&directory).await {
                Ok(Some(leader)) => leader,
                Ok(None) => continue,
                Err(error) => {
                    self.news(News::Trouble(error.to_string()));
                    self.pause().await;
                    continue;
                }
            };
            let why = self.belong(&directory, &leader).await;
            self.news(News::Parted(why));
            self.end_load().await;
            if self.joining.once {
                break;
            }
        }
        Ok(())
    }

    /// A load that was given up may still be ending.
    async fn end_load(&mut self) {
        let Some(line) = self.busy.take() else { return };
        line.end(true);
        let timeout = self.joining.timeout;
        let ended = async |done: &mut UnboundedReceiver<FromWorker>| {
            while let Some(said) = done.recv().await {
                if matches!(said, FromWorker::Finished(_)) {
                    break;
                }
            }
        };
        if time::timeout(timeout, ended(&mut self.done)).await.is_err() {
            self.news(News::Trouble(format!(
                "the load that was given up has not ended after {timeout:?}: its store does not answer. There is no \
                 other work here before it has"
            )));
            ended(&mut self.done).await;
        }
    }

    async fn open(&self) -> Result<Directory, DirectoryError> {
        Directory::open(&self.joining.cluster, &self.joining.root, self.joining.timeout).await
    }

    async fn pause(&mut self) {
        let quitting = self.quitting.wait_for(|quit| *quit);
        let _ = time::timeout(AGAIN, quitting).await;
    }

    /// Who calls. `None` when it must announce itself anew, or end.
    async fn wait_for_work(&mut self, directory: &Directory) -> Result<Option<Leader>, DirectoryError> {
        // What was announced before something went wrong may still be there: two nodes would be two
        // agents.
        let node = match &self.announced {
            Some(node) if directory.agent(node).await?.is_some() => node.clone(),
            _ => directory.announce(&self.joining.facts).await?,
        };
        self.announced = Some(node.clone());
        self.news(News::Waiting);
        loop {
            let Some((agent, changed)) = directory.agent(&node).await? else { return Ok(None) };
            if let Some(leader) = agent.called {
                directory.retire(&node).await?;
                self.announced = None;
                return Ok(Some(leader));
            }
            tokio::select! {
                _ = changed.changed() => {}
                _ = self.quitting.wait_for(|quit| *quit) => {
                    directory.retire(&node).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Belongs to a group until it is over. Why it is.
    async fn belong(&mut self, directory: &Directory, leader: &Leader) -> String {
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
        tokio::spawn(async move {
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
            member: Member::new(timeout_ms * 1_000_000, now),
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
            ToClient::Stop => Event::Stop,
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
        let end = |life: &Life, abandon| {
            if let Some(line) = &life.busy {
                line.end(abandon);
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
                end(self, true);
            }
            Action::End => end(self, false),
            Action::Leave => {
                belonging.say(ToCoordinator::Left);
                belonging.stand.at(format!("{}/left/{}", belonging.phase, belonging.client));
            }
            Action::Abandon => {
                end(self, true);
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
