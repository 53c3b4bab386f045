//! Groups with a real ZooKeeper: clients join, start at the same instant, and
//! none outlives its epoch.
//!
//! `cargo xtask test` starts the server and names it in the environment; without it
//! these tests are ignored, and fail if they are run nevertheless.

use crate::common::{Agents, complete, leading, phase_end, root, work, zookeeper};
use serval_coordination::{
    agent::AgentEvent,
    coordinator::{Coordinator, CoordinatorReport, LeadError},
    directory::{Directory, DirectoryError, Leader},
    group::OnLost,
};
use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn clients_start_each_phase_together_and_serve_the_next_group() {
    let Some(cluster) = zookeeper() else { return };
    let root = root();
    let agents = Agents::start(&cluster, &root, 4);
    let mut epochs = Vec::new();
    for round in 0..2 {
        let coordinator = Coordinator::open(leading(&cluster, &root, 4, OnLost::End), "the test").unwrap();
        epochs.push(coordinator.leader().epoch);
        complete(&coordinator);
        for phase in 0..3 {
            let kind = format!("phase {phase} of {round}");
            coordinator.phase(vec![work(&kind); 4], None);
            let (end, results, intervals) = phase_end(&coordinator);
            assert!(end.go_on && end.lost.is_empty(), "{end:?}");
            let expected: Vec<_> = (0..4).map(|client| (client, format!("{kind} memory"))).collect();
            assert_eq!((results, intervals), (expected, 4), "every client's, before the end of the phase");
            let starts: Vec<u64> = agents.starts.iter().take(4).collect();
            let spread = starts.iter().max().unwrap() - starts.iter().min().unwrap();
            let (skew, error) = end.skew.unwrap();
            println!("proposed within {spread} ns, actual within {skew} ns, clock error {error} ns");
            // One clock for all: the starts differ by the errors of the estimates.
            assert!(spread <= 2 * error, "{spread} ns, clocks known to {error} ns");
        }
    }
    assert_eq!(epochs, [1, 2]);
    agents.end();
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn clients_without_work_wait_for_the_others() {
    let Some(cluster) = zookeeper() else { return };
    let root = root();
    let agents = Agents::start(&cluster, &root, 2);
    let coordinator = Coordinator::open(leading(&cluster, &root, 2, OnLost::End), "the test").unwrap();
    complete(&coordinator);
    coordinator.phase(vec![None, work("alone")], None);
    let (end, results, _) = phase_end(&coordinator);
    assert_eq!((end.go_on, results), (true, vec![(1, "alone memory".to_owned())]));
    coordinator.phase(vec![work("both"); 2], None);
    assert_eq!(phase_end(&coordinator).1.len(), 2);
    drop(coordinator);
    agents.end();
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_that_fails_is_named_and_the_others_continue_if_requested() {
    let Some(cluster) = zookeeper() else { return };
    for on_lost in [OnLost::End, OnLost::Continue] {
        let root = root();
        let agents = Agents::start(&cluster, &root, 2);
        let coordinator = Coordinator::open(leading(&cluster, &root, 2, on_lost), "the test").unwrap();
        complete(&coordinator);
        coordinator.phase(vec![work("run"), work("fail the disk is full")], None);
        let (end, results, _) = phase_end(&coordinator);
        assert_eq!(end.lost.len(), 1);
        assert_eq!(
            (end.lost[0].client, end.lost[0].why.to_string().as_str()),
            (1, "cannot do its part: the disk is full")
        );
        assert_eq!(end.go_on, on_lost == OnLost::Continue);
        let expected = if end.go_on { "run memory" } else { "" };
        assert_eq!(results, [(0, expected.to_owned())]);
        drop(coordinator);
        agents.end();
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_stop_request_before_the_work_is_distributed_waits_for_no_client() {
    let Some(cluster) = zookeeper() else { return };
    let root = root();
    let agents = Agents::start(&cluster, &root, 2);
    let mut leading = leading(&cluster, &root, 2, OnLost::End);
    // Effectively for ever.
    leading.settings.wait = 3_600_000_000_000;
    let coordinator = Coordinator::open(leading, "the test").unwrap();
    complete(&coordinator);
    coordinator.phase(vec![work("run"), work("run")], None);
    coordinator.stop();
    let (end, ..) = phase_end(&coordinator);
    assert!(end.start.is_none() && end.lost.is_empty() && !end.go_on, "{end:?}");
    drop(coordinator);
    agents.end();
}

/// The node of a killed coordinator has the address at which the next one listens already.
#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_coordinator_waits_until_the_node_of_a_killed_predecessor_expires() {
    let Some(cluster) = zookeeper() else { return };
    let root = root();
    let address: SocketAddr = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    // Stops its session: ZooKeeper gets no more heartbeats, as after a kill.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let killed = runtime.block_on(async {
        let directory = Directory::open(&cluster, &root, Duration::from_secs(4)).await.unwrap();
        let leader = |epoch| Leader {
            group: "test".to_owned(),
            epoch,
            address: address.to_string(),
            token: String::new(),
            name: "killed".to_owned(),
        };
        directory.lead("test", leader).await.unwrap();
        directory
    });
    let mut next = leading(&cluster, &root, 1, OnLost::End);
    next.listen = Some(address);
    let coordinator = Coordinator::open(next, "next").unwrap();
    assert_eq!(coordinator.leader().epoch, 2);
    drop((coordinator, killed, runtime));
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_group_has_one_coordinator_and_disbands_without_clients() {
    let Some(cluster) = zookeeper() else { return };
    let root = root();
    let mut lonely = leading(&cluster, &root, 2, OnLost::End);
    lonely.settings.wait = 300_000_000;
    let first = Coordinator::open(lonely.clone(), "first").unwrap();
    match Coordinator::open(lonely, "second") {
        Err(LeadError::Directory(DirectoryError::Led { by, .. })) => assert_eq!(by, "first"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(first.next(), Some(CoordinatorReport::Disbanded(None))));
}

/// Machines may start in any order.
#[test]
fn an_agent_waits_for_a_zookeeper_that_is_not_running_yet() {
    let unreachable = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let agents = Agents::start(&unreachable, "x", 1);
    agents
        .wait_for(1, |event| matches!(event, AgentEvent::Trouble(why) if why.contains("cannot be reached")));
    agents.end();
}

#[test]
fn an_unreachable_zookeeper_is_reported() {
    let unreachable = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = Coordinator::open(leading(&unreachable, "x", 1, OnLost::End), "the test").unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}
