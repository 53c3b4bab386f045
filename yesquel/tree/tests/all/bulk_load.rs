//! Bulk-loaded trees against a reference, and the cleanup after transactions that did not commit.
//!
//! A seed draws the steps; `SEEDS=from..to` chooses seeds. A failing list is shortened.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use yesquel_client::Client;
use yesquel_embedded::EmbeddedServer;
use yesquel_engine::{Engine, EngineSettings, Now, SplitPlan};
use yesquel_model::{KeyRange, ServerId};
use yesquel_seeds::{Random, check_steps};
use yesquel_server::Time;
use yesquel_transport::block_on;
use yesquel_tree::{
    LoadRegistration, NoDepartures, Savepoint, Splitter, Tree, TreeError, TreeTransaction, Trees,
    UnfinishedLoad,
};

const SERVER: ServerId = ServerId(0);
const KEYS: u64 = 60;

/// Clock that advances at every reading.
struct Steps(u64);

impl Time for Steps {
    fn now(&mut self) -> Now {
        self.0 += 7;
        Now { wall_ms: 1_000_000 + self.0, uptime_ms: self.0 }
    }
}

fn server() -> EmbeddedServer {
    let settings = EngineSettings { grace_ms: 1_000, node_cells_max: 4, ..EngineSettings::default() };
    EmbeddedServer::in_memory(settings, Steps(0))
}

fn trees(server: &EmbeddedServer, client: u64) -> Trees<EmbeddedServer> {
    Trees::new(Client::new(server.clone(), client))
}

#[derive(Debug, Clone)]
enum Step {
    Create,
    Get(usize, u64),
    Walk(usize, Option<u64>, u64, bool),
    /// A value of one byte, or a large one.
    Put(usize, u64, u8, bool),
    Insert(usize, u64, u8),
    Delete(usize, u64),
    DeleteRange(usize, u64, u64),
    Savepoint,
    Release(usize),
    RollbackTo(usize),
    Send,
    Split,
    /// Another transaction writes to the tree that existed before.
    Other(u64, u8),
    DropTree(usize),
    RollbackAll,
}

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let count = 20 + random.next(150);
    (0..count)
        .map(|at| {
            let (tree, key, other) = (random.next(4) as usize, random.next(KEYS), random.next(KEYS));
            let value = random.next(250) as u8;
            match random.next(64) {
                _ if at == 0 => Step::Create,
                0..2 => Step::Create,
                2..10 => Step::Get(tree, key),
                10..16 => {
                    let from = (random.next(3) > 0).then_some(key);
                    Step::Walk(tree, from, random.next(12), random.next(2) == 0)
                }
                16..30 => Step::Put(tree, key, value, random.next(30) == 0),
                30..35 => Step::Insert(tree, key, value),
                35..39 => Step::Delete(tree, key),
                39..41 => Step::DeleteRange(tree, key, other),
                41..44 => Step::Savepoint,
                44..47 => Step::Release(random.next(3) as usize),
                47..49 => Step::RollbackTo(random.next(3) as usize),
                49..56 => Step::Send,
                56..60 => Step::Split,
                60..62 => Step::Other(key, value),
                62 => Step::DropTree(tree),
                _ if random.next(4) == 0 => Step::RollbackAll,
                _ => Step::Send,
            }
        })
        .collect()
}

fn key(number: u64) -> Vec<u8> {
    let mut key = vec![b'a' + (number % 5) as u8; 1 + (number % 3) as usize];
    key.push((number * 37 % 251) as u8);
    key
}

fn range(from: u64, to: u64) -> KeyRange {
    let (from, to) = (key(from), key(to));
    if from <= to { KeyRange::new(from, to) } else { KeyRange::new(to, from) }
}

fn bytes(value: u8, is_long: bool) -> Vec<u8> {
    vec![value; if is_long { 40_000 } else { 1 }]
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Trees of the transaction; the first existed before. `None`: dropped.
type World = Vec<(Tree, Option<State>)>;

struct Run<'a> {
    server: EmbeddedServer,
    others: &'a Trees<EmbeddedServer>,
    list: Tree,
    txn: TreeTransaction<'a, EmbeddedServer>,
    world: World,
    savepoints: Vec<(Savepoint, World)>,
    /// Writes of others to the tree that existed before, which the transaction does not see.
    others_wrote: BTreeMap<Vec<u8>, Vec<u8>>,
    before: State,
}

static SENT: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static SPLITS: AtomicU64 = AtomicU64::new(0);

impl Run<'_> {
    fn pick(&self, tree: usize) -> Option<usize> {
        let which = tree % self.world.len();
        self.world[which].1.is_some().then_some(which)
    }

    fn state(&mut self, which: usize) -> (Tree, &mut State) {
        let (tree, state) = &mut self.world[which];
        (*tree, state.as_mut().unwrap())
    }

    fn step(&mut self, step: &Step) {
        self.server.tick();
        match *step {
            Step::Create => {
                let tree = block_on(self.others.new_tree(SERVER)).unwrap();
                let key = tree.root().to_bits().to_be_bytes();
                self.txn.create_bulk_loaded_tree(
                    tree,
                    &[],
                    LoadRegistration { list: self.list, key: key[..].into() },
                );
                self.world.push((tree, Some(State::new())));
            }
            Step::Get(tree, number) => {
                let Some(which) = self.pick(tree) else { return };
                let (tree, state) = self.state(which);
                let expected = state.get(&key(number)).cloned();
                let found = block_on(self.txn.get(tree, &key(number))).unwrap();
                assert_eq!(found.map(Vec::from), expected);
            }
            Step::Walk(tree, number, steps, down) => self.walk(tree, number, steps, down),
            Step::Put(tree, number, value, is_long) => {
                let Some(which) = self.pick(tree) else { return };
                let (tree, state) = self.state(which);
                state.insert(key(number), bytes(value, is_long));
                self.txn.put(tree, &key(number), &bytes(value, is_long)).unwrap();
            }
            Step::Insert(tree, number, value) => {
                let Some(which) = self.pick(tree) else { return };
                let (tree, state) = self.state(which);
                let is_there = state.contains_key(&key(number));
                // After a flush an insert among the keys needs a lookup; in trees of others the
                // commit checks.
                if which == 0 || (is_there && self.txn.may_be_flushed(tree, &key(number))) {
                    return;
                }
                let done = self.txn.insert(tree, &key(number), &[value]);
                if is_there {
                    assert_eq!(done, Err(TreeError::Exists));
                } else {
                    assert_eq!(done, Ok(()));
                    self.state(which).1.insert(key(number), vec![value]);
                }
            }
            Step::Delete(tree, number) => {
                let Some(which) = self.pick(tree) else { return };
                let (tree, state) = self.state(which);
                state.remove(&key(number));
                self.txn.delete(tree, &key(number)).unwrap();
            }
            Step::DeleteRange(tree, from, to) => {
                let Some(which) = self.pick(tree) else { return };
                let (tree, state) = self.state(which);
                state.retain(|key, _| !range(from, to).contains(key));
                self.txn.delete_range(tree, &range(from, to));
            }
            Step::Savepoint => {
                let world = self.world.clone();
                self.savepoints.push((self.txn.savepoint(), world));
            }
            Step::Release(back) => {
                if let Some(place) = self.savepoints.len().checked_sub(back + 1) {
                    self.txn.release(self.savepoints[place].0).unwrap();
                    let gone = self.savepoints.split_off(place);
                    gone.iter().for_each(|(gone, _)| assert!(self.txn.rollback_to(*gone).is_err()));
                }
            }
            Step::RollbackTo(back) => {
                if let Some(place) = self.savepoints.len().checked_sub(back + 1) {
                    self.txn.rollback_to(self.savepoints[place].0).unwrap();
                    let gone = self.savepoints.split_off(place + 1);
                    gone.iter().for_each(|(gone, _)| assert!(self.txn.rollback_to(*gone).is_err()));
                    self.world.clone_from(&self.savepoints[place].1);
                }
            }
            Step::Send => {
                if self.txn.should_flush() {
                    block_on(self.txn.flush_bulk_loads()).unwrap();
                }
            }
            Step::Split => split(&self.server, self.others),
            Step::Other(number, value) => {
                let mut other = self.others.begin();
                other.put(self.world[0].0, &key(number), &[value]).unwrap();
                block_on(other.commit()).unwrap();
                self.others_wrote.insert(key(number), vec![value]);
            }
            Step::DropTree(tree) => {
                if let Some(which) = self.pick(tree).filter(|which| *which > 0) {
                    self.txn.drop_tree(self.world[which].0, &[]);
                    self.world[which].1 = None;
                }
            }
            Step::RollbackAll => {
                self.txn.rollback_all();
                self.savepoints.clear();
                self.world.truncate(1);
                self.world[0].1 = Some(self.before.clone());
            }
        }
    }

    fn walk(&mut self, tree: usize, number: Option<u64>, steps: u64, down: bool) {
        let Some(which) = self.pick(tree) else { return };
        let (tree, state) = self.state(which);
        let mut expected: Vec<_> = state.clone().into_iter().collect();
        let start = number.map(key);
        if down {
            expected.reverse();
            expected.retain(|(key, _)| start.as_ref().is_none_or(|start| key <= start));
        } else {
            expected.retain(|(key, _)| start.as_ref().is_none_or(|start| key >= start));
        }
        expected.truncate(steps as usize + 1);
        let txn = &mut self.txn;
        let mut cursor = txn.cursor(tree);
        let found: Vec<(Vec<u8>, Vec<u8>)> = block_on(async {
            let mut next = match (&start, down) {
                (None, false) => cursor.first(txn).await,
                (None, true) => cursor.last(txn).await,
                (Some(key), false) => cursor.seek(txn, key).await,
                (Some(key), true) => cursor.seek_back(txn, key).await,
            }
            .unwrap();
            let mut found = Vec::new();
            while let Some((key, value)) = next {
                found.push((key.into(), value.into()));
                if found.len() > steps as usize {
                    break;
                }
                next = if down { cursor.previous(txn).await } else { cursor.next(txn).await }.unwrap();
            }
            found
        });
        assert_eq!(found, expected);
    }
}

fn split(server: &EmbeddedServer, trees: &Trees<EmbeddedServer>) {
    for node in server.with_engine(Engine::take_full) {
        let SplitPlan { parts, mostly_obsolete, .. } = server.with_engine(|engine| engine.split_plan(node));
        let split = block_on(Splitter::new(SERVER).split_into(trees, node, parts, mostly_obsolete)).unwrap();
        SPLITS.fetch_add(u64::from(split), Relaxed);
    }
    for node in server.with_engine(Engine::take_empty) {
        block_on(Splitter::new(SERVER).remove(trees, node, &NoDepartures)).unwrap();
    }
    server.with_engine(|engine| engine.audit()).unwrap();
}

/// Reads a whole tree with an empty cache.
fn all_of(server: &EmbeddedServer, tree: Tree) -> Result<State, TreeError> {
    let trees = trees(server, 99);
    let mut txn = trees.begin();
    let (mut all, mut cursor) = (State::new(), txn.cursor(tree));
    block_on(async {
        let mut next = cursor.first(&mut txn).await?;
        while let Some((key, value)) = next {
            all.insert(key.into(), value.into());
            next = cursor.next(&mut txn).await?;
        }
        Ok(all)
    })
}

fn run(steps: &[Step]) {
    let server = server();
    let (others, own) = (trees(&server, 1), trees(&server, 2));
    // So few bytes that nearly everything is flushed, in several parts.
    own.set_bulk_load_bytes(150);
    let (list, before) = (block_on(others.create(SERVER)).unwrap(), block_on(others.create(SERVER)).unwrap());
    let mut first = others.begin();
    let state: State = (0..KEYS).step_by(3).map(|number| (key(number), vec![number as u8])).collect();
    state.iter().for_each(|(key, value)| first.put(before, key, value).unwrap());
    block_on(first.commit()).unwrap();
    let mut txn = own.begin();
    // It has a snapshot before it creates anything, like transactions that look up a name.
    block_on(txn.get(before, b"")).unwrap();
    let mut run = Run {
        server: server.clone(),
        others: &others,
        list,
        txn,
        world: vec![(before, Some(state.clone()))],
        savepoints: Vec::new(),
        others_wrote: BTreeMap::new(),
        before: state.clone(),
    };
    steps.iter().for_each(|step| run.step(step));

    let Run { mut txn, world, others_wrote, .. } = run;
    SENT.fetch_add(all_of(&server, list).unwrap().len() as u64, Relaxed);
    block_on(txn.finish_bulk_loads()).unwrap();
    let outcome = block_on(txn.try_commit());
    let is_committed = outcome.is_ok();
    match outcome {
        Ok(_) => {}
        Err(error) if error.is_conflict() => assert!(!others_wrote.is_empty(), "{error}"),
        Err(error) => panic!("{error}"),
    }
    LOST.fetch_add(u64::from(!is_committed), Relaxed);
    block_on(txn.settle_bulk_loads(is_committed)).unwrap();
    split(&server, &others);
    for (tree, state) in world.iter().skip(1) {
        match (state, is_committed) {
            (Some(state), true) => assert_eq!(all_of(&server, *tree).as_ref(), Ok(state)),
            _ => assert_eq!(all_of(&server, *tree), Err(TreeError::NoTree(tree.root().tree))),
        }
    }
    if !is_committed {
        let mut now = state;
        now.extend(others_wrote);
        assert_eq!(all_of(&server, before), Ok(now));
    }
    assert_eq!(all_of(&server, list), Ok(State::new()), "all entries are removed");
}

#[test]
fn every_seed_agrees_with_the_reference() {
    check_steps(2_000, steps, run);
    let counts = [&SENT, &LOST, &SPLITS].map(|count| count.load(Relaxed));
    println!("{counts:?} trees sent ahead, transactions lost, splits");
    assert!(std::env::var("SEEDS").is_ok() || counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// Returns a transaction that has flushed a tree.
fn filled<'a>(trees: &'a Trees<EmbeddedServer>, list: Tree) -> (TreeTransaction<'a, EmbeddedServer>, Tree) {
    trees.set_bulk_load_bytes(1);
    let mut txn = trees.begin();
    block_on(txn.get(list, b"")).unwrap();
    let tree = block_on(trees.new_tree(SERVER)).unwrap();
    txn.create_bulk_loaded_tree(tree, &[], LoadRegistration { list, key: b"t"[..].into() });
    txn.put(tree, b"a", b"1").unwrap();
    assert!(txn.should_flush() && txn.has_flushed_nothing());
    block_on(txn.flush_bulk_loads()).unwrap();
    assert!(!txn.should_flush() && !txn.has_flushed_nothing());
    (txn, tree)
}

#[test]
fn an_entry_shows_whether_its_transaction_can_still_commit() {
    let server = server();
    let (own, other) = (trees(&server, 1), trees(&server, 2));
    let list = block_on(own.create(SERVER)).unwrap();
    let (txn, tree) = filled(&own, list);
    let wait = || {
        for _ in 0..2_000 {
            server.tick();
            // The held snapshot is reported with the requests.
            let mut txn = own.begin();
            block_on(txn.get(list, b"t")).unwrap();
        }
    };
    wait();
    let entry = block_on(other.begin().get(list, b"t")).unwrap().unwrap();
    let entry = UnfinishedLoad::decode(&entry).unwrap();
    assert_eq!((entry.tree, Some(entry.snapshot)), (tree, txn.snapshot()));
    assert!(block_on(other.is_snapshot_readable(list, entry.snapshot)).unwrap());
    assert_eq!(UnfinishedLoad::decode(b"short"), None);
    // Like the transaction of a client that dies.
    drop(txn);
    wait();
    assert!(!block_on(other.is_snapshot_readable(list, entry.snapshot)).unwrap());
}

#[test]
fn writes_of_unknown_arrival_are_not_committed() {
    let server = server();
    let own = trees(&server, 1);
    let list = block_on(own.create(SERVER)).unwrap();
    let (mut txn, tree) = filled(&own, list);
    // Another transaction drops the tree.
    let mut other = own.begin();
    other.drop_tree(tree, &[]);
    block_on(other.commit()).unwrap();
    txn.put(tree, b"b", b"2").unwrap();
    let gone = Err(TreeError::NoTree(tree.root().tree));
    assert_eq!(block_on(txn.flush_bulk_loads()), gone);
    assert_eq!(block_on(txn.try_commit()).map(drop), gone);
    assert_eq!(block_on(txn.finish_bulk_loads()), gone);
    // A rollback removes everything else.
    txn.rollback_all();
    assert_eq!(block_on(txn.try_commit()).map(drop), Ok(()));
}

#[test]
fn keys_above_all_sent_keys_cost_no_request() {
    let server = server();
    let own = trees(&server, 1);
    let list = block_on(own.create(SERVER)).unwrap();
    let (mut txn, tree) = filled(&own, list);
    let asked = txn.asked();
    assert_eq!(block_on(txn.get(tree, b"a\0")), Ok(None));
    let mut cursor = txn.cursor(tree);
    assert_eq!(block_on(cursor.seek(&mut txn, b"b")), Ok(None));
    assert_eq!(txn.asked(), asked);
    assert_eq!(block_on(txn.get(tree, b"a")), Ok(Some(b"1"[..].into())));
    assert_eq!(txn.asked(), asked + 1);
}

#[test]
fn a_tree_that_is_read_often_is_not_sent_early() {
    let server = server();
    let own = trees(&server, 1);
    let list = block_on(own.create(SERVER)).unwrap();
    own.set_bulk_load_bytes(10_000);
    let mut txn = own.begin();
    let [looked_for, written] = [0, 1].map(|at| {
        let tree = block_on(own.new_tree(SERVER)).unwrap();
        txn.create_bulk_loaded_tree(tree, &[], LoadRegistration { list, key: [at][..].into() });
        tree
    });
    for number in 0..1_000_u32 {
        // In pseudo-random order, with a lookup before each write.
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        assert_eq!(block_on(txn.get(looked_for, &key)), Ok(None));
        txn.put(looked_for, &key, b"").unwrap();
        txn.put(written, &key, b"").unwrap();
        if txn.should_flush() {
            block_on(txn.flush_bulk_loads()).unwrap();
        }
    }
    let is_at_server = |tree| all_of(&server, tree).is_ok();
    assert!(is_at_server(written) && !is_at_server(looked_for));
    // Only its snapshot, before the first tree was registered.
    assert_eq!(txn.asked(), 1);
}
