//! Wrong clocks: a server whose clock differs from the others serves nothing, and disturbs no
//! client of the others.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};
use tempfile::TempDir;
use yesquel::{
    Address, ClockState, ConnectError, Denial, EngineSettings, ListenOptions, LogOptions, Now, PeerOptions,
    Server, ServerId, SocketOptions, Store, Time, Timestamp, WallTime,
};

const HOUR_MS: i64 = 3_600_000;

/// The system's clocks, with a wall clock that a test sets.
#[derive(Clone, Default)]
struct SetTime {
    clocks: WallTime,
    ahead_ms: Arc<AtomicI64>,
}

impl Time for SetTime {
    fn now(&mut self) -> Now {
        let now = self.clocks.now();
        Now { wall_ms: now.wall_ms.saturating_add_signed(self.ahead_ms.load(Relaxed)), ..now }
    }

    fn is_over(&self, then: Now) -> bool {
        self.clocks.is_over(then)
    }
}

struct Cluster {
    servers: Vec<Server>,
    times: Vec<SetTime>,
    _folder: TempDir,
}

impl Cluster {
    /// Three servers whose wall clocks are so far ahead.
    fn start(ahead_ms: [i64; 3]) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let address = |number: usize| Address::Unix(folder.path().join(format!("{number}.sock")));
        let times = ahead_ms.map(|ahead_ms| {
            let time = SetTime::default();
            time.ahead_ms.store(ahead_ms, Relaxed);
            time
        });
        let servers = [0, 1, 2].map(|number| {
            let others = (0..3).filter(|other| *other != number);
            let servers = others.map(|other| (ServerId(other as u16), address(other))).collect();
            let listen = ListenOptions {
                addresses: vec![address(number)],
                peers: PeerOptions { servers, ..PeerOptions::default() },
                ..ListenOptions::default()
            };
            let settings = EngineSettings { server: ServerId(number as u16), ..EngineSettings::default() };
            let (options, time) = (LogOptions::default(), times[number].clone());
            Server::start_with_clock(None, settings, options, listen, time).unwrap()
        });
        Cluster { servers: servers.into(), times: times.into(), _folder: folder }
    }

    fn connect(&self, number: usize) -> Result<Store, yesquel::Error> {
        Store::connect(&self.servers[number].addresses()[0], SocketOptions::default())
    }

    /// Waits until the comparison of a server's clock says something.
    fn wait_until(&self, number: usize, is_meant: impl Fn(ClockState) -> bool) {
        let core = self.servers[number].host().transport().core();
        while !is_meant(core.clock_state()) {
            std::thread::yield_now();
        }
    }

    /// Writes and reads at a server. Returns how far its clock is ahead of this machine's.
    fn use_server(&self, number: usize) -> i64 {
        let store = self.connect(number).unwrap();
        let database = store.database_or_create(&database_of(number)).unwrap();
        let map = database.map("m").unwrap();
        database.put(map, b"k", b"v").unwrap();
        assert_eq!(database.get(map, b"k").unwrap().as_deref(), Some(&b"v"[..]));
        let (now, clock) = (WallTime::default().now(), Timestamp(self.servers[number].status().clock));
        clock.ms() as i64 - now.wall_ms as i64
    }
}

/// The name of a server's own database.
fn database_of(number: usize) -> String {
    format!("of {number}")
}

fn refuses_for_its_clock(error: &yesquel::Error) -> bool {
    matches!(error, yesquel::Error::Connect(ConnectError::Denied { denial: Denial::NotReady(_), .. }))
}

#[test]
fn a_clock_an_hour_ahead_before_the_start_disturbs_no_other_server() {
    for wrong_ms in [HOUR_MS, -HOUR_MS] {
        let cluster = Cluster::start([0, wrong_ms, 0]);
        cluster.wait_until(1, |state| matches!(state, ClockState::Differs { .. }));
        assert!(refuses_for_its_clock(&cluster.connect(1).unwrap_err()));
        for number in [0, 2] {
            cluster.wait_until(number, ClockState::serves);
            assert!(cluster.use_server(number).abs() < 2_000);
        }
        // Set right, it serves by the right time.
        cluster.times[1].ahead_ms.store(0, Relaxed);
        cluster.wait_until(1, ClockState::serves);
        assert!(cluster.use_server(1).abs() < 2_000);
    }
}

#[test]
fn a_clock_that_jumps_while_the_server_runs_disturbs_no_other_server() {
    let cluster = Cluster::start([0, 50, -50]);
    (0..3).for_each(|number| {
        cluster.wait_until(number, ClockState::serves);
        cluster.use_server(number);
    });
    let store = cluster.connect(2).unwrap();
    let database = store.database(&database_of(2)).unwrap();
    let map = database.map("m").unwrap();
    cluster.times[2].ahead_ms.store(HOUR_MS, Relaxed);
    cluster.wait_until(2, |state| matches!(state, ClockState::Differs { .. }));
    let error = database.get(map, b"k").unwrap_err();
    assert!(matches!(error, yesquel::Error::ClockDiffers(_)), "{error:?}");
    assert!(refuses_for_its_clock(&cluster.connect(2).unwrap_err()));
    for number in [0, 1] {
        assert!(cluster.use_server(number).abs() < 2_000);
    }
    // The jump has not reached its timestamps.
    cluster.times[2].ahead_ms.store(0, Relaxed);
    cluster.wait_until(2, ClockState::serves);
    assert!(cluster.use_server(2).abs() < 2_000);
}
