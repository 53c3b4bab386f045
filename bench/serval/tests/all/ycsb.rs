//! `load` and `run` with YCSB's flags, files and output.

use crate::common::{counted, entries, folder, serval, workload, write};

/// All operations of each workload are executed on a store, which may have properties.
fn load_and_run_the_six_workloads(store: &str) {
    for name in ["workloada", "workloadb", "workloadc", "workloadd", "workloade", "workloadf"] {
        let place = folder();
        let file = workload(name);
        let load = serval(place.path(), &format!("load {store} -P {file} -threads 2")).expect(0);
        assert_eq!(load.value("[INSERT], Operations,"), 1000.0);
        assert_eq!(load.value("[INSERT], Return=OK,"), 1000.0);
        assert_eq!(load.value("[CLEANUP], Operations,"), 2.0);
        let run = serval(place.path(), &format!("run {store} -P {file} -threads 2 -p seed=1")).expect(0);
        let count = |metric: &str| {
            if run.stdout.contains(&format!("[{metric}], Operations,")) {
                run.value(&format!("[{metric}], Operations,"))
            } else {
                0.0
            }
        };
        let sum = ["UPDATE", "INSERT", "SCAN", "READ"].map(count).iter().sum::<f64>();
        let modifies = count("READ-MODIFY-WRITE");
        assert_eq!(sum - modifies, 1000.0, "{name}:\n{}", run.stdout);
        assert!(!run.stdout.contains("FAILED"), "{}", run.stdout);
    }
}

#[test]
fn the_six_workloads_load_and_run_on_sqlite() {
    load_and_run_the_six_workloads("sqlite");
}

#[test]
fn the_six_workloads_load_and_run_on_yesquels_sql() {
    load_and_run_the_six_workloads("yesquel");
    load_and_run_the_six_workloads("yesquel -p yesquel.address=yesquel:data?durability=none");
}

#[test]
fn the_six_workloads_load_and_run_on_yesquels_maps() {
    load_and_run_the_six_workloads("yesquel-tree -p yesquel-tree.path=data -p yesquel-tree.durability=none");
}

#[test]
fn the_rest_workload_loads_and_runs_from_the_folder_of_its_traces() {
    let place = folder();
    std::fs::create_dir(place.path().join("workloads")).unwrap();
    for name in ["rest", "rest-urls.txt", "rest-new-urls.txt"] {
        std::fs::copy(workload(name), place.path().join("workloads").join(name)).unwrap();
    }
    let load = serval(place.path(), "load sqlite -P workloads/rest -threads 2").expect(0);
    assert_eq!(load.value("[INSERT], Return=OK,"), 50.0);
    let words = "run sqlite -P workloads/rest -threads 2 -p insertproportion=0";
    let run = serval(place.path(), words).expect(0);
    assert_eq!(run.value("[READ], Return=OK,") + run.value("[UPDATE], Return=OK,"), 10_000.0);
    let lost = serval(place.path(), &format!("{words} -p url.trace.read=nowhere.txt")).expect(2);
    assert!(lost.stderr.contains("nowhere.txt: cannot be read"), "{}", lost.stderr);
}

#[test]
fn ycsbs_command_line_is_understood() {
    let place = folder();
    let file = workload("workloadc");
    let words = format!(
        "load memory -s -P {file} -p recordcount=200 -p fieldcount=2 -threads 3 -target 100000 -l here -cp /nowhere \
         -jvm-args=-Xmx1g -db site.ycsb.db.RedisClient"
    );
    let ran = serval(place.path(), &words).expect(0);
    assert_eq!(ran.value("[INSERT], Return=OK,"), 200.0);
    let status = ran.stderr.lines().find(|line| line.starts_with("here2")).expect("a status line");
    assert!(status.contains(" sec: ") && status.contains(" operations; "), "{status}");
    let last = ran.stderr.lines().rfind(|line| line.starts_with("here2")).unwrap();
    assert!(last.contains("200 operations; ") && last.contains("[INSERT: Count="), "{last}");
    assert!(entries(place.path()).is_empty());
}

#[test]
fn later_files_win_and_the_command_line_wins_over_all() {
    let place = folder();
    write(
        place.path(),
        "a",
        "recordcount=10\nfieldlength=5\nworkload=com.yahoo.ycsb.workloads.CoreWorkload\n",
    );
    write(place.path(), "b", "recordcount=20\n");
    let count = |words: &str| serval(place.path(), words).expect(0).value("[INSERT], Operations,");
    assert_eq!(count("load memory -P a -P b"), 20.0);
    assert_eq!(count("load memory -P b -P a"), 10.0);
    assert_eq!(count("load memory -p recordcount=30 -P b -P a"), 30.0);
}

#[test]
fn intended_times_are_printed_on_request() {
    let place = folder();
    let file = workload("workloadc");
    let metrics = |more: &str| {
        let ran = serval(place.path(), &format!("run noop -P {file} -p operationcount=50 {more}")).expect(0);
        let mut names: Vec<String> =
            ran.stdout.lines().filter_map(|line| Some(line.split_once("],")?.0[1..].to_owned())).collect();
        names.dedup();
        names.retain(|name| name.contains("READ"));
        names
    };
    for target in ["", "-target 10000"] {
        assert_eq!(metrics(target), ["READ"]);
        assert_eq!(metrics(&format!("{target} -p measurement.interval=op")), ["READ"]);
        assert_eq!(metrics(&format!("{target} -p measurement.interval=intended")), ["READ"]);
        assert_eq!(metrics(&format!("{target} -p measurement.interval=both")), ["READ", "Intended-READ"]);
    }
    let files = "-target 10000 -p hdrhistogram.fileoutput=true -p hdrhistogram.output.path=";
    metrics(&format!("{files}op-"));
    metrics(&format!("{files}both- -p measurement.interval=both"));
    assert!(place.path().join("op-READ.hdr").exists() && !place.path().join("op-Intended-READ.hdr").exists());
    assert!(place.path().join("both-Intended-READ.hdr").exists());
}

#[test]
fn remarks_are_printed_on_terminals_and_on_request() {
    let place = folder();
    let file = workload("workloadc");
    let words = format!("run noop -P {file} -p operationcount=50");
    let plain = serval(place.path(), &words).expect(0);
    let lines: Vec<&str> = plain.stderr.lines().collect();
    assert_eq!(lines[0], format!("Command line: -db noop -P {file} -p operationcount=50 -t"));
    assert!(lines[1].starts_with("YCSB Client 0."), "{}", plain.stderr);
    assert_eq!(lines[2..5], ["", "Loading workload...", "Starting test."]);
    assert!(lines[5].starts_with("DBWrapper: report latency for each error is false"), "{}", plain.stderr);
    assert_eq!(lines.len(), 6, "{}", plain.stderr);
    let notes = serval(place.path(), &format!("{words} --notes")).expect(0);
    assert!(notes.stderr.contains("Serval 0.1.0 run noop"), "{}", notes.stderr);
    assert!(notes.stderr.contains("warning: Only 50 operations were measured"), "{}", notes.stderr);
    // A value that is read differently is reported in any case, as is the reason of a failure.
    let taken = serval(place.path(), &format!("{words} -p readallfields=yes")).expect(0);
    assert!(
        taken.stderr.contains("warning: command line (-p): readallfields=yes: false"),
        "{}",
        taken.stderr
    );
    let words = format!("sqlite -P {file} -p recordcount=100 -p operationcount=100");
    serval(place.path(), &format!("load {words} -p insertcount=50")).expect(0);
    let failed = serval(place.path(), &format!("run {words} -p requestdistribution=sequential")).expect(1);
    assert!(failed.stderr.contains("50 of 100 failed"), "{}", failed.stderr);
}

#[test]
fn a_run_without_records_is_refused_unless_it_inserts_them() {
    let place = folder();
    let words =
        format!("-P {} -p recordcount=100 -p operationcount=50 -p readproportion=0", workload("workloada"));
    // The table, and one record outside of the sample.
    serval(place.path(), &format!("load sqlite {words} -p insertstart=99 -p insertcount=1")).expect(0);
    // SQL's update of a missing row does nothing.
    let refused = serval(place.path(), &format!("run sqlite {words}")).expect(3);
    assert!(refused.stderr.contains("Load them with"), "{}", refused.stderr);
    let inserts = format!("run sqlite {words} -p updateproportion=0 -p insertproportion=1");
    assert_eq!(serval(place.path(), &inserts).expect(0).value("[INSERT], Return=OK,"), 50.0);
}

#[test]
fn a_check_for_records_prints_nothing() {
    let place = folder();
    let words = format!("basic -P {} -p operationcount=5 -threads 2", workload("workloadc"));
    let ran = serval(place.path(), &format!("run {words}")).expect(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("READ ")).count(), 5, "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("** properties **").count(), 2, "one for each client: {}", ran.stdout);
    let resumed = serval(place.path(), &format!("load {words} --resume")).expect(2);
    assert!(resumed.stderr.contains("load.resume: basic keeps no records"), "{}", resumed.stderr);
    assert_eq!(resumed.stdout, "");
}

const ARRAY: &str = "site.ycsb.measurements.exporter.JSONArrayMeasurementsExporter";

#[test]
fn exporters_and_measurement_types() {
    let place = folder();
    let file = workload("workloada");
    let run = |more: &str| serval(place.path(), &format!("run noop -P {file} {more}")).expect(0);
    let array = run(&format!("-p exporter={ARRAY}"));
    let lines: Vec<serde_json::Value> = serde_json::from_str(&array.stdout).unwrap();
    assert!(lines.iter().any(|line| line["metric"] == "READ" && line["measurement"] == "Return=OK"));
    let stream = run("-p exporter=site.ycsb.measurements.exporter.JSONMeasurementsExporter");
    let stream: Result<Vec<serde_json::Value>, _> =
        serde_json::Deserializer::from_str(&stream.stdout).into_iter().collect();
    assert_eq!(stream.unwrap().len(), lines.len());
    let document: serde_json::Value = serde_json::from_str(&run("-p exporter=json").stdout).unwrap();
    assert_eq!(document["overall"]["operations"], 1000);
    run("-p exportfile=out.txt");
    let text = std::fs::read_to_string(place.path().join("out.txt")).unwrap();
    assert!(text.starts_with("[OVERALL], RunTime(ms), "));
    let buckets = run("-p measurementtype=histogram");
    assert!(buckets.stdout.contains("[READ], LatencyVariance(us), "), "{}", buckets.stdout);
    let series = run("-p measurementtype=timeseries -p timeseries.granularity=100");
    assert!(series.stdout.contains("[READ], 0, "), "{}", series.stdout);
    let raw = run("-p measurementtype=raw");
    assert_eq!(
        raw.stdout.lines().filter(|line| line.starts_with("READ,") || line.starts_with("UPDATE,")).count(),
        1000
    );
    let raw = run(&format!("-p measurementtype=raw -p exportfile=o.json -p exporter={ARRAY}"));
    let mut points =
        raw.stdout.lines().skip_while(|line| *line == "Raw data measurement: will output to stdout.");
    assert!(
        raw.stdout.lines().count() > 1000 && points.all(|line| line.split(',').count() == 3),
        "{}",
        raw.stdout
    );
    let exported = std::fs::read(place.path().join("o.json")).unwrap();
    assert!(!serde_json::from_slice::<Vec<serde_json::Value>>(&exported).unwrap().is_empty());
    run("-p measurementtype=hdrhistogram+raw -p measurement.raw.output_file=raw.txt");
    assert!(std::fs::read_to_string(place.path().join("raw.txt")).unwrap().lines().count() > 1000);
    run("-p hdrhistogram.fileoutput=true -p hdrhistogram.output.path=hdr-");
    for name in ["hdr-READ.hdr", "hdr-UPDATE.hdr", "hdr-CLEANUP.hdr"] {
        let bytes = std::fs::read(place.path().join(name)).unwrap();
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
        let entries =
            IntervalLogIterator::new(&bytes).filter(|e| matches!(e, Ok(LogEntry::Interval(_)))).count();
        assert_eq!(entries, 1, "{name}");
    }
}

/// Runs the shell with input from a pipe.
fn shell(place: &std::path::Path, input: &[u8]) -> crate::common::Ran {
    let mut shell = crate::common::program();
    shell.current_dir(place).args(["shell", "sqlite"]).stdin(std::process::Stdio::piped());
    let mut child = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), input).unwrap();
    crate::common::Ran::of(child.wait_with_output().unwrap())
}

#[test]
fn a_shell_line_that_is_not_utf_8_is_reported_and_the_next_is_read() {
    let place = folder();
    let ran = shell(place.path(), b"insert a field0=x\nupdate a field0=\xff\xfe\nread a\nread b");
    assert!(ran.stdout.contains("Error: this line is not UTF-8: update a field0="), "{}", ran.stdout);
    assert!(ran.stdout.contains("field0=x\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("NOT_FOUND"), "the last line needs no end: {}", ran.stdout);
    assert_eq!(ran.status, 0);
}

#[test]
fn data_integrity_is_verified_and_a_corrupt_record_is_found() {
    let place = folder();
    let file = workload("workloadf");
    let words = format!("-P {file} -p dataintegrity=true -p recordcount=50 -p readproportion=0.8");
    serval(place.path(), &format!("load sqlite {words}")).expect(0);
    let right = serval(place.path(), &format!("run sqlite {words}")).expect(0);
    assert_eq!(right.value("[VERIFY], Return=OK,"), 1000.0);
    assert!(right.stdout.starts_with("Data integrity is enabled.\n[OVERALL]"), "{}", right.stdout);
    shell(place.path(), b"update user6284781860667377211 field0=spoilt\nquit\n").expect(0);
    let words = format!(
        "{words} -p requestdistribution=sequential -p readproportion=1 -p readmodifywriteproportion=0"
    );
    let wrong = serval(place.path(), &format!("run sqlite {words} -p operationcount=50")).expect(1);
    assert_eq!(wrong.value("[VERIFY], Return=UNEXPECTED_STATE,"), 1.0);
    assert_eq!(wrong.value("[VERIFY], Return=OK,"), 49.0);
}

#[test]
fn failures_decide_the_exit_status_above_a_threshold() {
    let place = folder();
    let file = workload("workloadc");
    serval(place.path(), &format!("load sqlite -P {file} -p recordcount=90")).expect(0);
    let words = format!(
        "run sqlite -P {file} -p recordcount=100 -p requestdistribution=sequential -p operationcount=100"
    );
    let ran = serval(place.path(), &words).expect(1);
    assert_eq!(ran.value("[READ], Return=OK,"), 90.0);
    assert_eq!(ran.value("[READ], Return=NOT_FOUND,"), 10.0);
    assert_eq!(ran.value("[READ-FAILED], Operations,"), 10.0);
    serval(place.path(), &format!("{words} -p failures.allowed=0.1")).expect(0);
    let again = format!(
        "load sqlite -P {file} -p recordcount=90 -threads 2 -p core_workload_insertion_retry_interval=0"
    );
    let again = serval(place.path(), &format!("{again} -p core_workload_insertion_retry_limit=1")).expect(1);
    let gave_up = "Error inserting, not retrying any more. number of attempts: 2Insertion Retry Limit: 1\n";
    assert_eq!(again.stderr.matches(gave_up).count(), 2, "{}", again.stderr);
    let apart = serval(place.path(), &format!("{words} -p reportlatencyforeacherror=true")).expect(1);
    assert_eq!(apart.value("[READ-NOT_FOUND], Operations,"), 10.0);
}

#[test]
fn loads_in_parts_and_in_batches_produce_one_data_set() {
    let place = folder();
    let file = workload("workloadc");
    for (start, more) in [(0, ""), (400, "-p batchsize=7 -threads 3"), (700, "-p batchsize=1000")] {
        let words = format!("load sqlite -P {file} -p insertstart={start} {more}");
        let count = if start == 0 { 400 } else { 300 };
        let load = serval(place.path(), &format!("{words} -p insertcount={count}")).expect(0);
        assert_eq!(load.value("[INSERT], Operations,"), f64::from(count));
        // As in YCSB's bindings with batches: buffered inserts, and one status per batch.
        let batches = match start {
            400 => 3.0 * 15.0,
            700 => 1.0,
            _ => f64::from(count),
        };
        assert_eq!(load.value("[INSERT], Return=OK,"), batches);
        if start > 0 {
            assert_eq!(load.value("[INSERT], Return=BATCHED_OK,"), f64::from(count) - batches);
        }
        assert!(!load.stdout.contains("INSERT-BATCH"), "{}", load.stdout);
    }
    let words = format!("run sqlite -P {file} -p requestdistribution=sequential");
    assert_eq!(serval(place.path(), &words).expect(0).value("[READ], Return=OK,"), 1000.0);
}

#[test]
fn an_interrupted_load_resumes_and_stores_every_record_once() {
    let place = folder();
    let file = workload("workloadc");
    let words = format!("sqlite -P {file} -p recordcount=30000 -p insertorder=ordered -p zeropadding=8");
    // The first part with a hole, as an interruption would leave it.
    serval(place.path(), &format!("load {words} -p insertcount=12000")).expect(0);
    shell(place.path(), b"delete user00011990\nquit\n").expect(0);
    let ran = serval(place.path(), &format!("load {words} --resume -threads 2")).expect(0);
    assert_eq!(ran.value("[INSERT], Return=OK,"), 18_001.0);
    // Checking for existing records is neither an operation of the load nor a failure.
    assert!(!ran.stdout.contains("[READ"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
    let again = serval(place.path(), &format!("load {words} --resume")).expect(0);
    assert!(!again.stdout.contains("[INSERT]"), "{}", again.stdout);
    let words = format!("run {words} -p requestdistribution=sequential -p operationcount=30000");
    assert_eq!(serval(place.path(), &words).expect(0).value("[READ], Return=OK,"), 30_000.0);
}

#[test]
fn constant_occupancy_and_time_series_run() {
    let place = folder();
    write(
        place.path(),
        "occupancy",
        "workload=site.ycsb.workloads.ConstantOccupancyWorkload\ndisksize=1MB\nstorageages=2\nreadproportion=1\n",
    );
    let load = serval(place.path(), "load sqlite -P occupancy").expect(0);
    assert_eq!(load.value("[INSERT], Operations,"), 900.0);
    let run = serval(place.path(), "run sqlite -P occupancy").expect(0);
    assert!(run.value("[READ], Operations,") > 1500.0);
    let file = workload("tsworkloada");
    let load = serval(place.path(), &format!("load noop -P {file} -p recordcount=5000")).expect(0);
    assert_eq!(load.value("[INSERT], Operations,"), 5000.0);
    let words = format!("run noop -P {file} -p recordcount=5000 -p operationcount=1000");
    let run = serval(place.path(), &words).expect(0);
    assert_eq!(run.value("[INSERT], Operations,") + run.value("[READ], Operations,"), 1000.0);
}

#[test]
fn the_same_seed_writes_the_same_data() {
    let place = folder();
    let file = workload("workloada");
    let dump = |name: &str, seed: u32, clients: u32| {
        let words = format!("sqlite -P {file} -p sqlite.path={name}/serval.db -p seed={seed}");
        std::fs::create_dir(place.path().join(name)).unwrap();
        // The client that loads a record depends on chance; the record does not.
        serval(place.path(), &format!("load {words} -threads {clients}")).expect(0);
        serval(place.path(), &format!("run {words}")).expect(0);
        let text = shell(&place.path().join(name), b"scan user 2000\nquit\n").expect(0).stdout;
        text.rsplit_once("--------------------------------").unwrap().0.to_owned()
    };
    let (first, second, other) = (dump("a", 5, 1), dump("b", 5, 3), dump("c", 6, 1));
    assert!(first.len() > 1_000_000 && first == second);
    assert_ne!(first, other);
}

#[test]
fn a_write_buffer_is_flushed_when_full_and_flushes_are_measured() {
    let place = folder();
    let file = workload("workloada");
    let words = format!("sqlite -P {file} -threads 2 -p writebuffer.size=10000");
    let flushes = |result: &str, status: &str| counted(&place.path().join(result), "FLUSH", status);
    let load = serval(place.path(), &format!("load {words} --result load")).expect(0);
    assert_eq!(load.value("[INSERT], Return=BATCHED_OK,"), 1000.0);
    // Records of about 1,080 bytes: ten fill the buffer of either client.
    assert_eq!(flushes("load", "OK"), 100);
    assert!(!load.stdout.contains("FLUSH"), "{}", load.stdout);
    let run = serval(place.path(), &format!("run {words} -p seed=1 --result run")).expect(0);
    let (reads, updates) = (run.value("[READ], Return=OK,"), run.value("[UPDATE], Return=BATCHED_OK,"));
    assert_eq!(reads + updates, 1000.0);
    assert!(flushes("run", "OK") >= 2);
    // The store refuses inserts of existing records in the flush: acknowledged, and not done.
    let again = serval(place.path(), &format!("load {words} --result again")).expect(1);
    assert_eq!(again.value("[INSERT], Return=BATCHED_OK,"), 1000.0);
    assert_eq!(flushes("again", "ERROR"), 100);
    let fault = serval(place.path(), &format!("load sqlite -P {file} -p writebuffer.latency=5ms")).expect(2);
    assert!(fault.stderr.contains("set writebuffer.size"), "{}", fault.stderr);
}

#[test]
fn a_delayed_store_is_reported_as_such() {
    let place = folder();
    let file = workload("workloada");
    let words = format!("sqlite -P {file} -p visibility.delay=constant:1ms -p visibility.log=delays.csv");
    let load = serval(place.path(), &format!("load {words}")).expect(0);
    assert!(load.stderr.contains("made to lag on purpose"), "{}", load.stderr);
    assert_eq!(load.value("[INSERT], Return=OK,"), 1000.0);
    let list = std::fs::read_to_string(place.path().join("delays.csv")).unwrap();
    assert_eq!(list.lines().count(), 1001);
    assert!(list.lines().skip(1).all(|line| line.ends_with(",1000000")));
    let shared = serval(place.path(), &format!("run {words} -p share=1/2")).expect(2);
    assert!(shared.stderr.contains("within one process"), "{}", shared.stderr);
}
