//! A queue between processes in ZooKeeper: persistent sequential nodes below one node. The process
//! that deletes a node has its item.
//!
//! Neither end waits for ZooKeeper. A thread sends offered items from a bounded buffer, many requests
//! at a time, and fetches items ahead of the consumers. Items that are not sent are counted as
//! dropped: the buffer was full, the queue had its maximum of nodes, or a request failed.

use crate::directory::{Directory, DirectoryError};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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

/// Maximum number of items that wait to be sent.
const BUFFER: usize = 10_000;

/// Maximum number of requests in flight: enough for ZooKeeper to write its log in groups.
const PIPELINE: usize = 256;

/// Maximum number of fetched items that are not taken. Small, because another consumer may be idle.
const FETCHED_MAX: usize = 64;

/// Maximum bytes of an item.
pub const ITEM_MAX: usize = 64 << 10;

/// Interval at which the nodes are counted.
const COUNTING: Duration = Duration::from_millis(250);

/// Pause before a failed request is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Prefix of the names of nodes.
const PREFIX: &str = "k-";

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const SEQUENTIAL: CreateOptions<'static> = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());

/// Location and limits of a queue.
#[derive(Debug, Clone)]
pub struct QueueLocation {
    /// ZooKeeper's address, `host:2181`, or several with commas between.
    pub cluster: String,
    /// Node below which the items are.
    pub node: String,
    /// Timeout of ZooKeeper's session and requests.
    pub timeout: Duration,
    /// Maximum number of items.
    pub max: usize,
}

impl QueueLocation {
    fn path(&self) -> String {
        format!("/{}", self.node.trim_matches('/'))
    }

    fn silent(&self) -> DirectoryError {
        DirectoryError::Silent { cluster: self.cluster.clone(), within: self.timeout }
    }

    /// Opens a session whose root is the queue's node.
    async fn connect(&self) -> Result<Directory, DirectoryError> {
        Directory::connect(&self.cluster, &self.node, self.timeout).await
    }

    /// Opens a session and creates the queue's node if it is missing.
    async fn open(&self) -> Result<Directory, DirectoryError> {
        let directory = self.connect().await?;
        let path = directory.place();
        let making = directory.session.mkdir(path, &PERSISTENT);
        directory.ask(&format!("make the queue {path}"), making).await?;
        Ok(directory)
    }
}

#[derive(Debug, Default)]
struct QueueState {
    dropped: AtomicU64,
    earlier: AtomicU64,
    /// Items that were offered and are not in ZooKeeper yet.
    unsent: AtomicUsize,
    fetched: Mutex<VecDeque<Vec<u8>>>,
    /// Whether a consumer has asked for an item.
    consuming: AtomicBool,
    /// Whether unsent items have been counted as dropped.
    given_up: AtomicBool,
    /// Whether a caller has asked for the drain.
    closing: AtomicBool,
    /// Whether the queue is known to be drained.
    drained: AtomicBool,
    /// Wakes the task that waits for new items, to check it.
    asked: Notify,
}

impl QueueState {
    fn fetched(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's two ends of a queue. Dropping it ends its thread.
pub struct ZooKeeperQueue {
    location: QueueLocation,
    offers: mpsc::Sender<Vec<u8>>,
    shared: Arc<QueueState>,
    wanted: watch::Sender<bool>,
    over: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ZooKeeperQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeperQueue({} at {})", self.location.path(), self.location.cluster)
    }
}

impl ZooKeeperQueue {
    /// Opens a queue and creates its node if it is missing. `consumes`: whether this process takes
    /// items.
    ///
    /// # Errors
    ///
    /// ZooKeeper cannot be reached.
    pub fn open(location: &QueueLocation, consumes: bool) -> Result<ZooKeeperQueue, DirectoryError> {
        let (offers, offered) = mpsc::channel(BUFFER);
        let shared = Arc::new(QueueState::default());
        let (over, mut ended) = watch::channel(false);
        let (wanted, wants) = watch::channel(false);
        let (opened, opening) = blocking::channel();
        let (own, theirs) = (location.clone(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("lag-queue".to_owned()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let directory = match own.open().await {
                    Ok(directory) => directory,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let _ = opened.send(Ok(()));
                let sending = send(&own, directory.clone(), offered, &theirs);
                let fetching = async {
                    if consumes {
                        fetch(&own, directory, wants, &theirs).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = sending => {}
                    () = fetching => {}
                    _ = ended.wait_for(|over| *over) => {}
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        let thread = thread.map_err(|_| location.silent())?;
        opening.recv().map_err(|_| location.silent())??;
        Ok(ZooKeeperQueue { location: location.clone(), offers, shared, wanted, over, thread: Some(thread) })
    }

    /// Offers an item. Returns false if it is too long or the buffer is full.
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

    /// Takes the next fetched item.
    pub fn take(&self) -> Option<Vec<u8>> {
        let first = !self.shared.consuming.swap(true, Relaxed);
        let item = self.shared.fetched().pop_front();
        if first || item.is_some() {
            self.wanted.send_replace(true);
        }
        item
    }

    /// Returns whether all items that were offered before the first call have been taken. Does not
    /// wait: false may mean that it is not known yet.
    pub fn drained(&self) -> bool {
        if !self.shared.closing.swap(true, Relaxed) {
            self.shared.asked.notify_one();
        }
        self.shared.drained.load(Relaxed) && self.shared.fetched().is_empty()
    }

    /// Returns the number of items that were offered here and not sent.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Returns the number of items in the queue before this process took the first.
    pub fn earlier(&self) -> u64 {
        self.shared.earlier.load(Relaxed)
    }

    /// Waits, for at most `within`, until all offered items are in ZooKeeper. The rest counts as
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

    /// Returns a description for results.
    pub fn describe(&self) -> String {
        format!("ZooKeeper at {}, {}", self.location.cluster, self.location.path())
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

/// Sends offered items until their channel closes.
async fn send(
    location: &QueueLocation,
    mut directory: Directory,
    mut offered: mpsc::Receiver<Vec<u8>>,
    shared: &Arc<QueueState>,
) {
    let prefix = format!("{}/{PREFIX}", location.path());
    let permits = Arc::new(Semaphore::new(PIPELINE));
    // Estimated number of nodes.
    let nodes = Arc::new(AtomicUsize::new(0));
    let mut counting = time::interval(COUNTING);
    counting.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut requests = JoinSet::new();
    loop {
        let item = tokio::select! {
            biased;
            _ = counting.tick() => {
                if directory.is_over() {
                    // Items stay in the buffer meanwhile.
                    match location.open().await {
                        Ok(opened) => directory = opened,
                        Err(_) => continue,
                    }
                }
                // No request may be in flight while nodes are counted.
                while requests.join_next().await.is_some() {}
                let counted = directory.session.check_stat(directory.place());
                if let Ok(Some(stat)) = directory.ask("count the items", counted).await {
                    nodes.store(stat.num_children.max(0) as usize, Relaxed);
                }
                continue;
            }
            item = offered.recv() => item,
        };
        let Some(item) = item else { return };
        if nodes.fetch_add(1, Relaxed) >= location.max {
            if !shared.given_up.load(Relaxed) {
                shared.dropped.fetch_add(1, Relaxed);
            }
            shared.unsent.fetch_sub(1, Relaxed);
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let (session, shared, prefix, timeout) =
            (directory.session.clone(), Arc::clone(shared), prefix.clone(), location.timeout);
        requests.spawn(async move {
            let creating = session.create(&prefix, &item, &SEQUENTIAL);
            let sent = matches!(time::timeout(timeout, creating).await, Ok(Ok(_)));
            if !sent && !shared.given_up.load(Relaxed) {
                // If the node exists nevertheless, a consumer reads an item that counts as dropped.
                shared.dropped.fetch_add(1, Relaxed);
            }
            shared.unsent.fetch_sub(1, Relaxed);
            drop(permit);
        });
    }
}

/// Takes a node. Returns its data, or `None` if another process has taken it.
async fn claim(session: &Session, path: &str) -> Result<Option<Vec<u8>>, Error> {
    // Both requests are sent at once; the server executes them in this order.
    let (data, deleted) = tokio::join!(session.get_data(path), session.delete(path, None));
    match (data, deleted) {
        (Ok((data, _)), Ok(())) => Ok(Some(data)),
        (Err(Error::NoNode), _) | (_, Err(Error::NoNode | Error::NotEmpty)) => Ok(None),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Fetches items ahead of the consumers.
async fn fetch(
    location: &QueueLocation,
    mut directory: Directory,
    mut wanted: watch::Receiver<bool>,
    shared: &Arc<QueueState>,
) {
    if wanted.wait_for(|wanted| *wanted).await.is_err() {
        return;
    }
    let folder = location.path();
    let mut first = true;
    loop {
        if directory.is_over() {
            match location.open().await {
                Ok(opened) => directory = opened,
                Err(_) => {
                    time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
        }
        let (session, closing) = (&directory.session, shared.closing.load(Relaxed));
        let listing = async {
            // This session's server may lag behind the others.
            if closing {
                session.sync(&folder).await?;
            }
            session.get_and_watch_children(&folder).await
        };
        let Ok((mut names, _, changed)) = directory.ask("list the items", listing).await else {
            time::sleep(RETRY_PAUSE).await;
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
        for chunk in names.chunks(FETCHED_MAX) {
            // A claim takes only as many items as the buffer has room for, and leaves the rest to
            // other consumers.
            loop {
                wanted.borrow_and_update();
                if shared.fetched().len() <= FETCHED_MAX / 2 {
                    break;
                }
                if wanted.changed().await.is_err() {
                    return;
                }
            }
            let mut requests = JoinSet::new();
            for name in chunk {
                let (session, path, timeout) =
                    (session.clone(), format!("{folder}/{name}"), location.timeout);
                requests.spawn(async move { time::timeout(timeout, claim(&session, &path)).await });
            }
            let mut lost = false;
            while let Some(done) = requests.join_next().await {
                match done {
                    Ok(Ok(Ok(Some(data)))) => {
                        shared.fetched().push_back(data);
                    }
                    Ok(Ok(Ok(None))) => {}
                    _ => lost = true,
                }
            }
            if lost {
                time::sleep(RETRY_PAUSE).await;
                break;
            }
        }
    }
}

/// Removes a queue and its items. Returns the number of items.
///
/// # Errors
///
/// ZooKeeper cannot be reached.
pub fn remove(location: &QueueLocation) -> Result<usize, DirectoryError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|_| location.silent())?.block_on(async {
        let directory = location.connect().await?;
        let (session, folder) = (&directory.session, directory.place());
        let removing = async {
            let names = match session.list_children(folder).await {
                Err(Error::NoNode) => return Ok(0),
                names => names?,
            };
            for chunk in names.chunks(PIPELINE) {
                let mut requests = JoinSet::new();
                for name in chunk {
                    let (session, path) = (session.clone(), format!("{folder}/{name}"));
                    requests.spawn(async move { session.delete(&path, None).await });
                }
                while requests.join_next().await.is_some() {}
            }
            match session.delete(folder, None).await {
                Ok(()) | Err(Error::NoNode | Error::NotEmpty) => Ok(names.len()),
                Err(error) => Err(error),
            }
        };
        directory.ask("remove the queue", removing).await
    })
}
