//! Sweeps and searches whose runs a group makes: real agents and a real ZooKeeper.
//!
//! `cargo xtask test` starts the servers and names them in the environment; without them these
//! tests say that they are skipped.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod common;

use common::{
    Ran, folder,
    group::{Talker, agents, group, leader, root, zookeeper},
    program, workload, write,
};
use serval_conformance::{Between, variable};
use serval_measure::{
    document::ResultDocument,
    experiment::{ExperimentDocument, RunKind},
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::Path,
};

fn experiment(folder: &Path) -> ExperimentDocument {
    serde_json::from_slice(&fs::read(folder.join("experiment.json")).unwrap()).unwrap()
}

fn results(folder: &Path, experiment: &ExperimentDocument) -> Vec<ResultDocument> {
    let read = |name: &String| fs::read(folder.join(name).join("result.json")).unwrap();
    experiment.runs.iter().map(|run| serde_json::from_slice(&read(&run.folder)).unwrap()).collect()
}

fn all_ended(agents: Vec<Talker>) {
    for agent in agents {
        assert_eq!(agent.end().0, 0);
    }
}

#[test]
fn a_search_for_the_highest_rate_is_made_by_one_group() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let agents = agents(&cluster, &root, 2);
    let words = format!(
        "max {} --store noop --agents 2 --clients 2 --slo read.p99<10s --repeats 1 --time 50ms --warm-up 0 --warm-up-max 0 \
         -p recordcount=100 --out m --plain",
        workload("workloadc")
    );
    Ran::of(leader(place.path(), &cluster, &root, &words).output().unwrap()).expect(0);
    all_ended(agents);
    let out = place.path().join("m");
    let found = experiment(&out);
    assert!(found.complete && found.kind == "max" && found.curves[0].highest.is_some(), "{found:?}");
    for document in results(&out, &found) {
        assert_eq!(group(&document).clients.len(), 2);
    }
}

#[test]
fn a_file_with_a_group_is_swept_by_it() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let agents = agents(&cluster, &root, 2);
    let file = format!(
        "version = 1\ntitle = \"By two\"\n[group]\nclients = 2\nzookeeper = \"{cluster}\"\nroot = \"{root}\"\n\
         [run]\ntime = \"200ms\"\nwarmup = \"0s\"\nwarmup_max = \"0s\"\nrepeats = 1\nclients = 2\n\
         [sweep]\npoints = [400]\n[properties]\nrecordcount = 100\n[[stores]]\nname = \"noop\"\n\
         [[workloads]]\nname = \"A\"\nfile = \"{}\"\n",
        workload("workloada")
    );
    write(place.path(), "e.toml", &file);
    let mut command = program();
    command.current_dir(place.path()).args(["experiment", "run", "e.toml", "--out", "e", "--plain"]);
    Ran::of(command.output().unwrap()).expect(0);
    all_ended(agents);
    let out = place.path().join("e");
    let swept = experiment(&out);
    assert!(swept.complete, "{swept:?}");
    let kinds: Vec<RunKind> = swept.runs.iter().map(|run| run.kind).collect();
    assert_eq!(kinds, [RunKind::Load, RunKind::Point]);
    for document in results(&out, &swept) {
        assert_eq!(group(&document).clients.len(), 2);
    }
}

/// The database of the server that is this test's own.
const DATABASE: u32 = 13;

/// What a Redis answers to commands in its database, the last of them a number.
fn redis(server: &str, commands: &[&str]) -> u64 {
    let mut stream = BufReader::new(TcpStream::connect(server).unwrap());
    let mut last = String::new();
    for command in [&format!("SELECT {DATABASE}")[..]].iter().chain(commands) {
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        last.clear();
        stream.read_line(&mut last).unwrap();
    }
    last.trim_start_matches(':').trim().parse().unwrap_or(0)
}

#[test]
fn a_sweep_that_inserts_reads_what_is_there_and_inserts_no_key_twice() {
    let (Some(cluster), Some(server)) = (zookeeper(), variable("SERVAL_TEST_REDIS")) else { return };
    let (place, root) = (folder(), root());
    redis(&server, &["FLUSHDB"]);
    // Counts what is written.
    let between = Between::new(&server, b"HMSET");
    let (host, port) = between.address.rsplit_once(':').unwrap();
    let agents = agents(&cluster, &root, 3);
    // Without a target one is ahead of the others, and leaves them gaps.
    let words = format!(
        "sweep {} --store redis --agents 3 --clients 6 --points 900,max --repeats 2 --state continue --time 400ms --warm-up 0 \
         --warm-up-max 0 -p recordcount=500 -p insertproportion=0.3 -p readproportion=0.7 -p redis.host={host} \
         -p redis.port={port} -p redis.database={DATABASE} --out s --plain",
        workload("workloadd")
    );
    Ran::of(leader(place.path(), &cluster, &root, &words).output().unwrap()).expect(0);
    all_ended(agents);
    let out = place.path().join("s");
    let swept = experiment(&out);
    assert!(swept.complete && swept.runs.len() == 5, "{swept:#?}");
    for document in results(&out, &swept) {
        assert_eq!((document.failed(), group(&document).clients.len()), (0, 3), "{:?}", document.metrics);
    }
    let state: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("state.json")).unwrap()).unwrap();
    let records = &state["datasets"].as_object().unwrap().values().next().unwrap()["next"];
    let there = redis(&server, &["ZCARD _indices"]);
    // Each once, without a gap; and a run goes on after those of the runs before.
    assert_eq!((between.asked(), records.as_u64()), (there, Some(there)));
    let before: Vec<Option<u64>> = swept.runs.iter().map(|run| run.records_before).collect();
    assert!(before.windows(2).all(|pair| pair[0] < pair[1]) && there > 500, "{before:?}, {there}");
}
