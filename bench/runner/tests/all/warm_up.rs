//! Operations across the end of the warm-up are measured, and none is lost.

use crate::common;

use common::{Answer, Reads, TestStore};
use serval_model::{Execution, Metric, Status};
use serval_runner::{
    Control, Interval, Observer, RunError, RunOptions, RunRecord, Steady,
    pacing::{Arrivals, rate::RateSchedule},
    run,
};
use serval_workload::Workload;
use std::{sync::Arc, time::Duration};

const BOTH: [Execution; 2] = [Execution::Threads, Execution::EventLoops];

/// Counts the operations in the intervals.
#[derive(Default)]
struct Counted {
    warm_up: u64,
    measured: u64,
}

impl Observer for Counted {
    fn interval(&mut self, interval: &Interval) {
        let count = interval.pairs.get(&(Metric::READ, Status::Ok)).map_or(0, |pair| pair.service.count());
        *(if interval.warm_up { &mut self.warm_up } else { &mut self.measured }) += count;
    }
}

fn go(execution: Execution, took: Duration, options: &RunOptions) -> (RunRecord, Counted, u64) {
    let store = Arc::new(TestStore::new(execution, Answer::After(took)));
    let sent = Arc::clone(&store.reads);
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let mut counted = Counted::default();
    let record = run(&store, &workload, options, &Control::default(), &mut counted).unwrap();
    (record, counted, sent.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn an_operation_across_the_boundary_is_measured_and_no_operation_is_lost() {
    for execution in BOTH {
        // The first operation of each client begins in the warm-up and ends
        // long after it.
        let options = RunOptions {
            clients: 2,
            warm_up: Duration::from_millis(30),
            time: Some(Duration::from_millis(100)),
            ..RunOptions::default()
        };
        let (record, counted, sent) = go(execution, Duration::from_millis(80), &options);
        let read = &record.totals.measured[&(Metric::READ, Status::Ok)];
        assert_eq!(
            (read.service.count(), counted.measured, counted.warm_up),
            (sent, sent, 0),
            "{execution:?}"
        );
        assert!(sent >= 4 && record.totals.units == sent);
        assert!(read.service.max() >= 80_000_000);
    }
}

#[test]
fn every_operation_of_a_paced_run_is_counted_once() {
    for execution in BOTH {
        // One client, 5 ms per operation, 400 operations/s due: the warm-up leaves
        // a backlog.
        let options = RunOptions {
            warm_up: Duration::from_millis(50),
            time: Some(Duration::from_millis(100)),
            rate: Some(RateSchedule::constant(400.0)),
            arrivals: Arrivals::Uniform,
            ..RunOptions::default()
        };
        let (record, counted, sent) = go(execution, Duration::from_millis(5), &options);
        assert_eq!(counted.warm_up + counted.measured, sent);
        assert_eq!(sent + record.not_started.count(), 60, "{execution:?}: 150 ms of 400 a second");
        assert_eq!(record.totals.units, counted.measured);
    }
}

#[test]
fn a_steady_run_is_measured_before_the_longest_warm_up_and_loses_nothing() {
    for execution in BOTH {
        // The tolerance covers any behaviour of this machine. Tests in virtual time
        // cover steadiness itself.
        let options = RunOptions {
            clients: 2,
            warm_up: Duration::from_millis(20),
            steady: Some(Steady { max: Duration::from_secs(600), tolerance: 1e6 }),
            time: Some(Duration::from_millis(50)),
            ..RunOptions::default()
        };
        let (record, counted, sent) = go(execution, Duration::from_millis(1), &options);
        let steadiness = record.steadiness.unwrap();
        assert!(steadiness.steady && record.warm_up < Duration::from_secs(600));
        assert!(record.warm_up >= Duration::from_millis(20) && steadiness.window_s > 0.0);
        let warm = &record.totals.warm_up[&(Metric::READ, Status::Ok)];
        assert_eq!(counted.warm_up + counted.measured, sent, "{execution:?}");
        assert_eq!(warm.service.count() + record.totals.units, sent, "{execution:?}");
        assert!(counted.measured > 0);
    }
}

#[test]
fn a_run_that_cannot_be_judged_is_measured_after_the_longest_warm_up() {
    let max = Duration::from_millis(200);
    let options =
        RunOptions { steady: Some(Steady { max, tolerance: 0.05 }), units: Some(5), ..RunOptions::default() };
    let (record, ..) = go(Execution::Threads, Duration::from_millis(1), &options);
    let steadiness = record.steadiness.unwrap();
    assert!(!steadiness.steady);
    assert_eq!((record.warm_up, steadiness.max_s, record.totals.units), (max, 0.2, 5));
}

#[test]
fn a_changing_load_cannot_warm_up_until_steady() {
    let rate = RateSchedule::parse("ramp 10..20 for 1s").unwrap();
    let options = RunOptions {
        steady: Some(Steady { max: Duration::from_secs(1), tolerance: 0.05 }),
        rate: Some(rate),
        ..RunOptions::default()
    };
    let store = Arc::new(TestStore::new(Execution::Threads, Answer::AtOnce));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let refused = run(&store, &workload, &options, &Control::default(), &mut ());
    assert_eq!(refused.unwrap_err(), RunError::ChangingRate);
}
