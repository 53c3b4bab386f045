//! A server that is killed repeatedly by SIGKILL, under load, during checkpoints and during
//! recovery: everything acknowledged or read survives, and no transaction survives in part.
//!
//! Each writer numbers its transactions without gaps, and the content of the maps after `n` of them
//! is a function of `n`: so the content is compared to the last byte.
//!
//! `KILLS=1000` sets the number of kills, `SEED=7` repeats the same instants, and `SERVER_GROUPS=3` distributes
//! the maps over so many groups of the server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support;

use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    process::Command,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};
use support::Process;
use yesquel::{
    Address, Database, Error, Map, Placement, Refusal, SocketOptions, Store, Transaction,
    status::{NodeStatus, TreeNodes},
};
use yesquel_seeds::Random;

const KILLS: u64 = 100;
const WRITERS: usize = 6;
/// Bytes of log between checkpoints: some tens of transactions.
const CHECKPOINT_EVERY: u64 = 64 << 10;
/// Number of keys in other leaves that each transaction writes.
const SPREAD: u64 = 5;
/// Number of keys around those that are never written.
const FILLERS: u64 = 3_000;
/// Number of latest transactions that a journal keeps.
const KEPT: u64 = 64;
/// Interval, in transactions, of deleting older entries.
const TRIM_EVERY: u64 = 32;
/// Interval, in transactions, of adding to the shared counter.
const TOTAL_EVERY: u64 = 4;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Maps that the transactions write.
#[derive(Debug, Clone, Copy)]
struct Maps {
    /// Number of transactions of each writer, and the shared counter.
    counters: Map,
    /// The last transaction of each writer, in several leaves.
    spread: Map,
    /// A key for each transaction.
    journal: Map,
}

const NAMES: [&str; 3] = ["counters", "spread", "journal"];

impl Maps {
    fn of(database: &Database) -> Maps {
        let [counters, spread, journal] = NAMES.map(|name| database.map(name).unwrap());
        Maps { counters, spread, journal }
    }
}

fn filler_key(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], b"filler"].concat()
}

fn spread_key(writer: usize, number: u64) -> Vec<u8> {
    let among = (number * 577 + writer as u64 * 97) % FILLERS;
    [&among.to_be_bytes()[..], b"written", &[writer as u8]].concat()
}

/// Keys of some writers ascend; those of the others are scattered.
fn journal_key(writer: usize, n: u64) -> Vec<u8> {
    let scattered = if writer.is_multiple_of(2) { 0 } else { Random::new(n).next(1 << 31) };
    [&[writer as u8][..], &scattered.to_be_bytes(), &n.to_be_bytes()].concat()
}

/// Value: the number of the transaction, and bytes unique to it.
fn value(writer: usize, n: u64, length: u64) -> Vec<u8> {
    let mut random = Random::new(n << 8 | writer as u64);
    let more = random.next(length) as usize;
    let mut bytes = n.to_be_bytes().to_vec();
    bytes.resize(8 + more, random.next(256) as u8);
    bytes
}

fn spread_value(writer: usize, n: u64) -> Vec<u8> {
    value(writer, n, 200)
}

fn journal_value(writer: usize, n: u64) -> Vec<u8> {
    value(writer, n, 4_000)
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// Returns the last transaction that the journal has deleted.
fn trimmed(n: u64) -> u64 {
    (n / TRIM_EVERY * TRIM_EVERY).saturating_sub(KEPT)
}

const TOTAL: &[u8] = b"total";

/// Returns the expected content after these numbers of transactions.
fn expected(done: &[u64]) -> [Content; 3] {
    let [mut counters, mut spread, mut journal] = <[Content; 3]>::default();
    let total: u64 = done.iter().map(|n| n / TOTAL_EVERY).sum();
    counters.insert(TOTAL.to_vec(), total.to_be_bytes().to_vec());
    spread.extend((0..FILLERS).map(|number| (filler_key(number), b"filler".to_vec())));
    for (writer, n) in done.iter().enumerate() {
        counters.insert(vec![writer as u8], n.to_be_bytes().to_vec());
        for number in 0..SPREAD {
            spread.insert(spread_key(writer, number), spread_value(writer, *n));
        }
        for n in trimmed(*n) + 1..=*n {
            journal.insert(journal_key(writer, n), journal_value(writer, n));
        }
    }
    [counters, spread, journal]
}

/// Returns the expected content before the first transaction.
fn prepare(database: &Database, maps: Maps) {
    let [counters, spread, _] = expected(&[0; WRITERS]);
    for (map, content) in [(maps.counters, counters), (maps.spread, spread)] {
        let all: Vec<_> = content.into_iter().collect();
        for some in all.chunks(100) {
            let put = |transaction: &mut Transaction<'_>| {
                some.iter().try_for_each(|(key, value)| transaction.put(map, key, value))
            };
            database.run(put).unwrap();
        }
    }
}

/// Progress of a writer, for readers.
#[derive(Debug, Default)]
struct Progress {
    /// No higher transaction was ever sent.
    tried: AtomicU64,
    /// All up to this one were acknowledged.
    acknowledged: AtomicU64,
    /// A reader has seen it.
    seen: AtomicU64,
}

#[derive(Debug, Default)]
struct Gate {
    is_shut: bool,
    is_over: bool,
    has_failed: bool,
    /// Number of clients that wait for it to open.
    waiting: usize,
}

#[derive(Debug, Default)]
struct Counts {
    commits: AtomicU64,
    conflicts: AtomicU64,
    nothing_done: AtomicU64,
    unknown: AtomicU64,
    unknown_and_done: AtomicU64,
    reads: AtomicU64,
    maps: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, SeqCst);
}

/// State shared by all threads.
#[derive(Debug, Default)]
struct World {
    gate: Mutex<Gate>,
    changed: Condvar,
    progress: [Progress; WRITERS],
    /// Odd from before a kill until the server is up again, then incremented.
    kills: AtomicU64,
    /// Maps that are created and dropped: whether each exists; `None` if unknown.
    passing: Mutex<BTreeMap<String, Option<bool>>>,
    counts: Counts,
}

impl World {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the gate is closed. Returns whether work is left.
    fn pass(&self) -> bool {
        let mut gate = self.gate();
        gate.waiting += 1;
        self.changed.notify_all();
        while gate.is_shut && !gate.is_over {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.waiting -= 1;
        !gate.is_over
    }

    fn open(&self) {
        self.gate().is_shut = false;
        self.changed.notify_all();
    }

    fn shut(&self) {
        self.gate().is_shut = true;
    }

    /// Waits until this number of clients wait at the shut gate.
    fn wait_for(&self, clients: usize) {
        let gate = self.gate();
        let is_waiting = |gate: &mut Gate| gate.waiting < clients && !gate.has_failed;
        let (gate, late) =
            self.changed.wait_timeout_while(gate, Duration::from_secs(120), is_waiting).unwrap();
        assert!(!gate.has_failed, "a client has failed");
        assert!(!late.timed_out(), "{} of {clients} clients have come to an end", gate.waiting);
    }

    /// Runs a client, and wakes all waiting threads if it fails.
    fn client(&self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            let mut gate = self.gate();
            (gate.has_failed, gate.is_over) = (true, true);
            drop(gate);
            self.changed.notify_all();
            resume_unwind(panic);
        }
    }

    /// Lower bound of the writer's transactions that a read sees, taken before the read; the upper
    /// bound is [`World::at_most`], taken after it.
    fn at_least(&self, writer: usize) -> u64 {
        let progress = &self.progress[writer];
        progress.acknowledged.load(SeqCst).max(progress.seen.load(SeqCst))
    }

    fn at_most(&self, writer: usize) -> u64 {
        self.progress[writer].tried.load(SeqCst)
    }
}

/// Checks that an error is the consequence of a kill.
struct Watch<'a> {
    world: &'a World,
    /// [`World::kills`] at or before the server's last answer.
    kills: u64,
}

impl Watch<'_> {
    fn new(world: &World) -> Watch<'_> {
        Watch { world, kills: u64::MAX }
    }

    fn answered(&mut self, kills: u64) {
        self.kills = kills;
    }

    /// Records that the server did not answer; it must have been killed.
    #[track_caller]
    fn check(&self, error: &Error) {
        let kills = self.world.kills.load(SeqCst);
        assert!(kills % 2 == 1 || kills != self.kills, "an error without a kill: {error:?}");
    }
}

/// Writes transactions in a loop.
struct Writer<'a> {
    world: &'a World,
    number: usize,
    database: Database,
    maps: Maps,
    /// The last transaction known to be committed.
    done: u64,
    /// Whether the next one may be committed.
    is_in_doubt: bool,
    watch: Watch<'a>,
}

impl Writer<'_> {
    fn run(mut self) {
        while self.world.pass() {
            let kills = self.world.kills.load(SeqCst);
            if self.is_in_doubt {
                self.look(kills);
            } else {
                self.step(kills);
            }
        }
    }

    fn is_done(&mut self) {
        self.done += 1;
        self.world.progress[self.number].acknowledged.store(self.done, SeqCst);
    }

    /// Determines whether the last transaction committed.
    fn look(&mut self, kills: u64) {
        match self.database.get(self.maps.counters, &[self.number as u8]) {
            Ok(found) => {
                self.watch.answered(kills);
                let found = number(&found.unwrap());
                assert!(found == self.done || found == self.done + 1, "{found}, after {}", self.done);
                if found > self.done {
                    count(&self.world.counts.unknown_and_done);
                    self.is_done();
                }
                self.is_in_doubt = false;
            }
            Err(error @ (Error::Unavailable(_) | Error::Disconnected(_))) => self.watch.check(&error),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn step(&mut self, kills: u64) {
        let (n, counts) = (self.done + 1, &self.world.counts);
        self.world.progress[self.number].tried.store(n, SeqCst);
        match self.transact(n) {
            Ok(()) => {
                self.watch.answered(kills);
                self.is_done();
                count(&counts.commits);
            }
            // A group that had voted has ended it, because the kill kept another one from voting.
            Err(error @ Error::Conflict(Refusal::GivenUp(_))) => {
                self.watch.check(&error);
                self.world.progress[self.number].tried.store(self.done, SeqCst);
                count(&counts.nothing_done);
            }
            // Only where writers write the same key: a split is not a conflict.
            Err(Error::Conflict(_)) if n % TOTAL_EVERY == 0 => {
                self.watch.answered(kills);
                count(&counts.conflicts);
            }
            Err(error @ Error::SnapshotTooOld(_)) => self.watch.check(&error),
            // Not committed, so it is repeated; otherwise the retry would find its own key.
            Err(error @ (Error::Unavailable(_) | Error::Disconnected(_))) => {
                self.watch.check(&error);
                self.world.progress[self.number].tried.store(self.done, SeqCst);
                count(&counts.nothing_done);
            }
            Err(error @ Error::OutcomeUnknown(_)) => {
                self.watch.check(&error);
                self.is_in_doubt = true;
                count(&counts.unknown);
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn transact(&self, n: u64) -> Result<(), Error> {
        let (own, maps) = (self.number, self.maps);
        let mut transaction = self.database.begin();
        // Some transactions read first.
        if !n.is_multiple_of(3) {
            let before = transaction.get(maps.counters, &[own as u8])?;
            assert_eq!(number(&before.unwrap()), n - 1);
        }
        if n.is_multiple_of(TOTAL_EVERY) {
            let total = number(&transaction.get(maps.counters, TOTAL)?.unwrap());
            transaction.put(maps.counters, TOTAL, &(total + 1).to_be_bytes())?;
        }
        transaction.put(maps.counters, &[own as u8], &n.to_be_bytes())?;
        for number in 0..SPREAD {
            transaction.put(maps.spread, &spread_key(own, number), &spread_value(own, n))?;
        }
        transaction.insert(maps.journal, &journal_key(own, n), &journal_value(own, n))?;
        if trimmed(n) > trimmed(n - 1) {
            if own.is_multiple_of(2) {
                let low = journal_key(own, 0);
                transaction.delete_range(maps.journal, low..=journal_key(own, trimmed(n)));
            } else {
                for old in trimmed(n - 1) + 1..=trimmed(n) {
                    transaction.delete(maps.journal, &journal_key(own, old))?;
                }
            }
        }
        transaction.commit().map(|_| ())
    }
}

/// Reads all writers' data at one snapshot.
fn read(world: &World, number: usize, database: &Database, maps: Maps) {
    let (mut watch, mut random) = (Watch::new(world), Random::new(number as u64));
    while world.pass() {
        let (kills, writer) = (world.kills.load(SeqCst), random.next(WRITERS as u64) as usize);
        let least = world.at_least(writer);
        match look_at(database, maps, writer) {
            Ok(found) => {
                watch.answered(kills);
                let most = world.at_most(writer);
                assert!((least..=most).contains(&found), "{found} of {writer}, not {least} to {most}");
                world.progress[writer].seen.fetch_max(found, SeqCst);
                count(&world.counts.reads);
            }
            Err(error @ (Error::Unavailable(_) | Error::Disconnected(_) | Error::SnapshotTooOld(_))) => {
                watch.check(&error)
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Returns the number of a writer's transactions and checks that each is complete.
fn look_at(database: &Database, maps: Maps, writer: usize) -> Result<u64, Error> {
    let mut transaction = database.begin();
    let n = number(&transaction.get(maps.counters, &[writer as u8])?.unwrap());
    for number in 0..SPREAD {
        let found = transaction.get(maps.spread, &spread_key(writer, number))?;
        assert!(found.as_deref() == Some(&spread_value(writer, n)), "{writer}: {n} is there in part");
    }
    for (n, is_there) in [(n, n > 0), (n + 1, false), (trimmed(n), false), (trimmed(n) + 1, n > 0)] {
        let found = transaction.get(maps.journal, &journal_key(writer, n))?;
        let value = is_there.then(|| journal_value(writer, n));
        assert!(found.as_deref() == value.as_deref(), "{writer}: journal of {n} is there in part");
    }
    Ok(n)
}

/// Creates and drops maps.
fn pass_maps(world: &World, database: &Database) {
    let (mut watch, mut random) = (Watch::new(world), Random::new(9));
    let name_of = |number: u64| format!("passing-{number}");
    let mut next = 0u64;
    while world.pass() {
        let kills = world.kills.load(SeqCst);
        let is_drop = next > 3 && random.next(2) == 0;
        let name = if is_drop { name_of(next - 1 - random.next(4)) } else { name_of(next) };
        let was = world.passing.lock().unwrap().insert(name.clone(), None).flatten();
        let outcome = if is_drop {
            database.drop_map(&name).inspect(|found| assert!(was.is_none_or(|was| was == *found), "{name}"))
        } else {
            next += 1;
            make_map(database, &name).map(|()| true)
        };
        match outcome {
            Ok(_) => {
                watch.answered(kills);
                world.passing.lock().unwrap().insert(name, Some(!is_drop));
                count(&world.counts.maps);
            }
            Err(
                error @ (Error::Unavailable(_)
                | Error::Disconnected(_)
                | Error::OutcomeUnknown(_)
                | Error::Conflict(Refusal::GivenUp(_))
                | Error::SnapshotTooOld(_)),
            ) => {
                watch.check(&error);
            }
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}

fn make_map(database: &Database, name: &str) -> Result<(), Error> {
    let map = database.map(name)?;
    database.put(map, b"name", name.as_bytes()).map(|_| ())
}

/// The server and its folder.
struct Server {
    place: PathBuf,
    process: Option<Process>,
}

impl Server {
    fn folder(&self) -> PathBuf {
        self.place.join("data")
    }

    fn socket(&self) -> PathBuf {
        self.place.join("socket")
    }

    fn address(&self) -> Address {
        Address::Unix(self.socket())
    }

    fn spawn(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yesquel"));
        command.arg("serve").arg("--data").arg(self.folder()).arg("--listen").arg(self.socket());
        command.args(["--durability", "sync", "--checkpoint-every", &CHECKPOINT_EVERY.to_string()]);
        command.args(["--groups", &env::var("SERVER_GROUPS").unwrap_or_else(|_| "1".to_owned())]);
        // A node is split by a load of some hundred operations per second.
        Process::spawn(command.args(["--node-load-max", "500"]))
    }

    fn start(&mut self) {
        let process = self.spawn();
        process.wait_until_ready();
        self.process = Some(process);
    }

    fn kill(&self) {
        self.process.as_ref().unwrap().signal(Signal::KILL);
    }

    fn connect(&self, patience: Duration) -> Store {
        let options = SocketOptions { connect_timeout: patience, ..SocketOptions::default() };
        // On a busy machine the greeting may take longer than a short timeout.
        let connect = || Store::connect(&self.address(), options.clone()).ok();
        std::iter::repeat_with(connect).take(100).find_map(|store| store).unwrap()
    }

    /// Returns whether a checkpoint is being written, or was at the crash.
    fn has_half_a_checkpoint(&self) -> bool {
        let entries = std::fs::read_dir(self.folder()).unwrap();
        entries.map(Result::unwrap).any(|entry| entry.path().join("checkpoint-unfinished").exists())
    }

    /// Runs a command of `yesquel tree`; returns its output.
    fn tree(&self, map: &str, command: &[&str]) -> String {
        let mut tree = Command::new(env!("CARGO_BIN_EXE_yesquel"));
        let output =
            tree.arg("tree").arg(self.socket()).arg(format!("kill/{map}")).args(command).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Checks all invariants while there are no writers.
fn check(world: &World, database: &Database, random: &mut Random) {
    let maps = Maps::of(database);
    let all = [maps.counters, maps.spread, maps.journal];
    let mut transaction = database.begin();
    let done: Vec<u64> = (0..WRITERS)
        .map(|writer| number(&transaction.get(maps.counters, &[writer as u8]).unwrap().unwrap()))
        .collect();
    for (writer, done) in done.iter().enumerate() {
        let (least, most) = (world.at_least(writer), world.at_most(writer));
        assert!((least..=most).contains(done), "{done} of {writer}, not {least} to {most}");
    }
    for ((map, name), content) in all.into_iter().zip(NAMES).zip(expected(&done)) {
        let mut transaction = database.begin();
        let found: Vec<_> = transaction.range::<&[u8]>(map, ..).map(Result::unwrap).collect();
        let is_same = found.len() == content.len()
            && found
                .iter()
                .zip(&content)
                .all(|(found, expected)| (&*found.0, &*found.1) == (expected.0, expected.1));
        assert!(is_same, "{name} of {done:?}: {}", difference(&found, &content));
        let (mut backwards, mut cursor) = (Vec::new(), transaction.cursor(map));
        let mut last = cursor.last(&mut transaction).unwrap();
        while let Some(entry) = last {
            backwards.push(entry);
            last = cursor.previous(&mut transaction).unwrap();
        }
        assert!(backwards.iter().rev().eq(&found), "{name} backwards");
        for _ in 0..100 {
            let (key, value) = &found[random.next(found.len() as u64) as usize];
            assert!(
                database.get(map, key).unwrap().as_ref() == Some(value),
                "{name}: a point and a scan differ"
            );
            let beside = [&**key, b"\0"].concat();
            assert_eq!(database.get(map, &beside).unwrap(), None, "{name}");
        }
        check_nodes(&database.store().nodes(map).unwrap(), content.len() as u64);
    }
    check_passing(world, database);
}

fn difference(found: &[(yesquel::Key, Box<[u8]>)], expected: &Content) -> String {
    let found: BTreeMap<&[u8], &[u8]> = found.iter().map(|(key, value)| (&**key, &**value)).collect();
    let missing = expected.keys().filter(|key| !found.contains_key(&***key)).count();
    let more = found.keys().filter(|key| !expected.contains_key(**key)).count();
    let other =
        |(key, value): &(&Vec<u8>, &Vec<u8>)| found.get(&***key).is_some_and(|found| **found != ***value);
    let others = expected.iter().filter(other).count();
    format!("{missing} keys are missing, {more} are too many, {others} have another value")
}

/// Checks that the leaves partition the keys and that inner nodes agree.
fn check_nodes(tree: &TreeNodes, keys: u64) {
    let by_id: BTreeMap<&str, &NodeStatus> = tree.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let root = tree.nodes.iter().find(|node| node.id.ends_with("0000000000000000")).unwrap();
    assert!(!tree.more && by_id.len() == tree.nodes.len());
    assert_eq!((root.low.as_str(), &root.high), ("", &None));
    let (mut open, mut reached, mut cells, mut end) = (vec![root], 0, 0, Some(String::new()));
    while let Some(node) = open.pop() {
        reached += 1;
        if node.leaf {
            // Starts at the end of the previous one.
            assert_eq!(Some(&node.low), end.as_ref(), "{}", node.node);
            assert!(node.high.as_ref().is_none_or(|high| *high > node.low), "{}", node.node);
            end.clone_from(&node.high);
            cells += node.cells;
            continue;
        }
        let children: Vec<&NodeStatus> = node.children.iter().map(|child| by_id[child.as_str()]).collect();
        assert_eq!(children.first().map(|child| &child.low), Some(&node.low), "{}", node.node);
        assert_eq!(children.last().map(|child| &child.high), Some(&node.high), "{}", node.node);
        open.extend(children.into_iter().rev());
    }
    assert_eq!((reached, cells, end), (tree.nodes.len(), keys, None));
}

/// The drawing has a line per node.
fn check_drawing(server: &Server, store: &Store, name: &str) {
    let map = store.database("kill").unwrap().existing_map(name).unwrap().unwrap();
    let nodes = || store.nodes(map).unwrap().nodes.len();
    let is_same = || {
        let (before, drawn, after) = (nodes(), server.tree(name, &["draw"]).lines().count(), nodes());
        assert!(before != after || drawn == before, "{drawn} lines for {before} nodes");
        before == after
    };
    // The server may be splitting nodes, but not forever.
    assert!((0..1_000).any(|_| is_same()), "{name}");
}

/// Checks that maps exist if and only if they were created and not dropped.
fn check_passing(world: &World, database: &Database) {
    let mut found: BTreeMap<String, Map> = database.maps().unwrap().into_iter().collect();
    NAMES.iter().for_each(|name| assert!(found.remove(*name).is_some(), "{name}"));
    let mut passing = world.passing.lock().unwrap();
    for (name, is_there) in passing.iter_mut() {
        let map = found.remove(name);
        assert!(is_there.is_none_or(|is_there| is_there == map.is_some()), "{name}");
        if let Some(map) = map {
            let value = database.get(map, b"name").unwrap();
            let is_whole = value.as_deref() == Some(name.as_bytes());
            // The map was created before its key was put.
            assert!(is_whole || (is_there.is_none() && value.is_none()), "{name}");
            check_nodes(&database.store().nodes(map).unwrap(), value.is_some().into());
        }
    }
    assert!(found.is_empty(), "{:?} were never made", found.keys());
    // A dropped map stays dropped.
    passing.retain(|_, is_there| *is_there != Some(false));
}

/// Kinds of kills.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fall {
    /// At any time.
    Anywhere,
    /// While it writes a checkpoint.
    InCheckpoint,
    /// While it writes a checkpoint, then again during recovery.
    InRecovery,
}

impl Fall {
    fn drawn(random: &mut Random) -> Fall {
        match random.next(10) {
            0..5 => Fall::Anywhere,
            5..8 => Fall::InCheckpoint,
            _ => Fall::InRecovery,
        }
    }
}

/// Statistics, printed at the end.
#[derive(Debug, Default)]
struct KillCounts {
    kills: u64,
    half_checkpoints: u64,
    in_recovery: u64,
    start_max: Duration,
}

fn variable(name: &str, otherwise: impl FnOnce() -> u64) -> u64 {
    env::var(name).map_or_else(|_| otherwise(), |text| text.parse().unwrap())
}

fn chance() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn acknowledged_transactions_survive_kills_and_none_in_part() {
    let (kills, seed) = (variable("KILLS", || KILLS), variable("SEED", chance));
    println!("{kills} kills, SEED={seed}");
    let place = tempfile::tempdir().unwrap();
    let mut server = Server { place: place.path().to_owned(), process: None };
    let outcome = catch_unwind(AssertUnwindSafe(|| kill_again_and_again(&mut server, kills, seed)));
    if let Err(panic) = outcome {
        if let Some(process) = &server.process {
            println!("the server said: {}", process.said());
        }
        drop(server);
        println!("{} is kept", place.keep().display());
        resume_unwind(panic);
    }
}

/// Kills during the first start: a folder without a log, a checkpoint or the tree of names.
#[test]
fn a_server_killed_while_creating_its_folder_starts_again() {
    let seed = variable("SEED", chance);
    println!("SEED={seed}");
    let (mut random, mut start) = (Random::new(seed), Duration::from_millis(20));
    for _ in 0..20 {
        let place = tempfile::tempdir().unwrap();
        let mut server = Server { place: place.path().to_owned(), process: None };
        for _ in 0..=random.next(3) {
            let mut process = server.spawn();
            thread::sleep(start * random.next(100) as u32 / 100);
            process.signal(Signal::KILL);
            process.wait();
        }
        let before = Instant::now();
        server.start();
        start = before.elapsed();
        let database = server.connect(Duration::from_secs(60)).database_or_create("first").unwrap();
        let map = database.map("map").unwrap();
        database.put(map, b"key", b"value").unwrap();
        server.kill();
        server.process.take().unwrap().wait();
        server.start();
        let store = server.connect(Duration::from_secs(60));
        let database = store.database("first").unwrap();
        assert_eq!(database.existing_map("map").unwrap(), Some(map));
        assert_eq!(database.get(map, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

fn kill_again_and_again(server: &mut Server, kills: u64, seed: u64) {
    server.start();
    let patience = Duration::from_secs(60);
    let database = server.connect(patience).create_database_at("kill", &Placement::Tables).unwrap();
    let maps = Maps::of(&database);
    prepare(&database, maps);
    // Clients with a long timeout learn the outcome of a transaction; the others must read it.
    let hurry = Duration::from_millis(20);
    let database_of = |store: Store| store.database("kill").unwrap();
    let patient: [Database; 2] = std::array::from_fn(|_| database_of(server.connect(patience)));
    let hasty: [Database; 2] = std::array::from_fn(|_| database_of(server.connect(hurry)));
    let writers = [&patient[0], &patient[0], &patient[1], &hasty[0], &hasty[0], &hasty[1]];
    let readers = [patient[1].clone(), database_of(server.connect(hurry))];
    let clients = writers.len() + readers.len() + 1;
    let world = World::default();
    world.shut();
    thread::scope(|scope| {
        let (world, readers) = (&world, &readers);
        for (number, database) in writers.iter().enumerate() {
            let writer = Writer {
                world,
                number,
                database: (*database).clone(),
                maps,
                done: 0,
                is_in_doubt: false,
                watch: Watch::new(world),
            };
            scope.spawn(|| world.client(|| writer.run()));
        }
        for (number, database) in readers.iter().enumerate() {
            scope.spawn(move || world.client(|| read(world, number, database, maps)));
        }
        let database = database_of(server.connect(hurry));
        scope.spawn(move || world.client(|| pass_maps(world, &database)));
        world.client(|| {
            let counts = run(server, world, clients, kills, &mut Random::new(seed));
            println!("{counts:?}, {:?}", world.counts);
            // Of many kills some must have hit their target.
            let is_met = counts.half_checkpoints > 0 && counts.in_recovery > 0;
            assert!(is_met || kills < 50, "no kill during a checkpoint, or none during recovery");
            let mut gate = world.gate();
            gate.is_over = true;
            world.changed.notify_all();
        });
    });
    end(server, &world, &mut Random::new(seed));
}

/// Kills the server this number of times and checks the data after each kill.
fn run(server: &mut Server, world: &World, clients: usize, kills: u64, random: &mut Random) -> KillCounts {
    let (mut counts, mut start) = (KillCounts::default(), Duration::from_millis(20));
    for kill in 0..kills {
        let fall = Fall::drawn(random);
        // Sometimes long enough for the server to split by load.
        let ms = if kill % 50 == 25 { 1_500 } else { 5 + random.next(80) };
        world.open();
        thread::sleep(Duration::from_millis(ms));
        let until = Instant::now() + Duration::from_secs(1);
        while fall == Fall::InCheckpoint && !server.has_half_a_checkpoint() && Instant::now() < until {
            thread::yield_now();
        }
        count(&world.kills);
        server.kill();
        world.shut();
        server.process.take().unwrap().wait();
        counts.kills += 1;
        counts.half_checkpoints += u64::from(server.has_half_a_checkpoint());
        let again = if fall == Fall::InRecovery { 1 + random.next(3) } else { 0 };
        for _ in 0..again {
            let mut process = server.spawn();
            thread::sleep(start * random.next(100) as u32 / 100);
            counts.in_recovery += u64::from(!process.said().contains(" ready "));
            counts.kills += 1;
            process.signal(Signal::KILL);
            process.wait();
        }
        let before = Instant::now();
        server.start();
        count(&world.kills);
        start = before.elapsed();
        counts.start_max = counts.start_max.max(start);
        world.wait_for(clients);
        let store = server.connect(Duration::from_secs(60));
        check(world, &store.database("kill").unwrap(), random);
        check_drawing(server, &store, NAMES[kill as usize % NAMES.len()]);
    }
    counts
}

/// Shuts the server down cleanly and checks the folder without it.
fn end(server: &mut Server, world: &World, random: &mut Random) {
    let mut process = server.process.take().unwrap();
    process.terminate();
    assert!(!server.socket().exists());
    let store = Store::open(server.folder()).unwrap();
    let database = store.database("kill").unwrap();
    check(world, &database, random);
    // Garbage is collected eventually.
    let until = Instant::now() + Duration::from_secs(60);
    while let Some(left) = left_over(&store, &database) {
        assert!(Instant::now() < until, "{left}");
        thread::yield_now();
    }
}

/// Describes garbage that is left: a tree without a name, or an empty leaf that has neighbours.
fn left_over(store: &Store, database: &Database) -> Option<String> {
    let maps = database.maps().unwrap();
    let groups = store.host().unwrap().groups();
    let trees: usize = groups.iter().map(|group| group.core().status().trees.len()).sum();
    // Each group has a tree of names, which is not a map.
    let named = maps.len() + groups.len();
    if trees != named {
        return Some(format!("{trees} trees, of which {named} have a name"));
    }
    maps.into_iter().find_map(|(name, map)| {
        let nodes = store.nodes(map).unwrap().nodes;
        let siblings = |id: &String| {
            nodes.iter().find(|node| node.children.contains(id)).map(|node| node.children.len())
        };
        let is_left = |node: &&NodeStatus| node.leaf && node.cells == 0 && siblings(&node.id) > Some(1);
        nodes.iter().find(is_left).map(|node| format!("{name}: nothing is left in {}", node.node))
    })
}
