//! `serval report` of an experiment, and of several results together.
#[path = "../../../report/tests/synthetic/mod.rs"]
mod synthetic;

use crate::common::{entries, folder, serval};
use std::fs;

#[test]
fn an_experiment_is_reported_in_all_formats() {
    let place = folder();
    let here = place.path();
    let size = synthetic::Size { stores: 2, points: 4, repeats: 2, seconds: 4, drawn: 60 };
    synthetic::sweep(&here.join("sweep"), size);
    let summary = serval(here, "report sweep").expect(0).stdout;
    assert!(summary.contains("Workload A") && summary.contains("overloaded"), "{summary}");
    // The document's file is accepted as well.
    assert_eq!(serval(here, "report sweep/experiment.json").expect(0).stdout, summary);
    let all = serval(here, "report sweep --html page.html --csv points.csv --plots plots").expect(0);
    assert_eq!(all.stdout, "", "what is written is not printed too");
    assert!(fs::read_to_string(here.join("page.html")).unwrap().contains("Latency against throughput"));
    let points = fs::read_to_string(here.join("points.csv")).unwrap();
    assert_eq!(points.lines().count(), 1 + 2 * 4 * 2, "{points}");
    let plots = entries(&here.join("plots"));
    for file in
        ["read-response-time-mean.svg", "read-response-time-mean.png", "costs-over-those-of-redis.svg"]
    {
        assert!(plots.iter().any(|name| name == file), "{plots:?}");
    }
    // Nothing is overwritten.
    let again = serval(here, "report sweep --plots plots").expect(4);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
}

#[test]
fn runs_and_experiments_are_shown_together() {
    let place = folder();
    let here = place.path();
    for seed in [1, 2] {
        synthetic::write_run(&here.join(format!("run-{seed}")), &synthetic::one_run(4, 60, seed));
    }
    // A single result has its usual report.
    let single = serval(here, "report run-2").expect(0).stdout;
    assert!(single.starts_with("run of CoreWorkload on postgres\n"), "{single}");
    let both = serval(here, "report run-1 run-2/result.json").expect(0).stdout;
    assert!(both.contains("run-1\n") && both.contains("run-2\n"), "{both}");
    let page = serval(here, "report run-1 run-2 --html both.html --plots both").expect(0);
    assert_eq!(page.stdout, "");
    assert!(fs::read_to_string(here.join("both.html")).unwrap().contains("<h1>2 runs</h1>"));
    assert!(entries(&here.join("both")).iter().any(|name| name == "response-time-read-p99.png"));
    let missing = serval(here, "report run-1 nowhere").expect(2);
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
}
