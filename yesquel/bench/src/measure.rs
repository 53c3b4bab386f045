//! Threads of a load, and their results.

use crate::Result;
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

/// What a thread of a load does.
pub(crate) trait ThreadWork {
    /// Runs one operation, or one pipeline. Returns the number of operations.
    fn step(&mut self) -> Result<u64>;

    /// Returns whether nothing is left to do.
    fn is_done(&self) -> bool;

    /// Returns the number of conflicts since the last call.
    fn take_aborts(&mut self) -> u64;
}

/// Course of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadSchedule {
    pub(crate) threads: u32,
    pub(crate) warm_up: Duration,
    /// Time that is measured; `None`: from the start until all threads are done.
    pub(crate) measured: Option<Duration>,
    /// Operations a second of all threads together; 0: as fast as answers come.
    pub(crate) rate: f64,
}

struct ThreadResults {
    operations: u64,
    aborts: u64,
    latency_us: Histogram<u64>,
}

impl ThreadResults {
    fn new() -> Result<ThreadResults> {
        let latency_us = Histogram::new_with_max(60_000_000, 3)?;
        Ok(ThreadResults { operations: 0, aborts: 0, latency_us })
    }
}

/// Runs a load, and returns its results. `requests` returns the requests to the servers so far.
pub(crate) fn measure<W: ThreadWork>(
    schedule: &LoadSchedule,
    worker: impl Fn(u32) -> Result<W> + Sync,
    requests: impl Fn() -> Result<RequestStatus>,
) -> Result<serde_json::Value> {
    let (start, measuring, ended) =
        (Barrier::new(schedule.threads as usize + 1), AtomicBool::new(false), AtomicBool::new(false));
    let mut asked = RequestStatus::default();
    let (cpu_us, all, took) = thread::scope(|scope| -> Result<_> {
        let threads: Vec<_> = (0..schedule.threads)
            .map(|thread| {
                let (worker, start, measuring, ended) = (&worker, &start, &measuring, &ended);
                scope.spawn(move || -> Result<ThreadResults> {
                    let worker = worker(thread);
                    start.wait();
                    work(schedule, worker?, thread, measuring, ended)
                })
            })
            .collect();
        start.wait();
        thread::sleep(schedule.warm_up);
        let asked_before = requests()?;
        let (before, begun) = (cpu_us(), Instant::now());
        measuring.store(true, Relaxed);
        if let Some(measured) = schedule.measured {
            thread::sleep(measured);
            ended.store(true, Relaxed);
        }
        let mut all = ThreadResults::new()?;
        for thread in threads {
            let seen = thread.join().map_err(|_| "a thread has panicked")??;
            all.operations += seen.operations;
            all.aborts += seen.aborts;
            all.latency_us.add(&seen.latency_us)?;
        }
        let took = (cpu_us() - before, all, begun.elapsed());
        asked = difference(&requests()?, &asked_before);
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
    schedule: &LoadSchedule,
    mut worker: impl ThreadWork,
    thread: u32,
    measuring: &AtomicBool,
    ended: &AtomicBool,
) -> Result<ThreadResults> {
    let mut seen = ThreadResults::new()?;
    let step =
        (schedule.rate > 0.0).then(|| Duration::from_secs_f64(f64::from(schedule.threads) / schedule.rate));
    let mut next = Instant::now() + step.unwrap_or_default() * thread / schedule.threads;
    let mut counts = false;
    while !ended.load(Relaxed) && !worker.is_done() {
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
            worker.take_aborts();
            if schedule.measured.is_some() {
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
    seen.aborts = worker.take_aborts();
    Ok(seen)
}

/// Returns the processor time of this process so far.
fn cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}
