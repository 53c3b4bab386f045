//! Transactions that have voted yes, and how those ended that somebody may
//! still ask about.

use crate::snapshots::Readable;
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use yesquel_model::{Key, KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{Attribute, Decision, Ended, Expect, NewNode, Operation, WriteOperation};

/// Ends of a client's transactions that are kept: more than it may have
/// without having told that it knows them.
const ENDS_MAX: usize = 4096;

/// A [`WriteOperation`] of one's own.
#[derive(Debug, Clone)]
enum Change {
    Put(Key, Box<[u8]>, bool),
    Delete(Key),
    DeleteRange(KeyRange),
    Guard(KeyRange),
    Link(Key, NodeId),
    Unlink(Key),
    Set(u16, Option<Box<[u8]>>),
    Create(NewNode),
    Drop,
    DropTree,
    Move(KeyRange, NodeId),
    Reshape(NewNode),
}

/// An operation that waits for its transaction's end.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) node: NodeId,
    change: Change,
    /// It is done if the transaction commits before this, for then the cell
    /// moved to another node, where it is done in any case.
    until: Timestamp,
}

impl Planned {
    pub(crate) fn new(operation: &Operation<'_>) -> Planned {
        let change = match &operation.write {
            WriteOperation::Put { key, value, is_large, .. } => {
                Change::Put((*key).into(), (*value).into(), *is_large)
            }
            WriteOperation::Delete { key, .. } => Change::Delete((*key).into()),
            WriteOperation::DeleteRange(range) => Change::DeleteRange(range.clone()),
            WriteOperation::Guard(range) => Change::Guard(range.clone()),
            WriteOperation::Link { key, child } => Change::Link((*key).into(), *child),
            WriteOperation::Unlink { key } => Change::Unlink((*key).into()),
            WriteOperation::Set(attribute) => Change::Set(attribute.id, attribute.value.map(Into::into)),
            WriteOperation::Create(new) => Change::Create(new.clone()),
            WriteOperation::Drop => Change::Drop,
            WriteOperation::DropTree => Change::DropTree,
            WriteOperation::Move { range, to } => Change::Move(range.clone(), *to),
            WriteOperation::Reshape(new) => Change::Reshape(new.clone()),
        };
        Planned { node: operation.node, change, until: Timestamp::MAX }
    }

    /// As an operation, if it is to be done at all by a transaction that
    /// commits at this time: a snapshot that may be read sees it.
    pub(crate) fn operation(&self, at: Timestamp, readable: Readable) -> Option<WriteOperation<'_>> {
        (at < self.until && readable.sees(at, self.until)).then(|| self.write())
    }

    fn write(&self) -> WriteOperation<'_> {
        let expect = Expect::Any;
        match &self.change {
            Change::Put(key, value, is_large) => {
                WriteOperation::Put { key, value, expect, is_large: *is_large }
            }
            Change::Delete(key) => WriteOperation::Delete { key, expect },
            Change::DeleteRange(range) => WriteOperation::DeleteRange(range.clone()),
            Change::Guard(range) => WriteOperation::Guard(range.clone()),
            Change::Link(key, child) => WriteOperation::Link { key, child: *child },
            Change::Unlink(key) => WriteOperation::Unlink { key },
            Change::Set(id, value) => WriteOperation::Set(Attribute { id: *id, value: value.as_deref() }),
            Change::Create(new) => WriteOperation::Create(new.clone()),
            Change::Drop => WriteOperation::Drop,
            Change::DropTree => WriteOperation::DropTree,
            Change::Move(range, to) => WriteOperation::Move { range: range.clone(), to: *to },
            Change::Reshape(new) => WriteOperation::Reshape(new.clone()),
        }
    }

    /// As an operation that is yet to be done in any case; `None` if its cell
    /// has moved, for then another one is.
    pub(crate) fn pending(&self) -> Option<Operation<'_>> {
        (self.until == Timestamp::MAX).then(|| Operation { node: self.node, write: self.write() })
    }

    /// The key, and when its cell moved away, if it did.
    pub(crate) fn moved_away(&self) -> Option<(&[u8], Timestamp)> {
        let (Change::Put(key, ..) | Change::Delete(key) | Change::Link(key, _) | Change::Unlink(key)) =
            &self.change
        else {
            return None;
        };
        (self.until < Timestamp::MAX).then_some((key, self.until))
    }

    /// Whether it takes a whole tree away.
    pub(crate) fn drops_tree(&self) -> bool {
        matches!(self.change, Change::DropTree)
    }

    /// Whether it writes or guards keys of a range of a tree, which it holds as
    /// they are until it has ended.
    pub(crate) fn meets(&self, tree: TreeId, range: &KeyRange) -> bool {
        let is_met = match &self.change {
            Change::Put(key, ..) | Change::Delete(key) => range.contains(key),
            Change::DeleteRange(own) | Change::Guard(own) => own.meets(range),
            Change::DropTree => true,
            _ => false,
        };
        is_met && self.node.tree == tree
    }

    /// Whether it makes its node.
    pub(crate) fn creates(&self) -> bool {
        matches!(self.change, Change::Create(_))
    }

    /// What it will change.
    pub(crate) fn target(&self) -> Target {
        Target::of(&self.write())
    }

    /// What it becomes in a node to which a range moves at some time.
    fn moved(&mut self, at: Timestamp, range: &KeyRange, to: NodeId) -> Option<Planned> {
        let change = match &self.change {
            Change::Put(key, ..) | Change::Delete(key) | Change::Link(key, _) | Change::Unlink(key)
                if range.contains(key) && self.until == Timestamp::MAX =>
            {
                let change = self.change.clone();
                self.until = at;
                change
            }
            Change::DeleteRange(own) if own.meets(range) => Change::DeleteRange(own.intersection(range)),
            Change::Guard(own) if own.meets(range) => Change::Guard(own.intersection(range)),
            _ => return None,
        };
        Some(Planned { node: to, change, until: Timestamp::MAX })
    }
}

/// A transaction that has voted yes here.
#[derive(Debug, Clone)]
pub(crate) struct Voted {
    /// Not before this it commits.
    pub(crate) at: Timestamp,
    /// Everyone who takes part, in order.
    pub(crate) participants: Vec<ServerId>,
    pub(crate) planned: Vec<Planned>,
    /// Memory that it holds, and will take when it commits.
    pub(crate) bytes: usize,
    /// The votes that recovery has learned.
    pub(crate) yes: Vec<(ServerId, Timestamp)>,
}

impl Voted {
    /// Takes note that cells of a node move.
    pub(crate) fn moved(&mut self, at: Timestamp, from: NodeId, range: &KeyRange, to: NodeId) {
        let here = self.planned.iter_mut().filter(|planned| planned.node == from);
        let there: Vec<Planned> = here.filter_map(|planned| planned.moved(at, range, to)).collect();
        self.planned.extend(there);
    }
}

/// One client's transactions of this server alone.
#[derive(Debug, Default)]
struct Client {
    /// It knows how all up to this one ended.
    known: u64,
    /// The newest commits, by number.
    commits: VecDeque<(u64, Timestamp)>,
    /// Those that are not to happen any more.
    given_up: Vec<u64>,
    /// When it was last heard of.
    heard_ms: u64,
}

/// How transactions ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    clients: FxHashMap<u64, Client>,
    /// Of several servers.
    decided: FxHashMap<TxnId, Decision>,
}

impl Ends {
    /// A transaction of this server alone has committed.
    pub(crate) fn committed(&mut self, txn: TxnId, at: Timestamp, now_ms: u64) {
        let client = self.clients.entry(txn.client).or_default();
        client.heard_ms = client.heard_ms.max(now_ms);
        if client.commits.len() == ENDS_MAX {
            let oldest = client.commits.pop_front();
            client.known = client.known.max(oldest.map_or(0, |(number, _)| number));
        }
        // Threads of a client may overtake each other, but not by much.
        let behind = client.commits.iter().rev().take_while(|(number, _)| *number > txn.number).count();
        client.commits.insert(client.commits.len() - behind, (txn.number, at));
    }

    /// The end of a transaction of this server alone, if it has ended.
    pub(crate) fn of_one(&self, txn: TxnId) -> Option<Ended> {
        let client = self.clients.get(&txn.client)?;
        let commit = client.commits.binary_search_by_key(&txn.number, |(number, _)| *number);
        match commit.ok().and_then(|place| client.commits.get(place)) {
            Some((_, at)) => Some(Ended::Decided(Decision::Commit(*at))),
            None if client.given_up.contains(&txn.number) => Some(Ended::Decided(Decision::Abort)),
            None if txn.number <= client.known => Some(Ended::Forgotten),
            None => None,
        }
    }

    /// A transaction that has not ended is not to happen.
    pub(crate) fn give_up(&mut self, txn: TxnId, now_ms: u64) {
        let client = self.clients.entry(txn.client).or_default();
        client.heard_ms = client.heard_ms.max(now_ms);
        if client.given_up.len() == ENDS_MAX {
            client.known = client.known.max(client.given_up.remove(0));
        }
        client.given_up.push(txn.number);
    }

    /// A client knows how all its transactions up to a number ended.
    pub(crate) fn known(&mut self, client: u64, number: u64, now_ms: u64) {
        let client = self.clients.entry(client).or_default();
        client.heard_ms = client.heard_ms.max(now_ms);
        if number <= client.known {
            return;
        }
        client.known = number;
        client.commits.retain(|(commit, _)| *commit > number);
        client.given_up.retain(|given_up| *given_up > number);
    }

    /// Clients whose commits are remembered.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Forgets clients that were not heard of for so long.
    pub(crate) fn expire(&mut self, before_ms: u64) {
        self.clients.retain(|_, client| client.heard_ms >= before_ms);
    }

    /// All commits of transactions of this server alone, and all ends of
    /// others.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TxnId, Decision, bool)> {
        let commits = self.clients.iter().flat_map(|(client, known)| {
            let commits = known.commits.iter();
            commits
                .map(|(number, at)| (TxnId { client: *client, number: *number }, Decision::Commit(*at), true))
        });
        commits.chain(self.decided.iter().map(|(txn, decision)| (*txn, *decision, false)))
    }

    /// How a transaction of several servers ended.
    pub(crate) fn of_several(&self, txn: TxnId) -> Option<Decision> {
        self.decided.get(&txn).copied()
    }

    pub(crate) fn decide(&mut self, txn: TxnId, decision: Decision) {
        self.decided.insert(txn, decision);
    }

    pub(crate) fn forget(&mut self, txn: TxnId) -> bool {
        self.decided.remove(&txn).is_some()
    }
}

/// What a server knows of a transaction of several.
pub(crate) enum Known {
    Yes(Timestamp),
    No,
    Decided(Decision),
}
