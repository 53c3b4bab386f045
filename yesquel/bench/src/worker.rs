//! What one thread does, again and again.

use crate::{
    Workload,
    load::{Plan, SHUFFLE},
    redis::Redis,
};
use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel::{Database, Map, SocketOptions, Store};
use yesquel_seeds::Random;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A connection to Yesquel, with what is known of its trees, that threads
/// share; or nothing, for Redis has one a thread.
pub(crate) enum Shared {
    Yesquel(Database, Map),
    Redis(String),
}

pub(crate) enum Client<'a> {
    Yesquel(&'a Database, Map),
    Redis(Box<Redis>),
}

pub(crate) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl Shared {
    pub(crate) fn connect(target: &str) -> Result<Shared> {
        match target.split_once(':') {
            Some(("yesquel", address)) => {
                let store = Store::connect(&address.parse()?, SocketOptions::default())?;
                let database = store.database_or_create("bench")?;
                let map = database.map("bench")?;
                Ok(Shared::Yesquel(database, map))
            }
            Some(("redis", address)) => Ok(Shared::Redis(address.to_owned())),
            _ => Err(format!("'{target}' is neither yesquel:ADDRESS nor redis:ADDRESS").into()),
        }
    }

    pub(crate) fn client(&self) -> Result<Client<'_>> {
        match self {
            Shared::Yesquel(database, map) => Ok(Client::Yesquel(database, *map)),
            Shared::Redis(address) => Ok(Client::Redis(Box::new(Redis::connect(address)?))),
        }
    }
}

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
                let number = self.random.next(u64::MAX >> 1) | 1 << 63;
                self.put(number)
            }
            Workload::InsertMono => self.put(LAST.fetch_add(1, Relaxed)),
            Workload::InsertMonoRead => self.insert(LAST.fetch_add(1, Relaxed)),
            Workload::ScanUpdate => self.scan_update(),
            Workload::Scan => self.scan(),
            Workload::Survey
            | Workload::Roots
            | Workload::Ready
            | Workload::Embedded
            | Workload::EmbeddedLoad => Err("no thread does that".into()),
        }
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

    fn update(&mut self) -> Result<u64> {
        let number = self.key();
        match &mut self.client {
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
            Client::Redis(redis) => redis.set(&key(number), &self.value)?,
        }
        Ok(1)
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
            Client::Redis(redis) => {
                redis.get(&key(number))?;
                redis.set(&key(number), &self.value)?;
            }
        }
        Ok(1)
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
