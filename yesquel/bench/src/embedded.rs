//! Stores in this process: Yesquel, redb and fjall, each in a folder of its
//! own and used as its makers advise for speed.
//!
//! | | Yesquel | redb | fjall |
//! |---|---|---|---|
//! | read | `Database::get` | a read transaction, its table, `get` | `Keyspace::get` |
//! | read of one snapshot | a transaction | a table of one read transaction | a snapshot |
//! | durable insert | `Database::put` | a write transaction, `Durability::Immediate` | `insert`, `persist(SyncAll)` |
//! | cache | all in memory | 1 GiB (its default) | 1 GiB, hash index in its blocks, no compression |
//!
//! A read sees the newest state, whoever wrote it; a read of one snapshot is
//! what a long transaction does.

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

/// Bytes of cache: more than all that is stored.
const CACHE_BYTES: u64 = 1 << 30;

/// Keys that a transaction of the load writes.
const LOAD_BATCH: u64 = 1_000;

/// Operations between two looks at whether the time is over.
const STEPS: u64 = 16;

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Plan {
    /// `yesquel`, `redb` or `fjall`.
    pub(crate) store: String,
    pub(crate) folder: std::path::PathBuf,
    pub(crate) measured: Duration,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// Which of several runs on the folder it is: its new keys follow from it.
    pub(crate) process: u64,
}

enum Engine {
    Yesquel(Database, Map),
    Redb(redb::Database),
    Fjall(fjall::Database, Keyspace),
}

/// The keys by number: each once, in no order.
fn key(number: u64) -> u64 {
    number.wrapping_mul(crate::plan::SHUFFLE)
}

fn missing<T>() -> Result<T> {
    Err("a key is missing".into())
}

impl Engine {
    fn open(name: &str, folder: &Path, durability: Durability) -> Result<Engine> {
        match name {
            "yesquel" => {
                let store = Store::open_with(folder, LogOptions { durability, ..LogOptions::default() })?;
                let database = store.database_or_create("bench")?;
                let map = database.map("bench")?;
                Ok(Engine::Yesquel(database, map))
            }
            "redb" => {
                std::fs::create_dir_all(folder)?;
                let database =
                    redb::Builder::new().set_cache_size(CACHE_BYTES as usize).create(folder.join("redb"))?;
                let transaction = database.begin_write()?;
                transaction.open_table(TABLE)?;
                transaction.commit()?;
                Ok(Engine::Redb(database))
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
                Ok(Engine::Fjall(database, keyspace))
            }
            _ => Err(format!("'{name}' is none of yesquel, redb, fjall").into()),
        }
    }

    /// Stores all keys, in no order, and leaves nothing undone.
    fn load(&self, keys: u64, value: &[u8]) -> Result<()> {
        for first in (0..keys).step_by(LOAD_BATCH as usize) {
            let numbers = first..keys.min(first + LOAD_BATCH);
            match self {
                Engine::Yesquel(database, map) => {
                    database.run(|transaction| {
                        numbers
                            .clone()
                            .try_for_each(|number| transaction.put(*map, &key(number).to_be_bytes(), value))
                    })?;
                }
                Engine::Redb(database) => {
                    let transaction = database.begin_write()?;
                    {
                        let mut table = transaction.open_table(TABLE)?;
                        for number in numbers {
                            table.insert(key(number), value)?;
                        }
                    }
                    transaction.commit()?;
                }
                Engine::Fjall(database, keyspace) => {
                    let mut batch = database.batch();
                    for number in numbers {
                        batch.insert(keyspace, key(number).to_be_bytes(), value);
                    }
                    batch.commit()?;
                }
            }
        }
        if let Engine::Fjall(database, keyspace) = self {
            // What is in one sorted run is found soonest.
            keyspace.rotate_memtable_and_wait()?;
            keyspace.major_compact()?;
            database.persist(PersistMode::SyncAll)?;
        }
        Ok(())
    }

    /// Reads what is there now, as often as `next` says which.
    fn read(&self, mut next: impl FnMut() -> Option<u64>) -> Result<()> {
        while let Some(number) = next() {
            let found = match self {
                Engine::Yesquel(database, map) => {
                    let value = database.get(*map, &key(number).to_be_bytes())?;
                    value.map(|value| black_box(&value).len())
                }
                Engine::Redb(database) => {
                    let table = database.begin_read()?.open_table(TABLE)?;
                    table.get(key(number))?.map(|value| black_box(value.value()).len())
                }
                Engine::Fjall(_, keyspace) => {
                    keyspace.get(key(number).to_be_bytes())?.map(|value| black_box(&value).len())
                }
            };
            found.map_or_else(missing, |_| Ok(()))?;
        }
        Ok(())
    }

    /// The same at one snapshot.
    fn read_snapshot(&self, mut next: impl FnMut() -> Option<u64>) -> Result<()> {
        match self {
            Engine::Yesquel(database, map) => {
                let mut transaction = database.begin();
                while let Some(number) = next() {
                    match transaction.get(*map, &key(number).to_be_bytes())? {
                        Some(value) => drop(black_box(value)),
                        None => return missing(),
                    }
                }
            }
            Engine::Redb(database) => {
                let table = database.begin_read()?.open_table(TABLE)?;
                while let Some(number) = next() {
                    match table.get(key(number))? {
                        Some(value) => drop(black_box(value.value()).len()),
                        None => return missing(),
                    }
                }
            }
            Engine::Fjall(database, keyspace) => {
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

    /// Inserts keys, each on disk before the next.
    fn insert(&self, mut next: impl FnMut() -> Option<u64>, value: &[u8]) -> Result<()> {
        while let Some(number) = next() {
            match self {
                Engine::Yesquel(database, map) => {
                    database.put(*map, &key(number).to_be_bytes(), value)?;
                }
                Engine::Redb(database) => {
                    let mut transaction = database.begin_write()?;
                    transaction.set_durability(redb::Durability::Immediate)?;
                    transaction.open_table(TABLE)?.insert(key(number), value)?;
                    transaction.commit()?;
                }
                Engine::Fjall(database, keyspace) => {
                    keyspace.insert(key(number).to_be_bytes(), value)?;
                    database.persist(PersistMode::SyncAll)?;
                }
            }
        }
        Ok(())
    }
}

/// What the threads of a measurement do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Read,
    ReadSnapshot,
    Insert,
}

/// Makes the folder's contents.
pub(crate) fn load(plan: &Plan) -> Result<serde_json::Value> {
    let begun = Instant::now();
    let engine = Engine::open(&plan.store, &plan.folder, Durability::None)?;
    engine.load(plan.keys, &vec![b'v'; plan.value_bytes])?;
    drop(engine);
    Ok(serde_json::json!({ "seconds": begun.elapsed().as_secs_f64() }))
}

/// Opens it and measures reads and inserts, by one thread and by two.
pub(crate) fn run(plan: &Plan) -> Result<serde_json::Value> {
    let engine = Engine::open(&plan.store, &plan.folder, Durability::Sync)?;
    // Every key once, so that what a cache can hold it holds.
    let mut numbers = 0..plan.keys;
    engine.read(|| numbers.next())?;
    let mut all = serde_json::Map::new();
    let new = AtomicU64::new(plan.keys + (plan.process << 32));
    for (name, act) in [("read", Act::Read), ("snapshot", Act::ReadSnapshot), ("insert", Act::Insert)] {
        for threads in [1, 2] {
            let seen = measure(plan, &engine, act, threads, &new)?;
            all.insert(format!("{name}_{threads}"), seen.into());
        }
    }
    Ok(all.into())
}

/// Operations a second.
fn measure(plan: &Plan, engine: &Engine, act: Act, threads: u64, new: &AtomicU64) -> Result<f64> {
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
                        // A look at what others write is not free.
                        let over = (count % STEPS == 0 || act == Act::Insert) && ended.load(Relaxed);
                        count += u64::from(!over);
                        !over
                    };
                    start.wait();
                    match act {
                        Act::Insert => {
                            engine.insert(|| goes_on().then(|| new.fetch_add(1, Relaxed)), value)?;
                        }
                        Act::Read => engine.read(|| goes_on().then(|| random.next(plan.keys)))?,
                        Act::ReadSnapshot => {
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
