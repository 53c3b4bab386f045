//! A run ends by count, by time, by interruption, or with its schedule, and never later than its
//! grace period, whatever the store does.

use crate::common;
use common::{Answer, Reads, TestStore};
use serval_model::{Execution, Metric, Status, StoreError};
use serval_runner::{
    Control, EndedBy, Observer, Progress, RunError, RunOptions, RunRecord,
    pacing::{Arrivals, rate::RateSchedule},
    run,
};
use serval_workload::Workload;
use std::{sync::Arc, time::Duration};

const BOTH: [Execution; 2] = [Execution::Threads, Execution::EventLoops];

fn go(store: TestStore, options: &RunOptions) -> Result<RunRecord, RunError> {
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    run(&Arc::new(store), &workload, options, &Control::default(), &mut ())
}

fn reads(record: &RunRecord) -> u64 {
    record.totals.measured.get(&(Metric::READ, Status::Ok)).map_or(0, |pair| pair.service.count())
}

#[test]
fn a_count_is_exact_for_any_number_of_clients() {
    for execution in BOTH {
        for (clients, units) in [(1, 10), (3, 10), (7, 1000), (16, 5)] {
            let options = RunOptions { clients, units: Some(units), ..RunOptions::default() };
            let record = go(TestStore::new(execution, Answer::AtOnce), &options).unwrap();
            assert_eq!((reads(&record), record.totals.units), (units, units));
            assert_eq!(record.ended_by, EndedBy::Count);
            assert_eq!(record.clients, clients.min(units as usize));
            assert!(record.in_flight.is_empty() && record.not_started.is_empty());
        }
    }
}

#[test]
fn the_warm_up_is_not_counted_and_not_in_the_results() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 2,
            units: Some(20),
            warm_up: Duration::from_millis(30),
            ..RunOptions::default()
        };
        let record =
            go(TestStore::new(execution, Answer::After(Duration::from_millis(1))), &options).unwrap();
        assert_eq!(reads(&record), 20);
        let warm = record.totals.warm_up[&(Metric::READ, Status::Ok)].service.count();
        assert!(warm > 0, "nothing ran during warm-up");
        assert_eq!(record.totals.units, 20);
    }
}

#[test]
fn a_time_limit_ends_an_endless_run() {
    for execution in BOTH {
        let time = Duration::from_millis(50);
        let options = RunOptions { clients: 2, time: Some(time), ..RunOptions::default() };
        let record =
            go(TestStore::new(execution, Answer::After(Duration::from_millis(1))), &options).unwrap();
        assert_eq!(record.ended_by, EndedBy::Time);
        assert!(record.duration >= time && reads(&record) > 0);
    }
}

/// Fast clients may finish at the end of the run before the conductor notices the end.
#[test]
fn a_time_limit_is_the_reason_whether_client_or_conductor_notices_it_first() {
    for execution in BOTH {
        for _ in 0..30 {
            let time = Some(Duration::from_millis(3));
            let units = Some(u64::MAX);
            let options = RunOptions { clients: 1, units, time, ..RunOptions::default() };
            let record = go(TestStore::new(execution, Answer::AtOnce), &options).unwrap();
            assert_eq!(record.ended_by, EndedBy::Time);
        }
    }
}

#[test]
fn a_stuck_operation_ends_as_censored_with_its_age() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 3,
            time: Some(Duration::from_millis(100)),
            grace: Duration::from_millis(50),
            event_loops: Some(1),
            rate: Some(RateSchedule::constant(300.0)),
            ..RunOptions::default()
        };
        let store = TestStore::new(execution, Answer::NeverFor { client: 1, operation: 4 });
        let record = go(store, &options).unwrap();
        assert_eq!(record.in_flight.count(), 1);
        // Its intended start is at (3 * 3 + 1) / 300 s. The run abandons it 150 ms after the start.
        let age = Duration::from_nanos(record.in_flight.max());
        assert!(age >= Duration::from_millis(150 - 35), "{age:?}");
        // Thirty operations were due. The other clients performed theirs. Client 1 performed
        // three, has one in flight, and did not start six.
        assert_eq!(reads(&record) + record.in_flight.count() + record.not_started.count(), 30);
        // More only if this machine was too busy to start others in time.
        assert!(record.not_started.count() >= 6);
    }
}

#[test]
fn with_one_queue_a_stuck_client_does_not_delay_others() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 3,
            time: Some(Duration::from_millis(100)),
            grace: Duration::from_millis(20),
            rate: Some(RateSchedule::constant(300.0)),
            arrivals: Arrivals::Uniform,
            ..RunOptions::default()
        };
        let store = TestStore::new(execution, Answer::NeverFor { client: 1, operation: 2 });
        let record = go(store, &options).unwrap();
        assert_eq!(record.in_flight.count(), 1);
        assert_eq!(reads(&record) + record.not_started.count(), 29);
        // The other clients do the operations of the stuck one.
        assert!(reads(&record) > 20, "{}", reads(&record));
    }
}

#[test]
fn overload_queues_and_keeps_intended_starts() {
    // One client, 2 ms per operation, 1000 operations/s due: half are not done in time, and the
    // last ones are late by about half of the run.
    for execution in BOTH {
        let options = RunOptions {
            time: Some(Duration::from_millis(200)),
            rate: Some(RateSchedule::constant(1000.0)),
            arrivals: Arrivals::Uniform,
            ..RunOptions::default()
        };
        let record =
            go(TestStore::new(execution, Answer::After(Duration::from_millis(2))), &options).unwrap();
        let done = reads(&record);
        assert_eq!(done + record.not_started.count(), 200, "{execution:?}: nothing is dropped");
        assert!(record.not_started.count() >= 90, "{}", record.not_started.count());
        let pair = &record.totals.measured[&(Metric::READ, Status::Ok)];
        assert!(pair.response.max() >= 90_000_000, "{} ns", pair.response.max());
        assert!(pair.response.max() > 5 * pair.service.min());
    }
}

#[test]
fn nothing_starts_before_its_intended_start() {
    for execution in BOTH {
        for arrivals in [Arrivals::Client, Arrivals::Uniform, Arrivals::Poisson] {
            let options = RunOptions {
                clients: 4,
                units: Some(100),
                rate: Some(RateSchedule::constant(5000.0)),
                arrivals,
                ..RunOptions::default()
            };
            let record = go(TestStore::new(execution, Answer::AtOnce), &options).unwrap();
            assert_eq!(reads(&record), 100);
            let pair = &record.totals.measured[&(Metric::READ, Status::Ok)];
            assert!(pair.response.min() >= pair.service.min());
            assert_eq!(record.totals.lateness.count(), 100);
        }
    }
}

#[test]
fn the_end_of_the_schedule_ends_the_run() {
    for execution in BOTH {
        let rate = RateSchedule::parse("1000 for 20ms; ramp 1000..3000 for 20ms").unwrap();
        let options =
            RunOptions { clients: 4, rate: Some(rate), arrivals: Arrivals::Uniform, ..RunOptions::default() };
        let record = go(TestStore::new(execution, Answer::AtOnce), &options).unwrap();
        // If this machine stalls for longer than the allowance, some operations are not started,
        // and counted.
        let undone = record.not_started.count();
        assert_eq!(reads(&record) + undone, 60);
        assert_eq!(record.ended_by, if undone == 0 { EndedBy::Count } else { EndedBy::Time });
    }
}

#[test]
fn an_interruption_ends_cleanly_with_a_report() {
    struct InterruptAfter(Control, u64);
    impl Observer for InterruptAfter {
        fn progress(&mut self, progress: &Progress) {
            if progress.units >= self.1 {
                self.0.interrupt();
            }
        }
    }
    for execution in BOTH {
        let control = Control::default();
        let workload: Arc<dyn Workload> = Arc::new(Reads);
        let options = RunOptions { clients: 2, ..RunOptions::default() };
        let store = Arc::new(TestStore::new(execution, Answer::After(Duration::from_millis(1))));
        let record =
            run(&store, &workload, &options, &control, &mut InterruptAfter(control.clone(), 5)).unwrap();
        assert_eq!(record.ended_by, EndedBy::Interrupted);
        assert!(reads(&record) >= 5);
        let late = run(&store, &workload, &options, &control, &mut ());
        assert_eq!(late.unwrap_err(), RunError::Interrupted);
    }
}

#[test]
fn failures_are_counted_with_the_stores_messages() {
    for execution in BOTH {
        let options = RunOptions { clients: 2, units: Some(10), ..RunOptions::default() };
        let record = go(TestStore::new(execution, Answer::Fail), &options).unwrap();
        assert_eq!((record.totals.units, record.totals.units_failed), (10, 10));
        let words: u64 = record.messages.into_values().sum();
        assert_eq!(words, 10);
    }
}

#[test]
fn an_unreachable_store_is_an_error_before_the_start() {
    for execution in BOTH {
        let mut store = TestStore::new(execution, Answer::AtOnce);
        store.connect = Err(StoreError::new("test", "connection refused"));
        let reads = Arc::clone(&store.reads);
        let error =
            go(store, &RunOptions { clients: 5, units: Some(5), ..RunOptions::default() }).unwrap_err();
        assert_eq!(error.to_string(), "test: connection refused");
        assert_eq!(reads.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

#[test]
fn a_panic_in_a_store_ends_the_run_with_its_client() {
    for execution in BOTH {
        let error = go(
            TestStore::new(execution, Answer::Panic),
            &RunOptions { units: Some(5), ..RunOptions::default() },
        )
        .unwrap_err();
        assert_eq!(error, RunError::Panicked(0));
    }
}

#[test]
fn the_series_sums_to_the_total() {
    #[derive(Default)]
    struct Sum(u64, usize);
    impl Observer for Sum {
        fn interval(&mut self, interval: &serval_runner::Interval) {
            self.0 += interval.pairs.get(&(Metric::READ, Status::Ok)).map_or(0, |pair| pair.service.count());
            self.1 += 1;
        }
    }
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let options = RunOptions {
        clients: 2,
        time: Some(Duration::from_millis(100)),
        interval: Duration::from_millis(10),
        ..RunOptions::default()
    };
    let mut sum = Sum::default();
    let store = Arc::new(TestStore::new(Execution::Threads, Answer::After(Duration::from_millis(1))));
    let record = run(&store, &workload, &options, &Control::default(), &mut sum).unwrap();
    assert_eq!(sum.0, reads(&record));
    assert!(sum.1 >= 5, "{} intervals", sum.1);
}

#[test]
fn the_end_of_the_schedule_ends_a_run_whose_store_hangs() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 2,
            rate: Some(RateSchedule::parse("1000 for 30ms").unwrap()),
            arrivals: Arrivals::Uniform,
            grace: Duration::from_millis(20),
            ..RunOptions::default()
        };
        let store = TestStore::new(execution, Answer::NeverFor { client: 1, operation: 1 });
        let record = go(store, &options).unwrap();
        assert_eq!((record.in_flight.count(), record.ended_by), (1, EndedBy::Time));
    }
}

#[test]
fn clients_that_stop_early_do_not_end_a_run_by_count() {
    for execution in BOTH {
        let store = TestStore::new(execution, Answer::LostAt(5));
        let options = RunOptions { units: Some(1000), ..RunOptions::default() };
        assert_eq!(go(store, &options).unwrap().ended_by, EndedBy::Failed);
    }
}

#[test]
fn unfinished_operations_do_not_exceed_the_requested_count() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 2,
            units: Some(50),
            rate: Some(RateSchedule::parse("100000").unwrap()),
            arrivals: Arrivals::Uniform,
            time: Some(Duration::from_millis(40)),
            grace: Duration::from_millis(20),
            ..RunOptions::default()
        };
        let store = TestStore::new(execution, Answer::NeverFor { client: 1, operation: 3 });
        let record = go(store, &options).unwrap();
        let unfinished = record.in_flight.count() + record.not_started.count();
        assert_eq!(reads(&record) + unfinished, 50, "{} done", reads(&record));
    }
}
