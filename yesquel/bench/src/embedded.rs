//! Stores in this process: Yesquel, redb and fjall, each in its own folder and used as its authors
//! recommend for speed.
//!
//! | | Yesquel | redb | fjall |
//! |---|---|---|---|
//! | read | `Database::get` | a read transaction, its table, `get` | `Keyspace::get` |
//! | read of one snapshot | a transaction | a table of one read transaction | a snapshot |
//! | durable insert | `Database::put` | a write transaction, `Durability::Immediate` | `insert`, `persist(SyncAll)` |
//! | cache | all in memory | 1 GiB (its default) | 1 GiB, hash index in its blocks, no compression |
//!
//! A read sees the newest state; reads of one snapshot are what a long transaction does.

use crate::Result;
use fjall::{
    CompressionType, Keyspace, KeyspaceCreateOptions, PersistMode, Readable,
    config::{CompressionPolicy, HashRatioPolicy},
};
use redb::{ReadableDatabase, TableDefinition};
use std::{
    hint::black_box,
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel::{Database, Durability, LogOptions, Map, Store};
use yesquel_seeds::Random;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("bench");

/// Cache size: more than all data.
const CACHE_BYTES: u64 = 1 << 30;

/// Keys written by one transaction of the load.
const LOAD_BATCH: u64 = 1_000;

/// Operations between two checks of the time.
const STEPS: u64 = 16;

/// What to measure.
#[derive(Debug)]
pub(crate) struct EmbeddedPlan {
    /// `yesquel`, `redb` or `fjall`.
    pub(crate) store: String,
    pub(crate) folder: std::path::PathBuf,
    pub(crate) measured: Duration,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// Index of the run on this folder, from which its new keys follow.
    pub(crate) process: u64,
}

enum EmbeddedTarget {
    Yesquel(Database, Map),
    Redb(redb::Database),
    Fjall(fjall::Database, Keyspace),
}

/// Maps numbers to distinct keys in pseudo-random order.
fn key(number: u64) -> u64 {
    number.wrapping_mul(crate::plan::SHUFFLE)
}

fn missing<T>() -> Result<T> {
    Err("a key is missing".into())
}

impl EmbeddedTarget {
    fn open(name: &str, folder: &Path, durability: Durability) -> Result<EmbeddedTarget> {
        match name {
            "yesquel" => {
                let store = Store::open_with(folder, LogOptions { durability, ..LogOptions::default() })?;
                let database = store.database_or_create("bench")?;
                let map = database.map("bench")?;
                Ok(EmbeddedTarget::Yesquel(database, map))
            }
            "redb" => {
                std::fs::create_dir_all(folder)?;
                let database =
                    redb::Builder::new().set_cache_size(CACHE_BYTES as usize).create(folder.join("redb"))?;
                let transaction = database.begin_write()?;
                transaction.open_table(TABLE)?;
                transaction.commit()?;
                Ok(EmbeddedTarget::Redb(database))
            }
            "fjall" => {
                let builder = fjall::Database::builder(folder).cache_size(CACHE_BYTES);
                let database = builder.manual_journal_persist(true).open()?;
                let options = || {
                    KeyspaceCreateOptions::default()
                        .expect_point_read_hits(true)
                        .data_block_hash_ratio_policy(HashRatioPolicy::all(8.0))
                        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
                };
                let keyspace = database.keyspace("bench", options)?;
                Ok(EmbeddedTarget::Fjall(database, keyspace))
            }
            _ => Err(format!("'{name}' is none of yesquel, redb, fjall").into()),
        }
    }

    /// Stores all keys in pseudo-random order, and finishes background work.
    fn load(&self, keys: u64, value: &[u8]) -> Result<()> {
        for first in (0..keys).step_by(LOAD_BATCH as usize) {
            let numbers = first..keys.min(first + LOAD_BATCH);
            match self {
                EmbeddedTarget::Yesquel(database, map) => {
                    database.run(|transaction| {
                        numbers
                            .clone()
                            .try_for_each(|number| transaction.put(*map, &key(number).to_be_bytes(), value))
                    })?;
                }
                EmbeddedTarget::Redb(database) => {
                    let transaction = database.begin_write()?;
                    {
                        let mut table = transaction.open_table(TABLE)?;
                        for number in numbers {
                            table.insert(key(number), value)?;
                        }
                    }
                    transaction.commit()?;
                }
                EmbeddedTarget::Fjall(database, keyspace) => {
                    let mut batch = database.batch();
                    for number in numbers {
                        batch.insert(keyspace, key(number).to_be_bytes(), value);
                    }
                    batch.commit()?;
                }
            }
        }
        if let EmbeddedTarget::Fjall(database, keyspace) = self {
            // Reads are fastest from one sorted run.
            keyspace.rotate_memtable_and_wait()?;
            keyspace.major_compact()?;
            database.persist(PersistMode::SyncAll)?;
        }
        Ok(())
    }

    /// Reads the keys that `next` returns, each from the newest state.
    fn read(&self, mut next: impl FnMut() -> Option<u64>) -> Result<()> {
        while let Some(number) = next() {
            let found = match self {
                EmbeddedTarget::Yesquel(database, map) => {
                    let value = database.get(*map, &key(number).to_be_bytes())?;
                    value.map(|value| black_box(&value).len())
                }
                EmbeddedTarget::Redb(database) => {
                    let table = database.begin_read()?.open_table(TABLE)?;
                    table.get(key(number))?.map(|value| black_box(value.value()).len())
                }
                EmbeddedTarget::Fjall(_, keyspace) => {
                    keyspace.get(key(number).to_be_bytes())?.map(|value| black_box(&value).len())
                }
            };
            found.map_or_else(missing, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Reads the keys that `next` returns from one snapshot.
    fn read_snapshot(&self, mut next: impl FnMut() -> Option<u64>) -> Result<()> {
        match self {
            EmbeddedTarget::Yesquel(database, map) => {
                let mut transaction = database.begin();
                while let Some(number) = next() {
                    match transaction.get(*map, &key(number).to_be_bytes())? {
                        Some(value) => drop(black_box(value)),
                        None => return missing(),
                    }
                }
            }
            EmbeddedTarget::Redb(database) => {
                let table = database.begin_read()?.open_table(TABLE)?;
                while let Some(number) = next() {
                    match table.get(key(number))? {
                        Some(value) => drop(black_box(value.value()).len()),
                        None => return missing(),
                    }
                }
            }
            EmbeddedTarget::Fjall(database, keyspace) => {
                let snapshot = database.snapshot();
                while let Some(number) = next() {
                    match snapshot.get(keyspace, key(number).to_be_bytes())? {
                        Some(value) => drop(black_box(value)),
                        None => return missing(),
                    }
                }
            }
        }
        Ok(())
    }

    /// Inserts the keys that `next` returns, each durable before the next.
    fn insert(&self, mut next: impl FnMut() -> Option<u64>, value: &[u8]) -> Result<()> {
        while let Some(number) = next() {
            match self {
                EmbeddedTarget::Yesquel(database, map) => {
                    database.put(*map, &key(number).to_be_bytes(), value)?;
                }
                EmbeddedTarget::Redb(database) => {
                    let mut transaction = database.begin_write()?;
                    transaction.set_durability(redb::Durability::Immediate)?;
                    transaction.open_table(TABLE)?.insert(key(number), value)?;
                    transaction.commit()?;
                }
                EmbeddedTarget::Fjall(database, keyspace) => {
                    keyspace.insert(key(number).to_be_bytes(), value)?;
                    database.persist(PersistMode::SyncAll)?;
                }
            }
        }
        Ok(())
    }
}

/// Operation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmbeddedOperation {
    Read,
    ReadSnapshot,
    Insert,
}

/// Loads the folder.
pub(crate) fn load(plan: &EmbeddedPlan) -> Result<serde_json::Value> {
    let begun = Instant::now();
    let engine = EmbeddedTarget::open(&plan.store, &plan.folder, Durability::None)?;
    engine.load(plan.keys, &vec![b'v'; plan.value_bytes])?;
    drop(engine);
    Ok(serde_json::json!({ "seconds": begun.elapsed().as_secs_f64() }))
}

/// Opens the folder and measures reads and inserts, by one thread and by two.
pub(crate) fn run(plan: &EmbeddedPlan) -> Result<serde_json::Value> {
    let engine = EmbeddedTarget::open(&plan.store, &plan.folder, Durability::Sync)?;
    // Read every key once, to fill the cache.
    let mut numbers = 0..plan.keys;
    engine.read(|| numbers.next())?;
    let mut all = serde_json::Map::new();
    let new = AtomicU64::new(plan.keys + (plan.process << 32));
    for (name, act) in [
        ("read", EmbeddedOperation::Read),
        ("snapshot", EmbeddedOperation::ReadSnapshot),
        ("insert", EmbeddedOperation::Insert),
    ] {
        for threads in [1, 2] {
            let seen = measure(plan, &engine, act, threads, &new)?;
            all.insert(format!("{name}_{threads}"), seen.into());
        }
    }
    Ok(all.into())
}

/// Returns operations per second.
fn measure(
    plan: &EmbeddedPlan,
    engine: &EmbeddedTarget,
    act: EmbeddedOperation,
    threads: u64,
    new: &AtomicU64,
) -> Result<f64> {
    let (start, ended) = (Barrier::new(threads as usize + 1), AtomicBool::new(false));
    let value = vec![b'v'; plan.value_bytes];
    thread::scope(|scope| -> Result<f64> {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, ended, value) = (&start, &ended, &value);
                scope.spawn(move || -> Result<u64> {
                    let mut random = Random::new(plan.process << 8 | thread);
                    let mut count = 0;
                    let mut goes_on = || {
                        // Reading a shared flag has a cost.
                        let over =
                            (count % STEPS == 0 || act == EmbeddedOperation::Insert) && ended.load(Relaxed);
                        count += u64::from(!over);
                        !over
                    };
                    start.wait();
                    match act {
                        EmbeddedOperation::Insert => {
                            engine.insert(|| goes_on().then(|| new.fetch_add(1, Relaxed)), value)?;
                        }
                        EmbeddedOperation::Read => {
                            engine.read(|| goes_on().then(|| random.next(plan.keys)))?
                        }
                        EmbeddedOperation::ReadSnapshot => {
                            engine.read_snapshot(|| goes_on().then(|| random.next(plan.keys)))?;
                        }
                    }
                    Ok(count)
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        thread::sleep(plan.measured);
        ended.store(true, Relaxed);
        let mut operations = 0;
        for worker in workers {
            operations += worker.join().map_err(|_| "a thread has panicked")??;
        }
        Ok(operations as f64 / begun.elapsed().as_secs_f64())
    })
}
