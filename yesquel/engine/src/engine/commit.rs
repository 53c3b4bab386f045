//! Transactions: how they commit, in one step or two, and how those end that
//! nobody ends. `docs/yesquel/commit.md` has every branch.

use super::Engine;
use crate::{
    effects::{Ask, Effects, Now, Stop},
    record::{NOBODY, Record},
    staging::{Script, Written},
    store::TreeEnd,
    target::Prepared,
    transaction::{Known, Planned, Voted},
};
use yesquel_model::{Clock, Conflict, NodeId, Refusal, ServerId, Timestamp, TxnId};
use yesquel_wire::{Decision, Ended, Operation, Operations, Participants, Vote, WriteOperation};

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
            Some(Ended::Decided(Decision::Commit(at))) => return Ok(at),
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
        self.ends.of_one(txn).unwrap_or_else(|| {
            self.ends.give_up(txn, now.uptime_ms);
            Ended::Decided(Decision::Abort)
        })
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
