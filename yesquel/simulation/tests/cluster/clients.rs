//! The tasks of the clients: transactions on trees, one after the other.

use crate::{
    application::groups_of,
    reference::{Effect, End, Seen},
    steps::{Act, SLOTS, Value},
    workload::{SharedWorkload, Workload},
};
use std::{cell::RefMut, rc::Rc};
use yesquel_client::CommitError;
use yesquel_model::{Key, KeyRange, ServerId, Timestamp};
use yesquel_simulation::{Network, ProtocolPath, SharedCluster, pause};
use yesquel_tree::{Savepoint, Tree, TreeError, TreeTransaction, Trees};

/// How long tasks wait for each other.
const MEET_POLLS: usize = 100;
const MEET_POLL_US: u64 = 500;

/// The key of a number.
pub(crate) fn key(number: u64) -> Key {
    // Of several lengths; some are prefixes of others.
    let mut key = vec![b'a' + (number % 5) as u8; 1 + (number % 3) as usize];
    key.push((number * 37 % 251) as u8);
    key.into()
}

fn range(from: u64, to: u64) -> KeyRange {
    let (from, to) = (key(from), key(to));
    let (low, high) = if from <= to { (from, to) } else { (to, from) };
    if high.last() == Some(&0) { KeyRange::from(low) } else { KeyRange::new(low, high) }
}

/// The value that some bytes are.
fn value(bytes: &[u8]) -> Value {
    let number = bytes.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let value = Value { number, length: bytes.len() };
    assert!(value.bytes() == bytes, "{value:?} has other bytes");
    value
}

/// An open transaction, and its state at a savepoint.
struct Open<'a> {
    txn: TreeTransaction<'a, Network>,
    attempt: usize,
    savepoint: Option<(Savepoint, usize, usize)>,
    /// The slot whose tree it has replaced, and the new tree.
    replaced: Option<(usize, Tree)>,
    /// Number of its reads that asked a server, before the last one.
    asked: u64,
    /// Before it writes it gets a snapshot, since it was said to only read.
    must_pin: bool,
}

/// One task of a client.
struct Worker<'a> {
    cluster: Option<&'a SharedCluster>,
    workload: &'a SharedWorkload,
    trees: &'a Trees<Network>,
    task: usize,
    /// Number of servers.
    servers: usize,
    open: Option<Open<'a>>,
}

/// Performs the acts of a task until none is left.
pub(crate) async fn work(
    cluster: SharedCluster,
    workload: SharedWorkload,
    trees: Rc<Trees<Network>>,
    task: usize,
) {
    let servers = cluster.borrow().server_count();
    let cluster_of = Some(&cluster);
    let mut worker =
        Worker { cluster: cluster_of, workload: &workload, trees: &trees, task, servers, open: None };
    loop {
        let next = workload.borrow_mut().next_act(task);
        let Some((pause_us, act)) = next else { return };
        pause(&cluster, pause_us).await;
        worker.act(&act).await;
    }
}

/// Reads all trees in both directions, with an empty cache.
pub(crate) async fn observe(workload: SharedWorkload, trees: Rc<Trees<Network>>, task: usize) {
    let mut worker =
        Worker { cluster: None, workload: &workload, trees: &trees, task, servers: 1, open: None };
    for down in [false, true] {
        for slot in 0..SLOTS {
            let done = worker.walk(slot, None, usize::MAX, down).await;
            if let Err(error) = done
                && !matches!(error, TreeError::NoTree(_))
            {
                panic!("a read without faults fails: {error}");
            }
        }
    }
    worker.close(End::Read);
}

impl<'a> Worker<'a> {
    fn workload(&self) -> RefMut<'a, Workload> {
        self.workload.borrow_mut()
    }

    fn open(&mut self) -> &mut Open<'a> {
        let (workload, trees, task) = (self.workload, self.trees, self.task);
        self.open.get_or_insert_with(|| {
            let mut workload = workload.borrow_mut();
            let after = workload.committed(task).map_or(Timestamp::ZERO, |committed| *committed);
            let attempt = workload.history.begin(task, after);
            Open { txn: trees.begin(), attempt, savepoint: None, replaced: None, asked: 0, must_pin: false }
        })
    }

    fn close(&mut self, end: End) {
        if let Some(open) = self.open.take() {
            self.workload().history.end(open.attempt, end);
        }
    }

    /// The tree in a slot, if the transaction has not replaced it. Behind the slots are those that
    /// were in them before, which were dropped.
    fn tree(&mut self, slot: usize) -> Option<Tree> {
        let replaced = self.open().replaced;
        if let Some(before) = slot.checked_sub(SLOTS) {
            return self.workload().replaced[before].filter(|_| replaced.is_none());
        }
        let tree = self.workload().slots[slot];
        if replaced.is_some_and(|(of, _)| of == slot) { None } else { Some(tree) }
    }

    /// Records a read, or a missing tree.
    fn saw(&mut self, tree: Tree, seen: Result<Seen, TreeError>) -> Result<(), TreeError> {
        let open = self.open();
        let (attempt, snapshot) = (open.attempt, open.txn.snapshot());
        let floating = open.txn.used_at();
        let has_asked = open.txn.asked() > open.asked;
        let history = &mut self.workload().history;
        let (seen, done) = match seen {
            Ok(seen) => (Some(seen), Ok(())),
            Err(error) => {
                let is_missing = matches!(error, TreeError::NoTree(_));
                (is_missing.then_some(Seen::NoTree(tree)), Err(error))
            }
        };
        if let Some(server) = floating {
            history.on_floating(attempt, server);
        }
        if let Some(seen) = seen {
            history.on_read(attempt, snapshot, seen);
            // The server's later commits are above the snapshot.
            let asked = history.attempts[attempt].asked.filter(|_| has_asked);
            if let (Some(server), Some(snapshot)) = (asked, snapshot) {
                history.on_answer(server, snapshot);
            }
        }
        done
    }

    /// Notes the begin of a read; returns the number of watched leaves used so far.
    fn begin_read(&mut self) -> u64 {
        let open = self.open();
        open.asked = open.txn.asked();
        let (attempt, used) = (open.attempt, open.txn.used_watched());
        self.workload().history.begin_read(attempt);
        used
    }

    fn count_watched(&mut self, before: u64) {
        let used = self.open().txn.used_watched() - before;
        if let Some(cluster) = self.cluster {
            (0..used).for_each(|_| cluster.borrow_mut().count_path(ProtocolPath::WatchUsed));
        }
    }

    fn use_watched(&mut self, slot: usize, only_reads: bool) {
        if self.open.is_some() || self.tree(slot).is_none() {
            return;
        }
        let open = self.open();
        open.txn.use_watched(only_reads);
        open.must_pin = only_reads;
        let attempt = open.attempt;
        self.workload().history.attempts[attempt].watches = true;
    }

    /// Before a write: a transaction that was said to only read gets a snapshot.
    async fn pin(&mut self) -> Result<(), TreeError> {
        let open = self.open();
        if !std::mem::take(&mut open.must_pin) {
            return Ok(());
        }
        open.txn.pin().await?;
        let (attempt, snapshot) = (open.attempt, open.txn.snapshot());
        if let Some(snapshot) = snapshot {
            self.workload().history.on_snapshot(attempt, snapshot);
        }
        Ok(())
    }

    async fn walk(
        &mut self,
        slot: usize,
        start: Option<u64>,
        most: usize,
        down: bool,
    ) -> Result<(), TreeError> {
        let Some(tree) = self.tree(slot) else { return Ok(()) };
        let start = start.map(key);
        let used = self.begin_read();
        let txn = &mut self.open().txn;
        let mut cursor = txn.cursor(tree);
        let mut found: Vec<(Key, Value)> = Vec::new();
        let walked = async {
            let mut next = match (&start, down) {
                (None, false) => cursor.first(txn).await?,
                (None, true) => cursor.last(txn).await?,
                (Some(key), false) => cursor.seek(txn, key).await?,
                (Some(key), true) => cursor.seek_back(txn, key).await?,
            };
            while let Some((key, bytes)) = next {
                assert_eq!(cursor.key(), Some(&*key));
                found.push((key, value(&bytes)));
                if found.len() >= most {
                    break;
                }
                next = if down { cursor.previous(txn).await? } else { cursor.next(txn).await? };
            }
            Ok(())
        };
        let walked: Result<(), TreeError> = walked.await;
        self.count_watched(used);
        self.saw(tree, walked.map(|()| Seen::Walk { tree, start, down, most, found }))
    }

    async fn act(&mut self, act: &Act) {
        if act.writes()
            && let Err(error) = self.pin().await
        {
            return self.close(End::Failed(error));
        }
        let done = match act {
            Act::Get { slot, key: number } => self.get(*slot, *number).await,
            Act::Walk { slot, key, steps, down } => self.walk(*slot, *key, *steps as usize + 1, *down).await,
            Act::Audit => {
                let mut done = Ok(());
                for slot in 0..SLOTS {
                    if done.is_ok() {
                        done = self.walk((slot + self.task) % SLOTS, None, usize::MAX, false).await;
                    }
                }
                done
            }
            Act::Put { slot, key: number, value } => self.write(*slot, *number, Some(*value), false),
            Act::Insert { slot, key: number, value } => self.write(*slot, *number, Some(*value), true),
            Act::Delete { slot, key: number } => self.write(*slot, *number, None, false),
            Act::DeleteRange { slot, from, to } => {
                self.in_range(*slot, *from, *to, TreeTransaction::delete_range, Effect::Clear)
            }
            Act::Guard { slot, from, to } => self.in_range(
                *slot,
                *from,
                *to,
                |transaction, tree, range| transaction.guard(tree, range.clone()),
                Effect::Guard,
            ),
            Act::Replace { slot, server, key: number, value } => {
                self.replace(*slot, *server, *number, *value).await
            }
            Act::UseWatched { slot, only_reads } => {
                self.use_watched(*slot, *only_reads);
                Ok(())
            }
            Act::Meet { number, tasks } => {
                self.meet(*number, *tasks).await;
                Ok(())
            }
            Act::Savepoint | Act::RollbackTo => {
                self.savepoint(matches!(act, Act::Savepoint));
                Ok(())
            }
            Act::Rollback => {
                self.close(End::Open);
                Ok(())
            }
            Act::Commit => {
                self.commit().await;
                Ok(())
            }
        };
        if let Err(error) = done {
            self.close(End::Failed(error));
        }
    }

    /// Waits until so many tasks have come to a place. Their processes may be dead or stopped.
    async fn meet(&mut self, number: usize, tasks: usize) {
        *self.workload().arrived.entry(number).or_default() += 1;
        let (workload, Some(cluster)) = (self.workload, self.cluster) else { return };
        for _ in 0..MEET_POLLS {
            if workload.borrow().arrived.get(&number).is_some_and(|arrived| *arrived >= tasks) {
                return;
            }
            pause(cluster, MEET_POLL_US).await;
        }
    }

    async fn get(&mut self, slot: usize, number: u64) -> Result<(), TreeError> {
        let Some(tree) = self.tree(slot) else { return Ok(()) };
        let (key, used) = (key(number), self.begin_read());
        let found = self.open().txn.get(tree, &key).await;
        self.count_watched(used);
        self.saw(tree, found.map(|found| Seen::Get(tree, key, found.map(|bytes| value(&bytes)))))
    }

    fn effects<T>(&mut self, change: impl FnOnce(&mut Vec<Effect>, &mut Vec<(Tree, Key)>) -> T) -> T {
        let attempt = self.open().attempt;
        let attempt = &mut self.workload().history.attempts[attempt];
        change(&mut attempt.effects, &mut attempt.absent)
    }

    fn write(
        &mut self,
        slot: usize,
        number: u64,
        value: Option<Value>,
        is_new: bool,
    ) -> Result<(), TreeError> {
        let Some(tree) = self.tree(slot) else { return Ok(()) };
        let key = key(number);
        let bytes = value.map(Value::bytes);
        let txn = &mut self.open().txn;
        let done = match (&bytes, is_new) {
            (Some(bytes), true) => txn.insert(tree, &key, bytes),
            (Some(bytes), false) => txn.put(tree, &key, bytes),
            (None, _) => txn.delete(tree, &key),
        };
        self.effects(|effects, absent| {
            // The transaction's own effects on the key so far.
            let own = effects.iter().rev().find_map(|effect| match effect {
                Effect::Write(of, written, value) if *of == tree && *written == key => Some(value.is_some()),
                Effect::Clear(of, range) if *of == tree && range.contains(&key) => Some(false),
                _ => None,
            });
            if is_new && own == Some(true) {
                assert_eq!(done, Err(TreeError::Exists));
                return;
            }
            assert_eq!(done, Ok(()));
            if is_new && own.is_none() {
                absent.push((tree, key.clone()));
            }
            effects.push(Effect::Write(tree, key, value));
        });
        Ok(())
    }

    fn in_range(
        &mut self,
        slot: usize,
        from: u64,
        to: u64,
        act: fn(&mut TreeTransaction<'a, Network>, Tree, &KeyRange),
        effect: fn(Tree, KeyRange) -> Effect,
    ) -> Result<(), TreeError> {
        let Some(tree) = self.tree(slot) else { return Ok(()) };
        let range = range(from, to);
        act(&mut self.open().txn, tree, &range);
        if !range.is_empty() {
            self.effects(|effects, _| effects.push(effect(tree, range)));
        }
        Ok(())
    }

    async fn replace(
        &mut self,
        slot: usize,
        server: usize,
        number: u64,
        value: Value,
    ) -> Result<(), TreeError> {
        if self.open().replaced.is_some() {
            return Ok(());
        }
        let Some(old) = self.tree(slot) else { return Ok(()) };
        let new = self.trees.new_tree(ServerId((server % self.servers) as u16)).await?;
        let (key, servers) = (key(number), self.servers);
        let open = self.open();
        // A rollback to an earlier savepoint would remove the new tree.
        open.savepoint = None;
        open.replaced = Some((slot, new));
        open.txn.drop_tree(old, &groups_of(slot, servers));
        open.txn.create_tree(new, &groups_of(slot, servers));
        open.txn.put(new, &key, &value.bytes())?;
        self.effects(|effects, _| {
            effects.extend([Effect::Drop(old), Effect::Create(new), Effect::Write(new, key, Some(value))]);
        });
        Ok(())
    }

    fn savepoint(&mut self, sets: bool) {
        let (effects, absent) = self.effects(|effects, absent| (effects.len(), absent.len()));
        let open = self.open();
        if sets {
            open.savepoint = Some((open.txn.savepoint(), effects, absent));
        } else if open.replaced.is_none()
            && let Some((savepoint, effects, absent)) = open.savepoint
        {
            open.txn.rollback_to(savepoint).unwrap();
            self.effects(|own, own_absent| {
                own.truncate(effects);
                own_absent.truncate(absent);
            });
        }
    }

    async fn commit(&mut self) {
        let Some(Open { txn, attempt, replaced, .. }) = self.open.take() else { return };
        let writes = {
            let attempt = &mut self.workload().history.attempts[attempt];
            attempt.end = End::Committing;
            !attempt.effects.is_empty()
        };
        let outcome = txn.commit().await;
        let mut workload = self.workload();
        let end = match outcome {
            Ok(_) if !writes => End::Read,
            Ok(at) => {
                if let Some(committed) = workload.committed(self.task) {
                    *committed = (*committed).max(at);
                }
                if let Some((slot, new)) = replaced {
                    workload.replaced[slot] = Some(std::mem::replace(&mut workload.slots[slot], new));
                    workload.counts.drops += 1;
                }
                workload.counts.committed += 1;
                let several = workload.history.attempts[attempt].has_several_servers();
                workload.counts.of_several += u64::from(several);
                End::Committed(at)
            }
            Err(TreeError::Commit(CommitError::Unknown(_))) => {
                workload.counts.unknown += 1;
                End::Unknown
            }
            Err(error) => End::Failed(error),
        };
        workload.history.end(attempt, end);
    }
}
