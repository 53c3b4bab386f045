//! A client process of a group: an agent that waits for work, or a process that has joined
//! a group by itself.
//!
//! What goes over the network lives on a thread of its own, so that questions about
//! the clock are answered at once; the load runs on the thread that called.

mod belonging;
mod line;

pub use line::Line;

use crate::{
    directory::{Directory, DirectoryError, Leader},
    message::{ClientFacts, Work},
};
use std::{sync::mpsc as blocking, thread, time::Duration};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time,
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
        line.end();
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
        let is_there = async |node: &str| match directory.agent(node).await {
            Ok(found) => Ok(found.is_some()),
            // Somebody else has written it: nobody would call by it any more.
            Err(DirectoryError::Foreign { .. }) => directory.retire(node).await.map(|()| false),
            Err(error) => Err(error),
        };
        let node = match &self.announced {
            Some(node) if is_there(node).await? => node.clone(),
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
}
