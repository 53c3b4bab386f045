//! An experiment that searched for the highest rate that keeps an SLO.

use super::{Size, sweep};
use serval_result::experiment::{
    ExperimentDocument, ExperimentKind, Flag, Highest, PromiseTrial, PromiseValue, RunEntry, RunKind,
};
use std::path::Path;

/// p99 in ns at an offered load, of a queue with this saturation.
fn p99(saturation: f64, rate: f64) -> Option<f64> {
    (rate < saturation).then(|| 100f64.ln() * 1e9 / (saturation - rate))
}

fn search(curve: usize, nth: usize, target: Option<f64>, clients: u64, throughput: f64) -> RunEntry {
    RunEntry {
        curve,
        kind: RunKind::Search,
        point: usize::from(target.is_some()),
        repeat: nth as u32,
        target,
        share: None,
        clients,
        folder: format!("runs/search-{curve}-{nth}-{clients}"),
        started: "2026-04-05T06:01:00Z".to_owned(),
        throughput,
        failed_per_s: 0.0,
        duration_s: 3.0,
        warm_up_s: 2.1,
        whole_s: 5.3,
        records_before: Some(1_000_000),
        flags: Vec::new(),
    }
}

/// Writes an experiment of two stores; the SLO limits a time and a share.
pub fn max(folder: &Path) {
    sweep(folder, Size { stores: 2, points: 4, repeats: 3, seconds: 5, drawn: 60 });
    let file = folder.join("experiment.json");
    let mut document: ExperimentDocument = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    document.kind = ExperimentKind::Max.into();
    document.title = "workload A: read.p99 < 1ms and failed < 0.1%".to_owned();
    for curve in 0..2 {
        let saturation = document.curves[curve].saturation.clone().unwrap().throughput;
        for (nth, part) in [0.3, 0.6, 0.97, 1.0, 0.99, 1.01].into_iter().enumerate() {
            document.runs.push(search(curve, nth, None, 1 << nth, saturation * part));
        }
        for (nth, part) in [0.525, 0.7875, 0.91875, 0.853].into_iter().enumerate() {
            document.runs.push(search(curve, nth, Some(saturation * part), 64, saturation * part));
        }
        let trial = |(nth, run): (usize, &RunEntry)| {
            let rate = run.target.unwrap();
            let chance = 1.0 + 0.1 * (nth as f64 * 2.4).sin();
            let value = p99(saturation, rate).map(|ns| ns * chance);
            let failed = if rate > saturation { 0.004 } else { 0.0 };
            PromiseTrial {
                folder: run.folder.clone(),
                kept: value.is_some_and(|ns| ns <= 1e6) && failed <= 0.001,
                values: vec![
                    PromiseValue { quantity: "read.p99".to_owned(), value, limit: 1e6, is_time: true },
                    PromiseValue {
                        quantity: "failed".to_owned(),
                        value: Some(failed),
                        limit: 0.001,
                        is_time: false,
                    },
                ],
            }
        };
        let runs = document.runs.iter().filter(|run| run.curve == curve && run.target.is_some());
        let trials = runs.enumerate().map(trial).collect();
        let rate = saturation - 100f64.ln() * 1e3;
        document.curves[curve].highest = Some(Highest {
            promise: "read.p99 < 1ms and failed < 0.1%".to_owned(),
            rate,
            low: rate * 0.96,
            high: rate * 1.03,
            confidence: 0.95,
            notes: Vec::new(),
            trials,
        });
    }
    let run = document.runs.iter_mut().rfind(|run| run.kind == RunKind::Search).unwrap();
    run.flags.push(Flag::Changed);
    std::fs::write(&file, serde_json::to_vec_pretty(&document).unwrap()).unwrap();
}
