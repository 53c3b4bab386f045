//! ZooKeeper servers that crash and restart: an ensemble of three, and a single one with the queue
//! of sampled keys.
//!
//! `cargo xtask test` sets the variable for ZooKeeper's classes; without it these tests are ignored.

#[allow(dead_code, reason = "each test file uses a part")]
#[path = "../../../coordination/tests/common/server.rs"]
mod server;

use crate::common::{
    Ran, folder,
    group::{LoggedProcess, agents, document, group, leader, root},
    program, workload,
};
use rustix::process::Signal;
use serval_result::document::EndedBy;
use server::Zookeeper;
use std::process::Stdio;

/// Returns the index of the leader, or of a follower.
fn server_in_mode(servers: &[Zookeeper], mode: &str) -> usize {
    loop {
        let found = servers.iter().position(|server| server.asked("srvr").contains(mode));
        if let Some(found) = found {
            return found;
        }
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER_CLASSES"]
fn a_run_survives_the_death_of_the_leader_and_then_of_a_follower() {
    let folder_of_servers = folder();
    let Some(mut servers) = Zookeeper::ensemble(&folder_of_servers) else { return };
    let cluster = servers.iter().map(Zookeeper::address).collect::<Vec<_>>().join(",");
    let (place, root) = (folder(), root());
    let mut agents: Vec<LoggedProcess> = (0..2)
        .map(|_| {
            let mut command = program();
            command.args(["agent", "--join", &cluster, "--root", &root]).stdout(Stdio::null());
            let mut agent = LoggedProcess::start(&mut command);
            agent.wait_for("waiting for work");
            agent
        })
        .collect();
    let words = |more: &str| format!("run noop -P {} --clients 2 --result r {more}", workload("workloadc"));
    let forever = "-p operationcount=0 -p maxexecutiontime=600 -p target=200 -s -p status.interval=1";
    let mut run = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &words(forever)));
    run.wait_for("current ops/sec");
    let leading = server_in_mode(&servers, "Mode: leader");
    servers[leading].kill();
    // Another server leads, with the state of the previous leader.
    server_in_mode(&servers, "Mode: leader");
    run.wait_for("current ops/sec");
    servers[leading].start_again();
    let following = server_in_mode(&servers, "Mode: follower");
    servers[following].kill();
    run.wait_for("current ops/sec");
    run.signal(Signal::INT);
    let (_, heard) = run.end();
    let result = document(place.path());
    assert_eq!(result.overall.ended_by, EndedBy::Interrupted, "{heard:#?}");
    assert!(group(&result).clients.iter().all(|client| client.lost.is_none()), "{heard:#?}");
    assert!(result.overall.operations > 0);
    // Two of three servers serve the next group.
    for agent in &mut agents {
        agent.wait_for("waiting for work");
    }
    std::fs::remove_dir_all(place.path().join("r")).unwrap();
    let few = words("-p operationcount=100");
    Ran::of(leader(place.path(), &cluster, &root, &few).output().unwrap()).expect(0);
    for agent in agents {
        agent.signal(Signal::TERM);
        assert_eq!(agent.end().0, 0);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_ZOOKEEPER_CLASSES"]
fn items_lost_by_a_restart_of_zookeeper_are_counted() {
    let folder_of_server = folder();
    let Some(mut server) = Zookeeper::start(&folder_of_server) else { return };
    let Some(redis) = serval_conformance::variable("SERVAL_TEST_REDIS") else { return };
    let (host, port) = redis.rsplit_once(':').unwrap();
    let (place, root, cluster) = (folder(), root(), server.address());
    let agents = agents(&cluster, &root, 3);
    let words = format!(
        "load redis -P {} -p redis.host={host} -p redis.port={port} -p redis.database=12 -p recordcount=4000 -p target=800 \
         -p threadcount=2 -p lag.sample=0.2 -p lag.consumers.clients=1 --clients 3 --result r -s -p status.interval=1 \
         -p coordination.timeout=60",
        workload("workloada")
    );
    let mut run = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &words));
    run.wait_for("current ops/sec");
    server.restart();
    let (status, heard) = run.end();
    assert_eq!(status, 0, "{heard:#?}");
    for agent in agents {
        assert_eq!(agent.end().0, 0);
    }
    let result = document(place.path());
    assert_eq!((result.overall.operations, result.overall.failed), (4000, 0));
    let lag = result.lag.as_ref().unwrap();
    let writes = &lag.writes;
    // Each sampled write entered the queue or is counted as not carried.
    assert_eq!(writes.acknowledged, writes.carried + writes.not_carried, "{writes:?}");
    assert!(writes.carried > 400 && writes.not_carried < writes.carried, "{writes:?}");
    // A consistent store has no lag, whatever happens to the queue.
    assert_eq!(
        (lag.keys.later, lag.keys.censored, lag.versions.as_ref().unwrap().stale().1),
        (0, 0, 0),
        "{lag:?}"
    );
    assert!(lag.keys.tried <= writes.acknowledged && lag.keys.tried > 400, "{lag:?}");
}
