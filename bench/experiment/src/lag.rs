//! Read-after-write lag in a run (`docs/lag.md`): who takes which part, consumers beside the
//! clients of a run, and what they found.

use crate::{
    error::ExperimentError,
    group::LagWire,
    session::{LagFound, Ran, Session},
    workloads::{self, Opened, WorkloadInfo},
};
use serval_coordination::{
    message::FRAME_MAX,
    queue::{QueueLocation, ZooKeeperQueue},
};
use serval_lag::{
    Clock, Consumer, Consuming, Producer, Producing,
    analysis::{self, Part, PartClock, Setting},
    journal::{Item, Journal},
    properties as p,
    queue::{InMemory, Queue, decode, encode},
    stamp,
};
use serval_model::{
    Share, StoreError,
    properties::{Properties, Reader},
};
use serval_runner::{Control, Interval, Observer, Progress, RunError, RunOptions, clock};
use serval_workload::{
    Workload,
    core::{Phase, properties as core},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Bytes of a process's notes that it sends at most: what else there is in a result has room beside them.
const NOTES_MAX: usize = FRAME_MAX - (32 << 20);

/// What a consumer that is told to end may take longer than it is given.
const SLACK: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Producer,
    Consumer,
    Both,
}

/// What measures lag in one process.
#[derive(Debug)]
pub struct Lag {
    role: Role,
    journal: Arc<Mutex<Journal>>,
    queue: Arc<Later>,
    producing: Option<Arc<Producing>>,
    consuming: Option<Arc<Consuming>>,
    consumers: usize,
    drain: Duration,
    setting: Setting,
    /// Where the queue is in ZooKeeper, and how many keys it has at most.
    place: Option<QueueLocation>,
    queue_max: usize,
    /// What tells the thread that would end consumers that they are gone.
    closing: Mutex<Option<mpsc::Sender<()>>>,
}

/// A queue in ZooKeeper.
#[derive(Debug)]
struct Shared {
    queue: ZooKeeperQueue,
    foreign: AtomicU64,
}

impl Queue for Shared {
    fn offer(&self, item: Item) -> bool {
        encode(&item).is_some_and(|bytes| self.queue.offer(bytes))
    }
    fn take(&self) -> Option<Item> {
        loop {
            let bytes = self.queue.take()?;
            if let Some(item) = decode(&bytes) {
                return Some(item);
            }
            self.foreign.fetch_add(1, Relaxed);
        }
    }
    fn drained(&self) -> bool {
        self.queue.drained()
    }
    fn dropped(&self) -> u64 {
        self.queue.dropped()
    }
    fn earlier(&self) -> u64 {
        self.queue.earlier()
    }
    fn foreign(&self) -> u64 {
        self.foreign.load(Relaxed)
    }
    fn flush(&self, within: Duration) {
        self.queue.flush(within);
    }
    fn describe(&self) -> String {
        self.queue.describe()
    }
}

/// A queue that is opened when the run begins: making a plan reaches for nothing.
#[derive(Debug, Default)]
struct Later(OnceLock<Arc<dyn Queue>>);

impl Queue for Later {
    fn offer(&self, item: Item) -> bool {
        self.0.get().is_some_and(|queue| queue.offer(item))
    }
    fn take(&self) -> Option<Item> {
        self.0.get()?.take()
    }
    fn drained(&self) -> bool {
        self.0.get().is_none_or(|queue| queue.drained())
    }
    fn dropped(&self) -> u64 {
        self.0.get().map_or(0, |queue| queue.dropped())
    }
    fn earlier(&self) -> u64 {
        self.0.get().map_or(0, |queue| queue.earlier())
    }
    fn foreign(&self) -> u64 {
        self.0.get().map_or(0, |queue| queue.foreign())
    }
    fn flush(&self, within: Duration) {
        if let Some(queue) = self.0.get() {
            queue.flush(within);
        }
    }
    fn describe(&self) -> String {
        self.0.get().map_or_else(|| "none".to_owned(), |queue| queue.describe())
    }
}

fn nanoseconds(span: Duration) -> u64 {
    span.as_nanos().min(u128::from(u64::MAX)) as u64
}

/// Faults of what a producer cannot write.
fn check_writes(reader: &mut Reader<'_>, info: Option<&WorkloadInfo>) {
    let able = [workloads::CORE.name, workloads::CONSTANT_OCCUPANCY.name, workloads::SCRIPT.name];
    if let Some(info) = info.filter(|info| !able.contains(&info.name)) {
        reader.fault(&p::ROLE, format!("the values of the workload {} cannot carry versions", info.name));
    }
    if reader.flag(&core::DATA_INTEGRITY) {
        let problem = "leaves no room for the versions that lag.role writes into values";
        reader.fault(&core::DATA_INTEGRITY, problem);
    }
    let shortest = match reader.choice(&core::FIELD_LENGTH_DISTRIBUTION) {
        "constant" => &core::FIELD_LENGTH,
        "histogram" => return,
        _ => &core::MIN_FIELD_LENGTH,
    };
    let length = if *shortest == core::FIELD_LENGTH { reader.size(shortest) } else { reader.count(shortest) };
    if length < stamp::LENGTH as u64 {
        let problem = format!(
            "values must have {} bytes or more: with lag.role they begin with their writer and version",
            stamp::LENGTH
        );
        reader.fault(shortest, problem);
    }
}

/// Whether ZooKeeper takes it for a path, with a slash before it or without.
fn is_node(path: &str) -> bool {
    let path = path.trim_matches('/');
    !path.is_empty()
        && path.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.chars().any(char::is_control))
}

/// How keys are sampled and read, by properties.
pub(crate) fn setting(properties: &Properties) -> Setting {
    let mut reader = Reader::new(properties);
    Setting {
        queue: String::new(),
        sample: reader.number(&p::SAMPLE),
        poll: nanoseconds(reader.duration(&p::POLL)),
        consumers: 0,
    }
}

/// How often it is looked whether somebody wants the run to end.
const LOOK: Duration = Duration::from_millis(20);

impl Lag {
    /// What properties ask for. Faults go to the reader.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        info: Option<&'static WorkloadInfo>,
        opened: Option<&Opened>,
        phase: Phase,
        share: Share,
    ) -> Option<Lag> {
        let role = match reader.choice(&p::ROLE) {
            "producer" => Role::Producer,
            "consumer" => Role::Consumer,
            "both" => Role::Both,
            _ => {
                // A group's producers are told by their clients; what they cannot is said here.
                if reader.count(&p::CONSUMER_CLIENTS) > 0 {
                    check_writes(reader, info);
                }
                return None;
            }
        };
        if role != Role::Consumer {
            check_writes(reader, info);
        } else if phase == Phase::Load {
            reader.fault(&p::ROLE, "a consumer reads: start it with 'serval run', also beside a load");
        }
        let cluster = reader.optional_text(&p::ZOOKEEPER).filter(|text| !text.trim().is_empty());
        if role != Role::Both && cluster.is_none() {
            let problem =
                "needs a queue that other processes reach: set lag.zookeeper=HOST:2181, or use lag.role=both";
            reader.fault(&p::ROLE, problem);
        }
        if reader.count(&p::CONSUMER_CLIENTS) > 0 {
            reader.fault(&p::CONSUMER_CLIENTS, "gives a group's clients their roles: leave lag.role out");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Those of a group begin in the same moment.
        let apart = if share == Share::WHOLE { u64::from(std::process::id()) } else { share.index() };
        let journal = Arc::new(Mutex::new(Journal::new(stamp::writer(now.as_millis() as u64, apart))));
        let queue = Arc::new(Later::default());
        let time: Clock = Arc::new(clock::now);
        let producing = (role != Role::Consumer).then(|| {
            let mut producing = Producing::new(Arc::clone(&time), queue.clone(), Arc::clone(&journal));
            producing.sample = reader.number(&p::SAMPLE);
            producing.sample_seed = reader.count(&p::SAMPLE_SEED);
            producing.read_back = reader.number(&p::READ_BACK);
            Arc::new(producing)
        });
        let drain = reader.duration(&p::DRAIN);
        let consuming = (role != Role::Producer).then(|| {
            let mut consuming = Consuming::new(time, queue.clone(), Arc::clone(&journal));
            consuming.poll = nanoseconds(reader.duration(&p::POLL));
            consuming.again = reader.number(&p::AGAIN);
            consuming.drain = nanoseconds(drain);
            let idle = reader.duration(&p::IDLE);
            consuming.idle = (role == Role::Consumer && !idle.is_zero()).then(|| nanoseconds(idle));
            Arc::new(consuming)
        });
        let place = cluster.map(|cluster| QueueLocation {
            cluster: cluster.trim().to_owned(),
            node: reader.text(&p::QUEUE),
            timeout: reader.duration(&crate::group::properties::TIMEOUT),
            max: reader.count(&p::QUEUE_MAX) as usize,
        });
        if place.as_ref().is_some_and(|place| !is_node(&place.node)) {
            reader.fault(
                &p::QUEUE,
                "is no path of a node: names with slashes between, such as serval-lag/run7",
            );
        }
        let consumers = match role {
            Role::Producer => 0,
            Role::Consumer => reader.count(&crate::properties::THREAD_COUNT).max(1) as usize,
            Role::Both => reader.count(&p::CONSUMERS).max(1) as usize,
        };
        opened?;
        Some(Lag {
            role,
            journal,
            queue,
            producing,
            consuming,
            consumers,
            drain,
            setting: Setting { consumers: consumers as u64, ..setting(reader.properties()) },
            place,
            queue_max: reader.count(&p::QUEUE_MAX) as usize,
            closing: Mutex::default(),
        })
    }

    /// A consumer's run is bounded by what comes, and by time.
    pub(crate) fn adjust(&self, options: &mut RunOptions) {
        if self.role == Role::Consumer {
            (options.units, options.rate, options.steady) = (None, None, None);
            options.warm_up = Duration::ZERO;
        }
    }

    /// The workload of the process's run.
    pub(crate) fn workload(&self, inner: Arc<dyn Workload>) -> Arc<dyn Workload> {
        match (&self.producing, &self.consuming) {
            (Some(producing), _) => Arc::new(Producer::new(inner, Arc::clone(producing))),
            (None, Some(consuming)) => Arc::new(Consumer::new(inner.schema(), Arc::clone(consuming))),
            (None, None) => inner,
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process noted.
    pub(crate) fn take_journal(&self) -> Journal {
        let mut journal = self.journal();
        let fresh = Journal::new(journal.writer);
        let mut noted = std::mem::replace(&mut *journal, fresh);
        let counts = &mut noted.counts;
        let dropped = self.queue.dropped().min(counts.carried);
        counts.carried -= dropped;
        counts.not_carried += dropped;
        (counts.from_before, counts.foreign) = (self.queue.earlier(), self.queue.foreign());
        noted
    }

    /// What its values carry, if it writes any.
    pub(crate) fn writer(&self) -> Option<u64> {
        self.producing.as_ref().map(|_| self.journal().writer)
    }

    /// What this process noted, for the coordinator of its group.
    pub(crate) fn to_wire(&self) -> LagWire {
        let mut journal = self.take_journal();
        journal.shorten_to(NOTES_MAX);
        LagWire { consumers: self.consumers as u64, queue: self.queue.describe(), journal }
    }

    fn open_queue(&self) -> Result<(), StoreError> {
        if self.queue.0.get().is_some() {
            return Ok(());
        }
        let queue: Arc<dyn Queue> = match &self.place {
            None => Arc::new(InMemory::new(self.queue_max)),
            Some(place) => {
                let queue = ZooKeeperQueue::open(place, self.role != Role::Producer)
                    .map_err(|error| StoreError::new("lag.queue", error.to_string()))?;
                Arc::new(Shared { queue, foreign: AtomicU64::new(0) })
            }
        };
        let _ = self.queue.0.set(queue);
        Ok(())
    }

    /// Ends a process of consumers from outside: when they have found what is left, and `control`
    /// once their time is over. False where there are no consumers alone.
    pub(crate) fn close(&self, control: &Control) -> bool {
        let (Role::Consumer, Some(consuming)) = (self.role, &self.consuming) else { return false };
        consuming.close();
        let (control, patience) = (control.clone(), self.drain + SLACK);
        let (over, until_over) = mpsc::channel();
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = Some(over);
        // A store that hangs must not hold them.
        let waiting = thread::Builder::new().name("lag-drain".to_owned()).spawn(move || {
            if until_over.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                control.interrupt();
            }
        });
        waiting.is_ok()
    }

    /// The run, with what belongs to it. `another` opens the store once more, for consumers, where
    /// one that is open cannot have two runs.
    pub(crate) fn run(
        &self,
        workload: &Arc<dyn Workload>,
        session: &dyn Session,
        another: &dyn Fn() -> Result<Box<dyn Session + Send>, String>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, ExperimentError> {
        self.open_queue().map_err(RunError::Store)?;
        let mut arming = Arming { lag: self, observer };
        let mut ran = match (self.role, &self.consuming) {
            (Role::Both, Some(consuming)) => {
                let same = session.beside();
                // The store is at an end when the run is.
                let finishes = same.is_none();
                let beside = same.map_or_else(another, Ok).map_err(|why| {
                    ExperimentError::Group(format!(
                        "lag.role=both: the store cannot be opened once more for consumers: {why}. Let them be processes of \
                         their own: lag.role=consumer, or lag.consumers.clients in a group"
                    ))
                })?;
                let consumer: Arc<dyn Workload> =
                    Arc::new(Consumer::new(workload.schema(), Arc::clone(consuming)));
                let of_consumers = RunOptions {
                    clients: self.consumers,
                    grace: options.grace,
                    seed: options.seed,
                    finishes,
                    ..RunOptions::default()
                };
                self.with_consumers(beside, &consumer, consuming, control, &of_consumers, |control| {
                    session.run(workload, options, control, &mut arming)
                })?
            }
            _ => session.run(workload, options, control, &mut arming)?,
        };
        if self.role == Role::Producer {
            self.queue.flush(self.drain);
        }
        // A process of a group sends its notes; alone they are looked at here.
        if options.gate.is_none() {
            let part = Part { journal: self.take_journal(), clock: PartClock::Common, lost: false };
            let setting = Setting { queue: self.queue.describe(), ..self.setting.clone() };
            let (result, keys) = analysis::analyse(&[part], setting);
            ran.lag = Some(LagFound { result, keys });
        }
        Ok(ran)
    }

    /// Runs consumers on a thread while `main` runs, and then until they have found what is left.
    fn with_consumers(
        &self,
        beside: Box<dyn Session + Send>,
        consumer: &Arc<dyn Workload>,
        consuming: &Consuming,
        control: &Control,
        of_consumers: &RunOptions,
        main: impl FnOnce(&Control) -> Result<Ran, ExperimentError>,
    ) -> Result<Ran, ExperimentError> {
        // An end for want of consumers is not one that somebody asked for.
        let (theirs, mine) = (Control::default(), Control::default());
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel::<()>();
            let (theirs_too, main_control) = (theirs.clone(), mine.clone());
            let (over, until_over) = mpsc::channel::<()>();
            let (asked, passed_on) = (control.clone(), mine.clone());
            scope.spawn(move || {
                while until_over.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if asked.interrupted() {
                        passed_on.interrupt();
                    }
                }
            });
            let thread = scope.spawn(move || {
                let _done = done;
                let found = beside.run(consumer, of_consumers, &theirs_too, &mut ());
                // Without consumers the rest would be for nothing.
                if found.as_ref().map_or(true, |found| found.lost.is_some()) {
                    main_control.interrupt();
                }
                found
            });
            let asked_before = control.interrupted();
            let ran = main(&mine);
            drop(over);
            // What is still on its way into the queue is to be found too.
            if ran.is_ok() && !control.interrupted() {
                self.queue.flush(self.drain);
            }
            consuming.close();
            let patience = if ran.is_err() || control.interrupted() && !asked_before {
                Duration::ZERO
            } else {
                self.drain + SLACK
            };
            if ended.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                theirs.interrupt();
            }
            let found = thread.join().unwrap_or(Err(RunError::Panicked(0).into()));
            match (ran, found) {
                (ran, Err(ExperimentError::Run(RunError::Interrupted))) => ran,
                (_, Err(error)) => Err(error),
                (Ok(ran), Ok(found)) => Ok(Ran { lost: ran.lost.clone().or(found.lost), ..ran }),
                (ran, Ok(_)) => ran,
            }
        })
    }
}

/// Arms the producers for the measured part.
struct Arming<'a> {
    lag: &'a Lag,
    observer: &'a mut dyn Observer,
}

impl Arming<'_> {
    fn arm(&self, armed: bool) {
        if let Some(producing) = &self.lag.producing {
            producing.arm(armed);
        }
    }
}

impl Observer for Arming<'_> {
    fn connected(&mut self, clients: usize, of: usize) {
        self.observer.connected(clients, of);
    }
    fn started(&mut self, at: SystemTime) {
        self.observer.started(at);
    }
    fn measuring(&mut self) {
        self.arm(true);
        self.observer.measuring();
    }
    fn measured(&mut self) {
        self.arm(false);
        self.observer.measured();
    }
    fn progress(&mut self, progress: &Progress) {
        self.observer.progress(progress);
    }
    fn interval(&mut self, interval: &Interval) {
        self.observer.interval(interval);
    }
}
