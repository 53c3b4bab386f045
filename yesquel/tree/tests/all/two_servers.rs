//! Transactions over trees at two servers.

use std::{cell::Cell, future::Future, sync::Arc, time::Duration};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, Now};
use yesquel_model::{ClusterMembership, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId};
use yesquel_server::Time;
use yesquel_transport::{HeartbeatSource, LostCall, ReplyHandler, Transport, block_on};
use yesquel_tree::{Splitter, Tree, TreeError, TreeTransaction, Trees};
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
    /// Whether a client that connects learns no time.
    hides_clock: Cell<bool>,
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
        Both { servers: [0, 1].map(server), is_full: Cell::new(false), hides_clock: Cell::new(false) }
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

    fn uptime(&self) -> Duration {
        // The servers' time does not pass by itself.
        Duration::ZERO
    }

    fn clock(&self) -> Timestamp {
        if self.hides_clock.get() { Timestamp::ZERO } else { self.servers[0].clock() }
    }

    fn home_group(&self) -> ServerId {
        self.servers[0].home_group()
    }

    fn set_heartbeat_source(&self, heartbeats: Arc<dyn HeartbeatSource>) {
        self.servers.iter().for_each(|server| server.set_heartbeat_source(Arc::clone(&heartbeats)));
    }
}

/// Round trips and requests of a client.
fn sent(trees: &Trees<&Both>) -> (u64, u64) {
    let counts = trees.client().counters().counts();
    (counts.requests - counts.overlapping, counts.requests)
}

/// Keys of trees at two servers are read at one snapshot in one round trip, and scanned in one, also
/// at the first use and where leaves have moved.
#[test]
fn several_trees_are_read_in_one_round_trip() {
    let both = Both::new();
    let writer = both.trees(1);
    let all = [0, 1].map(|server| block_on(writer.create(ServerId(server))).unwrap());
    let put_all = |value: &[u8]| {
        let mut txn = writer.begin();
        for tree in all {
            (0..3u8).for_each(|key| txn.put(tree, &[key], value).unwrap());
        }
        block_on(txn.commit()).unwrap();
    };
    put_all(b"old");
    let keys: Vec<(Tree, &[u8])> =
        all.iter().flat_map(|tree| [(*tree, &[0][..]), (*tree, &[2]), (*tree, &[9])]).collect();
    let get = |txn: &mut TreeTransaction<'_, &Both>| {
        let found = block_on(txn.get_many(&keys)).unwrap();
        found.iter().map(|value| value.as_ref().map(|value| value.to_vec())).collect::<Vec<_>>()
    };
    let is = |found: Vec<Option<Vec<u8>>>, value: &[u8]| {
        let found: Vec<Option<&[u8]>> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, [Some(value), Some(value), None].repeat(2));
    };
    let reader = both.trees(2);
    let mut first = reader.begin();
    is(get(&mut first), b"old");
    assert_eq!(sent(&reader), (1, 2));
    // One snapshot at both servers, which another read keeps.
    put_all(b"new");
    is(get(&mut first), b"old");
    assert_eq!(sent(&reader), (2, 4));
    // A client sees its own commits.
    is(get(&mut writer.begin()), b"new");
    // Own writes count, and cost no message.
    first.put(all[1], &[9], b"own").unwrap();
    let own = block_on(first.get_many(&[(all[1], &[9])])).unwrap();
    assert_eq!((own[0].as_deref(), sent(&reader)), (Some(&b"own"[..]), (2, 4)));
    // Scans.
    let mut scan = reader.begin();
    block_on(scan.prefetch(&all.map(|tree| (tree, &[][..])))).unwrap();
    assert_eq!(sent(&reader), (3, 6));
    for tree in all {
        let mut cursor = scan.cursor(tree);
        let mut next = block_on(cursor.seek(&mut scan, &[])).unwrap();
        let mut count = 0;
        while next.is_some() {
            count += 1;
            next = block_on(cursor.next(&mut scan)).unwrap();
        }
        assert_eq!(count, 3);
    }
    assert_eq!(sent(&reader), (3, 6));
    // A client without an estimate of the time asks one server first.
    both.hides_clock.set(true);
    let reader = both.trees(3);
    is(get(&mut reader.begin()), b"new");
    assert_eq!(sent(&reader), (2, 2));
    // From then on it has one.
    is(get(&mut reader.begin()), b"new");
    assert_eq!(sent(&reader), (3, 4));
}

/// A leaf that has moved, and a long value, cost further round trips, at the same snapshot.
#[test]
fn moved_leaves_and_long_values_are_read_with_others() {
    let both = Both::new();
    let (reader, writer) = (both.trees(1), both.trees(2));
    let all = [0, 1].map(|server| block_on(reader.create(ServerId(server))).unwrap());
    // The reader knows the root as a leaf.
    block_on(reader.begin().get(all[1], &[5])).unwrap();
    let mut txn = writer.begin();
    txn.put(all[0], &[5], &LONG).unwrap();
    (0..6u8).for_each(|key| txn.put(all[1], &[key], b"short").unwrap());
    block_on(txn.commit()).unwrap();
    assert_eq!(both.split(1), 1);
    // A read at one server takes its time, which the client has seen then.
    block_on(reader.begin().get(all[0], b"absent")).unwrap();
    let mut txn = reader.begin();
    let found = block_on(txn.get_many(&[(all[0], &[5]), (all[1], &[5]), (all[1], &[7])])).unwrap();
    let lengths: Vec<Option<usize>> = found.iter().map(|value| Some(value.as_ref()?.len())).collect();
    assert_eq!(lengths, [Some(LONG.len()), Some(b"short".len()), None]);
    let mut txn = reader.begin();
    block_on(txn.prefetch(&[(all[0], &[5]), (all[1], &[5])])).unwrap();
    assert_eq!(block_on(txn.get(all[1], &[5])).unwrap().as_deref(), Some(&b"short"[..]));
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

/// The nodes of long values may be at another server than the leaf; the transaction writes nothing
/// else there.
#[test]
fn the_nodes_of_a_long_value_may_be_at_another_server() {
    let both = Both::new();
    let (mut trees, reader) = (both.trees(1), both.trees(2));
    trees.place_values(|tree, key| ServerId((tree.root().server.0 + u16::from(key[0])) % 2));
    let all = [0, 1].map(|server| block_on(trees.create(ServerId(server))).unwrap());
    // A key whose owner takes several attributes, and a value of two nodes.
    let long_key = [[1; 100_000].as_slice(), b"key"].concat();
    let longer = vec![9; 600_000];
    let mut written: Vec<(Tree, &[u8], &[u8])> = Vec::new();
    for tree in all {
        written.extend([(tree, &[0][..], &LONG[..]), (tree, &[1], &LONG), (tree, &long_key, &longer)]);
    }
    for (tree, key, value) in &written {
        let mut txn = trees.begin();
        txn.put(*tree, key, value).unwrap();
        block_on(txn.commit()).unwrap();
    }
    let mut txn = trees.begin();
    written.iter().for_each(|(tree, key, value)| txn.put(*tree, key, value).unwrap());
    block_on(txn.commit()).unwrap();
    for server in 0..2 {
        let values =
            both.servers[server].core().status().trees.iter().map(|tree| tree.values).collect::<Vec<_>>();
        // One of the own tree, and two nodes and one of the other, twice: the first are not collected.
        assert_eq!(values.iter().sum::<u64>(), 2 * 4, "{values:?}");
    }
    let mut txn = reader.begin();
    for (tree, key, value) in &written {
        let found = block_on(txn.get(*tree, key)).unwrap();
        assert!(found.as_deref() == Some(*value), "{}", key.len());
    }
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

/// Clients that take spare numbers of a group need none of the home group, and each gets its own.
#[test]
fn spare_numbers_are_given_out_once() {
    let both = Both::new();
    let (machine, clients) = (both.trees(1), [both.trees(2), both.trees(3)]);
    let group = ServerId(0);
    let catalog = Tree::at(NodeId::root(TreeId::default(), group));
    block_on(machine.create_if_missing(catalog)).unwrap();
    let tree = block_on(machine.create(group)).unwrap();
    assert_eq!(block_on(machine.stock_spare_numbers(group)), Ok(true));
    assert_eq!(block_on(machine.stock_spare_numbers(group)), Ok(false));
    let put_long = |trees: &Trees<&Both>, key: &[u8]| {
        let mut txn = trees.begin();
        txn.put(tree, key, &LONG).unwrap();
        block_on(txn.commit()).unwrap();
    };
    let of_home = || {
        let counter = NodeId { tree: TreeId::default(), server: both.home_group(), local: LocalId(2) };
        block_on(machine.client().take(counter, 0, 0)).unwrap()
    };
    let before = of_home();
    for (trees, key) in clients.iter().zip([b"a", b"b"]) {
        trees.use_spare_numbers(Some(group));
        put_long(trees, key);
    }
    assert_eq!(of_home(), before);
    for key in [b"a", b"b"] {
        assert_eq!(block_on(machine.get(tree, key)).unwrap().as_deref(), Some(&LONG[..]));
    }
    // Without spare numbers, or with some that make no sense, they come from the home group.
    for wrong in [None, Some(&[0; 16][..]), Some(b"x")] {
        let mut txn = machine.begin();
        match wrong {
            Some(wrong) => txn.put(catalog, b"i", wrong).unwrap(),
            None => txn.delete(catalog, b"i").unwrap(),
        }
        block_on(txn.commit()).unwrap();
        let (trees, before) = (both.trees(4), of_home());
        trees.use_spare_numbers(Some(group));
        put_long(&trees, b"c");
        assert!(of_home() > before);
    }
    assert_eq!(block_on(machine.stock_spare_numbers(group)), Ok(true));
}

#[test]
fn a_long_value_for_a_dropped_tree_is_refused() {
    let both = Both::new();
    let trees = both.trees(1);
    let tree = block_on(trees.create(ServerId(0))).unwrap();
    let mut txn = trees.begin();
    txn.drop_tree(tree, &[]);
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

/// A transaction guards the copy at a group that it writes. Which one that is depends on where the leaves
/// are, so that its leases must cover all copies: another client's may have them at other groups.
#[test]
fn leases_of_a_transaction_cover_all_copies_of_a_guard() {
    let both = Both::new();
    let trees = both.trees(1);
    let copies = [0, 1].map(|server| block_on(trees.create(ServerId(server))).unwrap());
    let roots: Arc<[NodeId]> = copies.map(Tree::root).into();
    let range = KeyRange::single(b"schema");
    let mut transaction = trees.begin();
    transaction.guard_at_any(&roots, copies[0], range.clone());
    let touched: Vec<_> = transaction.touched().into_iter().collect();
    assert_eq!(touched, [(roots[0], range.clone()), (roots[1], range)]);
}
