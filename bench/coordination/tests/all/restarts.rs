//! ZooKeeper fails during a phase: briefly, permanently, and one server of three.

use crate::common::{Agents, complete, leading, phase_end, root, server::Zookeeper, work};
use serval_coordination::{
    agent::AgentEvent,
    coordinator::{Coordinator, CoordinatorReport},
    group::OnLost,
};
use std::time::Duration;

fn results(kind: &str) -> Vec<(usize, String)> {
    (0..2).map(|client| (client, format!("{kind} memory"))).collect()
}

fn is_waiting(news: &AgentEvent) -> bool {
    *news == AgentEvent::Waiting
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER_CLASSES"]
fn a_group_survives_a_restart_of_zookeeper_in_any_stage() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Zookeeper::start(&folder) else { return };
    let (cluster, root) = (server.address(), root());
    let agents = Agents::start(&cluster, &root, 2);
    agents.wait_for(2, is_waiting);
    server.restart();
    let coordinator = Coordinator::open(leading(&cluster, &root, 2, OnLost::End), "the test").unwrap();
    complete(&coordinator);

    coordinator.phase(vec![work("hold"); 2], None);
    assert_eq!(agents.starts.iter().take(2).count(), 2);
    server.restart();
    agents.hold.open();
    let (end, seen, _) = phase_end(&coordinator);
    assert!(end.go_on && end.lost.is_empty(), "{end:?}");
    assert_eq!(seen, results("hold"));

    server.kill();
    coordinator.phase(vec![work("next"); 2], None);
    server.start_again();
    let (end, seen, _) = phase_end(&coordinator);
    assert!(end.go_on && end.lost.is_empty(), "{end:?}");
    assert_eq!(seen, results("next"));
    drop(coordinator);
    agents.end();
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER_CLASSES"]
fn a_lost_zookeeper_ends_the_group_and_agents_rejoin_when_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Zookeeper::start(&folder) else { return };
    let (cluster, root) = (server.address(), root());
    let timeout = Duration::from_secs(1);
    let agents = Agents::with_timeout(&cluster, &root, 2, timeout);
    let lead = || {
        let mut leading = leading(&cluster, &root, 2, OnLost::End);
        leading.settings.timeout = timeout.as_nanos() as u64;
        Coordinator::open(leading, "the test").unwrap()
    };

    // In a phase: clients send the results so far.
    let coordinator = lead();
    complete(&coordinator);
    coordinator.phase(vec![work("hold"); 2], None);
    assert_eq!(agents.starts.iter().take(2).count(), 2);
    server.kill();
    let why = loop {
        match coordinator.next().unwrap() {
            CoordinatorReport::Ending(why) => break why,
            CoordinatorReport::Disbanded(why) => panic!("{why:?}"),
            _ => {}
        }
    };
    assert!(why.contains("session with ZooKeeper is over"), "{why}");
    let (end, seen, _) = phase_end(&coordinator);
    assert!(!end.go_on && end.lost.is_empty(), "{end:?}");
    assert_eq!(seen, results("hold"));
    assert!(coordinator.next().is_none());
    drop(coordinator);
    agents.wait_for(2, |news| matches!(news, AgentEvent::Parted(_)));
    server.start_again();
    agents.wait_for(2, is_waiting);

    // Between phases there are no results to send.
    let coordinator = lead();
    complete(&coordinator);
    server.kill();
    let why = loop {
        match coordinator.next().unwrap() {
            CoordinatorReport::Disbanded(why) => break why.unwrap(),
            CoordinatorReport::Trouble(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(why.contains("session with ZooKeeper is over"), "{why}");
    assert!(coordinator.next().is_none());
    drop(coordinator);
    server.start_again();
    agents.wait_for(2, is_waiting);
    agents.end();
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER_CLASSES"]
fn a_run_survives_the_death_of_any_one_of_three_servers() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut servers) = Zookeeper::ensemble(&folder) else { return };
    let cluster = servers.iter().map(Zookeeper::address).collect::<Vec<_>>().join(",");
    let root = root();
    let agents = Agents::start(&cluster, &root, 2);
    let coordinator = Coordinator::open(leading(&cluster, &root, 2, OnLost::End), "the test").unwrap();
    complete(&coordinator);
    coordinator.phase(vec![work("hold"); 2], None);
    assert_eq!(agents.starts.iter().take(2).count(), 2);
    // Sessions, without that of the query.
    let sessions = |server: &Zookeeper| server.asked("cons").matches("sid=0x").count();
    let busiest = (0..3).max_by_key(|number| sessions(&servers[*number])).unwrap();
    assert!(sessions(&servers[busiest]) > 0);
    servers[busiest].kill();
    agents.hold.open();
    let (end, seen, _) = phase_end(&coordinator);
    assert!(end.go_on && end.lost.is_empty(), "{end:?}");
    assert_eq!(seen, results("hold"));
    coordinator.phase(vec![work("by two of three"); 2], None);
    assert_eq!(phase_end(&coordinator).1, results("by two of three"));
    drop(coordinator);
    agents.end();
}
