//! The paper's figure 10: how often clients with caches of their own fetch the
//! root of a tree.
//!
//! Clients and server are in one process, so that millions of operations take
//! a minute; what a client fetches is the same as by sockets.

use crate::{Result, target::key};
use serde_json::json;
use std::{sync::Arc, thread};
use yesquel::{Database, ListenOptions, LogOptions, Map, Server, Settings, Store};
use yesquel_seeds::Random;

pub(crate) struct Plan {
    /// Of each kind.
    pub(crate) operations: u64,
    /// Caches.
    pub(crate) clients: u32,
    /// Each has an equal part of the clients, which it lets act in turn.
    pub(crate) threads: u32,
    /// Keys that there are before.
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

/// Cells of a node, as in the paper (section 6.1.3). More would make the root
/// change less often.
const NODE_CELLS_MAX: usize = 50;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Update,
    Insert,
}

/// One cache.
struct Client {
    store: Store,
    database: Database,
    map: Map,
}

impl Client {
    fn new(server: &Server) -> Result<Client> {
        let store = Store::of_host(Arc::clone(server.host()));
        let database = store.database_or_create("bench")?;
        let map = database.map("bench")?;
        Ok(Client { store, database, map })
    }

    fn act(&self, kind: Kind, random: &mut Random, plan: &Plan, value: &[u8]) -> Result<()> {
        let known = key(random.next(plan.keys));
        match kind {
            Kind::Read => drop(self.database.get(self.map, &known)?.ok_or("a key is missing")?),
            Kind::Update => self.database.run(|transaction| {
                transaction.get(self.map, &known)?;
                transaction.put(self.map, &known, value)
            })?,
            Kind::Insert => {
                let new = key(random.next(u64::MAX >> 1) | 1 << 63);
                self.database.run(|transaction| transaction.put(self.map, &new, value))?;
            }
        }
        Ok(())
    }
}

/// All operations of a kind, by clients that know nothing; what they fetched.
fn measure(server: &Server, kind: Kind, plan: &Plan) -> Result<serde_json::Value> {
    let clients: Vec<Client> = (0..plan.clients).map(|_| Client::new(server)).collect::<Result<_>>()?;
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

/// Fetches of roots by these clients so far.
fn fetches(clients: &[Client]) -> u64 {
    clients.iter().map(|client| client.store.searches().root_fetches).sum()
}

pub(crate) fn run(plan: &Plan) -> Result<serde_json::Value> {
    let settings = Settings { node_cells_max: NODE_CELLS_MAX, ..Settings::default() };
    let listen = ListenOptions::default();
    let server = Server::start(None, settings, LogOptions::default(), listen)?;
    let loader = Client::new(&server)?;
    let value = vec![b'v'; plan.value_bytes];
    for number in 0..plan.keys {
        loader.database.put(loader.map, &key(number), &value)?;
    }
    let read = measure(&server, Kind::Read, plan)?;
    let update = measure(&server, Kind::Update, plan)?;
    let insert = measure(&server, Kind::Insert, plan)?;
    Ok(json!({ "clients": plan.clients, "read": read, "update": update, "insert": insert }))
}
