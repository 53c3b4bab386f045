//! Results for tests.

use proptest::prelude::*;
use serval_measure::{histogram::Histogram, recorder::Pair};
use serval_result::{
    document::{
        Censored, EndedBy, Environment, IntervalMetric, IntervalPacing, IntervalSummary, IntervalTimes,
        Latency, MessageCount, MetricResult, Overall, PacingResult, PropertyFact, ResultDocument, RunFacts,
        SCHEMA_VERSION, TimesResult, levels,
    },
    lag::{Behind, Brackets, LagKeys, LagResult, LagWrites, Survival, SurvivalStep, Versions, Violations},
    load::{ClientLoad, ProcessLoad, Usage},
};
use std::{collections::BTreeMap, sync::LazyLock};

pub(crate) const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// A linear congruential generator: deterministic.
struct Draws(u64);

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
}

/// The times of a pair of histograms.
pub(crate) fn times(pair: &Pair, paced: bool) -> TimesResult {
    TimesResult::of(pair, paced, &PERCENTILES)
}

fn interval_metric(pair: &Pair, failed: u64, paced: bool) -> IntervalMetric {
    let service = IntervalTimes::of(&pair.service);
    let response = if paced { IntervalTimes::of(&pair.response) } else { service };
    let levels = levels(if paced { &pair.response } else { &pair.service });
    IntervalMetric { ok: pair.service.count(), failed, response, service, levels }
}

/// A run of two minutes with two stalls, paced or not. Cached: property tests need many.
fn run(paced: bool) -> ResultDocument {
    static RUNS: LazyLock<[ResultDocument; 2]> = LazyLock::new(|| [false, true].map(simulated_run));
    RUNS[usize::from(paced)].clone()
}

/// The operations of the run: name, median of the service times in ns, and rate.
const OPERATIONS: [(&str, f64, u64); 3] =
    [("READ", 180_000.0, 100), ("UPDATE", 310_000.0, 90), ("SCAN", 2_400_000.0, 6)];

/// The series of the run, its times by operation without the warm-up, and its lateness.
fn simulated_series(paced: bool) -> (Vec<IntervalSummary>, BTreeMap<&'static str, Pair>, Histogram) {
    let mut draws = Draws(7);
    let mut pairs: BTreeMap<&str, Pair> = BTreeMap::new();
    let mut late = Histogram::new();
    let mut series = Vec::new();
    for second in 0..120u32 {
        let warm_up = second < 10;
        let stall = if matches!(second, 47 | 48 | 90) { 40.0 } else { 1.0 };
        let mut metrics = BTreeMap::new();
        let mut late_now = Histogram::new();
        for (name, median, rate) in OPERATIONS {
            let mut pair = Pair::default();
            let rate = if stall > 1.0 && !paced { rate / 4 } else { rate + (draws.unit() * 6.0) as u64 };
            for _ in 0..rate {
                let service =
                    (draws.time(median, 0.5) as f64 * if draws.unit() < 0.2 { stall } else { 1.0 }) as u64;
                let wait = draws.time(9_000.0, 0.9) + if stall > 1.0 { draws.time(90e6, 1.0) } else { 0 };
                pair.service.record(service);
                if paced {
                    pair.response.record(service + wait);
                    late_now.record(wait);
                }
            }
            metrics.insert(name.to_owned(), interval_metric(&pair, u64::from(stall > 1.0), paced));
            if !warm_up {
                pairs.entry(name).or_default().merge(&pair);
            }
        }
        let (start_s, length_s) = (f64::from(second), 1.0);
        let pacing = paced.then(|| IntervalPacing { due: 196.0, lateness: IntervalTimes::of(&late_now) });
        series.push(IntervalSummary { start_s, length_s, warm_up, metrics, pacing });
        late.merge(&late_now);
    }
    (series, pairs, late)
}

/// The metric of an operation; three reads have failed.
fn simulated_metric(name: &str, pair: &Pair, paced: bool) -> MetricResult {
    let mut statuses = BTreeMap::from([("OK".to_owned(), pair.service.count())]);
    let (mut failed, mut messages) = (BTreeMap::new(), Vec::new());
    if name == "READ" {
        let mut not_found = Pair::default();
        for i in 1..=3u64 {
            not_found.service.record(i * 50_000);
            if paced {
                not_found.response.record(i * 70_000);
            }
        }
        statuses.insert("NOT_FOUND".to_owned(), 3);
        failed.insert("NOT_FOUND".to_owned(), times(&not_found, paced));
        messages.push(MessageCount {
            status: "NOT_FOUND".to_owned(),
            message: "<b>no such key</b> & \"none\" in 'usertable'".to_owned(),
            count: 3,
        });
    }
    MetricResult { name: name.to_owned(), statuses, ok: Some(times(pair, paced)), failed, messages }
}

fn simulated_run(paced: bool) -> ResultDocument {
    let (series, pairs, late) = simulated_series(paced);
    let metrics: Vec<MetricResult> =
        pairs.iter().map(|(name, pair)| simulated_metric(name, pair, paced)).collect();
    let operations = metrics.iter().flat_map(|m| m.statuses.values()).sum::<u64>();
    let mut ages = Histogram::new();
    [3_200_000_000, 150_000_000].iter().for_each(|&age| ages.record(age));
    let ages = Latency::of(&ages, &PERCENTILES);
    ResultDocument {
        schema_version: SCHEMA_VERSION,
        run: facts(),
        environment: Environment {
            cpu: "AMD EPYC 7B13".to_owned(),
            cores: 8,
            memory_bytes: 33_600_000_000,
            kernel: "Linux 6.1.0".to_owned(),
            host: "client-1".to_owned(),
            build: "x86_64 release".to_owned(),
            debug: false,
        },
        warnings: vec!["The store runs on the same machine as the client.".to_owned()],
        notes: Vec::new(),
        overall: Overall {
            duration_s: 110.2,
            warm_up_s: 10.0,
            operations,
            failed: 3,
            throughput: operations as f64 / 110.2,
            ended_by: EndedBy::Time.into(),
            client_cpu_s: 12.5,
        },
        metrics,
        buffered: None,
        censored: match paced {
            true => {
                Censored { in_flight: 2, not_started: 0, in_flight_age: Some(ages), not_started_age: None }
            }
            false => Censored::default(),
        },
        pacing: paced.then(|| PacingResult {
            schedule: "200/s".to_owned(),
            target: 200.0,
            arrivals: "poisson".to_owned(),
            slack_ns: 0,
            lateness: Latency::of(&late, &PERCENTILES),
        }),
        steadiness: None,
        group: None,
        lag: None,
        stationarity: None,
        client: None,
        processes: Vec::new(),
        series,
    }
}

fn facts() -> RunFacts {
    let property =
        |value: &str, origin: &str| PropertyFact { value: value.to_owned(), origin: origin.to_owned() };
    RunFacts {
        serval_version: "0.1.0".to_owned(),
        label: String::new(),
        phase: "run".to_owned(),
        command_line: [
            "serval",
            "run",
            "redis",
            "-P",
            "workloads/workload a",
            "-p",
            "x=<script>alert(1)</script>",
        ]
        .map(str::to_owned)
        .to_vec(),
        started: "2026-04-05T06:07:08.009Z".to_owned(),
        store: "redis".to_owned(),
        store_facts: [("version", "7.0.15"), ("address", "127.0.0.1:6379")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        workload: "site.ycsb.workloads.CoreWorkload".to_owned(),
        seed: 42,
        clients: 16,
        execution: "event loops, 2".to_owned(),
        properties: [
            ("recordcount", property("1000000", "workloads/workload a:12")),
            ("readproportion", property("0.5", "workloads/workload a:20")),
            ("target", property("200", "-target")),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .into(),
    }
}

/// A paced run with stalls, failures and unfinished operations.
pub(crate) fn paced() -> ResultDocument {
    run(true)
}

/// A run in a closed loop.
pub(crate) fn unpaced() -> ResultDocument {
    run(false)
}

/// A paced run with costs that the client bounded.
pub(crate) fn costly() -> ResultDocument {
    let usage = |cpu_s: f64, megabytes: u64, bytes: Option<(u64, u64)>| Usage {
        cpu_s,
        run_queue_s: Some(0.8),
        memory_bytes: Some(megabytes << 20),
        sent_bytes: bytes.map(|(sent, _)| sent),
        received_bytes: bytes.map(|(_, received)| received),
    };
    let process = |name: &str, pids: &[u32], usage: Usage| ProcessLoad {
        name: name.to_owned(),
        pids: pids.to_vec(),
        command: format!("/usr/bin/{name} *:6379"),
        usage,
    };
    let mut document = run(true);
    document.client = Some(ClientLoad {
        usage: usage(12.5, 38, Some((2_800_000, 26_600_000))),
        threads: 2,
        busiest_thread: Some(0.974),
        outside_store: None,
        machine_busy: Some(0.61),
        bound_by_client: vec![
            "The client bounded this result: the busiest of its 2 event loops had work 97 % of the time. Give it more \
             (eventloops=4), or run clients on several machines and merge their results."
                .to_owned(),
        ],
    });
    document.processes = vec![
        process("redis-server", &[4711], usage(1.25, 1200, Some((26_600_000, 2_800_000)))),
        process("a sidecar with quite a long name", &[12, 13, 14], usage(0.0, 5, None)),
    ];
    document
}

/// A run whose lag consumers measured.
pub(crate) fn lagging() -> ResultDocument {
    let spans = |spans: &mut dyn Iterator<Item = u64>| {
        let mut histogram = Histogram::new();
        spans.for_each(|ns| histogram.record(ns));
        Some(Latency::of(&histogram, &PERCENTILES))
    };
    // Quantiles of an exponential distribution with mean 50 ms.
    let delay = |i: u64| (-(1.0 - (i as f64 + 0.5) / 1000.0).ln() * 5e7) as u64;
    let curve = |more: u64| {
        let step = |i: u64| SurvivalStep { at_ns: delay(i) + more, share: 1.0 - (i + 1) as f64 / 1000.0 };
        (0..980).step_by(4).map(step).collect()
    };
    let violations = |checked, violations, undecided| Violations { checked, violations, undecided };
    let lag = LagResult {
        queue: "ZooKeeper at 10.0.0.7:2181, /serval-lag".to_owned(),
        sample: 0.01,
        poll_ns: 10_000_000,
        consumers: 2,
        writes: LagWrites { acknowledged: 1012, carried: 1000, not_carried: 12, ..LagWrites::default() },
        reads: 4000,
        reads_failed: 0,
        keys: LagKeys { tried: 1000, at_once: 750, later: 240, censored: 10, ..LagKeys::default() },
        lag: spans(&mut (0..240).map(|i| delay(i * 4))),
        poll: spans(&mut (0..240).map(|i| 10_000_000 + i * 4000)),
        hand_over: spans(&mut (0..1000).map(|i| 1_500_000 + i * 1000)),
        visible: Some(Brackets {
            lower: spans(&mut (0..990).map(delay)),
            upper: spans(&mut (0..990).map(|i| delay(i) + 11_000_000)),
            clock_error_ns: 80_000,
            without: 0,
        }),
        survival: Some(Survival {
            since: "acknowledgement".to_owned(),
            lower: curve(0),
            upper: curve(11_000_000),
        }),
        versions: Some(Versions {
            behind: [(0, 3000), (1, 900), (2, 90), (1000, 1)]
                .map(|(versions, reads)| Behind { versions, reads })
                .into(),
            undecided: 9,
            last_stale: spans(&mut (0..240).map(|i| delay(i * 4))),
            versions: 1012,
            read_your_writes: violations(100, 3, 0),
            monotonic_reads: violations(500, 0, 1),
            monotonic_writes: violations(0, 0, 7),
        }),
    };
    ResultDocument { lag: Some(lag), ..run(true) }
}

/// An empty result.
pub(crate) fn empty() -> ResultDocument {
    ResultDocument {
        metrics: Vec::new(),
        series: Vec::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
        censored: Censored::default(),
        buffered: None,
        pacing: None,
        steadiness: None,
        group: None,
        lag: None,
        stationarity: None,
        client: None,
        processes: Vec::new(),
        overall: Overall::default(),
        ..run(false)
    }
}

/// A result of operations, each given by wait and service time in ns and whether it succeeded.
pub(crate) fn of(operations: &[(u64, u64, bool)], duration_s: f64) -> ResultDocument {
    let (mut ok, mut error, mut late) = (Pair::default(), Pair::default(), Histogram::new());
    for &(wait, service, is_ok) in operations {
        let pair = if is_ok { &mut ok } else { &mut error };
        pair.service.record(service);
        pair.response.record(wait + service);
        late.record(wait);
    }
    let (oks, errors) = (ok.service.count(), error.service.count());
    let mut metric = MetricResult {
        name: "READ".to_owned(),
        statuses: BTreeMap::new(),
        ok: None,
        failed: BTreeMap::new(),
        messages: Vec::new(),
    };
    if oks > 0 {
        metric.statuses.insert("OK".to_owned(), oks);
        metric.ok = Some(times(&ok, true));
    }
    if errors > 0 {
        metric.statuses.insert("ERROR".to_owned(), errors);
        metric.failed.insert("ERROR".to_owned(), times(&error, true));
        metric.messages.push(MessageCount {
            status: "ERROR".to_owned(),
            message: "no".to_owned(),
            count: errors,
        });
    }
    let count = oks + errors;
    let mut document = empty();
    document.metrics = if count > 0 { vec![metric] } else { Vec::new() };
    document.overall = Overall {
        duration_s,
        warm_up_s: 0.0,
        operations: count,
        failed: errors,
        throughput: count as f64 / duration_s,
        ended_by: EndedBy::Count.into(),
        client_cpu_s: 1.0,
    };
    document.pacing = Some(PacingResult {
        schedule: "100/s".to_owned(),
        target: 100.0,
        arrivals: "uniform".to_owned(),
        slack_ns: 0,
        lateness: Latency::of(&late, &PERCENTILES),
    });
    document
}

/// Operations for [`of`].
pub(crate) fn operations() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((0u64..1 << 36, 1u64..1 << 36, prop::bool::weighted(0.9)), 0..60)
}

/// Results with arbitrary texts and numbers.
pub(crate) fn any_document() -> impl Strategy<Value = ResultDocument> {
    let numbers = (0.0f64..1e12, any::<u64>(), any::<u64>());
    let texts = (".{0,20}", ".{0,20}", prop::collection::vec(".{0,10}", 0..4));
    (operations(), numbers, texts).prop_map(|(operations, (float, a, b), (x, y, list))| {
        let mut document = of(&operations, 1.0 + float);
        document.run.label = x.clone();
        document.run.seed = a;
        document.run.store_facts.insert(x.clone(), y.clone());
        document.run.properties.insert(y.clone(), PropertyFact { value: x, origin: y });
        document.run.command_line = list.clone();
        document.warnings = list;
        document.environment.memory_bytes = b;
        document.overall.throughput = float / 3.0;
        document.censored.in_flight = a % 7;
        let response = IntervalTimes { mean_ns: float, p50_ns: a, ..IntervalTimes::default() };
        let metric = IntervalMetric {
            ok: b,
            failed: a,
            response,
            service: IntervalTimes::default(),
            levels: String::new(),
        };
        let metrics = [("READ".to_owned(), metric)].into();
        let pacing = (a % 2 == 0).then_some(IntervalPacing { due: float, lateness: response });
        let start_s = float / 7.0;
        let usage = Usage {
            cpu_s: float,
            run_queue_s: Some(float),
            memory_bytes: Some(a),
            sent_bytes: (b % 2 == 0).then_some(a),
            received_bytes: Some(b),
        };
        let reason = document.warnings.join(" ");
        document.client =
            Some(ClientLoad { usage: usage.clone(), bound_by_client: vec![reason], ..ClientLoad::default() });
        let (name, command) = (document.run.label.clone(), document.run.label.clone());
        document.processes = vec![ProcessLoad { name, pids: vec![1], command, usage }];
        document.series = vec![IntervalSummary { start_s, length_s: 1.0, warm_up: a > b, metrics, pacing }];
        document
    })
}
