//! Transactions: how they commit, in one step or two, and how those end that
//! nobody ends. `docs/yesquel/commit.md` has every branch.

use crate::{
    engine::{Ask, Effects, Engine, NOBODY, Now, Settings, Stop},
    node::{Node, Prepared},
    record::Record,
    store::{NodeLimits, TreeEnd},
    transaction::{Planned, Voted},
};
use yesquel_model::{
    Clock, Conflict, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId,
};
use yesquel_wire::{
    Decision, Ended, NewNode, NodeKind, Operation, Operations, Participants, Vote, WriteOperation,
};

/// What a server knows of a transaction of several.
pub(crate) enum Known {
    Yes(Timestamp),
    No,
    Decided(Decision),
}

impl Engine {
    /// Looks at each operation in turn; nothing is changed.
    pub(crate) fn check(
        &self,
        txn: TxnId,
        snapshot: Timestamp,
        operations: &Operations<'_>,
    ) -> Result<(), Stop> {
        let spent = self.store.memory() >= self.settings.memory_bytes_max;
        // What the transaction itself makes of nodes before it goes on.
        let mut made: Vec<(NodeId, Option<NewNode>)> = Vec::new();
        for (number, Operation { node: id, write }) in operations.iter().enumerate() {
            let refuse = |refusal: Refusal| match refusal {
                Refusal::Conflict(Conflict::Prepared { by, .. }) => Stop::Wait(by),
                refusal => Stop::Refuse(Some(number as u64), refusal),
            };
            match self.store.tree_end(id.tree) {
                Some(TreeEnd::Prepared(by, _)) if by != txn => return Err(Stop::Wait(by)),
                Some(TreeEnd::Dropped(_)) => return Err(refuse(Refusal::Moved(id))),
                _ => {}
            }
            let node = self.store.get(id);
            let own = made.iter().rev().find(|(known, _)| *known == id).map(|(_, made)| made);
            let shape = match own {
                Some(made) => made.as_ref().map(|new| (new.kind, &new.fence)),
                None => node.and_then(Node::shape).map(|shape| (shape.kind, &shape.fence)),
            };
            if let WriteOperation::Create(new) = &write {
                if node.is_some() || own.is_some() {
                    return Err(refuse(Conflict::Node { node: id }.into()));
                }
                made.push((id, Some(new.clone())));
                continue;
            }
            let Some((kind, fence)) = shape else { return Err(refuse(Refusal::Moved(id))) };
            let is_root = id.local == LocalId::ROOT;
            if !holds(kind, fence, &write) || (write == WriteOperation::DropTree && !is_root) {
                return Err(refuse(Refusal::Moved(id)));
            }
            if spent && matches!(write, WriteOperation::Put { .. }) {
                return Err(refuse(Refusal::OutOfMemory));
            }
            if let Some(node) = node {
                node.check(txn, snapshot, &write).map_err(refuse)?;
            }
            if write == WriteOperation::DropTree
                && let Some(by) = self.prepared_in(id.tree, txn)
            {
                return Err(Stop::Wait(by));
            }
            match write {
                WriteOperation::Move { range, to } => {
                    let target = made.iter().rev().find(|(known, _)| *known == to);
                    let fits = target.is_some_and(|(_, new)| {
                        new.as_ref().is_some_and(|new| new.kind == kind && new.fence.covers(&range))
                    });
                    if !fits || to == id {
                        return Err(refuse(Refusal::Unfit(to)));
                    }
                }
                WriteOperation::Reshape(new) => made.push((id, Some(new))),
                WriteOperation::Drop => made.push((id, None)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Another transaction that has prepared something in a tree.
    fn prepared_in(&self, tree: TreeId, txn: TxnId) -> Option<TxnId> {
        let others = self.voted.iter().filter(|(other, _)| **other != txn);
        let mut in_tree =
            others.filter(|(_, voted)| voted.planned.iter().any(|planned| planned.node.tree == tree));
        in_tree.next().map(|(by, _)| *by)
    }

    pub(crate) fn commit(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        operations: &Operations<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        match self.ends.of_one(txn) {
            None => {}
            // It was sent again.
            Some(Some(Decision::Commit(at))) => return Ok(at),
            Some(_) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        self.check(txn, snapshot, operations)?;
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        self.log(&Record::Commit { txn, at, operations: *operations }, effects);
        self.do_commit(now.uptime_ms, txn, at, operations);
        Ok(at)
    }

    pub(crate) fn do_commit(
        &mut self,
        uptime_ms: u64,
        txn: TxnId,
        at: Timestamp,
        operations: &Operations<'_>,
    ) {
        for Operation { node, write } in operations.iter() {
            self.apply_operation(at, node, &write);
        }
        if txn != NOBODY {
            self.ends.committed(txn, at, uptime_ms);
        }
    }

    pub(crate) fn apply_operation(&mut self, at: Timestamp, node: NodeId, write: &WriteOperation<'_>) {
        if let WriteOperation::Move { range, to } = write {
            // Rare: splits only, and there are seldom many that have voted.
            for voted in self.voted.values_mut() {
                voted.moved(at, node, range, *to);
            }
        }
        let Settings { node_cells_max: cells_max, node_bytes_max: bytes_max, .. } = self.settings;
        self.store.apply((at, self.lsn), NodeLimits { cells_max, bytes_max }, node, write);
    }

    pub(crate) fn prepare(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        participants: &Participants<'_>,
        operations: &Operations<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        if let Some(voted) = self.voted.get(&txn) {
            return Ok(voted.at);
        }
        match self.ends.of_several(txn) {
            None => {}
            Some(Decision::Commit(at)) => return Ok(at),
            Some(Decision::Abort) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        // Nobody who has votes elsewhere waits here, for the other might wait
        // there for him.
        self.check(txn, snapshot, operations).map_err(|stop| match stop {
            Stop::Wait(by) => {
                let node = operations.iter().next().map_or(NodeId::default(), |operation| operation.node);
                Stop::Refuse(None, Conflict::Prepared { node, by }.into())
            }
            stop => stop,
        })?;
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        let record = Record::Prepare { txn, at, participants: *participants, operations: *operations };
        self.log(&record, effects);
        self.do_prepare(txn, at, participants, operations);
        Ok(at)
    }

    pub(crate) fn do_prepare(
        &mut self,
        txn: TxnId,
        at: Timestamp,
        participants: &Participants<'_>,
        operations: &Operations<'_>,
    ) {
        let planned: Vec<Planned> = operations.iter().map(|operation| Planned::new(&operation)).collect();
        for planned in &planned {
            let target = planned.target();
            self.store.change(planned.node, |node| node.prepare(Prepared { txn, at, target }));
            if planned.drops_tree() {
                self.store.end_tree(planned.node.tree, Some(TreeEnd::Prepared(txn, at)));
            }
        }
        let participants = participants.iter().collect();
        let voted = Voted { at, participants, planned, yes: Vec::new() };
        self.voted.insert(txn, voted);
    }

    /// Whoever waits for it is to be woken.
    pub(crate) fn decide(&mut self, txn: TxnId, decision: Decision, effects: &mut Effects) {
        if self.voted.contains_key(&txn) {
            self.log(&Record::Decide { txn, decision }, effects);
            self.do_decide(txn, decision);
        } else if decision == Decision::Abort && self.ends.of_several(txn).is_none() {
            // It has not voted and is not to: a prepare may be on its way.
            self.log(&Record::Decide { txn, decision }, effects);
            self.do_decide(txn, decision);
        }
    }

    pub(crate) fn do_decide(&mut self, txn: TxnId, decision: Decision) {
        if let Some(voted) = self.voted.remove(&txn) {
            for planned in &voted.planned {
                self.store.change(planned.node, |node| node.decided(txn));
                if planned.drops_tree() {
                    self.store.end_tree(planned.node.tree, None);
                }
            }
            if let Decision::Commit(at) = decision {
                self.clock = Clock::above(self.clock.last().max(at));
                let low = self.snapshots.low();
                for planned in &voted.planned {
                    if let Some(write) = planned.operation(at, low) {
                        self.apply_operation(at, planned.node, &write);
                        if let Some((key, moved_at)) = planned.moved_away() {
                            self.store.change(planned.node, |node| node.end_at(moved_at, key));
                        }
                    }
                }
            }
        }
        self.ends.decide(txn, decision);
    }

    /// How this server has voted; if it has not, it now votes no.
    pub(crate) fn vote_of(&mut self, txn: TxnId, effects: &mut Effects) -> (Known, Vec<ServerId>) {
        if let Some(decision) = self.ends.of_several(txn) {
            return (Known::Decided(decision), Vec::new());
        }
        if let Some(voted) = self.voted.get(&txn) {
            return (Known::Yes(voted.at), voted.participants.clone());
        }
        self.log(&Record::Decide { txn, decision: Decision::Abort }, effects);
        self.do_decide(txn, Decision::Abort);
        (Known::No, Vec::new())
    }

    pub(crate) fn outcome(&mut self, now: Now, txn: TxnId) -> Ended {
        match self.ends.of_one(txn) {
            Some(Some(decision)) => Ended::Decided(decision),
            Some(None) => Ended::Forgotten,
            None => {
                self.ends.give_up(txn, now.uptime_ms);
                Ended::Decided(Decision::Abort)
            }
        }
    }

    /// A server's answer to an [`Ask`].
    pub fn learn(&mut self, now: Now, ask: Ask, vote: &Vote<'_>, effects: &mut Effects) {
        let Some(voted) = self.voted.get_mut(&ask.txn) else { return };
        let decision = match vote {
            Vote::Decided(decision) => *decision,
            Vote::No => Decision::Abort,
            Vote::Yes { at, .. } => {
                if !voted.yes.iter().any(|(server, _)| *server == ask.server) {
                    voted.yes.push((ask.server, *at));
                }
                let known = |server: &ServerId| voted.yes.iter().any(|(yes, _)| yes == server);
                if !voted.participants.iter().all(known) {
                    return;
                }
                let last = voted.yes.iter().map(|(_, at)| *at).max();
                Decision::Commit(last.unwrap_or(voted.at))
            }
        };
        self.decide(ask.txn, decision, effects);
        self.wake(now, ask.txn, effects);
    }

    /// Has the participants of an undecided transaction asked.
    pub fn recover(&mut self, now: Now, txn: TxnId, effects: &mut Effects) {
        let Some(voted) = self.voted.get(&txn) else { return };
        let (us, at) = (self.settings.server, voted.at);
        let others = voted.participants.iter().filter(|server| **server != us);
        effects.asks.extend(others.map(|server| Ask { server: *server, txn }));
        let vote = Vote::Yes { at, participants: Participants::NONE };
        self.learn(now, Ask { server: us, txn }, &vote, effects);
    }
}

/// Whether an operation is for a node of this kind and fence.
fn holds(kind: NodeKind, fence: &KeyRange, write: &WriteOperation<'_>) -> bool {
    match write {
        WriteOperation::Put { key, .. } | WriteOperation::Delete { key, .. } => {
            kind == NodeKind::Leaf && fence.contains(key)
        }
        WriteOperation::Link { key, .. } | WriteOperation::Unlink { key } => {
            kind == NodeKind::Inner && fence.contains(key)
        }
        WriteOperation::DeleteRange(range) | WriteOperation::Guard(range) => {
            kind == NodeKind::Leaf && fence.covers(range)
        }
        WriteOperation::Move { range, .. } => fence.covers(range),
        WriteOperation::Set(_) | WriteOperation::Drop | WriteOperation::Reshape(_) => true,
        WriteOperation::DropTree => true,
        WriteOperation::Create(_) => false,
    }
}
