//! Lock of the engine's state: exclusive for changes, shared for reads.

use crate::state::{CoreState, SharedState};
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Attempts at a held lock before the thread sleeps: a few microseconds.
const SPIN_ATTEMPTS: usize = 200;

impl SharedState {
    /// Locks the state for a change.
    pub(crate) fn lock(&self) -> RwLockWriteGuard<'_, CoreState> {
        // The holder is mostly a read, which takes less time than falling asleep. A sleeping waiter
        // would cost every release a system call to wake it.
        for _ in 0..SPIN_ATTEMPTS {
            match self.state.try_write() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for reading. `None` if an exclusive holder keeps it for long.
    fn share(&self) -> Option<RwLockReadGuard<'_, CoreState>> {
        for _ in 0..SPIN_ATTEMPTS {
            match self.state.try_read() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Appends the answer to `reply` if the request is a read that changes nothing and need not
    /// wait. Returns whether it is.
    pub(crate) fn peek(&self, request: &[u8], reply: &mut Vec<u8>) -> bool {
        let Some(state) = self.share() else { return false };
        // Work that is due by time needs the exclusive lock.
        if state.time.is_over(state.now) {
            return false;
        }
        state.core.peek(state.now, request, reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use crate::{Core, ManualTime};
    use yesquel_engine::{Caller, EngineSettings};
    use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
    use yesquel_node::ReplySink;
    use yesquel_wire::{
        Answer, ByteWriter, Expect, NewNode, NodeKind, NodeOperation, Operations, Question, Reply, Request,
        WriteOperation,
    };

    struct NoReplies;

    impl ReplySink for NoReplies {
        fn deliver(&self, _: Caller, _: &[u8]) {}
    }

    fn call(core: &Core, request: &Request<'_>) -> Vec<u8> {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.write(&mut ByteWriter(&mut bytes));
        let caller = Caller { connection: 1, request: 1 };
        assert!(core.call(caller, &bytes, &mut reply, || ()).unwrap());
        reply
    }

    #[test]
    fn lookups_do_not_wait_for_each_other() {
        let core = Core::in_memory(EngineSettings::default(), ManualTime::default(), NoReplies);
        let node = NodeId::root(TreeId::new(1).unwrap(), ServerId(0));
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        let put = WriteOperation::Put { key: b"k", value: b"v", is_large: false, expect: Expect::Any };
        let writes = [WriteOperation::Create(new), put].map(|write| NodeOperation { node, write });
        let operations = Operations::encode(&writes);
        let committed = call(
            &core,
            &Request::Commit {
                txn: TxnId { client: 1, number: 1 },
                birth: Timestamp::from_ms(1_700_000_000_000),
                snapshot: None,
                seen: Timestamp::ZERO,
                lease: 0,
                staged: None,
                operations: Operations::decode(&operations).unwrap(),
            },
        );
        assert!(matches!(Reply::decode(&committed), Ok(Reply::Committed(_))));
        let mut questions = Vec::new();
        Question::Lookup { node, key: b"k" }.write(&mut ByteWriter(&mut questions));
        let questions = yesquel_wire::Questions::decode(&questions).unwrap();
        // Another reader holds the lock all the time.
        let other = core.shared.share().unwrap();
        let reply = call(&core, &Request::Read { snapshot: None, seen: Timestamp::ZERO, questions });
        assert!(matches!(Reply::lookup(&reply), Some((_, Answer::Value(b"v")))));
        drop(other);
        assert_eq!(core.status().requests.reads, 1);
    }
}
