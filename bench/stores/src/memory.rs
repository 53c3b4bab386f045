//! An ordered map in this process, shared by all clients. It is the reference for other
//! stores, and with a delay a substitute for a server of known speed.
//!
//! A table is a lock-free skip list (crossbeam's) from key to record, with a lock per
//! record, so clients contend only for the same record. With a `RwLock<BTreeMap>`,
//! inserts would block all readers, and each read would write the lock word that all
//! cores share. Shards by hash would lose the key order that scans need.
//!
//! Every verb is atomic for one record. A scan is not a snapshot: it sees each record
//! whole, but may or may not see concurrent inserts and deletes.

use crate::StoreInfo;
use crossbeam_skiplist::SkipMap;
use serval_model::{
    Client, Execution, FieldSelection, Outcome, Purpose, Record, Reply, Schema, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use serval_wrappers::delay::{Delay, SplitMix};
use std::{
    collections::HashMap,
    ops::Bound,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

static DELAY: Property = Property::serval(
    "memory.delay",
    Kind::MICROSECONDS,
    "Mean duration of an operation: a sleep before it. A batch of inserts is one operation.",
)
.default("0")
.unit("us");

static DISTRIBUTION: Property = Property::serval(
    "memory.delay.distribution",
    Kind::Choice(&["constant", "uniform", "exponential"]),
    "Distribution of the delays, whose mean is memory.delay: constant; uniform from 0 to twice the mean; \
     exponential, as from a memoryless server.",
)
.default("constant");

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "memory",
    aliases: &[],
    summary: "An ordered map in Serval's own process, with an optional delay",
    details: "Records live as long as the process, so load and run must happen in one process. An update \
              overwrites the given fields and leaves the others; an insert of an existing key replaces \
              the whole record. Scans run in the byte order of keys and are not snapshots. Delays are \
              sleeps: Linux adds about 50 us to each, so shorter delays say little. A client is a thread; \
              its delays are the same in every run.",
    time_series: true,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "memory", properties: &[&DELAY, &DISTRIBUTION] },
};

type Rows = SkipMap<Box<str>, StoredRecord>;

#[derive(Debug)]
struct StoredRecord {
    record: RwLock<Record>,
    /// Whether it was deleted. The skip list (0.1.3) reports success to two concurrent
    /// removers.
    is_deleted: AtomicBool,
}

/// The store.
#[derive(Debug)]
pub struct Memory {
    tables: Arc<Mutex<HashMap<String, Arc<Rows>>>>,
    delay: Delay,
}

impl Memory {
    /// Returns an empty store with the delay of the properties.
    pub fn open(properties: &Properties) -> Result<Self, Faults> {
        let mut reader = Reader::new(properties);
        let mean = reader.duration(&DELAY);
        let spread = reader.choice(&DISTRIBUTION);
        reader.finish()?;
        Ok(Memory { tables: Arc::default(), delay: Delay { mean, spread } })
    }
}

impl Store for Memory {
    type Local = ();
    type Client = MemoryClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        match purpose {
            Purpose::Load => {
                tables.entry(schema.table.clone()).or_default();
                Ok(())
            }
            Purpose::Run if tables.contains_key(&schema.table) => Ok(()),
            Purpose::Run => Err(StoreError::new(
                INFO.name,
                format!(
                    "there is no table '{}': this store forgets everything when Serval ends, so \
                     load and run must be one command",
                    schema.table
                ),
            )),
        }
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mean = u64::try_from(self.delay.mean.as_nanos()).unwrap_or(u64::MAX);
        vec![
            ("delay".into(), units::format_duration(mean)),
            ("delay.distribution".into(), self.delay.spread.into()),
        ]
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), client: usize) -> Result<MemoryClient, StoreError> {
        Ok(MemoryClient {
            tables: self.tables.clone(),
            name: String::new(),
            rows: None,
            merged: Record::new(),
            delay: self.delay,
            random: SplitMix(client as u64),
        })
    }
}

/// A client.
#[derive(Debug)]
pub struct MemoryClient {
    tables: Arc<Mutex<HashMap<String, Arc<Rows>>>>,
    /// The table of the last operation, to avoid the lock on the list of
    /// tables.
    name: String,
    rows: Option<Arc<Rows>>,
    /// Buffer in which an update builds the new record; it is swapped with the old
    /// one.
    merged: Record,
    delay: Delay,
    random: SplitMix,
}

impl MemoryClient {
    /// Starts an operation: sleeps for its delay, and finds or creates its
    /// table.
    fn begin(&mut self, table: &str) -> &Rows {
        self.delay.sleep(&mut self.random);
        if self.name != table {
            self.rows = None;
            table.clone_into(&mut self.name);
        }
        self.rows.get_or_insert_with(|| {
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            tables.entry(table.to_owned()).or_default().clone()
        })
    }
}

impl Client for MemoryClient {
    async fn read(&mut self, table: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        let rows = self.begin(table);
        let Some(row) = rows.get(key) else { return Outcome::NOT_FOUND };
        answer(&row.value().record, fields, reply);
        Outcome::OK
    }

    async fn update(&mut self, table: &str, key: &str, fields: &Record) -> Outcome {
        let mut merged = std::mem::take(&mut self.merged);
        let outcome = match self.begin(table).get(key) {
            None => Outcome::NOT_FOUND,
            Some(row) => {
                let mut record = row.value().record.write().unwrap_or_else(PoisonError::into_inner);
                merge(&record, fields, &mut merged);
                std::mem::swap(&mut *record, &mut merged);
                Outcome::OK
            }
        };
        self.merged = merged;
        outcome
    }

    async fn insert(&mut self, table: &str, key: &str, record: &Record) -> Outcome {
        put(self.begin(table), key, record);
        Outcome::OK
    }

    async fn scan(
        &mut self,
        table: &str,
        start_key: &str,
        count: u64,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Outcome {
        let rows = self.begin(table);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let range = (Bound::Included(start_key), Bound::Unbounded);
        for row in rows.range::<str, _>(range).take(count) {
            answer(&row.value().record, fields, reply);
        }
        Outcome::OK
    }

    async fn delete(&mut self, table: &str, key: &str) -> Outcome {
        match self.begin(table).remove(key) {
            Some(row) if !row.value().is_deleted.swap(true, Relaxed) => Outcome::OK,
            _ => Outcome::NOT_FOUND,
        }
    }

    async fn insert_batch(&mut self, table: &str, records: &[(String, Record)]) -> Outcome {
        let rows = self.begin(table);
        for (key, record) in records {
            put(rows, key, record);
        }
        Outcome::OK
    }
}

/// Copies into `to`; unlike `clone_from`, reuses its memory.
fn copy(from: &Record, to: &mut Record) {
    to.clear();
    for (name, value) in from.iter() {
        to.push(name, value);
    }
}

/// Merges the old record and the new fields into `merged`.
fn merge(old: &Record, new: &Record, merged: &mut Record) {
    merged.clear();
    for (name, value) in old.iter() {
        merged.push(name, new.get(name).unwrap_or(value));
    }
    for (name, value) in new.iter() {
        if old.get(name).is_none() {
            merged.push(name, value);
        }
    }
}

/// Adds a record's selected fields to the reply.
fn answer(record: &RwLock<Record>, fields: &FieldSelection, reply: &mut Reply) {
    let record = record.read().unwrap_or_else(PoisonError::into_inner);
    let answer = reply.begin_record();
    if fields.is_all() {
        copy(&record, answer);
    } else {
        for name in fields.iter() {
            if let Some(value) = record.get(name) {
                answer.push(name, value);
            }
        }
    }
}

/// Inserts or replaces a record.
///
/// Replaces in place: the skip list's own insert removes the old row before it adds
/// the new one, so a concurrent reader would miss a record that was never
/// deleted.
fn put(rows: &Rows, key: &str, record: &Record) {
    if let Some(row) = rows.get(key) {
        copy(record, &mut row.value().record.write().unwrap_or_else(PoisonError::into_inner));
    } else {
        // A concurrent insert of this key may win; either order is
        // valid.
        let row = StoredRecord { record: RwLock::new(record.clone()), is_deleted: AtomicBool::new(false) };
        rows.get_or_insert(key.into(), row);
    }
}
