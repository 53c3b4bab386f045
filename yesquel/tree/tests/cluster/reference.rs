//! What was done and seen, written down as it happens and compared in the end
//! with a plain reference: maps to which the committed transactions are applied
//! in the order of their times. An end that nobody was told is taken from the
//! servers' logs; whatever it is, all that was read must fit.

use crate::{server::Fact, steps::Value};
use std::collections::{BTreeMap, BTreeSet};
use yesquel_client::{CommitError, Error};
use yesquel_model::{Conflict, Key, KeyRange, Refusal, ServerId, Timestamp, TxnId, limits};
use yesquel_tree::{Tree, TreeError};
use yesquel_wire::{Decision, NODE_PIECES, PIECE_BYTES, Request};

/// What a transaction does to a tree.
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

    /// Whether two transactions that do this get in each other's way, by the
    /// table of `docs/yesquel/nodes.md`.
    fn meets(&self, other: &Effect) -> bool {
        use Effect::{Clear, Guard, Write};
        if self.tree() != other.tree() {
            return false;
        }
        match (self, other) {
            (Write(_, a, _), Write(_, b, _)) => a == b,
            (Write(_, key, _), Clear(_, range) | Guard(_, range))
            | (Clear(_, range) | Guard(_, range), Write(_, key, _)) => range.contains(key),
            (Guard(..), Guard(..)) => false,
            (Clear(_, a) | Guard(_, a), Clear(_, b) | Guard(_, b)) => a.meets(b),
            _ => false,
        }
    }
}

/// How a transaction ended, as far as whoever made it knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// It was never sent.
    Open,
    /// Its client died in the midst.
    Committing,
    /// Nothing was written.
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
    /// Keys that were not to be there when they were first written.
    pub(crate) absent: Vec<(Tree, Key)>,
    /// What it was called on its way.
    txns: Vec<TxnId>,
    pub(crate) end: End,
    /// What its client, or its first server's clients, were told before: it
    /// sees that.
    after: Timestamp,
}

impl Attempt {
    /// What is sent of it: what the transaction itself has overwritten was
    /// not, but for the keys that must have been absent.
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

/// What was read.
#[derive(Debug)]
pub(crate) enum Seen {
    Get(Tree, Key, Option<Value>),
    /// From a key or an end on, so many at most.
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
struct Observation {
    attempt: usize,
    snapshot: Timestamp,
    /// What the transaction itself had done by then.
    own: Vec<Effect>,
    seen: Seen,
}

type State = BTreeMap<Tree, BTreeMap<Key, Value>>;

/// Whether it could be done: there is such a tree.
fn apply(state: &mut State, effect: &Effect) -> bool {
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

/// All that was done and seen in a run.
pub(crate) struct Book {
    /// Something goes wrong in this run.
    is_stormy: bool,
    lasting: Vec<Tree>,
    pub(crate) attempts: Vec<Attempt>,
    observations: Vec<Observation>,
    /// The transaction that a task is in.
    current: BTreeMap<usize, usize>,
    /// The latest commit of each server that anybody was told of.
    told: BTreeMap<ServerId, Timestamp>,
}

impl Book {
    pub(crate) fn new(is_stormy: bool) -> Book {
        Book {
            is_stormy,
            lasting: Vec::new(),
            attempts: Vec::new(),
            observations: Vec::new(),
            current: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// A tree that was there before everything.
    pub(crate) fn lasts(&mut self, tree: Tree) {
        self.lasting.push(tree);
    }

    /// A transaction begins, of a client that was told of commits up to then.
    pub(crate) fn begin(&mut self, task: usize, after: Timestamp) -> usize {
        let (effects, absent, txns) = Default::default();
        self.attempts.push(Attempt { task, snapshot: None, effects, absent, txns, end: End::Open, after });
        self.current.insert(task, self.attempts.len() - 1);
        self.attempts.len() - 1
    }

    pub(crate) fn end(&mut self, attempt: usize, end: End) {
        let attempt = &mut self.attempts[attempt];
        attempt.end = end;
        self.current.remove(&attempt.task);
        let End::Committed(at) = attempt.end else { return };
        let mut servers = attempt.effects.iter().map(|effect| effect.tree().root().server);
        // Of several, one may not have heard of it yet, and then its clock has not.
        if let Some(server) = servers.next().filter(|server| servers.all(|other| other == *server)) {
            let told = self.told.entry(server).or_default();
            *told = (*told).max(at);
        }
    }

    /// A task's process has died.
    pub(crate) fn died(&mut self, task: usize) {
        self.current.remove(&task);
    }

    /// A task sends a request.
    pub(crate) fn sends(&mut self, task: usize, server: ServerId, request: &Request<'_>) {
        let Some(attempt) = self.current.get(&task).map(|attempt| &mut self.attempts[*attempt]) else {
            return;
        };
        match request {
            Request::Commit { txn, .. } | Request::Prepare { txn, .. } => attempt.txns.push(*txn),
            // The server that gives the snapshot knows all that it has committed.
            Request::Read { snapshot: None, .. } if attempt.end == End::Open => {
                let told = self.told.get(&server).copied().unwrap_or_default();
                attempt.after = attempt.after.max(told);
            }
            _ => {}
        }
    }

    /// A transaction has read something at its snapshot.
    pub(crate) fn sees(&mut self, attempt: usize, snapshot: Option<Timestamp>, seen: Seen) {
        let known = &mut self.attempts[attempt];
        assert!(known.snapshot.is_none() || known.snapshot == snapshot, "the snapshot has changed");
        known.snapshot = snapshot;
        if let Some(snapshot) = snapshot {
            assert!(snapshot >= known.after, "{known:?} does not see what was told before");
        }
        let own = known.effects.clone();
        // What a transaction knows of itself takes no snapshot.
        let snapshot = snapshot.unwrap_or_default();
        self.observations.push(Observation { attempt, snapshot, own, seen });
    }

    /// Compares all of it with the reference; the servers' logs say how those
    /// ended of whom nobody was told. Returns the trees that are left, and how
    /// many nodes the long values of each take.
    pub(crate) fn verify(&self, logs: &[Vec<Fact>]) -> BTreeMap<Tree, u64> {
        let ends = ends(logs);
        let mut commits: Vec<(Timestamp, usize)> = Vec::new();
        for (number, attempt) in self.attempts.iter().enumerate() {
            let logged: BTreeSet<Timestamp> =
                attempt.txns.iter().filter_map(|txn| ends.get(txn).copied().flatten()).collect();
            assert!(logged.len() <= 1, "{attempt:?} was committed at {logged:?}");
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
        self.first_wins(&commits, &sent);
        for (number, attempt) in self.attempts.iter().enumerate() {
            if let End::Failed(error) = &attempt.end {
                self.justify(number, error, &commits, &sent);
            }
        }
        let nodes = |value: &Value| {
            let is_long = value.length > limits::CELL_VALUE_BYTES_MAX;
            if is_long { value.length.div_ceil(PIECE_BYTES * NODE_PIECES) as u64 } else { 0 }
        };
        left.into_iter().map(|(tree, content)| (tree, content.values().map(nodes).sum())).collect()
    }

    /// Commits and observations in the order of their times.
    fn replay(&self, commits: &[(Timestamp, usize)], sent: &[Vec<Effect>]) -> State {
        let mut state: State = self.lasting.iter().map(|tree| (*tree, BTreeMap::new())).collect();
        let mut observations: Vec<&Observation> = self.observations.iter().collect();
        observations.sort_by_key(|observation| observation.snapshot);
        let mut commits = commits.iter().peekable();
        for observation in observations {
            while let Some((_, number)) = commits.next_if(|(at, _)| *at <= observation.snapshot) {
                self.commit(*number, &mut state, &sent[*number]);
            }
            self.check(observation, &state);
        }
        for (_, number) in commits {
            self.commit(*number, &mut state, &sent[*number]);
        }
        state
    }

    fn commit(&self, number: usize, state: &mut State, sent: &[Effect]) {
        let attempt = &self.attempts[number];
        for (tree, key) in &attempt.absent {
            let present = state.get(tree).is_some_and(|content| content.contains_key(key));
            assert!(!present, "{attempt:?} was committed, and {key:?} was there");
        }
        let is_drop = |effect: &&Effect| matches!(effect, Effect::Drop(_));
        let (drops, others): (Vec<&Effect>, Vec<&Effect>) = sent.iter().partition(is_drop);
        // A tree goes after all else.
        for effect in others.into_iter().chain(drops) {
            assert!(apply(state, effect), "{attempt:?} was committed: {effect:?} on no tree");
        }
    }

    fn check(&self, observation: &Observation, state: &State) {
        let Observation { own, seen, attempt, snapshot } = observation;
        let content = |tree: &Tree| {
            let mut state: State =
                state.get_key_value(tree).map(|(tree, all)| (*tree, all.clone())).into_iter().collect();
            own.iter().filter(|effect| effect.tree() == *tree).for_each(|effect| {
                apply(&mut state, effect);
            });
            state.remove(tree)
        };
        let who = || format!("at {snapshot}, transaction {attempt} of task {}", self.attempts[*attempt].task);
        match seen {
            Seen::NoTree(tree) => assert!(!state.contains_key(tree), "{}: there is {tree:?}", who()),
            Seen::Get(tree, key, found) => {
                let expected = match state.contains_key(tree) {
                    true => content(tree).and_then(|all| all.get(key).copied()),
                    // It has read nothing but its own.
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
                assert_eq!(*found, expected, "{}: {key:?} of {tree:?}", who());
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
                assert_eq!(*found, expected, "{}: from {start:?} in {tree:?}, down: {down}", who());
            }
        }
    }

    /// Nobody has written what another wrote between his snapshot and his
    /// commit.
    fn first_wins(&self, commits: &[(Timestamp, usize)], sent: &[Vec<Effect>]) {
        for (at, number) in commits {
            let Some(snapshot) = self.attempts[*number].snapshot else { continue };
            for (other_at, other) in commits {
                if *other_at <= snapshot || other_at > at || other == number {
                    continue;
                }
                let met = sent[*number].iter().any(|own| sent[*other].iter().any(|theirs| own.meets(theirs)));
                assert!(
                    !met,
                    "{:?} was committed at {at} beside {:?} of {other_at}",
                    self.attempts[*number], self.attempts[*other]
                );
            }
        }
    }

    /// Whether there was a reason to fail.
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
            TreeError::Client(Error::Refused(refusal)) => refusal,
            TreeError::Commit(CommitError::Failed(Error::Refused(refusal))) => refusal,
            TreeError::Client(Error::Lost(_)) | TreeError::Commit(CommitError::Failed(Error::Lost(_))) => {
                assert!(self.is_stormy, "{attempt:?}: {error}");
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
        let meets = |other: usize| {
            let pairs =
                sent[number].iter().flat_map(|own| sent[other].iter().map(move |theirs| (own, theirs)));
            pairs.into_iter().any(|(own, theirs)| {
                let is_whole = |effect: &Effect| matches!(effect, Effect::Create(_) | Effect::Drop(_));
                own.meets(theirs) || ((is_whole(own) || is_whole(theirs)) && own.tree() == theirs.tree())
            })
        };
        match refusal {
            Refusal::Conflict(Conflict::Prepared { by, .. }) => {
                let other = self.attempts.iter().position(|attempt| attempt.txns.contains(by));
                assert!(other.is_some_and(meets), "{attempt:?}: {error}");
            }
            Refusal::Conflict(Conflict::Cell { .. } | Conflict::Range { .. } | Conflict::Guard { .. }) => {
                let newer = |at: Timestamp| attempt.snapshot.is_some_and(|snapshot| at > snapshot);
                let met = commits.iter().any(|(at, other)| newer(*at) && *other != number && meets(*other));
                assert!(met, "{attempt:?}: {error}, and nobody was in its way");
            }
            Refusal::GivenUp(_)
            | Refusal::SnapshotTooOld { .. }
            | Refusal::TooFarAhead(_)
            | Refusal::DiskFailed
            | Refusal::DiskLost => assert!(self.is_stormy, "{attempt:?}: {error}"),
            // Splits are nobody's affair.
            _ => panic!("{attempt:?}: {error}"),
        }
    }
}

/// How each transaction ended that any log has: when it was committed, if it
/// was. All who voted must agree, and all who take part must have voted.
fn ends(logs: &[Vec<Fact>]) -> BTreeMap<TxnId, Option<Timestamp>> {
    let mut ends: BTreeMap<TxnId, Option<Timestamp>> = BTreeMap::new();
    let mut voters: BTreeMap<TxnId, BTreeSet<usize>> = BTreeMap::new();
    let mut parts: BTreeMap<TxnId, &[ServerId]> = BTreeMap::new();
    for (server, log) in logs.iter().enumerate() {
        let mut voted: BTreeMap<TxnId, Option<Decision>> = BTreeMap::new();
        for fact in log {
            match fact {
                Fact::Committed(txn, at) => {
                    let old = ends.insert(*txn, Some(*at));
                    assert_eq!(old, None, "{txn} was committed twice");
                }
                Fact::VotedYes(txn, participants) => {
                    voted.entry(*txn).or_default();
                    parts.insert(*txn, participants);
                }
                // What is said of one that was forgotten changes nothing.
                Fact::Decided(txn, decision) => {
                    if let Some(known) = voted.get_mut(txn) {
                        known.get_or_insert(*decision);
                    }
                }
            }
        }
        for (txn, decision) in voted {
            voters.entry(txn).or_default().insert(server);
            let Some(decision) = decision else { panic!("{txn} is not decided at server {server}") };
            let end = match decision {
                Decision::Commit(at) => Some(at),
                Decision::Abort => None,
            };
            let old = ends.insert(txn, end);
            assert!(
                old.is_none_or(|old| old == end),
                "{txn} ended as {old:?} and, at server {server}, {end:?}"
            );
        }
    }
    for (txn, participants) in parts {
        let missing = participants.iter().find(|server| !voters[&txn].contains(&usize::from(server.0)));
        let committed = ends.get(&txn).copied().flatten();
        assert!(
            committed.is_none() || missing.is_none(),
            "{txn} was committed at {committed:?} without the vote of {missing:?}"
        );
    }
    ends
}
