//! Detection of changes in the measured part, with stores that change or do not, on a virtual
//! clock.

use crate::common;

use common::Reads;
use serval_result::load::{ChangeShape, Stationarity};
use serval_runner::{
    Control, RunOptions,
    pacing::{Arrivals, rate::RateSchedule},
    virtual_time::{VirtualTime, run},
};
use serval_synthetic::{
    Drift, Law, MultiServerQueue, Noisy, Service, ServiceDistribution, Stall, StepChange, Synthetic,
};
use serval_workload::Workload;
use std::{sync::Arc, time::Duration};

const SECOND: u64 = 1_000_000_000;

/// A warm-up of 1 s and 30 s measured, with four clients of a store that takes 4 ms: a thousand
/// operations/s.
fn options() -> RunOptions {
    RunOptions {
        clients: 4,
        warm_up: Duration::from_secs(1),
        time: Some(Duration::from_secs(30)),
        ..RunOptions::default()
    }
}

fn go(law: impl Law, options: &RunOptions) -> Option<Stationarity> {
    let time = VirtualTime::new();
    let store = Arc::new(Synthetic::new(&time, law));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    run(&time, &store, &workload, options, &Control::default(), &mut ()).unwrap().stationarity
}

fn service(shape: ServiceDistribution, seed: u64) -> Service {
    Service::new(4e6, shape, seed)
}

fn nothing(told: &Stationarity) -> bool {
    told.throughput.is_none() && told.service.is_none() && told.stalls.is_none()
}

#[test]
fn steady_stores_have_not_changed() {
    let paced = |rate: f64| RunOptions {
        clients: 100,
        rate: Some(RateSchedule::constant(rate)),
        arrivals: Arrivals::Poisson,
        ..options()
    };
    let mut told = 0;
    for seed in 0..40 {
        let queue = || MultiServerQueue::new(4, service(ServiceDistribution::Exponential, seed));
        // The noise of a busy machine: 5 % from second to second, hanging together.
        let noisy = Noisy::new(service(ServiceDistribution::Exponential, seed), SECOND, 0.5, 0.05, 0.0, seed);
        let all = [
            go(queue(), &options()),
            go(queue(), &RunOptions { seed, ..paced(300.0) }),
            go(queue(), &RunOptions { seed, ..paced(800.0) }),
            go(noisy, &options()),
        ];
        for one in all {
            let one = one.unwrap();
            assert!((29.9..30.01).contains(&one.judged_s) && one.stalls.is_none(), "{seed}: {one:?}");
            told += usize::from(!nothing(&one));
        }
    }
    // Most of what chance makes of such noise is too small to be told.
    println!("{told} of 160");
    assert!(told <= 4, "{told} of 160");
}

#[test]
fn a_step_within_the_measured_part_is_told_where_it_is() {
    for seed in 0..10 {
        let law = StepChange {
            service: service(ServiceDistribution::Exponential, seed),
            at: 13 * SECOND,
            factor: 1.0 / 0.9,
        };
        let told = go(law, &options()).unwrap();
        for (change, size) in [(told.throughput.unwrap(), -0.1), (told.service.unwrap(), 0.111)] {
            assert_eq!(change.shape, ChangeShape::Step, "{seed}: {change:?}");
            assert!((change.change - size).abs() < 0.05 && (change.from_s - 12.0).abs() <= 3.0, "{change:?}");
        }
    }
}

#[test]
fn a_drift_within_the_measured_part_is_told() {
    for seed in 0..10 {
        // 20 % slower within 30 s.
        let law = Drift { service: service(ServiceDistribution::Exponential, seed), doubling: 150e9 };
        let told = go(law, &options()).unwrap();
        let (throughput, service) = (told.throughput.unwrap(), told.service.unwrap());
        // Between the middles of first and last third 20 s go by.
        assert!((throughput.change + 0.12).abs() < 0.04 && (service.change - 0.13).abs() < 0.04, "{seed}");
        assert!(throughput.before > throughput.after && service.before > 4e6);
    }
}

#[test]
fn a_stall_is_told_with_its_length_and_leaves_the_rest_alone() {
    let law = Stall {
        service: service(ServiceDistribution::Constant, 0),
        at: 11 * SECOND,
        length: 2 * SECOND + SECOND / 2,
    };
    let told = go(law, &options()).unwrap();
    let stalls = told.stalls.unwrap();
    assert_eq!(stalls.count, 1);
    assert!((2.4..2.9).contains(&stalls.longest_s) && stalls.total_s == stalls.longest_s, "{stalls:?}");
    assert!((9.7..10.1).contains(&stalls.longest_at_s), "{stalls:?}");
    // A tenth of a second is in the percentiles, and no stall.
    let brief =
        Stall { service: service(ServiceDistribution::Constant, 0), at: 11 * SECOND, length: SECOND / 10 };
    assert!(nothing(&go(brief, &options()).unwrap()));
}

#[test]
fn with_a_constant_target_service_times_tell_what_throughput_does_not() {
    let paced = RunOptions {
        clients: 50,
        rate: Some(RateSchedule::constant(500.0)),
        arrivals: Arrivals::Uniform,
        ..options()
    };
    let law =
        StepChange { service: service(ServiceDistribution::Exponential, 1), at: 16 * SECOND, factor: 1.5 };
    let told = go(law, &paced).unwrap();
    assert!(told.throughput.is_none() && told.service.unwrap().change > 0.4, "by its target");
}

#[test]
fn an_overloaded_run_is_steady_though_its_warm_up_leaves_much_to_do() {
    // 10 s of warm-up at twice what the store does: 10 s pass in the measured
    // part until an operation begins that was due in it.
    let overloaded = RunOptions {
        warm_up: Duration::from_secs(10),
        rate: Some(RateSchedule::constant(2000.0)),
        ..options()
    };
    let told = go(MultiServerQueue::new(4, service(ServiceDistribution::Constant, 1)), &overloaded).unwrap();
    assert!(nothing(&told), "{told:?}");
}

#[test]
fn what_is_short_or_has_a_changing_load_is_not_judged() {
    let queue = || MultiServerQueue::new(4, service(ServiceDistribution::Constant, 1));
    assert_eq!(go(queue(), &RunOptions { time: Some(Duration::from_millis(2_900)), ..options() }), None);
    assert!(go(queue(), &RunOptions { time: Some(Duration::from_millis(3_100)), ..options() }).is_some());
    let ramp = RateSchedule::parse("ramp 100..900 for 30s").unwrap();
    assert_eq!(go(queue(), &RunOptions { rate: Some(ramp), ..options() }), None);
}

#[test]
fn the_last_operations_of_a_run_by_count_are_left_out() {
    // One client has ever more left to do than the others at the end.
    let counted = RunOptions { time: None, units: Some(20_000), ..options() };
    let told = go(MultiServerQueue::new(4, service(ServiceDistribution::Exponential, 1)), &counted).unwrap();
    assert!(nothing(&told) && told.judged_s > 15.0, "{told:?}");
}
