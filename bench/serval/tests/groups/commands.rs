//! Groups as a user starts them: agents and a coordinating command, with a real ZooKeeper.
//!
//! `cargo xtask test` starts the server and names it in the environment; without it these tests are
//! ignored.

use crate::common::{
    Ran, folder,
    group::{LoggedProcess, agents, document, group, leader, root, zookeeper},
    program, workload,
};
use rustix::process::Signal;
use serval_result::document::{EndedBy, ResultDocument};
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

fn result(cluster: &str, words: &str, clients: usize) -> (Ran, ResultDocument) {
    let (place, root) = (folder(), root());
    let agents = agents(cluster, &root, clients);
    let words = format!("{words} --clients {clients} --result r");
    let ran = Ran::of(leader(place.path(), cluster, &root, &words).output().unwrap()).expect(0);
    for agent in agents {
        assert_eq!(agent.end().0, 0);
    }
    (ran, document(place.path()))
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn operations_are_divided_and_sum_to_the_total() {
    let Some(cluster) = zookeeper() else { return };
    let words =
        format!("run noop -P {} -p operationcount=3001 -p threadcount=2 -p seed=7", workload("workloada"));
    let (ran, document) = result(&cluster, &words, 3);
    assert_eq!((document.overall.operations, document.overall.failed), (3001, 0));
    assert_eq!(document.run.clients, 6);
    let group = group(&document);
    let shares: Vec<(&str, u64)> =
        group.clients.iter().map(|client| (client.share.as_str(), client.operations)).collect();
    assert_eq!(shares, [("1/3", 1000), ("2/3", 1000), ("3/3", 1001)]);
    assert!(group.start_skew_ns.is_some() && group.clock_error_ns.is_some());
    // The totals are the sums of the clients' numbers.
    let counted: u64 = document
        .metrics
        .iter()
        .filter(|metric| metric.name != "CLEANUP")
        .map(|metric| metric.ok.as_ref().map_or(0, |times| times.response.count))
        .sum();
    assert_eq!(counted, 3001);
    assert_eq!(ran.value("[READ], Operations,") + ran.value("[UPDATE], Operations,"), 3001.0);
    let in_series: u64 =
        document.series.iter().flat_map(|interval| interval.metrics.values()).map(|metric| metric.ok).sum();
    let cleanups = 6;
    assert!(in_series == 3001 || in_series == 3001 + cleanups, "{in_series}");
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn records_are_loaded_once_and_the_offered_load_is_the_groups() {
    let Some(cluster) = zookeeper() else { return };
    let (_, loaded) =
        result(&cluster, &format!("load noop -P {} -p recordcount=1000", workload("workloada")), 4);
    assert_eq!((loaded.overall.operations, loaded.overall.failed), (1000, 0));
    let words = format!(
        "run noop -P {} -p target=2000 -p target.arrivals=uniform -p maxexecutiontime=1 -p operationcount=0",
        workload("workloadc")
    );
    let (_, ran) = result(&cluster, &words, 4);
    let pacing = ran.pacing.as_ref().unwrap();
    assert!((pacing.target - 2000.0).abs() < 20.0, "{}", pacing.target);
    let due = ran.overall.operations + ran.censored.not_started + ran.censored.in_flight;
    assert!((1900..=2000).contains(&due), "{due} operations were due in a second");
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_that_is_killed_is_named_and_ends_the_run() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let mut agents = agents(&cluster, &root, 3);
    let words = format!(
        "run noop -P {} -p target=100 -p maxexecutiontime=600 -p operationcount=0 --clients 3 --result r -s -p status.interval=1",
        workload("workloadc")
    );
    let mut leader = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &words));
    leader.wait_for("current ops/sec");
    let killed = agents.remove(1);
    let pid = killed.child.id();
    killed.signal(Signal::KILL);
    let (status, heard) = leader.end();
    assert_ne!(status, 0, "{heard:#?}");
    let all = heard.join("\n");
    assert!(all.contains(&format!("(process {pid})")) && all.contains("its connection ended"), "{all}");
    for agent in agents {
        assert_eq!(agent.end().0, 0);
    }
    // The results of the other clients are kept and marked.
    let document = document(place.path());
    assert_eq!(document.overall.ended_by, EndedBy::Failed);
    let lost: Vec<bool> = group(&document).clients.iter().map(|client| client.lost.is_some()).collect();
    assert_eq!(lost.iter().filter(|lost| **lost).count(), 1, "{lost:?}");
    assert!(document.overall.operations > 0);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_frozen_client_is_detected_and_the_others_continue_if_requested() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let agents = agents(&cluster, &root, 3);
    let words = format!(
        "run noop -P {} -p target=100 -p maxexecutiontime=6 -p operationcount=0 --clients 3 --result r -s \
         -p status.interval=1 -p coordination.lost=continue -p coordination.timeout=2",
        workload("workloadc")
    );
    let mut leader = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &words));
    leader.wait_for("current ops/sec");
    agents[2].signal(Signal::STOP);
    let (status, heard) = leader.end();
    assert_eq!(status, 0, "{heard:#?}");
    agents[2].signal(Signal::CONT);
    let ends: Vec<(i32, Vec<String>)> = agents.into_iter().map(LoggedProcess::end).collect();
    assert!(ends.iter().all(|(status, _)| *status == 0), "{ends:#?}");
    assert!(ends[2].1.iter().any(|line| line.contains("left the group")), "{ends:#?}");
    let document = document(place.path());
    let lost: Vec<&str> =
        group(&document).clients.iter().filter_map(|client| client.lost.as_deref()).collect();
    assert!(lost.len() == 1 && lost[0].contains("sends nothing any more"), "{lost:?}");
    assert!(
        document.warnings.iter().any(|warning| warning.contains("sends nothing any more")),
        "{:?}",
        document.warnings
    );
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn too_few_clients_and_a_missing_zookeeper_are_reported() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let words = format!("run noop -P {} --clients 2 -p coordination.wait=200ms", workload("workloada"));
    let ran = Ran::of(leader(place.path(), &cluster, &root, &words).output().unwrap());
    assert!(ran.status != 0 && ran.stderr.contains("0 of 2 clients joined"), "{}", ran.stderr);
    let words = format!("run noop -P {} --clients 2", workload("workloada"));
    let mut command = program();
    let ran = Ran::of(command.args(words.split_whitespace()).output().unwrap());
    assert!(ran.status != 0 && ran.stderr.contains("--coordination"), "{}", ran.stderr);
    let unreachable = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut agent = program().args(["agent", "--join", &unreachable]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(agent.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("cannot be reached") && line.contains("Trying again")));
    agent.kill().unwrap();
    agent.wait().unwrap();
}
