//! Stores in another process: service times that the driver reports, and the end of a run whose
//! store is lost.

use crate::common;

use common::{Answer, Reads, TestStore};
use serval_model::{Execution, Metric, Status};
use serval_runner::{Control, EndedBy, RunOptions, RunRecord, run};
use serval_workload::Workload;
use std::sync::Arc;

const BOTH: [Execution; 2] = [Execution::Threads, Execution::EventLoops];

fn go(execution: Execution, answer: Answer, options: &RunOptions) -> RunRecord {
    let store = Arc::new(TestStore::new(execution, answer));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    run(&store, &workload, options, &Control::default(), &mut ()).unwrap()
}

#[test]
fn the_drivers_time_is_the_service_time_and_the_rest_is_the_hop() {
    for execution in BOTH {
        let options = RunOptions { units: Some(20), ..RunOptions::default() };
        let record = go(execution, Answer::Driven(300_000), &options);
        let read = &record.totals.measured[&(Metric::READ, Status::Ok)];
        let hop = &record.totals.measured[&(Metric::DRIVER_HOP, Status::Ok)];
        assert_eq!((read.service.count(), read.response.count(), hop.service.count()), (20, 20, 20));
        assert_eq!((read.service.min(), read.service.max()), (300_000, 300_000));
        assert!(read.response.min() >= 1_000_000 && hop.service.min() >= 700_000);
        // The run is not paced.
        assert_eq!((record.totals.lateness.count(), record.due), (0, None));
    }
}

#[test]
fn a_reported_service_time_is_at_most_the_total_time() {
    let options = RunOptions { units: Some(3), ..RunOptions::default() };
    let record = go(Execution::Threads, Answer::Driven(u64::MAX), &options);
    let read = &record.totals.measured[&(Metric::READ, Status::Ok)];
    assert_eq!(read.service.max(), read.response.max());
    assert_eq!(record.totals.measured[&(Metric::DRIVER_HOP, Status::Ok)].service.max(), 0);
}

#[test]
fn a_lost_store_ends_an_endless_run_with_its_report() {
    for execution in BOTH {
        for clients in [1, 4] {
            let options = RunOptions { clients, ..RunOptions::default() };
            let record = go(execution, Answer::LostAt(50), &options);
            assert_eq!(record.ended_by, EndedBy::Failed);
            assert_eq!(record.lost.as_ref().unwrap().to_string(), "test: the store is gone");
            let failed = record.totals.measured[&(Metric::READ, Status::Error)].service.count();
            assert!((1..=clients as u64).contains(&failed), "each client stops at its first: {failed}");
            assert!(record.totals.units >= 50);
        }
    }
}
