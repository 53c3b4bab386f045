//! Warm-up until steady state, on a virtual clock, with stores that become steady and stores
//! that do not.

use crate::common;

use common::Reads;
use serval_model::{Metric, Status};
use serval_runner::{
    Control, Interval, Observer, Progress, RunOptions, RunRecord, Steady,
    pacing::{Arrivals, rate::RateSchedule},
    virtual_time::{VirtualTime, run},
};
use serval_synthetic::{Drift, Law, MultiServerQueue, Service, ServiceDistribution, StepChange, Synthetic};
use serval_workload::Workload;
use std::{sync::Arc, time::Duration};

const SECOND: u64 = 1_000_000_000;
const MAX: Duration = Duration::from_secs(60);

/// Checks that all calls of the observer agree on the end of the warm-up.
#[derive(Default)]
struct BoundaryObserver {
    warm_up: Duration,
    warm: u64,
    measured: u64,
    measuring: u32,
    last_warm: Duration,
}

impl Observer for BoundaryObserver {
    fn measuring(&mut self) {
        self.measuring += 1;
    }
    fn progress(&mut self, progress: &Progress) {
        if progress.warming_up {
            self.last_warm = progress.elapsed;
        }
    }
    fn interval(&mut self, interval: &Interval) {
        let count = interval.pairs.get(&(Metric::READ, Status::Ok)).map_or(0, |pair| pair.service.count());
        if interval.warm_up {
            self.warm_up = interval.start + interval.length;
            self.warm += count;
        } else {
            self.measured += count;
        }
    }
}

fn options(clients: usize) -> RunOptions {
    RunOptions {
        clients,
        steady: Some(Steady { max: MAX, tolerance: Steady::TOLERANCE }),
        time: Some(Duration::from_secs(10)),
        seed: 1,
        ..RunOptions::default()
    }
}

fn go(law: impl Law, options: &RunOptions) -> RunRecord {
    let time = VirtualTime::new();
    let store = Arc::new(Synthetic::new(&time, law));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let mut monitor = BoundaryObserver::default();
    let record = run(&time, &store, &workload, options, &Control::default(), &mut monitor).unwrap();
    let reads = |warm: bool| {
        let totals = if warm { &record.totals.warm_up } else { &record.totals.measured };
        totals.get(&(Metric::READ, Status::Ok)).map_or(0, |pair| pair.service.count())
    };
    assert_eq!((monitor.warm_up, monitor.measuring), (record.warm_up, 1));
    assert_eq!((monitor.warm, monitor.measured), (reads(true), reads(false)));
    assert_eq!(record.totals.units, reads(false));
    assert!(
        monitor.last_warm < record.warm_up
            && record.warm_up - monitor.last_warm <= Duration::from_millis(100)
    );
    assert!(record.duration - Duration::from_secs(10) < Duration::from_millis(100), "{:?}", record.duration);
    record
}

fn service(shape: ServiceDistribution, seed: u64) -> Service {
    Service::new(1e6, shape, seed)
}

#[test]
fn a_steady_store_is_measured_soon() {
    for seed in 0..5 {
        let calm = go(
            StepChange { service: service(ServiceDistribution::Constant, seed), at: 0, factor: 1.0 },
            &options(4),
        );
        assert_eq!(calm.warm_up, Duration::from_millis(1610), "the shortest window, and 10 ms");
        // Exponential times of 8 clients, 8,000 operations/s: the error of the
        // service time is 2 / √(8000 T / 2), times 10 / (T / 2). Twice that is 5 %
        // after 11 s; 20 s allows for chance.
        let noisy = go(
            StepChange { service: service(ServiceDistribution::Exponential, seed), at: 0, factor: 1.0 },
            &options(8),
        );
        assert!(noisy.steadiness.as_ref().unwrap().steady);
        assert!(noisy.warm_up < Duration::from_secs(20), "{:?}", noisy.warm_up);
    }
}

#[test]
fn the_shortest_warm_up_is_respected() {
    let law = StepChange { service: service(ServiceDistribution::Constant, 0), at: 0, factor: 1.0 };
    let least = Duration::from_secs(7);
    let record = go(law, &RunOptions { warm_up: least, ..options(4) });
    assert!((least..least + Duration::from_millis(50)).contains(&record.warm_up), "{:?}", record.warm_up);
}

#[test]
fn the_measured_part_begins_after_a_step() {
    for seed in 0..5 {
        for (at, factor) in [(1, 0.5), (1, 1.5), (3, 0.3), (3, 2.0)] {
            let law = StepChange {
                service: service(ServiceDistribution::Exponential, seed),
                at: at * SECOND,
                factor,
            };
            let record = go(law, &options(8));
            let steadiness = record.steadiness.unwrap();
            // The step has left the window except for one batch, a sixteenth.
            let window = steadiness.window_s;
            let from = record.warm_up.as_secs_f64() - 0.01 - window;
            assert!(steadiness.steady && from + window / 16.0 > at as f64, "{at} {factor}: {from}");
            let service = &record.totals.measured[&(Metric::READ, Status::Ok)].service;
            assert!((service.mean() / 1e6 / factor - 1.0).abs() < 0.05, "{}", service.mean());
        }
    }
}

#[test]
fn a_drifting_store_is_never_steady_and_still_measured() {
    for seed in 0..5 {
        // In 10 s at least 12 % between the halves.
        for shape in [ServiceDistribution::Constant, ServiceDistribution::Exponential] {
            let record = go(Drift { service: service(shape, seed), doubling: 20e9 }, &options(8));
            let steadiness = record.steadiness.unwrap();
            assert!(!steadiness.steady, "{seed} {shape:?} after {:?}", record.warm_up);
            assert_eq!((record.warm_up, steadiness.max_s), (MAX, 60.0));
            // From 30 to 60 s: 1 + 37.5/20 in the first half and 1 + 52.5/20 in the
            // second, of 1 + 45/20. There are more of the faster operations, so the
            // halves differ by slightly less.
            let expected = (52.5 - 37.5) / 20.0 / 3.25;
            assert!((steadiness.service_drift - expected).abs() < 0.03, "{steadiness:?}");
            assert!(steadiness.throughput_drift < -0.2);
            assert!(record.totals.units > 0);
        }
    }
}

#[test]
fn a_constant_target_is_judged_by_the_service_time() {
    let paced = RunOptions {
        rate: Some(RateSchedule::constant(2000.0)),
        arrivals: Arrivals::Uniform,
        ..options(100)
    };
    let steady = go(MultiServerQueue::new(4, service(ServiceDistribution::Constant, 0)), &paced);
    assert!(steady.steadiness.unwrap().steady && steady.warm_up < Duration::from_secs(2));
    // The last operation may end shortly after the 10 s.
    let due = steady.due.unwrap();
    assert!((20_000.0..=20_002.0).contains(&due), "{due}");
    let drifting = go(Drift { service: service(ServiceDistribution::Constant, 0), doubling: 20e9 }, &paced);
    let steadiness = drifting.steadiness.unwrap();
    assert!(!steadiness.steady && steadiness.throughput_drift.abs() < 0.01, "{steadiness:?}");
}

#[test]
fn an_end_in_the_warm_up_leaves_steadiness_undecided() {
    struct After(Control);
    impl Observer for After {
        fn progress(&mut self, progress: &Progress) {
            if progress.elapsed >= Duration::from_secs(5) {
                self.0.interrupt();
            }
        }
    }
    let time = VirtualTime::new();
    let law = Drift { service: service(ServiceDistribution::Constant, 0), doubling: 20e9 };
    let store = Arc::new(Synthetic::new(&time, law));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let control = Control::default();
    let record = run(&time, &store, &workload, &options(2), &control, &mut After(control.clone())).unwrap();
    assert_eq!((record.steadiness, record.totals.units), (None, 0));
    assert!(record.warm_up < Duration::from_secs(6), "{:?}", record.warm_up);
}
