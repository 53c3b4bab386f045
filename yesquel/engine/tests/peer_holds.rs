//! Snapshots that clients of other servers hold.

use yesquel_engine::{Effects, Engine, EngineSettings, Now};
use yesquel_model::{ServerId, Timestamp};

const PEER: ServerId = ServerId(3);

struct Server {
    engine: Engine,
    now: Now,
}

impl Server {
    fn new() -> Server {
        Server {
            engine: Engine::new(EngineSettings::default()),
            now: Now { wall_ms: 1_000_000, uptime_ms: 0 },
        }
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
    server.pass(60_000, Some([Some(snapshot), None]));
    assert!(server.engine.is_kept(snapshot));
    // Its clients release it.
    server.pass(400, Some([None; 2]));
    assert!(!server.engine.is_kept(snapshot));
}

#[test]
fn the_last_report_of_a_silent_server_counts_for_ten_seconds() {
    let mut server = Server::new();
    server.pass(5_000, None);
    let snapshot = server.engine.clock(server.now);
    server.pass(1_000, Some([Some(snapshot), None]));
    server.pass(9_900, None);
    assert!(server.engine.is_kept(snapshot));
    server.pass(200, None);
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
