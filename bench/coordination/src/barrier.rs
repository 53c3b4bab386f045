//! YCSB++'s barriers (SoCC 2011, 2.3.1): clients without a coordinator wait for each other before a phase and
//! after it.
//!
//! ```text
//! PLACE/in/NAME     ephemeral   a client that has arrived
//! PLACE/open        persistent  names of the clients that may start: written by a client that sees all of them
//! PLACE/out/NAME    ephemeral   a client that has done its part
//! PLACE/done        persistent  names of the clients that have left together
//! ```
//!
//! A client passes when a list has its name. All clients that pass therefore agree on the list, even
//! if one dies at that moment. Names contain the ZooKeeper session's number, so lists of earlier
//! meetings have none of them. A dead client's node disappears with its session.

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

/// Interval at which the nodes are listed, in case a change was not reported.
const RELIST: Duration = Duration::from_millis(500);

/// Interval at which `interrupted` is called; also the pause before a failed request is repeated.
const TICK: Duration = Duration::from_millis(50);

/// Options of a barrier.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// ZooKeeper's address.
    pub cluster: String,
    /// Node of the barrier.
    pub place: String,
    /// Number of clients that meet.
    pub size: usize,
    /// This client's name in messages: `host (process 4711)`.
    pub name: String,
    /// Time limit for all clients to arrive.
    pub wait: Duration,
    /// Silence after which a client counts as dead.
    pub timeout: Duration,
}

/// Error of waiting at a barrier.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// ZooKeeper failed.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Some clients did not arrive in time.
    #[error(
        "at the barrier {place} {came} of {size} clients arrived within {within:?} (coordination.wait): {}. Start the \
         others, or check barrier-size and that all have the same barrier-zkServer and barrier-zkRoot",
        names.join(", ")
    )]
    Missing {
        /// The barrier.
        place: String,
        /// Number of clients that arrived.
        came: usize,
        /// Number of clients expected.
        size: usize,
        /// Time limit.
        within: Duration,
        /// Clients that arrived.
        names: Vec<String>,
    },
    /// More clients arrived than expected.
    #[error(
        "the barrier {place} was passed by {size} other clients: more joined than barrier-size says. Start as many \
         as meet, or give others another barrier-zkRoot"
    )]
    Full {
        /// The barrier.
        place: String,
        /// Number of clients that meet.
        size: usize,
    },
    /// Some clients did not leave in time.
    #[error("at the barrier {place} some clients do not leave: {}", names.join(", "))]
    Staying {
        /// The barrier.
        place: String,
        /// Clients that did not leave.
        names: Vec<String>,
    },
    /// The user requested the end.
    #[error("interrupted at the barrier")]
    Interrupted,
    /// The operating system refused a resource, such as a thread.
    #[error("cannot wait at a barrier: {0}")]
    System(#[from] std::io::Error),
}

enum BarrierRequest {
    Enter,
    Leave(Option<Duration>),
}

/// A client at a barrier. Dropping it leaves without waiting.
#[derive(Debug)]
pub struct Barrier {
    asked: Option<UnboundedSender<BarrierRequest>>,
    thread: Option<JoinHandle<()>>,
    answers: Mutex<blocking::Receiver<Result<Vec<String>, BarrierError>>>,
}

impl Barrier {
    /// Prepares a barrier. Other clients see this one after [`Barrier::enter`].
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn new(meeting: Meeting) -> Result<Barrier, BarrierError> {
        let (asked, mut asking) = mpsc::unbounded_channel();
        let (answer, answers) = blocking::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The session must stay alive while a load runs on all other threads.
        let thread = thread::Builder::new().name("barrier".to_owned()).spawn(move || {
            runtime.block_on(attend(&meeting, &mut asking, &answer));
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Barrier { asked: Some(asked), thread: Some(thread), answers: Mutex::new(answers) })
    }

    /// Waits until all clients have arrived. Returns their names, including this client's.
    ///
    /// # Errors
    ///
    /// Too few clients arrive in time, too many arrive, ZooKeeper fails, or `interrupted` returns true.
    pub fn enter(&self, interrupted: &dyn Fn() -> bool) -> Result<Vec<String>, BarrierError> {
        self.ask(BarrierRequest::Enter, interrupted)
    }

    /// Waits, for at most `within`, until all live clients have done their part. Returns the names of the clients
    /// that died.
    ///
    /// # Errors
    ///
    /// Live clients do not leave in time, ZooKeeper fails, or `interrupted` returns true.
    pub fn leave(
        &self,
        within: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>, BarrierError> {
        self.ask(BarrierRequest::Leave(within), interrupted)
    }

    fn ask(
        &self,
        asked: BarrierRequest,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>, BarrierError> {
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

/// Returns the name of a client's nodes: its name in messages and its session's number.
fn node(meeting: &Meeting, directory: &Directory) -> String {
    let name: String =
        meeting.name.chars().map(|c| if c == '/' || c.is_control() { '-' } else { c }).collect();
    format!("{name} {:016x}", directory.session_id())
}

/// Returns a client's name in messages, from the name of its nodes.
fn client_name(node: &str) -> String {
    node.rsplit_once(' ').map_or(node, |(name, _)| name).to_owned()
}

async fn attend(
    meeting: &Meeting,
    asking: &mut UnboundedReceiver<BarrierRequest>,
    answer: &blocking::Sender<Result<Vec<String>, BarrierError>>,
) {
    let mut attendee = None;
    while let Some(asked) = asking.recv().await {
        let done = async {
            match (asked, &attendee) {
                (BarrierRequest::Enter, _) => {
                    let (entered, names) = enter(meeting).await?;
                    attendee = Some(entered);
                    Ok(names)
                }
                (BarrierRequest::Leave(within), Some(entered)) => leave(meeting, entered, within).await,
                // A client that has not entered has nothing to leave.
                (BarrierRequest::Leave(_), None) => Ok(Vec::new()),
            }
        };
        let done = tokio::select! {
            done = done => done,
            // The caller has given up.
            _ = asking.recv() => break,
        };
        if answer.send(done).is_err() {
            break;
        }
    }
    // Gives the session time to close, which removes its nodes at once.
    drop(attendee);
    time::sleep(TICK).await;
}

/// A client that has entered.
struct Attendee {
    directory: Directory,
    node: String,
    members: Vec<String>,
}

/// Retries a request that ZooKeeper fails, until a time limit.
async fn retry<T>(
    directory: &Directory,
    until: Option<Instant>,
    request: impl AsyncFn() -> Result<T, DirectoryError>,
) -> Result<T, DirectoryError> {
    loop {
        match request().await {
            Err(error) if directory.is_over() || until.is_some_and(|until| Instant::now() >= until) => {
                return Err(error);
            }
            Err(_) => time::sleep(TICK).await,
            done => return done,
        }
    }
}

async fn enter(meeting: &Meeting) -> Result<(Attendee, Vec<String>), BarrierError> {
    let until = Instant::now() + meeting.wait;
    loop {
        let directory = Directory::connect(&meeting.cluster, &meeting.place, meeting.timeout).await?;
        let node = node(meeting, &directory);
        match gather(meeting, &directory, &node, until).await {
            Ok(members) => {
                let names = members.iter().map(|member| client_name(member)).collect();
                return Ok((Attendee { directory, node, members }, names));
            }
            // The session ended and its node with it: enter again.
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
    retry(directory, limit, async || directory.create_ephemeral("in", node).await).await?;
    loop {
        let reading = retry(directory, limit, async || {
            let (members, changed) = directory.list_of("open").await?;
            let present = directory.names("in").await?;
            Ok((members, changed, present))
        });
        let ((members, version), changed, present) = reading.await?;
        if members.iter().any(|member| member == node) {
            return Ok(members);
        }
        // The clients of the last meeting must have left.
        if present.len() >= meeting.size && !members.iter().any(|member| present.contains(member)) {
            // The first to arrive, by their nodes' transaction numbers.
            let first: Vec<String> = present.iter().take(meeting.size).cloned().collect();
            if first.iter().any(|member| member == node) {
                retry(directory, limit, async || directory.write_list("open", &first, version).await).await?;
                continue;
            }
        }
        if Instant::now() >= until {
            let place = directory.place().to_owned();
            // The barrier was opened for other clients that are present.
            if members.iter().any(|member| present.contains(member)) {
                return Err(BarrierError::Full { place, size: meeting.size });
            }
            let names = present.iter().map(|member| client_name(member)).collect();
            return Err(BarrierError::Missing {
                place,
                came: present.len(),
                size: meeting.size,
                within: meeting.wait,
                names,
            });
        }
        let next = until.min(Instant::now() + RELIST);
        let _ = time::timeout_at(next, changed.changed()).await;
    }
}

async fn leave(
    meeting: &Meeting,
    attendee: &Attendee,
    within: Option<Duration>,
) -> Result<Vec<String>, BarrierError> {
    let Attendee { directory, node, members } = attendee;
    let until = within.map(|within| Instant::now() + within);
    let died = |left: &[String]| -> Vec<String> {
        members.iter().filter(|member| !left.contains(member)).map(|member| client_name(member)).collect()
    };
    if directory.is_over() {
        // The others have left without this client, or cannot be distinguished from dead ones.
        let directory = Directory::connect(&meeting.cluster, &meeting.place, meeting.timeout).await?;
        let ((left, _), _) = directory.list_of("done").await?;
        return Ok(died(&left));
    }
    retry(directory, until, async || directory.create_ephemeral("out", node).await).await?;
    loop {
        let reading = retry(directory, until, async || {
            let (left, changed) = directory.list_of("done").await?;
            Ok((left, changed, directory.names("out").await?, directory.names("in").await?))
        });
        let ((left, version), changed, out, inside) = reading.await?;
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
            retry(directory, until, async || directory.write_list("done", &together, version).await).await?;
            continue;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let names = staying.into_iter().map(|member| client_name(member)).collect();
            return Err(BarrierError::Staying { place: directory.place().to_owned(), names });
        }
        let next = Instant::now() + RELIST;
        let _ = time::timeout_at(until.map_or(next, |until| until.min(next)), changed.changed()).await;
    }
}
