//! Read-after-write lag in a run (`docs/lag.md`): the roles of processes, consumers beside the clients of a run, and
//! the analysis of their journals.

use crate::{
    error::PlanError,
    session::{LagFound, Ran, Session},
    workloads::{self, OpenWorkload, WorkloadInfo},
};
use serde::{Deserialize, Serialize};
use serval_coordination::{
    message::FRAME_MAX,
    queue::{QueueLocation, ZooKeeperQueue},
};
use serval_lag::{
    Clock, Consumer, Consuming, Producer, Producing,
    analysis::{self, LagSettings, PartClock, ProcessJournal},
    journal::{Item, Journal},
    properties as p,
    queue::{InMemory, Queue, decode, encode},
    stamp,
};
use serval_model::{
    Share, StoreError,
    properties::{Properties, Reader},
};
use serval_runner::{
    Control, Observer, RunError, RunOptions,
    clock::{self, nanoseconds},
};
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

/// Most bytes of a journal that a process sends; the rest of a frame has room for the result.
const NOTES_MAX: usize = FRAME_MAX - (32 << 20);

/// Time that consumers may take beyond their drain time.
const SLACK: Duration = Duration::from_millis(500);

/// The journal of a process of a group, with what the coordinator must know about it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LagNotes {
    /// The journal.
    pub journal: Journal,
    /// Number of its consumers.
    pub consumers: u64,
    /// Description of the queue.
    pub queue: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Producer,
    Consumer,
    Both,
}

/// The measurement of lag in one process.
#[derive(Debug)]
pub struct LagMeasurement {
    role: Role,
    journal: Arc<Mutex<Journal>>,
    queue: Arc<RunQueue>,
    producing: Option<Arc<Producing>>,
    consuming: Option<Arc<Consuming>>,
    consumers: usize,
    drain: Duration,
    setting: LagSettings,
    /// Location of the queue in ZooKeeper; `None` for a queue in memory.
    place: Option<QueueLocation>,
    queue_max: usize,
    /// Dropping this ends the thread that would interrupt consumers when their time is over.
    closing: Mutex<Option<mpsc::Sender<()>>>,
}

/// A queue that is open.
#[derive(Debug)]
enum OpenQueue {
    Memory(InMemory),
    ZooKeeper(ZooKeeperQueue),
}

/// The queue of a run. It is opened when the run begins, because making a plan connects to nothing.
#[derive(Debug, Default)]
struct RunQueue {
    opened: OnceLock<OpenQueue>,
    /// Entries that Serval has not written.
    foreign: AtomicU64,
}

impl Queue for RunQueue {
    fn offer(&self, item: Item) -> bool {
        match self.opened.get() {
            Some(OpenQueue::Memory(queue)) => queue.offer(item),
            Some(OpenQueue::ZooKeeper(queue)) => encode(&item).is_some_and(|bytes| queue.offer(bytes)),
            None => false,
        }
    }

    fn take(&self) -> Option<Item> {
        match self.opened.get()? {
            OpenQueue::Memory(queue) => queue.take(),
            OpenQueue::ZooKeeper(queue) => loop {
                if let Some(item) = decode(&queue.take()?) {
                    return Some(item);
                }
                self.foreign.fetch_add(1, Relaxed);
            },
        }
    }

    fn drained(&self) -> bool {
        match self.opened.get() {
            Some(OpenQueue::Memory(queue)) => queue.drained(),
            Some(OpenQueue::ZooKeeper(queue)) => queue.drained(),
            None => true,
        }
    }
}

impl RunQueue {
    fn open(&self, place: Option<&QueueLocation>, max: usize, consumes: bool) -> Result<(), StoreError> {
        if self.opened.get().is_some() {
            return Ok(());
        }
        let queue = match place {
            None => OpenQueue::Memory(InMemory::new(max)),
            Some(place) => OpenQueue::ZooKeeper(
                ZooKeeperQueue::open(place, consumes)
                    .map_err(|error| StoreError::new("lag.queue", error.to_string()))?,
            ),
        };
        let _ = self.opened.set(queue);
        Ok(())
    }

    /// Returns the queue if it is in ZooKeeper. A queue in memory loses nothing and begins empty.
    fn shared(&self) -> Option<&ZooKeeperQueue> {
        match self.opened.get() {
            Some(OpenQueue::ZooKeeper(queue)) => Some(queue),
            _ => None,
        }
    }

    /// Waits, for at most `within`, until all accepted items are in the queue.
    fn flush(&self, within: Duration) {
        if let Some(queue) = self.shared() {
            queue.flush(within);
        }
    }

    /// Returns a description for results.
    fn describe(&self) -> String {
        match self.opened.get() {
            Some(OpenQueue::Memory(_)) => "memory".to_owned(),
            Some(OpenQueue::ZooKeeper(queue)) => queue.describe(),
            None => "none".to_owned(),
        }
    }
}

/// Notes the faults of settings with which a producer cannot stamp values.
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

/// Returns whether this is a path of a ZooKeeper node, with or without a leading slash.
fn is_node(path: &str) -> bool {
    let path = path.trim_matches('/');
    !path.is_empty()
        && path.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.chars().any(char::is_control))
}

/// Returns the settings of sampling and reading that properties ask for.
pub fn setting(properties: &Properties) -> LagSettings {
    let mut reader = Reader::new(properties);
    LagSettings {
        queue: String::new(),
        sample: reader.number(&p::SAMPLE),
        poll: nanoseconds(reader.duration(&p::POLL)),
        consumers: 0,
    }
}

/// Interval at which a stop request is polled.
const STOP_POLL: Duration = Duration::from_millis(20);

impl LagMeasurement {
    /// Reads the measurement that properties ask for. Faults go to the reader.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        info: Option<&'static WorkloadInfo>,
        opened: Option<&OpenWorkload>,
        phase: Phase,
        share: Share,
    ) -> Option<LagMeasurement> {
        let role = match reader.choice(&p::ROLE) {
            "producer" => Role::Producer,
            "consumer" => Role::Consumer,
            "both" => Role::Both,
            _ => {
                // The clients of a group get their roles later; their values are checked here.
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
        // The clients of a group start in the same millisecond.
        let apart = if share == Share::WHOLE { u64::from(std::process::id()) } else { share.index() };
        let journal = Arc::new(Mutex::new(Journal::new(stamp::writer(now.as_millis() as u64, apart))));
        let queue = Arc::new(RunQueue::default());
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
            timeout: reader.duration(&serval_coordination::properties::TIMEOUT),
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
        Some(LagMeasurement {
            role,
            journal,
            queue,
            producing,
            consuming,
            consumers,
            drain,
            setting: LagSettings { consumers: consumers as u64, ..setting(reader.properties()) },
            place,
            queue_max: reader.count(&p::QUEUE_MAX) as usize,
            closing: Mutex::default(),
        })
    }

    /// Adjusts the options of a consumer's run: the keys that arrive bound it, and time.
    pub(crate) fn adjust(&self, options: &mut RunOptions) {
        if self.role == Role::Consumer {
            (options.units, options.rate, options.steady) = (None, None, None);
            options.warm_up = Duration::ZERO;
        }
    }

    /// Returns the workload of the process's run.
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

    /// Returns the journal of this process and begins another.
    pub(crate) fn take_journal(&self) -> Journal {
        let mut journal = self.journal();
        let fresh = Journal::new(journal.writer);
        let mut noted = std::mem::replace(&mut *journal, fresh);
        let counts = &mut noted.counts;
        if let Some(queue) = self.queue.shared() {
            let dropped = queue.dropped().min(counts.carried);
            counts.carried -= dropped;
            counts.not_carried += dropped;
            (counts.from_before, counts.foreign) = (queue.earlier(), self.queue.foreign.load(Relaxed));
        }
        noted
    }

    /// Returns the writer number of this process; `None` for a process of consumers.
    pub fn writer(&self) -> Option<u64> {
        self.producing.as_ref().map(|_| self.journal().writer)
    }

    /// Returns the journal of this process for the coordinator of its group.
    pub fn notes(&self) -> LagNotes {
        let mut journal = self.take_journal();
        journal.shorten_to(NOTES_MAX);
        LagNotes { consumers: self.consumers as u64, queue: self.queue.describe(), journal }
    }

    /// Asks a process of consumers to end: once they have found the remaining keys, or by interrupting `control`
    /// when their time is over. Returns false if this process does more than consume.
    pub fn close(&self, control: &Control) -> bool {
        let (Role::Consumer, Some(consuming)) = (self.role, &self.consuming) else { return false };
        consuming.close();
        let (control, patience) = (control.clone(), self.drain + SLACK);
        let (over, until_over) = mpsc::channel();
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = Some(over);
        // A store that hangs must not keep the consumers.
        let waiting = thread::Builder::new().name("lag-drain".to_owned()).spawn(move || {
            if until_over.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                control.interrupt();
            }
        });
        waiting.is_ok()
    }

    /// Performs the run with its producers and consumers. `another` opens the store once more, for consumers, if one
    /// open store cannot have two runs.
    pub(crate) fn run(
        &self,
        workload: &Arc<dyn Workload>,
        session: &dyn Session,
        another: &dyn Fn() -> Result<Box<dyn Session + Send>, String>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError> {
        let consumes = self.role != Role::Producer;
        self.queue.open(self.place.as_ref(), self.queue_max, consumes).map_err(RunError::Store)?;
        let mut arming = ArmingObserver { lag: self, observer };
        let mut ran = match (self.role, &self.consuming) {
            (Role::Both, Some(consuming)) => {
                let same = session.beside();
                // Without another session the store is finished when the run is.
                let finishes = same.is_none();
                let beside = same.map_or_else(another, Ok).map_err(|why| {
                    PlanError::Group(format!(
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
        // A process of a group sends its journal; a single process analyses it here.
        if options.gate.is_none() {
            let part = ProcessJournal { journal: self.take_journal(), clock: PartClock::Common, lost: false };
            let setting = LagSettings { queue: self.queue.describe(), ..self.setting.clone() };
            let (result, keys) = analysis::analyse(&[part], setting);
            ran.lag = Some(LagFound { result, keys });
        }
        Ok(ran)
    }

    /// Runs consumers on a thread while `main` runs, and then until they have found the remaining keys.
    fn with_consumers(
        &self,
        beside: Box<dyn Session + Send>,
        consumer: &Arc<dyn Workload>,
        consuming: &Consuming,
        control: &Control,
        of_consumers: &RunOptions,
        main: impl FnOnce(&Control) -> Result<Ran, PlanError>,
    ) -> Result<Ran, PlanError> {
        // The end of the run after the loss of its consumers is not a stop request of the user.
        let (theirs, mine) = (Control::default(), Control::default());
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel::<()>();
            let (theirs_too, main_control) = (theirs.clone(), mine.clone());
            let (over, until_over) = mpsc::channel::<()>();
            let (asked, passed_on) = (control.clone(), mine.clone());
            scope.spawn(move || {
                while until_over.recv_timeout(STOP_POLL) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if asked.interrupted() {
                        passed_on.interrupt();
                    }
                }
            });
            let thread = scope.spawn(move || {
                let _done = done;
                let found = beside.run(consumer, of_consumers, &theirs_too, &mut ());
                // Without consumers the rest of the run would measure nothing.
                if found.as_ref().map_or(true, |found| found.lost.is_some()) {
                    main_control.interrupt();
                }
                found
            });
            let asked_before = control.interrupted();
            let ran = main(&mine);
            drop(over);
            // Consumers must also find the items that are not in the queue yet.
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
                (ran, Err(PlanError::Run(RunError::Interrupted))) => ran,
                (_, Err(error)) => Err(error),
                (Ok(ran), Ok(found)) => Ok(Ran { lost: ran.lost.clone().or(found.lost), ..ran }),
                (ran, Ok(_)) => ran,
            }
        })
    }
}

/// Arms the producers for the measured part.
struct ArmingObserver<'a> {
    lag: &'a LagMeasurement,
    observer: &'a mut dyn Observer,
}

impl ArmingObserver<'_> {
    fn arm(&self, armed: bool) {
        if let Some(producing) = &self.lag.producing {
            producing.arm(armed);
        }
    }
}

impl Observer for ArmingObserver<'_> {
    fn pass_on(&mut self, event: &mut dyn FnMut(&mut dyn Observer)) {
        event(self.observer);
    }
    fn measuring(&mut self) {
        self.arm(true);
        self.observer.measuring();
    }
    fn measured(&mut self) {
        self.arm(false);
        self.observer.measured();
    }
}
