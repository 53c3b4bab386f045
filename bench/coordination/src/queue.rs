//! A queue in ZooKeeper between processes: persistent sequential nodes below one node. Who
//! deletes one has it.
//!
//! Neither end waits for ZooKeeper. What is offered goes to a thread by a bounded buffer, and from
//! there to ZooKeeper with many requests on their way at a time; what is taken was brought by such
//! a thread before. What cannot be carried is counted: a buffer that is full, as many nodes as there
//! may be, a request that failed.

use crate::directory::DirectoryError;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc as blocking,
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore, mpsc, watch},
    task::JoinSet,
    time,
};
use zookeeper_client::{Acls, Client as Session, CreateMode, CreateOptions, Error};

/// What waits to be sent at most.
const BUFFER: usize = 10_000;

/// Requests on their way at a time: enough that ZooKeeper writes its log for many at once.
const PIPELINE: usize = 256;

/// What was brought and not taken yet, at most. Little, for others may have time for it.
const BROUGHT_MAX: usize = 64;

/// Bytes of an item at most.
pub const ITEM_MAX: usize = 64 << 10;

/// How often the nodes are counted.
const COUNTING: Duration = Duration::from_millis(250);

/// Pause before something is tried again that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// What names of nodes begin with.
const PREFIX: &str = "k-";

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const SEQUENTIAL: CreateOptions<'static> = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());

/// Where a queue is.
#[derive(Debug, Clone)]
pub struct Place {
    /// ZooKeeper's address, `host:2181`, or several with commas between.
    pub cluster: String,
    /// The node that the items are below.
    pub node: String,
    /// Silence after which ZooKeeper is given up.
    pub timeout: Duration,
    /// Items that there may be at a time.
    pub max: usize,
}

impl Place {
    fn path(&self) -> String {
        format!("/{}", self.node.trim_matches('/'))
    }

    async fn connect(&self) -> Result<Session, DirectoryError> {
        let cluster = self.cluster.clone();
        let connecting =
            Session::connector().with_session_timeout(self.timeout).with_fail_eagerly().connect(&cluster);
        match time::timeout(self.timeout, connecting).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(DirectoryError::Unreachable { cluster, error }),
            Err(_) => Err(DirectoryError::Silent { cluster, within: self.timeout }),
        }
    }

    /// A session, with the queue's node made.
    async fn open(&self) -> Result<Session, DirectoryError> {
        let session = self.connect().await?;
        let path = self.path();
        match time::timeout(self.timeout, session.mkdir(&path, &PERSISTENT)).await {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(DirectoryError::Request {
                cluster: self.cluster.clone(),
                what: format!("make the queue {path}"),
                error,
            }),
            Err(_) => Err(DirectoryError::Silent { cluster: self.cluster.clone(), within: self.timeout }),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    dropped: AtomicU64,
    earlier: AtomicU64,
    /// Offered and not in ZooKeeper yet.
    unsent: AtomicUsize,
    brought: Mutex<std::collections::VecDeque<Vec<u8>>>,
    /// Whether items are wanted: not before a consumer asks.
    consuming: AtomicBool,
    /// What was not sent by now is counted as dropped already.
    given_up: AtomicBool,
    /// Whether somebody wants to know that nothing is left, and whether that is known.
    closing: AtomicBool,
    drained: AtomicBool,
    /// Wakes what waits for new items, for that.
    asked: Notify,
}

/// One process's ends of a queue. Dropping it ends its thread.
pub struct ZooKeeperQueue {
    place: Place,
    offers: mpsc::Sender<Vec<u8>>,
    shared: Arc<Shared>,
    wanted: watch::Sender<bool>,
    over: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ZooKeeperQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeperQueue({} at {})", self.place.path(), self.place.cluster)
    }
}

impl ZooKeeperQueue {
    /// Opens a queue, and makes its node if it is not there. `consumes`: whether items are taken by
    /// this process.
    ///
    /// # Errors
    ///
    /// That ZooKeeper cannot be reached.
    pub fn open(place: &Place, consumes: bool) -> Result<ZooKeeperQueue, DirectoryError> {
        let (offers, offered) = mpsc::channel(BUFFER);
        let shared = Arc::new(Shared::default());
        let (over, mut ended) = watch::channel(false);
        let (wanted, wants) = watch::channel(false);
        let (opened, opening) = blocking::channel();
        let (own, theirs) = (place.clone(), Arc::clone(&shared));
        let silent = || DirectoryError::Silent { cluster: place.cluster.clone(), within: place.timeout };
        let thread = thread::Builder::new().name("lag-queue".to_owned()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let session = match own.open().await {
                    Ok(session) => session,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let _ = opened.send(Ok(()));
                let sending = send(&own, session.clone(), offered, &theirs);
                let bringing = async {
                    if consumes {
                        bring(&own, session.clone(), wants, &theirs).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = sending => {}
                    () = bringing => {}
                    _ = ended.wait_for(|over| *over) => {}
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        let thread = thread.map_err(|_| silent())?;
        opening.recv().map_err(|_| silent())??;
        Ok(ZooKeeperQueue { place: place.clone(), offers, shared, wanted, over, thread: Some(thread) })
    }

    /// Takes an item; false if it cannot.
    pub fn offer(&self, item: Vec<u8>) -> bool {
        if item.len() > ITEM_MAX {
            return false;
        }
        self.shared.unsent.fetch_add(1, Relaxed);
        let taken = self.offers.try_send(item).is_ok();
        if !taken {
            self.shared.unsent.fetch_sub(1, Relaxed);
        }
        taken
    }

    /// The next item, if one was brought.
    pub fn take(&self) -> Option<Vec<u8>> {
        let first = !self.shared.consuming.swap(true, Relaxed);
        let item = self.shared.brought.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if first || item.is_some() {
            self.wanted.send_replace(true);
        }
        item
    }

    /// Whether nothing is left of what was put into it before this was first asked. Returns at
    /// once; what is not known now may be later.
    pub fn drained(&self) -> bool {
        if !self.shared.closing.swap(true, Relaxed) {
            self.shared.asked.notify_one();
        }
        self.shared.drained.load(Relaxed)
            && self.shared.brought.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Items that were taken here and could not be carried.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Items that were there before this process took the first.
    pub fn earlier(&self) -> u64 {
        self.shared.earlier.load(Relaxed)
    }

    /// Waits until all that was offered is in ZooKeeper, so long at most. What is not counts as
    /// dropped.
    pub fn flush(&self, within: Duration) {
        let until = std::time::Instant::now() + within;
        while self.shared.unsent.load(Relaxed) > 0 && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        self.shared.given_up.store(true, Relaxed);
        let left = self.shared.unsent.load(Relaxed) as u64;
        self.shared.dropped.fetch_add(left, Relaxed);
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        format!("ZooKeeper at {}, {}", self.place.cluster, self.place.path())
    }
}

impl Drop for ZooKeeperQueue {
    fn drop(&mut self) {
        self.over.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends what is offered, until nobody can offer any more.
async fn send(
    place: &Place,
    mut session: Session,
    mut offered: mpsc::Receiver<Vec<u8>>,
    shared: &Arc<Shared>,
) {
    let prefix = format!("{}/{PREFIX}", place.path());
    let permits = Arc::new(Semaphore::new(PIPELINE));
    // Nodes that there are, as far as is known.
    let nodes = Arc::new(AtomicUsize::new(0));
    let mut counting = time::interval(COUNTING);
    counting.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut requests = JoinSet::new();
    loop {
        let item = tokio::select! {
            biased;
            _ = counting.tick() => {
                if session.state().is_terminated() {
                    // What waits meanwhile stays in the buffer.
                    match place.open().await {
                        Ok(opened) => session = opened,
                        Err(_) => continue,
                    }
                }
                // So that none is on its way uncounted.
                while requests.join_next().await.is_some() {}
                if let Ok(Ok(Some(stat))) = time::timeout(place.timeout, session.check_stat(&place.path())).await {
                    nodes.store(stat.num_children.max(0) as usize, Relaxed);
                }
                continue;
            }
            item = offered.recv() => item,
        };
        let Some(item) = item else { return };
        if nodes.fetch_add(1, Relaxed) >= place.max {
            if !shared.given_up.load(Relaxed) {
                shared.dropped.fetch_add(1, Relaxed);
            }
            shared.unsent.fetch_sub(1, Relaxed);
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let (session, shared, prefix, timeout) =
            (session.clone(), Arc::clone(shared), prefix.clone(), place.timeout);
        requests.spawn(async move {
            let creating = session.create(&prefix, &item, &SEQUENTIAL);
            let carried = matches!(time::timeout(timeout, creating).await, Ok(Ok(_)));
            if !carried && !shared.given_up.load(Relaxed) {
                // It may be there all the same: then it is read, and was not counted.
                shared.dropped.fetch_add(1, Relaxed);
            }
            shared.unsent.fetch_sub(1, Relaxed);
            drop(permit);
        });
    }
}

/// The data of a node, once it is ours.
async fn claim(session: &Session, path: &str) -> Result<Option<Vec<u8>>, Error> {
    // Both are sent at once, and done in this order.
    let (data, deleted) = tokio::join!(session.get_data(path), session.delete(path, None));
    match (data, deleted) {
        (Ok((data, _)), Ok(())) => Ok(Some(data)),
        (Err(Error::NoNode), _) | (_, Err(Error::NoNode | Error::NotEmpty)) => Ok(None),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Brings items as they are wanted.
async fn bring(place: &Place, mut session: Session, mut wanted: watch::Receiver<bool>, shared: &Arc<Shared>) {
    if wanted.wait_for(|wanted| *wanted).await.is_err() {
        return;
    }
    let folder = place.path();
    let mut first = true;
    loop {
        if session.state().is_terminated() {
            match place.open().await {
                Ok(opened) => session = opened,
                Err(_) => {
                    time::sleep(AGAIN).await;
                    continue;
                }
            }
        }
        let closing = shared.closing.load(Relaxed);
        let listing = time::timeout(place.timeout, async {
            // The server of this session may not have heard yet of what others put there.
            if closing {
                session.sync(&folder).await?;
            }
            session.get_and_watch_children(&folder).await
        });
        let Ok(Ok((mut names, _, changed))) = listing.await else {
            time::sleep(AGAIN).await;
            continue;
        };
        names.retain(|name| name.starts_with(PREFIX));
        names.sort_unstable();
        if std::mem::take(&mut first) {
            shared.earlier.store(names.len() as u64, Relaxed);
        }
        shared.drained.store(closing && names.is_empty(), Relaxed);
        if names.is_empty() {
            tokio::select! {
                _ = changed.changed() => {}
                () = shared.asked.notified() => {}
            }
            continue;
        }
        for some in names.chunks(BROUGHT_MAX) {
            // Room for all of them, or others may have them.
            loop {
                wanted.borrow_and_update();
                let there = shared.brought.lock().unwrap_or_else(PoisonError::into_inner).len();
                if there <= BROUGHT_MAX / 2 {
                    break;
                }
                if wanted.changed().await.is_err() {
                    return;
                }
            }
            let mut requests = JoinSet::new();
            for name in some {
                let (session, path, timeout) = (session.clone(), format!("{folder}/{name}"), place.timeout);
                requests.spawn(async move { time::timeout(timeout, claim(&session, &path)).await });
            }
            let mut lost = false;
            while let Some(done) = requests.join_next().await {
                match done {
                    Ok(Ok(Ok(Some(data)))) => {
                        shared.brought.lock().unwrap_or_else(PoisonError::into_inner).push_back(data);
                    }
                    Ok(Ok(Ok(None))) => {}
                    _ => lost = true,
                }
            }
            if lost {
                time::sleep(AGAIN).await;
                break;
            }
        }
    }
}

/// Takes a queue away, with what is in it. Returns how many items were.
///
/// # Errors
///
/// That ZooKeeper cannot be reached.
pub fn remove(place: &Place) -> Result<usize, DirectoryError> {
    let failed = |error| DirectoryError::Request {
        cluster: place.cluster.clone(),
        what: "take the queue away".to_owned(),
        error,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let silent = || DirectoryError::Silent { cluster: place.cluster.clone(), within: place.timeout };
    let runtime = runtime.map_err(|_| silent())?;
    runtime.block_on(async {
        let session = place.connect().await?;
        let folder = place.path();
        let removing = async {
            let names = match session.list_children(&folder).await {
                Err(Error::NoNode) => return Ok(0),
                names => names?,
            };
            for some in names.chunks(PIPELINE) {
                let mut requests = JoinSet::new();
                for name in some {
                    let (session, path) = (session.clone(), format!("{folder}/{name}"));
                    requests.spawn(async move { session.delete(&path, None).await });
                }
                while requests.join_next().await.is_some() {}
            }
            match session.delete(&folder, None).await {
                Ok(()) | Err(Error::NoNode | Error::NotEmpty) => Ok(names.len()),
                Err(error) => Err(error),
            }
        };
        match time::timeout(place.timeout, removing).await {
            Ok(removed) => removed.map_err(failed),
            Err(_) => Err(silent()),
        }
    })
}
