//! Sweeps on stores with known laws: the findings agree with theory.

use crate::common::{Only, conduct, experiment};
use serval_experiment::Stopped;
use serval_plan::session;
use serval_report::stored::StoredExperiment;
use serval_result::experiment::{ExperimentDocument, Flag, RunEntry, RunKind};
use serval_runner::virtual_time::VirtualTime;
use serval_synthetic::{Drift, MultiServerQueue, Service, ServiceDistribution, Synthetic};

/// Service rate of the queue, operations/s.
const RATE: f64 = 1000.0;

fn queue(time: &VirtualTime, servers: usize) -> Synthetic<MultiServerQueue> {
    let service = Service::new(1e9 / RATE * servers as f64, ServiceDistribution::Exponential, 5);
    Synthetic::new(time, MultiServerQueue::new(servers, service))
}

const SWEEP: &str = r#"
[run]
time = "60s"
warmup = "2s"
warmup_max = "0s"
repeats = 2
seed = 3
"#;

fn points(document: &ExperimentDocument) -> impl Iterator<Item = &RunEntry> {
    document.runs.iter().filter(|entry| entry.kind == RunKind::Point)
}

#[test]
fn the_saturation_of_a_queue_is_its_service_rate() {
    for servers in [1, 8] {
        let time = VirtualTime::new();
        let file = experiment(&format!("{SWEEP}[sweep]\npoints = [\"50%\"]\n"), "workloadc");
        let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, servers), &time)));
        let (stored, stopped) = conduct(&file, &stores);
        assert_eq!(stopped, Stopped::Complete);
        let saturation = stored.document.curves[0].saturation.clone().unwrap();
        // About 20,000 exponential times per trial: a standard error of 0.7 %. The
        // best of several trials is slightly above the mean.
        let error = (saturation.throughput / RATE - 1.0).abs();
        assert!(error < 0.03 && saturation.found, "{servers} servers: {saturation:?}");
        let expected = if servers == 1 { 1..=2 } else { 8..=16 };
        assert!(expected.contains(&saturation.clients), "{servers} servers: {saturation:?}");
    }
}

#[test]
fn the_curve_of_a_queue_agrees_with_its_closed_form() {
    let time = VirtualTime::new();
    let text = format!("{SWEEP}[sweep]\npoints = [300, 600, 800, \"130%\"]\n");
    let file = experiment(&text, "workloadc");
    let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, 1), &time)));
    let (stored, _) = conduct(&file, &stores);
    assert_eq!(points(&stored.document).count(), 8);
    for entry in points(&stored.document) {
        let rate = entry.target.unwrap();
        let result = stored.result(entry).unwrap();
        let read = result.metrics.iter().find(|metric| metric.name == "READ").unwrap();
        let response = &read.ok.as_ref().unwrap().response;
        if rate > RATE {
            assert!(entry.flags.contains(&Flag::Overloaded), "{entry:?}");
            // The backlog grows for a minute, to seconds.
            assert!(response.max_ns > 5_000_000_000);
            continue;
        }
        assert!(!entry.flags.contains(&Flag::Overloaded), "{entry:?}");
        // M/M/1: exponential with mean 1 / (server's rate - offered load).
        let mean_ns = 1e9 / (RATE - rate);
        // Response times are correlated: busy periods of a queue at 80 % last hundreds
        // of operations, which leaves about 15 % of random error.
        let tolerance = if rate > 700.0 { 0.25 } else { 0.1 };
        assert!((response.mean_ns / mean_ns - 1.0).abs() < tolerance, "{rate}: {}", response.mean_ns);
        for p in [50.0, 95.0, 99.0] {
            let law = -(1.0 - p / 100.0f64).ln() * mean_ns;
            let measured = response.percentiles.iter().find(|entry| entry.percentile == p).unwrap().ns as f64;
            assert!((measured / law - 1.0).abs() < 1.5 * tolerance, "{rate}, p{p}: {measured} for {law}");
        }
    }
}

#[test]
fn the_highest_rate_under_a_promise_agrees_with_theory() {
    // p99 = ln 100 / (1000 - r) < 20 ms: r < 1000 - 230.3.
    let truth = RATE - 100f64.ln() / 0.020;
    let time = VirtualTime::new();
    let text =
        format!("{}[max]\npromise = \"read.p99 < 20ms\"\n", SWEEP.replace("repeats = 2", "repeats = 4"));
    let file = experiment(&text, "workloadc");
    let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, 1), &time)));
    let (stored, stopped) = conduct(&file, &stores);
    assert_eq!(stopped, Stopped::Complete);
    let highest = stored.document.curves[0].highest.clone().unwrap();
    assert!(highest.low <= truth && truth <= highest.high, "{truth}: {highest:?}");
    assert!((highest.rate / truth - 1.0).abs() < 0.1, "{truth}: {highest:?}");
    assert!(highest.high - highest.low < 0.4 * truth, "{highest:?}");
    assert!(highest.notes.is_empty(), "{highest:?}");
    // Every paced run is a trial, with the values of its conditions.
    let paced = stored.document.runs.iter().filter(|run| run.target.is_some());
    let folders: Vec<&String> = paced.map(|run| &run.folder).collect();
    assert_eq!(highest.trials.iter().map(|trial| &trial.folder).collect::<Vec<_>>(), folders);
    for trial in &highest.trials {
        let [value] = &trial.values[..] else { panic!("{trial:?}") };
        assert_eq!((value.quantity.as_str(), value.limit, value.is_time), ("read.p99", 2e7, true));
        assert_eq!(trial.kept, value.value.unwrap() <= value.limit);
    }
    assert!(highest.trials.iter().any(|trial| trial.kept) && highest.trials.iter().any(|trial| !trial.kept));
}

#[test]
fn a_promise_that_every_load_breaks_or_keeps_is_reported() {
    let highest = |promise: &str| {
        let time = VirtualTime::new();
        let settings = SWEEP.replace("60s", "10s").replace("repeats = 2", "repeats = 1");
        let file = experiment(&format!("{settings}[max]\npromise = \"{promise}\"\n"), "workloadc");
        let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, 1), &time)));
        conduct(&file, &stores).0.document.curves[0].highest.clone().unwrap()
    };
    let broken = highest("read.p99 < 1us");
    assert_eq!(broken.rate, 0.0);
    assert!(broken.notes[0].contains("broken at every rate"), "{broken:?}");
    // The store's limit: the promise holds at every rate that the store can do.
    for promise in ["read.p99 < 1h", "failed < 1%", "read.service.p99 < 1h"] {
        let kept = highest(promise);
        assert!((kept.rate / RATE - 1.0).abs() < 0.1, "{kept:?}");
        assert!(kept.notes[0].contains("the store's saturation"), "{kept:?}");
    }
}

#[test]
fn runs_without_an_operation_of_the_promise_do_not_violate_it() {
    let time = VirtualTime::new();
    let settings = SWEEP.replace("60s", "5s").replace("repeats = 2", "repeats = 1");
    let mut file = experiment(&format!("{settings}[max]\npromise = \"update.p99 < 1us\"\n"), "workloadc");
    file.properties.push(("updateproportion".into(), "0.002".into(), crate::common::origin()));
    let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, 1), &time)));
    let (stored, stopped) = conduct(&file, &stores);
    assert_eq!(stopped, Stopped::Complete);
    let has_updates =
        |entry: &RunEntry| stored.result(entry).unwrap().metrics.iter().any(|metric| metric.name == "UPDATE");
    assert!(!stored.document.runs.iter().all(has_updates), "each run had one: the test shows nothing");
    let highest = stored.document.curves[0].highest.clone().unwrap();
    assert_eq!(highest.rate, 0.0, "{highest:?}");
}

#[test]
fn points_and_stores_are_interleaved_with_equal_operations() {
    let time = VirtualTime::new();
    let text = format!("{}[sweep]\npoints = [100, 200, 300, 400]\n", SWEEP.replace("60s", "1s"));
    let mut file = experiment(&text, "workloadc");
    let mut second = file.stores[0].clone();
    second.name = "second".into();
    second.properties.push(("table".into(), "other".into(), crate::common::origin()));
    file.stores.push(second);
    let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, 1), &time)));
    let (stored, _) = conduct(&file, &stores);
    let order: Vec<(u32, usize, usize)> =
        points(&stored.document).map(|entry| (entry.repeat, entry.point, entry.curve)).collect();
    assert_eq!(order.len(), 16);
    // Both stores run one point before either runs the next.
    for pair in order.chunks(2) {
        assert_eq!((pair[0].0, pair[0].1), (pair[1].0, pair[1].1));
        assert_ne!(pair[0].2, pair[1].2);
    }
    // Neither store is always first, and the order of points differs.
    assert!(order.chunks(2).any(|pair| pair[0].2 == 0) && order.chunks(2).any(|pair| pair[0].2 == 1));
    let repeat = |n: u32| order.iter().filter(|run| run.0 == n).map(|run| run.1).collect::<Vec<_>>();
    assert_ne!(repeat(0), repeat(1));
    let seed = |entry: &RunEntry| stored.result(entry).unwrap().run.seed;
    let seeds: Vec<u64> = points(&stored.document).map(seed).collect();
    assert!(seeds.chunks(2).all(|pair| pair[0] == pair[1]));
    let mut different = seeds.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 8, "a seed a point and repeat");
}

#[test]
fn the_same_seed_gives_the_same_experiment() {
    let numbers = || {
        let time = VirtualTime::new();
        let text = format!("{}[sweep]\npoints = 3\n", SWEEP.replace("60s", "5s"));
        let stores = Only(Box::new(move || session::in_virtual_time(queue(&time, 2), &time)));
        let (stored, _): (StoredExperiment, _) = conduct(&experiment(&text, "workloadb"), &stores);
        stored.document.runs.iter().map(|entry| (entry.point, entry.throughput.to_bits())).collect::<Vec<_>>()
    };
    assert_eq!(numbers(), numbers());
}

#[test]
fn changes_in_the_measured_part_are_flagged_except_for_loads() {
    let text = format!("{}[sweep]\npoints = [\"max\"]\n", SWEEP.replace("60s", "20s"));
    let time = VirtualTime::new();
    let stores = Only(Box::new(move || {
        let service = Service::new(1e6, ServiceDistribution::Constant, 5);
        session::in_virtual_time(Synthetic::new(&time, Drift { service, doubling: 60e9 }), &time)
    }));
    let file = experiment(&text.replace("[run]", "[run]\nclients = 4"), "workloadc");
    let (stored, _) = conduct(&file, &stores);
    let entry = points(&stored.document).next().unwrap();
    assert!(entry.flags.contains(&Flag::Changed) && !entry.flags.contains(&Flag::Stalled), "{entry:?}");
    let result = stored.result(entry).unwrap();
    let change = result.stationarity.unwrap().throughput.unwrap();
    assert!(change.change < -0.05 && change.after < change.before, "{change:?}");
    assert!(result.warnings.iter().any(|warning| warning.contains("throughput fell by")));
    let loads = stored.document.runs.iter().filter(|entry| entry.kind == RunKind::Load);
    assert!(loads.clone().count() > 0 && loads.clone().all(|load| !load.flags.contains(&Flag::Changed)));
}

#[test]
fn drifting_runs_are_flagged_and_steady_ones_are_not() {
    let steady = SWEEP.replace("warmup_max = \"0s\"", "warmup_max = \"30s\"").replace("60s", "10s");
    let text = format!("{steady}[sweep]\npoints = [\"max\", 500]\n");
    let flagged = |stores: Only| {
        let (stored, _) =
            conduct(&experiment(&text.replace("[run]", "[run]\nclients = 4"), "workloadc"), &stores);
        points(&stored.document).map(|entry| entry.flags.contains(&Flag::Unsteady)).collect::<Vec<_>>()
    };
    let time = VirtualTime::new();
    let calm = flagged(Only(Box::new(move || {
        let service = Service::new(1e6, ServiceDistribution::Exponential, 5);
        session::in_virtual_time(Synthetic::new(&time, MultiServerQueue::new(4, service)), &time)
    })));
    assert!(!calm.contains(&true), "{calm:?}");
    let time = VirtualTime::new();
    let drifting = flagged(Only(Box::new(move || {
        // Service time doubles in half a minute: a warm-up of 30 s sees the drift.
        let service = Service::new(1e5, ServiceDistribution::Constant, 5);
        session::in_virtual_time(Synthetic::new(&time, Drift { service, doubling: 30e9 }), &time)
    })));
    // A linear increase is an ever smaller share of the total.
    assert!(drifting[0], "{drifting:?}");
}
