//! Commits of transactions that write two trees: of one group, or of two.

use crate::{Result, cluster};
use serde_json::{Value, json};
use std::{
    process, thread,
    time::{Instant, SystemTime},
};
use yesquel::SocketOptions;
use yesquel_client::Client;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, Trees};

/// Keys of a thread, which writes them in turn.
const KEYS: u64 = 100;

/// Parameters of the commits.
pub(crate) struct GroupsPlan {
    /// Addresses of the servers, separated by commas.
    pub(crate) target: String,
    /// Number of groups that each transaction writes to, 1 or 2.
    pub(crate) groups: usize,
    pub(crate) threads: u64,
    /// Number of commits.
    pub(crate) operations: u64,
    pub(crate) value_bytes: usize,
}

/// Returns a number that no other client has.
fn client_number() -> Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    // The highest bit marks further connections of a client.
    Ok((now.as_nanos() as u64 ^ u64::from(process::id()) << 32) >> 1)
}

/// Commits by threads that share a connection to each server.
pub(crate) fn run(plan: &GroupsPlan) -> Result<Value> {
    let addresses = cluster::addresses(&plan.target)?;
    let client = client_number()?;
    let options = SocketOptions { lanes: 0, ..SocketOptions::default() };
    let transport = SocketTransport::connect(&addresses, client, options)?;
    let servers: Vec<_> = transport.servers().collect();
    let (Some(first), Some(second)) = (servers.first(), servers.get(plan.groups.max(1) - 1)) else {
        return Err(format!("{} has fewer than {} servers", plan.target, plan.groups).into());
    };
    let trees = Trees::new(Client::new(transport, client));
    let written = [block_on(trees.create(*first))?, block_on(trees.create(*second))?];
    let begun = Instant::now();
    thread::scope(|scope| {
        let commit = |thread: u64| {
            let (trees, written) = (&trees, &written);
            scope.spawn(move || commits(plan, trees, written, thread))
        };
        let threads: Vec<_> = (0..plan.threads).map(commit).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked")?)
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let operations = plan.operations / plan.threads * plan.threads;
    Ok(json!({
        "operations": operations,
        "seconds": seconds,
        "throughput": operations as f64 / seconds,
    }))
}

/// The commits of one thread, which has keys of its own.
fn commits(
    plan: &GroupsPlan,
    trees: &Trees<SocketTransport>,
    written: &[Tree; 2],
    thread: u64,
) -> Result<()> {
    let mut value = vec![b'v'; plan.value_bytes.max(8)];
    for number in 0..plan.operations / plan.threads {
        let key = ((thread << 32) | (number % KEYS)).to_be_bytes();
        value[..8].copy_from_slice(&number.to_be_bytes());
        let mut transaction = trees.begin();
        for tree in written {
            transaction.put(*tree, &key, &value)?;
        }
        block_on(transaction.commit())?;
    }
    Ok(())
}
