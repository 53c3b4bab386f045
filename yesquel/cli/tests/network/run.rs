//! A run: rounds of faults, each followed by an audit.

use crate::{
    audit::{self, RoundCounts},
    cluster::{CLIENTS, NetworkCluster},
    faults::{self, NetworkFault},
    lists::GROUPS,
    load::{LOADS, RoundLoad},
    namespaces::{PREFIX, sweep, sweep_after_crashes},
    readers::Readers,
    sql,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    thread,
    time::{Duration, Instant},
};
use yesquel_seeds::Random;

/// Time in which a reader may meet what a client left behind.
const AFTERMATH: Duration = Duration::from_millis(1_500);

/// What a run does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetworkPlan {
    pub(crate) seed: u64,
    /// Number of servers to kill; `None`: one short round of each load.
    pub(crate) kills: Option<u64>,
    /// No round begins after this time.
    pub(crate) limit: Option<Duration>,
    /// Longest wait of a reader for a client that was killed or stopped.
    pub(crate) wait_max: Duration,
}

/// Sums over all rounds.
#[derive(Debug, Default)]
struct RunCounts {
    rounds: u64,
    faults: u64,
    kills: u64,
    client_faults: u64,
    /// Transactions that recovery ended after client faults.
    client_recovered: u64,
    transactions: RoundCounts,
    /// Longest wait of a reader for a client.
    wait: Duration,
}

/// Ends the program on a signal, after its namespaces and mounts are removed.
fn clean_up_on_signals(folder: &Path) {
    let (mut signals, folder) = (Signals::new([SIGINT, SIGTERM, SIGHUP]).unwrap(), folder.to_owned());
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            sweep(std::process::id());
            let _ = std::fs::remove_dir_all(folder);
            std::process::exit(128 + signal);
        }
    });
}

/// Runs a plan. A failed run keeps its folder.
pub(crate) fn run(plan: NetworkPlan) {
    println!("SEED={}", plan.seed);
    sweep_after_crashes();
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap();
    clean_up_on_signals(folder.path());
    // The driver's thread moves to another namespace, and no other test may.
    let driver = || {
        let mut cluster = NetworkCluster::start(folder.path());
        catch_unwind(AssertUnwindSafe(|| {
            rounds(&mut cluster, plan);
            (0..GROUPS).for_each(|group| cluster.stop_server(group));
        }))
    };
    let outcome = thread::scope(|scope| scope.spawn(driver).join());
    let failed = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(panic)) | Err(panic) => panic,
    };
    println!("SEED={} failed; logs, journals and data are kept in {}", plan.seed, folder.keep().display());
    resume_unwind(failed);
}

fn rounds(cluster: &mut NetworkCluster, plan: NetworkPlan) {
    let (readers, begun) = (Readers::default(), Instant::now());
    let (place, trees) = (cluster.place.clone(), cluster.place.trees());
    thread::scope(|scope| {
        for (group, tree) in trees.into_iter().enumerate() {
            let (readers, place) = (&readers, &place);
            // Numbers that no client has.
            let number = (1 << 40) + group as u64;
            scope.spawn(move || readers.read(place, plan.seed, tree, group, number));
            scope.spawn(move || readers.write(place, tree, group, number + GROUPS as u64));
        }
        let all = catch_unwind(AssertUnwindSafe(|| {
            let mut counts = RunCounts::default();
            let mut random = Random::new(plan.seed);
            let is_due = |counts: &RunCounts| {
                counts.rounds < LOADS
                    || plan.kills.is_some_and(|kills| counts.kills < kills)
                        && plan.limit.is_none_or(|limit| begun.elapsed() < limit)
            };
            while is_due(&counts) {
                round(cluster, &readers, plan, &mut random, &mut counts, begun);
                report(plan, &counts, &readers, begun);
            }
        }));
        readers.end();
        cluster.heal();
        all.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Prints the sums so far, and how long the rest takes.
fn report(plan: NetworkPlan, counts: &RunCounts, readers: &Readers, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    let transactions = counts.transactions;
    println!(
        "{seconds:7.1} s  round {}: {} kills, {} faults, {} of clients ({} transactions recovered), {} reads, longest \
         wait for a client {} ms\n           all rounds: {transactions:?}",
        counts.rounds,
        counts.kills,
        counts.faults,
        counts.client_faults,
        counts.client_recovered,
        readers.reads(),
        counts.wait.as_millis()
    );
    if let Some(kills) = plan.kills.filter(|kills| *kills > counts.kills) {
        let by_kills = seconds / counts.kills as f64 * (kills - counts.kills) as f64;
        let by_limit = plan.limit.map_or(f64::MAX, |limit| limit.as_secs_f64() - seconds);
        println!(
            "           {} kills to go, about {:.0} s",
            kills - counts.kills,
            by_kills.min(by_limit).max(0.0)
        );
    }
}

/// Runs the faults of a round under load, then checks everything.
fn round(
    cluster: &mut NetworkCluster,
    readers: &Readers,
    plan: NetworkPlan,
    random: &mut Random,
    counts: &mut RunCounts,
    begun: Instant,
) {
    counts.rounds += 1;
    let load = RoundLoad::of(plan.seed, counts.rounds);
    println!("{:7.1} s  round {}: {load}", begun.elapsed().as_secs_f64(), counts.rounds);
    let schema_version = match load {
        RoundLoad::Maps { .. } => None,
        RoundLoad::Sql(_) => Some(sql::begin_round(&cluster.place, counts.rounds)),
    };
    readers.begin_round(counts.rounds);
    (0..CLIENTS).for_each(|client| cluster.start_client(client, counts.rounds, plan.seed));
    for fault in faults::drawn(random, plan.kills.is_some(), cluster.namespaces.has_netem) {
        println!("{:7.1} s  {fault}", begun.elapsed().as_secs_f64());
        if fault.is_of_client() {
            client_fault(cluster, readers, plan, &fault, counts);
        } else {
            let unaffected = fault.unaffected();
            fault.happen(cluster, &mut |_| {
                let silent = readers.wait_for_writes(&unaffected);
                assert!(silent.is_none(), "group {silent:?} serves nothing during another one's fault");
            });
            cluster.heal();
        }
        counts.faults += 1;
        counts.kills += fault.kills();
        thread::sleep(Duration::from_millis(random.next(if plan.kills.is_some() { 400 } else { 50 })));
    }
    assert_eq!(readers.wait_until_all_serve(), None, "a group serves nothing after the faults");
    cluster.stop_clients();
    let mut transactions = audit::audit(cluster, load);
    if let Some(before) = schema_version {
        transactions.schema_changes = (sql::verify(&cluster.place) - before) as u64;
    }
    println!("{:7.1} s  {load}: {transactions:?}", begun.elapsed().as_secs_f64());
    counts.transactions.add(transactions);
}

/// Kills or stops a client while nothing else is wrong, and measures how long readers wait.
fn client_fault(
    cluster: &mut NetworkCluster,
    readers: &Readers,
    plan: NetworkPlan,
    fault: &NetworkFault,
    counts: &mut RunCounts,
) {
    // The effects of earlier faults are over.
    assert_eq!(readers.wait_until_all_serve(), None, "a group serves nothing after a fault");
    assert_eq!(cluster.wait_for_peers(), None, "a server does not reach the others after a fault");
    let (before, since) = (audit::recovered(cluster), Instant::now());
    fault.happen(cluster, &mut |_| ());
    thread::sleep(AFTERMATH);
    let (wait, recovered) = (readers.longest_since(since), audit::recovered(cluster) - before);
    counts.client_faults += 1;
    counts.client_recovered += recovered;
    counts.wait = counts.wait.max(wait);
    println!(
        "           {recovered} transactions recovered, longest wait of a reader {} ms",
        wait.as_millis()
    );
    assert!(wait <= plan.wait_max, "a reader waits {wait:?} for a client");
    cluster.heal();
    if let NetworkFault::KillClient { client, .. } = fault {
        cluster.start_client(*client, counts.rounds, plan.seed);
    }
}
