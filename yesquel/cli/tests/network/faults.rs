//! Faults, drawn from a seed.

use crate::{
    cluster::{CLIENTS, NetworkCluster, PATIENCE, SMALL_DISK},
    lists::GROUPS,
    namespaces::{Machine, SlowLink},
};
use rustix::process::Signal;
use std::{
    fmt, fs, thread,
    time::{Duration, Instant},
};
use yesquel_seeds::Random;

const HOUR: i64 = 3_600;

/// A fault, and how long it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    /// `kill -9` of servers, which are started again after the pause.
    KillServers {
        groups: Vec<usize>,
        pause_ms: u64,
    },
    /// The same, and again during the start.
    KillStarting {
        group: usize,
        after_ms: u64,
    },
    StopServer {
        group: usize,
        ms: u64,
    },
    /// `kill -9` of a client. If its machine is cut off first, servers do not see its connections
    /// end.
    KillClient {
        client: usize,
        is_cut_off: bool,
    },
    StopClient {
        client: usize,
        ms: u64,
    },
    /// Packets between two sides, in one direction or both.
    Cut {
        from: Vec<Machine>,
        to: Vec<Machine>,
        is_one_way: bool,
        resets: bool,
        ms: u64,
    },
    Slow {
        machine: Machine,
        how: SlowLink,
        ms: u64,
    },
    /// The disk of a server fills up. The server goes on when there is space.
    FillDisk,
    /// A server's wall clock is wrong, from a start or while it runs.
    Clock {
        group: usize,
        seconds: i64,
        at_start: bool,
        ms: u64,
    },
}

/// Kinds of faults, in the order of a deck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    KillServer,
    KillSome,
    KillAll,
    KillStarting,
    StopServer,
    KillClient,
    KillCutOffClient,
    StopClient,
    CutServers,
    CutClients,
    CutOneWay,
    Reset,
    Slow,
    FillDisk,
    ClockAtStart,
    ClockJump,
}

impl FaultKind {
    /// Number of faults of this kind in a long round.
    fn count(self) -> usize {
        match self {
            FaultKind::KillServer => 12,
            FaultKind::KillSome => 5,
            FaultKind::StopServer | FaultKind::KillClient => 3,
            FaultKind::CutServers | FaultKind::CutOneWay | FaultKind::KillCutOffClient => 2,
            _ => 1,
        }
    }

    const ALL: [FaultKind; 16] = [
        FaultKind::KillServer,
        FaultKind::KillSome,
        FaultKind::KillAll,
        FaultKind::KillStarting,
        FaultKind::StopServer,
        FaultKind::KillClient,
        FaultKind::KillCutOffClient,
        FaultKind::StopClient,
        FaultKind::CutServers,
        FaultKind::CutClients,
        FaultKind::CutOneWay,
        FaultKind::Reset,
        FaultKind::Slow,
        FaultKind::FillDisk,
        FaultKind::ClockAtStart,
        FaultKind::ClockJump,
    ];
}

fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for at in (1..all.len()).rev() {
        all.swap(at, random.next(at as u64 + 1) as usize);
    }
}

/// Draws the faults of a round: each kind once, or as often as a long round has it.
pub(crate) fn drawn(random: &mut Random, is_long: bool, has_netem: bool) -> Vec<NetworkFault> {
    let copies = |kind: FaultKind| std::iter::repeat_n(kind, if is_long { kind.count() } else { 1 });
    let mut kinds: Vec<FaultKind> = FaultKind::ALL.into_iter().flat_map(copies).collect();
    shuffle(&mut kinds, random);
    kinds.into_iter().map(|kind| NetworkFault::drawn(kind, random, is_long, has_netem)).collect()
}

/// Draws one side of a partition: some of these machines, not all.
fn side(all: &[Machine], random: &mut Random) -> (Vec<Machine>, Vec<Machine>) {
    let mut all = all.to_vec();
    shuffle(&mut all, random);
    let rest = all.split_off(1 + random.next(all.len() as u64 - 1) as usize);
    (all, rest)
}

impl NetworkFault {
    fn drawn(kind: FaultKind, random: &mut Random, is_long: bool, has_netem: bool) -> NetworkFault {
        let group = random.next(GROUPS as u64) as usize;
        let client = random.next(CLIENTS as u64) as usize;
        let ms = if is_long { 300 + random.next(2_500) } else { 200 + random.next(400) };
        let pause_ms = if random.next(2) == 0 { 0 } else { random.next(1_500) };
        let servers: Vec<Machine> = (0..GROUPS).map(Machine).collect();
        let clients: Vec<Machine> = (GROUPS..GROUPS + CLIENTS).map(Machine).collect();
        let all = [servers.clone(), clients.clone()].concat();
        let is_one_way = random.next(3) == 0;
        match kind {
            FaultKind::KillServer => NetworkFault::KillServers { groups: vec![group], pause_ms },
            FaultKind::KillSome => {
                let (some, _) = side(&servers, random);
                NetworkFault::KillServers { groups: some.iter().map(|machine| machine.0).collect(), pause_ms }
            }
            FaultKind::KillAll => NetworkFault::KillServers { groups: (0..GROUPS).collect(), pause_ms },
            FaultKind::KillStarting => NetworkFault::KillStarting { group, after_ms: random.next(150) },
            FaultKind::StopServer => NetworkFault::StopServer { group, ms },
            FaultKind::KillClient => NetworkFault::KillClient { client, is_cut_off: false },
            FaultKind::KillCutOffClient => NetworkFault::KillClient { client, is_cut_off: true },
            FaultKind::StopClient => NetworkFault::StopClient { client, ms: 1_500 + ms },
            FaultKind::CutServers => {
                let (from, to) = side(&servers, random);
                NetworkFault::Cut { from, to, is_one_way, resets: false, ms }
            }
            FaultKind::CutClients => {
                let (from, (to, _)) = (vec![clients[client]], side(&servers, random));
                NetworkFault::Cut { from, to, is_one_way, resets: false, ms }
            }
            FaultKind::CutOneWay => {
                let (from, to) = side(&all, random);
                NetworkFault::Cut { from, to, is_one_way: true, resets: false, ms }
            }
            FaultKind::Reset => {
                let (from, to) = side(&all, random);
                NetworkFault::Cut { from, to, is_one_way, resets: true, ms }
            }
            FaultKind::Slow => {
                let how = match random.next(if has_netem { 3 } else { 2 }) {
                    0 => SlowLink::Narrow(100 + random.next(900)),
                    1 => SlowLink::Lossy(1 + random.next(25)),
                    _ => SlowLink::Delayed(20 + random.next(200)),
                };
                NetworkFault::Slow { machine: all[random.next(all.len() as u64) as usize], how, ms }
            }
            FaultKind::FillDisk => NetworkFault::FillDisk,
            FaultKind::ClockAtStart | FaultKind::ClockJump => {
                let seconds = [HOUR, -HOUR, 1 + random.next(30) as i64, -30][random.next(4) as usize];
                let at_start = kind == FaultKind::ClockAtStart;
                // The library notices a changed file within a second.
                NetworkFault::Clock { group, seconds, at_start, ms: 1_500 + ms }
            }
        }
    }

    /// Whether only clients are affected, so that readers may wait for a second at most.
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self, NetworkFault::KillClient { .. } | NetworkFault::StopClient { .. })
    }

    /// Number of servers that it kills.
    pub(crate) fn kills(&self) -> u64 {
        match self {
            NetworkFault::KillServers { groups, .. } => groups.len() as u64,
            NetworkFault::KillStarting { .. } => 2,
            NetworkFault::Clock { at_start, .. } => u64::from(*at_start),
            _ => 0,
        }
    }

    /// Groups whose servers it leaves alone: they serve all the time.
    pub(crate) fn unaffected(&self) -> Vec<usize> {
        let is_affected = |of: usize| match self {
            NetworkFault::KillServers { groups, .. } => groups.contains(&of),
            NetworkFault::KillStarting { group, .. }
            | NetworkFault::StopServer { group, .. }
            | NetworkFault::Clock { group, .. } => *group == of,
            NetworkFault::Slow { machine, .. } => machine.0 == of,
            NetworkFault::FillDisk => of == SMALL_DISK,
            NetworkFault::KillClient { .. } | NetworkFault::StopClient { .. } | NetworkFault::Cut { .. } => {
                false
            }
        };
        (0..GROUPS).filter(|group| !is_affected(*group)).collect()
    }

    /// Makes the fault happen and waits until it is over. `during` runs while it lasts.
    pub(crate) fn happen(&self, cluster: &mut NetworkCluster, during: &mut dyn FnMut(&NetworkCluster)) {
        let mut last = |cluster: &NetworkCluster, ms: u64| {
            thread::sleep(Duration::from_millis(ms));
            during(cluster);
        };
        match self {
            NetworkFault::KillServers { groups, pause_ms } => {
                groups.iter().for_each(|group| cluster.signal_server(*group, Signal::KILL));
                groups.iter().for_each(|group| cluster.kill_server(*group));
                if groups.len() < GROUPS {
                    last(cluster, *pause_ms)
                }
                groups.iter().for_each(|group| cluster.start_server(*group));
            }
            NetworkFault::KillStarting { group, after_ms } => {
                cluster.kill_server(*group);
                let mut starting = cluster.spawn_server(*group);
                last(cluster, *after_ms);
                starting.signal(Signal::KILL);
                starting.wait();
                cluster.keep_log(*group, &starting);
                cluster.start_server(*group);
            }
            NetworkFault::StopServer { group, ms } => {
                cluster.signal_server(*group, Signal::STOP);
                last(cluster, *ms);
                cluster.signal_server(*group, Signal::CONT);
            }
            NetworkFault::KillClient { client, is_cut_off } => {
                if *is_cut_off {
                    let own = Machine(GROUPS + client);
                    (0..GROUPS).for_each(|group| cluster.namespaces.cut(own, Machine(group), false));
                    // Its last messages may be under way.
                    thread::sleep(Duration::from_millis(20));
                }
                cluster.kill_client(*client);
            }
            NetworkFault::StopClient { client, ms } => {
                cluster.signal_client(*client, Signal::STOP);
                last(cluster, *ms);
            }
            NetworkFault::Cut { from, to, is_one_way, resets, ms } => {
                for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))) {
                    cluster.namespaces.cut(from, to, *resets);
                    if !is_one_way {
                        cluster.namespaces.cut(to, from, *resets);
                    }
                }
                last(cluster, *ms);
            }
            NetworkFault::Slow { machine, how, ms } => {
                cluster.namespaces.slow(*machine, *how);
                last(cluster, *ms);
            }
            NetworkFault::FillDisk => fill_disk(cluster, &mut last),
            NetworkFault::Clock { group, seconds, at_start, ms } => {
                cluster.set_clock(*group, *seconds);
                if *at_start {
                    cluster.kill_server(*group);
                    cluster.start_server(*group);
                }
                last(cluster, *ms);
                cluster.set_clock(*group, 0);
            }
        }
    }
}

/// Fills the small disk until its server reports that, frees it again, and waits until the server
/// takes writes.
fn fill_disk(cluster: &mut NetworkCluster, last: &mut dyn FnMut(&NetworkCluster, u64)) {
    let is_full = |cluster: &NetworkCluster| cluster.status(SMALL_DISK).unwrap().log.full.is_some();
    let ballast = cluster.place.disk(SMALL_DISK).join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    // Until there is no space.
    let _ = std::io::copy(&mut std::io::repeat(0), &mut file);
    drop(file);
    // The log writes into space that it has reserved, at first.
    let until = Instant::now() + PATIENCE;
    while !is_full(cluster) && Instant::now() < until {
        // It may be refused.
        let _ = cluster.write_much(SMALL_DISK);
    }
    last(cluster, 200);
    assert!(is_full(cluster), "the server does not report that its disk is full");
    fs::remove_file(&ballast).unwrap();
    let until = Instant::now() + PATIENCE;
    while let Err(error) = cluster.write_much(SMALL_DISK) {
        assert!(Instant::now() < until, "there is space, and the server takes no writes: {error}");
    }
    assert!(!is_full(cluster), "the server reports that its disk is full, and it is not");
}

impl fmt::Display for NetworkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |machines: &[Machine]| {
            let name = |machine: &Machine| match machine.0.checked_sub(GROUPS) {
                None => format!("server {}", machine.0),
                Some(client) => format!("client {client}"),
            };
            machines.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        match self {
            NetworkFault::KillServers { groups, pause_ms } => {
                write!(f, "kill -9 servers {groups:?}, start after {pause_ms} ms")
            }
            NetworkFault::KillStarting { group, after_ms } => {
                write!(f, "kill -9 server {group}, and again {after_ms} ms after its start")
            }
            NetworkFault::StopServer { group, ms } => write!(f, "SIGSTOP server {group} for {ms} ms"),
            NetworkFault::KillClient { client, is_cut_off } => {
                let how = if *is_cut_off { "cut off and " } else { "" };
                write!(f, "{how}kill -9 client {client}")
            }
            NetworkFault::StopClient { client, ms } => write!(f, "SIGSTOP client {client} for {ms} ms"),
            NetworkFault::Cut { from, to, is_one_way, resets, ms } => {
                let (how, arrow) =
                    (if *resets { "reset" } else { "drop" }, if *is_one_way { "->" } else { "<->" });
                write!(f, "{how} {} {arrow} {} for {ms} ms", names(from), names(to))
            }
            NetworkFault::Slow { machine, how, ms } => {
                write!(f, "slow link of {}: {how:?} for {ms} ms", names(&[*machine]))
            }
            NetworkFault::FillDisk => write!(f, "fill the disk of server {SMALL_DISK}"),
            NetworkFault::Clock { group, seconds, at_start, ms } => {
                let when = if *at_start { ", from a start on" } else { "" };
                write!(f, "set the clock of server {group} by {seconds:+} s{when}, for {ms} ms")
            }
        }
    }
}
