//! Four servers in network namespaces of their own, and clients that run transactions over all of
//! them: killed, stopped, cut off from each other, with full disks, wrong clocks and slow links.
//! Rounds of maps and of SQL take turns.
//!
//! Nothing acknowledged is lost, no transaction is there in part, the clients' histories satisfy the
//! isolation and consistency that the round asks for, an index has the rows of its table, and no
//! reader waits over a second for a client that is dead or stopped.
//!
//! `cargo xtask network` runs it for long. `SEED=7` repeats the faults in their order, `KILLS=500`
//! sets the number of killed servers, `MINUTES=30` a time limit.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod audit;
mod client;
mod cluster;
mod faults;
mod journal;
mod lists;
mod load;
mod namespaces;
mod place;
mod readers;
mod run;
mod sql;
mod sql_client;
#[path = "../support/mod.rs"]
mod support;

use run::NetworkPlan;
use std::{
    env,
    time::{Duration, SystemTime},
};

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap())
}

fn by_clock() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
#[ignore = "needs netns ip tc nft nsenter faketime"]
fn a_cluster_survives_faults_of_machines_and_links() {
    let kills = variable("KILLS");
    let seed = variable("SEED").unwrap_or_else(by_clock);
    let limit = variable("MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    // Beside other tests a reader may wait for a processor.
    let wait_max = Duration::from_secs(if kills.is_some() { 1 } else { 10 });
    run::run(NetworkPlan { seed, kills, limit, wait_max });
}

/// The program of a client, started by the test.
#[test]
fn client_process() {
    client::run_if_ordered();
}
