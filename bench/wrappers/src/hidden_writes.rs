//! What is held back of a store that lags: of each record what it was, and the writes
//! of it that are not seen by all yet.

use serval_model::{FieldSelection, OperationKind, Outcome, Record, Status, StoreError};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, BufWriter, Write as _},
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Parts with a lock each: more than threads that meet here.
const SHARDS: usize = 16;

/// Hashes that are told apart when records are let go of: so many that a record is seldom
/// taken for another in the time that it is read.
const HASHES: usize = 4096;

/// Bytes of keys and records that are held back at most. A write beyond them fails:
/// it could be held back no more.
pub(super) const HELD_BYTES_MAX: u64 = 256 << 20;

/// A record, or that there is none.
pub(super) type State = Option<Record>;

#[derive(Debug)]
pub(super) struct Version {
    number: u64,
    writer: usize,
    /// `u64::MAX` as long as it is not acknowledged.
    visible_at: u64,
    state: State,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// What was there before all versions that are held.
    before: State,
    /// In the order in which they were written. Never empty.
    pub(super) versions: VecDeque<Version>,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// By table and key.
    pub(super) entries: HashMap<String, Entry>,
    /// Which of them have a version that becomes visible when.
    due: BinaryHeap<Reverse<(u64, String)>>,
}

/// What all clients share.
#[derive(Debug)]
pub(super) struct Shared {
    shards: [Mutex<Shard>; SHARDS],
    /// How many records with each of some hashes have been let go of. What was read of
    /// the store before that may be older than what was let go of.
    let_go: Box<[AtomicU64]>,
    hasher: RandomState,
    number: AtomicU64,
    clients: AtomicUsize,
    bytes: AtomicU64,
    log: Mutex<Log>,
}

/// The list of delays, if one is wanted.
#[derive(Debug, Default)]
struct Log {
    file: Option<BufWriter<File>>,
    failure: Option<String>,
}

/// Between a table's name and a key; no table has it in its name.
const SEPARATOR: char = '\0';

fn bytes_of(key: &str, state: &State) -> u64 {
    // Beside the bytes themselves there is what holds them.
    (key.len() + state.as_ref().map_or(0, Record::size) + size_of::<Version>()) as u64
}

impl Entry {
    /// How many of its versions, counted from the oldest, this client sees.
    pub(super) fn seen(&self, now: u64, own: Option<usize>) -> usize {
        let sees = |version: &Version| version.visible_at <= now || own == Some(version.writer);
        self.versions.iter().rposition(sees).map_or(0, |newest| newest + 1)
    }

    /// What one sees who sees so many versions.
    pub(super) fn state(&self, seen: usize) -> &State {
        seen.checked_sub(1).and_then(|newest| self.versions.get(newest)).map_or(&self.before, |v| &v.state)
    }
}

impl Shard {
    /// Lets go of what everybody sees.
    pub(super) fn expire(&mut self, now: u64, shared: &Shared) {
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, key))) = self.due.pop() else { return };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            for version in entry.versions.drain(..entry.seen(now, None)) {
                shared.bytes.fetch_sub(bytes_of(&key, &version.state), Relaxed);
                entry.before = version.state;
            }
            if entry.versions.is_empty() {
                self.entries.remove(&key);
                shared.let_go(&key).fetch_add(1, Relaxed);
            }
        }
    }
}

impl Shared {
    pub(super) fn new() -> Shared {
        Shared {
            shards: Default::default(),
            let_go: (0..HASHES).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            number: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            log: Mutex::default(),
        }
    }

    /// A number that no other client has: clients of two runs on one store, as consumers are
    /// beside those that write, have the same places in them.
    pub(super) fn next_client(&self) -> usize {
        self.clients.fetch_add(1, Relaxed)
    }

    /// Begins the list of delays, unless it has begun.
    pub(super) fn log_to(&self, path: &Path) -> Result<(), StoreError> {
        let mut log = self.log();
        if log.file.is_none() {
            let failed = |error| StoreError::new("visibility.log", format!("{}: {error}", path.display()));
            let mut file = BufWriter::new(File::create(path).map_err(failed)?);
            writeln!(file, "key,acknowledged_ns,delay_ns").map_err(failed)?;
            log.file = Some(file);
        }
        Ok(())
    }

    /// Writes out what is written of the list; why it is not whole, if so.
    pub(super) fn finish_log(&self) -> Result<(), StoreError> {
        let mut log = self.log();
        if let Some(Err(error)) = log.file.as_mut().map(io::Write::flush) {
            log.failure.get_or_insert(error.to_string());
        }
        match log.failure.take() {
            None => Ok(()),
            Some(problem) => Err(StoreError::new("visibility.log", format!("is not whole: {problem}"))),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let number = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changed only while the record's part is locked.
    fn let_go(&self, key: &str) -> &AtomicU64 {
        &self.let_go[self.hasher.hash_one(key) as usize % HASHES]
    }

    /// Whether a record is held, and if not how many of its hash have been let go of.
    pub(super) fn is_held(&self, key: &str, now: u64) -> Result<(), u64> {
        let mut shard = self.shard(key);
        shard.expire(now, self);
        if shard.entries.contains_key(key) { Ok(()) } else { Err(self.let_go(key).load(Relaxed)) }
    }

    /// Holds a version back that is about to be written. `read` is what the store said of
    /// the record, and how many of its hash had been let go of before; `None` where it was held then.
    /// Returns `None` when that must be asked again.
    pub(super) fn hold(
        &self,
        write: &Write<'_>,
        writer: usize,
        read: Option<(State, u64)>,
    ) -> Option<Holding<'_>> {
        let mut shard = self.shard(&write.full_key);
        let latest = match shard.entries.get(&write.full_key) {
            Some(entry) => entry.state(entry.versions.len()),
            None => match &read {
                Some((state, let_go)) if *let_go == self.let_go(&write.full_key).load(Relaxed) => state,
                _ => return None,
            },
        };
        let state = after(latest, write.kind, write.record);
        let bytes = bytes_of(&write.full_key, &state);
        if self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) > HELD_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Relaxed);
            let words = format!(
                "visibility.delay holds no more than {} MiB of writes back: ask for a shorter delay, or write less",
                HELD_BYTES_MAX >> 20
            );
            return Some(Err(Outcome::failed(Status::ServiceUnavailable, words)));
        }
        let number = self.number.fetch_add(1, Relaxed);
        let entry = shard.entries.entry(write.full_key.clone());
        let before = || read.and_then(|(state, _)| state);
        let entry = entry.or_insert_with(|| Entry { before: before(), versions: VecDeque::new() });
        entry.versions.push_back(Version { number, writer, visible_at: u64::MAX, state });
        Some(Ok(Held { shared: self, key: write.full_key.clone(), number }))
    }
}

pub(super) type Holding<'a> = Result<Held<'a>, Outcome>;

/// A write before it is sent.
pub(super) struct Write<'a> {
    pub(super) kind: OperationKind,
    pub(super) table: &'a str,
    pub(super) key: &'a str,
    pub(super) full_key: String,
    pub(super) record: Option<&'a Record>,
}

/// A version that is being written. Without an acknowledgement it is not held back:
/// whether the store has it only the store knows.
pub(super) struct Held<'a> {
    shared: &'a Shared,
    key: String,
    number: u64,
}

impl Held<'_> {
    /// It was acknowledged now, and becomes visible after `delay` ns.
    pub(super) fn acknowledged(self, now: u64, delay: u64) {
        let visible_at = now.saturating_add(delay);
        let mut shard = self.shared.shard(&self.key);
        let entry = shard.entries.get_mut(&self.key);
        let version = entry.and_then(|entry| entry.versions.iter_mut().find(|v| v.number == self.number));
        if let Some(version) = version {
            version.visible_at = visible_at;
            shard.due.push(Reverse((visible_at, self.key.clone())));
        }
        shard.expire(now, self.shared);
        drop(shard);
        let mut log = self.shared.log();
        if let Some(file) = &mut log.file {
            let key = self.key.split_once(SEPARATOR).map_or(self.key.as_str(), |(_, key)| key);
            let written = writeln!(file, "{},{now},{delay}", csv(key));
            if let Err(error) = written {
                log.failure.get_or_insert(error.to_string());
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut shard = self.shared.shard(&self.key);
        let Some(entry) = shard.entries.get_mut(&self.key) else { return };
        let given_up = |v: &Version| v.number == self.number && v.visible_at == u64::MAX;
        if let Some(at) = entry.versions.iter().position(given_up)
            && let Some(version) = entry.versions.remove(at)
        {
            self.shared.bytes.fetch_sub(bytes_of(&self.key, &version.state), Relaxed);
        }
        if entry.versions.is_empty() {
            shard.entries.remove(&self.key);
            self.shared.let_go(&self.key).fetch_add(1, Relaxed);
        }
    }
}

/// A field of CSV.
fn csv(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

pub(super) fn full_key(table: &str, key: &str) -> String {
    format!("{table}{SEPARATOR}{key}")
}

/// What a write makes of a record.
fn after(before: &State, kind: OperationKind, record: Option<&Record>) -> State {
    let record = record?;
    let mut state = Record::new();
    match (kind, before) {
        (OperationKind::Update, Some(before)) => {
            for (name, value) in before.iter() {
                state.push(name, record.get(name).unwrap_or(value));
            }
            record.iter().filter(|(name, _)| before.get(name).is_none()).for_each(|(name, value)| {
                state.push(name, value);
            });
        }
        _ => state.copy_from(record),
    }
    Some(state)
}

/// Writes the fields wanted of a record.
pub(super) fn show(state: &Record, fields: &FieldSelection, shown: &mut Record) {
    if fields.is_all() {
        shown.copy_from(state);
        return;
    }
    for (name, value) in fields.iter().filter_map(|name| Some((name, state.get(name)?))) {
        shown.push(name, value);
    }
}

/// What a record holds, in an order that does not depend on the store's.
pub(super) fn contents(record: &Record) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = record.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    all.sort();
    all
}

/// Records that must not be seen yet by what they hold, and what is seen instead.
pub(super) type Unseen = HashMap<Vec<(String, Vec<u8>)>, State>;

impl Shared {
    /// How many records of a table are held.
    pub(super) fn held_in(&self, table: &str) -> u64 {
        let start = full_key(table, "");
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.entries.keys().filter(|key| key.starts_with(&start)).count() as u64
        };
        self.shards.iter().map(count).sum()
    }

    pub(super) fn unseen(
        &self,
        table: &str,
        fields: &FieldSelection,
        now: u64,
        own: Option<usize>,
    ) -> Unseen {
        let start = full_key(table, "");
        let mut unseen = Unseen::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.expire(now, self);
            for (_, entry) in shard.entries.iter().filter(|(key, _)| key.starts_with(&start)) {
                let seen = entry.seen(now, own);
                for version in entry.versions.iter().skip(seen) {
                    if let Some(state) = &version.state {
                        let mut shown = Record::new();
                        show(state, fields, &mut shown);
                        let instead = entry.state(seen).as_ref().map(|state| {
                            let mut shown = Record::new();
                            show(state, fields, &mut shown);
                            shown
                        });
                        unseen.insert(contents(&shown), instead);
                    }
                }
            }
        }
        unseen
    }
}
