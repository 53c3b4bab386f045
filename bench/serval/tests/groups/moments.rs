//! Processes of a group that stall, join late or are killed, each at a different instant.
//!
//! `cargo xtask test` starts ZooKeeper and names it in the environment; without it these tests are
//! ignored.

use crate::common::{
    Ran, folder,
    group::{
        LoggedProcess, agent_with as agent, document, group, leader, root, wait_for_registered, zookeeper,
    },
    workload,
};
use rustix::process::Signal;
use serval_result::document::ResultDocument;
use std::{fs, path::Path, process::Command};

/// A driver that waits for files: for `go` before it serves if `SLOW` is set, for `end` afterwards if
/// `LINGERS` is set.
fn waiting_store(place: &Path) -> String {
    let wait = |variable: &str, file: &str| {
        let file = place.join(file).display().to_string();
        format!("if [ -n \"${variable}\" ]; then while [ ! -e '{file}' ]; do sleep 0.02; done; fi\n")
    };
    let serve = format!("'{}' driver serve memory\n", env!("CARGO_BIN_EXE_serval"));
    fs::write(place.join("store.sh"), wait("SLOW", "go") + &serve + &wait("LINGERS", "end")).unwrap();
    format!("driver.command=sh {}", place.join("store.sh").display())
}

fn on_waiting_store(place: &Path, cluster: &str, root: &str, words: &str) -> Command {
    let words = format!("{words} -P {} --clients 2 --result r", workload("workloada"));
    let mut command = leader(place, cluster, root, &words);
    command.args(["-p", &waiting_store(place)]);
    command
}

/// Returns why a process was lost, by the result.
fn why_lost(document: &ResultDocument, process: u32) -> String {
    let client = group(document).clients.iter().find(|client| client.process == process).unwrap();
    client.lost.clone().unwrap_or_default()
}

fn told_to_end(agents: Vec<LoggedProcess>) {
    for agent in agents {
        agent.signal(Signal::TERM);
        let (status, heard) = agent.end();
        assert_eq!(status, 0, "{heard:#?}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_frozen_before_the_confirmation_of_the_start_does_not_begin() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    // The first client freezes when the start is proposed, so the start is not confirmed before it
    // resumes. The second client freezes after its answer.
    let mut first = agent(&cluster, &root, |_| {});
    let mut second = agent(&cluster, &root, |command| {
        command.env("SLOW", "1");
    });
    let words = "load driver -p recordcount=100 -p coordination.lost=continue -p coordination.timeout=4 \
                 -p coordination.clock.max=50ms";
    let mut leader = LoggedProcess::start(&mut on_waiting_store(place.path(), &cluster, &root, words));
    wait_for_registered(&cluster, &root, "0/entered", 1);
    first.signal(Signal::STOP);
    fs::write(place.path().join("go"), "").unwrap();
    wait_for_registered(&cluster, &root, "0/entered", 2);
    second.signal(Signal::STOP);
    first.signal(Signal::CONT);
    leader.wait_for("Starting test");
    first.wait_for("50 operations, 0 failed");
    second.signal(Signal::CONT);
    let processes = (first.child.id(), second.child.id());
    let (status, heard) = leader.end();
    let document = document(place.path());
    let why = why_lost(&document, processes.1);
    assert!(why.contains("missed the start"), "{why} {heard:#?}");
    assert_eq!((why_lost(&document, processes.0), document.overall.operations), (String::new(), 50));
    assert_ne!(status, 0, "records are missing");
    second.wait_for("left the group");
    told_to_end(vec![first, second]);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_frozen_in_the_last_barrier_is_not_waited_for() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let first = agent(&cluster, &root, |_| {});
    let mut second = agent(&cluster, &root, |command| {
        command.env("LINGERS", "1");
    });
    let words = "load driver -p recordcount=100 -p coordination.lost=continue -p coordination.timeout=1";
    let leader = LoggedProcess::start(&mut on_waiting_store(place.path(), &cluster, &root, words));
    // The client has finished its work, and sends the result when its store has closed.
    second.wait_for("50 operations, 0 failed");
    second.signal(Signal::STOP);
    let (_, heard) = leader.end();
    let document = document(place.path());
    let why = why_lost(&document, second.child.id());
    assert!(why.contains("sends nothing any more"), "{why} {heard:#?}");
    assert_eq!(document.overall.operations, 50);
    fs::write(place.path().join("end"), "").unwrap();
    second.signal(Signal::CONT);
    second.wait_for("left the group");
    // Both clients wait for work again and form the next group.
    second.wait_for("waiting for work");
    let words = format!("run noop -P {} -p operationcount=100 --clients 2", workload("workloadc"));
    Ran::of(crate::common::group::leader(place.path(), &cluster, &root, &words).output().unwrap()).expect(0);
    told_to_end(vec![first, second]);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_late_client_joins_within_the_wait_and_not_after_it() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let first = agent(&cluster, &root, |_| {});
    let words = |more: &str| {
        format!("run noop -P {} -p operationcount=100 --clients 2 {more}", workload("workloadc"))
    };
    // After the wait, with the remedy.
    let ran = leader(place.path(), &cluster, &root, &words("-p coordination.wait=300ms")).output().unwrap();
    let ran = Ran::of(ran).expect(3);
    assert!(ran.stderr.contains("only 1 of 2 clients joined within 300ms"), "{}", ran.stderr);
    // A client that joins later finds no group and waits. The next coordinator that wants two clients
    // gets both, one of them waiting since before.
    let second = agent(&cluster, &root, |_| {});
    let few = words("--result r");
    Ran::of(leader(place.path(), &cluster, &root, &few).output().unwrap()).expect(0);
    fs::remove_dir_all(place.path().join("r")).unwrap();
    told_to_end(vec![second]);
    let mut waiting = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &few));
    waiting.wait_for("client 1 of 2");
    let third = agent(&cluster, &root, |_| {});
    let (status, heard) = waiting.end();
    assert_eq!(status, 0, "{heard:#?}");
    let result = document(place.path());
    assert!(group(&result).clients.iter().any(|client| client.process == third.child.id()));
    told_to_end(vec![first, third]);
}

/// Ends a coordinator by each of the signals, at a moment that `until` waits for. Then its agents form
/// the next group.
fn ended_at(
    words: &str,
    come: usize,
    slow: bool,
    until: impl Fn(&mut LoggedProcess, &mut [LoggedProcess]) + Sync,
) {
    let Some(cluster) = zookeeper() else { return };
    let end = |signal: Signal| {
        let (place, root) = (folder(), root());
        let start = |_| {
            agent(&cluster, &root, |command| {
                if slow {
                    command.env("SLOW", "1");
                }
            })
        };
        let mut agents: Vec<LoggedProcess> = (0..come).map(start).collect();
        let words = format!("{words} -p coordination.timeout=1");
        let mut coordinator =
            LoggedProcess::start(&mut on_waiting_store(place.path(), &cluster, &root, &words));
        until(&mut coordinator, &mut agents);
        coordinator.signal(signal);
        fs::write(place.path().join("go"), "").unwrap();
        let (status, heard) = coordinator.end();
        // The exit status as a shell reports it; a killed process has none.
        assert_eq!(status, if signal == Signal::KILL { -1 } else { 130 }, "{signal:?} {heard:#?}");
        for agent in &mut agents {
            agent.wait_for("left the group");
            agent.wait_for("waiting for work");
        }
        agents.extend((come..2).map(|_| agent(&cluster, &root, |_| {})));
        let few = format!(
            "run noop -P {} -p operationcount=100 --clients 2 -p coordination.timeout=1",
            workload("workloadc")
        );
        Ran::of(leader(place.path(), &cluster, &root, &few).output().unwrap()).expect(0);
        told_to_end(agents);
    };
    std::thread::scope(|scope| {
        for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
            scope.spawn(move || end(signal));
        }
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_coordinator_ends_cleanly_while_clients_join() {
    ended_at("load driver -p recordcount=100", 1, false, |coordinator, _| {
        coordinator.wait_for("client 1 of 2")
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_coordinator_ends_cleanly_while_clients_prepare() {
    ended_at("load driver -p recordcount=100", 2, true, |_, agents| {
        agents.iter_mut().for_each(|agent| agent.wait_for("load driver:"));
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_coordinator_ends_cleanly_during_a_run() {
    let words = "load driver -p recordcount=1000000 -p target=100 -s -p status.interval=1";
    ended_at(words, 2, false, |coordinator, _| {
        coordinator.wait_for("current ops/sec");
    });
}
