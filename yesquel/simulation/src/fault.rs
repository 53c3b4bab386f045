//! Faults of a run, and their times. Faults are independent, so that a failing list can be
//! shortened by leaving some out.

use yesquel_seeds::Random;

/// Most storage servers of a cluster; each is a group of its own.
pub const SERVERS_MAX: usize = 8;
/// Storage servers, if the conditions do not say how many.
const SERVERS_USUAL: usize = 3;
/// Client processes, each with its own cache and connections.
pub const PROCESSES: usize = 3;
/// Tasks of a process; they share its cache and connections.
pub const TASKS_PER_PROCESS: usize = 2;
/// Tasks of all processes.
pub const TASKS: usize = TASKS_PER_PROCESS * PROCESSES;
/// Ends of connections: the processes, then the servers.
pub(crate) const PEERS: usize = PROCESSES + SERVERS_MAX;
/// Microseconds in which faults begin.
const FAULTS_US: u64 = 8_000_000;

/// The process of a task.
pub fn process_of(task: usize) -> usize {
    task / TASKS_PER_PROCESS
}

/// One condition or fault of a run.
#[derive(Debug, Clone)]
pub enum InjectedFault {
    /// Messages take varying times; one in `late_in` takes up to `late_us` (0: none).
    Latency {
        /// Seed of the times.
        seed: u64,
        /// Frequency of late messages.
        late_in: u64,
        /// Longest delay of a late message.
        late_us: u64,
    },
    /// One message in `one_in` arrives twice on its connection: the copy later than the message, by up
    /// to `late_us`, and perhaps after others that were sent later. A reply, likewise.
    Copies {
        /// Seed of what is copied, and when.
        seed: u64,
        /// Frequency of copies.
        one_in: u64,
        /// Longest delay behind the message.
        late_us: u64,
    },
    /// Number of storage servers.
    Servers {
        /// From two to [`SERVERS_MAX`].
        count: usize,
    },
    /// Log bytes between checkpoints, and of a segment.
    LogSizes {
        /// Bytes between checkpoints.
        checkpoint_bytes: u64,
        /// Bytes of a segment.
        segment_bytes: u64,
    },
    /// Servers do not sync each record: at intervals, or not at all. `draw_faults` draws no such
    /// condition, for it loses acknowledged commits of one server.
    Relaxed {
        /// Milliseconds between syncs; none: no syncs but those that replies wait for.
        interval_ms: Option<u64>,
    },
    /// Ends of transactions are kept for so long, and what was born before is refused.
    Horizon {
        /// Milliseconds.
        kept_ms: u64,
    },
    /// Client processes reach some servers by Unix sockets, and watch nodes there.
    Watching {
        /// The servers, as a bit set.
        servers: u32,
    },
    /// A connection for notices has room for so many bytes that its client has not taken; a server
    /// closes it when a notice does not fit.
    NoticeRoom {
        /// Bytes.
        bytes: usize,
    },
    /// The connection by which a client process watches nodes of a server ends.
    EndNotices {
        /// When.
        at_us: u64,
        /// The process.
        process: usize,
        /// The server.
        server: usize,
    },
    /// A client process dies as it makes a call.
    Die {
        /// The process.
        process: usize,
        /// Number of the call in the process's life.
        call: u64,
        /// Whether the call is still sent.
        sent: bool,
    },
    /// A client process is stopped for a while once it has made a call, as by SIGSTOP: its connections
    /// stay.
    Stop {
        /// The process.
        process: usize,
        /// Number of the call in the process's life.
        call: u64,
        /// For how long.
        us: u64,
    },
    /// The connection between a client, or another server, and a server breaks. Of the messages in
    /// flight each way so many quarters still arrive; the requests that much later, perhaps after
    /// requests of the next connection.
    Cut {
        /// When.
        at_us: u64,
        /// The end that opened the connection.
        peer: usize,
        /// The server.
        server: usize,
        /// Quarters of the requests.
        requests: u64,
        /// Extra delay of the requests.
        late_us: u64,
        /// Quarters of the replies.
        replies: u64,
    },
    /// The same, on the connection of a client's call, so long after the call is sent.
    CutCall {
        /// The process.
        process: usize,
        /// Number of the call in the process's life.
        call: u64,
        /// Delay.
        after_us: u64,
        /// Quarters of the requests.
        requests: u64,
        /// Extra delay of the requests.
        late_us: u64,
        /// Quarters of the replies.
        replies: u64,
    },
    /// A network partition: nothing travels between a server and some peers. Messages wait, or
    /// connections break.
    Partition {
        /// When.
        at_us: u64,
        /// For how long.
        us: u64,
        /// The server.
        server: usize,
        /// The peers, as a bit set.
        peers: u32,
        /// Whether connections break.
        breaks: bool,
    },
    /// A server process ends, and starts again.
    Crash {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
        /// Seed of what a power failure loses; none: the power stays.
        power: Option<u64>,
        /// Time until the restart.
        down_us: u64,
        /// New error of its clock.
        ahead_ms: Option<i64>,
    },
    /// A server loses power in the middle of a disk operation.
    PowerLoss {
        /// When it begins to count operations.
        at_us: u64,
        /// The server.
        server: usize,
        /// Operations that still succeed.
        operations: u64,
        /// Seed of what is lost.
        seed: u64,
        /// Time until the restart.
        down_us: u64,
    },
    /// Syncs fail until the server restarts.
    SyncFailure {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
        /// Seed of what a power failure loses at the restart; none: the power stays.
        power: Option<u64>,
        /// When it restarts.
        until_us: u64,
    },
    /// A disk runs full, and has space again later or when the server restarts.
    DiskFull {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
        /// Free bytes.
        free: usize,
        /// Whether the server restarts; otherwise it goes on.
        restarts: bool,
        /// Seed of what a power failure loses at the restart; none: the power stays.
        power: Option<u64>,
        /// When there is space.
        until_us: u64,
    },
    /// A server's process is stopped for a while, as by SIGSTOP: it takes and does nothing, and then
    /// goes on.
    Freeze {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
        /// For how long.
        us: u64,
    },
    /// The configuration of a group changes: its epoch rises.
    Reconfigure {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
    },
    /// A server process ends, and starts again at another address.
    Move {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
        /// Time until the restart.
        down_us: u64,
    },
    /// A server's clock is wrong from then on.
    Clock {
        /// When.
        at_us: u64,
        /// The server.
        server: usize,
        /// Its error.
        ahead_ms: i64,
    },
}

impl InjectedFault {
    /// The server that it concerns.
    pub(crate) fn server(&self) -> Option<usize> {
        match self {
            InjectedFault::EndNotices { server, .. }
            | InjectedFault::Cut { server, .. }
            | InjectedFault::Partition { server, .. }
            | InjectedFault::Crash { server, .. }
            | InjectedFault::PowerLoss { server, .. }
            | InjectedFault::SyncFailure { server, .. }
            | InjectedFault::DiskFull { server, .. }
            | InjectedFault::Freeze { server, .. }
            | InjectedFault::Reconfigure { server, .. }
            | InjectedFault::Move { server, .. }
            | InjectedFault::Clock { server, .. } => Some(*server),
            _ => None,
        }
    }

    /// Whether it can make a transaction fail.
    pub fn is_adverse(&self) -> bool {
        match self {
            InjectedFault::LogSizes { .. }
            | InjectedFault::Servers { .. }
            | InjectedFault::Copies { .. }
            | InjectedFault::Watching { .. } => false,
            InjectedFault::Latency { late_in, .. } => *late_in > 0,
            _ => true,
        }
    }
}

/// Draws the conditions and faults of a run. Some runs have none, so that a test sees that nothing
/// fails without a reason.
pub fn draw_faults(random: &mut Random) -> Vec<InjectedFault> {
    let mut faults = Vec::new();
    let servers = match random.next(4) {
        0 => 2 + random.next(SERVERS_MAX as u64 - 1) as usize,
        _ => SERVERS_USUAL,
    };
    faults.push(InjectedFault::Servers { count: servers });
    let is_calm = random.next(5) == 0;
    if random.next(8) > 0 {
        let late_in = if is_calm { 0 } else { [0, 10, 30, 100][random.next(4) as usize] };
        let late_us = [5_000, 50_000, 400_000][random.next(3) as usize];
        faults.push(InjectedFault::Latency { seed: random.next(1 << 30), late_in, late_us });
    }
    if random.next(4) > 0 {
        let checkpoint_bytes = 1_000 + random.next(20_000);
        faults.push(InjectedFault::LogSizes { checkpoint_bytes, segment_bytes: 500 + random.next(5_000) });
    }
    if random.next(3) == 0 {
        let (seed, one_in) = (random.next(1 << 30), 1 + random.next(10));
        let late_us = [1_000, 30_000, 400_000, 3_000_000][random.next(4) as usize];
        faults.push(InjectedFault::Copies { seed, one_in, late_us });
    }
    if !is_calm && random.next(2) == 0 {
        faults.push(InjectedFault::Horizon { kept_ms: [500, 1_500, 4_000][random.next(3) as usize] });
    }
    if !is_calm {
        let mut kinds = Kinds(random.next(1 << 30));
        client_faults(random, &mut kinds, &mut faults);
        network_faults(random, servers, &mut kinds, &mut faults);
        server_faults(random, servers, &mut kinds, &mut faults);
        location_faults(random, servers, &mut kinds, &mut faults);
    }
    faults
}

/// Draws whether and where the clients of a run watch nodes, and the faults of that.
pub fn draw_watching(random: &mut Random, servers: usize, is_calm: bool) -> Vec<InjectedFault> {
    let all = (1 << servers) - 1;
    let servers_watched = match random.next(6) {
        0 => random.next(all + 1),
        1 | 2 => all,
        _ => 0,
    };
    if servers_watched == 0 {
        return Vec::new();
    }
    let mut faults = vec![InjectedFault::Watching { servers: servers_watched as u32 }];
    if is_calm {
        return faults;
    }
    if random.next(4) == 0 {
        // A notice takes about 30 bytes.
        faults.push(InjectedFault::NoticeRoom { bytes: 30 + random.next(150) as usize });
    }
    if random.next(2) == 0 {
        for _ in 0..1 + random.next(10) {
            let (at_us, process) = (random.next(FAULTS_US), any_process(random));
            let server = any_server(random, servers);
            faults.push(InjectedFault::EndNotices { at_us, process, server });
        }
    }
    faults
}

/// Draws processes that are often stopped, and so leave votes without decisions.
pub fn draw_stops(random: &mut Random) -> Vec<InjectedFault> {
    let stop = |random: &mut Random| {
        let (process, call) = (any_process(random), random.next(150));
        InjectedFault::Stop { process, call, us: 100_000 + random.next(1_500_000) }
    };
    (0..5 + random.next(15)).map(|_| stop(random)).collect()
}

/// Draws disks that are often full for a short time, while requests arrive twice.
pub fn draw_full_disks(random: &mut Random, servers: usize) -> Vec<InjectedFault> {
    let (seed, one_in) = (random.next(1 << 30), 1 + random.next(2));
    let late_us = [3_000, 30_000, 150_000][random.next(3) as usize];
    let mut faults = vec![InjectedFault::Copies { seed, one_in, late_us }];
    for _ in 0..4 + random.next(10) {
        let (at_us, us) = (random.next(FAULTS_US / 8), random.next(200_000));
        let (server, free) = (any_server(random, servers), random.next(200) as usize);
        let until_us = at_us + us;
        faults.push(InjectedFault::DiskFull { at_us, server, free, restarts: false, power: None, until_us });
    }
    faults
}

/// The kinds of faults that a run has, a bit each: not all, since one kind can hide another.
struct Kinds(u64);

impl Kinds {
    /// How many faults of the next kind there are, none or up to `most`.
    fn count(&mut self, random: &mut Random, most: u64) -> u64 {
        let is_drawn = self.0 & 1 == 1;
        self.0 >>= 1;
        if is_drawn { 1 + random.next(most) } else { 0 }
    }
}

/// The number of storage servers under some conditions.
pub fn server_count(faults: &[InjectedFault]) -> usize {
    let count = faults.iter().find_map(|fault| match fault {
        InjectedFault::Servers { count } => Some(*count),
        _ => None,
    });
    count.unwrap_or(SERVERS_USUAL)
}

fn any_server(random: &mut Random, servers: usize) -> usize {
    random.next(servers as u64) as usize
}

fn any_process(random: &mut Random) -> usize {
    random.next(PROCESSES as u64) as usize
}

fn client_faults(random: &mut Random, kinds: &mut Kinds, faults: &mut Vec<InjectedFault>) {
    for _ in 0..kinds.count(random, 4) {
        let (process, call) = (any_process(random), random.next(500));
        faults.push(InjectedFault::Die { process, call, sent: random.next(2) == 0 });
    }
    for _ in 0..kinds.count(random, 16) {
        let (process, call) = (any_process(random), random.next(200));
        faults.push(InjectedFault::Stop { process, call, us: random.next(3_000_000) });
    }
}

fn network_faults(random: &mut Random, servers: usize, kinds: &mut Kinds, faults: &mut Vec<InjectedFault>) {
    for _ in 0..kinds.count(random, 12) {
        let (at_us, peer) = (random.next(FAULTS_US), random.next((PROCESSES + servers) as u64) as usize);
        let (requests, replies) = (random.next(5), random.next(5));
        let late_us = if random.next(2) == 0 { 0 } else { random.next(100_000) };
        faults.push(InjectedFault::Cut {
            at_us,
            peer,
            server: any_server(random, servers),
            requests,
            late_us,
            replies,
        });
    }
    for _ in 0..kinds.count(random, 30) {
        let (process, call) = (any_process(random), random.next(250));
        let after_us = if random.next(2) == 0 { 0 } else { random.next(5_000) };
        let (requests, late_us, replies) = (random.next(5), random.next(100_000), random.next(5));
        faults.push(InjectedFault::CutCall { process, call, after_us, requests, late_us, replies });
    }
    for _ in 0..kinds.count(random, 3) {
        let (at_us, us) = (random.next(FAULTS_US), random.next(1_500_000));
        let all = 1 << (PROCESSES + servers);
        let peers = if random.next(2) == 0 { all - 1 } else { random.next(all) };
        let breaks = random.next(2) == 0;
        faults.push(InjectedFault::Partition {
            at_us,
            us,
            server: any_server(random, servers),
            peers: peers as u32,
            breaks,
        });
    }
}

fn server_faults(random: &mut Random, servers: usize, kinds: &mut Kinds, faults: &mut Vec<InjectedFault>) {
    let power = |random: &mut Random| (random.next(3) > 0).then(|| random.next(1 << 20));
    for _ in 0..kinds.count(random, 4) {
        let (at_us, slow) = (random.next(FAULTS_US), random.next(3) == 0);
        let down_us = random.next(if slow { 700_000 } else { 20_000 });
        let ahead_ms = (random.next(2) == 0).then(|| 150 - random.next(300) as i64);
        let (server, power) = (any_server(random, servers), power(random));
        faults.push(InjectedFault::Crash { at_us, server, power, down_us, ahead_ms });
    }
    for _ in 0..kinds.count(random, 5) {
        let (at_us, down_us) = (random.next(FAULTS_US), random.next(700_000));
        let (operations, seed) = (random.next(60), random.next(1 << 20));
        faults.push(InjectedFault::PowerLoss {
            at_us,
            server: any_server(random, servers),
            operations,
            seed,
            down_us,
        });
    }
    for _ in 0..kinds.count(random, 2) {
        let (at_us, us) = (random.next(FAULTS_US), random.next(900_000));
        let (server, power, until_us) = (any_server(random, servers), power(random), at_us + us);
        if random.next(3) == 0 {
            faults.push(InjectedFault::SyncFailure { at_us, server, power, until_us });
        } else {
            // Less than is written until it ends.
            let free = random.next(3_000) as usize / 8;
            let (restarts, until_us) = (free.is_multiple_of(4), at_us + 3 * us);
            faults.push(InjectedFault::DiskFull { at_us, server, free, restarts, power, until_us });
        }
    }
    for _ in 0..kinds.count(random, 2) {
        let (at_us, us) = (random.next(FAULTS_US), random.next(4_000_000));
        faults.push(InjectedFault::Freeze { at_us, server: any_server(random, servers), us });
    }
    // The median is right as long as most clocks are.
    let wrong = any_server(random, servers);
    for _ in 0..kinds.count(random, 5) {
        let at_us = if random.next(4) == 0 { 0 } else { random.next(FAULTS_US) };
        // Some differ so much that the server stops serving, and refuses timestamps of the others
        // until it has compared its clock.
        let ahead_ms = match random.next(6) {
            0 => 3_600_000,
            1 => -3_600_000,
            2..=4 => 300 - random.next(5_000) as i64,
            _ => 80 - random.next(160) as i64,
        };
        let server = if i64::abs(ahead_ms) > 80 { wrong } else { any_server(random, servers) };
        faults.push(InjectedFault::Clock { at_us, server, ahead_ms });
    }
}

fn location_faults(random: &mut Random, servers: usize, kinds: &mut Kinds, faults: &mut Vec<InjectedFault>) {
    for _ in 0..kinds.count(random, 6) {
        let (at_us, server) = (random.next(FAULTS_US), any_server(random, servers));
        faults.push(InjectedFault::Reconfigure { at_us, server });
    }
    // The others stay where they are, and know where it is.
    let server = any_server(random, servers);
    for _ in 0..kinds.count(random, 3) {
        let (at_us, down_us) = (random.next(FAULTS_US), random.next(300_000));
        faults.push(InjectedFault::Move { at_us, server, down_us });
    }
}
