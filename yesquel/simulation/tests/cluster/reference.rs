//! The history of a run, compared at its end with a reference: maps to which the committed
//! transactions are applied in the order of their commit times. The servers' logs show the outcomes
//! that no client learned; all reads must agree with them.

use crate::{floating::FloatingReads, steps::Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use yesquel_client::{CommitError, RequestError};
use yesquel_model::{Conflict, Key, KeyRange, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_simulation::{LogFact, outcomes};
use yesquel_tree::{Tree, TreeError};
use yesquel_wire::{Request, WriteOperation};

/// The effect of a transaction on a tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    Create(Tree),
    Drop(Tree),
    Write(Tree, Key, Option<Value>),
    Clear(Tree, KeyRange),
    Guard(Tree, KeyRange),
}

impl Effect {
    pub(crate) fn tree(&self) -> Tree {
        match self {
            Effect::Create(tree) | Effect::Drop(tree) => *tree,
            Effect::Write(tree, ..) | Effect::Clear(tree, _) | Effect::Guard(tree, _) => *tree,
        }
    }

    /// Whether it writes a long value.
    fn is_long(&self) -> bool {
        matches!(self, Effect::Write(.., Some(value)) if value.nodes() > 0)
    }

    /// Whether the two effects conflict, by the table in `docs/yesquel/nodes.md`.
    fn conflicts(&self, other: &Effect) -> bool {
        use Effect::{Clear, Guard, Write};
        if self.tree() != other.tree() {
            return false;
        }
        match (self, other) {
            (Write(_, a, _), Write(_, b, _)) => a == b,
            (Write(_, key, _), Clear(_, range) | Guard(_, range))
            | (Clear(_, range) | Guard(_, range), Write(_, key, _)) => range.contains(key),
            (Guard(..), Guard(..)) => false,
            (Clear(_, a) | Guard(_, a), Clear(_, b) | Guard(_, b)) => a.overlaps(b),
            _ => false,
        }
    }
}

/// The outcome of a transaction that its client knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// It was not sent.
    Open,
    /// Its client died during the commit.
    Committing,
    /// It wrote no data.
    Read,
    Committed(Timestamp),
    Unknown,
    Failed(TreeError),
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) task: usize,
    pub(crate) snapshot: Option<Timestamp>,
    pub(crate) effects: Vec<Effect>,
    /// Keys that had to be absent when they were first written.
    pub(crate) absent: Vec<(Tree, Key)>,
    /// The ids of its commit attempts.
    txns: Vec<TxnId>,
    pub(crate) end: End,
    /// Latest commit acknowledged to its client, or to any client of its first server, before it
    /// began: it must see that commit.
    after: Timestamp,
    /// It may use leaves that its client watches.
    pub(crate) watches: bool,
    /// What was acknowledged before its first read, if it watches.
    pub(crate) first: FirstRead,
    /// The server whose watched leaves it has used before it had a snapshot.
    pub(crate) floating: Option<ServerId>,
    /// The server that it has asked last.
    pub(crate) asked: Option<ServerId>,
    /// What its last commit has sent to each server.
    sent_to: Vec<(ServerId, TreeId, KeyRange)>,
}

/// What clients know before a transaction reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstRead {
    /// Latest commit of each server that was acknowledged or read.
    pub(crate) acknowledged: BTreeMap<ServerId, Timestamp>,
    /// Number of the commits that were acknowledged.
    pub(crate) commits: usize,
}

impl Attempt {
    /// Whether its commit was sent to several servers.
    pub(crate) fn has_several_servers(&self) -> bool {
        self.sent_to.iter().any(|(server, ..)| *server != self.sent_to[0].0)
    }

    /// The part of an effect that its commit has sent to a server.
    pub(crate) fn sent_there(&self, server: ServerId, effect: &Effect) -> Vec<Effect> {
        let tree = effect.tree().root().tree;
        let there = self.sent_to.iter().filter(|(to, of, _)| (*to, *of) == (server, tree));
        match effect {
            Effect::Write(_, key, _) => {
                there.filter(|(.., range)| range.contains(key)).map(|_| effect.clone()).take(1).collect()
            }
            Effect::Clear(tree, range) => {
                let parts = there.filter(|(.., part)| part.overlaps(range));
                parts.map(|(.., part)| Effect::Clear(*tree, part.intersection(range))).collect()
            }
            Effect::Drop(_) | Effect::Create(_) | Effect::Guard(..) => {
                there.map(|_| effect.clone()).take(1).collect()
            }
        }
    }

    /// The effects that its commit sends: not those that it has overwritten itself, except that keys
    /// had to be absent.
    fn sent(&self) -> Vec<Effect> {
        let absent = self.absent.iter().map(|(tree, key)| Effect::Write(*tree, key.clone(), None));
        let mut sent: Vec<Effect> = absent.collect();
        for effect in &self.effects {
            sent.retain(|earlier| match (earlier, effect) {
                (Effect::Write(a, one, _), Effect::Write(b, other, _)) => a != b || one != other,
                (Effect::Write(tree, key, _), Effect::Clear(of, range)) => {
                    let is_absent = self.absent.iter().any(|(a, b)| a == tree && b == key);
                    tree != of || !range.contains(key) || is_absent
                }
                _ => true,
            });
            sent.push(effect.clone());
        }
        sent
    }
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Seen {
    Get(Tree, Key, Option<Value>),
    /// A walk from a key, or from an end, over at most so many entries.
    Walk {
        tree: Tree,
        start: Option<Key>,
        down: bool,
        most: usize,
        found: Vec<(Key, Value)>,
    },
    NoTree(Tree),
}

#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) attempt: usize,
    /// `None`: it is right at the snapshot that its transaction got later, or else at some time.
    snapshot: Option<Timestamp>,
    /// Effects of the transaction itself at the time of the read.
    own: Vec<Effect>,
    seen: Seen,
}

pub(crate) type State = BTreeMap<Tree, BTreeMap<Key, Value>>;

/// Applies an effect. Returns false if its tree does not exist.
pub(crate) fn apply(state: &mut State, effect: &Effect) -> bool {
    if let Effect::Create(tree) = effect {
        return state.insert(*tree, BTreeMap::new()).is_none();
    }
    let Some(content) = state.get_mut(&effect.tree()) else { return false };
    match effect {
        Effect::Write(_, key, Some(value)) => drop(content.insert(key.clone(), *value)),
        Effect::Write(_, key, None) => drop(content.remove(key)),
        Effect::Clear(_, range) => content.retain(|key, _| !range.contains(key)),
        Effect::Drop(tree) => drop(state.remove(tree)),
        Effect::Create(_) | Effect::Guard(..) => {}
    }
    true
}

fn same<T: PartialEq + fmt::Debug>(
    found: &T,
    expected: &T,
    what: impl FnOnce() -> String,
) -> Result<(), String> {
    let wrong = || format!("{}: found {found:?}, expected {expected:?}", what());
    if found == expected { Ok(()) } else { Err(wrong()) }
}

impl Observation {
    /// Compares the read with a state. Returns what is wrong.
    pub(crate) fn agrees(&self, state: &State) -> Result<(), String> {
        let Observation { own, seen, .. } = self;
        let content = |tree: &Tree| {
            let mut state: State =
                state.get_key_value(tree).map(|(tree, all)| (*tree, all.clone())).into_iter().collect();
            own.iter().filter(|effect| effect.tree() == *tree).for_each(|effect| {
                apply(&mut state, effect);
            });
            state.remove(tree)
        };
        match seen {
            Seen::NoTree(tree) if state.contains_key(tree) => Err(format!("there is {tree:?}")),
            Seen::NoTree(_) => Ok(()),
            Seen::Get(tree, key, found) => {
                let expected = match state.contains_key(tree) {
                    true => content(tree).and_then(|all| all.get(key).copied()),
                    // Only its own writes can have answered.
                    false => own
                        .iter()
                        .rev()
                        .find_map(|effect| match effect {
                            Effect::Write(of, other, value) if of == tree && other == key => Some(*value),
                            Effect::Clear(of, range) if of == tree && range.contains(key) => Some(None),
                            _ => None,
                        })
                        .flatten(),
                };
                same(found, &expected, || format!("{key:?} of {tree:?}"))
            }
            Seen::Walk { tree, start, down, most, found } => {
                let all = content(tree).unwrap_or_default();
                let mut expected: Vec<(Key, Value)> = all.into_iter().collect();
                if *down {
                    expected.reverse();
                }
                expected.retain(|(key, _)| match start {
                    Some(start) if *down => key <= start,
                    Some(start) => key >= start,
                    None => true,
                });
                expected.truncate(*most);
                same(found, &expected, || format!("from {start:?} in {tree:?}, down: {down}"))
            }
        }
    }
}

/// All transactions and reads of a run.
pub(crate) struct History {
    /// Whether the run has faults.
    has_faults: bool,
    /// Servers whose disks fail. Until their restart they give snapshots from before what they have
    /// lost, perhaps also from before what they have kept.
    disk_failures: BTreeSet<ServerId>,
    permanent: Vec<Tree>,
    pub(crate) attempts: Vec<Attempt>,
    observations: Vec<Observation>,
    /// The open transaction of each task.
    current: BTreeMap<usize, usize>,
    /// The latest commit of each server alone that was acknowledged to any client, or snapshot that it
    /// has answered.
    acknowledged: BTreeMap<ServerId, Timestamp>,
    /// Transactions whose commit was acknowledged, in that order.
    pub(crate) committed: Vec<usize>,
    /// Splits have moved parts of leaves to other groups. Writers wait during such a split, some for as
    /// long as recovery waits for a client.
    pub(crate) has_departures: bool,
}

impl History {
    pub(crate) fn new(has_faults: bool, disk_failures: BTreeSet<ServerId>) -> History {
        History {
            has_faults,
            disk_failures,
            permanent: Vec::new(),
            attempts: Vec::new(),
            observations: Vec::new(),
            current: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            committed: Vec::new(),
            has_departures: false,
        }
    }

    /// Records a tree that exists from the start.
    pub(crate) fn on_created(&mut self, tree: Tree) {
        self.permanent.push(tree);
    }

    /// Records the begin of a transaction, of a client to which commits up to `after` were
    /// acknowledged. Returns its number.
    pub(crate) fn begin(&mut self, task: usize, after: Timestamp) -> usize {
        let (effects, absent, txns) = Default::default();
        let (end, watches, first, floating) = (End::Open, false, FirstRead::default(), None);
        let snapshot = None;
        self.attempts.push(Attempt {
            task,
            snapshot,
            effects,
            absent,
            txns,
            end,
            after,
            watches,
            first,
            floating,
            asked: None,
            sent_to: Vec::new(),
        });
        self.current.insert(task, self.attempts.len() - 1);
        self.attempts.len() - 1
    }

    /// Records the end of a transaction.
    pub(crate) fn end(&mut self, number: usize, end: End) {
        let attempt = &mut self.attempts[number];
        attempt.end = end;
        self.current.remove(&attempt.task);
        let End::Committed(at) = attempt.end else { return };
        self.committed.push(number);
        // The nodes of long values may be at any server.
        if attempt.effects.iter().any(Effect::is_long) {
            return;
        }
        let mut servers = attempt.sent_to.iter().map(|(server, ..)| *server);
        // Of several participants, one may not have applied the commit yet, nor its clock.
        if let Some(server) = servers.next().filter(|server| servers.all(|other| other == *server)) {
            let acknowledged = self.acknowledged.entry(server).or_default();
            *acknowledged = (*acknowledged).max(at);
        }
    }

    /// Records that a server has answered a read at a snapshot.
    pub(crate) fn on_answer(&mut self, server: ServerId, snapshot: Timestamp) {
        if !self.disk_failures.contains(&server) {
            let acknowledged = self.acknowledged.entry(server).or_default();
            *acknowledged = (*acknowledged).max(snapshot);
        }
    }

    /// Records that a transaction begins to read.
    pub(crate) fn begin_read(&mut self, attempt: usize) {
        let attempt = &mut self.attempts[attempt];
        if attempt.watches && attempt.snapshot.is_none() && attempt.floating.is_none() {
            let (acknowledged, commits) = (self.acknowledged.clone(), self.committed.len());
            attempt.first = FirstRead { acknowledged, commits };
        }
    }

    /// Records that a transaction without a snapshot has used watched leaves of a server.
    pub(crate) fn on_floating(&mut self, attempt: usize, server: ServerId) {
        self.attempts[attempt].floating.get_or_insert(server);
    }

    /// Records the death of a task's process.
    pub(crate) fn died(&mut self, task: usize) {
        self.current.remove(&task);
    }

    /// Records a request of a task.
    pub(crate) fn on_request(&mut self, task: usize, server: ServerId, request: &Request<'_>) {
        let Some(attempt) = self.current.get(&task).map(|attempt| &mut self.attempts[*attempt]) else {
            return;
        };
        if let Request::Read { .. } = request {
            attempt.asked = Some(server);
        }
        match request {
            Request::Commit { txn, operations, .. } | Request::Prepare { txn, operations, .. } => {
                if attempt.txns.last() != Some(txn) {
                    attempt.txns.push(*txn);
                    attempt.sent_to.clear();
                }
                attempt.sent_to.extend(operations.iter().map(|operation| {
                    let range = match &operation.write {
                        WriteOperation::DeleteRange(range) => range.clone(),
                        write => write.key().map_or_else(KeyRange::all, KeyRange::single),
                    };
                    (server, operation.node.tree, range)
                }));
            }
            // The server that sets the snapshot has applied all its commits.
            Request::Read { snapshot: None, .. }
                if attempt.end == End::Open && !self.disk_failures.contains(&server) =>
            {
                // One that has used watched leaves may get an earlier snapshot, but not one from before
                // its first read.
                let known = if attempt.watches { &attempt.first.acknowledged } else { &self.acknowledged };
                let acknowledged = known.get(&server).copied().unwrap_or_default();
                attempt.after = attempt.after.max(acknowledged);
            }
            _ => {}
        }
    }

    /// Records the snapshot of a transaction.
    pub(crate) fn on_snapshot(&mut self, attempt: usize, snapshot: Timestamp) {
        let known = &mut self.attempts[attempt];
        assert!(known.snapshot.is_none_or(|known| known == snapshot), "the snapshot has changed");
        known.snapshot = Some(snapshot);
        assert!(
            snapshot >= known.after,
            "{known:?} does not see an acknowledged commit {:?}",
            self.acknowledged
        );
    }

    /// Records a read of a transaction.
    pub(crate) fn on_read(&mut self, attempt: usize, snapshot: Option<Timestamp>, seen: Seen) {
        match snapshot {
            Some(snapshot) => self.on_snapshot(attempt, snapshot),
            None => assert_eq!(self.attempts[attempt].snapshot, None, "the snapshot has changed"),
        }
        let known = &self.attempts[attempt];
        let own = known.effects.clone();
        // A read answered by own writes takes no snapshot.
        let is_floating = snapshot.is_none() && known.floating.is_some();
        let snapshot = if is_floating { None } else { Some(snapshot.unwrap_or_default()) };
        self.observations.push(Observation { attempt, snapshot, own, seen });
    }

    /// Compares the history with the reference. The servers' logs show the outcomes that no client
    /// learned. Returns the remaining trees, and the number of nodes of their long values.
    pub(crate) fn verify(&self, logs: &[Vec<LogFact>]) -> BTreeMap<Tree, u64> {
        let outcomes = outcomes(logs);
        let mut commits: Vec<(Timestamp, usize)> = Vec::new();
        for (number, attempt) in self.attempts.iter().enumerate() {
            let logged: BTreeSet<Timestamp> =
                attempt.txns.iter().filter_map(|txn| outcomes.get(txn).copied().flatten()).collect();
            assert!(logged.len() <= 1, "{attempt:?} committed at {logged:?}");
            let logged = logged.first().copied();
            match &attempt.end {
                End::Committed(at) => assert_eq!(logged, Some(*at), "{attempt:?} in the logs"),
                End::Unknown | End::Committing => {}
                _ => assert_eq!(logged, None, "{attempt:?} in the logs"),
            }
            commits.extend(logged.map(|at| (at, number)));
        }
        commits.sort_unstable();
        let sent: Vec<Vec<Effect>> = self.attempts.iter().map(Attempt::sent).collect();
        let left = self.replay(&commits, &sent);
        self.check_conflicts(&commits, &sent);
        for (number, attempt) in self.attempts.iter().enumerate() {
            if let End::Failed(error) = &attempt.end {
                self.justify(number, error, &commits, &sent);
            }
        }
        let nodes = |content: BTreeMap<Key, Value>| content.values().map(|value| value.nodes()).sum();
        left.into_iter().map(|(tree, content)| (tree, nodes(content))).collect()
    }

    /// Replays commits and reads in the order of their times and checks the reads.
    fn replay(&self, commits: &[(Timestamp, usize)], sent: &[Vec<Effect>]) -> State {
        let mut state: State = self.permanent.iter().map(|tree| (*tree, BTreeMap::new())).collect();
        let snapshot_of =
            |observation: &Observation| observation.snapshot.or(self.attempts[observation.attempt].snapshot);
        let mut observations: Vec<(Timestamp, &Observation)> =
            self.observations.iter().filter_map(|one| Some((snapshot_of(one)?, one))).collect();
        observations.sort_by_key(|(snapshot, _)| *snapshot);
        let mut observations = observations.into_iter().peekable();
        let floating = self.observations.iter().filter(|one| snapshot_of(one).is_none());
        let mut floating = FloatingReads::new(self, floating);
        for (place, (at, number)) in commits.iter().enumerate() {
            while let Some((snapshot, observation)) = observations.next_if(|(snapshot, _)| snapshot < at) {
                self.check(observation, snapshot, &state);
            }
            floating.check(self, &state, &commits[place..], sent);
            self.commit(*number, &mut state, &sent[*number]);
        }
        observations.for_each(|(snapshot, observation)| self.check(observation, snapshot, &state));
        floating.check(self, &state, &[], sent);
        floating.end(self);
        state
    }

    fn commit(&self, number: usize, state: &mut State, sent: &[Effect]) {
        let attempt = &self.attempts[number];
        for (tree, key) in &attempt.absent {
            let present = state.get(tree).is_some_and(|content| content.contains_key(key));
            assert!(!present, "{attempt:?} committed, but {key:?} existed");
        }
        let is_drop = |effect: &&Effect| matches!(effect, Effect::Drop(_));
        let (drops, others): (Vec<&Effect>, Vec<&Effect>) = sent.iter().partition(is_drop);
        // Trees are dropped after all other effects.
        for effect in others.into_iter().chain(drops) {
            assert!(apply(state, effect), "{attempt:?} committed: {effect:?} on a tree that does not exist");
        }
    }

    /// Checks a read at a snapshot.
    fn check(&self, observation: &Observation, snapshot: Timestamp, state: &State) {
        if let Err(wrong) = observation.agrees(state) {
            let (attempt, task) = (observation.attempt, self.attempts[observation.attempt].task);
            panic!("at {snapshot}, transaction {attempt} of task {task}: {wrong}");
        }
    }

    /// Checks that of two conflicting transactions only one commits, unless it began after the other.
    fn check_conflicts(&self, commits: &[(Timestamp, usize)], sent: &[Vec<Effect>]) {
        for (at, number) in commits {
            let Some(snapshot) = self.attempts[*number].snapshot else { continue };
            for (other_at, other) in commits {
                if *other_at <= snapshot || other_at > at || other == number {
                    continue;
                }
                let met =
                    sent[*number].iter().any(|own| sent[*other].iter().any(|theirs| own.conflicts(theirs)));
                assert!(
                    !met,
                    "{:?} committed at {at} in spite of {:?} of {other_at}",
                    self.attempts[*number], self.attempts[*other]
                );
            }
        }
    }

    /// Checks that a transaction had a reason to fail.
    fn justify(
        &self,
        number: usize,
        error: &TreeError,
        commits: &[(Timestamp, usize)],
        sent: &[Vec<Effect>],
    ) {
        let attempt = &self.attempts[number];
        let refusal = match error {
            TreeError::Commit(CommitError::Refused { refusal, .. }) => refusal,
            TreeError::Client(RequestError::Refused(refusal)) => refusal,
            TreeError::Commit(CommitError::Failed(RequestError::Refused(refusal))) => refusal,
            TreeError::Client(RequestError::Lost(_))
            | TreeError::Commit(CommitError::Failed(RequestError::Lost(_))) => {
                assert!(self.has_faults, "{attempt:?}: {error}");
                return;
            }
            TreeError::Exists => {
                let is_put = |effect: &Effect| match effect {
                    Effect::Write(tree, key, Some(_)) => {
                        attempt.absent.iter().any(|(of, other)| of == tree && other == key)
                    }
                    _ => false,
                };
                let put = commits.iter().any(|(_, other)| sent[*other].iter().any(is_put));
                assert!(put, "{attempt:?}: {error}");
                return;
            }
            TreeError::NoTree(_) => {
                let dropped = commits.iter().flat_map(|(_, other)| &sent[*other]);
                let dropped: BTreeSet<Tree> =
                    dropped.filter(|effect| matches!(effect, Effect::Drop(_))).map(Effect::tree).collect();
                let read = self
                    .observations
                    .iter()
                    .any(|seen| seen.attempt == number && matches!(seen.seen, Seen::NoTree(_)));
                let one = attempt.effects.iter().any(|effect| dropped.contains(&effect.tree()));
                assert!(read || one, "{attempt:?}: {error}");
                return;
            }
            error => panic!("{attempt:?}: {error}"),
        };
        let overlaps = |other: usize| {
            let pairs =
                sent[number].iter().flat_map(|own| sent[other].iter().map(move |theirs| (own, theirs)));
            pairs.into_iter().any(|(own, theirs)| {
                let is_whole = |effect: &Effect| matches!(effect, Effect::Create(_) | Effect::Drop(_));
                own.conflicts(theirs) || ((is_whole(own) || is_whole(theirs)) && own.tree() == theirs.tree())
            })
        };
        match refusal {
            Refusal::Conflict(Conflict::Prepared { by, .. }) => {
                let other = self.attempts.iter().position(|attempt| attempt.txns.contains(by));
                assert!(other.is_some_and(overlaps), "{attempt:?}: {error}");
            }
            Refusal::Conflict(Conflict::Cell { .. } | Conflict::Range { .. } | Conflict::Guard { .. }) => {
                let is_newer = |at: Timestamp| attempt.snapshot.is_some_and(|snapshot| at > snapshot);
                let met =
                    commits.iter().any(|(at, other)| is_newer(*at) && *other != number && overlaps(*other));
                assert!(met, "{attempt:?}: {error}, but nothing conflicts with it");
            }
            // Its client has ended the watches of leaves that it has used, to watch others.
            Refusal::SnapshotTooOld { .. } if attempt.floating.is_some() => {}
            Refusal::GivenUp(_) if self.has_departures => {}
            Refusal::GivenUp(_)
            | Refusal::SnapshotTooOld { .. }
            | Refusal::TooFarAhead(_)
            | Refusal::ClockDiffers { .. }
            | Refusal::DiskFailed
            | Refusal::DiskFull
            | Refusal::DiskLost => assert!(self.has_faults, "{attempt:?}: {error}"),
            // A split must not fail a transaction.
            _ => panic!("{attempt:?}: {error}"),
        }
    }
}
