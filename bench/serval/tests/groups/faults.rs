//! Failures of groups, and groups in commands other than load and run.

use crate::common::{
    Ran, folder,
    group::{LoggedProcess, agent_with as agent, agents, document, group, leader, root, zookeeper},
    program, workload,
};
use rustix::process::Signal;
use serval_conformance::variable;
use serval_result::document::ResultDocument;
use std::{collections::BTreeMap, fs, path::Path, process::Stdio};

/// A driver that does not answer on one machine until a file exists.
fn slow_store(place: &Path) -> String {
    let script = format!(
        "if [ -n \"$SLOW\" ]; then while [ ! -e '{0}/go' ]; do sleep 0.02; done; fi\nexec '{1}' driver serve memory\n",
        place.display(),
        env!("CARGO_BIN_EXE_serval")
    );
    fs::write(place.join("store.sh"), script).unwrap();
    format!("driver.command=sh {}", place.join("store.sh").display())
}

fn two_on_slow_store(
    place: &Path,
    cluster: &str,
    root: &str,
    more: &str,
) -> (LoggedProcess, LoggedProcess, LoggedProcess) {
    let quick = agent(cluster, root, |command| {
        command.arg("--once");
    });
    let slow = agent(cluster, root, |command| {
        command.arg("--once").env("SLOW", "1");
    });
    let words = format!(
        "load driver -P {} -p recordcount=100 --clients 2 --result r -p coordination.lost=continue {more}",
        workload("workloada")
    );
    let mut command = leader(place, cluster, root, &words);
    command.args(["-p", &slow_store(place)]);
    (quick, slow, LoggedProcess::start(&mut command))
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_whose_store_does_not_answer_is_late_and_named() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let (quick, slow, leader) = two_on_slow_store(place.path(), &cluster, &root, "-p coordination.wait=1s");
    let pid = slow.child.id();
    let (_, heard) = leader.end();
    fs::write(place.path().join("go"), "").unwrap();
    let document = document(place.path());
    let lost: Vec<_> =
        group(&document).clients.iter().map(|client| (client.process, client.lost.clone())).collect();
    let named: Vec<_> = lost.iter().filter(|(_, lost)| lost.is_some()).collect();
    assert!(
        matches!(named[..], [(process, Some(why))] if *process == pid && why.contains("did not reach the barrier")),
        "{lost:?} {heard:#?}"
    );
    assert!(document.overall.operations > 0);
    assert_eq!((quick.end().0, slow.end().0), (0, 0));
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_client_frozen_at_the_start_is_not_waited_for() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let (mut quick, slow, leader) =
        two_on_slow_store(place.path(), &cluster, &root, "-p coordination.timeout=2");
    // This client has its work, and the other is not ready before the file exists.
    quick.wait_for("load");
    quick.signal(Signal::STOP);
    fs::write(place.path().join("go"), "").unwrap();
    let pid = quick.child.id();
    let (_, heard) = leader.end();
    quick.signal(Signal::CONT);
    let document = document(place.path());
    let lost: Vec<_> = group(&document).clients.iter().filter(|client| client.lost.is_some()).collect();
    assert!(lost.len() == 1 && lost[0].process == pid, "{lost:?} {heard:#?}");
    assert!(document.overall.operations > 0);
    let ((_, quick), (status, _)) = (quick.end(), slow.end());
    assert!(status == 0 && quick.iter().any(|line| line.contains("left the group")), "{quick:#?}");
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn the_next_coordinator_takes_over_agents_and_name_of_a_killed_one() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let mut agents: Vec<LoggedProcess> = (0..2).map(|_| agent(&cluster, &root, |_| {})).collect();
    let words = |more: &str| {
        format!("run noop -P {} --clients 2 -p coordination.timeout=1 {more}", workload("workloadc"))
    };
    let forever = words("-p operationcount=0 -p maxexecutiontime=600 -p target=100 -s -p status.interval=1");
    let mut first = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &forever));
    first.wait_for("current ops/sec");
    let few = words("-p operationcount=100 --result r");
    // A group name has one coordinator at a time.
    let second = Ran::of(leader(place.path(), &cluster, &root, &few).output().unwrap());
    assert!(second.status != 0 && second.stderr.contains("has a coordinator already,"), "{}", second.stderr);
    first.signal(Signal::KILL);
    first.end();
    for agent in &mut agents {
        agent.wait_for("left the group");
        agent.wait_for("waiting for work");
    }
    // The node of the killed coordinator exists until its session expires; the next one waits.
    Ran::of(leader(place.path(), &cluster, &root, &few).output().unwrap()).expect(0);
    assert_eq!(document(place.path()).overall.operations, 100);
    for agent in agents {
        agent.signal(Signal::TERM);
        assert_eq!(agent.end().0, 0);
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_group_performs_load_and_run_of_a_bench_with_warm_up_until_steady() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let agents = agents(&cluster, &root, 2);
    let words = format!(
        "bench {} --store noop --clients 2 --out r --time 1s --warm-up 100ms --records 1000 -p warmup.max=6s --target 2000",
        workload("workloadc")
    );
    Ran::of(leader(place.path(), &cluster, &root, &words).output().unwrap()).expect(0);
    for agent in agents {
        assert_eq!(agent.end().0, 0);
    }
    let run = document(place.path());
    let steadiness = run.steadiness.as_ref().unwrap();
    assert_eq!(group(&run).clients.len(), 2);
    assert!(run.overall.warm_up_s <= 6.5 && run.overall.duration_s < 1.5, "{:?}", run.overall);
    // A steady run is measured before the longest warm-up ends.
    assert!(!steadiness.steady || run.overall.warm_up_s < 6.0, "{steadiness:?} {:?}", run.overall);
    let due = run.overall.operations + run.censored.not_started + run.censored.in_flight;
    assert!((1800..=2100).contains(&due), "{due}");
    let load = fs::read(place.path().join("r/load-result.json")).unwrap();
    let load: ResultDocument = serde_json::from_slice(&load).unwrap();
    assert_eq!((load.overall.operations, group(&load).clients.len()), (1000, 2));
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn one_group_performs_all_runs_of_a_sweep() {
    let Some(cluster) = zookeeper() else { return };
    let (place, root) = (folder(), root());
    let agents = agents(&cluster, &root, 2);
    let words = format!(
        "sweep {} --store noop --agents 2 --clients 3 --points 500,max --repeats 1 --time 500ms --warm-up 100ms \
         --warm-up-max 0 -p recordcount=100 --out s --plain",
        workload("workloadc")
    );
    Ran::of(leader(place.path(), &cluster, &root, &words).output().unwrap()).expect(0);
    // Agents end after one group.
    for agent in agents {
        assert_eq!(agent.end().0, 0);
    }
    let experiment: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path().join("s/experiment.json")).unwrap()).unwrap();
    assert_eq!(experiment["complete"], true);
    let runs = experiment["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3, "a load and two points: {runs:#?}");
    for run in runs {
        let path = place.path().join("s").join(run["folder"].as_str().unwrap()).join("result.json");
        let document: ResultDocument = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(group(&document).clients.len(), 2);
        // Three clients become two in each of two processes.
        assert_eq!((run["clients"].as_u64(), document.run.clients), (Some(4), 4));
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn processes_started_one_by_one_meet_at_ycsbs_barrier() {
    let Some(cluster) = zookeeper() else { return };
    let place = folder();
    let words = format!(
        "run noop -P {} -p operationcount=100 -p barrier-status=yes -p barrier-zkServer={cluster} -p barrier-zkRoot=/{} \
         -p barrier-size=3",
        workload("workloadc"),
        root()
    );
    let start = |_| {
        let mut command = program();
        command.current_dir(place.path()).args(words.split_whitespace()).stdout(Stdio::null());
        let mut process = LoggedProcess::start(&mut command);
        process.wait_for("waiting at the barrier");
        process
    };
    let clients: Vec<LoggedProcess> = (0..3).map(start).collect();
    for client in clients {
        let (status, heard) = client.end();
        assert!(status == 0 && heard.iter().any(|line| line.contains("all clients joined: ")), "{heard:#?}");
    }
    // A single process waits in vain, with a limit, and reports it.
    let alone = format!("{words} -p coordination.wait=200ms");
    let ran = Ran::of(program().args(alone.split_whitespace()).output().unwrap());
    assert!(ran.status != 0 && ran.stderr.contains("1 of 3 clients arrived within"), "{}", ran.stderr);
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS SERVAL_TEST_ZOOKEEPER"]
fn keys_of_a_killed_producer_keep_their_bounds() {
    let (Some(cluster), Some(redis)) = (zookeeper(), variable("SERVAL_TEST_REDIS")) else { return };
    let (host, port) = redis.rsplit_once(':').unwrap();
    let (place, root) = (folder(), root());
    let mut agents = agents(&cluster, &root, 3);
    let words = format!(
        "run redis -P {} -p redis.host={host} -p redis.port={port} -p redis.database=11 -p recordcount=1 -p readproportion=0 \
         -p updateproportion=0 -p insertproportion=1 -p operationcount=0 -p maxexecutiontime=6 -p target=300 \
         -p lag.sample=1 -p lag.consumers.clients=1 -p coordination.lost=continue --clients 3 --result r -s \
         -p status.interval=1",
        workload("workloada")
    );
    let mut leader = LoggedProcess::start(&mut leader(place.path(), &cluster, &root, &words));
    leader.wait_for("current ops/sec");
    // The last client is the consumer.
    let producer = agents.iter_mut().position(|agent| {
        agent.wait_for("of a group led by");
        agent.heard.last().is_some_and(|line| line.contains("client 1 of"))
    });
    let killed = agents.remove(producer.unwrap());
    killed.signal(Signal::KILL);
    let (_, heard) = leader.end();
    agents.into_iter().for_each(|agent| assert_eq!(agent.end().0, 0));

    let document = document(place.path());
    let lost = group(&document).clients.iter().filter(|client| client.lost.is_some()).count();
    assert_eq!(lost, 1, "{heard:#?}");
    let lag = document.lag.unwrap();
    let visible = lag.visible.unwrap();
    assert_eq!((visible.without, visible.upper.unwrap().count), (0, lag.keys.tried), "{:?}", lag.keys);
    // Number of keys with both bounds, by writer.
    let mut bracketed = BTreeMap::<String, u64>::new();
    let text = fs::read_to_string(place.path().join("r/lag-keys.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heads = lines.next().unwrap();
    let column = |name: &str| heads.iter().position(|head| *head == name).unwrap();
    for line in lines {
        let writer = line[column("stamp")].split('.').next().unwrap().to_owned();
        let both = !line[column("lower_ns")].is_empty() && !line[column("upper_ns")].is_empty();
        *bracketed.entry(writer).or_default() += u64::from(both);
    }
    assert!(bracketed.len() == 2 && bracketed.values().all(|count| *count > 0), "{bracketed:?}");
}
