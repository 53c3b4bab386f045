//! A store that lags on purpose: others see a write only a while after its
//! acknowledgement, and before that what was there before. The law of the delay is
//! known, so that what is measured of a lag can be held against it.
//!
//! The store itself has each write at once. What is held back is held here, in
//! memory that all clients of the process share: of each record with writes that
//! are not seen by all yet, what it was before them, and each of them. To know the
//! former, a write reads the record first, unless it is held already. A read asks
//! the store, and when the answer is there it is decided by the clock whether it
//! may be seen: so a read that finds a write was answered after the write became
//! visible, and one that does not was sent before.
//!
//! Versions of a record are seen in their order: who sees one has seen all before
//! it, also those whose own delay is not over. Of two clients that write the same
//! record at the same time, the store may have the other order than is held here,
//! until both are visible.

use super::{
    Clock,
    settings::{Law, ViewSettings},
    under::{Answer, Under, send},
};
use crate::delay::SplitMix;
use serval_model::{FieldSelection, OperationKind, Outcome, Record, Reply, Status, StoreError};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, BufWriter, Write as _},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
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

/// Records that a scan asks for at most beyond its number, for those that it must
/// not show.
const SCAN_BEYOND_MAX: u64 = 1000;

/// A record, or that there is none.
type State = Option<Record>;

#[derive(Debug)]
struct Version {
    number: u64,
    writer: usize,
    /// `u64::MAX` as long as it is not acknowledged.
    visible_at: u64,
    state: State,
}

#[derive(Debug)]
struct Entry {
    /// What was there before all versions that are held.
    before: State,
    /// In the order in which they were written. Never empty.
    versions: VecDeque<Version>,
}

#[derive(Debug, Default)]
struct Shard {
    /// By table and key.
    entries: HashMap<String, Entry>,
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
    fn seen(&self, now: u64, own: Option<usize>) -> usize {
        let sees = |version: &Version| version.visible_at <= now || own == Some(version.writer);
        self.versions.iter().rposition(sees).map_or(0, |newest| newest + 1)
    }

    /// What one sees who sees so many versions.
    fn state(&self, seen: usize) -> &State {
        seen.checked_sub(1).and_then(|newest| self.versions.get(newest)).map_or(&self.before, |v| &v.state)
    }
}

impl Shard {
    /// Lets go of what everybody sees.
    fn expire(&mut self, now: u64, shared: &Shared) {
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
            bytes: AtomicU64::new(0),
            log: Mutex::default(),
        }
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

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let number = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changed only while the record's part is locked.
    fn let_go(&self, key: &str) -> &AtomicU64 {
        &self.let_go[self.hasher.hash_one(key) as usize % HASHES]
    }

    /// Whether a record is held, and if not how many of its hash have been let go of.
    fn is_held(&self, key: &str, now: u64) -> Result<(), u64> {
        let mut shard = self.shard(key);
        shard.expire(now, self);
        if shard.entries.contains_key(key) { Ok(()) } else { Err(self.let_go(key).load(Relaxed)) }
    }

    /// Holds a version back that is about to be written. `read` is what the store said of
    /// the record, and how many of its hash had been let go of before; `None` where it was held then.
    /// Returns `None` when that must be asked again.
    fn hold(&self, write: &Write<'_>, writer: usize, read: Option<(State, u64)>) -> Option<Holding<'_>> {
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

type Holding<'a> = Result<Held<'a>, Outcome>;

/// A write before it is sent.
struct Write<'a> {
    kind: OperationKind,
    table: &'a str,
    key: &'a str,
    full_key: String,
    record: Option<&'a Record>,
}

/// A version that is being written. Without an acknowledgement it is not held back:
/// whether the store has it only the store knows.
struct Held<'a> {
    shared: &'a Shared,
    key: String,
    number: u64,
}

impl Held<'_> {
    /// It was acknowledged now, and becomes visible after `delay` ns.
    fn acknowledged(self, now: u64, delay: u64) {
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

/// One client's view of a store that lags.
#[derive(Debug)]
pub(super) struct View {
    shared: Arc<Shared>,
    client: usize,
    /// Whether it sees its own writes at once.
    sees_own: bool,
    law: Law,
    random: SplitMix,
    clock: Clock,
}

impl View {
    pub(super) fn new(settings: &ViewSettings, shared: Arc<Shared>, client: usize, clock: Clock) -> View {
        // Streams of neighbours must not be alike.
        let random = SplitMix(settings.seed ^ (client as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let (sees_own, law) = (settings.sees_own, settings.law);
        View { shared, client, sees_own, law, random, clock }
    }

    fn own(&self) -> Option<usize> {
        self.sees_own.then_some(self.client)
    }

    fn acknowledged(&mut self, held: Held<'_>) {
        let delay = self.law.draw_ns(&mut self.random);
        held.acknowledged(self.clock.now(), delay);
    }
}

/// A client of a store that is seen so.
pub(super) struct Delayed<'a> {
    pub(super) client: &'a mut dyn Under,
    pub(super) view: &'a mut View,
}

fn full_key(table: &str, key: &str) -> String {
    format!("{table}{SEPARATOR}{key}")
}

/// Holds a write back before it is sent. What the record was before is known from what
/// is held of it, or read.
async fn hold<'a>(
    client: &mut dyn Under,
    shared: &'a Shared,
    view: &View,
    (kind, table, key, record): (OperationKind, &str, &str, Option<&Record>),
) -> Holding<'a> {
    let write = Write { kind, table, key, full_key: full_key(table, key), record };
    loop {
        let read = match shared.is_held(&write.full_key, view.clock.now()) {
            Ok(()) => None,
            Err(let_go) => Some((read(client, &write).await?, let_go)),
        };
        // Others may have written it and all have seen it since.
        if let Some(holding) = shared.hold(&write, view.client, read) {
            return holding;
        }
    }
}

/// A record as the store has it.
async fn read(client: &mut dyn Under, write: &Write<'_>) -> Result<State, Outcome> {
    let (all, mut reply) = (FieldSelection::default(), Reply::new());
    let outcome = client.read(write.table, write.key, &all, &mut reply).await;
    match outcome.status {
        Status::NotFound => Ok(None),
        _ if outcome.is_ok() => Ok(Some(reply.records().first().cloned().unwrap_or_default())),
        _ => Err(outcome),
    }
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

impl Delayed<'_> {
    fn write<'a>(
        &'a mut self,
        kind: OperationKind,
        table: &'a str,
        key: &'a str,
        record: Option<&'a Record>,
    ) -> Answer<'a> {
        Box::pin(async move {
            let shared = Arc::clone(&self.view.shared);
            let held = match hold(self.client, &shared, self.view, (kind, table, key, record)).await {
                Ok(held) => held,
                Err(outcome) => return outcome,
            };
            let outcome = send(self.client, kind, table, key, record).await;
            if outcome.is_ok() {
                self.view.acknowledged(held);
            }
            outcome
        })
    }
}

impl Under for Delayed<'_> {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a> {
        Box::pin(async move {
            let outcome = self.client.read(table, key, fields, reply).await;
            if !outcome.is_ok() && outcome.status != Status::NotFound {
                return outcome;
            }
            let (key, now) = (full_key(table, key), self.view.clock.now());
            let mut shard = self.view.shared.shard(&key);
            shard.expire(now, &self.view.shared);
            let Some(entry) = shard.entries.get(&key) else { return outcome };
            let seen = entry.seen(now, self.view.own());
            if seen == entry.versions.len() {
                return outcome;
            }
            reply.clear();
            let Some(state) = entry.state(seen) else { return Outcome::NOT_FOUND };
            show(state, fields, reply.begin_record());
            Outcome::OK
        })
    }

    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> Answer<'a> {
        self.write(OperationKind::Update, table, key, Some(fields))
    }

    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> Answer<'a> {
        self.write(OperationKind::Insert, table, key, Some(record))
    }

    /// The records of a scan come without their keys: one that must not be seen yet
    /// is known by what it holds. One that was deleted is missed at once.
    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a> {
        Box::pin(async move {
            let beyond = self.view.shared.held_in(table).min(SCAN_BEYOND_MAX);
            let outcome =
                self.client.scan(table, start_key, count.saturating_add(beyond), fields, reply).await;
            if outcome.is_ok() {
                let unseen = self.view.shared.unseen(table, fields, self.view.clock.now(), self.view.own());
                let most = usize::try_from(count).unwrap_or(usize::MAX);
                if !unseen.is_empty() || reply.records().len() > most {
                    keep_seen(reply, &unseen, most);
                }
            }
            outcome
        })
    }

    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> Answer<'a> {
        self.write(OperationKind::Delete, table, key, None)
    }

    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> Answer<'a> {
        Box::pin(async move {
            let shared = Arc::clone(&self.view.shared);
            let mut all = Vec::with_capacity(records.len());
            for (key, record) in records {
                let write = (OperationKind::Insert, table, key.as_str(), Some(record));
                match hold(self.client, &shared, self.view, write).await {
                    Ok(held) => all.push(held),
                    Err(outcome) => return outcome,
                }
            }
            let outcome = self.client.insert_batch(table, records).await;
            if outcome.is_ok() {
                all.into_iter().for_each(|held| self.view.acknowledged(held));
            }
            outcome
        })
    }
}

/// Writes the fields wanted of a record.
fn show(state: &Record, fields: &FieldSelection, shown: &mut Record) {
    if fields.is_all() {
        shown.copy_from(state);
        return;
    }
    for (name, value) in fields.iter().filter_map(|name| Some((name, state.get(name)?))) {
        shown.push(name, value);
    }
}

/// What a record holds, in an order that does not depend on the store's.
fn contents(record: &Record) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = record.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    all.sort();
    all
}

/// Records that must not be seen yet by what they hold, and what is seen instead.
type Unseen = HashMap<Vec<(String, Vec<u8>)>, State>;

impl Shared {
    /// How many records of a table are held.
    fn held_in(&self, table: &str) -> u64 {
        let start = full_key(table, "");
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.entries.keys().filter(|key| key.starts_with(&start)).count() as u64
        };
        self.shards.iter().map(count).sum()
    }

    fn unseen(&self, table: &str, fields: &FieldSelection, now: u64, own: Option<usize>) -> Unseen {
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

/// Leaves of a reply what may be seen, and no more than `most` records.
fn keep_seen(reply: &mut Reply, unseen: &Unseen, most: usize) {
    let seen = reply.records().iter().filter_map(|record| match unseen.get(&contents(record)) {
        None => Some(record.clone()),
        Some(instead) => instead.clone(),
    });
    let seen: Vec<Record> = seen.take(most).collect();
    reply.clear();
    seen.iter().for_each(|record| reply.begin_record().copy_from(record));
}
