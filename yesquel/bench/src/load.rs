//! Threads, what each does, and what they have seen.

use crate::{Workload, redis::Redis};
use hdrhistogram::Histogram;
use std::{
    error::Error,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel::{Database, Map, SocketOptions, Store};
use yesquel_seeds::Random;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) target: String,
    pub(crate) threads: u32,
    pub(crate) measured: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) rate: f64,
    pub(crate) pipeline: usize,
    pub(crate) process: u64,
    /// Keys that one transaction, or one going to and fro, loads.
    pub(crate) batch: u64,
    /// Whether keys are loaded in no order.
    pub(crate) shuffled: bool,
}

/// The one process's connection to Yesquel, or nothing, for Redis has one a
/// thread.
enum Shared {
    Yesquel(Database, Map),
    Redis(String),
}

enum Client<'a> {
    Yesquel(&'a Database, Map),
    Redis(Box<Redis>),
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl Shared {
    fn connect(target: &str) -> Result<Shared> {
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

    fn client(&self) -> Result<Client<'_>> {
        match self {
            Shared::Yesquel(database, map) => Ok(Client::Yesquel(database, *map)),
            Shared::Redis(address) => Ok(Client::Redis(Box::new(Redis::connect(address)?))),
        }
    }
}

/// What one thread does, and what it needs for that.
struct Worker<'a> {
    plan: &'a Plan,
    client: Client<'a>,
    random: Random,
    value: Vec<u8>,
    aborts: u64,
    keys: Vec<[u8; 8]>,
}

/// The largest key so far, for all threads of a process.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Worker<'_> {
    /// Does one operation, or one pipeline of them; how many.
    fn step(&mut self) -> Result<u64> {
        let number = self.random.next(self.plan.keys);
        match (&mut self.client, self.plan.workload) {
            (Client::Yesquel(database, map), Workload::Read) => {
                database.get(*map, &key(number))?.ok_or("a key is missing")?;
            }
            (Client::Redis(redis), Workload::Read) if self.plan.pipeline > 1 => {
                self.keys.clear();
                let plan = self.plan;
                self.keys.extend((0..plan.pipeline).map(|_| key(self.random.next(plan.keys))));
                redis.get_all(&self.keys)?;
                return Ok(plan.pipeline as u64);
            }
            (Client::Redis(redis), Workload::Read) => {
                redis.get(&key(number))?;
            }
            (Client::Yesquel(database, map), Workload::Update) => loop {
                let mut transaction = database.begin();
                transaction.get(*map, &key(number))?;
                transaction.put(*map, &key(number), &self.value)?;
                match transaction.commit() {
                    Ok(_) => break,
                    Err(error) if error.is_retryable() => self.aborts += 1,
                    Err(error) => return Err(error.into()),
                }
            },
            (Client::Redis(redis), Workload::Update) => {
                redis.get(&key(number))?;
                redis.set(&key(number), &self.value)?;
            }
            (_, Workload::Load) => return self.load(),
            (client, _) => {
                let number = match self.plan.workload {
                    Workload::Insert => self.random.next(u64::MAX >> 1) | 1 << 63,
                    _ => LAST.fetch_add(1, Relaxed),
                };
                match client {
                    Client::Yesquel(database, map) => {
                        while let Err(error) = database.put(*map, &key(number), &self.value) {
                            if !error.is_retryable() {
                                return Err(error.into());
                            }
                            self.aborts += 1;
                        }
                    }
                    Client::Redis(redis) => redis.set(&key(number), &self.value)?,
                }
            }
        }
        Ok(1)
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
}

/// The golden ratio's bits, as everybody takes them to shuffle.
pub(crate) const SHUFFLE: u64 = 0x9e37_79b9_7f4a_7c15;

struct Seen {
    operations: u64,
    aborts: u64,
    latency_us: Histogram<u64>,
}

pub(crate) fn run(plan: &Plan) -> Result<serde_json::Value> {
    let shared = Shared::connect(&plan.target)?;
    if plan.workload == Workload::InsertMono {
        // Above those that there are, and for each process elsewhere.
        LAST.store(plan.keys + (plan.process << 40), Relaxed);
    }
    let (start, measuring, ended) =
        (Barrier::new(plan.threads as usize + 1), AtomicBool::new(false), AtomicBool::new(false));
    let (cpu_us, all, took) = thread::scope(|scope| -> Result<_> {
        let threads: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let (shared, start, measuring, ended) = (&shared, &start, &measuring, &ended);
                scope.spawn(move || -> Result<Seen> {
                    let seed = plan.process << 32 | u64::from(thread);
                    let client = shared.client();
                    start.wait();
                    let worker = Worker {
                        plan,
                        client: client?,
                        random: Random::new(seed),
                        value: vec![b'v'; plan.value_bytes],
                        aborts: 0,
                        keys: Vec::new(),
                    };
                    work(worker, thread, measuring, ended)
                })
            })
            .collect();
        start.wait();
        thread::sleep(plan.warm_up);
        let (before, begun) = (cpu_us(), Instant::now());
        measuring.store(true, Relaxed);
        if plan.workload != Workload::Load {
            thread::sleep(plan.measured);
        }
        ended.store(plan.workload != Workload::Load, Relaxed);
        let mut all = Seen { operations: 0, aborts: 0, latency_us: Histogram::new_with_max(60_000_000, 3)? };
        for thread in threads {
            let seen = thread.join().map_err(|_| "a thread has panicked")??;
            all.operations += seen.operations;
            all.aborts += seen.aborts;
            all.latency_us.add(&seen.latency_us)?;
        }
        Ok((cpu_us() - before, all, begun.elapsed()))
    })?;
    let seconds = took.as_secs_f64();
    let operations = all.operations as f64;
    Ok(serde_json::json!({
        "operations": all.operations,
        "seconds": seconds,
        "throughput": operations / seconds,
        "aborts": all.aborts,
        "cpu_us": cpu_us as f64 / operations,
        "p50_us": all.latency_us.value_at_quantile(0.5),
        "p99_us": all.latency_us.value_at_quantile(0.99),
        "max_us": all.latency_us.max(),
    }))
}

fn work(mut worker: Worker<'_>, thread: u32, measuring: &AtomicBool, ended: &AtomicBool) -> Result<Seen> {
    let plan = worker.plan;
    let mut seen = Seen { operations: 0, aborts: 0, latency_us: Histogram::new_with_max(60_000_000, 3)? };
    let step = (plan.rate > 0.0).then(|| Duration::from_secs_f64(f64::from(plan.threads) / plan.rate));
    let mut next = Instant::now() + step.unwrap_or_default() * thread / plan.threads;
    let mut counts = false;
    while !(ended.load(Relaxed) || plan.workload == Workload::Load && LAST.load(Relaxed) >= plan.keys) {
        let from = match step {
            // Of when it should have begun: what waits behind a slow one has waited.
            Some(step) => {
                let due = next;
                next += step;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
            None => Instant::now(),
        };
        let operations = worker.step()?;
        if !counts {
            counts = measuring.load(Relaxed);
            worker.aborts = 0;
            if plan.workload != Workload::Load {
                continue;
            }
        }
        seen.operations += operations;
        seen.latency_us.saturating_record(from.elapsed().as_micros() as u64);
    }
    seen.aborts = worker.aborts;
    Ok(seen)
}

/// Processor time of this process so far.
fn cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}
