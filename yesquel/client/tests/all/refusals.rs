//! What a client learns from refusals.

use std::{cell::RefCell, future::ready};
use yesquel_client::{Client, CommitError, RequestError, Writes};
use yesquel_model::{NodeId, Refusal, ServerId, Timestamp, TreeId};
use yesquel_transport::{LostCall, ReplyHandler, Transport, block_on};
use yesquel_wire::{Expect, NodeOperation, Question, Reply, Request, WriteOperation};

const OLDEST: Timestamp = Timestamp::from_ms(7_000);

/// Refuses snapshots below [`OLDEST`], as a server does whose clock is ahead after a restart, and
/// notes the timestamps that requests carry.
#[derive(Default)]
struct AheadServer {
    seen: RefCell<Vec<Timestamp>>,
}

impl Transport for AheadServer {
    fn call<'a>(
        &'a self,
        _: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let (Request::Read { seen, .. } | Request::Commit { seen, .. }) = Request::decode(request).unwrap()
        else {
            panic!("another request")
        };
        self.seen.borrow_mut().push(seen);
        let refusal = Refusal::SnapshotTooOld { snapshot: seen, oldest: OLDEST };
        let mut reply = Vec::new();
        Reply::Refused { operation: None, refusal }.write(&mut reply);
        ready(Ok(reply))
    }

    fn send(&self, _: ServerId, _: &[u8], _: ReplyHandler) {}

    fn home_group(&self) -> ServerId {
        ServerId(0)
    }
}

fn node() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

/// Otherwise a retry would take the same old snapshot again, at a server whose clock is behind.
#[test]
fn the_next_snapshot_is_not_below_the_oldest_of_the_server_that_refused() {
    let server = AheadServer::default();
    let client = Client::new(&server, 1);
    for _ in 0..2 {
        let question = Question::Lookup { node: node(), key: b"k" };
        let refused = block_on(client.read(&mut None, ServerId(0), &[question]));
        assert!(matches!(refused, Err(RequestError::Refused(Refusal::SnapshotTooOld { .. }))));
    }
    let client = Client::new(&server, 2);
    let mut writes = Writes::new();
    let write = WriteOperation::Delete { key: b"k", expect: Expect::Any };
    writes.push(&NodeOperation { node: node(), write });
    for _ in 0..2 {
        let refused = block_on(client.commit(Some(Timestamp(1)), &writes));
        assert!(matches!(refused, Err(CommitError::Refused { .. })));
    }
    assert_eq!(*server.seen.borrow(), [Timestamp::ZERO, OLDEST, Timestamp::ZERO, OLDEST]);
}
