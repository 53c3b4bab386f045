//! Usage of a group of processes: so far, and between two snapshots.

use crate::{
    ProcessGroup, System,
    parse::{self, SchedulerTimes, Stat},
    tcp::Sockets,
};
use serval_result::load::Usage;
use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    time::{Duration, Instant},
};

/// Whether memory is read: finding the shared part of several processes is work for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryReading {
    /// Not read.
    Leave,
    /// Resident memory of a single process; the proportional set size of several, where the kernel
    /// permits reading it.
    Read,
}

/// A reading of the machine that all groups share.
#[derive(Debug)]
pub struct SystemReading<'a> {
    system: &'a System,
    parents: OnceCell<BTreeMap<u32, Stat>>,
    sockets: OnceCell<Result<Sockets, String>>,
}

impl System {
    /// Starts a reading.
    pub fn look(&self) -> SystemReading<'_> {
        SystemReading { system: self, parents: OnceCell::new(), sockets: OnceCell::new() }
    }
}

impl SystemReading<'_> {
    /// All processes of the machine.
    fn all(&self) -> &BTreeMap<u32, Stat> {
        self.parents.get_or_init(|| {
            let pids = self.system.numbers("").unwrap_or_default().into_iter();
            pids.filter_map(|pid| Some((pid, self.system.stat(pid)?))).collect()
        })
    }

    /// The group's live processes and their descendants.
    fn members(&self, group: &ProcessGroup) -> BTreeMap<u32, Stat> {
        let all = self.all();
        let began = |pid: &u32| all.get(pid).map(|stat| stat.began);
        let mut next: Vec<u32> = Vec::new();
        next.extend(group.processes.iter().filter(|(pid, at)| began(pid) == Some(*at)).map(|(pid, _)| *pid));
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, stat) in all {
            children.entry(stat.parent).or_default().push(*pid);
        }
        let mut members = BTreeMap::new();
        while let Some(pid) = next.pop() {
            // A watched ancestor does not make this process part of the group.
            let own = pid == self.system.own && group.processes.iter().all(|(of, _)| *of != pid);
            if let Some(stat) = all.get(&pid).filter(|_| !own)
                && members.insert(pid, *stat).is_none()
            {
                next.extend(children.get(&pid).into_iter().flatten());
            }
        }
        members
    }

    fn sockets(&self) -> Result<&Sockets, String> {
        let ask = || {
            (self.system.sockets)().map_err(|error| format!("the kernel does not list its sockets ({error})"))
        };
        self.sockets.get_or_init(ask).as_ref().map_err(String::clone)
    }
}

/// Bytes sent and received, by socket cookie.
type Carried = HashMap<u64, (u64, u64)>;

/// Usage of a group up to an instant.
#[derive(Debug, Clone)]
pub struct Snapshot {
    at: Instant,
    ticks_per_s: f64,
    members: BTreeMap<u32, Stat>,
    /// Threads, by process and thread.
    threads: HashMap<(u32, u32), SchedulerTimes>,
    carried: Result<Carried, String>,
    memory: Option<u64>,
}

/// Share of a span in which a thread was running or runnable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThreadShare {
    /// Its process.
    pub process: u32,
    /// Its id.
    pub thread: u32,
    /// Share of the span in which it ran or waited in the run queue, 0 to 1.
    pub share: f64,
}

/// Inodes of the sockets of a process.
fn socket_numbers(system: &System, pid: u32) -> Result<HashSet<u32>, String> {
    let denied = |error: io::Error| format!("the descriptors of process {pid} cannot be read ({error})");
    let numbers = system.numbers(format!("{pid}/fd")).map_err(denied)?;
    let link = |fd: u32| fs::read_link(system.root.join(format!("{pid}/fd/{fd}"))).ok();
    let sockets = numbers.into_iter().filter_map(|fd| parse::socket(link(fd)?.to_str()?));
    Ok(sockets.collect())
}

fn carried(look: &SystemReading<'_>, members: &BTreeMap<u32, Stat>) -> Result<Carried, String> {
    let system = look.system;
    let mut carried = Carried::new();
    let network = |pid: u32| fs::read_link(system.root.join(format!("{pid}/ns/net"))).ok();
    let here = network(system.own);
    for pid in members.keys() {
        let numbers = match socket_numbers(system, *pid) {
            Ok(numbers) => numbers,
            // The process has ended in the meantime.
            Err(_) if system.stat(*pid).is_none() => continue,
            Err(error) => return Err(error),
        };
        if numbers.is_empty() {
            continue;
        }
        if network(*pid) != here {
            return Err(format!("process {pid} has a network of its own, as containers have"));
        }
        let sockets = look.sockets()?;
        let open = numbers.iter().filter_map(|number| sockets.get(number));
        carried.extend(open.map(|socket| (socket.cookie, (socket.sent, socket.received))));
    }
    Ok(carried)
}

fn memory(system: &System, members: &BTreeMap<u32, Stat>) -> Option<u64> {
    let one = |pid: &u32| {
        let shared = || parse::kilobytes(&system.text(format!("{pid}/smaps_rollup"))?, "Pss");
        let resident = || parse::kilobytes(&system.text(format!("{pid}/status"))?, "VmRSS");
        if members.len() == 1 { resident() } else { shared().or_else(resident) }
    };
    // A process that has ended has no memory.
    members.keys().filter_map(one).reduce(u64::saturating_add)
}

impl Snapshot {
    /// Reads the usage of a group.
    pub fn take(look: &SystemReading<'_>, group: &ProcessGroup, with: MemoryReading) -> Snapshot {
        let (at, system) = (Instant::now(), look.system);
        let members = look.members(group);
        let mut threads = HashMap::new();
        for pid in members.keys() {
            for thread in system.numbers(format!("{pid}/task")).unwrap_or_default() {
                let text = system.text(format!("{pid}/task/{thread}/schedstat"));
                if let Some(schedule) = text.and_then(|text| parse::schedule(&text)) {
                    threads.insert((*pid, thread), schedule);
                }
            }
        }
        let carried = carried(look, &members);
        let memory = if with == MemoryReading::Read { memory(system, &members) } else { None };
        Snapshot { at, ticks_per_s: system.ticks_per_s, members, threads, carried, memory }
    }

    /// Returns whether all processes have ended.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Reason for which the bytes of connections are unknown.
    pub fn no_bytes(&self) -> Option<&str> {
        self.carried.as_ref().err().map(String::as_str)
    }

    /// Time since `earlier`.
    pub fn span_since(&self, earlier: &Snapshot) -> Duration {
        self.at.saturating_duration_since(earlier.at)
    }

    /// CPU ticks since `earlier`: the larger of two counts that are both lower bounds. The
    /// difference of the group's sums includes reaped children; the sum of the differences by
    /// process does not shrink when members end.
    fn ticks_since(&self, earlier: &Snapshot) -> u64 {
        let whole = |snapshot: &Snapshot| {
            let each = snapshot.members.values().map(|stat| stat.own.saturating_add(stat.ended_children));
            each.fold(0, u64::saturating_add)
        };
        let each = self.members.iter().map(|(pid, stat)| {
            let before = earlier.members.get(pid).filter(|before| before.began == stat.began);
            stat.own.saturating_sub(before.map_or(0, |before| before.own))
        });
        whole(self).saturating_sub(whole(earlier)).max(each.fold(0, u64::saturating_add))
    }

    /// Usage of the group since `earlier`; no value is negative.
    pub fn since(&self, earlier: &Snapshot) -> Usage {
        let waited = self.threads.iter().map(|(thread, schedule)| {
            let before = earlier.threads.get(thread).map_or(0, |before| before.waited);
            schedule.waited.saturating_sub(before)
        });
        let waited = waited.fold(0, u64::saturating_add);
        let known = !self.threads.is_empty();
        let bytes = match (&self.carried, &earlier.carried) {
            (Ok(now), Ok(before)) => {
                let each = now.iter().map(|(cookie, (sent, received))| {
                    let (s, r) = before.get(cookie).copied().unwrap_or_default();
                    (sent.saturating_sub(s), received.saturating_sub(r))
                });
                Some(each.fold((0, 0), |a: (u64, u64), b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1))))
            }
            _ => None,
        };
        Usage {
            cpu_s: self.ticks_since(earlier) as f64 / self.ticks_per_s,
            run_queue_s: known.then_some(waited as f64 / 1e9),
            memory_bytes: self.memory,
            sent_bytes: bytes.map(|(sent, _)| sent),
            received_bytes: bytes.map(|(_, received)| received),
        }
    }

    /// Load of each thread that existed in both snapshots.
    pub fn threads_since(&self, earlier: &Snapshot) -> Vec<ThreadShare> {
        let span = self.span_since(earlier).as_nanos() as f64;
        let share = |(&(process, thread), now): (&(u32, u32), &SchedulerTimes)| {
            let before = earlier.threads.get(&(process, thread))?;
            let busy =
                now.ran.saturating_sub(before.ran) as f64 + now.waited.saturating_sub(before.waited) as f64;
            Some(ThreadShare {
                process,
                thread,
                share: if span > 0.0 { (busy / span).min(1.0) } else { 0.0 },
            })
        };
        self.threads.iter().filter_map(share).collect()
    }
}
