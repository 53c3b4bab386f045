//! The options of a run, from properties: operations, times, rate.

use crate::{
    properties as p,
    workloads::{self, WorkloadInfo},
};
use serval_measure::{legacy::LegacyKind, recorder::RecorderOptions};
use serval_model::{
    Share,
    properties::{Reader, units::format_span},
};
use serval_runner::{
    RunOptions, Steady,
    pacing::{Arrivals, rate::RateSchedule},
};
use serval_stores::StoreInfo;
use serval_workload::{
    core::{Circumstances, Phase},
    random::derived_seed,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of operations, times and rate of this process's part of a run.
pub(crate) struct Extent {
    pub(crate) share: Share,
    clients: usize,
    /// Operations of this process; `None` for no limit.
    operations: Option<u64>,
    time: Option<Duration>,
    warm_up: Duration,
    steady: Option<Steady>,
    rate: Option<RateSchedule>,
    seed: u64,
}

impl Extent {
    /// Reads the extent from properties. Faults go to the reader.
    pub(crate) fn read(reader: &mut Reader<'_>, phase: Phase, workload: Option<&WorkloadInfo>) -> Extent {
        let rate = rate(reader);
        let share = share(reader, workload);
        if reader.given(&p::PHASES) {
            reader.fault(&p::PHASES, "only serval load, serval run and experiment files go through phases");
        }
        let clients = reader.count(&p::THREAD_COUNT).max(1) as usize;
        let operations = operations(reader, share);
        let time = Some(reader.duration(&p::MAX_EXECUTION_TIME)).filter(|time| !time.is_zero());
        let (warm_up, steady) = match phase {
            Phase::Load => (Duration::ZERO, None),
            Phase::Run => {
                let warm_up = reader.duration(&p::WARM_UP);
                (warm_up, steady(reader, warm_up, rate.as_ref()))
            }
        };
        let seed = reader.optional_count(&p::SEED).unwrap_or_else(fresh_seed);
        // A load does not derive a seed per process: a record's values must not depend on the process that loads it.
        let seed = if phase == Phase::Load { seed } else { share.seed(seed) };
        Extent { share, clients, operations, time, warm_up, steady, rate, seed }
    }

    fn warm_up_max(&self) -> Duration {
        self.steady.map_or(self.warm_up, |steady| steady.max.max(self.warm_up))
    }

    /// Returns the circumstances of the run for the workload.
    pub(crate) fn circumstances(&self, phase: Phase, store: &StoreInfo, resume: bool) -> Circumstances {
        let warm_up_max = self.warm_up_max();
        let rate_max = self.rate.as_ref().map(|rate| self.share.of_rate(rate.rate_max()));
        // A schedule with an end determines the number of operations.
        let scheduled = self.rate.as_ref().and_then(|rate| {
            let due = self.share.of_rate(rate.due(rate.length_s()?)) as u64;
            Some(due + (rate_max? * warm_up_max.as_secs_f64()) as u64)
        });
        Circumstances {
            phase,
            clients: self.clients,
            operations: self.operations.or(scheduled),
            time: self.time.map(|time| time + warm_up_max),
            target: rate_max,
            share: self.share,
            batches: store.batches,
            resume,
        }
    }

    /// Returns the options of the run, and the time between status lines if those are wanted.
    pub(crate) fn options(self, reader: &mut Reader<'_>, phase: Phase) -> (RunOptions, Option<Duration>) {
        let arrivals = arrivals(reader);
        let slack = reader.given(&p::PACING_SLACK).then(|| reader.duration(&p::PACING_SLACK));
        let interval = reader.duration(&p::SERIES_INTERVAL);
        if interval < Duration::from_millis(10) {
            reader.fault(&p::SERIES_INTERVAL, "must be 10 ms or more");
        }
        let status_interval = reader.duration(&p::STATUS_INTERVAL);
        let status = reader.flag(&p::STATUS).then_some(status_interval);
        if status.is_some_and(|interval| interval.is_zero()) {
            reader.fault(&p::STATUS_INTERVAL, "must be above zero");
        }
        let options = RunOptions {
            clients: self.clients,
            event_loops: reader.optional_count(&p::EVENT_LOOPS).map(|loops| loops as usize),
            warm_up: self.warm_up,
            steady: self.steady,
            time: self.time,
            units: self.operations.filter(|_| phase == Phase::Run),
            rate: self.rate,
            arrivals,
            slack,
            grace: reader.duration(&p::SHUTDOWN_GRACE),
            interval,
            share: self.share,
            seed: self.seed,
            gate: None,
            judge: None,
            finishes: true,
            recorder: RecorderOptions { legacy: legacy(reader), ..Default::default() },
        };
        (options, status)
    }
}

/// Reads the number of operations of this process; `None` for no limit.
fn operations(reader: &mut Reader<'_>, share: Share) -> Option<u64> {
    let count = reader.count(&p::OPERATION_COUNT);
    if count == 0 {
        return None;
    }
    // A share of zero operations would read as no limit.
    if share.of(count) == 0 {
        let problem = format!("{count} operations cannot be divided among {} processes", share.count());
        reader.fault(&p::OPERATION_COUNT, problem);
    }
    Some(share.of(count).max(1))
}

fn arrivals(reader: &mut Reader<'_>) -> Arrivals {
    match reader.choice(&p::TARGET_ARRIVALS) {
        "uniform" => Arrivals::Uniform,
        "poisson" => Arrivals::Poisson,
        _ => Arrivals::Client,
    }
}

fn rate(reader: &mut Reader<'_>) -> Option<RateSchedule> {
    let target = reader.number(&p::TARGET);
    let schedule = reader.optional_text(&p::TARGET_SCHEDULE).filter(|text| !text.trim().is_empty());
    if let Some(text) = schedule {
        if target > 0.0 {
            reader.fault(&p::TARGET_SCHEDULE, "and target cannot both be set: choose one");
        }
        return RateSchedule::parse(&text).map_err(|problem| reader.fault(&p::TARGET_SCHEDULE, problem)).ok();
    }
    let paced = target > 0.0;
    if !paced && (reader.given(&p::TARGET_ARRIVALS) || reader.given(&p::PACING_SLACK)) {
        let property = if reader.given(&p::TARGET_ARRIVALS) { &p::TARGET_ARRIVALS } else { &p::PACING_SLACK };
        reader.fault(property, "has no effect without a target: set target or target.schedule");
    }
    paced.then(|| RateSchedule::constant(target))
}

/// Reads this process's share of the work.
fn share(reader: &mut Reader<'_>, workload: Option<&WorkloadInfo>) -> Share {
    let share = reader.text(&p::SHARE).parse().map_err(|problem: String| reader.fault(&p::SHARE, problem));
    let share: Share = share.unwrap_or_default();
    let whole = [workloads::TIME_SERIES.name, workloads::REST.name];
    if let Some(info) = workload.filter(|info| whole.contains(&info.name) && share != Share::WHOLE) {
        reader.fault(&p::SHARE, format!("the workload {} cannot be divided", info.name));
    }
    share
}

/// Reads the settings of a warm-up until steady; `None` for a warm-up of fixed length.
fn steady(reader: &mut Reader<'_>, warm_up: Duration, rate: Option<&RateSchedule>) -> Option<Steady> {
    let max = reader.duration(&p::WARM_UP_MAX);
    if max.is_zero() {
        return None;
    }
    if max < warm_up {
        let warm_up = format_span(warm_up);
        reader
            .fault(&p::WARM_UP_MAX, format!("is less than the shortest warm-up, warmup, which is {warm_up}"));
    }
    if rate.is_some_and(|rate| !rate.is_constant()) {
        reader.fault(
            &p::WARM_UP_MAX,
            "needs a constant target: under a load that changes, a steady run cannot be recognised. \
             With target.schedule, set warmup alone",
        );
    }
    Some(Steady { max, tolerance: Steady::TOLERANCE })
}

fn legacy(reader: &mut Reader<'_>) -> Option<LegacyKind> {
    let granularity_ms = reader.duration(&p::TIME_SERIES_GRANULARITY).as_millis() as u64;
    match reader.choice(&p::MEASUREMENT_TYPE) {
        "histogram" | "hdrhistogram+histogram" => {
            Some(LegacyKind::Buckets(reader.count(&p::HISTOGRAM_BUCKETS) as usize))
        }
        "timeseries" => {
            if granularity_ms == 0 {
                reader.fault(&p::TIME_SERIES_GRANULARITY, "must be 1 ms or more");
            }
            Some(LegacyKind::TimeSeries { granularity_ms: granularity_ms.max(1) })
        }
        _ => None,
    }
}

/// Returns a seed from the time and the process id, so that two runs hardly share one.
pub fn fresh_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    derived_seed(since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()) << 32)
}
