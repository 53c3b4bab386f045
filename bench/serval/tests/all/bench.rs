//! `serval bench`: load and run with one command, and a complete result folder.

use crate::common::{entries, folder, serval, workload};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serval_measure::histogram::Histogram;
use serval_report::json;

const FILES: [&str; 8] = [
    "histograms.hlog",
    "load-histograms.hlog",
    "load-result.json",
    "report.html",
    "result.json",
    "run.properties",
    "series.csv",
    "summary.txt",
];

#[test]
fn a_result_folder_is_complete_and_consistent() {
    let place = folder();
    let file = workload("workloada");
    let ran = serval(
        place.path(),
        &format!("bench {file} --records 500 --time 300ms --warm-up 100ms --out r --raw"),
    )
    .expect(0);
    assert!(ran.stdout.contains("RESPONSE TIME"), "{}", ran.stdout);
    assert!(ran.stderr.contains("loaded 500 records"), "{}", ran.stderr);
    assert_eq!(entries(place.path()), ["r"]);
    let result = place.path().join("r");
    let mut expected = FILES.map(str::to_owned).to_vec();
    expected.push("raw.csv".into());
    expected.sort();
    assert_eq!(entries(&result), expected, "the store's file is not kept");
    let document = json::read_file(&result.join("result.json")).unwrap();
    let read = document.metrics.iter().find(|metric| metric.name == "READ").unwrap();
    let count = read.ok.as_ref().unwrap().service.count;
    assert!(count > 100 && document.overall.failed == 0);
    // The HDR log sums to the result, with a separate warm-up.
    let log = std::fs::read(result.join("histograms.hlog")).unwrap();
    let mut logged = Histogram::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap()
            && interval.tag().is_some_and(|tag| tag.as_str() == "READ")
        {
            logged.merge(&Histogram::decode(interval.encoded_histogram()).unwrap());
        }
    }
    let whole = read.ok.as_ref().unwrap().service.to_histogram().unwrap();
    assert_eq!((logged.count(), whole.count()), (count, count));
    let raw = std::fs::read_to_string(result.join("raw.csv")).unwrap();
    let raw_reads = raw.lines().filter(|line| line.starts_with("READ,OK,")).count() as u64;
    assert_eq!(raw_reads, count);
    let series = std::fs::read_to_string(result.join("series.csv")).unwrap();
    assert!(series.lines().count() > 2);
    let page = std::fs::read_to_string(result.join("report.html")).unwrap();
    assert!(
        page.contains("<svg") && !page.contains("http://") || page.contains("www.w3.org"),
        "self-contained"
    );
}

#[test]
fn a_run_is_repeated_from_the_properties_of_its_result() {
    for (store, kept) in [("yesquel", "store"), ("sqlite", "store.db")] {
        let place = folder();
        let file = workload("workloadc");
        let words = format!(
            "bench {file} --store {store} --operations 500 --warm-up 0 --out r -p seed=7 --keep-store"
        );
        serval(place.path(), &words).expect(0);
        assert!(place.path().join("r").join(kept).exists());
        let again = serval(place.path(), &format!("run {store} -P r/run.properties")).expect(0);
        assert_eq!(again.value("[READ], Return=OK,"), 500.0);
    }
}

#[test]
fn sqlite_leaves_no_files_in_the_result_folder() {
    let place = folder();
    let words = format!("bench {} --store sqlite --operations 50 --warm-up 0 --out r", workload("workloadc"));
    serval(place.path(), &words).expect(0);
    assert_eq!(entries(&place.path().join("r")), FILES);
    let problem = serval(place.path(), &format!("{words}2 --skip-load")).expect(2);
    assert!(problem.stderr.contains("--skip-load needs sqlite.path"), "{}", problem.stderr);
    let words = format!("bench {} --skip-load --out r3", workload("workloadc"));
    let problem = serval(place.path(), &words).expect(2);
    assert!(problem.stderr.contains("--skip-load needs yesquel.address"), "{}", problem.stderr);
}

#[test]
fn bench_ignores_a_files_operation_count_and_the_time_does_not_limit_the_load() {
    let place = folder();
    let file = workload("workloadc");
    let ran =
        serval(place.path(), &format!("bench {file} --records 20000 --time 50ms --warm-up 0 --json --out r"))
            .expect(0);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["overall"]["ended_by"], "time");
    assert!(ran.stderr.contains("loaded 20,000 records"), "{}", ran.stderr);
}

#[test]
fn a_run_with_inserts_has_enough_keys() {
    let place = folder();
    let file = workload("workloade");
    let words =
        format!("bench {file} --store memory --time 300ms --warm-up 0 --json --out r -p maxscanlength=2");
    let ran = serval(place.path(), &words).expect(0);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = &document["run"]["properties"]["expectedoperations"];
    assert_eq!(expected["origin"], "serval bench: the rate of the load");
    assert!(!document["run"]["properties"].as_object().unwrap().contains_key("yesquel.address"));
}

#[test]
fn memory_is_loaded_and_run_in_one_command_and_offered_load_is_kept() {
    let place = folder();
    let file = workload("workloadb");
    let words = format!(
        "bench {file} --store memory --threads 4 --target 2000 --time 500ms --warm-up 100ms --json --out r"
    );
    let ran = serval(place.path(), &words).expect(0);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!((document["pacing"]["target"].as_f64().unwrap() - 2000.0).abs() < 20.0);
    let done = document["overall"]["operations"].as_u64().unwrap();
    let left = document["censored"]["not_started"].as_u64().unwrap();
    // All due operations are done or counted as unfinished. Each client may have
    // one operation that was due in the warm-up and ended after it.
    assert!((done + left).abs_diff(1000) <= 5, "{done} done, {left} left");
}

#[test]
fn reports_are_repeated_and_results_merged() {
    let place = folder();
    let file = workload("workloadc");
    for name in ["a", "b"] {
        serval(place.path(), &format!("run noop -P {file} --result {name} -threads 2")).expect(0);
    }
    let summary = serval(place.path(), "report a").expect(0);
    assert_eq!(summary.stdout, std::fs::read_to_string(place.path().join("a/summary.txt")).unwrap());
    serval(place.path(), "report a --html a.html --csv a.csv").expect(0);
    assert_eq!(
        std::fs::read(place.path().join("a.html")).unwrap(),
        std::fs::read(place.path().join("a/report.html")).unwrap()
    );
    serval(place.path(), "report a --html a.html").expect(4);
    let twice = serval(place.path(), "merge a b a").expect(2);
    assert!(twice.stderr.contains("a and a are the same result"), "{}", twice.stderr);
    // The two runs did not overlap.
    let apart = serval(place.path(), "merge a b -o merged.json").expect(0);
    assert!(apart.stderr.contains("warning: a ended ") && apart.stderr.contains("--one-after-another"));
    let merged = json::read_file(&place.path().join("merged.json")).unwrap();
    let piped = serval(place.path(), "merge a b").expect(0);
    assert_eq!(piped.stdout, std::fs::read_to_string(place.path().join("merged.json")).unwrap());
    let in_turn = serval(place.path(), "merge a b --one-after-another").expect(0);
    assert!(!in_turn.stderr.contains("warning"), "{}", in_turn.stderr);
    assert_eq!(merged.overall.operations, 2000);
    assert_eq!(
        merged.metrics.iter().find(|m| m.name == "READ").unwrap().ok.as_ref().unwrap().service.count,
        2000
    );
    std::fs::write(place.path().join("cut.json"), "{\"schema_version\": 1,").unwrap();
    let cut = serval(place.path(), "report cut.json").expect(2);
    assert!(cut.stderr.contains("cut.json"), "{}", cut.stderr);
}

/// Records of a persistent store are not reported as lost.
#[test]
fn a_failed_load_reports_where_its_records_are() {
    let place = folder();
    let words =
        format!("bench {} --store sqlite --records 50 --time 20ms --warm-up 0", workload("workloadc"));
    let kept = format!("{words} -p sqlite.path=x.db");
    serval(place.path(), &kept).expect(0);
    let again = serval(place.path(), &kept).expect(1);
    let message = "Nothing was measured, and the store keeps the records that were loaded";
    assert!(again.stderr.contains(message), "{}", again.stderr);
    // A load as in YCSB, into a store that already has the records.
    let words = format!("load sqlite -P {} -p recordcount=50 -p sqlite.path=x.db", workload("workloadc"));
    let again = serval(place.path(), &words).expect(1);
    assert!(again.stderr.contains("50 records were not inserted"), "{}", again.stderr);
    assert!(again.stderr.contains("--resume inserts those that the store does not have"), "{}", again.stderr);
    assert!(!again.stderr.contains("bounded this result"), "{}", again.stderr);
    serval(place.path(), &format!("{words} --resume")).expect(0);
}

#[test]
fn a_load_whose_files_cannot_be_written_is_reported_and_nothing_is_measured() {
    let place = folder();
    let words = "bench $0 --store memory --records 50 --operations 50 --warm-up 0 --out r";
    // Files of this process can have no bytes, as on a full disk.
    let limited = format!("trap '' XFSZ; ulimit -f 0; exec \"$1\" {words}");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &limited, &workload("workloadc"), env!("CARGO_BIN_EXE_serval")]);
    let ran = crate::common::Ran::of(command.current_dir(place.path()).output().unwrap()).expect(4);
    assert!(ran.stderr.contains("load-histograms.hlog: cannot write"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("run memory"), "{}", ran.stderr);
    assert!(entries(place.path()).is_empty(), "{:?}", entries(place.path()));
}

#[test]
fn ctrl_c_ends_a_run_cleanly_with_its_report() {
    use std::io::BufRead;
    let place = folder();
    let file = workload("workloadc");
    let mut command = crate::common::program();
    command.current_dir(place.path()).args(["run", "noop", "-s", "-P", &file, "-p", "operationcount=0"]);
    command.args(["-p", "status.interval=100ms", "--result", "r"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    // Until the second status line, when the run is in progress.
    lines.by_ref().filter(|line| line.as_ref().unwrap().contains(" sec: ")).nth(1).unwrap().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    // GNU timeout signals a process and then its group: both count as one request.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    let ran = crate::common::Ran::of(child.wait_with_output().unwrap());
    // An endless run ends only by a signal.
    let ran = ran.expect(0);
    assert!(ran.value("[READ], Return=OK,") > 0.0, "{rest:?}");
    assert_eq!(entries(place.path()), ["r"]);
}

#[test]
fn ctrl_c_during_a_bench_leaves_no_files() {
    let place = folder();
    let file = workload("workloadc");
    let mut command = crate::common::program();
    command.current_dir(place.path()).args([
        "bench",
        &file,
        "--records",
        "50000000",
        "--store",
        "memory",
        "--out",
        "r",
    ]);
    command.args(["-p", "memory.delay=1ms"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    // The plan is printed after the signal handlers are installed.
    lines.by_ref().find(|line| line.as_ref().unwrap().starts_with("load memory")).unwrap().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(entries(place.path()).is_empty(), "{:?}", entries(place.path()));
}
