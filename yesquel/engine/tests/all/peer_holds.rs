//! Snapshots that clients of other servers hold.

use yesquel_engine::{Caller, Effects, Engine, EngineSettings, Now};
use yesquel_model::{KeyRange, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_wire::{ByteWriter, NewNode, NodeKind, NodeOperation, Operations, Request, WriteOperation};

const PEER: ServerId = ServerId(3);

struct Server {
    engine: Engine,
    now: Now,
    writes: u64,
}

impl Server {
    fn new() -> Server {
        Server {
            engine: Engine::new(EngineSettings::default()),
            now: Now { wall_ms: 1_000_000, uptime_ms: 0 },
            writes: 0,
        }
    }

    /// Creates a tree: the low-water mark rises only after changes.
    fn write(&mut self) {
        self.writes += 1;
        let node = NodeId::root(TreeId::new(self.writes).unwrap(), ServerId(0));
        let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
        let create = Operations::encode(&[NodeOperation { node, write: WriteOperation::Create(new) }]);
        let commit = Request::Commit {
            txn: TxnId { client: 1, number: self.writes },
            birth: Timestamp::from_ms(self.now.wall_ms),
            snapshot: None,
            seen: Timestamp::ZERO,
            lease: 0,
            staged: None,
            operations: Operations::decode(&create).unwrap(),
        };
        let mut bytes = Vec::new();
        commit.write(&mut ByteWriter(&mut bytes));
        let caller = Caller { connection: 1, request: self.writes };
        self.engine.handle(self.now, caller, &bytes, &mut Effects::default()).unwrap();
    }

    /// Lets time pass; another server reports a snapshot every 200 ms, if one is given.
    fn pass(&mut self, ms: u64, reported: Option<[Option<Timestamp>; 2]>) {
        for _ in 0..ms / 50 {
            self.now.wall_ms += 50;
            self.now.uptime_ms += 50;
            if let Some(oldest) = reported
                && self.now.uptime_ms.is_multiple_of(200)
            {
                self.engine.hold_for_peer(self.now, PEER, oldest, false);
            }
            self.engine.tick(self.now, &mut Effects::default());
        }
    }
}

#[test]
fn a_snapshot_that_another_server_reports_stays_readable() {
    let mut server = Server::new();
    server.pass(5_000, None);
    let snapshot = server.engine.clock(server.now);
    server.write();
    server.pass(60_000, Some([Some(snapshot), None]));
    assert!(server.engine.is_kept(snapshot));
    // Its clients release it.
    server.pass(1_400, Some([None; 2]));
    assert!(!server.engine.is_kept(snapshot));
}

#[test]
fn the_last_report_of_a_silent_server_counts_for_ten_seconds() {
    let mut server = Server::new();
    server.pass(5_000, None);
    let snapshot = server.engine.clock(server.now);
    server.write();
    server.pass(1_000, Some([Some(snapshot), None]));
    server.pass(9_900, None);
    assert!(server.engine.is_kept(snapshot));
    server.pass(1_200, None);
    assert!(!server.engine.is_kept(snapshot));
}

#[test]
fn reports_name_what_clients_hold_and_not_what_servers_hold() {
    let mut server = Server::new();
    server.engine.hold(1, [Some(Timestamp(50)), Some(Timestamp(70))], false);
    server.engine.hold(2, [Some(Timestamp(60)), None], false);
    server.engine.hold_for_peer(server.now, PEER, [Some(Timestamp(10)), None], true);
    assert_eq!(server.engine.held_by_clients(), ([Some(Timestamp(50)), Some(Timestamp(60))], true));
    server.engine.hold(1, [None; 2], false);
    assert_eq!(server.engine.held_by_clients(), ([Some(Timestamp(60)), None], false));
}
