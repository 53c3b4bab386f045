//! What one thread does, again and again.

use crate::{
    Result, Workload,
    plan::{Plan, SHUFFLE},
    target::{Client, key},
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use yesquel_seeds::Random;

/// What nobody measures.
const NOT_BY_SQL: &str = "there is no such load by SQL";

/// Longest range.
const RANGE_MAX: u64 = 5;

/// What one thread does, and what it needs for that.
pub(crate) struct Worker<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) client: Client<'a>,
    /// Which thread it is, of those of all processes.
    pub(crate) thread: u64,
    pub(crate) random: Random,
    pub(crate) value: Vec<u8>,
    pub(crate) aborts: u64,
    pub(crate) keys: Vec<[u8; 8]>,
}

/// The largest key so far, for all threads of a process.
pub(crate) static LAST: AtomicU64 = AtomicU64::new(0);

impl Worker<'_> {
    /// Does one operation, or one pipeline of them; how many.
    pub(crate) fn step(&mut self) -> Result<u64> {
        match self.plan.workload {
            Workload::Load => self.load(),
            Workload::Read => self.read(),
            Workload::Update => self.update(),
            Workload::Insert => {
                let number = self.wide() | 1 << 63;
                self.put(number)
            }
            Workload::InsertMono => self.append(),
            Workload::InsertMonoRead => self.insert(LAST.fetch_add(1, Relaxed)),
            Workload::ScanUpdate => self.scan_update(),
            Workload::Scan => self.scan(),
            Workload::Range => self.range(),
            Workload::Index => self.index(),
            Workload::Survey
            | Workload::Roots
            | Workload::Ready
            | Workload::Open
            | Workload::Idle
            | Workload::EmbeddedServer
            | Workload::EmbeddedLoad => Err("no thread does that".into()),
        }
    }

    /// A number of 62 bits: two of 31, which is what one has.
    fn wide(&mut self) -> u64 {
        self.random.next(1 << 31) << 31 | self.random.next(1 << 31)
    }

    /// A key of those that there are.
    fn key(&mut self) -> u64 {
        let Plan { keys, apart, .. } = *self.plan;
        match apart {
            0 => self.random.next(keys),
            // Each thread has some to itself.
            apart => (self.random.next((keys / apart).max(1)) * apart + self.thread % apart).min(keys - 1),
        }
    }

    /// Loads the next keys.
    fn load(&mut self) -> Result<u64> {
        let plan = self.plan;
        let first = LAST.fetch_add(plan.batch, Relaxed);
        let numbers = first..plan.keys.min(first.saturating_add(plan.batch));
        // Times an odd number each number comes once, in no order.
        let key = |number: u64| key(if plan.shuffled { number.wrapping_mul(SHUFFLE) } else { number });
        match &mut self.client {
            Client::Yesquel(database, map) => {
                let (map, value) = (*map, &self.value);
                database.run(|transaction| {
                    numbers.clone().try_for_each(|number| transaction.put(map, &key(number), value))
                })?;
            }
            Client::Sql(sql) => {
                let stored = |number: u64| (!plan.numbered).then(|| u64::from_be_bytes(key(number)));
                sql.insert_all(&mut numbers.clone().map(stored), &self.value)?;
            }
            Client::Redis(redis) => {
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
            Client::Yesquel(database, map) => {
                database.get(*map, &key(number))?.ok_or("a key is missing")?;
            }
            Client::Sql(sql) => {
                sql.read(number)?.then_some(()).ok_or("a row is missing")?;
            }
            Client::Redis(redis) if self.plan.pipeline > 1 => {
                self.keys.clear();
                let plan = self.plan;
                self.keys.extend((0..plan.pipeline).map(|_| key(self.random.next(plan.keys))));
                redis.get_all(&self.keys)?;
                return Ok(plan.pipeline as u64);
            }
            Client::Redis(redis) => {
                redis.get(&key(number))?;
            }
        }
        Ok(1)
    }

    /// Makes the value another one: who is told to write what is there already
    /// need not write.
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
            // It reads the row and writes it, in a transaction of its own.
            Client::Sql(sql) => sql.update(number, &self.value)?,
            Client::Redis(redis) if plan.pipeline > 1 => {
                self.keys.clear();
                self.keys.extend((0..plan.pipeline).map(|_| key(self.random.next(plan.keys))));
                redis.get_and_set_all(&self.keys, &self.value)?;
                return Ok(plan.pipeline as u64);
            }
            Client::Yesquel(database, map) => again(&mut self.aborts, || {
                let mut transaction = database.begin();
                transaction.get(*map, &key(number))?;
                transaction.put(*map, &key(number), &self.value)?;
                transaction.commit().map(drop)
            })?,
            Client::Redis(redis) => {
                redis.get(&key(number))?;
                redis.set(&key(number), &self.value)?;
            }
        }
        Ok(1)
    }

    fn put(&mut self, number: u64) -> Result<u64> {
        match &mut self.client {
            Client::Yesquel(database, map) => {
                again(&mut self.aborts, || database.put(*map, &key(number), &self.value).map(drop))?;
            }
            Client::Sql(sql) => sql.insert(Some(number), &self.value)?,
            Client::Redis(redis) => redis.set(&key(number), &self.value)?,
        }
        Ok(1)
    }

    /// A row at the end, where the database counts, or the next key.
    fn append(&mut self) -> Result<u64> {
        if let Client::Sql(sql) = &mut self.client {
            sql.insert(None, &self.value)?;
            return Ok(1);
        }
        self.put(LAST.fetch_add(1, Relaxed))
    }

    /// As the paper's clients insert: they have looked for the key before.
    fn insert(&mut self, number: u64) -> Result<u64> {
        match &mut self.client {
            Client::Yesquel(database, map) => again(&mut self.aborts, || {
                let mut transaction = database.begin();
                transaction.get(*map, &key(number))?;
                transaction.insert(*map, &key(number), &self.value)?;
                transaction.commit().map(drop)
            })?,
            Client::Sql(_) => return Err(NOT_BY_SQL.into()),
            Client::Redis(redis) => {
                redis.get(&key(number))?;
                redis.set(&key(number), &self.value)?;
            }
        }
        Ok(1)
    }

    /// A range, or each twentieth time an update.
    fn range(&mut self) -> Result<u64> {
        if self.random.next(20) == 0 {
            return self.update();
        }
        let (number, limit) = (self.key(), 1 + self.random.next(RANGE_MAX));
        let plan = self.plan;
        match &mut self.client {
            Client::Yesquel(database, map) => {
                for entry in database.begin().range(*map, key(number)..).limit(limit) {
                    entry?;
                }
            }
            Client::Sql(sql) => {
                sql.range(number, limit)?;
            }
            Client::Redis(redis) => {
                let more = (1..plan.pipeline)
                    .map(|_| (self.random.next(plan.keys), 1 + self.random.next(RANGE_MAX)));
                redis.ranges(std::iter::once((number, limit)).chain(more))?;
                return Ok(plan.pipeline as u64);
            }
        }
        Ok(1)
    }

    /// Puts the next keys into Redis's index.
    fn index(&mut self) -> Result<u64> {
        let Client::Redis(redis) = &mut self.client else {
            return Err("only Redis needs an index of its own".into());
        };
        let first = LAST.fetch_add(self.plan.batch, Relaxed);
        let numbers = first..self.plan.keys.min(first.saturating_add(self.plan.batch));
        redis.index_all(numbers.clone())?;
        Ok(numbers.count() as u64)
    }

    /// Where a scan begins.
    fn start(&mut self) -> u64 {
        self.random.next((self.plan.keys - self.plan.scan.min(self.plan.keys)).max(1))
    }

    fn scan_update(&mut self) -> Result<u64> {
        let (start, number, scan) = (self.start(), self.key(), self.plan.scan);
        match &mut self.client {
            Client::Yesquel(database, map) => again(&mut self.aborts, || {
                let mut transaction = database.begin();
                for entry in transaction.range(*map, key(start)..).limit(scan) {
                    entry?;
                }
                transaction.put(*map, &key(number), &self.value)?;
                transaction.commit().map(drop)
            })?,
            Client::Sql(_) => return Err(NOT_BY_SQL.into()),
            Client::Redis(redis) => {
                // Its keys have no order, so it is asked for those that there are.
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
        let Client::Yesquel(database, map) = &self.client else {
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

/// Begins again whenever another one was first, and counts that.
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
