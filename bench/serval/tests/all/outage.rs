//! A real server that stops in the middle of a run and restarts: the run continues, failures are
//! counted in the second in which they happened, and no operation is executed or counted twice.
//!
//! `cargo xtask test` starts the server and names it in the environment; without it these tests are
//! ignored.

use crate::common::{Ran, folder, serval, workload};
use serde_json::Value;
use serval_conformance::{FaultyProxy, variable};
use std::collections::BTreeMap;

const CLIENTS: u64 = 8;
const OPERATIONS: u64 = 4000;

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn an_outage_is_recorded_and_no_operation_counts_twice() {
    let Some(server) = variable("SERVAL_TEST_REDIS") else { return };
    let place = folder();
    let (host, port) = server.rsplit_once(':').unwrap();
    let workload = workload("workloada");
    let words = |verb: &str, host: &str, port: &str| {
        format!(
            "{verb} redis -P {workload} -p redis.host={host} -p redis.port={port} -p redis.database=10 -p recordcount=100 -p \
             operationcount={OPERATIONS} -threads {CLIENTS} -p readproportion=0 -p updateproportion=1 -p \
             exporter=json"
        )
    };
    serval(place.path(), &words("load", host, port)).expect(0);
    for answers in [0, 1, 1000] {
        let between = FaultyProxy::new(&server, b"HMSET");
        let (host, port) = between.address.rsplit_once(':').unwrap();
        // Looking for records and connecting send some commands before the run.
        between.go_away_after(200 + answers, 20);
        let more = " -target 2000 -p status.interval=1";
        let ran = serval(place.path(), &(words("run", host, port) + more));
        let result: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        let updates = result["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "UPDATE");
        let statuses: BTreeMap<String, u64> =
            serde_json::from_value(updates.unwrap()["statuses"].clone()).unwrap();
        let count = |name: &str| statuses.get(name).copied().unwrap_or_default();
        let failed = count("SERVICE_UNAVAILABLE");
        assert_eq!(count("OK") + failed, OPERATIONS, "each is counted once: {statuses:?}");
        assert!((1..OPERATIONS / 2).contains(&failed), "it comes back: {statuses:?}");
        assert_eq!(between.refused(), 20);
        // Operations in flight when the server stopped were sent and failed; none
        // was sent twice.
        let sent = between.asked();
        assert!((count("OK")..=count("OK") + CLIENTS).contains(&sent), "{sent}, {statuses:?}");
        let by_second: Vec<u64> = result["series"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|second| second["metrics"]["UPDATE"]["failed"].as_u64())
            .collect();
        assert_eq!(by_second.iter().sum::<u64>(), failed, "{by_second:?}");
        assert_eq!(by_second.last(), Some(&0), "failures have their second: {by_second:?}");
    }
}

#[test]
fn a_load_lasts_until_its_clients_give_up() {
    let place = folder();
    let here = place.path();
    let load = "load sqlite -p sqlite.path=s.db -p recordcount=20 -p fieldcount=1 --threads 2";
    serval(here, load).expect(0);
    // The keys exist: the first insert of each client fails and ends it.
    for limit in ["", " -p maxexecutiontime=3600"] {
        let again = format!("{load}{limit} -p exporter=json --result again{}", limit.len());
        serval(here, &again).expect(1);
        let result = std::fs::read_to_string(here.join(format!("again{}/result.json", limit.len()))).unwrap();
        let result: serde_json::Value = serde_json::from_str(&result).unwrap();
        let overall = &result["overall"];
        assert_eq!(overall["ended_by"], "failed", "{overall}");
        let lasted = overall["duration_s"].as_f64().unwrap();
        assert!(lasted < 600.0, "{lasted} s");
    }
}

#[test]
fn a_failed_disk_ends_the_run_and_keeps_its_results() {
    for durability in ["sync", "none"] {
        let place = folder();
        let words = format!(
            "load yesquel-tree -p yesquel-tree.path=data -p yesquel-tree.durability={durability} -p \
             recordcount=100000 -p exporter=json --threads 2"
        );
        // Files are limited to a megabyte, as if the disk were full.
        let mut shell = std::process::Command::new("bash");
        let script = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\"";
        shell.current_dir(place.path()).args(["-c", script, env!("CARGO_BIN_EXE_serval")]);
        let ran = Ran::of(shell.args(words.split_whitespace()).output().unwrap()).expect(3);
        assert!(ran.stderr.contains("the folder takes no more writes"), "{}", ran.stderr);
        let result: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        assert_eq!(result["overall"]["ended_by"], "failed");
        let done = result["overall"]["operations"].as_u64().unwrap();
        assert!((100..100_000).contains(&done), "{done}");
    }
}
