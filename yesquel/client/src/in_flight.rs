//! What a client reports to its servers: the oldest snapshots that its transactions read, and the
//! number up to which the outcomes of its commits are known.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use yesquel_model::{Timestamp, TxnId};
use yesquel_transport::HeartbeatSource;
use yesquel_wire::ClientHeartbeat;

/// Slots that need no lock: about as many as a process has threads.
const SLOTS: usize = 256;

/// Multiset of numbers whose least is queried. Zero marks a free slot.
#[derive(Debug)]
struct MinSet {
    slots: Box<[AtomicU64]>,
    /// Numbers for which no slot was free.
    overflow: Mutex<Vec<u64>>,
}

/// Location of a number in a [`MinSet`].
#[derive(Debug, Clone, Copy)]
enum MinSlot {
    At(usize),
    Overflow(u64),
}

impl MinSet {
    fn new() -> MinSet {
        MinSet { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), overflow: Mutex::default() }
    }

    fn overflow(&self) -> MutexGuard<'_, Vec<u64>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts a number; the search for a free slot starts at `preferred`.
    fn insert(&self, number: u64, preferred: usize) -> MinSlot {
        for step in 0..SLOTS {
            let at = (preferred + step) % SLOTS;
            if self.slots[at].load(SeqCst) == 0
                && self.slots[at].compare_exchange(0, number, SeqCst, SeqCst).is_ok()
            {
                return MinSlot::At(at);
            }
        }
        self.overflow().push(number);
        MinSlot::Overflow(number)
    }

    fn remove(&self, slot: MinSlot) {
        match slot {
            MinSlot::At(at) => self.slots[at].store(0, SeqCst),
            MinSlot::Overflow(number) => {
                let mut overflow = self.overflow();
                if let Some(at) = overflow.iter().position(|known| *known == number) {
                    overflow.swap_remove(at);
                }
            }
        }
    }

    fn least(&self) -> Option<u64> {
        self.least_from(1).0[0]
    }

    /// Returns the least number that is at least `first`, the next larger one, and whether there
    /// are more beyond these two.
    fn least_from(&self, first: u64) -> ([Option<u64>; 2], bool) {
        let (mut least, mut more) = ([None; 2], false);
        let mut see = |number: u64| {
            if number < first.max(1) || least.contains(&Some(number)) {
                return;
            }
            more |= least[1].is_some();
            if least[0].is_none_or(|known| number < known) {
                least = [Some(number), least[0]];
            } else if least[1].is_none_or(|known| number < known) {
                least[1] = Some(number);
            }
        };
        self.slots.iter().for_each(|slot| see(slot.load(SeqCst)));
        self.overflow().iter().for_each(|number| see(*number));
        (least, more)
    }
}

/// Slot where this thread starts its search for a free slot.
fn preferred_slot() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static PREFERRED: usize = NEXT.fetch_add(1, SeqCst) as usize * 3 % SLOTS;
    }
    PREFERRED.with(|slot| *slot)
}

/// State of a client that its heartbeats report.
#[derive(Debug)]
pub(crate) struct InFlight {
    client: u64,
    /// Number of the latest commit.
    last_commit: AtomicU64,
    snapshots: MinSet,
    /// Servers have dropped the snapshots below this timestamp.
    dropped_below: AtomicU64,
    commits: MinSet,
}

/// Keeps the versions of a snapshot on the servers until it is dropped.
#[derive(Debug)]
pub struct SnapshotHold<'a> {
    in_flight: &'a InFlight,
    slot: MinSlot,
}

/// Commit whose outcome is unknown until this is dropped.
#[derive(Debug)]
pub(crate) struct CommitInFlight<'a> {
    pub(crate) txn: TxnId,
    in_flight: &'a InFlight,
    slot: MinSlot,
}

impl InFlight {
    pub(crate) fn new(client: u64) -> InFlight {
        InFlight {
            client,
            last_commit: AtomicU64::new(0),
            snapshots: MinSet::new(),
            dropped_below: AtomicU64::new(0),
            commits: MinSet::new(),
        }
    }

    pub(crate) fn hold(&self, snapshot: Timestamp) -> SnapshotHold<'_> {
        SnapshotHold { in_flight: self, slot: self.snapshots.insert(snapshot.0, preferred_slot()) }
    }

    /// Notes that a server has dropped the snapshots below this timestamp.
    pub(crate) fn dropped_below(&self, oldest: Timestamp) {
        self.dropped_below.fetch_max(oldest.0, SeqCst);
    }

    pub(crate) fn begin_commit(&self) -> CommitInFlight<'_> {
        // A concurrent heartbeat must not report this number as known: a lower bound is inserted
        // before the number is drawn.
        let slot = self.commits.insert(self.last_commit.load(SeqCst) + 1, preferred_slot());
        let txn = TxnId { client: self.client, number: self.last_commit.fetch_add(1, SeqCst) + 1 };
        CommitInFlight { txn, in_flight: self, slot }
    }
}

impl Drop for SnapshotHold<'_> {
    fn drop(&mut self) {
        self.in_flight.snapshots.remove(self.slot);
    }
}

impl Drop for CommitInFlight<'_> {
    fn drop(&mut self) {
        self.in_flight.commits.remove(self.slot);
    }
}

impl HeartbeatSource for InFlight {
    fn client(&self) -> u64 {
        self.client
    }

    fn heartbeat(&self) -> ClientHeartbeat {
        // Read the last number first: commits that begin later get larger numbers.
        let last = self.last_commit.load(SeqCst);
        let known = self.commits.least().map_or(last, |least| last.min(least - 1));
        let (oldest, more) = self.snapshots.least_from(self.dropped_below.load(SeqCst));
        ClientHeartbeat { oldest: oldest.map(|number| number.map(Timestamp)), more, known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_snapshots_are_reported_beyond_the_slots() {
        let in_flight = InFlight::new(1);
        assert_eq!(in_flight.heartbeat(), ClientHeartbeat::default());
        let first = in_flight.hold(Timestamp(70));
        let mut others: Vec<_> =
            (0..2 * SLOTS as u64).map(|at| in_flight.hold(Timestamp(100 + at))).collect();
        let oldest = |numbers: &[u64]| {
            let reported = in_flight.heartbeat().oldest;
            let reported: Vec<u64> = reported.into_iter().flatten().map(|number| number.0).collect();
            assert_eq!(reported, numbers);
            in_flight.heartbeat().more
        };
        assert!(oldest(&[70, 100]));
        let again = in_flight.hold(Timestamp(70));
        assert!(oldest(&[70, 100]));
        drop(first);
        assert!(oldest(&[70, 100]));
        drop(again);
        assert!(oldest(&[100, 101]));
        drop(others.remove(0));
        assert!(oldest(&[101, 102]));
        let last = others.pop();
        others.truncate(1);
        let highest = 99 + 2 * SLOTS as u64;
        assert!(!oldest(&[101, highest]));
        let again = in_flight.hold(Timestamp(101));
        assert!(!oldest(&[101, highest]), "one that two hold is one");
        let between = in_flight.hold(Timestamp(150));
        assert!(oldest(&[101, 150]));
        drop((others, again, between));
        assert!(!oldest(&[highest]));
        drop(last);
        assert!(!oldest(&[]));
    }

    /// A leaked snapshot that the server has dropped does not hide snapshots in use.
    #[test]
    fn dropped_snapshots_do_not_hide_others() {
        let in_flight = InFlight::new(1);
        let _forgotten = in_flight.hold(Timestamp(70));
        let used = in_flight.hold(Timestamp(100));
        in_flight.dropped_below(Timestamp(90));
        assert_eq!(in_flight.heartbeat().oldest, [Some(Timestamp(100)), None]);
        drop(used);
        assert_eq!(in_flight.heartbeat().oldest, [None; 2]);
    }

    #[test]
    fn commits_in_flight_have_no_known_outcome() {
        let in_flight = InFlight::new(7);
        let (first, second) = (in_flight.begin_commit(), in_flight.begin_commit());
        assert_eq!((first.txn, second.txn.number), (TxnId { client: 7, number: 1 }, 2));
        assert_eq!(in_flight.heartbeat().known, 0);
        drop(first);
        assert_eq!(in_flight.heartbeat().known, 1);
        drop(second);
        assert_eq!(in_flight.heartbeat().known, 2);
    }

    /// Threads begin and end commits while another reads heartbeats: a number that is reported as
    /// known is never in flight.
    #[test]
    fn commits_in_flight_are_never_reported_with_an_outcome() {
        let in_flight = InFlight::new(1);
        let open_commits = Mutex::new(std::collections::BTreeSet::new());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let commit = in_flight.begin_commit();
                            open_commits.lock().unwrap().insert(commit.txn.number);
                            open_commits.lock().unwrap().remove(&commit.txn.number);
                            drop(commit);
                        }
                    })
                })
                .collect();
            while !workers.iter().all(|worker| worker.is_finished()) {
                let open = open_commits.lock().unwrap();
                let known = in_flight.heartbeat().known;
                assert!(open.first().is_none_or(|first| *first > known));
            }
        });
        assert_eq!(in_flight.heartbeat().known, 80_000);
    }
}
