//! Who has the engine: one who changes it, or several who only read.

use crate::{
    options::Durability,
    state::{SharedState, State},
};
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Looks at a lock that another thread has before it is waited for: a few
/// microseconds.
const LOOKS: usize = 200;

impl SharedState {
    /// For one who changes something.
    pub(crate) fn lock(&self) -> RwLockWriteGuard<'_, State> {
        // Mostly a read has it, for less time than falling asleep takes: one
        // who sleeps makes each who lets go of it wake somebody, and all slow.
        for _ in 0..LOOKS {
            match self.state.try_write() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// For one who changes nothing, unless somebody keeps it for himself for
    /// long.
    fn share(&self) -> Option<RwLockReadGuard<'_, State>> {
        for _ in 0..LOOKS {
            match self.state.try_read() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// The answer to a read that changes nothing and waits for nothing, at the
    /// end of `reply`; whether it was one.
    pub(crate) fn peek(&self, request: &[u8], reply: &mut Vec<u8>) -> bool {
        let Some(state) = self.share() else { return false };
        // What time brings is done with the lock to oneself.
        if state.time.is_over(state.now) {
            return false;
        }
        match state.engine.peek(state.now, request, reply) {
            Some(needs_lsn) if self.durability != Some(Durability::Sync) || needs_lsn <= state.synced => true,
            Some(_) => {
                reply.clear();
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

    use crate::{Core, ManualTime, ReplySink};
    use yesquel_engine::{Caller, Settings};
    use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
    use yesquel_wire::{
        Answer, Expect, NewNode, NodeKind, Operation, Operations, Question, Reply, Request, WriteOperation,
        Writer,
    };

    struct Nobody;

    impl ReplySink for Nobody {
        fn deliver(&self, _: Caller, _: &[u8]) {}
    }

    fn call(core: &Core, request: &Request<'_>) -> Vec<u8> {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.write(&mut Writer(&mut bytes));
        let caller = Caller { connection: 1, request: 1 };
        assert!(core.call(caller, &bytes, &mut reply, || ()).unwrap());
        reply
    }

    #[test]
    fn who_looks_something_up_waits_for_nobody_who_does_too() {
        let core = Core::in_memory(Settings::default(), ManualTime::default(), Nobody);
        let node = NodeId::root(TreeId::new(1).unwrap(), ServerId(0));
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        let put = WriteOperation::Put { key: b"k", value: b"v", is_large: false, expect: Expect::Any };
        let writes = [WriteOperation::Create(new), put].map(|write| Operation { node, write });
        let operations = Operations::encode(&writes);
        let committed = call(
            &core,
            &Request::Commit {
                txn: TxnId { client: 1, number: 1 },
                snapshot: None,
                seen: Timestamp::ZERO,
                lease: 0,
                staged: None,
                operations: Operations::decode(&operations).unwrap(),
            },
        );
        assert!(matches!(Reply::decode(&committed), Ok(Reply::Committed(_))));
        let mut questions = Vec::new();
        Question::Lookup { node, key: b"k" }.write(&mut Writer(&mut questions));
        let questions = yesquel_wire::Questions::decode(&questions).unwrap();
        // Somebody else is at it all the time.
        let other = core.shared.share().unwrap();
        let reply = call(&core, &Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
        assert!(matches!(Reply::lookup(&reply), Some((_, Answer::Value(b"v")))));
        drop(other);
        assert_eq!(core.status().requests.reads, 1);
    }
}
