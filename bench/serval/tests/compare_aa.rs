//! Real A/A pairs: the false alarms of `compare` stay within their limit. Half use the store
//! `memory` and half SQLite, each with five runs per side in turn.
//!
//! `PAIRS=50` compares 50 of each; `cargo xtask soak` does so.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_compare::{
    CompareOptions, Side, compare,
    document::{MetricVerdict, OverallVerdict},
};
use serval_model::properties::{Origin, Properties};
use serval_plan::{
    Plan, PlanRequest,
    folder::ResultFolder,
    perform::{RunFiles, perform},
    session::{Session, open},
};
use serval_report::json;
use serval_runner::Control;
use serval_workload::core::Phase;
use std::{path::Path, sync::Mutex};

/// Pairs per store without `PAIRS`.
const PAIRS: usize = 8;
const RUNS: usize = 5;
/// Shortest interval: a run takes about 50 ms.
const INTERVAL: &str = "0.01";
/// One test at a time runs, because tests share the machine's processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Operations of a run. A run by time might have none on a busy machine.
fn operations(store: &str) -> &'static str {
    if store == "memory" { "10000" } else { "200" }
}

fn plan(store: &str, phase: Phase, path: &Path, more: Option<(&str, &str)>) -> (Plan, Properties) {
    let mut properties = Properties::new();
    let path = path.display().to_string();
    let mut settings = vec![
        ("workload", "site.ycsb.workloads.CoreWorkload"),
        ("recordcount", "500"),
        ("readproportion", "0.5"),
        ("updateproportion", "0.5"),
        ("series.interval", INTERVAL),
    ];
    if phase == Phase::Run {
        settings.push(("operationcount", operations(store)));
    }
    if store == "sqlite" {
        settings.push(("sqlite.path", &path));
    }
    settings.extend(more);
    for (name, value) in settings {
        properties.set(name, value, Origin::Program("test"));
    }
    let store = serval_stores::find(store).unwrap();
    let request = PlanRequest { properties: properties.clone(), phase, store, strict: true };
    (Plan::new(request).unwrap_or_else(|faults| panic!("{faults}")), properties)
}

/// Loads a store and opens it for runs.
fn loaded(store: &str, path: &Path, more: Option<(&str, &str)>) -> Box<dyn Session> {
    let (load, properties) = plan(store, Phase::Load, path, more);
    let session = open(store, &properties).unwrap();
    perform(&load, &*session, &Control::default(), &mut (), None, Vec::new()).unwrap();
    session
}

fn run(plan: &Plan, session: &dyn Session, out: &Path) {
    let folder = ResultFolder::begin(out).unwrap();
    let files = RunFiles { folder: &folder, prefix: "", raw: false };
    let done = perform(plan, session, &Control::default(), &mut (), Some(files), Vec::new()).unwrap();
    let mut text = Vec::new();
    json::write(&done.document, &mut text).unwrap();
    folder.write("result.json", &text).unwrap();
    folder.finish().unwrap();
}

/// Returns the number of pairs called different: by the verdict, and by significance alone, without
/// the noise threshold.
fn alarms(store: &str, pairs: usize) -> (usize, usize) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store.db");
    let session = loaded(store, &path, None);
    let (mut alarms, mut significant, mut alone, mut of) = (0, 0, 0, 0);
    for pair in 0..pairs {
        let folder = |side: &str| place.path().join(format!("{pair}-{side}"));
        for number in 0..RUNS {
            // A's run first, then B's first, so neither is always second.
            let order = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            for side in order {
                let (plan, _) = plan(store, Phase::Run, &path, None);
                run(&plan, &*session, &folder(side).join(number.to_string()));
            }
        }
        let side = |name: &str| Side::read(name, &[folder(name)]).unwrap();
        let options = CompareOptions { resamples: 300, ..CompareOptions::default() };
        let found = compare(&side("a"), &side("b"), &[], &options).unwrap();
        assert_ne!(found.verdict, OverallVerdict::Inconclusive, "{}", found.sentence);
        assert!(!found.warnings.iter().any(|w| w.contains("resampled")), "{:?}", found.warnings);
        let metrics = &found.points[0].metrics;
        assert!(metrics.len() >= 10, "{metrics:?}");
        let alarm = metrics.iter().any(|m| matches!(m.verdict, MetricVerdict::Worse | MetricVerdict::Better));
        alarms += usize::from(alarm);
        let chance = metrics.iter().any(|m| m.p_adjusted.is_some_and(|p| p <= 0.05));
        significant += usize::from(chance);
        alone += metrics.iter().filter(|m| m.p.is_some_and(|p| p <= 0.05)).count();
        of += metrics.len();
        if chance {
            println!("{store}, pair {pair}: {}", found.sentence);
        }
    }
    println!(
        "{store}: {alarms} of {pairs} pairs called different, {significant} before the noise threshold; of metrics each for \
         itself {alone} of {of}"
    );
    (alarms, significant)
}

#[test]
fn real_pairs_of_equal_sides_stay_within_the_alarm_rate() {
    let pairs = std::env::var("PAIRS").map_or(PAIRS, |pairs| pairs.parse().expect("PAIRS is a number"));
    let bound = alarms_max(2 * pairs);
    let _alone = ONE_AT_A_TIME.lock();
    let (memory, sqlite) = (alarms("memory", pairs), alarms("sqlite", pairs));
    assert!(memory.1 + sqlite.1 <= bound, "{memory:?} {sqlite:?} of {pairs} each, bound {bound}");
    assert!(memory.0 + sqlite.0 <= memory.1 + sqlite.1);
}

/// Returns the number of alarms that as many pairs exceed less than once in a thousand, if each
/// raises one with probability 0.05: a quantile of the binomial distribution.
fn alarms_max(pairs: usize) -> usize {
    let p: f64 = 0.05;
    let mut exactly = (1.0 - p).powi(pairs as i32);
    let (mut at_most, mut alarms) = (exactly, 0);
    while 1.0 - at_most >= 0.001 {
        exactly *= (pairs - alarms) as f64 / (alarms + 1) as f64 * p / (1.0 - p);
        alarms += 1;
        at_most += exactly;
    }
    alarms
}

#[test]
fn the_bound_of_alarms() {
    assert_eq!((alarms_max(100), alarms_max(16)), (13, 4));
}

#[test]
fn a_real_difference_is_detected_by_the_same_runs() {
    let _alone = ONE_AT_A_TIME.lock();
    let place = tempfile::tempdir().unwrap();
    let slow = Some(("memory.delay", "200us"));
    let sessions =
        [("a", None), ("b", slow)].map(|(side, more)| (side, more, loaded("memory", place.path(), more)));
    for number in 0..RUNS {
        for (side, more, session) in &sessions {
            let (plan, _) = plan("memory", Phase::Run, place.path(), *more);
            run(&plan, &**session, &place.path().join(side).join(number.to_string()));
        }
    }
    let side = |name: &str| Side::read(name, &[place.path().join(name)]).unwrap();
    let found = compare(&side("a"), &side("b"), &[], &CompareOptions::default()).unwrap();
    assert_eq!(found.verdict, OverallVerdict::Worse, "{}", found.sentence);
    assert!(
        found.setup.iter().any(|difference| difference.what.contains("memory.delay")),
        "{:?}",
        found.setup
    );
}
