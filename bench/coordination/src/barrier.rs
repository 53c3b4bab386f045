//! YCSB++'s own way (SoCC 2011, 2.3.1): clients that were started one by one meet at a barrier before a phase and
//! leave it by another, and nobody coordinates them.
//!
//! ```text
//! PLACE/in/NAME     ephemeral   a client that has come
//! PLACE/open        persistent  names of those that may begin: written by whoever sees that all have come
//! PLACE/out/NAME    ephemeral   a client that has done its part
//! PLACE/done        persistent  names of those that have left together
//! ```
//!
//! A client passes when a list has its name, so that all who pass agree on who they are, even
//! if one dies in that moment. Names have the session's number in them: what an
//! earlier meeting has left, at whatever end, has none of them. Nobody counts a node of a client that is
//! dead, for it goes with its session.

use crate::directory::{Directory, DirectoryError};
use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{self as blocking, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{self, Instant},
};

/// How often is looked whether somebody has died, or has come in another way than was told.
const LOOK: Duration = Duration::from_millis(500);

/// How often whoever waits is asked whether it shall go on.
const TICK: Duration = Duration::from_millis(50);

/// Where clients meet.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// ZooKeeper's address.
    pub cluster: String,
    /// The node that the barrier is at.
    pub place: String,
    /// How many meet.
    pub size: usize,
    /// What people call this client: `host (process 4711)`.
    pub name: String,
    /// Time in which all must have come.
    pub wait: Duration,
    /// Silence after which a client's session, and with it the client, is gone.
    pub timeout: Duration,
}

/// Why clients did not meet.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// ZooKeeper.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Some are missing.
    #[error(
        "at the barrier {place} {came} of {size} clients came within {within:?} (coordination.wait): {}. Start the \
         others, or check barrier-size and that all have the same barrier-zkServer and barrier-zkRoot",
        names.join(", ")
    )]
    Missing {
        /// The barrier.
        place: String,
        /// How many are there.
        came: usize,
        /// How many were awaited.
        size: usize,
        /// How long.
        within: Duration,
        /// Those that are there.
        names: Vec<String>,
    },
    /// Too many.
    #[error(
        "the barrier {place} was passed by {size} other clients: more have come than barrier-size says. Start as many \
         as meet, or give others another barrier-zkRoot"
    )]
    Full {
        /// The barrier.
        place: String,
        /// How many meet.
        size: usize,
    },
    /// Some do not leave.
    #[error("at the barrier {place} some clients do not leave: {}", names.join(", "))]
    Staying {
        /// The barrier.
        place: String,
        /// Who.
        names: Vec<String>,
    },
    /// Somebody asked for the end.
    #[error("interrupted at the barrier")]
    Interrupted,
    /// The system.
    #[error("cannot wait at a barrier: {0}")]
    System(#[from] std::io::Error),
}

enum Asked {
    Enter,
    Leave(Option<Duration>),
}

/// A client's place at a barrier. Dropping it gives the place up.
#[derive(Debug)]
pub struct Barrier {
    asked: Option<UnboundedSender<Asked>>,
    thread: Option<JoinHandle<()>>,
    answers: Mutex<blocking::Receiver<Result<Vec<String>, BarrierError>>>,
}

impl Barrier {
    /// Makes ready to meet. Nobody is told before [`Barrier::enter`].
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new(meeting: Meeting) -> Result<Barrier, BarrierError> {
        let (asked, mut asking) = mpsc::unbounded_channel();
        let (answer, answers) = blocking::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The session is to live while a load runs on all other threads.
        let thread = thread::Builder::new().name("barrier".to_owned()).spawn(move || {
            runtime.block_on(attend(&meeting, &mut asking, &answer));
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Barrier { asked: Some(asked), thread: Some(thread), answers: Mutex::new(answers) })
    }

    /// Comes, and waits until all have. Those that have, this one too, in words.
    ///
    /// # Errors
    ///
    /// That not all come in time, that more do, those of ZooKeeper, and that `interrupted` says so.
    pub fn enter(&self, interrupted: &dyn Fn() -> bool) -> Result<Vec<String>, BarrierError> {
        self.ask(Asked::Enter, interrupted)
    }

    /// Has done its part, and waits until all others have that live; `within` this time, if there is a limit. Those
    /// that died, in words.
    ///
    /// # Errors
    ///
    /// That some live and do not leave in time, those of ZooKeeper, and that `interrupted` says so.
    pub fn leave(
        &self,
        within: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>, BarrierError> {
        self.ask(Asked::Leave(within), interrupted)
    }

    fn ask(&self, asked: Asked, interrupted: &dyn Fn() -> bool) -> Result<Vec<String>, BarrierError> {
        if let Some(asking) = &self.asked {
            let _ = asking.send(asked);
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match answers.recv_timeout(TICK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if interrupted() => return Err(BarrierError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(BarrierError::Interrupted),
            }
        }
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a client is called in nodes: its words, and the session that its nodes go with.
fn node(meeting: &Meeting, directory: &Directory) -> String {
    let words: String =
        meeting.name.chars().map(|c| if c == '/' || c.is_control() { '-' } else { c }).collect();
    format!("{words} {:016x}", directory.session_id())
}

/// A client as people call it.
fn words(node: &str) -> String {
    node.rsplit_once(' ').map_or(node, |(words, _)| words).to_owned()
}

async fn attend(
    meeting: &Meeting,
    asking: &mut UnboundedReceiver<Asked>,
    answer: &blocking::Sender<Result<Vec<String>, BarrierError>>,
) {
    let mut here = None;
    while let Some(asked) = asking.recv().await {
        let done = async {
            match (asked, &here) {
                (Asked::Enter, _) => {
                    let (came, names) = enter(meeting).await?;
                    here = Some(came);
                    Ok(names)
                }
                (Asked::Leave(within), Some(came)) => leave(meeting, came, within).await,
                // Nobody leaves what it has not come to.
                (Asked::Leave(_), None) => Ok(Vec::new()),
            }
        };
        let done = tokio::select! {
            done = done => done,
            // Whoever waited has given up.
            _ = asking.recv() => break,
        };
        if answer.send(done).is_err() {
            break;
        }
    }
    // So that the session's end is told, and its nodes go at once.
    drop(here);
    time::sleep(TICK).await;
}

/// One that stands at a barrier.
struct Here {
    directory: Directory,
    node: String,
    members: Vec<String>,
}

/// Repeats what ZooKeeper could not do while it was away, as long as there is time.
async fn patiently<T>(
    directory: &Directory,
    until: Option<Instant>,
    doing: impl AsyncFn() -> Result<T, DirectoryError>,
) -> Result<T, DirectoryError> {
    loop {
        match doing().await {
            Err(error) if directory.is_over() || until.is_some_and(|until| Instant::now() >= until) => {
                return Err(error);
            }
            Err(_) => time::sleep(TICK).await,
            done => return done,
        }
    }
}

async fn enter(meeting: &Meeting) -> Result<(Here, Vec<String>), BarrierError> {
    let until = Instant::now() + meeting.wait;
    loop {
        let directory = Directory::connect(&meeting.cluster, &meeting.place, meeting.timeout).await?;
        let node = node(meeting, &directory);
        match gather(meeting, &directory, &node, until).await {
            Ok(members) => {
                let names = members.iter().map(|member| words(member)).collect();
                return Ok((Here { directory, node, members }, names));
            }
            // A session that is over took the place with it: come anew.
            Err(BarrierError::Directory(_)) if directory.is_over() && Instant::now() < until => {}
            Err(error) => return Err(error),
        }
    }
}

async fn gather(
    meeting: &Meeting,
    directory: &Directory,
    node: &str,
    until: Instant,
) -> Result<Vec<String>, BarrierError> {
    let limit = Some(until);
    patiently(directory, limit, async || directory.come("in", node).await).await?;
    loop {
        let looked = patiently(directory, limit, async || {
            let (members, changed) = directory.list_of("open").await?;
            let here = directory.names("in").await?;
            Ok((members, changed, here))
        });
        let ((members, version), changed, here) = looked.await?;
        if members.iter().any(|member| member == node) {
            return Ok(members);
        }
        // Those of the meeting before this one must have gone.
        if here.len() >= meeting.size && !members.iter().any(|member| here.contains(member)) {
            // Those that came first, by the number of their nodes.
            let first: Vec<String> = here.iter().take(meeting.size).cloned().collect();
            if first.iter().any(|member| member == node) {
                patiently(directory, limit, async || directory.write_list("open", &first, version).await)
                    .await?;
                continue;
            }
        }
        if Instant::now() >= until {
            let place = directory.place().to_owned();
            // The barrier was opened for others that are here.
            if members.iter().any(|member| here.contains(member)) {
                return Err(BarrierError::Full { place, size: meeting.size });
            }
            let names = here.iter().map(|member| words(member)).collect();
            return Err(BarrierError::Missing {
                place,
                came: here.len(),
                size: meeting.size,
                within: meeting.wait,
                names,
            });
        }
        let next = until.min(Instant::now() + LOOK);
        let _ = time::timeout_at(next, changed.changed()).await;
    }
}

async fn leave(
    meeting: &Meeting,
    here: &Here,
    within: Option<Duration>,
) -> Result<Vec<String>, BarrierError> {
    let Here { directory, node, members } = here;
    let until = within.map(|within| Instant::now() + within);
    let died = |left: &[String]| -> Vec<String> {
        members.iter().filter(|member| !left.contains(member)).map(|member| words(member)).collect()
    };
    if directory.is_over() {
        // The others have left without this one, or are dead for all that is known.
        let anew = Directory::connect(&meeting.cluster, &meeting.place, meeting.timeout).await?;
        let ((left, _), _) = anew.list_of("done").await?;
        return Ok(died(&left));
    }
    patiently(directory, until, async || directory.come("out", node).await).await?;
    loop {
        let looked = patiently(directory, until, async || {
            let (left, changed) = directory.list_of("done").await?;
            Ok((left, changed, directory.names("out").await?, directory.names("in").await?))
        });
        let ((left, version), changed, out, inside) = looked.await?;
        if left.iter().any(|member| member == node) {
            return Ok(died(&left));
        }
        let staying: Vec<&String> =
            members.iter().filter(|member| inside.contains(member) && !out.contains(member)).collect();
        if staying.is_empty() {
            let mut together: Vec<String> =
                members.iter().filter(|member| out.contains(member)).cloned().collect();
            if !together.contains(node) {
                together.push(node.clone());
            }
            patiently(directory, until, async || directory.write_list("done", &together, version).await)
                .await?;
            continue;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let names = staying.into_iter().map(|member| words(member)).collect();
            return Err(BarrierError::Staying { place: directory.place().to_owned(), names });
        }
        let next = Instant::now() + LOOK;
        let _ = time::timeout_at(until.map_or(next, |until| until.min(next)), changed.changed()).await;
    }
}
