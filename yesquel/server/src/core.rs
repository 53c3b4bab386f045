//! The engine, its log and its time, for callers on any thread.

use crate::{DataFolder, FolderError, Time};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use thiserror::Error;
use yesquel_engine::{Ask, Asker, Effects, Engine, Now, Record, Settings};
use yesquel_log::{LogError, Writer, checkpoint, disk::Folder, open};
use yesquel_wire::Malformed;

/// When what was written is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before anybody hears of it.
    #[default]
    Sync,
    /// Within so many milliseconds: so much may be lost.
    Interval(u64),
    /// When the system likes.
    None,
}

/// How a server keeps what it knows.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// When what was written is on disk.
    pub durability: Durability,
    /// Bytes of log after which a checkpoint is made.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { durability: Durability::Sync, checkpoint_bytes: 64 << 20 }
    }
}

/// Why a server cannot start, or takes no more.
#[derive(Debug, Error)]
pub enum CoreError {
    /// The data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The log or a checkpoint.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record is whole and says nothing that this version knows.
    #[error("{}: record {lsn} of the log is not understood ({malformed}): was it written by a newer version?", folder.display())]
    Record {
        /// The data folder.
        folder: std::path::PathBuf,
        /// Which.
        lsn: u64,
        /// What is wrong.
        malformed: Malformed,
    },
}

/// Whoever takes replies.
pub trait Deliver: Send + Sync + 'static {
    /// A reply may go out. Called under the core's lock: it must not call the
    /// core.
    fn deliver(&self, asker: Asker, reply: &[u8]);

    /// The disk has failed: what has no reply now will have none. Called
    /// without the lock.
    fn fail(&self) {}
}

/// A reply that waits for the disk.
struct Held {
    needs_lsn: u64,
    asker: Asker,
    reply: Box<[u8]>,
}

struct Inner {
    engine: Engine,
    effects: Effects,
    time: Box<dyn Time>,
    /// Records for the log's thread, and where each ends.
    log: Vec<u8>,
    ends: Vec<usize>,
    /// By the record that they need, almost.
    held: VecDeque<Held>,
    synced: u64,
    asks: Vec<Ask>,
    ticked_at_ms: u64,
    ending: bool,
    /// Why nothing more is durable.
    failed: Option<String>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// There is something for the log's thread.
    written: Condvar,
    /// There will be nothing more. Apart from `written`, which would wake a
    /// thread that lets records gather at each of them.
    ended: Condvar,
    deliver: Box<dyn Deliver>,
    /// Whether replies wait for the disk.
    holds: bool,
    logs: bool,
}

/// Milliseconds between an engine's ticks.
const TICK_MS: u64 = 50;

/// The heart of a server. Dropping it ends its log in order.
pub struct Core {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// In memory only: what it knows ends with it.
    pub fn in_memory(settings: Settings, time: impl Time + 'static, deliver: impl Deliver) -> Core {
        let shared = Core::shared(Engine::new(settings), Box::new(time), Box::new(deliver), None);
        Core { shared: Arc::new(shared), thread: None }
    }

    /// On a data folder, whose checkpoint and log are read first.
    pub fn open(
        folder: DataFolder,
        settings: Settings,
        options: Options,
        time: impl Time + 'static,
        deliver: impl Deliver,
    ) -> Result<Core, CoreError> {
        let disk = Folder::new(folder.path());
        let mut engine = Engine::new(settings);
        let mut faulty = None;
        let mut replay = |engine: &mut Engine, lsn: u64, bytes: &[u8]| match Record::decode(bytes) {
            Ok(record) => engine.replay(&record),
            Err(malformed) => faulty = faulty.or(Some((lsn, malformed))),
        };
        let last = checkpoint::list(&disk)?.last().copied();
        if let Some(lsn) = last {
            checkpoint::read(&disk, lsn, |record| {
                replay(&mut engine, lsn, record);
                Ok(())
            })?;
            engine.restored(lsn);
        }
        let mut grown = 0;
        let opened = open(disk.clone(), last.unwrap_or(0), |lsn, record| {
            grown += record.len() as u64;
            replay(&mut engine, lsn, record);
            Ok(())
        })?;
        if let Some((lsn, malformed)) = faulty {
            return Err(CoreError::Record { folder: folder.path().into(), lsn, malformed });
        }
        engine.replayed();
        let synced = opened.writer.synced_lsn();
        let durability = options.durability;
        let shared = Core::shared(engine, Box::new(time), Box::new(deliver), Some((synced, durability)));
        let shared = Arc::new(shared);
        let keeper = Keeper { shared: Arc::clone(&shared), writer: opened.writer, disk, options, grown };
        let thread = thread::Builder::new().name("yesquel-log".to_owned()).spawn(move || {
            keeper.run();
            drop(folder);
        });
        let thread =
            thread.map_err(|error| FolderError::Io { path: "a thread for the log".into(), error })?;
        Ok(Core { shared, thread: Some(thread) })
    }

    fn shared(
        engine: Engine,
        time: Box<dyn Time>,
        deliver: Box<dyn Deliver>,
        log: Option<(u64, Durability)>,
    ) -> Shared {
        let inner = Inner {
            engine,
            effects: Effects::default(),
            time,
            log: Vec::new(),
            ends: Vec::new(),
            held: VecDeque::new(),
            synced: log.map_or(0, |(synced, _)| synced),
            asks: Vec::new(),
            ticked_at_ms: 0,
            ending: false,
            failed: None,
        };
        let holds = log.is_some_and(|(_, durability)| durability == Durability::Sync);
        let (inner, written, ended) = (Mutex::new(inner), Condvar::new(), Condvar::new());
        Shared { inner, written, ended, deliver, holds, logs: log.is_some() }
    }

    /// Takes a request. Its reply is delivered now, or later.
    pub fn handle(&self, asker: Asker, request: &[u8]) -> Result<(), Malformed> {
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        let now = inner.time.now();
        if now.uptime_ms >= inner.ticked_at_ms + TICK_MS {
            inner.tick(now);
        }
        let handled = inner.engine.handle(now, asker, request, &mut inner.effects);
        self.shared.settle(inner);
        handled
    }

    /// Time goes on, also when nobody asks for anything: to be called every
    /// 50 ms or so.
    pub fn tick(&self) {
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        let now = inner.time.now();
        inner.tick(now);
        self.shared.settle(inner);
    }

    /// Other servers to ask for their votes.
    pub fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut self.shared.lock().asks)
    }

    /// Does something with the engine itself, other than changing it.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        act(&mut self.shared.lock().engine)
    }

    /// Why nothing more is durable, if so.
    pub fn failed(&self) -> Option<String> {
        self.shared.lock().failed.clone()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.written.notify_all();
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that anybody could hear now.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn tick(&mut self, now: Now) {
        self.ticked_at_ms = now.uptime_ms;
        self.engine.tick(now, &mut self.effects);
    }
}

impl Shared {
    /// Sends what a step has brought on its way.
    fn settle(&self, inner: &mut Inner) {
        let Inner { effects, log, ends, held, synced, asks, failed, .. } = inner;
        for reply in &effects.replies {
            let bytes = &effects.bytes[reply.bytes.clone()];
            if self.holds && reply.needs_lsn > *synced {
                // After a failure of the disk nobody hears of what is not on it.
                if failed.is_none() {
                    held.push_back(Held {
                        needs_lsn: reply.needs_lsn,
                        asker: reply.asker,
                        reply: bytes.into(),
                    });
                }
            } else {
                self.deliver.deliver(reply.asker, bytes);
            }
        }
        asks.append(&mut effects.asks);
        if self.logs && !effects.record_ends.is_empty() && failed.is_none() {
            let before = log.len();
            log.extend_from_slice(&effects.log);
            ends.extend(effects.record_ends.iter().map(|end| before + end));
            self.written.notify_one();
        }
        effects.clear();
    }
}

/// The thread that writes the log.
struct Keeper {
    shared: Arc<Shared>,
    writer: Writer<Folder>,
    disk: Folder,
    options: Options,
    /// Bytes of log since the last checkpoint.
    grown: u64,
}

impl Keeper {
    fn run(mut self) {
        let (mut log, mut ends) = (Vec::new(), Vec::new());
        loop {
            let ending = self.wait(&mut log, &mut ends);
            let written = self.writer.append(&log, &ends).and_then(|()| match self.options.durability {
                Durability::None if !ending => Ok(()),
                _ => self.writer.sync(),
            });
            if let Err(error) = written {
                self.fail(&error);
                return;
            }
            self.grown += log.len() as u64;
            self.release();
            if self.grown >= self.options.checkpoint_bytes {
                // The log is whole without it; the next try may go better.
                if let Err(error) = self.checkpoint() {
                    eprintln!("yesquel: no checkpoint: {error}");
                }
                self.grown = 0;
            }
            if ending {
                return;
            }
            if let Durability::Interval(ms) = self.options.durability {
                self.pause(Duration::from_millis(ms));
            }
        }
    }

    /// Waits for records; whether these are the last.
    fn wait(&self, log: &mut Vec<u8>, ends: &mut Vec<usize>) -> bool {
        log.clear();
        ends.clear();
        let mut inner = self.shared.lock();
        while inner.ends.is_empty() && !inner.ending {
            inner = self.shared.written.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut inner.log, log);
        std::mem::swap(&mut inner.ends, ends);
        inner.ending
    }

    /// Lets records gather for so long, or until the end.
    fn pause(&self, interval: Duration) {
        let inner = self.shared.lock();
        // What it brings is looked at by the next wait.
        drop(self.shared.ended.wait_timeout_while(inner, interval, |inner| !inner.ending));
    }

    /// Lets out the replies whose records are on disk now.
    fn release(&self) {
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        inner.synced = self.writer.synced_lsn();
        let synced = inner.synced;
        inner.held.retain(|held| {
            let ready = held.needs_lsn <= synced;
            if ready {
                self.shared.deliver.deliver(held.asker, &held.reply);
            }
            !ready
        });
    }

    fn fail(&self, error: &LogError) {
        let mut inner = self.shared.lock();
        inner.failed = Some(error.to_string());
        inner.held.clear();
        drop(inner);
        self.shared.deliver.fail();
    }

    fn checkpoint(&mut self) -> Result<(), LogError> {
        // Under the lock a look at each node; the writing is done without it.
        let state = self.shared.lock().engine.checkpoint();
        checkpoint::write(&self.disk, state.lsn(), |take| state.write(take))?;
        let lsn = state.lsn();
        // What is in it may be ahead of the log, which must hold what follows.
        self.writer.forget_up_to(lsn.min(self.writer.synced_lsn()))
    }
}
