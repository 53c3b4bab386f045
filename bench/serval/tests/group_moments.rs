//! Processes of a group that stall, join late or are killed, each at a different instant.
//!
//! `cargo xtask test` starts ZooKeeper and names it in the environment; without it these tests are
//! ignored.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod common;

use common::{
    Ran, folder,
    group::{Talker, agent_with as agent, document, group, leader, root, wait_for_standing, zookeeper},
    workload,
};
use rustix::process::Signal;
use serval_result::document::ResultDocument;
use std::{fs, path::Path, process::Command};

/// A driver that waits for files: `go` before it serves where `SLOW` is set, `end` after it has where
/// `LINGERS` is.
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

/// Why a process was lost, by the result.
fn why_lost(document: &ResultDocument, process: u32) -> String {
    let client = group(document).clients.iter().find(|client| client.process == process).unwrap();
    client.lost.clone().unwrap_or_default()
}

fn told_to_end(agents: Vec<Talker>) {
    for agent in agents {
        agent.signal(Signal::TERM);
        let (status, heard) = agent.end();
        assert_eq!(status, 0, "{heard:#?}");
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_that_stands_still_between_its_word_and_the_confirmation_does_not_begin() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    // The first stands still when the start is proposed, so that nothing is confirmed before it goes on; the
    // second stands still when it has given its word.
    let mut first = agent(&cluster, &root, |_| {});
    let mut second = agent(&cluster, &root, |command| {
        command.env("SLOW", "1");
    });
    let words = "load driver -p recordcount=100 -p coordination.lost=continue -p coordination.timeout=4 \
                 -p coordination.clock.max=50ms";
    let mut leader = Talker::start(&mut on_waiting_store(place.path(), &cluster, &root, words));
    wait_for_standing(&cluster, &root, "0/entered", 1);
    first.signal(Signal::STOP);
    fs::write(place.path().join("go"), "").unwrap();
    wait_for_standing(&cluster, &root, "0/entered", 2);
    second.signal(Signal::STOP);
    first.signal(Signal::CONT);
    leader.wait_for("Starting test");
    first.wait_for("50 operations, 0 failed");
    second.signal(Signal::CONT);
    let processes = (first.child.id(), second.child.id());
    let (status, heard) = leader.end();
    let document = document(place.path());
    let why = why_lost(&document, processes.1);
    assert!(why.contains("was not there at the start"), "{why} {heard:#?}");
    assert_eq!((why_lost(&document, processes.0), document.overall.operations), (String::new(), 50));
    assert_ne!(status, 0, "records are missing");
    second.wait_for("left the group");
    told_to_end(vec![first, second]);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_that_stands_still_in_the_last_barrier_is_not_waited_for() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let first = agent(&cluster, &root, |_| {});
    let mut second = agent(&cluster, &root, |command| {
        command.env("LINGERS", "1");
    });
    let words = "load driver -p recordcount=100 -p coordination.lost=continue -p coordination.timeout=1";
    let leader = Talker::start(&mut on_waiting_store(place.path(), &cluster, &root, words));
    // It has done its part, and hands it over when its store has closed.
    second.wait_for("50 operations, 0 failed");
    second.signal(Signal::STOP);
    let (_, heard) = leader.end();
    let document = document(place.path());
    let why = why_lost(&document, second.child.id());
    assert!(why.contains("says nothing any more"), "{why} {heard:#?}");
    assert_eq!(document.overall.operations, 50);
    fs::write(place.path().join("end"), "").unwrap();
    second.signal(Signal::CONT);
    second.wait_for("left the group");
    // It waits for work anew, as the other does, and they make the next group.
    second.wait_for("waiting for work");
    let words = format!("run noop -P {} -p operationcount=100 --clients 2", workload("workloadc"));
    Ran::of(common::group::leader(place.path(), &cluster, &root, &words).output().unwrap()).expect(0);
    told_to_end(vec![first, second]);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_that_comes_late_is_taken_within_the_wait_and_not_after_it() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let first = agent(&cluster, &root, |_| {});
    let words = |more: &str| {
        format!("run noop -P {} -p operationcount=100 --clients 2 {more}", workload("workloadc"))
    };
    // Beyond it, with what to do.
    let ran = leader(place.path(), &cluster, &root, &words("-p coordination.wait=300ms")).output().unwrap();
    let ran = Ran::of(ran).expect(3);
    assert!(ran.stderr.contains("only 1 of 2 clients joined within 300ms"), "{}", ran.stderr);
    // One that comes after it finds nothing that calls it, and waits; the next that wants two has both, one
    // of them since before.
    let second = agent(&cluster, &root, |_| {});
    let few = words("--result r");
    Ran::of(leader(place.path(), &cluster, &root, &few).output().unwrap()).expect(0);
    fs::remove_dir_all(place.path().join("r")).unwrap();
    told_to_end(vec![second]);
    let mut waiting = Talker::start(&mut leader(place.path(), &cluster, &root, &few));
    waiting.wait_for("client 1 of 2");
    let third = agent(&cluster, &root, |_| {});
    let (status, heard) = waiting.end();
    assert_eq!(status, 0, "{heard:#?}");
    let result = document(place.path());
    assert!(group(&result).clients.iter().any(|client| client.process == third.child.id()));
    told_to_end(vec![first, third]);
}

/// A coordinator that is ended by each of the signals, at a moment that `until` waits for; then its agents make the
/// next group.
fn ended_at(words: &str, come: usize, slow: bool, until: impl Fn(&mut Talker, &mut [Talker]) + Sync) {
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
        let mut agents: Vec<Talker> = (0..come).map(start).collect();
        let words = format!("{words} -p coordination.timeout=1");
        let mut coordinator = Talker::start(&mut on_waiting_store(place.path(), &cluster, &root, &words));
        until(&mut coordinator, &mut agents);
        coordinator.signal(signal);
        fs::write(place.path().join("go"), "").unwrap();
        let (status, heard) = coordinator.end();
        // As a shell has it; one that is killed has no status.
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
fn a_coordinator_may_be_ended_while_clients_come() {
    ended_at("load driver -p recordcount=100", 1, false, |coordinator, _| {
        coordinator.wait_for("client 1 of 2")
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_coordinator_may_be_ended_while_clients_get_ready() {
    ended_at("load driver -p recordcount=100", 2, true, |_, agents| {
        agents.iter_mut().for_each(|agent| agent.wait_for("load driver:"));
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_coordinator_may_be_ended_in_mid_run() {
    let words = "load driver -p recordcount=1000000 -p target=100 -s -p status.interval=1";
    ended_at(words, 2, false, |coordinator, _| {
        coordinator.wait_for("current ops/sec");
    });
}
