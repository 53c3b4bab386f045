//! Transactions: how they commit, in one step or two, and how those end that
//! nobody ends. `docs/yesquel/commit.md` has every branch.

use super::Engine;
use crate::{
    effects::{Ask, Effects, Now, Stop},
    node::Node,
    record::{NOBODY, Record},
    staging::{Script, Written},
    store::TreeEnd,
    target::Prepared,
    transaction::{Known, Planned, Voted},
};
use rustc_hash::FxHashMap;
use yesquel_model::{
    Clock, Conflict, KeyRange, LocalId, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId,
};
use yesquel_wire::{
    Decision, Ended, NewNode, NodeKind, Operation, Operations, Participants, Vote, WriteOperation,
};

/// Moves of one transaction from nodes that it has not reshaped yet; a split
/// makes two.
const MOVES_MAX: usize = 64;

impl Engine {
    /// Looks at each operation in turn; nothing is changed.
    fn check(
        &mut self,
        now_ms: u64,
        holder: TxnId,
        snapshot: Timestamp,
        script: Script<'_>,
        prepares: bool,
    ) -> Result<(), Stop> {
        self.check_each(now_ms, holder, snapshot, script)?;
        self.fits(script, prepares)
    }

    fn check_each(
        &self,
        now_ms: u64,
        holder: TxnId,
        snapshot: Timestamp,
        script: Script<'_>,
    ) -> Result<(), Stop> {
        let is_leased = self.leases.count() > 0;
        let techniques = self.settings.techniques;
        // Nodes that it is to split, where the server does not.
        let mut full: Vec<NodeId> = Vec::new();
        // What the transaction itself makes of nodes before it goes on.
        let mut made: FxHashMap<NodeId, Option<NewNode>> = FxHashMap::default();
        // What it moves away from nodes that are not reshaped yet.
        let mut moved: Vec<(NodeId, KeyRange)> = Vec::new();
        for (number, Operation { node: id, write }) in script.iter().enumerate() {
            let refuse = |refusal: Refusal| match refusal {
                Refusal::Conflict(Conflict::Prepared { by, .. }) => Stop::Wait(by),
                refusal => Stop::Refuse(Some(number as u64), refusal),
            };
            match self.store.tree_end(id.tree) {
                Some(TreeEnd::Prepared(by, _)) => return Err(Stop::Wait(by)),
                Some(TreeEnd::Dropped(_)) => return Err(refuse(Refusal::Moved(id))),
                _ => {}
            }
            let node = self.store.get(id);
            let own = made.get(&id);
            let shape = match own {
                Some(made) => made.as_ref().map(|new| (new.kind, &new.fence)),
                None => node.and_then(Node::shape).map(|shape| (shape.kind, &shape.fence)),
            };
            if let WriteOperation::Create(new) = &write {
                if node.is_some() || own.is_some() {
                    return Err(refuse(Conflict::Node { node: id }.into()));
                }
                if let Some(by) = self.creating.get(&id) {
                    return Err(Stop::Wait(*by));
                }
                made.insert(id, Some(new.clone()));
                continue;
            }
            let Some((kind, fence)) = shape else {
                // Somebody may be about to make it.
                let maker = self.creating.get(&id).filter(|_| own.is_none());
                return Err(maker.map_or_else(|| refuse(Refusal::Moved(id)), |by| Stop::Wait(*by)));
            };
            let is_root = id.local == LocalId::ROOT;
            let gone = |node: NodeId, is_met: &dyn Fn(&KeyRange) -> bool| {
                moved.iter().any(|(from, range)| *from == node && is_met(range))
            };
            let is_gone = gone(id, &|range| touches(&write, range));
            if !holds(kind, fence, &write) || is_gone || (write == WriteOperation::DropTree && !is_root) {
                return Err(refuse(Refusal::Moved(id)));
            }
            if is_leased {
                self.leases.check(now_ms, holder, id.tree, kind, &write).map_err(refuse)?;
            }
            if let Some(node) = node {
                if !techniques.commutative_operations {
                    // As if each were on all of the node.
                    node.check(snapshot, &WriteOperation::Drop).map_err(refuse)?;
                }
                node.check(snapshot, &write).map_err(refuse)?;
                // Unless the transaction itself splits it after that.
                let is_full = !techniques.delegated_splits && own.is_none() && self.store.is_full(node);
                if is_full && node.grows(&write) {
                    full.push(id);
                }
            }
            if write == WriteOperation::DropTree
                && let Some(by) = self.prepared_in(id.tree)
            {
                return Err(Stop::Wait(by));
            }
            match write {
                WriteOperation::Move { range, to } => {
                    let target = made.get(&to).and_then(Option::as_ref);
                    let fits = target.is_some_and(|new| new.kind == kind && new.fence.covers(&range));
                    let is_spent = moved.len() == MOVES_MAX;
                    if !fits || to == id || is_spent || gone(to, &|other| other.meets(&range)) {
                        return Err(refuse(Refusal::Unfit(to)));
                    }
                    moved.push((id, range));
                }
                WriteOperation::Reshape(new) => {
                    // A piece that nothing names may go at any time, and does so
                    // at another one after a restart.
                    if [kind, new.kind].contains(&NodeKind::Value) {
                        return Err(refuse(Refusal::Unfit(id)));
                    }
                    // Whatever is not the node's any more must be another's.
                    let stays = Some(&new.fence).filter(|_| new.kind == kind);
                    let goes = moved.iter().filter(|(from, _)| *from == id).map(|(_, range)| range);
                    if !fence.is_covered_by(goes.chain(stays)) {
                        return Err(refuse(Refusal::Unfit(id)));
                    }
                    moved.retain(|(from, _)| *from != id);
                    full.retain(|full| *full != id);
                    made.insert(id, Some(new));
                }
                WriteOperation::Drop => drop(made.insert(id, None)),
                _ => {}
            }
        }
        match full.first() {
            None => Ok(()),
            Some(node) => Err(Refusal::Full(*node).into()),
        }
    }

    /// A transaction that has prepared something in a tree.
    fn prepared_in(&self, tree: TreeId) -> Option<TxnId> {
        let of_tree = |voted: &Voted| voted.planned.iter().any(|planned| planned.node.tree == tree);
        self.voted.iter().find(|(_, voted)| of_tree(voted)).map(|(by, _)| *by)
    }

    pub(crate) fn commit(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        Written { lease, staged, operations }: Written<'_>,
        effects: &mut Effects,
    ) -> Result<Timestamp, Stop> {
        match self.ends.of_one(txn) {
            None => {}
            // It was sent again.
            Some(Some(Decision::Commit(at))) => return Ok(at),
            Some(_) => return Err(Refusal::GivenUp(txn).into()),
        }
        let snapshot = self.snapshot(now, snapshot)?;
        let parts = self.staging.take(txn.client, staged)?;
        let script = Script::new(parts.as_ref(), operations);
        let holder = TxnId { number: lease, ..txn };
        if let Err(stop) = self.check(now.uptime_ms, holder, snapshot, script, false) {
            self.staging.put_back(txn.client, staged, parts);
            return Err(stop);
        }
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        self.log(&Record::Commit { txn, at, staged, operations }, effects);
        self.do_commit(now.uptime_ms, txn, at, script);
        self.counts.commits += 1;
        self.touch(&operations);
        Ok(at)
    }

    pub(crate) fn do_commit(&mut self, uptime_ms: u64, txn: TxnId, at: Timestamp, script: Script<'_>) {
        for Operation { node, write } in script.iter() {
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
        self.store.apply((at, self.lsn), node, write);
    }

    pub(crate) fn prepare(
        &mut self,
        now: Now,
        txn: TxnId,
        snapshot: Option<Timestamp>,
        participants: &Participants<'_>,
        Written { lease, staged, operations }: Written<'_>,
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
        let parts = self.staging.take(txn.client, staged)?;
        let script = Script::new(parts.as_ref(), operations);
        let holder = TxnId { number: lease, ..txn };
        if let Err(stop) = self.check(now.uptime_ms, holder, snapshot, script, true) {
            // Nobody who has votes elsewhere waits here, for the other might
            // wait there for him.
            let stop = match stop {
                Stop::Wait(by) => {
                    let node = script.iter().next().map_or(NodeId::default(), |operation| operation.node);
                    Stop::Refuse(None, Conflict::Prepared { node, by }.into())
                }
                stop => stop,
            };
            self.staging.put_back(txn.client, staged, parts);
            return Err(stop);
        }
        let at = self.clock.tick(now.wall_ms);
        self.under_ceiling(at, effects);
        let record = Record::Prepare { txn, at, participants: *participants, staged, operations };
        self.log(&record, effects);
        self.do_prepare(txn, at, participants, script);
        self.counts.prepares += 1;
        self.touch(&operations);
        Ok(at)
    }

    /// Counts an access for each operation.
    fn touch(&mut self, operations: &Operations<'_>) {
        let load_max = self.settings.load_max();
        for Operation { node: id, write } in operations.iter() {
            let Some(node) = self.store.get(id) else { continue };
            if node.load.touch(self.samples.second) > load_max
                && let Some(key) = write.key()
            {
                self.samples.note(id, key);
            }
        }
    }

    pub(crate) fn do_prepare(
        &mut self,
        txn: TxnId,
        at: Timestamp,
        participants: &Participants<'_>,
        script: Script<'_>,
    ) {
        let planned: Vec<Planned> = script.iter().map(|operation| Planned::new(&operation)).collect();
        for planned in &planned {
            self.store.comes_again(planned.node.tree, at);
            let target = planned.target();
            self.store.change(planned.node, |node| node.prepare(Prepared { txn, at, target }));
            if planned.drops_tree() {
                self.store.end_tree(planned.node.tree, Some(TreeEnd::Prepared(txn, at)));
            }
            if planned.creates() {
                self.creating.insert(planned.node, txn);
            }
        }
        let participants = participants.iter().collect();
        let bytes = self.promise(script);
        self.promised += bytes;
        let voted = Voted { at, participants, planned, bytes, yes: Vec::new() };
        self.voted.insert(txn, voted);
    }

    /// Whoever waits for it is to be woken.
    pub(crate) fn decide(&mut self, txn: TxnId, decision: Decision, effects: &mut Effects) {
        if let Some(voted) = self.voted.get(&txn) {
            let decision = match decision {
                // Nobody has decided it for a time before a vote, whatever he says.
                Decision::Commit(at) => Decision::Commit(at.max(voted.at)),
                Decision::Abort => Decision::Abort,
            };
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
            self.promised -= voted.bytes;
            for planned in &voted.planned {
                self.store.change(planned.node, |node| node.decided(txn));
                if planned.drops_tree() {
                    self.store.end_tree(planned.node.tree, None);
                }
                if planned.creates() {
                    self.creating.remove(&planned.node);
                }
            }
            if let Decision::Commit(at) = decision {
                self.clock = Clock::above(self.clock.last().max(at));
                let readable = self.snapshots.readable();
                for planned in &voted.planned {
                    if let Some(write) = planned.operation(at, readable) {
                        self.apply_operation(at, planned.node, &write);
                        if let Some((key, moved_at)) = planned.moved_away() {
                            self.store.end_at(moved_at, planned.node, key);
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

/// Whether an operation is on keys of a range.
fn touches(write: &WriteOperation<'_>, range: &KeyRange) -> bool {
    match write {
        WriteOperation::Put { key, .. }
        | WriteOperation::Delete { key, .. }
        | WriteOperation::Link { key, .. }
        | WriteOperation::Unlink { key } => range.contains(key),
        WriteOperation::DeleteRange(own)
        | WriteOperation::Guard(own)
        | WriteOperation::Move { range: own, .. } => own.meets(range),
        _ => false,
    }
}

/// Whether an operation is for a node of this kind and fence.
fn holds(kind: NodeKind, fence: &KeyRange, write: &WriteOperation<'_>) -> bool {
    match write {
        WriteOperation::Put { key, .. } => kind != NodeKind::Inner && fence.contains(key),
        WriteOperation::Delete { key, .. } => kind == NodeKind::Leaf && fence.contains(key),
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
