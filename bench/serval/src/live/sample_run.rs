//! Test data: a synthetic experiment.

use super::live_state::LiveState;
use serval_experiment::watcher::ExperimentStep;
use serval_measure::recorder::Pair;
use serval_model::{Metric, Status};
use serval_result::{
    document::{Censored, Environment, MetricResult, Overall, ResultDocument, RunFacts, TimesResult},
    experiment::{Curve, ExperimentDocument, ExperimentKind, Flag, RunEntry, RunKind},
};
use serval_runner::{Interval, Progress};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

pub(super) fn experiment() -> ExperimentDocument {
    let curve = |name: &str| Curve {
        name: name.into(),
        store: name.into(),
        binding: name.into(),
        workload: "a".into(),
        at: None,
        saturation: None,
        highest: None,
    };
    ExperimentDocument {
        experiment_version: 1,
        serval_version: "0.1.0".into(),
        title: "Update heavy".into(),
        about: String::new(),
        figure: "YCSB paper, figure 3".into(),
        saw: String::new(),
        kind: ExperimentKind::Sweep.into(),
        started: String::new(),
        command_line: Vec::new(),
        plan: String::new(),
        seed: 1,
        axis: None,
        environment: Environment::default(),
        curves: vec![curve("redis"), curve("sqlite")],
        runs: Vec::new(),
        phases: Vec::new(),
        runs_planned: 24,
        complete: false,
        time_s: BTreeMap::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
    }
}

pub(super) fn load() -> ExperimentStep {
    ExperimentStep {
        curve: 1,
        kind: RunKind::Load,
        what: "load".into(),
        target: None,
        clients: 16,
        warm_up_max: Duration::ZERO,
        time: None,
        metrics: Vec::new(),
        units: Some(1_000_000),
        done: 0,
        planned: 24,
        remaining: Duration::from_secs(1200),
    }
}

pub(super) fn step(done: u64) -> ExperimentStep {
    ExperimentStep {
        curve: 0,
        kind: RunKind::Point,
        what: "40 %, repeat 2 of 3".into(),
        target: Some(12_000.0),
        clients: 16,
        warm_up_max: Duration::from_secs(30),
        time: Some(Duration::from_secs(10)),
        metrics: Vec::new(),
        units: None,
        done,
        planned: 24,
        remaining: Duration::from_secs(750),
    }
}

fn pair(times: &[(u64, u64)]) -> Pair {
    let mut pair = Pair::default();
    for (ns, count) in times {
        pair.service.record_n(*ns, *count);
        pair.response.record_n(ns + 20_000, *count);
    }
    pair
}

pub(super) fn interval(second: u64, done: u64, failed: u64) -> Interval {
    let reads = pair(&[(180_000, done / 2 - 20), (1_200_000, 18), (8_000_000, 2)]);
    let updates = pair(&[(260_000, done - done / 2 - failed - 5), (2_000_000, 5)]);
    let mut pairs =
        BTreeMap::from([((Metric::READ, Status::Ok), reads), ((Metric::UPDATE, Status::Ok), updates)]);
    if failed > 0 {
        pairs.insert((Metric::UPDATE, Status::Error), pair(&[(900_000, failed)]));
    }
    let mut interval = Interval {
        start: Duration::from_secs(second),
        length: Duration::from_secs(1),
        warm_up: second < 3,
        pairs,
        paced: true,
        due: Some(12_000.0),
        lateness: Default::default(),
    };
    interval.lateness.record_n(15_000, done);
    interval
}

pub(super) fn progress(second: u64, units: u64, failed: u64) -> Progress {
    Progress { elapsed: Duration::from_secs(second), warming_up: second < 3, units, failed }
}

pub(super) fn entry(repeat: u32, flags: Vec<Flag>) -> RunEntry {
    RunEntry {
        curve: 0,
        kind: RunKind::Point,
        point: 1,
        repeat,
        target: Some(12_000.0),
        share: Some(0.4),
        clients: 16,
        folder: "runs/0007-redis-40%-2".into(),
        started: String::new(),
        throughput: 11_998.4,
        failed_per_s: 0.0,
        duration_s: 10.0,
        warm_up_s: 3.0,
        whole_s: 14.0,
        records_before: None,
        flags,
    }
}

pub(super) fn result(failed: u64) -> ResultDocument {
    let times = pair(&[(180_000, 118_000), (2_000_000, 2_000)]);
    ResultDocument {
        buffered: None,
        schema_version: 1,
        run: RunFacts {
            serval_version: String::new(),
            label: String::new(),
            phase: "run".into(),
            command_line: Vec::new(),
            started: String::new(),
            store: "redis".into(),
            store_facts: BTreeMap::new(),
            workload: String::new(),
            seed: 1,
            clients: 16,
            execution: String::new(),
            properties: BTreeMap::new(),
        },
        environment: Environment::default(),
        warnings: Vec::new(),
        notes: Vec::new(),
        overall: Overall { operations: 120_000 + failed, failed, throughput: 11_998.4, ..Default::default() },
        metrics: vec![MetricResult {
            name: "READ".into(),
            statuses: BTreeMap::from([("OK".into(), 120_000)]),
            ok: Some(TimesResult::of(&times, true, &[50.0, 99.0])),
            failed: BTreeMap::new(),
            messages: Vec::new(),
        }],
        censored: Censored::default(),
        pacing: None,
        steadiness: None,
        group: None,
        lag: None,
        stationarity: None,
        client: None,
        processes: Vec::new(),
        series: Vec::new(),
    }
}

/// The state in the middle: one point finished, one running.
pub(super) fn seen(failed: u64, now: Instant) -> LiveState {
    let mut seen = LiveState::default();
    seen.experiment(&experiment());
    seen.begin(&step(6), now);
    seen.ended(&entry(0, vec![]), &result(0));
    seen.begin(&step(7), now);
    seen.ended(&entry(1, vec![Flag::Overloaded, Flag::Unsteady]), &result(failed));
    seen.note("the load average of this machine was 1.3 before the run");
    seen.begin(&step(8), now);
    seen.connected(16, 16);
    for second in 0..90 {
        // Up and down, so that the plot has something to draw.
        seen.interval(&interval(second, 11_000 + 1_000 * (second % 7) / 3, failed));
    }
    for second in [2, 3, 7] {
        seen.progress(&progress(second, 12_000 * second, failed));
    }
    seen
}
