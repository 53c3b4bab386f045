//! Threads, what each does, and what they have seen.

use crate::{
    Result, Workload,
    plan::Plan,
    target::{Client, Shared, key},
    worker::{LAST, Worker},
};
use hdrhistogram::Histogram;
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel::status::RequestStatus;
use yesquel_seeds::Random;

/// How long a server that was started may take to know what it had stored.
const READY_MAX: Duration = Duration::from_secs(300);

/// Waits for a server that reads what it had stored.
pub(crate) fn wait(plan: &Plan) -> Result<serde_json::Value> {
    let begun = Instant::now();
    loop {
        let asked = Shared::connect(&plan.target).and_then(|shared| match shared.client()? {
            Client::Yesquel(database, map) => Ok(database.get(map, &key(0))?.is_some()),
            Client::Sql(mut sql) => sql.read(0),
            Client::Redis(mut redis) => Ok(redis.get(&key(0))?),
        });
        match asked {
            Ok(true) => return Ok(serde_json::json!({ "seconds": begun.elapsed().as_secs_f64() })),
            Ok(false) => return Err("it has forgotten what it had stored".into()),
            // Not there yet, or loading.
            Err(error) if begun.elapsed() > READY_MAX => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

struct Seen {
    operations: u64,
    aborts: u64,
    latency_us: Histogram<u64>,
}

pub(crate) fn run(plan: &Plan) -> Result<serde_json::Value> {
    let shared = (0..plan.clients.clamp(1, plan.threads)).map(|_| Shared::connect(&plan.target));
    let shared: Vec<Shared> = shared.collect::<Result<_>>()?;
    if matches!(plan.workload, Workload::InsertMono | Workload::InsertMonoRead) {
        // Above those that there are, and for each process elsewhere.
        LAST.store(plan.keys + (plan.process << 40), Relaxed);
    }
    let (start, measuring, ended) =
        (Barrier::new(plan.threads as usize + 1), AtomicBool::new(false), AtomicBool::new(false));
    let mut asked = RequestStatus::default();
    let (cpu_us, all, took) = thread::scope(|scope| -> Result<_> {
        let threads: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let shared = &shared[thread as usize % shared.len()];
                let (start, measuring, ended) = (&start, &measuring, &ended);
                scope.spawn(move || -> Result<Seen> {
                    let seed = plan.process << 32 | u64::from(thread);
                    let client = shared.client();
                    start.wait();
                    let worker = Worker {
                        plan,
                        client: client?,
                        thread: plan.process * u64::from(plan.threads) + u64::from(thread),
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
        let asked_before = requests(&shared[0])?;
        let (before, begun) = (cpu_us(), Instant::now());
        measuring.store(true, Relaxed);
        if !plan.is_load() {
            thread::sleep(plan.measured);
        }
        ended.store(!plan.is_load(), Relaxed);
        let mut all = Seen { operations: 0, aborts: 0, latency_us: Histogram::new_with_max(60_000_000, 3)? };
        for thread in threads {
            let seen = thread.join().map_err(|_| "a thread has panicked")??;
            all.operations += seen.operations;
            all.aborts += seen.aborts;
            all.latency_us.add(&seen.latency_us)?;
        }
        let took = (cpu_us() - before, all, begun.elapsed());
        asked = difference(&requests(&shared[0])?, &asked_before);
        Ok(took)
    })?;
    let seconds = took.as_secs_f64();
    let operations = all.operations as f64;
    Ok(serde_json::json!({
        "operations": all.operations,
        "seconds": seconds,
        "throughput": operations / seconds,
        "aborts": all.aborts,
        "server": asked,
        // Not of an operation: there may have been none, as where a file is
        // locked by others all the time.
        "cpu_us_total": cpu_us,
        // All of them, for whoever puts those of several processes together.
        "latencies_us": latencies(&all.latency_us),
    }))
}

/// How often each was seen.
fn latencies(seen: &Histogram<u64>) -> Vec<(u64, u64)> {
    seen.iter_recorded()
        .map(|value| (value.value_iterated_to(), value.count_at_value()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// What the server was asked so far.
fn requests(shared: &Shared) -> Result<RequestStatus> {
    match shared {
        Shared::Yesquel(database, _) => Ok(database.store().status()?.requests),
        Shared::Sql(_, Some(store)) => Ok(store.status()?.requests),
        Shared::Sql(_, None) | Shared::Redis(_) => Ok(RequestStatus::default()),
        #[cfg(feature = "mariadb")]
        Shared::Maria(_) => Ok(RequestStatus::default()),
    }
}

fn difference(after: &RequestStatus, before: &RequestStatus) -> RequestStatus {
    RequestStatus {
        reads: after.reads - before.reads,
        questions: after.questions - before.questions,
        commits: after.commits - before.commits,
        prepares: after.prepares - before.prepares,
        conflicts: after.conflicts - before.conflicts,
        moved: after.moved - before.moved,
        waits: after.waits - before.waits,
    }
}

fn work(mut worker: Worker<'_>, thread: u32, measuring: &AtomicBool, ended: &AtomicBool) -> Result<Seen> {
    let plan = worker.plan;
    let mut seen = Seen { operations: 0, aborts: 0, latency_us: Histogram::new_with_max(60_000_000, 3)? };
    let step = (plan.rate > 0.0).then(|| Duration::from_secs_f64(f64::from(plan.threads) / plan.rate));
    let mut next = Instant::now() + step.unwrap_or_default() * thread / plan.threads;
    let mut counts = false;
    while !(ended.load(Relaxed) || plan.is_load() && LAST.load(Relaxed) >= plan.keys) {
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
            if !plan.is_load() {
                continue;
            }
        }
        seen.operations += operations;
        seen.latency_us.saturating_record(from.elapsed().as_micros() as u64);
    }
    // What was due and not begun has waited until now at least: left out, the
    // slow ones at the end would be missing.
    if let (Some(step), true) = (step, counts) {
        let end = Instant::now();
        while next < end {
            seen.latency_us.saturating_record((end - next).as_micros() as u64);
            next += step;
        }
    }
    seen.aborts = worker.aborts;
    Ok(seen)
}

/// Processor time of this process so far.
fn cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}
