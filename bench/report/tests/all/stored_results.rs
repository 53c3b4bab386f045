//! Reports of stored experiments of every kind, and of several together.
use crate::synthetic::Size;
use serval_report::{
    experiment::{self, Part},
    stored::{self, Stored, StoredExperiment},
    terminal::{Styles, WIDTH},
};
use serval_result::experiment::{ExperimentKind, Flag, Highest, RunKind};
use std::path::Path;

const SMALL: Size = Size { stores: 2, points: 6, repeats: 2, seconds: 6, drawn: 100 };

fn read(folder: &Path) -> StoredExperiment {
    match stored::read(folder).unwrap() {
        Stored::Experiment(experiment) => *experiment,
        Stored::Result(path, _) => panic!("{} is a result", path.display()),
    }
}

fn part_of(experiment: &StoredExperiment) -> [Part; 1] {
    [Part::of(experiment.clone()).unwrap()]
}

fn cells(csv: &[u8]) -> Vec<std::collections::HashMap<String, String>> {
    csv::Reader::from_reader(csv).deserialize().map(Result::unwrap).collect()
}

#[test]
fn the_page_of_a_sweep_has_all_sections() {
    let place = tempfile::tempdir().unwrap();
    crate::synthetic::sweep(place.path(), SMALL);
    let experiment = read(place.path());
    let part = part_of(&experiment);
    let page = experiment::html(&part);
    for part in [
        "Stands for: YCSB paper, figure 3",
        "What was seen there: Cassandra",
        "Before quoting a number",
        "Client bound: the client, and not the store, bounded these points: redis at 38,500/s",
        "Overloaded: more was offered",
        "redis at 46,200/s; yesquel at 34,100/s",
        "Never steady",
        "Few samples",
        "&lt;closed&gt; by the server",
        "The store runs on the same machine as the client. (all points)",
        "Latency against throughput",
        "UPDATE, service time, p99",
        "Response times by percentile",
        "READ, about half of the most",
        "redis: response time, READ",
        "yesquel: failures a second",
        "Costs over those of redis",
        "All points",
        "saturates at 42,000 operations/s with 64 clients",
        "Loads and searches",
        "Store redis",
        "Environment",
        "Where the time went",
        "# &lt;an example&gt;",
        "serval experiment run &#39;experiments/made up.toml&#39;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let first = page.find("Client bound:").unwrap();
    assert!(first < page.find("Overloaded:").unwrap() && first < page.find("<div class=\"tiles\">").unwrap());
    assert!(!page.contains("redis: failures a second"), "only where there are any");
    assert!(!page.contains("NaN") && !page.contains("<script"));
    let summary = experiment::summary(&part, &Styles::plain());
    assert!(
        summary.contains("overloaded") && summary.contains("redis") && summary.contains("UPDATE"),
        "{summary}"
    );
    let folder = place.path().display();
    for part in [
        "redis saturates at 42,000 operations/s, 1.35 times that of yesquel (31,000).",
        &format!("serval compare {folder}:yesquel {folder}:redis"),
    ] {
        assert!(summary.contains(part), "{part}\n{summary}");
    }
    let narrow = experiment::summary(&part, &Styles::colourless());
    assert!(narrow.lines().all(|line| line.chars().count() <= WIDTH), "{narrow}");
    let plots = experiment::plots(&part);
    let mut names: Vec<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
    assert!(
        names.contains(&"read-response-time-p99") && names.contains(&"redis-operations-a-second"),
        "{names:?}"
    );
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), plots.len(), "no file is written twice");
    assert!(plots.iter().all(|plot| plot.svg.starts_with("<svg") && plot.png.starts_with(b"\x89PNG")));
}

/// Percentiles of a point come from all its times; minimum and maximum are those of its repeats.
#[test]
fn repeats_are_merged_and_not_averaged() {
    let place = tempfile::tempdir().unwrap();
    crate::synthetic::sweep(place.path(), SMALL);
    let experiment = read(place.path());
    let mut csv = Vec::new();
    experiment::csv(&part_of(&experiment), &mut csv).unwrap();
    let rows = cells(&csv);
    assert_eq!(rows.len(), 2 * 6 * 2, "a line an operation at a point");
    let row = rows
        .iter()
        .find(|row| row["curve"] == "yesquel" && row["point"] == "2" && row["operation"] == "READ")
        .unwrap();
    let entries = experiment.document.runs.iter().filter(|run| run.curve == 1 && run.point == 2);
    let mut all = serval_measure::histogram::Histogram::new();
    let mut each = Vec::new();
    for entry in entries {
        let result = experiment.result(entry).unwrap();
        let read = result.metrics.iter().find(|metric| metric.name == "READ").unwrap();
        let histogram = read.ok.as_ref().unwrap().response.to_histogram().unwrap();
        each.push(histogram.percentile(99.0));
        all.merge(&histogram);
    }
    let micros = |ns: u64| format!("{:.3}", ns as f64 / 1000.0);
    assert_eq!(each.len(), 2);
    assert_eq!(row["response_p99_us"], micros(all.percentile(99.0)));
    assert_eq!(row["response_p99_min_us"], micros(*each.iter().min().unwrap()));
    assert_eq!(row["response_p99_max_us"], micros(*each.iter().max().unwrap()));
    assert_eq!(row["count"], all.count().to_string());
    assert_eq!(row["saturation_per_s"], "31000.0");
    // 6 µs of the client's and 24 µs of the store's.
    assert_eq!(
        (row["client_cpu_us_per_operation"].as_str(), row["store_cpu_us_per_operation"].as_str()),
        ("6.000", "24.000")
    );
    assert_eq!(row["network_bytes_per_operation"], "760.0");
    let flagged: Vec<_> = rows.iter().filter(|row| row["flags"].contains("overloaded")).collect();
    assert!(flagged.iter().all(|row| row["point"] == "5") && flagged.len() == 4);
}

#[test]
fn closed_loops_and_axes_have_plots_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    crate::synthetic::closed(&place.path().join("closed"), 3, 100);
    crate::synthetic::axis(&place.path().join("axis"), 3, 100);
    let page = |name: &str| {
        let experiment = read(&place.path().join(name));
        experiment::html(&part_of(&experiment))
    };
    let closed = page("closed");
    assert!(closed.contains("Throughput, operations/s") && closed.contains("Response time, p99"));
    assert!(!closed.contains("Latency against throughput") && !closed.contains("service time, p99"));
    // A strip for each store, with the workloads end to end.
    assert!(closed.contains("<title>postgres: response time</title>"));
    let axis = page("axis");
    assert!(
        axis.contains(">records a range</text>") || axis.contains("records a range\n</text>"),
        "the axis is named"
    );
    assert!(axis.contains("SCAN, response time, p95") && axis.contains("SCAN, 800 records a range"));
}

#[test]
fn runs_are_overlaid_and_experiments_have_names() {
    let place = tempfile::tempdir().unwrap();
    for seed in 1..=3u64 {
        crate::synthetic::write_run(
            &place.path().join(format!("run-{seed}")),
            &crate::synthetic::one_run(8, 80, seed),
        );
    }
    let part = |name: &str| Part::read(name, &stored::read(&place.path().join(name)).unwrap()).unwrap();
    let runs: Vec<Part> = ["run-1", "run-2", "run-3"].map(part).into();
    let page = experiment::html(&runs);
    assert!(page.contains("<h1>3 runs</h1>") && page.contains("Response time, UPDATE, p99"));
    for run in ["run-1", "run-2", "run-3"] {
        assert!(page.contains(&format!("{run}</span>")), "{run} is in a legend");
    }
    assert!(page.contains("Client bound:"), "the first is");
    crate::synthetic::sweep(&place.path().join("a"), SMALL);
    crate::synthetic::sweep(&place.path().join("b"), SMALL);
    let page = experiment::html(&[part("a"), part("b")]);
    assert!(page.contains("redis (a)") && page.contains("redis (b)"));
    let mut csv = Vec::new();
    experiment::csv(&runs, &mut csv).unwrap();
    assert_eq!(cells(&csv).len(), 3 * 2);
}

#[test]
fn unreadable_results_are_named_and_the_rest_is_shown() {
    let place = tempfile::tempdir().unwrap();
    crate::synthetic::sweep(place.path(), SMALL);
    let mut experiment = read(place.path());
    let folder =
        experiment.document.runs.iter().find(|run| run.kind == RunKind::Point).unwrap().folder.clone();
    std::fs::write(place.path().join(&folder).join("result.json"), "{").unwrap();
    let page = experiment::html(&part_of(&experiment));
    assert!(page.contains("Results cannot be read") && page.contains(&folder));
    // A document that names a folder outside is refused.
    experiment.document.runs.iter_mut().for_each(|run| run.folder = "../elsewhere".to_owned());
    let error = Part::of(experiment.clone()).unwrap_err().to_string();
    assert!(error.contains("'../elsewhere' of a run is not inside the experiment's"), "{error}");
    // There is a page even before the first point.
    experiment.document.runs.clear();
    experiment.document.complete = false;
    let page = experiment::html(&part_of(&experiment));
    assert!(page.contains("No point has been measured yet") && page.contains("is not complete"));
}

/// Files have no width, so that nothing is cut.
#[test]
fn flags_are_cut_on_terminals_only() {
    let place = tempfile::tempdir().unwrap();
    crate::synthetic::sweep(place.path(), SMALL);
    let mut experiment = read(place.path());
    let flags =
        [Flag::Unsteady, Flag::Changed, Flag::Stalled, Flag::Overloaded, Flag::ClientBound, Flag::Failures];
    experiment.document.runs.iter_mut().for_each(|run| run.flags = flags.to_vec());
    let part = part_of(&experiment);
    let all = "never steady, changed, stalled, overloaded, client bound, failures";
    let whole = experiment::summary(&part, &Styles::plain());
    assert!(whole.contains(all) && !whole.contains('…'), "{whole}");
    let cut = experiment::summary(&part, &Styles::colourless());
    assert!(!cut.contains(all) && cut.contains("never steady, ch"), "{cut}");
}

/// The pages of an hour's experiment and of an hour's run, with two operations and intervals of a
/// second, are small enough to send.
#[test]
fn the_page_of_an_hour_is_under_three_megabytes() {
    let place = tempfile::tempdir().unwrap();
    // One repeat saves time: the size does not depend on their number. `cargo xtask bench report` has
    // three.
    crate::synthetic::sweep(place.path(), Size { stores: 2, points: 8, repeats: 1, seconds: 225, drawn: 60 });
    let experiment = read(place.path());
    let page = experiment::html(&part_of(&experiment));
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    println!("the page of an hour's experiment has {} bytes", page.len());
    let run = crate::synthetic::result(&crate::synthetic::one_run(3600, 40, 2));
    let page = serval_report::html::html(&run);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    println!("the page of an hour's run has {} bytes", page.len());
}

#[test]
fn the_highest_rate_of_an_slo_is_shown() {
    let place = tempfile::tempdir().unwrap();
    crate::synthetic::sweep(place.path(), SMALL);
    let mut experiment = read(place.path());
    experiment.document.kind = ExperimentKind::Max.into();
    experiment.document.curves[0].highest = Some(Highest {
        promise: "read.p99 < 10ms".to_owned(),
        rate: 39_400.0,
        low: 38_900.0,
        high: 39_900.0,
        confidence: 0.95,
        notes: vec!["The promise was never broken.".to_owned(), "more may be kept".to_owned()],
        trials: Vec::new(),
    });
    let part = part_of(&experiment);
    let told = "read.p99 &lt; 10ms: kept up to 39,400 operations/s (95 % interval 38,900 to 39,900). The promise was \
                never broken. More may be kept.";
    let page = experiment::html(&part);
    assert_eq!(page.matches(told).count(), 2, "on its tile and at its points");
    let summary = experiment::summary(&part, &Styles::plain());
    assert!(summary.contains("read.p99 < 10ms: kept up to 39,400 operations/s"), "{summary}");
}
