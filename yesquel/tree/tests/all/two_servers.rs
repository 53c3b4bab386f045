//! Transactions over trees at two servers.

use std::{cell::Cell, future::Future, sync::Arc};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, Now};
use yesquel_model::{ClusterMembership, Refusal, ServerId};
use yesquel_server::Time;
use yesquel_transport::{HeartbeatSource, LostCall, ReplyHandler, Transport, block_on};
use yesquel_tree::{Splitter, TreeError, Trees};
use yesquel_wire::{Reply, Request};

/// Clock that advances at every reading.
struct Steps(u64);

impl Time for Steps {
    fn now(&mut self) -> Now {
        self.0 += 1;
        Now { wall_ms: 1_000_000 + self.0, uptime_ms: self.0 }
    }
}

/// Two servers in this process.
struct Both {
    servers: [EmbeddedServer; 2],
    /// Whether the second server's disk fills up as it receives decisions.
    is_full: Cell<bool>,
}

impl Both {
    fn new() -> Both {
        let server = |number| {
            let settings =
                EngineSettings { server: ServerId(number), node_cells_max: 4, ..EngineSettings::default() };
            let server = EmbeddedServer::in_memory(settings, Steps(0));
            let home_group = ServerId(1);
            server.core().join(ClusterMembership { home_group, ..ClusterMembership::default() });
            server
        };
        Both { servers: [0, 1].map(server), is_full: Cell::new(false) }
    }

    fn trees(&self, client: u64) -> Trees<&Both> {
        Trees::new(Client::new(self, client))
    }

    /// The answer of a server that cannot log a decision, if it is one.
    fn refused(&self, server: ServerId, request: &[u8]) -> Option<Vec<u8>> {
        let is_decision = matches!(Request::decode(request).unwrap(), Request::Decide { .. });
        let mut bytes = Vec::new();
        Reply::Refused { operation: None, refusal: Refusal::DiskFailed }.write(&mut bytes);
        (self.is_full.get() && server == ServerId(1) && is_decision).then_some(bytes)
    }

    /// Splits the large nodes of a server. Returns their number.
    fn split(&self, number: usize) -> usize {
        let server = &self.servers[number];
        let trees = self.trees(1_000 + number as u64);
        let splitter = Splitter::new(ServerId(number as u16));
        let full = server.with_engine(Engine::take_full);
        full.into_iter().filter(|node| block_on(splitter.split(&trees, *node)).unwrap()).count()
    }
}

impl Transport for Both {
    fn call<'a>(
        &'a self,
        server: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        self.servers[usize::from(server.0)].call(server, request)
    }

    fn send(&self, server: ServerId, request: &[u8], handler: ReplyHandler) {
        match self.refused(server, request) {
            Some(refused) => handler(Ok(&refused)),
            None => self.servers[usize::from(server.0)].send(server, request, handler),
        }
    }

    fn home_group(&self) -> ServerId {
        self.servers[0].home_group()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        self.servers.iter().for_each(|server| server.set_heartbeat_source(Arc::clone(&heartbeats)));
    }
}

static LONG: [u8; 40_000] = [7; 40_000];

/// The server that voted has consumed the pieces of the large value before the other one reported a
/// moved key.
#[test]
fn a_split_elsewhere_does_not_end_a_transaction_with_a_long_value() {
    let both = Both::new();
    let trees = both.trees(1);
    let [first, second] = [0, 1].map(|server| block_on(trees.create(ServerId(server))).unwrap());
    let put_all = |trees: &Trees<&Both>| {
        let mut txn = trees.begin();
        (0..6u8).for_each(|key| txn.put(second, &[key], b"short").unwrap());
        block_on(txn.commit()).unwrap();
    };
    put_all(&both.trees(2));
    assert_eq!(both.split(1), 1);
    let mut txn = trees.begin();
    txn.put(first, b"long", &LONG).unwrap();
    txn.put(second, &[3], b"other").unwrap();
    block_on(txn.commit()).unwrap();
    let reader = both.trees(3);
    let mut txn = reader.begin();
    assert_eq!(block_on(txn.get(first, b"long")).unwrap().as_deref(), Some(&LONG[..]));
    assert_eq!(block_on(txn.get(second, &[3])).unwrap().as_deref(), Some(&b"other"[..]));
}

/// Servers number issuers independently: equal numbers occur.
#[test]
fn each_server_numbers_its_nodes_independently() {
    let both = Both::new();
    let (one, other) = (both.trees(1), both.trees(2));
    let [first, second] = [0, 1].map(|server| block_on(one.create(ServerId(server))).unwrap());
    for (trees, tree, key) in [(&one, second, b"a"), (&other, first, b"b"), (&one, first, b"c")] {
        let mut txn = trees.begin();
        txn.put(tree, key, &LONG).unwrap();
        block_on(txn.commit()).unwrap();
    }
}

#[test]
fn a_long_value_for_a_dropped_tree_is_refused() {
    let both = Both::new();
    let trees = both.trees(1);
    let tree = block_on(trees.create(ServerId(0))).unwrap();
    let mut txn = trees.begin();
    txn.drop_tree(tree);
    block_on(txn.commit()).unwrap();
    let mut txn = trees.begin();
    txn.put(tree, b"long", &LONG).unwrap();
    assert_eq!(block_on(txn.commit()), Err(TreeError::NoTree(tree.root().tree)));
}

/// The end of a transaction is kept for a server that has voted and could not log the decision, as
/// that server will ask for it.
#[test]
fn an_end_is_kept_for_a_server_that_could_not_log_it() {
    let both = Both::new();
    let trees = both.trees(1);
    let all = [0, 1].map(|server| block_on(trees.create(ServerId(server))).unwrap());
    let commit = |key: u8| {
        let mut txn = trees.begin();
        all.iter().for_each(|tree| txn.put(*tree, &[key], b"value").unwrap());
        block_on(txn.commit()).unwrap();
        // The client reports what is settled; it goes into the log with the next commit.
        both.servers.iter().for_each(EmbeddedServer::tick);
        both.servers[0].core().status().transactions.ends
    };
    both.is_full.set(true);
    assert_eq!([0, 1, 2].map(commit), [1, 2, 3]);
    both.is_full.set(false);
    // Its client decides anew.
    commit(3);
    assert!(commit(4) <= 2);
}
