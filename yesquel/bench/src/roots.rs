//! Figure 10 of the paper: how often clients with caches of their own fetch the root of a tree.
//!
//! Clients and server share a process, so that millions of operations take a minute; the fetches
//! are the same as by sockets.

use crate::{Result, cluster, target::key};
use serde_json::json;
use std::{sync::Arc, thread};
use yesquel::{Database, EngineSettings, LeafPlacement, ListenOptions, LogOptions, Map, Server, Store};
use yesquel_seeds::Random;

pub(crate) struct RootsPlan {
    /// Groups of the server, over which the leaves are distributed.
    pub(crate) groups: u16,
    /// Operations of each kind.
    pub(crate) operations: u64,
    /// Number of caches.
    pub(crate) clients: u32,
    /// Threads; each runs an equal share of the clients in turn.
    pub(crate) threads: u32,
    /// Keys loaded before.
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

/// Cells of a node, as in the paper (section 6.1.3). With more, the root changes less often.
const NODE_CELLS_MAX: usize = 50;

#[derive(Debug, Clone, Copy)]
enum InsertKind {
    Read,
    Update,
    Insert,
}

/// Client with its cache.
struct CachingClient {
    store: Store,
    database: Database,
    map: Map,
}

impl CachingClient {
    fn new(server: &Server) -> Result<CachingClient> {
        let store = Store::of_host(Arc::clone(server.host()));
        let (database, map) = cluster::database(&store)?;
        Ok(CachingClient { store, database, map })
    }

    fn act(&self, kind: InsertKind, random: &mut Random, plan: &RootsPlan, value: &[u8]) -> Result<()> {
        let known = key(random.next(plan.keys));
        match kind {
            InsertKind::Read => drop(self.database.get(self.map, &known)?.ok_or("a key is missing")?),
            InsertKind::Update => self.database.run(|transaction| {
                transaction.get(self.map, &known)?;
                transaction.put(self.map, &known, value)
            })?,
            InsertKind::Insert => {
                let new = key(random.next(u64::MAX >> 1) | 1 << 63);
                self.database.run(|transaction| transaction.put(self.map, &new, value))?;
            }
        }
        Ok(())
    }
}

/// Runs all operations of a kind by clients with empty caches; returns their fetches.
fn measure(server: &Server, kind: InsertKind, plan: &RootsPlan) -> Result<serde_json::Value> {
    let clients: Vec<CachingClient> =
        (0..plan.clients).map(|_| CachingClient::new(server)).collect::<Result<_>>()?;
    let names = fetches(&clients);
    let value = vec![b'v'; plan.value_bytes];
    let part = clients.len().div_ceil(plan.threads as usize);
    let operations = plan.operations / u64::from(plan.clients);
    let warming = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .chunks(part)
            .zip(0u64..)
            .map(|(clients, thread)| {
                let value = &value;
                scope.spawn(move || -> Result<u64> {
                    let mut random = Random::new(thread << 8 | kind as u64);
                    let (mut first, before) = (0, fetches(clients));
                    for number in 0..operations {
                        for client in clients {
                            client.act(kind, &mut random, plan, value)?;
                        }
                        if number == 0 {
                            first = fetches(clients) - before;
                        }
                    }
                    Ok(first)
                })
            })
            .collect();
        let all = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread has panicked")?);
        all.sum::<Result<u64>>()
    })?;
    let fetched = fetches(&clients) - names;
    let operations = operations * u64::from(plan.clients);
    eprintln!(
        "{kind:?}: {operations} operations, {fetched} root fetches, {warming} of them by first operations"
    );
    let steps = |of: fn(&yesquel::SearchCounts) -> u64| -> u64 {
        clients.iter().map(|client| of(&client.store.searches())).sum()
    };
    Ok(json!({
        "operations": operations,
        "root_fetches": fetched,
        "root_fetches_of_first_operations": warming,
        "inner_fetches": steps(|counts| counts.inner_fetches),
        "back_steps": steps(|counts| counts.back_steps),
        "forward_steps": steps(|counts| counts.forward_steps),
    }))
}

/// Returns the number of root fetches by these clients so far.
fn fetches(clients: &[CachingClient]) -> u64 {
    clients.iter().map(|client| client.store.searches().root_fetches).sum()
}

pub(crate) fn run(plan: &RootsPlan) -> Result<serde_json::Value> {
    let settings = EngineSettings { node_cells_max: NODE_CELLS_MAX, ..EngineSettings::default() };
    let listen =
        ListenOptions { groups: plan.groups, placement: LeafPlacement::Spread, ..ListenOptions::default() };
    let server = Server::start(None, settings, LogOptions::default(), listen)?;
    let loader = CachingClient::new(&server)?;
    let value = vec![b'v'; plan.value_bytes];
    for number in 0..plan.keys {
        loader.database.put(loader.map, &key(number), &value)?;
    }
    let read = measure(&server, InsertKind::Read, plan)?;
    let update = measure(&server, InsertKind::Update, plan)?;
    let insert = measure(&server, InsertKind::Insert, plan)?;
    Ok(json!({ "clients": plan.clients, "read": read, "update": update, "insert": insert }))
}
