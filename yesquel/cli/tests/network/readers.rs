//! Readers of each group, which measure how long they wait, and writers of a key of their own,
//! which show that the group serves.

use crate::{
    client,
    cluster::PATIENCE,
    lists::{GROUPS, Lists, SLOTS, elements},
    load::{RoundLoad, SqlLevel},
    place::Place,
    sql,
};
use rusqlite::Connection;
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use yesquel::SocketOptions;
use yesquel_client::Client;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, Trees};

/// Shorter waits are not recorded one by one.
const SHORT: Duration = Duration::from_millis(50);
/// Time between two reads.
const PAUSE: Duration = Duration::from_millis(3);
/// Time between two writes of an own key.
const WRITE_PAUSE: Duration = Duration::from_millis(25);
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Key that no client writes. Keys of lists have eight bytes.
const OWN_KEY: &[u8] = b"own";

/// What a reader has seen.
#[derive(Default)]
struct Waits {
    /// Start of the read or write in progress.
    current: Option<Instant>,
    /// Start and end of long ones.
    long: Vec<(Instant, Instant)>,
}

/// Readers and writers of own keys, one of each a group.
#[derive(Default)]
pub(crate) struct Readers {
    waits: [Mutex<Waits>; GROUPS],
    reads: [AtomicU64; GROUPS],
    writes: [AtomicU64; GROUPS],
    round: AtomicU64,
    ends: AtomicBool,
}

impl Readers {
    fn waits(&self, group: usize) -> MutexGuard<'_, Waits> {
        self.waits[group].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues with the lists of another round.
    pub(crate) fn begin_round(&self, round: u64) {
        self.round.store(round, Relaxed);
        (0..GROUPS).for_each(|group| self.waits(group).long.clear());
    }

    pub(crate) fn end(&self) {
        self.ends.store(true, Relaxed);
    }

    /// Returns the longest wait after a time, over all groups.
    pub(crate) fn longest_since(&self, since: Instant) -> Duration {
        let now = Instant::now();
        let of = |group| {
            let waits = self.waits(group);
            let running = waits.current.map(|begun| (begun, now));
            let all = waits.long.iter().copied().chain(running);
            all.map(|(begun, ended)| ended.saturating_duration_since(begun.max(since))).max()
        };
        (0..GROUPS).filter_map(of).max().unwrap_or_default()
    }

    /// Waits until each of these groups has taken a write; returns the first that does not in time.
    pub(crate) fn wait_for_writes(&self, groups: &[usize]) -> Option<usize> {
        wait_for(&self.writes, groups)
    }

    /// Waits until each group has taken a write, and each reader has read; returns the number of the
    /// first that has not in time. A reader of SQL does not read at the group of its number only.
    pub(crate) fn wait_until_all_serve(&self) -> Option<usize> {
        let all = [0, 1, 2, 3];
        wait_for(&self.writes, &all).or_else(|| wait_for(&self.reads, &all))
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.iter().map(|reads| reads.load(Relaxed)).sum()
    }

    /// Reads lists of a group until the end: of its map, or of the table of its number.
    pub(crate) fn read(&self, place: &Place, seed: u64, tree: Tree, group: usize, number: u64) {
        let Some(trees) = self.connect(place, group, number) else { return };
        let (mut round, mut lists, mut connection) = (0, Lists::new(0), None);
        for turn in 0.. {
            if self.ends.load(Relaxed) {
                return;
            }
            let now = self.round.load(Relaxed);
            if now != round {
                (round, lists, connection) = (now, Lists::new(now), None);
            }
            let slot = group as u64 + turn % (SLOTS / GROUPS as u64) * GROUPS as u64;
            let key = lists.key(slot);
            let length = match RoundLoad::of(seed, round) {
                RoundLoad::Maps { .. } => self.wait(group, || {
                    let value = block_on(trees.get(tree, &key.to_be_bytes()));
                    // Panics if no fault explains it.
                    let value = value.map_err(|error| client::outcome(&error)).ok()?;
                    Some(elements(value.as_deref()).len())
                }),
                RoundLoad::Sql(_) => {
                    connection = connection.or_else(|| open(place));
                    connection.as_ref().and_then(|connection| {
                        self.wait(group, || {
                            let read = sql::read_list(connection, key);
                            read.map_err(|error| sql::expect(&error, &"a read")).ok()
                        })
                    })
                }
            };
            if let Some(length) = length {
                lists.saw(slot, length);
                self.reads[group].fetch_add(1, Relaxed);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Notes how long a read takes.
    fn wait<T>(&self, group: usize, read: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        self.waits(group).current = Some(begun);
        let result = read();
        let mut waits = self.waits(group);
        waits.current = None;
        if begun.elapsed() > SHORT {
            waits.long.push((begun, Instant::now()));
        }
        result
    }

    /// Writes a key of its own at a group until the end.
    pub(crate) fn write(&self, place: &Place, tree: Tree, group: usize, number: u64) {
        let Some(trees) = self.connect(place, group, number) else { return };
        while !self.ends.load(Relaxed) {
            let mut transaction = trees.begin();
            let put = transaction.put(tree, OWN_KEY, b"serves");
            match put.and_then(|()| block_on(transaction.commit())) {
                Ok(_) => _ = self.writes[group].fetch_add(1, Relaxed),
                Err(error) => _ = client::outcome(&error),
            }
            thread::sleep(WRITE_PAUSE);
        }
    }

    fn connect(&self, place: &Place, group: usize, number: u64) -> Option<Trees<SocketTransport>> {
        let connect_timeout = Duration::from_secs(1);
        let options = SocketOptions { timeout: TIMEOUT, connect_timeout, ..place.options() };
        while !self.ends.load(Relaxed) {
            if let Ok(transport) = SocketTransport::connect(&[Place::address(group)], number, options.clone())
            {
                return Some(Trees::new(Client::new(transport, number)));
            }
            thread::sleep(PAUSE);
        }
        None
    }
}

/// Opens the database of SQL, if the servers can be reached.
fn open(place: &Place) -> Option<Connection> {
    let connection = sql::open(place, SqlLevel::default(), TIMEOUT);
    connection.map_err(|error| sql::expect(&error, &"open")).ok()
}

/// Waits until these counters have grown by two: one operation may have begun before.
fn wait_for(counters: &[AtomicU64; GROUPS], groups: &[usize]) -> Option<usize> {
    let until = Instant::now() + PATIENCE;
    let now = |group: &usize| counters[*group].load(Relaxed);
    let aims: Vec<u64> = groups.iter().map(|group| now(group) + 2).collect();
    loop {
        let is_behind = |(group, aim): &(&usize, &u64)| now(group) < **aim;
        let (behind, _) = groups.iter().zip(&aims).find(is_behind)?;
        if Instant::now() > until {
            return Some(*behind);
        }
        thread::sleep(PAUSE);
    }
}
