//! Stores behind drivers, as a user runs them.

use crate::common::{
    entries, folder,
    group::LoggedProcess,
    process::{descendants, ended},
    serval, workload,
};
use rustix::process::{Pid, Signal, kill_process};
use serval_result::document::EndedBy;
use std::{net::TcpListener, process::Stdio};

/// Returns a command that serves a store as a driver, with the program under test.
fn serving(store: &str) -> String {
    format!("{} driver serve {store}", env!("CARGO_BIN_EXE_serval"))
}

/// Returns a command with a driver, to be extended.
fn serval_with(place: &std::path::Path, verb: &str, driver: &str) -> std::process::Command {
    let mut command = crate::common::program();
    command.current_dir(place).args([verb, "driver", "-P", &workload("workloadc")]);
    command.args(["-p", &format!("driver.command={driver}")]);
    command
}

/// Runs the program with a driver and arguments separated by spaces.
fn with_driver(place: &std::path::Path, words: &str, driver: &str) -> crate::common::Ran {
    let mut command = crate::common::program();
    command.current_dir(place).args(words.split_whitespace());
    command.args(["-p", &format!("driver.command={driver}")]);
    crate::common::Ran::of(command.output().unwrap())
}

#[test]
fn a_driver_is_loaded_and_run_and_its_hop_is_reported() {
    let place = folder();
    let file = workload("workloadf");
    let words = format!("driver -P {file} -p dataintegrity=true -p recordcount=200 -threads 4");
    let driver = format!("{} -p sqlite.path=x.db", serving("sqlite"));
    with_driver(place.path(), &format!("load {words}"), &driver).expect(0);
    let ran = with_driver(place.path(), &format!("run {words} --result r"), &driver).expect(0);
    assert_eq!(ran.value("[VERIFY], Return=OK,"), 1000.0, "{}", ran.stdout);
    let operations = ran.value("[READ], Operations,") + ran.value("[UPDATE], Operations,");
    assert_eq!(crate::common::counted(&place.path().join("r"), "DRIVER-HOP", "OK") as f64, operations);
    assert!(!ran.stdout.contains("DRIVER-HOP"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("Intended"), "{}", ran.stdout);
    let summary = std::fs::read_to_string(place.path().join("r/summary.txt")).unwrap();
    assert!(summary.contains("RESPONSE TIME") && summary.contains("SERVICE TIME"), "{summary}");
    let words = summary.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("DRIVER-HOP: the way to the driver and back"), "{summary}");
    // Service time is a part of response time.
    let document = serval_report::json::read_file(&place.path().join("r/result.json")).unwrap();
    let read = document.metrics.iter().find(|metric| metric.name == "READ").unwrap().ok.as_ref().unwrap();
    assert!(read.service.mean_ns > 0.0 && read.service.mean_ns < read.response.mean_ns);
    assert_eq!(document.run.store_facts["store"], "sqlite");
}

#[test]
fn operations_a_driver_lacks_are_refused_with_the_property_that_needs_them() {
    let place = folder();
    // WELCOME of a store without scans (capabilities 0b10111), for printf.
    let welcome = r"\020\000\000\000\001\001\000\001\000\000\000x\027\000\000\000\000\000\000\000";
    let driver = format!("sh -c 'printf \"{welcome}\"; cat >/dev/null'");
    let file = workload("workloade");
    let ran = with_driver(place.path(), &format!("run driver -P {file}"), &driver).expect(2);
    assert!(
        ran.stderr.contains("scanproportion=0.95: driver, as it is set up, has no SCAN"),
        "{}",
        ran.stderr
    );
}

/// The run reports the measurements and the reason of its end.
#[test]
fn the_death_of_a_driver_ends_the_run_with_report_and_message() {
    let place = folder();
    let file = workload("workloadc");
    // The driver dies after a second of its own CPU time, not of the clock: on a busy
    // machine it might not have started by then.
    let driver = format!("sh -c 'ulimit -t 1; {}; exit 124'", serving("noop"));
    let words = format!("run driver -P {file} -p operationcount=0 -threads 3 --result r");
    let ran = with_driver(place.path(), &words, &driver).expect(3);
    assert!(ran.value("[READ], Return=OK,") > 0.0);
    assert!(ran.value("[READ], Return=SERVICE_UNAVAILABLE,") <= 3.0);
    assert!(ran.stderr.contains("It has closed the connection"), "{}", ran.stderr);
    assert!(ran.stderr.contains("exit status: 124"), "{}", ran.stderr);
    let document = serval_report::json::read_file(&place.path().join("r/result.json")).unwrap();
    assert_eq!(document.overall.ended_by, EndedBy::Failed);
    // The result of a benchmark is kept as well.
    let words = format!("bench {file} --store driver --time 1h --out b");
    let ran = with_driver(place.path(), &words, &driver).expect(3);
    assert!(ran.stderr.contains("It has closed the connection"), "{}", ran.stderr);
    assert_eq!(entries(place.path()), ["b", "r"]);
}

#[test]
fn a_driver_is_checked() {
    let place = folder();
    let ran = serval(place.path(), &format!("driver check -- {}", serving("memory"))).expect(0);
    assert!(ran.stdout.contains("It keeps to the protocol."), "{}", ran.stdout);
    let ran = serval(place.path(), &format!("driver check --json -- {}", serving("noop"))).expect(1);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["passed"], false);
    serval(place.path(), "driver check -- false").expect(3);
}

#[test]
#[ignore = "needs python3"]
fn the_python_driver_follows_the_protocol() {
    let place = folder();
    let script =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drivers/python/sqlite_driver.py");
    let driver = format!("python3 {}", script.canonicalize().unwrap().display());
    let ran = serval(place.path(), &format!("driver check -- {driver} x.db")).expect(0);
    assert!(!ran.stdout.contains("remark"), "{}", ran.stdout);
    let words = format!(
        "bench {} --store driver --records 100 --operations 500 --warm-up 0 --out r",
        workload("workloada")
    );
    with_driver(place.path(), &words, &format!("{driver} y.db")).expect(0);
}

#[test]
fn a_driver_ends_when_serval_is_killed() {
    let place = folder();
    // A Redis that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let script =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drivers/python/sqlite_driver.py");
    let python = format!("python3 {} x.db", script.canonicalize().unwrap().display());
    serval_with(place.path(), "load", &python).args(["-p", "recordcount=100"]).output().unwrap();
    let below_a_shell = format!("sh -c '{}; true'", serving("noop"));
    let silent_redis = format!("{} -p redis.host=127.0.0.1 -p redis.port={port}", serving("redis"));
    let mut runs: Vec<(LoggedProcess, usize)> = [(&python, 1), (&below_a_shell, 2)]
        .map(|(driver, processes)| {
            let mut run = serval_with(place.path(), "run", driver);
            run.args(["-p", "recordcount=100", "-p", "operationcount=0", "-s", "-p", "status.interval=1"]);
            let mut run = LoggedProcess::start(run.stdout(Stdio::null()));
            run.wait_for("current ops/sec");
            (run, processes)
        })
        .into();
    let mut connecting = serval_with(place.path(), "run", &silent_redis);
    let connecting =
        LoggedProcess::start(connecting.args(["-p", "driver.grace=500ms"]).stdout(Stdio::null()));
    let _connection = silent.accept().unwrap();
    runs.push((connecting, 1));
    for (run, processes) in runs {
        let below = descendants(run.child.id());
        assert_eq!(below.len(), processes, "{below:?}");
        run.signal(Signal::KILL);
        below.iter().for_each(ended);
    }
}

#[test]
fn serval_does_not_wait_for_children_of_a_driver_that_hold_its_standard_error() {
    let place = folder();
    // Outside of the driver's process group, which is killed at the end.
    let driver = format!("sh -c 'setsid sleep 1000 & echo $! >left; exec {}'", serving("noop"));
    let words = format!("run driver -P {} -p operationcount=100", workload("workloadc"));
    with_driver(place.path(), &words, &driver).expect(0);
    let left = std::fs::read_to_string(place.path().join("left")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
}
