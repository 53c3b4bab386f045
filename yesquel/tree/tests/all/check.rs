//! The check of a tree: what it finds in damaged trees, and that it finds nothing in others.

use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, LogRecord, SplitPlan};
use yesquel_model::{KeyRange, LocalId, NodeId, ServerId, Timestamp, TxnId};
use yesquel_server::WallTime;
use yesquel_transport::block_on;
use yesquel_tree::{
    NoDepartures, Splitter, Tree, TreeCheck, TreeCounts, TreeError, TreeFault, TreeTransaction, Trees,
};
use yesquel_wire::{
    Answer, Attribute, Expect, NewNode, NodeKind, NodeOperation, OWNER_ATTRIBUTE, Operations, WriteOperation,
    status::NodeStatus,
};

const SERVER: ServerId = ServerId(0);
const KEYS: u64 = 300;
/// A value of two nodes.
const LONG_BYTES: usize = 600_000;

struct Place {
    server: EmbeddedServer,
    trees: Trees<EmbeddedServer>,
    tree: Tree,
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn node_of(status: &NodeStatus) -> NodeId {
    NodeId::from_bits(u128::from_str_radix(&status.id, 16).unwrap())
}

fn range_of(status: &NodeStatus) -> KeyRange {
    let bytes = |hex: &String| -> Box<[u8]> {
        let digits = (0..hex.len()).step_by(2);
        digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    KeyRange { low: bytes(&status.low), high: status.high.as_ref().map(bytes) }
}

impl Place {
    /// A tree of three levels.
    fn new() -> Place {
        let settings =
            EngineSettings { node_cells_max: 8, report_bytes_max: usize::MAX, ..EngineSettings::default() };
        let server = EmbeddedServer::in_memory(settings, WallTime::default());
        let trees = Trees::new(Client::new(server.clone(), 1));
        let tree = block_on(trees.create(SERVER)).unwrap();
        let place = Place { server, trees, tree };
        let mut transaction = place.trees.begin();
        (0..KEYS).for_each(|number| transaction.put(tree, &key(number), b"value").unwrap());
        transaction.put(tree, b"long", &[7; LONG_BYTES]).unwrap();
        block_on(transaction.commit()).unwrap();
        place.split();
        place
    }

    /// Splits and removes nodes as a server does.
    fn split(&self) {
        let splitter = Splitter::new(SERVER);
        loop {
            let full = self.server.with_engine(Engine::take_full);
            for node in &full {
                let SplitPlan { parts, mostly_obsolete, .. } =
                    self.server.with_engine(|engine| engine.split_plan(*node));
                block_on(splitter.split_into(&self.trees, *node, parts, mostly_obsolete)).unwrap();
            }
            if full.is_empty() {
                return;
            }
        }
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        self.server.with_engine(|engine| engine.nodes_of(self.tree.root().tree, None)).nodes
    }

    /// The leaves, in the order of their keys.
    fn leaves(&self) -> Vec<(NodeId, KeyRange)> {
        self.server.with_engine(|engine| engine.leaves_of(self.tree.root().tree))
    }

    /// The inner node that leads to a node.
    fn parent(&self, node: NodeId) -> NodeId {
        let id = format!("{:032x}", node.to_bits());
        let nodes = self.nodes();
        node_of(nodes.iter().find(|status| status.children.contains(&id)).unwrap())
    }

    /// Applies a write without the checks of a server, which would refuse most of these.
    fn write(&self, node: NodeId, write: WriteOperation<'_>) {
        let bytes = Operations::encode(&[NodeOperation { node, write }]);
        let operations = Operations::decode(&bytes).unwrap();
        self.server.with_engine(|engine| {
            let at = Timestamp(engine.last_timestamp().0 + 1);
            let (txn, birth) = (TxnId { client: 2, number: at.0 }, at);
            engine.replay(&LogRecord::Commit { txn, birth, at, staged: None, operations });
        });
    }

    /// A transaction with a snapshot of now.
    fn now(&self) -> TreeTransaction<'_, EmbeddedServer> {
        let mut transaction = self.trees.begin();
        // The tree may be damaged: any node gives a snapshot.
        let other = block_on(self.trees.create(SERVER)).unwrap();
        block_on(transaction.get(other, b"")).unwrap();
        transaction
    }

    fn check_at(&self, transaction: &TreeTransaction<'_, EmbeddedServer>) -> (Vec<TreeFault>, TreeCounts) {
        let mut check = TreeCheck::new(&self.trees, self.tree, transaction.snapshot().unwrap());
        while block_on(check.step()).unwrap() {}
        let listed = self.nodes().iter().map(node_of).collect::<Vec<_>>();
        let mut faults = check.take_faults();
        let unreached = block_on(check.unreached(listed)).unwrap();
        faults.extend(unreached.into_iter().map(|node| TreeFault::Unreached { node }));
        (faults, check.counts())
    }

    fn faults(&self) -> Vec<TreeFault> {
        self.check_at(&self.now()).0
    }

    /// The first node of the long value.
    fn value(&self) -> NodeId {
        let (leaf, _) = self.leaves().into_iter().find(|(_, range)| range.contains(b"long")).unwrap();
        let see = |answer: Answer<'_>| match answer {
            Answer::Large(large) => Some(large.first_node(leaf.tree)),
            _ => None,
        };
        block_on(self.trees.client().lookup(&mut None, leaf, b"long", see)).unwrap()
    }
}

#[test]
fn a_whole_tree_has_no_faults() {
    let place = Place::new();
    let before = place.now();
    let (faults, counts) = place.check_at(&before);
    assert_eq!(faults, []);
    assert_eq!((counts.keys, counts.long_values, counts.without_owner), (KEYS + 1, 1, 0));
    let leaves = place.leaves().len() as u64;
    assert_eq!((counts.leaves, counts.nodes()), (leaves, place.nodes().len() as u64));
    assert!(counts.inner_nodes > 2, "{counts:?}");
    // Writes, splits and removed leaves after the snapshot.
    let mut transaction = place.trees.begin();
    (0..KEYS).for_each(|number| transaction.delete(place.tree, &key(number)).unwrap());
    (KEYS..2 * KEYS).for_each(|number| transaction.put(place.tree, &key(number), b"").unwrap());
    transaction.put(place.tree, b"long", b"short now").unwrap();
    block_on(transaction.commit()).unwrap();
    place.split();
    let splitter = Splitter::new(SERVER);
    for (leaf, range) in place.leaves() {
        if range.high.is_some_and(|high| *high < *key(KEYS)) {
            block_on(splitter.remove(&place.trees, leaf, &NoDepartures)).unwrap();
        }
    }
    assert_eq!(place.check_at(&before), (vec![], counts));
    let (faults, counts) = place.check_at(&place.now());
    assert_eq!((faults, counts.keys, counts.long_values), (vec![], KEYS + 1, 0));
}

#[test]
fn wrong_links_are_found() {
    // A child that no cell names any more.
    let place = Place::new();
    let before = place.now();
    let (leaf, range) = place.leaves()[1].clone();
    let ((first, first_range), parent) = (place.leaves()[0].clone(), place.parent(leaf));
    assert_eq!(place.parent(first), parent);
    place.write(parent, WriteOperation::Unlink { key: &range.low });
    let expected = KeyRange { low: first_range.low.clone(), high: range.high.clone() };
    let fence = TreeFault::Fence { node: first, fence: first_range.clone(), expected };
    assert_eq!(place.faults(), [fence, TreeFault::Unreached { node: leaf }]);
    // Before that, the tree was whole.
    assert_eq!(place.check_at(&before).0, []);

    // The first child.
    let place = Place::new();
    let (leaf, range) = place.leaves()[0].clone();
    let ((_, next), parent) = (place.leaves()[1].clone(), place.parent(leaf));
    place.write(parent, WriteOperation::Unlink { key: &range.low });
    let gap = TreeFault::Gap { node: parent, key: next.low, low: range.low };
    assert_eq!(place.faults(), [gap, TreeFault::Unreached { node: leaf }]);

    // A child that two cells name.
    let place = Place::new();
    let leaves = place.leaves();
    let (leaf, range) = leaves[0].clone();
    let parent = place.parent(leaf);
    let within = [&*range.low, b"j"].concat();
    assert!(range.contains(&within), "{range:?}");
    place.write(parent, WriteOperation::Link { key: &within, child: leaf });
    let expected = KeyRange::new(range.low.clone(), within);
    let fence = TreeFault::Fence { node: leaf, fence: range, expected };
    assert_eq!(place.faults(), [fence, TreeFault::ReachedTwice { node: leaf, parent: Some(parent) }]);

    // A node that does not exist, and the root.
    let place = Place::new();
    let (leaf, range) = place.leaves()[1].clone();
    let parent = place.parent(leaf);
    let missing = NodeId { local: LocalId(u64::MAX), ..leaf };
    place.write(parent, WriteOperation::Link { key: &range.low, child: missing });
    let faults =
        [TreeFault::Missing { node: missing, parent: Some(parent) }, TreeFault::Unreached { node: leaf }];
    assert_eq!(place.faults(), faults);
    place.write(parent, WriteOperation::Link { key: &range.low, child: place.tree.root() });
    assert!(place.faults().contains(&TreeFault::Link { node: parent, key: range.low }));
}

#[test]
fn lost_and_left_nodes_are_found() {
    let place = Place::new();
    let (leaf, _) = place.leaves()[3].clone();
    let parent = place.parent(leaf);
    place.write(leaf, WriteOperation::Drop);
    assert_eq!(place.faults(), [TreeFault::Missing { node: leaf, parent: Some(parent) }]);

    let place = Place::new();
    let left = NodeId { local: LocalId(u64::MAX), ..place.tree.root() };
    let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::from(*b"k") };
    let before = place.now();
    place.write(left, WriteOperation::Create(new));
    assert_eq!(place.faults(), [TreeFault::Unreached { node: left }]);
    // It is younger than this snapshot.
    assert_eq!(place.check_at(&before).0, []);

    let place = Place::new();
    let inner = place.parent(place.leaves()[0].0);
    let status = place.nodes().into_iter().find(|status| node_of(status) == inner).unwrap();
    let children = place.leaves();
    let children = children.iter().filter(|(_, range)| range_of(&status).covers(range));
    children.for_each(|(_, range)| place.write(inner, WriteOperation::Unlink { key: &range.low }));
    assert!(place.faults().contains(&TreeFault::NoChild { node: inner }));

    let place = Place::new();
    place.write(place.tree.root(), WriteOperation::DropTree);
    let now = place.now();
    let mut check = TreeCheck::new(&place.trees, place.tree, now.snapshot().unwrap());
    assert_eq!(block_on(check.step()), Err(TreeError::NoTree(place.tree.root().tree)));
}

#[test]
fn damaged_long_values_are_found() {
    let key: Box<[u8]> = (*b"long").into();
    let pieces = |node| TreeFault::Pieces { node, key: key.clone() };
    let second = |first: NodeId| NodeId { local: LocalId(first.local.0 + 1), ..first };

    let place = Place::new();
    place.write(second(place.value()), WriteOperation::Drop);
    assert_eq!(place.faults(), [pieces(second(place.value()))]);

    // A piece that is too short, and one too many.
    let place = Place::new();
    let first = place.value();
    let put = |node, piece: u32, value| {
        let (key, expect) = (&piece.to_be_bytes(), Expect::Any);
        place.write(node, WriteOperation::Put { key, value, expect, is_large: false });
    };
    put(first, 3, b"short");
    put(second(first), 9, b"more!");
    assert_eq!(place.faults(), [pieces(first), pieces(second(first))]);

    let place = Place::new();
    let first = place.value();
    let owner = |value| WriteOperation::Set(Attribute { id: OWNER_ATTRIBUTE, value });
    place.write(first, owner(Some(b"another")));
    assert_eq!(place.faults(), [TreeFault::Owner { node: first, key: key.clone() }]);
    // Values of earlier releases have none.
    place.write(first, owner(None));
    let (faults, counts) = place.check_at(&place.now());
    assert_eq!((faults, counts.without_owner), (vec![], 1));
}
