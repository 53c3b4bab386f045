//! A group whose driver is the test.

use std::{cell::RefCell, collections::BTreeMap};
use yesquel_engine::{Caller, EngineSettings, Now};
use yesquel_log::LogIdentity;
use yesquel_model::{KeyRange, NodeId, Refusal, ServerId, Timestamp, TreeId, TxnId};
use yesquel_node::{
    Durability, GroupCore, GroupLog, LogOptions, LogSizes, ReplySink, WriteAttempt, open_group,
};
use yesquel_seeds::Random;
use yesquel_simulation::disk::SimulatedDisk;
use yesquel_wire::{
    ByteWriter, NewNode, NodeKind, NodeOperation, Operations, Reply, Request, WriteOperation,
};

#[derive(Default)]
pub(crate) struct Replies(RefCell<BTreeMap<u64, Vec<u8>>>);

impl ReplySink for Replies {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        self.0.borrow_mut().insert(caller.request, reply.to_vec());
    }
}

pub(crate) struct Group {
    disk: SimulatedDisk,
    pub(crate) core: GroupCore,
    log: GroupLog<SimulatedDisk>,
    replies: Replies,
    pub(crate) now: Now,
    pub(crate) requests: u64,
}

/// The only leaf.
pub(crate) fn node() -> NodeId {
    NodeId::root(TreeId::new(1).unwrap(), ServerId(0))
}

fn start(disk: &SimulatedDisk, durability: Durability) -> (GroupCore, GroupLog<SimulatedDisk>) {
    let settings = EngineSettings { return_ms: 10_000, ..EngineSettings::default() };
    let options = LogOptions { durability, ..LogOptions::default() };
    let sizes = LogSizes { segment_bytes_max: 4 << 10, preallocated_bytes: 0 };
    let opened = open_group(disk.clone(), LogIdentity::default(), settings, options, sizes).unwrap();
    (opened.core, opened.log)
}

impl Group {
    /// A group that syncs, with an empty leaf.
    pub(crate) fn new() -> Group {
        let disk = SimulatedDisk::new();
        let (core, log) = start(&disk, Durability::Sync);
        let (replies, now) = (Replies::default(), Now { wall_ms: 10_000_000, uptime_ms: 0 });
        let mut group = Group { disk, core, log, replies, now, requests: 0 };
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        assert!(group.commit(None, Timestamp::ZERO, WriteOperation::Create(new)).is_ok());
        group
    }

    fn restart(&mut self, durability: Durability) {
        (self.core, self.log) = start(&self.disk, durability);
        // The clock runs on; a start takes some milliseconds, and waits as a server does.
        self.now = Now { wall_ms: self.now.wall_ms + 2, uptime_ms: 0 };
        self.now.wall_ms += self.core.engine().wait_ms(self.now);
    }

    /// Ends the process, with the power if there is a seed for what that loses.
    pub(crate) fn crash(&mut self, power: Option<u64>, durability: Durability) {
        if let Some(seed) = power {
            self.disk.crash(&mut Random::new(seed));
        }
        self.restart(durability);
    }

    /// Ends the process in order.
    pub(crate) fn stop(&mut self, durability: Durability) {
        self.core.end(&self.replies);
        self.write();
        self.log.sync().unwrap();
        self.log.end().unwrap();
        self.restart(durability);
    }

    /// Writes what the group has logged, and syncs it if its durability says so.
    pub(crate) fn write(&mut self) {
        self.log.take(&mut self.core);
        assert_eq!(self.log.append().unwrap(), WriteAttempt::Written);
        if self.log.must_sync(false) {
            self.log.sync().unwrap();
        }
        self.log.release(&mut self.core, &self.replies);
    }

    pub(crate) fn checkpoint(&mut self) {
        self.write();
        let written = self.log.begin_checkpoint(&self.core).write();
        let core = &mut self.core;
        self.log.end_checkpoint(Some(written), self.now, core, &self.replies).unwrap();
    }

    pub(crate) fn tick(&mut self, ms: u64) {
        self.now = Now { wall_ms: self.now.wall_ms + ms, uptime_ms: self.now.uptime_ms + ms };
        self.core.tick(self.now, &self.replies);
    }

    /// Sends a request, and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.write(&mut ByteWriter(&mut bytes));
        if self.core.peek(self.now, &bytes, &mut reply) {
            return reply;
        }
        self.requests += 1;
        let caller = Caller { connection: 1, request: self.requests };
        self.core.handle(self.now, caller, &bytes, None, &self.replies).unwrap();
        for _ in 0..2_000 {
            if let Some(reply) = self.replies.0.borrow_mut().remove(&self.requests) {
                return reply;
            }
            self.write();
            self.tick(1);
        }
        panic!("no answer to {request:?}");
    }

    /// Commits a write. `seen` is the client's highest timestamp.
    pub(crate) fn commit(
        &mut self,
        snapshot: Option<Timestamp>,
        seen: Timestamp,
        write: WriteOperation<'_>,
    ) -> Result<Timestamp, Refusal> {
        let operations = Operations::encode(&[NodeOperation { node: node(), write }]);
        let operations = Operations::decode(&operations).unwrap();
        let txn = TxnId { client: 1, number: self.requests + 1 };
        let birth = Timestamp::from_ms(self.now.wall_ms);
        let request = Request::Commit { txn, birth, snapshot, seen, lease: 0, staged: None, operations };
        match Reply::decode(&self.ask(&request)).unwrap() {
            Reply::Committed(at) => Ok(at),
            Reply::Refused { refusal, .. } => Err(refusal),
            reply => panic!("{reply:?}"),
        }
    }
}
