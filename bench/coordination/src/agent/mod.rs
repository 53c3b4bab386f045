//! A client process of a group: an agent that waits for work, or a process that joins one group.
//!
//! The network has a thread of its own, which answers questions about the clock
//! at once. The work runs on the calling thread.

mod job;
mod membership;

pub use job::JobHandle;

use crate::{
    directory::{Directory, DirectoryError, Leader},
    message::{ClientFacts, Work},
};
use std::{sync::mpsc as blocking, thread, time::Duration};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time,
};

/// Pause before a failed attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Options of an agent.
#[derive(Debug, Clone)]
pub struct Joining {
    /// ZooKeeper's address.
    pub cluster: String,
    /// Node below which Serval keeps all its nodes.
    pub root: String,
    /// Silence after which the ZooKeeper session or the coordinator counts as dead.
    pub timeout: Duration,
    /// Whether the agent ends after one group.
    pub once: bool,
    /// Facts about this process, for coordinators.
    pub facts: ClientFacts,
    /// Monotonic clock, ns.
    pub clock: fn() -> u64,
}

/// Event of an agent, for its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// The agent waits for work.
    Waiting,
    /// The agent joined a group: its number, and the coordinator's name.
    Joined(u64, String),
    /// The agent left the group, or the group is over; the reason.
    Parted(String),
    /// A request failed and will be retried.
    Trouble(String),
}

/// Performer of an agent's work.
pub trait Worker {
    /// Performs this client's part of a phase and returns its measurements. Calls [`JobHandle::ready`] when it is ready
    /// to start.
    ///
    /// # Errors
    ///
    /// The reason why the work failed.
    fn work(&mut self, work: Work, job: &JobHandle) -> Result<Vec<u8>, String>;
    /// Shows an event to the user.
    fn on_event(&mut self, event: AgentEvent);
}

enum FromWorker {
    Ready,
    Began(u64),
    Interval(Vec<u8>),
    Finished(Result<Vec<u8>, String>),
}

enum ForWorker {
    Work(Box<Work>, JobHandle),
    Event(AgentEvent),
    /// The last message.
    End(Result<(), DirectoryError>),
}

/// Ends an agent from another thread, such as a signal handler's.
#[derive(Debug, Clone)]
pub struct Quit(tokio::sync::watch::Sender<bool>);

impl Default for Quit {
    fn default() -> Self {
        Quit(tokio::sync::watch::Sender::new(false))
    }
}

impl Quit {
    /// Asks the agent to end. The agent stops its running work and notifies its group.
    pub fn quit(&self) {
        self.0.send_replace(true);
    }
}

async fn quit_requested(quitting: &mut tokio::sync::watch::Receiver<bool>) {
    // A dropped sender counts as a request.
    let _ = quitting.wait_for(|quit| *quit).await;
}

/// Waits for work and performs it until `quit` is requested; with [`Joining::once`], until the first group is over.
///
/// # Errors
///
/// ZooKeeper's address is not valid, or ZooKeeper refuses to create Serval's nodes at the start. Waits for a ZooKeeper
/// that is not up, and retries later failures.
pub fn serve(joining: &Joining, quit: &Quit, worker: &mut dyn Worker) -> Result<(), DirectoryError> {
    let (jobs, asked) = blocking::channel();
    let (out, done) = mpsc::unbounded_channel();
    let (joining, quitting, back) = (joining.clone(), quit.0.subscribe(), out.clone());
    let network = thread::Builder::new().name("agent".to_owned()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = jobs.send(ForWorker::Event(AgentEvent::Trouble(error.to_string())));
                return;
            }
        };
        let mut session = AgentSession {
            joining,
            jobs: jobs.clone(),
            done,
            out: back,
            job: None,
            announced: None,
            last_event: None,
            quitting,
        };
        let ended = runtime.block_on(session.run());
        let _ = jobs.send(ForWorker::End(ended));
        runtime.shutdown_timeout(Duration::from_millis(100));
    });
    while let Ok(job) = asked.recv() {
        match job {
            ForWorker::Work(work, job) => {
                let result = worker.work(*work, &job);
                let _ = out.send(FromWorker::Finished(result));
            }
            ForWorker::Event(event) => worker.on_event(event),
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

/// Network side of an agent.
struct AgentSession {
    joining: Joining,
    jobs: blocking::Sender<ForWorker>,
    done: UnboundedReceiver<FromWorker>,
    out: UnboundedSender<FromWorker>,
    /// The running work.
    job: Option<JobHandle>,
    /// Node by which coordinators find this agent.
    announced: Option<String>,
    /// The last event that was reported.
    last_event: Option<AgentEvent>,
    quitting: tokio::sync::watch::Receiver<bool>,
}

impl AgentSession {
    fn report(&mut self, event: AgentEvent) {
        // A failure that repeats is reported once.
        if self.last_event.as_ref() != Some(&event) {
            self.last_event = Some(event.clone());
            let _ = self.jobs.send(ForWorker::Event(event));
        }
    }

    async fn run(&mut self) -> Result<(), DirectoryError> {
        let Some(mut directory) = self.open_first().await? else { return Ok(()) };
        while !*self.quitting.borrow() {
            if directory.is_over() {
                match self.open().await {
                    Ok(opened) => {
                        directory = opened;
                        self.announced = None;
                    }
                    Err(error) => {
                        self.report(AgentEvent::Trouble(error.to_string()));
                        self.pause().await;
                        continue;
                    }
                }
            }
            let leader = match self.wait_for_work(&directory).await {
                Ok(Some(leader)) => leader,
                Ok(None) => continue,
                Err(error) => {
                    self.report(AgentEvent::Trouble(error.to_string()));
                    self.pause().await;
                    continue;
                }
            };
            let why = self.serve_group(&directory, &leader).await;
            self.report(AgentEvent::Parted(why));
            self.end_job_and_wait().await;
            if self.joining.once {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the end of abandoned work.
    async fn end_job_and_wait(&mut self) {
        let Some(job) = self.job.take() else { return };
        job.end();
        let timeout = self.joining.timeout;
        let ended = async |done: &mut UnboundedReceiver<FromWorker>| {
            while let Some(message) = done.recv().await {
                if matches!(message, FromWorker::Finished(_)) {
                    break;
                }
            }
        };
        if time::timeout(timeout, ended(&mut self.done)).await.is_err() {
            self.report(AgentEvent::Trouble(format!(
                "the load of the group that ended has not stopped within {timeout:?}: its store does not answer. This \
                 agent accepts no other work until it stops"
            )));
            ended(&mut self.done).await;
        }
    }

    /// Opens the first session, once ZooKeeper is up. Returns `None` if the agent must end before.
    async fn open_first(&mut self) -> Result<Option<Directory>, DirectoryError> {
        while !*self.quitting.borrow() {
            let mut quitting = self.quitting.clone();
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = quit_requested(&mut quitting) => break,
            };
            match opened {
                Ok(directory) => return Ok(Some(directory)),
                Err(error) if error.may_pass() => {
                    self.report(AgentEvent::Trouble(error.to_string()));
                    self.pause().await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn open(&self) -> Result<Directory, DirectoryError> {
        Directory::open(&self.joining.cluster, &self.joining.root, self.joining.timeout).await
    }

    async fn pause(&mut self) {
        let quitting = self.quitting.wait_for(|quit| *quit);
        let _ = time::timeout(RETRY_PAUSE, quitting).await;
    }

    /// Waits until a coordinator calls this agent. Returns `None` if the agent
    /// must announce itself again, or end.
    async fn wait_for_work(&mut self, directory: &Directory) -> Result<Option<Leader>, DirectoryError> {
        // A node that was announced before a failure may still exist; a second node would
        // look like a second agent.
        let exists = async |node: &str| match directory.agent(node).await {
            Ok(found) => Ok(found.is_some()),
            // Another program has written to it: no coordinator could use it.
            Err(DirectoryError::Foreign { .. }) => directory.retire(node).await.map(|()| false),
            Err(error) => Err(error),
        };
        let node = match &self.announced {
            Some(node) if exists(node).await? => node.clone(),
            _ => directory.announce(&self.joining.facts).await?,
        };
        self.announced = Some(node.clone());
        self.report(AgentEvent::Waiting);
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
}
