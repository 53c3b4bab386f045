//! Writes that are not visible to all clients yet: each record's state before them, and the
//! versions that they make.

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

/// Lock shards; more than the number of contending threads.
const SHARDS: usize = 16;

/// Number of hash classes of the counters of released records: so many that another record of
/// the same class is seldom released while a record is read.
const HASHES: usize = 4096;

/// Maximum bytes of hidden keys and records. A write beyond the limit fails, because it
/// cannot be hidden.
pub(super) const HIDDEN_BYTES_MAX: u64 = 256 << 20;

/// A record; `None` if it does not exist.
pub(super) type RecordState = Option<Record>;

#[derive(Debug)]
pub(super) struct HiddenVersion {
    number: u64,
    writer: usize,
    /// `u64::MAX` until it is acknowledged.
    visible_at: u64,
    state: RecordState,
}

#[derive(Debug)]
pub(super) struct HiddenRecord {
    /// State before all hidden versions.
    before: RecordState,
    /// In order of writing. Never empty.
    pub(super) versions: VecDeque<HiddenVersion>,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Hidden records by table and key.
    pub(super) entries: HashMap<String, HiddenRecord>,
    /// When a version becomes visible, and the key of its record.
    due: BinaryHeap<Reverse<(u64, String)>>,
}

/// The hidden writes of all clients.
#[derive(Debug)]
pub(super) struct HiddenWrites {
    shards: [Mutex<Shard>; SHARDS],
    /// Number of releases by hash class. A read of the store that began before a
    /// release may return an older state than was released.
    released: Box<[AtomicU64]>,
    hasher: RandomState,
    number: AtomicU64,
    clients: AtomicUsize,
    bytes: AtomicU64,
    log: Mutex<DelayLog>,
}

/// File of delays, if `visibility.log` asks for it.
#[derive(Debug, Default)]
struct DelayLog {
    file: Option<BufWriter<File>>,
    failure: Option<String>,
}

/// Separates a table's name from a key; no table's name contains it.
const SEPARATOR: char = '\0';

fn bytes_of(key: &str, state: &RecordState) -> u64 {
    // The bytes themselves, and the structure that holds them.
    (key.len() + state.as_ref().map_or(0, Record::size) + size_of::<HiddenVersion>()) as u64
}

impl HiddenRecord {
    /// Returns the number of versions, from the oldest, that this client sees.
    pub(super) fn visible_count(&self, now: u64, own: Option<usize>) -> usize {
        let sees = |version: &HiddenVersion| version.visible_at <= now || own == Some(version.writer);
        self.versions.iter().rposition(sees).map_or(0, |newest| newest + 1)
    }

    /// Returns the state after the first `visible` versions.
    pub(super) fn state(&self, visible: usize) -> &RecordState {
        visible.checked_sub(1).and_then(|newest| self.versions.get(newest)).map_or(&self.before, |v| &v.state)
    }
}

impl Shard {
    /// Releases the versions that all clients see.
    pub(super) fn expire(&mut self, now: u64, hidden: &HiddenWrites) {
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, key))) = self.due.pop() else { return };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            for version in entry.versions.drain(..entry.visible_count(now, None)) {
                hidden.bytes.fetch_sub(bytes_of(&key, &version.state), Relaxed);
                entry.before = version.state;
            }
            if entry.versions.is_empty() {
                self.entries.remove(&key);
                hidden.released(&key).fetch_add(1, Relaxed);
            }
        }
    }
}

impl HiddenWrites {
    pub(super) fn new() -> HiddenWrites {
        HiddenWrites {
            shards: Default::default(),
            released: (0..HASHES).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            number: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            log: Mutex::default(),
        }
    }

    /// Returns a number that no other client has. Numbers within a run do not suffice: two runs,
    /// such as writers and consumers, may use one store at a time.
    pub(super) fn next_client(&self) -> usize {
        self.clients.fetch_add(1, Relaxed)
    }

    /// Opens the file of delays, unless it is open.
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

    /// Flushes the file of delays. Fails if a write to it has failed.
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

    fn log(&self) -> MutexGuard<'_, DelayLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let number = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counter of a key's hash class; it changes only while the record's shard is locked.
    fn released(&self, key: &str) -> &AtomicU64 {
        &self.released[self.hasher.hash_one(key) as usize % HASHES]
    }

    /// Returns whether a record has hidden versions; if not, the releases of its hash class.
    pub(super) fn is_hidden(&self, key: &str, now: u64) -> Result<(), u64> {
        let mut shard = self.shard(key);
        shard.expire(now, self);
        if shard.entries.contains_key(key) { Ok(()) } else { Err(self.released(key).load(Relaxed)) }
    }

    /// Hides a version that is about to be written. `read` is the state in the store, and the
    /// releases of its hash class before the read; `None` if the record had hidden versions.
    /// Returns `None` if the record must be read again.
    pub(super) fn hide(
        &self,
        write: &UnsentWrite<'_>,
        writer: usize,
        read: Option<(RecordState, u64)>,
    ) -> Option<HideResult<'_>> {
        let mut shard = self.shard(&write.full_key);
        let latest = match shard.entries.get(&write.full_key) {
            Some(entry) => entry.state(entry.versions.len()),
            None => match &read {
                Some((state, released)) if *released == self.released(&write.full_key).load(Relaxed) => state,
                _ => return None,
            },
        };
        let state = after(latest, write.kind, write.record);
        let bytes = bytes_of(&write.full_key, &state);
        if self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) > HIDDEN_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Relaxed);
            let words = format!(
                "visibility.delay hides at most {} MiB of writes: set a shorter delay, or write less",
                HIDDEN_BYTES_MAX >> 20
            );
            return Some(Err(Outcome::failed(Status::ServiceUnavailable, words)));
        }
        let number = self.number.fetch_add(1, Relaxed);
        let entry = shard.entries.entry(write.full_key.clone());
        let before = || read.and_then(|(state, _)| state);
        let entry = entry.or_insert_with(|| HiddenRecord { before: before(), versions: VecDeque::new() });
        entry.versions.push_back(HiddenVersion { number, writer, visible_at: u64::MAX, state });
        Some(Ok(HiddenWrite { hidden: self, key: write.full_key.clone(), number }))
    }
}

pub(super) type HideResult<'a> = Result<HiddenWrite<'a>, Outcome>;

/// A write that is about to be sent.
pub(super) struct UnsentWrite<'a> {
    pub(super) kind: OperationKind,
    pub(super) table: &'a str,
    pub(super) key: &'a str,
    pub(super) full_key: String,
    pub(super) record: Option<&'a Record>,
}

/// A version that is being written. If it is dropped without acknowledgement, the version is
/// not hidden: only the store knows whether it has it.
pub(super) struct HiddenWrite<'a> {
    hidden: &'a HiddenWrites,
    key: String,
    number: u64,
}

impl HiddenWrite<'_> {
    /// Records the acknowledgement; the version becomes visible after `delay` ns.
    pub(super) fn acknowledged(self, now: u64, delay: u64) {
        let visible_at = now.saturating_add(delay);
        let mut shard = self.hidden.shard(&self.key);
        let entry = shard.entries.get_mut(&self.key);
        let version = entry.and_then(|entry| entry.versions.iter_mut().find(|v| v.number == self.number));
        if let Some(version) = version {
            version.visible_at = visible_at;
            shard.due.push(Reverse((visible_at, self.key.clone())));
        }
        shard.expire(now, self.hidden);
        drop(shard);
        let mut log = self.hidden.log();
        if let Some(file) = &mut log.file {
            let key = self.key.split_once(SEPARATOR).map_or(self.key.as_str(), |(_, key)| key);
            let written = writeln!(file, "{},{now},{delay}", csv(key));
            if let Err(error) = written {
                log.failure.get_or_insert(error.to_string());
            }
        }
    }
}

impl Drop for HiddenWrite<'_> {
    fn drop(&mut self) {
        let mut shard = self.hidden.shard(&self.key);
        let Some(entry) = shard.entries.get_mut(&self.key) else { return };
        let given_up = |v: &HiddenVersion| v.number == self.number && v.visible_at == u64::MAX;
        if let Some(at) = entry.versions.iter().position(given_up)
            && let Some(version) = entry.versions.remove(at)
        {
            self.hidden.bytes.fetch_sub(bytes_of(&self.key, &version.state), Relaxed);
        }
        if entry.versions.is_empty() {
            shard.entries.remove(&self.key);
            self.hidden.released(&self.key).fetch_add(1, Relaxed);
        }
    }
}

/// Quotes a field of CSV.
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

/// Returns the state of a record after a write.
fn after(before: &RecordState, kind: OperationKind, record: Option<&Record>) -> RecordState {
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

/// Copies the selected fields of a record.
pub(super) fn project(state: &Record, fields: &FieldSelection, projected: &mut Record) {
    if fields.is_all() {
        projected.copy_from(state);
        return;
    }
    for (name, value) in fields.iter().filter_map(|name| Some((name, state.get(name)?))) {
        projected.push(name, value);
    }
}

/// Returns a record's fields in sorted order.
pub(super) fn contents(record: &Record) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = record.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    all.sort();
    all
}

/// Records that must not be visible yet, by their fields, and what is visible instead.
pub(super) type InvisibleRecords = HashMap<Vec<(String, Vec<u8>)>, RecordState>;

impl HiddenWrites {
    /// Returns the number of records of a table with hidden versions.
    pub(super) fn hidden_in(&self, table: &str) -> u64 {
        let start = full_key(table, "");
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.entries.keys().filter(|key| key.starts_with(&start)).count() as u64
        };
        self.shards.iter().map(count).sum()
    }

    pub(super) fn invisible(
        &self,
        table: &str,
        fields: &FieldSelection,
        now: u64,
        own: Option<usize>,
    ) -> InvisibleRecords {
        let start = full_key(table, "");
        let mut invisible = InvisibleRecords::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.expire(now, self);
            for (_, entry) in shard.entries.iter().filter(|(key, _)| key.starts_with(&start)) {
                let visible = entry.visible_count(now, own);
                for version in entry.versions.iter().skip(visible) {
                    if let Some(state) = &version.state {
                        let mut projected = Record::new();
                        project(state, fields, &mut projected);
                        let instead = entry.state(visible).as_ref().map(|state| {
                            let mut projected = Record::new();
                            project(state, fields, &mut projected);
                            projected
                        });
                        invisible.insert(contents(&projected), instead);
                    }
                }
            }
        }
        invisible
    }
}
