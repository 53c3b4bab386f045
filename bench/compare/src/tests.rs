//! Comparisons of stored runs whose truth is known.

use super::{
    document::{Comparison, MetricComparison, MetricKind, MetricVerdict, OverallVerdict},
    *,
};
use proptest::prelude::*;
use serval_measure::{hdr_log::HdrLog, histogram::Histogram, recorder::Pair};
use serval_report::{
    json,
    stored::{EXPERIMENT, HISTOGRAM_LOG},
    terminal::{Styles, WIDTH},
};
use serval_result::{
    document::{BufferedResult, IntervalMetric, IntervalSummary, IntervalTimes, ResultDocument, TimesResult},
    experiment::{
        Curve, EXPERIMENT_VERSION, ExperimentDocument, ExperimentKind, PhaseEntry, RunEntry, RunKind,
        Saturation,
    },
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

/// What runs are made by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Law {
    pub(super) seed: u64,
    pub(super) seconds: u64,
    /// Operations of each kind a second.
    pub(super) rate: u64,
    /// Times of B over those of A.
    pub(super) factor: f64,
    /// Standard deviation from run to run, as a share.
    pub(super) between: f64,
}

pub(super) const LAW: Law = Law { seed: 1, seconds: 12, rate: 60, factor: 1.0, between: 0.01 };

fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

fn interval_metric(histogram: &Histogram) -> IntervalMetric {
    let times = IntervalTimes::of(histogram);
    IntervalMetric {
        ok: histogram.count(),
        failed: 0,
        response: times,
        service: times,
        levels: String::new(),
    }
}

/// Writes a run: its result and its histogram log.
pub(super) fn write_run(folder: &Path, law: &Law, number: u64) -> ResultDocument {
    let mut random = fastrand::Rng::with_seed(law.seed * 1_000 + number);
    let run_factor = law.factor * (law.between * normal(&mut random)).exp();
    let mut document = sample::unpaced();
    document.run.started = format!("2026-01-01T00:{:02}:{:02}Z", law.seed % 60, number % 60);
    document.run.seed = law.seed * 1_000 + number;
    (document.warnings, document.series) = (Vec::new(), Vec::new());
    fs::create_dir_all(folder).unwrap();
    let file = BufWriter::new(File::create(folder.join(HISTOGRAM_LOG)).unwrap());
    let mut log = HdrLog::new(file, UNIX_EPOCH, "test", 1).unwrap();
    let mut totals: BTreeMap<&str, Pair> = BTreeMap::new();
    for second in 0..law.seconds {
        let warm_up = second < 2;
        let mut metrics = BTreeMap::new();
        for (name, median) in [("READ", 200_000.0), ("UPDATE", 350_000.0)] {
            let mut histogram = Histogram::new();
            for _ in 0..law.rate {
                let warm = if warm_up { 3.0 } else { 1.0 };
                histogram.record((median * warm * run_factor * (0.4 * normal(&mut random)).exp()) as u64);
            }
            let tag = if warm_up { format!("{name}-WARMUP") } else { name.to_owned() };
            log.interval(Some(&tag), Duration::from_secs(second), Duration::from_secs(1), &histogram)
                .unwrap();
            metrics.insert(name.to_owned(), interval_metric(&histogram));
            if !warm_up {
                totals.entry(name).or_default().service.merge(&histogram);
            }
        }
        let (start_s, length_s) = (second as f64, 1.0);
        document.series.push(IntervalSummary { start_s, length_s, warm_up, metrics, pacing: None });
    }
    log.finish().unwrap();
    document.metrics.retain(|metric| totals.contains_key(metric.name.as_str()));
    for metric in &mut document.metrics {
        let pair = &totals[metric.name.as_str()];
        metric.ok = Some(TimesResult::of(pair, false, &[50.0, 99.0]));
        metric.statuses = [("OK".to_owned(), pair.service.count())].into();
        metric.failed.clear();
    }
    let overall = &mut document.overall;
    overall.duration_s = law.seconds as f64 - 2.0;
    overall.operations = totals.values().map(|pair| pair.service.count()).sum();
    overall.failed = 0;
    // As a closed loop has it.
    overall.throughput = 16.0 / (275e-6 * run_factor);
    json::write(&document, &mut File::create(folder.join("result.json")).unwrap()).unwrap();
    document
}

pub(super) fn write_side(folder: &Path, law: &Law, runs: u64) -> PathBuf {
    (0..runs).for_each(|number| drop(write_run(&folder.join(format!("run-{number}")), law, number)));
    folder.to_owned()
}

fn options() -> CompareOptions {
    CompareOptions { resamples: 300, ..CompareOptions::default() }
}

fn compared(a: &Path, b: &Path, options: &CompareOptions) -> Comparison {
    let (a, b) = (Side::read("A", &[a.into()]).unwrap(), Side::read("B", &[b.into()]).unwrap());
    compare(&a, &b, &[], options).unwrap()
}

fn metric<'a>(comparison: &'a Comparison, operation: &str, kind: MetricKind) -> &'a MetricComparison {
    let operation = (!operation.is_empty()).then(|| operation.to_owned());
    let mut metrics = comparison.points.iter().flat_map(|point| &point.metrics);
    metrics.find(|m| m.metric.operation == operation && m.metric.kind == kind).unwrap()
}

/// An experiment of phases: the loads and runs of these laws, by name, and a pause.
fn write_phases(folder: &Path, phases: &[(&str, Law)], number: u64) {
    let mut document = experiment(ExperimentKind::Phases);
    document.phases.push(PhaseEntry {
        name: "rest".to_owned(),
        kind: "pause".to_owned(),
        ..PhaseEntry::default()
    });
    for (nth, (name, law)) in phases.iter().enumerate() {
        let below = format!("phases/{nth}");
        write_run(&folder.join(&below), law, number);
        document.phases.push(PhaseEntry {
            name: (*name).to_owned(),
            kind: "run".to_owned(),
            folder: Some(below),
            ..PhaseEntry::default()
        });
    }
    fs::create_dir_all(folder).unwrap();
    let file = File::create(folder.join(EXPERIMENT)).unwrap();
    serde_json::to_writer(file, &document).unwrap();
}

#[test]
fn phases_are_compared_by_name() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (place.path().join("a"), place.path().join("b"));
    for number in 0..5 {
        let laws =
            |seed, factor| [("load", Law { seed, ..LAW }), ("insert", Law { seed: seed + 1, factor, ..LAW })];
        write_phases(&a.join(number.to_string()), &laws(1, 1.0), number);
        let [load, insert] = laws(3, 1.4);
        // In another order, and with one that A has not.
        write_phases(&b.join(number.to_string()), &[insert, ("more", Law { seed: 5, ..LAW }), load], number);
    }
    let found = compared(&a, &b, &options());
    let names: Vec<(&str, usize, usize)> = found
        .points
        .iter()
        .map(|point| (point.name.as_str(), point.runs_a.len(), point.runs_b.len()))
        .collect();
    assert_eq!(names, [("phase load", 5, 5), ("phase insert", 5, 5)]);
    let worse =
        |point: &PointComparison| point.metrics.iter().any(|metric| metric.verdict == MetricVerdict::Worse);
    assert!(!worse(&found.points[0]) && worse(&found.points[1]), "{found:?}");
    assert!(
        found.warnings.iter().any(|warning| warning == "phase more is in B only."),
        "{:?}",
        found.warnings
    );
    // One of each side, whatever they are called.
    let one = |folder: &Path, phase: &str| PathBuf::from(format!("{}:{phase}", folder.display()));
    let side = |name, path: PathBuf| Side::read(name, &[path]);
    let (load, more) = (side("A", one(&a.join("0"), "load")), side("B", one(&b.join("0"), "more")));
    assert_eq!(compare(&load.unwrap(), &more.unwrap(), &[], &options()).unwrap().points.len(), 1);
    let error = side("A", one(&a.join("0"), "rest")).unwrap_err().to_string();
    assert!(error.contains("it has no load or run 'rest'; it has load, insert"), "{error}");
}

#[test]
fn phases_are_not_points() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (place.path().join("a"), place.path().join("b"));
    write_phases(&a, &[("load", LAW), ("run", Law { seed: 2, ..LAW })], 0);
    write_phases(&b, &[("other", Law { seed: 3, ..LAW })], 0);
    let (a, b) = (Side::read("A", &[a]).unwrap(), Side::read("B", &[b]).unwrap());
    let error = compare(&a, &b, &[], &options()).unwrap_err().to_string();
    assert!(error.contains("phases are compared with phases of the same name"), "{error}");
    write_phases(&place.path().join("c"), &[], 0);
    let error = Side::read("A", &[place.path().join("c")]).unwrap_err().to_string();
    assert!(error.contains("no load or run of it has ended yet"), "{error}");
}

#[test]
fn slower_is_worse_and_faster_is_better() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 6);
    let slow = write_side(&place.path().join("slow"), &Law { seed: 2, factor: 1.4, ..LAW }, 5);
    let worse = compared(&a, &slow, &options());
    assert_eq!(worse.verdict, OverallVerdict::Worse);
    for (operation, kind) in [
        ("", MetricKind::Throughput),
        ("READ", MetricKind::ResponseMean),
        ("READ", MetricKind::ResponseP99),
        ("UPDATE", MetricKind::ResponseP50),
    ] {
        let metric = metric(&worse, operation, kind);
        assert_eq!(metric.verdict, MetricVerdict::Worse, "{metric:?}");
        let truth = if kind == MetricKind::Throughput { 1.0 / 1.4 - 1.0 } else { 0.4 };
        assert!((metric.change - truth).abs() < 0.1, "{metric:?}");
        assert!(metric.low.unwrap() < truth + 0.02 && truth - 0.02 < metric.high.unwrap(), "{metric:?}");
    }
    assert_eq!(metric(&worse, "", MetricKind::FailedShare).verdict, MetricVerdict::NoDifference);
    assert_eq!(compared(&slow, &a, &options()).verdict, OverallVerdict::Better);
    let expected = format!("{} (B) is worse than {} (A) in ", slow.display(), a.display());
    assert!(worse.sentence.starts_with(&expected), "{}", worse.sentence);
    // Fewer than 10,000 of each: no 99.9th percentile.
    assert!(!worse.points[0].metrics.iter().any(|m| m.metric.kind == MetricKind::ResponseP999));
    let ignored = compared(&a, &slow, &CompareOptions { threshold: 0.5, ..options() });
    assert_eq!(ignored.verdict, OverallVerdict::NoDifference);
    assert_eq!(metric(&ignored, "READ", MetricKind::ResponseMean).verdict, MetricVerdict::BelowThreshold);
}

#[test]
fn writes_that_a_buffer_loses_are_failures() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 5);
    let b = place.path().join("b");
    for number in 0..5 {
        let folder = b.join(number.to_string());
        let mut document = write_run(&folder, &Law { seed: 2, ..LAW }, number);
        document.buffered = Some(BufferedResult { sent: 600, lost: 100, unsent: 20 });
        json::write(&document, &mut File::create(folder.join("result.json")).unwrap()).unwrap();
    }
    let found = compared(&a, &b, &options());
    let failed = metric(&found, "", MetricKind::FailedShare);
    // Of the 60 READs and 60 UPDATEs of ten seconds.
    assert_eq!(failed.verdict, MetricVerdict::Worse, "{failed:?}");
    assert!((failed.b - 0.1).abs() < 1e-9, "{failed:?}");
}

#[test]
fn equal_results_do_not_differ_and_a_seed_repeats_the_comparison() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 5);
    let b = write_side(&place.path().join("b"), &Law { seed: 3, ..LAW }, 5);
    let first = compared(&a, &b, &options());
    assert_eq!(first.verdict, OverallVerdict::NoDifference, "{first:#?}");
    assert_eq!(first, compared(&a, &b, &options()));
    let found = metric(&first, "READ", MetricKind::ResponseMean);
    assert!(found.detectable.unwrap() > found.noise.unwrap() && found.detectable.unwrap() < 0.2, "{found:?}");
}

#[test]
fn few_runs_are_inconclusive_with_their_numbers() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 5);
    let b = write_side(&place.path().join("b"), &Law { seed: 2, factor: 3.0, ..LAW }, 4);
    let found = compared(&a, &b, &options());
    assert_eq!(found.verdict, OverallVerdict::Inconclusive);
    let read = metric(&found, "READ", MetricKind::ResponseMean);
    assert_eq!((read.verdict, read.p_adjusted), (MetricVerdict::Inconclusive, None));
    assert!(read.change > 1.5 && read.low.unwrap() > 1.0, "{read:?}");
    let alone = compared(&a, &b.join("run-0/result.json"), &options());
    assert_eq!(metric(&alone, "READ", MetricKind::ResponseMean).low, None);
}

#[test]
fn differences_of_single_runs_are_noise() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &Law { between: 0.0, ..LAW }, 10);
    let b = write_side(&place.path().join("b"), &Law { seed: 2, factor: 1.08, between: 0.0, ..LAW }, 10);
    let loud = write_side(&place.path().join("loud"), &Law { seed: 3, between: 0.2, ..LAW }, 6);
    assert_eq!(compared(&a, &b, &options()).verdict, OverallVerdict::Worse);
    let (a, b) = (Side::read("A", &[a]).unwrap(), Side::read("B", &[b]).unwrap());
    let same = [Side::read("--aa", &[loud]).unwrap()];
    let found = compare(&a, &b, &same, &options()).unwrap();
    assert_eq!(found.verdict, OverallVerdict::NoDifference);
    let read = metric(&found, "READ", MetricKind::ResponseMean);
    assert!(read.verdict == MetricVerdict::WithinNoise && read.noise.unwrap() > 0.1, "{read:?}");
    assert!(table(&found, &Styles::plain()).contains("'Within noise'"));
    let single = [Side::read("--aa", &[place.path().join("loud/run-0")]).unwrap()];
    let found = compare(&a, &b, &single, &options()).unwrap();
    assert!(
        found.verdict == OverallVerdict::Worse && found.warnings[0].contains("no two of the same"),
        "{found:?}"
    );
}

#[test]
fn missing_cut_or_foreign_logs_are_reported_and_ignored() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 5);
    let b = write_side(&place.path().join("b"), &Law { seed: 2, factor: 1.3, ..LAW }, 5);
    let log = |side: &Path, run: u32| side.join(format!("run-{run}")).join(HISTOGRAM_LOG);
    assert!(compared(&a, &b, &options()).warnings.is_empty());
    fs::remove_file(log(&a, 0)).unwrap();
    let whole = fs::read(log(&a, 1)).unwrap();
    fs::write(log(&a, 1), &whole[..whole.len() / 2]).unwrap();
    fs::copy(log(&b, 0), log(&b, 2)).unwrap();
    fs::write(log(&b, 1), b"Tag=READ,2.000\n").unwrap();
    let cut: Vec<u8> = fs::read_to_string(log(&b, 3))
        .unwrap()
        .lines()
        .take(12)
        .flat_map(|l| format!("{l}\n").into_bytes())
        .collect();
    fs::write(log(&b, 3), cut).unwrap();
    let found = compared(&a, &b, &options());
    assert_eq!(found.verdict, OverallVerdict::Worse);
    assert!(found.warnings[0].starts_with("1 run has no histograms.hlog"), "{:?}", found.warnings);
    assert!(found.warnings[1].starts_with("3 histogram logs cannot be used"), "{:?}", found.warnings);
}

#[test]
fn duplicate_empty_and_mixed_sides_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 2);
    let read = |paths: &[PathBuf]| Side::read("A", paths);
    // What several paths lead to is one; a copy is not.
    assert_eq!(read(&[a.clone(), a.join("run-0"), a.join("run-0/result.json")]).unwrap().runs.len(), 2);
    let copy = place.path().join("copy.json");
    fs::copy(a.join("run-0/result.json"), &copy).unwrap();
    let error = read(&[a.clone(), copy]).unwrap_err().to_string();
    assert!(error.contains("are the same run, twice on side A"), "{error}");
    let twice = compare(
        &read(std::slice::from_ref(&a)).unwrap(),
        &Side::read("B", &[a.join("run-1")]).unwrap(),
        &[],
        &options(),
    );
    assert!(twice.unwrap_err().to_string().contains("cannot be on both sides"));
    let empty = place.path().join("empty/below");
    fs::create_dir_all(&empty).unwrap();
    let error = read(&[place.path().join("empty")]).unwrap_err().to_string();
    assert!(error.contains("there is no result in it"), "{error}");
    assert!(read(&[place.path().join("nowhere")]).unwrap_err().to_string().contains("nowhere"));
    let error = read(&[format!("{}:redis", a.display()).into()]).unwrap_err().to_string();
    assert!(error.contains("has no curve 'redis'"), "{error}");
}

/// An experiment of two curves with two points each.
fn write_experiment(folder: &Path, seed: u64, factor: f64) {
    write_experiment_of(folder, seed, factor, None);
}

/// The same; where a saturation is given, the first point is half of it.
fn write_experiment_of(folder: &Path, seed: u64, factor: f64, saturation: Option<f64>) {
    let curve = |name: &str| Curve {
        name: name.to_owned(),
        store: name.to_owned(),
        binding: "redis".to_owned(),
        workload: "workloada".to_owned(),
        at: None,
        saturation: saturation.map(|throughput| Saturation { throughput, clients: 16, found: true }),
        highest: None,
    };
    let mut runs = Vec::new();
    for (at, (kind, curve, point)) in [
        (RunKind::Search, 0, 0),
        (RunKind::Point, 0, 0),
        (RunKind::Point, 0, 1),
        (RunKind::Point, 1, 0),
        (RunKind::Point, 1, 1),
    ]
    .into_iter()
    .enumerate()
    {
        // Of several sweeps a side few repeats are enough.
        let (repeats, rate) = if saturation.is_some() { (1, 40) } else { (5, LAW.rate) };
        for repeat in 0..repeats {
            let number = at as u64 * 10 + u64::from(repeat);
            let name = format!("runs/{number:04}");
            let slow = if (curve, point) == (1, 1) { factor } else { 1.0 };
            write_run(&folder.join(&name), &Law { seed, factor: slow, seconds: 6, rate, ..LAW }, number);
            runs.push(RunEntry {
                curve,
                kind,
                point,
                repeat,
                target: (point == 0).then_some(saturation.map_or(1000.0, |s| s / 2.0)),
                share: saturation.filter(|_| point == 0).map(|_| 0.5),
                clients: 16,
                folder: name,
                started: String::new(),
                throughput: 1.0,
                failed_per_s: 0.0,
                duration_s: 4.0,
                warm_up_s: 2.0,
                whole_s: 6.0,
                records_before: None,
                flags: Vec::new(),
            });
        }
    }
    let curves = vec![curve("first"), curve("second")];
    let document = ExperimentDocument { seed, curves, runs, ..experiment(ExperimentKind::Sweep) };
    fs::write(folder.join("experiment.json"), serde_json::to_string(&document).unwrap()).unwrap();
}

/// An experiment in which nothing has been done.
fn experiment(kind: ExperimentKind) -> ExperimentDocument {
    ExperimentDocument {
        experiment_version: EXPERIMENT_VERSION,
        serval_version: "0.1.0".to_owned(),
        title: "test".to_owned(),
        about: String::new(),
        figure: String::new(),
        saw: String::new(),
        kind: kind.into(),
        started: String::new(),
        command_line: Vec::new(),
        plan: String::new(),
        seed: 0,
        axis: None,
        environment: sample::unpaced().environment,
        curves: Vec::new(),
        phases: Vec::new(),
        runs_planned: 20,
        runs: Vec::new(),
        complete: true,
        time_s: BTreeMap::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn points_of_experiments_are_compared_with_equal_points() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (place.path().join("a"), place.path().join("b"));
    write_experiment(&a, 1, 1.0);
    write_experiment(&b, 2, 1.5);
    let found = compared(&a, &b, &options());
    let names: Vec<&str> = found.points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "first, point 1: 1,000 operations/s offered",
            "first, point 2: as fast as the store answers",
            "second, point 1: 1,000 operations/s offered",
            "second, point 2: as fast as the store answers",
        ]
    );
    let worse: Vec<bool> = found
        .points
        .iter()
        .map(|point| point.metrics.iter().any(|m| m.verdict == MetricVerdict::Worse))
        .collect();
    assert_eq!(worse, [false, false, false, true]);
    // Searches are no repeats.
    assert!(found.points.iter().all(|point| point.runs_a.len() == 5 && point.runs_b.len() == 5));
    // Two curves of one experiment.
    let curve = |name: &str| PathBuf::from(format!("{}:{name}", b.display()));
    let found = compared(&curve("first"), &curve("second"), &options());
    assert_eq!((found.points.len(), found.verdict), (2, OverallVerdict::Worse));
    let side = |paths: &[PathBuf]| Side::read("A", paths);
    let error = side(&[curve("third")]).unwrap_err().to_string();
    assert!(error.contains("has no curve 'third'; it has first, second"), "{error}");
    let error =
        compare(&side(std::slice::from_ref(&a)).unwrap(), &side(&[curve("first")]).unwrap(), &[], &options());
    assert!(error.unwrap_err().to_string().contains("several curves"), "one curve is to be named");
    let single = write_side(&place.path().join("single"), &Law { seed: 5, ..LAW }, 2);
    let error = compare(&side(&[a]).unwrap(), &side(&[single]).unwrap(), &[], &options()).unwrap_err();
    assert!(error.to_string().contains("several points"), "{error}");
}

/// Runs are made in shuffled order; "1000" is before "200" as text.
#[test]
fn points_are_ordered_by_load() {
    let place = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| place.path().join(name));
    for (folder, seed) in [(&a, 10), (&b, 20)] {
        write_experiment(folder, seed, 1.0);
        let path = folder.join("experiment.json");
        let mut document: ExperimentDocument =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let points = document.runs.iter_mut().filter(|run| run.kind == RunKind::Point);
        points.for_each(|run| run.target = Some(if run.point == 0 { 1000.0 } else { 200.0 }));
        fs::write(&path, serde_json::to_string(&document).unwrap()).unwrap();
    }
    let found = compared(&a, &b, &options());
    let loads: Vec<&str> = found.points.iter().map(|point| point.name.rsplit(": ").next().unwrap()).collect();
    let wanted = ["200 operations/s offered", "1,000 operations/s offered"];
    assert_eq!(loads, [wanted, wanted].concat());
}

#[test]
fn intervals_of_two_runs_are_reported_as_wide() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 2);
    let b = write_side(&place.path().join("b"), &Law { seed: 9, ..LAW }, 2);
    let text = table(&compared(&a, &b, &options()), &Styles::plain());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Intervals of 2 runs a side are wide"), "{text}");
    let five = write_side(&place.path().join("c"), &Law { seed: 8, ..LAW }, 5);
    let text = table(&compared(&a, &five, &options()), &Styles::plain());
    assert!(text.contains("Intervals of 2 runs a side"), "{text}");
}

/// At half of what each can do, whatever that is; and what each can do.
#[test]
fn shares_of_the_saturation_are_compared_with_the_same_share() {
    let place = tempfile::tempdir().unwrap();
    let folder = |name: &str, number: u64| place.path().join(format!("{name}{number}"));
    for number in 0..5 {
        let off = number as f64;
        write_experiment_of(&folder("a", number), 10 + number, 1.0, Some(2_000.0 + off));
        write_experiment_of(&folder("b", number), 20 + number, 1.0, Some(2_600.0 - off));
    }
    let found = compared(&folder("a", 0), &folder("b", 0), &options());
    let names: Vec<&str> = found.points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(names[0], "first, point 1: 50.0 % of the saturation offered");
    let expected = "first saturates at 2,000 operations/s in A, 2,600 operations/s in B, by 1 sweep a side: at least 5 sweeps";
    assert!(found.warnings.iter().any(|warning| warning.starts_with(expected)), "{:?}", found.warnings);
    assert!(found.warnings.iter().any(|warning| warning.contains("were offered different loads")));
    // Five sweeps a side, each with a saturation of its own, are repeats of one another.
    let side = |name: &str| {
        let folders: Vec<PathBuf> = (0..5).map(|number| folder(name, number)).collect();
        Side::read(&name.to_uppercase(), &folders).unwrap()
    };
    let found = compare(&side("a"), &side("b"), &[], &options()).unwrap();
    assert_eq!(found.points.len(), 6, "two points and a saturation of each curve");
    assert!(found.points[..4].iter().all(|point| point.runs_a.len() == 5 && point.runs_b.len() == 5));
    let saturation = &found.points[4];
    assert_eq!(saturation.name, "first, saturation, by sweeps");
    assert_eq!((saturation.runs_a.len(), saturation.metrics.len()), (5, 1));
    assert_eq!(saturation.metrics[0].verdict, MetricVerdict::Better, "{:?}", saturation.metrics[0]);
    assert!((saturation.metrics[0].change - (2_598.0 / 2_002.0 - 1.0)).abs() < 1e-3);
}

#[test]
fn swapped_sides_differ_by_the_same_amount() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 5);
    let b = write_side(&place.path().join("b"), &Law { seed: 9, factor: 1.1, ..LAW }, 7);
    let (one, other) = (compared(&a, &b, &options()), compared(&b, &a, &options()));
    let metrics = one.points[0].metrics.iter().zip(&other.points[0].metrics);
    for (one, other) in metrics.filter(|(one, _)| one.metric.kind != MetricKind::FailedShare) {
        let same =
            |one: f64, other: f64| assert!((one.ln_1p() + other.ln_1p()).abs() < 1e-9, "{one} {other}");
        same(one.change, other.change);
        same(one.low.unwrap(), other.high.unwrap());
        same(one.high.unwrap(), other.low.unwrap());
        assert!((one.p.unwrap() - other.p.unwrap()).abs() < 1e-9);
    }
}

#[test]
fn rounding_errors_are_not_differences() {
    let judged = |b: f64| {
        let mut judged = judge::throughputs(vec![300.0; 5], vec![b; 5], &options());
        judge::conclude(std::iter::once(&mut judged), &options());
        judged.comparison.verdict
    };
    // As 900 operations in 3.0000000000000004 s have it.
    assert!(!matches!(judged(300.0 * (1.0 - 2e-16)), MetricVerdict::Worse | MetricVerdict::Better));
    assert!(!matches!(judged(300.0), MetricVerdict::Worse | MetricVerdict::Better));
    assert_eq!(judged(299.0), MetricVerdict::Worse);
    // The mean of seven equal logarithms is not that of five to the last digit.
    let place = tempfile::tempdir().unwrap();
    let side = |name: &str, seed, runs: u64| {
        let folder = place.path().join(name);
        for number in 0..runs {
            let run = folder.join(number.to_string());
            let mut document = write_run(&run, &Law { seed, rate: 20, seconds: 4, ..LAW }, number);
            document.overall.throughput = 100.0;
            json::write(&document, &mut File::create(run.join("result.json")).unwrap()).unwrap();
        }
        folder
    };
    let found = compared(&side("a", 3, 5), &side("b", 4, 7), &options());
    let throughput = metric(&found, "", MetricKind::Throughput);
    assert!(!matches!(throughput.verdict, MetricVerdict::Worse | MetricVerdict::Better), "{throughput:?}");
}

#[test]
fn the_json_survives_a_round_trip() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 2);
    let b = write_side(&place.path().join("b"), &Law { seed: 2, ..LAW }, 3);
    let found = compared(&a, &b, &options());
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), found);
    assert!(
        text.contains("\"comparison_version\":1") && text.contains("\"kind\":\"response-p99\""),
        "{text}"
    );
}

fn check(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap(), "UPDATE_GOLDEN=1 accepts the new text");
}

#[test]
fn table_and_markdown_equal_the_golden_files() {
    let place = tempfile::tempdir().unwrap();
    let a = write_side(&place.path().join("a"), &LAW, 5);
    let b = place.path().join("b");
    for number in 0..6 {
        let folder = b.join(format!("run-{number}"));
        let mut document = write_run(&folder, &Law { seed: 2, factor: 1.06, between: 0.02, ..LAW }, number);
        document.run.store = "redis|<b>".to_owned();
        document.overall.failed = number / 4 * 100;
        document.run.clients = 32;
        json::write(&document, &mut File::create(folder.join("result.json")).unwrap()).unwrap();
    }
    let side = |name: &str, path: &PathBuf| {
        let read = Side::read(name, std::slice::from_ref(path)).unwrap();
        Side { given: name.to_lowercase(), ..read }
    };
    let found = compare(&side("A", &a), &side("B", &b), &[], &options()).unwrap();
    let text = table(&found, &Styles::colourless());
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    check("compare.txt", &text);
    let page = markdown(&found);
    assert!(!page.contains("<b>"), "{page}");
    check("compare.md", &page);
    assert!(table(&found, &Styles::ansi()).contains("\x1b["));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn resampled_percentiles_equal_those_of_merged_histograms(
        pieces in prop::collection::vec(prop::collection::vec(1u64..1 << 30, 0..40), 2..6),
        weights in prop::collection::vec(0u32..4, 6), p in 0.0f64..100.0,
    ) {
        let series: Vec<IntervalSummary> = pieces.iter().enumerate().map(|(second, times)| {
            let mut histogram = Histogram::new();
            times.iter().for_each(|&t| histogram.record(t));
            let metrics = [("READ".to_owned(), interval_metric(&histogram))].into();
            IntervalSummary { start_s: second as f64, length_s: 1.0, warm_up: false, metrics, pacing: None }
        }).collect();
        let mut log = HdrLog::new(Vec::new(), UNIX_EPOCH, "test", 1).unwrap();
        let mut merged = Histogram::new();
        for (second, (times, weight)) in pieces.iter().zip(&weights).enumerate() {
            let mut histogram = Histogram::new();
            times.iter().for_each(|&t| histogram.record(t));
            log.interval(Some("READ"), Duration::from_secs(second as u64), Duration::from_secs(1), &histogram).unwrap();
            times.iter().for_each(|&t| merged.record_n(t, u64::from(*weight)));
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(HISTOGRAM_LOG);
        fs::write(&path, log.finish().unwrap()).unwrap();
        let read = crate::log::read(&path, &crate::pieces::Pieces::of(&series), |tag| tag == "READ").unwrap();
        let weights = &weights[..pieces.len()];
        let estimate = read["READ"].percentile(p, weights);
        if merged.is_empty() {
            prop_assert!(estimate.is_nan());
        } else {
            // The merged one is cut at the largest time, cells are not.
            let truth = merged.percentile(p) as f64;
            prop_assert!(estimate >= truth && estimate <= truth * 1.002 + 1.0, "{} for {}", estimate, truth);
            prop_assert!((read["READ"].mean(weights) / merged.mean() - 1.0).abs() < 0.002);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn arbitrary_results_do_not_panic(a in sample::any_document(), b in sample::any_document()) {
        let place = tempfile::tempdir().unwrap();
        let mut sides = Vec::new();
        for (name, mut document) in [("A", a), ("B", b)] {
            let mut paths = Vec::new();
            for number in 0..5 {
                let folder = place.path().join(format!("{name}{number}"));
                fs::create_dir_all(&folder).unwrap();
                document.run.started = format!("{name}{number}");
                json::write(&document, &mut File::create(folder.join("result.json")).unwrap()).unwrap();
                paths.push(folder);
            }
            sides.push(Side::read(name, &paths).unwrap());
        }
        let found = compare(&sides[0], &sides[1], &[], &CompareOptions { resamples: 50, ..options() }).unwrap();
        let text = table(&found, &Styles::colourless());
        prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{}", text);
        for line in text.lines().filter(|line| line.contains(' ')) {
            prop_assert!(line.chars().count() <= WIDTH, "{}", line);
        }
        markdown(&found);
    }
}

/// 10 runs of 60 s with two operations, 2,000 resamples: prints how long it
/// takes. `cargo test --release -p serval-compare how_long -- --ignored --nocapture`
#[test]
#[ignore = "tells a time, which no test may assert"]
fn time_of_a_comparison() {
    let place = tempfile::tempdir().unwrap();
    let law = Law { seconds: 62, rate: 5_000, ..LAW };
    let a = write_side(&place.path().join("a"), &law, 5);
    let b = write_side(&place.path().join("b"), &Law { seed: 2, ..law }, 5);
    let start = std::time::Instant::now();
    let found = compared(&a, &b, &CompareOptions::default());
    println!("{:?} for {} metrics", start.elapsed(), found.points[0].metrics.len());
}
