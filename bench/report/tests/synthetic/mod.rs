//! Stored results of synthetic stores: service times are log-normal; with an offered load, waiting
//! times are those of a queue.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each user needs a part; failures are the point"
)]

pub mod searched;

use serval_measure::{histogram::Histogram, recorder::Pair};
use serval_result::{
    document::{
        Censored, EndedBy, Environment, IntervalMetric, IntervalPacing, IntervalSummary, IntervalTimes,
        Latency, MessageCount, MetricResult, Overall, PacingResult, PropertyFact, ResultDocument, RunFacts,
        SCHEMA_VERSION, TimesResult, levels,
    },
    experiment::{
        Curve, EXPERIMENT_VERSION, ExperimentDocument, ExperimentKind, Flag, RunEntry, RunKind, Saturation,
    },
    load::{ClientLoad, ProcessLoad, Steadiness, Usage},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// A linear congruential generator: deterministic.
pub struct Draws(u64);

impl Draws {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A time from an approximate log-normal distribution.
    fn time(&mut self, median_ns: f64, spread: f64) -> u64 {
        let normal = (0..6).map(|_| self.unit()).sum::<f64>() - 3.0;
        (median_ns * (normal * spread).exp()) as u64
    }

    fn exponential(&mut self, mean_ns: f64) -> u64 {
        (-mean_ns * self.unit().ln()) as u64
    }
}

/// A store: its name, saturation, median service time and CPU time an operation.
#[derive(Clone, Copy)]
pub struct Store {
    pub name: &'static str,
    pub saturation: f64,
    pub median_ns: f64,
    pub cpu_us: f64,
}

pub const STORES: [Store; 3] = [
    Store { name: "redis", saturation: 42_000.0, median_ns: 210_000.0, cpu_us: 14.0 },
    Store { name: "yesquel", saturation: 31_000.0, median_ns: 330_000.0, cpu_us: 24.0 },
    Store { name: "postgres", saturation: 12_500.0, median_ns: 900_000.0, cpu_us: 71.0 },
];

/// The parameters of a run.
#[derive(Clone)]
pub struct Run<'a> {
    pub store: Store,
    pub workload: &'a str,
    pub operations: &'a [Operation],
    pub target: Option<f64>,
    pub clients: u64,
    /// Measured time.
    pub seconds: u32,
    pub warm_up: u32,
    /// Times drawn a second; each stands for several operations.
    pub drawn: u64,
    pub failures: bool,
    pub bound: bool,
    pub seed: u64,
}

/// An operation, its share, and its time relative to a read's.
pub type Operation = (&'static str, f64, f64);

/// The operations of workload A.
pub const HALF_AND_HALF: &[Operation] = &[("READ", 0.5, 1.0), ("UPDATE", 0.5, 1.4)];

/// The measurements of a run. All but the series are without the warm-up.
#[derive(Default)]
struct Measured<'a> {
    series: Vec<IntervalSummary>,
    operations: u64,
    /// Times by operation.
    pairs: BTreeMap<&'a str, Pair>,
    /// Times of failures by operation.
    failed: BTreeMap<&'a str, Histogram>,
    late: Histogram,
}

fn measured<'a>(run: &Run<'a>) -> Measured<'a> {
    let Run { store, target, seconds, .. } = *run;
    let mut draws = Draws(run.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let done = target.map_or(store.saturation, |target| target.min(store.saturation));
    let load = target.map_or(0.0, |target| target / store.saturation);
    let mut all = Measured::default();
    for second in 0..run.warm_up + seconds {
        let warm_up = second < run.warm_up;
        let stall = second % 97 == 61 || second == run.warm_up + 2;
        let mut metrics = BTreeMap::new();
        let mut late_now = Histogram::new();
        for &(name, share, slower) in run.operations {
            let mut pair = Pair::default();
            let drawn = ((run.drawn as f64 * share) as u64).max(8);
            // Rounding must not change the sum.
            let upto = |part: u64| (done * share * part as f64 / drawn as f64).round() as u64;
            for part in 0..drawn {
                let each = upto(part + 1) - upto(part);
                let service = draws.time(store.median_ns * slower, 0.45)
                    + if stall && draws.unit() < 0.1 { draws.exponential(9e6) } else { 0 };
                pair.service.record_n(service, each);
                if target.is_some() {
                    let wait = if load >= 1.0 {
                        // Overload: the queue grows as long as the run lasts.
                        ((load - 1.0 + 0.01) * f64::from(second) * 1e9 * (0.5 + 0.5 * draws.unit())) as u64
                    } else {
                        draws.exponential(store.median_ns * load / (1.0 - load) / 8.0 + 8_000.0)
                    };
                    pair.response.record_n(service + wait, each);
                    late_now.record_n(wait, each);
                }
            }
            let failures = if run.failures && stall { 40 } else { 0 };
            let paced = target.is_some();
            let shown = if paced { &pair.response } else { &pair.service };
            let service = IntervalTimes::of(&pair.service);
            let metric = IntervalMetric {
                ok: pair.service.count(),
                failed: failures,
                response: IntervalTimes::of(shown),
                service,
                levels: levels(shown),
            };
            metrics.insert(name.to_owned(), metric);
            if !warm_up {
                all.operations += pair.service.count() + failures;
                all.pairs.entry(name).or_default().merge(&pair);
                all.failed.entry(name).or_default().record_n(30_000_000, failures);
            }
        }
        let pacing =
            target.map(|target| IntervalPacing { due: target, lateness: IntervalTimes::of(&late_now) });
        all.series.push(IntervalSummary {
            start_s: f64::from(second),
            length_s: 1.0,
            warm_up,
            metrics,
            pacing,
        });
        if !warm_up {
            all.late.merge(&late_now);
        }
    }
    all
}

fn metric(name: &str, pair: &Pair, failed: &Histogram, paced: bool) -> MetricResult {
    let mut statuses = BTreeMap::from([("OK".to_owned(), pair.service.count())]);
    let (mut times, mut messages) = (BTreeMap::new(), Vec::new());
    if !failed.is_empty() {
        statuses.insert("ERROR".to_owned(), failed.count());
        let latency = Latency::of(failed, &PERCENTILES);
        times.insert("ERROR".to_owned(), TimesResult { response: latency.clone(), service: latency });
        let message = "the connection was <closed> by the server".to_owned();
        messages.push(MessageCount { status: "ERROR".to_owned(), message, count: failed.count() });
    }
    let ok = Some(TimesResult::of(pair, paced, &PERCENTILES));
    MetricResult { name: name.to_owned(), statuses, ok, failed: times, messages }
}

/// The result of a run.
pub fn result(run: &Run<'_>) -> ResultDocument {
    let Run { store, target, seconds, .. } = *run;
    let measured = measured(run);
    let metrics = measured.pairs.iter();
    let metrics = metrics.map(|(name, pair)| metric(name, pair, &measured.failed[name], target.is_some()));
    let usage = |us: f64, memory: u64| Usage {
        cpu_s: measured.operations as f64 * us / 1e6,
        run_queue_s: Some(0.3),
        memory_bytes: Some(memory),
        sent_bytes: Some(measured.operations * 120),
        received_bytes: Some(measured.operations * 640),
    };
    let sentence = "the client's threads ran for 97 % of the time, and the store waited for them".to_owned();
    ResultDocument {
        schema_version: SCHEMA_VERSION,
        run: facts(run),
        environment: environment(),
        warnings: vec!["The store runs on the same machine as the client.".to_owned()],
        notes: Vec::new(),
        overall: Overall {
            duration_s: f64::from(seconds),
            warm_up_s: f64::from(run.warm_up),
            operations: measured.operations,
            failed: measured.failed.values().map(Histogram::count).sum(),
            throughput: measured.operations as f64 / f64::from(seconds),
            ended_by: EndedBy::Time.into(),
            client_cpu_s: measured.operations as f64 * 6e-6,
        },
        metrics: metrics.collect(),
        censored: Censored::default(),
        buffered: None,
        pacing: target.map(|target| PacingResult {
            schedule: format!("{target}/s"),
            target,
            arrivals: "poisson".to_owned(),
            slack_ns: 0,
            lateness: Latency::of(&measured.late, &PERCENTILES),
        }),
        group: None,
        lag: None,
        steadiness: Some(Steadiness {
            steady: !run.failures,
            max_s: 60.0,
            window_s: 5.0,
            throughput_drift: 0.004,
            service_drift: -0.011,
        }),
        stationarity: None,
        client: Some(ClientLoad {
            usage: usage(6.0, 48 << 20),
            threads: 2,
            busiest_thread: Some(if run.bound { 0.97 } else { 0.41 }),
            outside_store: None,
            machine_busy: Some(0.66),
            bound_by_client: if run.bound { vec![sentence] } else { Vec::new() },
        }),
        processes: vec![ProcessLoad {
            name: format!("{}-server", store.name),
            pids: vec![4321],
            command: format!("{}-server --port 6379", store.name),
            usage: usage(store.cpu_us, (store.median_ns as u64) << 12),
        }],
        series: measured.series,
    }
}

fn environment() -> Environment {
    Environment {
        cpu: "AMD EPYC 7B13".to_owned(),
        cores: 8,
        memory_bytes: 33_600_000_000,
        kernel: "Linux 6.1.0".to_owned(),
        host: "client-1".to_owned(),
        build: "x86_64 release".to_owned(),
        debug: false,
    }
}

fn facts(run: &Run<'_>) -> RunFacts {
    let property =
        |value: &str, origin: &str| PropertyFact { value: value.to_owned(), origin: origin.to_owned() };
    RunFacts {
        serval_version: "0.1.0".to_owned(),
        label: String::new(),
        phase: "run".to_owned(),
        command_line: ["serval", "run", run.store.name, "-P", "workloads/workload a"]
            .map(str::to_owned)
            .into(),
        started: "2026-04-05T06:07:08.009Z".to_owned(),
        store: run.store.name.to_owned(),
        store_facts: [("version", "7.0.15"), ("address", "127.0.0.1:6379"), ("persistence", "none")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        workload: "site.ycsb.workloads.CoreWorkload".to_owned(),
        seed: run.seed,
        clients: run.clients,
        execution: "event loops, 2".to_owned(),
        properties: [("recordcount", property("1000000", "workloads/workload a:12"))]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    }
}

fn write(folder: &Path, document: &ResultDocument) {
    std::fs::create_dir_all(folder).unwrap();
    let mut text = Vec::new();
    serval_report::json::write(document, &mut text).unwrap();
    std::fs::write(folder.join("result.json"), text).unwrap();
}

/// Writes a single result; returns its file.
pub fn write_run(folder: &Path, run: &Run<'_>) -> PathBuf {
    write(folder, &result(run));
    folder.join("result.json")
}

/// An experiment under construction.
struct Making<'a> {
    folder: &'a Path,
    document: ExperimentDocument,
}

impl Making<'_> {
    fn new<'a>(folder: &'a Path, title: &str, kind: ExperimentKind) -> Making<'a> {
        let document = ExperimentDocument {
            experiment_version: EXPERIMENT_VERSION,
            serval_version: "0.1.0".to_owned(),
            title: title.to_owned(),
            about: String::new(),
            figure: String::new(),
            saw: String::new(),
            kind: kind.into(),
            started: "2026-04-05T06:07:08Z".to_owned(),
            command_line: ["serval", "experiment", "run", "experiments/made up.toml"]
                .map(str::to_owned)
                .into(),
            plan:
                "# <an example>\nversion = 1\ntitle = \"Workload A\"\n\n[points]\nshares = [0.1, 0.2, 0.4]\n"
                    .to_owned(),
            seed: 42,
            axis: None,
            environment: environment(),
            curves: Vec::new(),
            runs: Vec::new(),
            phases: Vec::new(),
            runs_planned: 0,
            complete: true,
            time_s: [("loading", 30.0), ("measuring", 1800.0), ("warming up", 240.5), ("other", 12.0)]
                .map(|(name, s)| (name.to_owned(), s))
                .into(),
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        Making { folder, document }
    }

    fn curve(&mut self, name: &str, store: Store, workload: &str, at: Option<f64>) -> usize {
        self.document.curves.push(Curve {
            name: name.to_owned(),
            store: store.name.to_owned(),
            binding: store.name.to_owned(),
            workload: workload.to_owned(),
            at,
            saturation: None,
            highest: None,
        });
        self.document.curves.len() - 1
    }

    fn run(&mut self, curve: usize, point: usize, repeat: u32, run: &Run<'_>, mut flags: Vec<Flag>) {
        let document = result(run);
        let number = self.document.runs.len();
        let folder = format!("runs/{number:04}-{}-{point}-{repeat}", run.store.name);
        write(&self.folder.join(&folder), &document);
        if document.overall.failed > 0 {
            flags.push(Flag::Failures);
        }
        if run.bound {
            flags.push(Flag::ClientBound);
        }
        self.document.runs.push(RunEntry {
            curve,
            kind: RunKind::Point,
            point,
            repeat,
            target: run.target,
            share: None,
            clients: run.clients,
            folder,
            started: "2026-04-05T06:07:08Z".to_owned(),
            throughput: document.overall.throughput,
            failed_per_s: 0.0,
            duration_s: document.overall.duration_s,
            warm_up_s: document.overall.warm_up_s,
            whole_s: document.overall.duration_s + document.overall.warm_up_s,
            records_before: Some(1_000_000),
            flags,
        });
    }

    fn finish(mut self) {
        self.document.runs_planned = self.document.runs.len() as u64;
        let text = serde_json::to_vec_pretty(&self.document).unwrap();
        std::fs::write(self.folder.join("experiment.json"), text).unwrap();
    }
}

/// The size of a sweep.
#[derive(Clone, Copy)]
pub struct Size {
    pub stores: usize,
    pub points: usize,
    pub repeats: u32,
    pub seconds: u32,
    pub drawn: u64,
}

/// Writes a sweep up to the saturation and past it; its points have all flags.
pub fn sweep(folder: &Path, size: Size) {
    let mut making = Making::new(folder, "Workload A: read and update, half and half", ExperimentKind::Sweep);
    making.document.about =
        "Latency against throughput until saturation, for several stores side by side.".to_owned();
    making.document.figure = "YCSB paper, figure 3: workload A".to_owned();
    making.document.saw =
        "Cassandra had the highest throughput and the lowest latency for updates.".to_owned();
    for store in STORES.into_iter().take(size.stores) {
        let curve = making.curve(store.name, store, "a", None);
        making.document.curves[curve].saturation =
            Some(Saturation { throughput: store.saturation, clients: 64, found: true });
    }
    making.document.runs.push(RunEntry {
        curve: 0,
        kind: RunKind::Load,
        point: 0,
        repeat: 0,
        target: None,
        share: None,
        clients: 16,
        folder: "runs/load".to_owned(),
        started: "2026-04-05T06:00:00Z".to_owned(),
        throughput: 33_000.0,
        failed_per_s: 0.0,
        duration_s: 30.0,
        warm_up_s: 0.0,
        whole_s: 30.2,
        records_before: None,
        flags: Vec::new(),
    });
    for repeat in 0..size.repeats {
        for point in 0..size.points {
            for (curve, store) in STORES.into_iter().take(size.stores).enumerate() {
                let share = 1.1 * (point + 1) as f64 / size.points as f64;
                let run = Run {
                    store,
                    workload: "a",
                    operations: HALF_AND_HALF,
                    target: Some((store.saturation * share).round()),
                    clients: 64,
                    seconds: size.seconds,
                    warm_up: 3,
                    drawn: size.drawn,
                    failures: curve == 1 && point == 3,
                    bound: curve == 0 && point + 2 == size.points,
                    seed: (repeat as u64 * 100 + point as u64) * 10 + curve as u64 + 1,
                };
                let mut flags = Vec::new();
                flags.extend((share >= 1.0).then_some(Flag::Overloaded));
                flags.extend((curve == 1 && point == 0).then_some(Flag::FewSamples));
                flags.extend(run.failures.then_some(Flag::Unsteady));
                making.run(curve, point, repeat, &run, flags);
            }
        }
    }
    making.finish();
}

/// Writes closed loops of workloads of reads, updates and scans.
pub fn closed(folder: &Path, seconds: u32, drawn: u64) {
    let mut making = Making::new(folder, "Key-value operations, one server", ExperimentKind::Sweep);
    making.document.figure = "Yesquel paper, figures 15 and 16".to_owned();
    making.document.saw = "Yesquel's throughput was at most 18 % below that of Redis.".to_owned();
    let workloads: [(&str, &[Operation]); 3] = [
        ("read", &[("READ", 1.0, 1.0)]),
        ("update", &[("UPDATE", 1.0, 1.6)]),
        ("scan", &[("SCAN", 1.0, 3.0)]),
    ];
    for (workload, operations) in workloads {
        for store in STORES {
            let curve = making.curve(&format!("{} {workload}", store.name), store, workload, None);
            let slower = operations[0].2;
            let store =
                Store { saturation: store.saturation / slower, cpu_us: store.cpu_us * slower, ..store };
            for repeat in 0..3 {
                let run = Run {
                    store,
                    workload,
                    operations,
                    target: None,
                    clients: 32,
                    seconds,
                    warm_up: 2,
                    drawn,
                    failures: false,
                    bound: false,
                    seed: u64::from(repeat) * 100 + curve as u64 + 7,
                };
                making.run(curve, 0, repeat, &run, Vec::new());
            }
        }
    }
    making.finish();
}

/// Writes scans of several lengths on an axis.
pub fn axis(folder: &Path, seconds: u32, drawn: u64) {
    let mut making = Making::new(folder, "Range size", ExperimentKind::Sweep);
    making.document.axis = Some("records a range".to_owned());
    making.document.figure = "YCSB paper, 6.4: 25 to 800 records a range".to_owned();
    let lengths = [25.0, 50.0, 100.0, 200.0, 400.0, 800.0];
    for store in STORES.into_iter().take(2) {
        for length in lengths {
            let workload = format!("range-{length}");
            let curve = making.curve(&format!("{} {workload}", store.name), store, &workload, Some(length));
            let slower = 1.0 + length / 40.0;
            let store =
                Store { saturation: store.saturation / slower, median_ns: store.median_ns * slower, ..store };
            for repeat in 0..2 {
                let run = Run {
                    store,
                    workload: &workload,
                    operations: &[("SCAN", 0.95, 1.0), ("INSERT", 0.05, 0.1)],
                    target: None,
                    clients: 16,
                    seconds,
                    warm_up: 2,
                    drawn,
                    failures: false,
                    bound: false,
                    seed: u64::from(repeat) * 100 + curve as u64 + 3,
                };
                making.run(curve, 0, repeat, &run, Vec::new());
            }
        }
    }
    making.finish();
}

/// One run, paced at 60 % of the store's saturation.
pub fn one_run(seconds: u32, drawn: u64, seed: u64) -> Run<'static> {
    let store = STORES[(seed % 3) as usize];
    Run {
        store,
        workload: "a",
        operations: HALF_AND_HALF,
        target: Some((store.saturation * 0.6).round()),
        clients: 32,
        seconds,
        warm_up: 5,
        drawn,
        failures: true,
        bound: seed == 1,
        seed,
    }
}
