//! Detection of changes in the measured part, on a virtual clock, with stores that change and
//! stores that do not.

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

/// A warm-up of 1 s and 30 s measured, with four clients of a store that takes 4 ms: 1,000
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

fn nothing(verdict: &Stationarity) -> bool {
    verdict.throughput.is_none() && verdict.service.is_none() && verdict.stalls.is_none()
}

#[test]
fn steady_stores_are_not_reported_as_changed() {
    let paced = |rate: f64| RunOptions {
        clients: 100,
        rate: Some(RateSchedule::constant(rate)),
        arrivals: Arrivals::Poisson,
        ..options()
    };
    let mut alarms = 0;
    for seed in 0..40 {
        let queue = || MultiServerQueue::new(4, service(ServiceDistribution::Exponential, seed));
        // The noise of a busy machine: 5 % from second to second, autocorrelated.
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
            alarms += usize::from(!nothing(&one));
        }
    }
    // Most apparent changes in such noise are too small to be reported.
    println!("{alarms} of 160");
    assert!(alarms <= 4, "{alarms} of 160");
}

#[test]
fn a_step_in_the_measured_part_is_located() {
    for seed in 0..10 {
        let law = StepChange {
            service: service(ServiceDistribution::Exponential, seed),
            at: 13 * SECOND,
            factor: 1.0 / 0.9,
        };
        let verdict = go(law, &options()).unwrap();
        for (change, size) in [(verdict.throughput.unwrap(), -0.1), (verdict.service.unwrap(), 0.111)] {
            assert_eq!(change.shape, ChangeShape::Step, "{seed}: {change:?}");
            assert!((change.change - size).abs() < 0.05 && (change.from_s - 12.0).abs() <= 3.0, "{change:?}");
        }
    }
}

#[test]
fn a_drift_in_the_measured_part_is_detected() {
    for seed in 0..10 {
        // 20 % slower over 30 s.
        let law = Drift { service: service(ServiceDistribution::Exponential, seed), doubling: 150e9 };
        let verdict = go(law, &options()).unwrap();
        let (throughput, service) = (verdict.throughput.unwrap(), verdict.service.unwrap());
        // The middles of the first and the last third are 20 s apart.
        assert!((throughput.change + 0.12).abs() < 0.04 && (service.change - 0.13).abs() < 0.04, "{seed}");
        assert!(throughput.before > throughput.after && service.before > 4e6);
    }
}

#[test]
fn a_stall_is_reported_with_its_length_and_is_not_a_change() {
    let law = Stall {
        service: service(ServiceDistribution::Constant, 0),
        at: 11 * SECOND,
        length: 2 * SECOND + SECOND / 2,
    };
    let verdict = go(law, &options()).unwrap();
    let stalls = verdict.stalls.unwrap();
    assert_eq!(stalls.count, 1);
    assert!((2.4..2.9).contains(&stalls.longest_s) && stalls.total_s == stalls.longest_s, "{stalls:?}");
    assert!((9.7..10.1).contains(&stalls.longest_at_s), "{stalls:?}");
    // A pause of a tenth of a second shows in the percentiles and is not a stall.
    let brief =
        Stall { service: service(ServiceDistribution::Constant, 0), at: 11 * SECOND, length: SECOND / 10 };
    assert!(nothing(&go(brief, &options()).unwrap()));
}

#[test]
fn with_a_constant_target_service_times_show_a_change() {
    let paced = RunOptions {
        clients: 50,
        rate: Some(RateSchedule::constant(500.0)),
        arrivals: Arrivals::Uniform,
        ..options()
    };
    let law =
        StepChange { service: service(ServiceDistribution::Exponential, 1), at: 16 * SECOND, factor: 1.5 };
    let verdict = go(law, &paced).unwrap();
    assert!(
        verdict.throughput.is_none() && verdict.service.unwrap().change > 0.4,
        "the target fixes throughput"
    );
}

#[test]
fn an_overloaded_run_is_steady_despite_a_backlog_of_the_warm_up() {
    // 10 s of warm-up at twice the store's rate: it takes 10 s of the measured
    // part to drain the backlog.
    let overloaded = RunOptions {
        warm_up: Duration::from_secs(10),
        rate: Some(RateSchedule::constant(2000.0)),
        ..options()
    };
    let verdict =
        go(MultiServerQueue::new(4, service(ServiceDistribution::Constant, 1)), &overloaded).unwrap();
    assert!(nothing(&verdict), "{verdict:?}");
}

#[test]
fn short_runs_and_changing_loads_are_not_judged() {
    let queue = || MultiServerQueue::new(4, service(ServiceDistribution::Constant, 1));
    assert_eq!(go(queue(), &RunOptions { time: Some(Duration::from_millis(2_900)), ..options() }), None);
    assert!(go(queue(), &RunOptions { time: Some(Duration::from_millis(3_100)), ..options() }).is_some());
    let ramp = RateSchedule::parse("ramp 100..900 for 30s").unwrap();
    assert_eq!(go(queue(), &RunOptions { rate: Some(ramp), ..options() }), None);
}

#[test]
fn the_end_of_a_run_by_count_is_not_judged() {
    // Near the end some clients have finished while others still run.
    let counted = RunOptions { time: None, units: Some(20_000), ..options() };
    let verdict =
        go(MultiServerQueue::new(4, service(ServiceDistribution::Exponential, 1)), &counted).unwrap();
    assert!(nothing(&verdict) && verdict.judged_s > 15.0, "{verdict:?}");
}
