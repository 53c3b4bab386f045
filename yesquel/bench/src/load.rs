//! Threads of a load, and their results.

use crate::{
    LoadWorkload, Result, cluster,
    plan::LoadPlan,
    target::{LoadClient, ThreadConnections, key},
    worker::{LAST, LoadWorker},
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

/// Time limit for a started server to recover its data.
const READY_MAX: Duration = Duration::from_secs(300);

/// Waits until a server has recovered.
pub(crate) fn wait(plan: &LoadPlan) -> Result<serde_json::Value> {
    let begun = Instant::now();
    loop {
        let asked = ThreadConnections::connect(&plan.target).and_then(|shared| match shared.client()? {
            LoadClient::Yesquel(database, map) => Ok(database.get(map, &key(0))?.is_some()),
            LoadClient::Sql(mut sql) => sql.read(0),
            LoadClient::Redis(mut redis) => Ok(redis.get(&key(0))?),
        });
        match asked {
            Ok(true) => return Ok(serde_json::json!({ "seconds": begun.elapsed().as_secs_f64() })),
            Ok(false) => return Err("it has forgotten what it had stored".into()),
            // Not listening yet, or still recovering.
            Err(error) if begun.elapsed() > READY_MAX => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

struct LoadResults {
    operations: u64,
    aborts: u64,
    latency_us: Histogram<u64>,
}

pub(crate) fn run(plan: &LoadPlan) -> Result<serde_json::Value> {
    let shared = (0..plan.clients.clamp(1, plan.threads)).map(|_| ThreadConnections::connect(&plan.target));
    let shared: Vec<ThreadConnections> = shared.collect::<Result<_>>()?;
    if matches!(plan.workload, LoadWorkload::InsertMono | LoadWorkload::InsertMonoRead) {
        // Above the existing keys, and in a separate range for each process.
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
                scope.spawn(move || -> Result<LoadResults> {
                    let seed = plan.process << 32 | u64::from(thread);
                    let client = shared.client();
                    start.wait();
                    let worker = LoadWorker {
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
        let mut all =
            LoadResults { operations: 0, aborts: 0, latency_us: Histogram::new_with_max(60_000_000, 3)? };
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
        // A total, not per operation: there may have been none, as while others lock a file.
        "cpu_us_total": cpu_us,
        // The whole histogram, so that several processes can be merged.
        "latencies_us": latencies(&all.latency_us),
    }))
}

/// Returns each latency with its count.
fn latencies(seen: &Histogram<u64>) -> Vec<(u64, u64)> {
    seen.iter_recorded()
        .map(|value| (value.value_iterated_to(), value.count_at_value()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Returns the request counts of all servers so far.
fn requests(shared: &ThreadConnections) -> Result<RequestStatus> {
    match shared {
        ThreadConnections::Yesquel(database, _) => cluster::requests(database.store()),
        ThreadConnections::Sql(_, Some(store)) => cluster::requests(store),
        ThreadConnections::Sql(_, None) | ThreadConnections::Redis(_) => Ok(RequestStatus::default()),
        #[cfg(feature = "mariadb")]
        ThreadConnections::Maria(_) => Ok(RequestStatus::default()),
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
        recoveries: after.recoveries - before.recoveries,
        wrong_group: after.wrong_group - before.wrong_group,
    }
}

fn work(
    mut worker: LoadWorker<'_>,
    thread: u32,
    measuring: &AtomicBool,
    ended: &AtomicBool,
) -> Result<LoadResults> {
    let plan = worker.plan;
    let mut seen =
        LoadResults { operations: 0, aborts: 0, latency_us: Histogram::new_with_max(60_000_000, 3)? };
    let step = (plan.rate > 0.0).then(|| Duration::from_secs_f64(f64::from(plan.threads) / plan.rate));
    let mut next = Instant::now() + step.unwrap_or_default() * thread / plan.threads;
    let mut counts = false;
    while !(ended.load(Relaxed) || plan.is_load() && LAST.load(Relaxed) >= plan.keys) {
        let from = match step {
            // Since the scheduled time, so that waiting behind a slow operation counts.
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
    // Operations that were due and not started have waited at least until now. Without them the
    // slowest operations at the end would be missing.
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

/// Returns the processor time of this process so far.
fn cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}
