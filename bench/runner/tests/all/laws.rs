//! Stores with known laws on a virtual clock: the measurements agree with theory.

use crate::common;

use common::{ReadModifyWrites, Reads};
use serval_measure::recorder::Pair;
use serval_model::{Metric, Share, Status};
use serval_runner::{
    Control, EndedBy, Interval, Observer, RunOptions, RunRecord,
    pacing::{Arrivals, rate::RateSchedule},
    virtual_time::{VirtualTime, run},
};
use serval_synthetic::{Law, MultiServerQueue, Noisy, Service, ServiceDistribution, Stall, Synthetic};
use serval_workload::Workload;
use std::{sync::Arc, time::Duration};

const SECOND: u64 = 1_000_000_000;

fn go(law: impl Law, options: &RunOptions) -> RunRecord {
    watched(law, options, &mut ())
}

fn watched(law: impl Law, options: &RunOptions, observer: &mut dyn Observer) -> RunRecord {
    doing(Arc::new(Reads), law, options, observer)
}

fn doing(
    workload: Arc<dyn Workload>,
    law: impl Law,
    options: &RunOptions,
    observer: &mut dyn Observer,
) -> RunRecord {
    let time = VirtualTime::new();
    let store = Arc::new(Synthetic::new(&time, law));
    run(&time, &store, &workload, options, &Control::default(), observer).unwrap()
}

fn reads(record: &RunRecord) -> &Pair {
    &record.totals.measured[&(Metric::READ, Status::Ok)]
}

/// Poisson arrivals at 700/s, one server of 1000/s: M/M/1 at 70 %.
fn mm1(seed: u64) -> RunRecord {
    let options = RunOptions {
        clients: 200,
        warm_up: Duration::from_secs(5),
        time: Some(Duration::from_secs(300)),
        rate: Some(RateSchedule::constant(700.0)),
        arrivals: Arrivals::Poisson,
        seed,
        ..RunOptions::default()
    };
    go(MultiServerQueue::new(1, Service::new(1e6, ServiceDistribution::Exponential, seed + 1)), &options)
}

#[test]
fn response_times_of_a_queue_agree_with_theory() {
    let record = mm1(11);
    let response = &reads(&record).response;
    assert!((record.totals.units as f64 - 210_000.0).abs() < 5.0 * 210_000f64.sqrt());
    assert!(record.not_started.is_empty(), "200 clients are always enough");
    let scale = 1.0 / (1000.0 - 700.0) * 1e9;
    // Response times close in time are correlated: the correlation time of M/M/1
    // is about 2 μ / (μ - λ)² = 22 ms, or 16 operations to both sides, so
    // 210,000 samples count as about 7,000 independent ones. The standard error of a
    // percentile p is then √(p (1 - p) / 7,000) / density = √(p / (1 - p) / 7,000) scale.
    for p in [0.5, 0.95, 0.99f64] {
        let theory = -(1.0 - p).ln() * scale;
        let error = (p / (1.0 - p) / 7_000.0).sqrt() * scale;
        let measured = response.percentile(100.0 * p) as f64;
        assert!(
            (measured - theory).abs() < 4.0 * error,
            "p{p}: {measured} ns, {theory} by theory, ± {error}"
        );
    }
    let error = scale / 7_000f64.sqrt();
    assert!((response.mean() - scale).abs() < 4.0 * error, "{} {scale}", response.mean());
}

#[test]
fn equal_seeds_give_equal_results_and_different_seeds_different_ones() {
    let known = |record: &RunRecord| {
        let pair = reads(record);
        (record.totals.units, record.duration, record.due, pair.clone())
    };
    let first = known(&mm1(3));
    assert!(first == known(&mm1(3)));
    assert!(first != known(&mm1(4)));
}

#[test]
fn a_closed_loop_saturates_the_servers_and_no_more() {
    for (clients, servers) in [(1, 1), (4, 1), (2, 4), (4, 4), (16, 4)] {
        let options = RunOptions { clients, time: Some(Duration::from_secs(60)), ..RunOptions::default() };
        let record = go(
            MultiServerQueue::new(servers, Service::new(1e6, ServiceDistribution::Exponential, 5)),
            &options,
        );
        // Each busy server is a Poisson process with 60,000 events in the run.
        let expected = 60_000.0 * clients.min(servers) as f64;
        let measured = record.totals.units as f64;
        assert!((measured - expected).abs() < 5.0 * expected.sqrt(), "{clients} {servers}: {measured}");
        // By Little's law all clients are in the store all the time.
        let in_store = reads(&record).service.mean() * measured / 60e9;
        assert!((in_store - clients as f64).abs() < 0.01 * clients as f64, "{in_store}");
        assert_eq!(record.ended_by, EndedBy::Time);
    }
}

#[test]
fn a_stall_shows_in_response_times_and_not_in_service_times() {
    let service = Service::new(1e4, ServiceDistribution::Constant, 0);
    let law = Stall { service, at: 5 * SECOND, length: 100_000_000 };
    let options = RunOptions {
        time: Some(Duration::from_secs(10)),
        rate: Some(RateSchedule::constant(1000.0)),
        arrivals: Arrivals::Uniform,
        ..RunOptions::default()
    };
    let record = go(law, &options);
    let Pair { service, response, .. } = reads(&record);
    assert_eq!((record.totals.units, service.count()), (10_000, 10_000));
    // The only client has one operation in flight during the stall.
    assert_eq!(service.count_above(20_000), 1);
    assert!(service.max() >= 99_000_000 && service.max() <= 100_010_000, "{}", service.max());
    // 1000/s for 100 ms, and those due while the queue drains.
    let delayed = response.count_above(20_000);
    assert!((100..=102).contains(&delayed), "{delayed}");
    assert_eq!(response.max(), service.max(), "the first has waited for the whole stall");
    // Their waits are 100, 99, 98, ... ms.
    let above_half = response.count_above(50_000_000);
    assert!((50..=51).contains(&above_half), "{above_half}");
    assert!((100..=102).contains(&record.totals.lateness.count_above(20_000)));
}

/// Returns service and response times of ten units, each a read and an update of a millisecond,
/// with one unit due every millisecond: of the update and of the whole unit.
fn ten_late_units(workload: ReadModifyWrites, rate: Option<f64>) -> [(u64, u64, u64, u64); 2] {
    let options = RunOptions {
        units: Some(10),
        rate: rate.map(RateSchedule::constant),
        arrivals: Arrivals::Uniform,
        ..RunOptions::default()
    };
    let service =
        Stall { service: Service::new(1e6, ServiceDistribution::Constant, 0), at: 3600 * SECOND, length: 0 };
    let record = doing(Arc::new(workload), service, &options, &mut ());
    [Metric::UPDATE, Metric::READ_MODIFY_WRITE].map(|metric| {
        let Pair { service, response, .. } = &record.totals.measured[&(metric, Status::Ok)];
        [service.min(), service.max(), response.min(), response.max()].map(|ns| ns / 100_000).into()
    })
}

#[test]
fn operations_of_a_unit_are_due_with_the_unit() {
    let once = ReadModifyWrites::default();
    // Unit k is due at k ms, begins at 2 k ms and ends at 2 k + 2 ms. In tenths of a millisecond.
    assert_eq!(ten_late_units(once, Some(1000.0)), [(10, 10, 20, 110), (20, 20, 20, 110)]);
    assert_eq!(ten_late_units(once, None), [(10, 10, 0, 0), (20, 20, 0, 0)]);
    // The unit after a probe starts anew, since probes are not in the results.
    let looking = ReadModifyWrites { probes: true, ..once };
    assert_eq!(ten_late_units(looking, Some(1000.0))[0], (10, 10, 10, 10));
}

#[test]
fn operations_due_and_in_flight_at_the_end_are_counted() {
    // The store stalls for good, 50 ms before the end.
    let law = Stall {
        service: Service::new(1e4, ServiceDistribution::Constant, 0),
        at: SECOND + 1_000_000 - 50_000_000,
        length: 3600 * SECOND,
    };
    let options = RunOptions {
        clients: 3,
        time: Some(Duration::from_secs(1)),
        rate: Some(RateSchedule::constant(1000.0)),
        arrivals: Arrivals::Uniform,
        ..RunOptions::default()
    };
    let record = go(law, &options);
    assert_eq!((record.totals.units, record.in_flight.count(), record.not_started.count()), (950, 3, 47));
    assert_eq!(record.ended_by, EndedBy::Time);
    // The grace period has passed, at no cost in virtual time.
    assert_eq!(record.in_flight.max() / 1_000_000, 2_050);
}

#[test]
fn the_series_shows_the_stores_noise_and_sums_to_the_total() {
    #[derive(Default)]
    struct Means(Vec<f64>, u64);
    impl Observer for Means {
        fn interval(&mut self, interval: &Interval) {
            if let Some(pair) = interval.pairs.get(&(Metric::READ, Status::Ok)) {
                self.0.push(pair.service.mean());
                self.1 += pair.service.count();
            }
        }
    }
    let noise = || Noisy::new(Service::new(1e6, ServiceDistribution::Constant, 1), SECOND, 0.5, 0.05, 0.0, 9);
    let options = RunOptions { clients: 2, time: Some(Duration::from_secs(200)), ..RunOptions::default() };
    let mut means = Means::default();
    let record = watched(noise(), &options, &mut means);
    assert_eq!(means.1, record.totals.units);
    let mean = means.0.iter().sum::<f64>() / means.0.len() as f64;
    let variance = means.0.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / means.0.len() as f64;
    // 200 samples of correlation 0.5 count as about 120: the deviation is known to 7 %.
    let deviation = variance.sqrt() / 1e6;
    assert!((deviation - 0.05).abs() < 0.05 * 0.28, "{deviation}");
}

#[test]
fn runs_on_one_clock_follow_one_another() {
    let time = VirtualTime::new();
    let store = Arc::new(Synthetic::new(
        &time,
        MultiServerQueue::new(1, Service::new(1e6, ServiceDistribution::Constant, 0)),
    ));
    let workload: Arc<dyn Workload> = Arc::new(Reads);
    let options = RunOptions { units: Some(1000), ..RunOptions::default() };
    for number in 1..=3u64 {
        let record = run(&time, &store, &workload, &options, &Control::default(), &mut ()).unwrap();
        assert_eq!((record.totals.units, record.duration), (1000, Duration::from_secs(1)));
        assert_eq!(record.ended_by, EndedBy::Count);
        assert_eq!(time.now(), number * (SECOND + 1_000_000));
    }
    let control = Control::default();
    control.interrupt();
    assert!(run(&time, &store, &workload, &options, &control, &mut ()).is_err());
}

/// The last of many processes that share a slow schedule: its first operation is due beyond 64
/// bits of nanoseconds.
#[test]
fn an_operation_that_is_due_after_the_end_of_the_clock_is_not_started() {
    const LAST: u64 = 1 << 40;
    for arrivals in [Arrivals::Client, Arrivals::Uniform] {
        let options = RunOptions {
            clients: 2,
            time: Some(Duration::from_secs(10)),
            rate: Some(RateSchedule::constant(1.0)),
            arrivals,
            share: Share::new(LAST, LAST + 1).unwrap(),
            ..RunOptions::default()
        };
        let record =
            go(MultiServerQueue::new(1, Service::new(1e6, ServiceDistribution::Constant, 1)), &options);
        assert_eq!((record.totals.units, record.not_started.count()), (0, 0), "{arrivals:?}");
        assert_eq!(record.ended_by, EndedBy::Time);
    }
}
