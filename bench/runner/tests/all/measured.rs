//! The observer's calls around the measured part: before the first operation, and while the
//! connections and threads of all clients still exist.

use crate::common;

use common::{Answer, Reads, TestStore};
use serval_model::{Execution, Metric, Status};
use serval_runner::{
    Control, Observer, RunOptions,
    pacing::{Arrivals, rate::RateSchedule},
    run,
};
use serval_workload::Workload;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

const BOTH: [Execution; 2] = [Execution::Threads, Execution::EventLoops];

/// Number of reads sent when the measured part began, and connections open at its end.
struct Ends {
    store: Arc<TestStore>,
    sent_before: Option<u64>,
    open_after: Vec<u64>,
}

impl Observer for Ends {
    fn measuring(&mut self) {
        assert_eq!(self.sent_before.replace(self.store.reads.load(Relaxed)), None);
    }
    fn measured(&mut self) {
        self.open_after.push(self.store.open.load(Relaxed));
    }
}

fn go(execution: Execution, answer: Answer, options: &RunOptions) -> (serval_runner::RunRecord, Ends) {
    let store = Arc::new(TestStore::new(execution, answer));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let mut ends = Ends { store: Arc::clone(&store), sent_before: None, open_after: Vec::new() };
    let record = run(&store, &workload, options, &Control::default(), &mut ends).unwrap();
    (record, ends)
}

#[test]
fn connections_stay_open_until_their_traffic_is_read() {
    for execution in BOTH {
        let options = RunOptions { clients: 5, units: Some(100), ..RunOptions::default() };
        let (record, ends) = go(execution, Answer::AtOnce, &options);
        assert_eq!((ends.sent_before, &ends.open_after[..]), (Some(0), &[5][..]), "{execution:?}");
        // Closing is timed as well.
        assert_eq!(record.totals.measured[&(Metric::CLEANUP, Status::Ok)].service.count(), 5);
        assert!(record.client_time <= record.duration * 5);
    }
}

#[test]
fn a_client_that_hangs_does_not_keep_the_others_from_closing() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 3,
            units: Some(30),
            time: Some(Duration::from_millis(50)),
            grace: Duration::from_millis(400),
            ..RunOptions::default()
        };
        let (record, ends) = go(execution, Answer::NeverFor { client: 1, operation: 2 }, &options);
        assert_eq!(ends.open_after, [3], "{execution:?}");
        assert_eq!(record.in_flight.count(), 1);
        assert_eq!(record.totals.measured[&(Metric::CLEANUP, Status::Ok)].service.count(), 2);
    }
}

/// Operations that are late because of a stall of the store do not count as overslept.
#[test]
fn lateness_behind_a_busy_client_is_not_overslept() {
    for execution in BOTH {
        let options = RunOptions {
            clients: 1,
            units: Some(40),
            rate: Some(RateSchedule::constant(1000.0)),
            arrivals: Arrivals::Uniform,
            ..RunOptions::default()
        };
        let (record, _) = go(execution, Answer::After(Duration::from_millis(4)), &options);
        let lateness = &record.totals.lateness;
        assert!(lateness.max() > 50_000_000, "{execution:?}: {}", lateness.max());
        // Only the first operation can find the client idle.
        assert!(record.totals.overslept <= 1, "{execution:?}: {}", record.totals.overslept);
    }
}
