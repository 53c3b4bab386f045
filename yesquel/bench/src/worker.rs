//! Operations of one thread.

use crate::{
    LoadWorkload, Result,
    measure::ThreadWork,
    plan::{LoadPlan, SHUFFLE},
    target::{LoadClient, key},
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_seeds::Random;

/// Error for workloads that SQL does not support.
const NOT_BY_SQL: &str = "there is no such load by SQL";

/// Maximum length of a range.
const RANGE_MAX: u64 = 5;

/// State of one thread.
pub(crate) struct LoadWorker<'a> {
    pub(crate) plan: &'a LoadPlan,
    pub(crate) client: LoadClient<'a>,
    /// Index of the thread among those of all processes.
    pub(crate) thread: u64,
    pub(crate) random: Random,
    pub(crate) value: Vec<u8>,
    pub(crate) aborts: u64,
    pub(crate) keys: Vec<[u8; 8]>,
}

/// Largest key so far, for all threads of a process.
pub(crate) static LAST: AtomicU64 = AtomicU64::new(0);

impl ThreadWork for LoadWorker<'_> {
    fn step(&mut self) -> Result<u64> {
        match self.plan.workload {
            LoadWorkload::Load => self.load(),
            LoadWorkload::Read => self.read(),
            LoadWorkload::Update => self.update(),
            LoadWorkload::Insert => {
                let number = self.wide() | 1 << 63;
                self.put(number)
            }
            LoadWorkload::InsertMono => self.append(),
            LoadWorkload::InsertMonoRead => self.insert(LAST.fetch_add(1, Relaxed)),
            LoadWorkload::ScanUpdate => self.scan_update(),
            LoadWorkload::Scan => self.scan(),
            LoadWorkload::Range => self.range(),
            LoadWorkload::Index => self.index(),
            LoadWorkload::Survey
            | LoadWorkload::Roots
            | LoadWorkload::Ready
            | LoadWorkload::Commit
            | LoadWorkload::Tables
            | LoadWorkload::Virtual
            | LoadWorkload::Open
            | LoadWorkload::Idle
            | LoadWorkload::EmbeddedServer
            | LoadWorkload::EmbeddedLoad
            | LoadWorkload::WikipediaLoad
            | LoadWorkload::Wikipedia => Err("no thread does that".into()),
        }
    }

    fn is_done(&self) -> bool {
        self.plan.is_load() && LAST.load(Relaxed) >= self.plan.keys
    }

    fn take_aborts(&mut self) -> u64 {
        std::mem::take(&mut self.aborts)
    }
}

impl LoadWorker<'_> {
    /// Draws a number of 62 bits from two of 31.
    fn wide(&mut self) -> u64 {
        self.random.next(1 << 31) << 31 | self.random.next(1 << 31)
    }

    /// Draws an existing key.
    fn key(&mut self) -> u64 {
        let LoadPlan { keys, apart, .. } = *self.plan;
        match apart {
            0 => self.random.next(keys),
            // Each thread has keys of its own.
            apart => (self.random.next((keys / apart).max(1)) * apart + self.thread % apart).min(keys - 1),
        }
    }

    /// Loads the next keys.
    fn load(&mut self) -> Result<u64> {
        let plan = self.plan;
        let first = LAST.fetch_add(plan.batch, Relaxed);
        let numbers = first..plan.keys.min(first.saturating_add(plan.batch));
        // Multiplying by an odd number permutes the numbers.
        let key = |number: u64| key(if plan.shuffled { number.wrapping_mul(SHUFFLE) } else { number });
        match &mut self.client {
            LoadClient::Yesquel(database, map) => {
                let (map, value) = (*map, &self.value);
                database.run(|transaction| {
                    numbers.clone().try_for_each(|number| transaction.put(map, &key(number), value))
                })?;
            }
            LoadClient::Sql(sql) => {
                let stored = |number: u64| (!plan.numbered).then(|| u64::from_be_bytes(key(number)));
                sql.insert_all(&mut numbers.clone().map(stored), &self.value)?;
            }
            LoadClient::Redis(redis) => {
                self.keys.clear();
                self.keys.extend(numbers.clone().map(key));
                redis.set_all(&self.keys, &self.value)?;
            }
        }
        Ok(numbers.count() as u64)
    }

    fn read(&mut self) -> Result<u64> {
        let number = self.key();
        match &mut self.client {
            LoadClient::Yesquel(database, map) => {
                database.get(*map, &key(number))?.ok_or("a key is missing")?;
            }
            LoadClient::Sql(sql) => {
                sql.read(number)?.then_some(()).ok_or("a row is missing")?;
            }
            LoadClient::Redis(redis) if self.plan.pipeline > 1 => {
                self.keys.clear();
                let plan = self.plan;
                self.keys.extend((0..plan.pipeline).map(|_| key(self.random.next(plan.keys))));
                redis.get_all(&self.keys)?;
                return Ok(plan.pipeline as u64);
            }
            LoadClient::Redis(redis) => {
                redis.get(&key(number))?;
            }
        }
        Ok(1)
    }

    /// Changes the value: a database may skip a write of the same value.
    fn change(&mut self) {
        let new = self.wide().to_ne_bytes();
        for (byte, new) in self.value.iter_mut().zip(new) {
            *byte = new;
        }
    }

    fn update(&mut self) -> Result<u64> {
        let number = self.key();
        self.change();
        let plan = self.plan;
        match &mut self.client {
            // Reads the row and writes it, in a transaction of its own.
            LoadClient::Sql(sql) => sql.update(number, &self.value)?,
            LoadClient::Redis(redis) if plan.pipeline > 1 => {
                self.keys.clear();
                self.keys.extend((0..plan.pipeline).map(|_| key(self.random.next(plan.keys))));
                redis.get_and_set_all(&self.keys, &self.value)?;
                return Ok(plan.pipeline as u64);
            }
            LoadClient::Yesquel(database, map) => again(&mut self.aborts, || {
                let mut transaction = database.begin();
                transaction.get(*map, &key(number))?;
                transaction.put(*map, &key(number), &self.value)?;
                transaction.commit().map(drop)
            })?,
            LoadClient::Redis(redis) => {
                redis.get(&key(number))?;
                redis.set(&key(number), &self.value)?;
            }
        }
        Ok(1)
    }

    fn put(&mut self, number: u64) -> Result<u64> {
        match &mut self.client {
            LoadClient::Yesquel(database, map) => {
                again(&mut self.aborts, || database.put(*map, &key(number), &self.value).map(drop))?;
            }
            LoadClient::Sql(sql) => sql.insert(Some(number), &self.value)?,
            LoadClient::Redis(redis) => redis.set(&key(number), &self.value)?,
        }
        Ok(1)
    }

    /// Appends a row with the next key, or with one that the database chooses.
    fn append(&mut self) -> Result<u64> {
        if let LoadClient::Sql(sql) = &mut self.client {
            sql.insert(None, &self.value)?;
            return Ok(1);
        }
        self.put(LAST.fetch_add(1, Relaxed))
    }

    /// Inserts like the paper's clients: looks up the key before.
    fn insert(&mut self, number: u64) -> Result<u64> {
        match &mut self.client {
            LoadClient::Yesquel(database, map) => again(&mut self.aborts, || {
                let mut transaction = database.begin();
                transaction.get(*map, &key(number))?;
                transaction.insert(*map, &key(number), &self.value)?;
                transaction.commit().map(drop)
            })?,
            LoadClient::Sql(_) => return Err(NOT_BY_SQL.into()),
            LoadClient::Redis(redis) => {
                redis.get(&key(number))?;
                redis.set(&key(number), &self.value)?;
            }
        }
        Ok(1)
    }

    /// Reads a range, or at each twentieth call updates a key.
    fn range(&mut self) -> Result<u64> {
        if self.random.next(20) == 0 {
            return self.update();
        }
        let (number, limit) = (self.key(), 1 + self.random.next(RANGE_MAX));
        let plan = self.plan;
        match &mut self.client {
            LoadClient::Yesquel(database, map) => {
                for entry in database.begin().range(*map, key(number)..).limit(limit) {
                    entry?;
                }
            }
            LoadClient::Sql(sql) => {
                sql.range(number, limit)?;
            }
            LoadClient::Redis(redis) => {
                let more = (1..plan.pipeline)
                    .map(|_| (self.random.next(plan.keys), 1 + self.random.next(RANGE_MAX)));
                redis.ranges(std::iter::once((number, limit)).chain(more))?;
                return Ok(plan.pipeline as u64);
            }
        }
        Ok(1)
    }

    /// Adds the next keys to Redis's sorted set.
    fn index(&mut self) -> Result<u64> {
        let LoadClient::Redis(redis) = &mut self.client else {
            return Err("only Redis needs an index of its own".into());
        };
        let first = LAST.fetch_add(self.plan.batch, Relaxed);
        let numbers = first..self.plan.keys.min(first.saturating_add(self.plan.batch));
        redis.index_all(numbers.clone())?;
        Ok(numbers.count() as u64)
    }

    /// Draws the start of a scan.
    fn start(&mut self) -> u64 {
        self.random.next((self.plan.keys - self.plan.scan.min(self.plan.keys)).max(1))
    }

    fn scan_update(&mut self) -> Result<u64> {
        let (start, number, scan) = (self.start(), self.key(), self.plan.scan);
        match &mut self.client {
            LoadClient::Yesquel(database, map) => again(&mut self.aborts, || {
                let mut transaction = database.begin();
                for entry in transaction.range(*map, key(start)..).limit(scan) {
                    entry?;
                }
                transaction.put(*map, &key(number), &self.value)?;
                transaction.commit().map(drop)
            })?,
            LoadClient::Sql(_) => return Err(NOT_BY_SQL.into()),
            LoadClient::Redis(redis) => {
                // Its keys have no order, so that existing ones are requested.
                self.keys.clear();
                self.keys.extend((start..start + scan).map(key));
                redis.get_many(&self.keys)?;
                redis.set(&key(number), &self.value)?;
            }
        }
        Ok(1)
    }

    fn scan(&mut self) -> Result<u64> {
        let (start, scan) = (self.start(), self.plan.scan);
        let LoadClient::Yesquel(database, map) = &self.client else {
            return Err("there is no such order in Redis".into());
        };
        let mut transaction = database.begin();
        let mut count = 0;
        for entry in transaction.range(*map, key(start)..).limit(scan) {
            entry?;
            count += 1;
        }
        Ok(count)
    }
}

/// Retries on conflicts, and counts them.
fn again(
    aborts: &mut u64,
    mut act: impl FnMut() -> std::result::Result<(), yesquel::Error>,
) -> std::result::Result<(), yesquel::Error> {
    loop {
        match act() {
            Err(error) if error.is_retryable() => *aborts += 1,
            done => return done,
        }
    }
}
