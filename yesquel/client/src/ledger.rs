//! What a client's servers must know of it: the oldest snapshots that its
//! transactions read, and up to which of its commits it knows the end.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use yesquel_model::{Timestamp, TxnId};
use yesquel_transport::HeartbeatSource;
use yesquel_wire::ClientHeartbeat;

/// Numbers that are held without a lock: as many as a process has threads,
/// mostly.
const PLACES: usize = 256;

/// Numbers of which the least is asked for. Zero is none.
#[derive(Debug)]
struct Least {
    places: Box<[AtomicU64]>,
    /// Those for which there was no place.
    more: Mutex<Vec<u64>>,
}

/// Where a number is kept.
#[derive(Debug, Clone, Copy)]
enum Place {
    At(usize),
    More(u64),
}

impl Least {
    fn new() -> Least {
        Least { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), more: Mutex::default() }
    }

    fn more(&self) -> MutexGuard<'_, Vec<u64>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a number; `near` says where to begin looking for a place.
    fn keep(&self, number: u64, near: usize) -> Place {
        for step in 0..PLACES {
            let at = (near + step) % PLACES;
            if self.places[at].load(SeqCst) == 0
                && self.places[at].compare_exchange(0, number, SeqCst, SeqCst).is_ok()
            {
                return Place::At(at);
            }
        }
        self.more().push(number);
        Place::More(number)
    }

    fn forget(&self, place: Place) {
        match place {
            Place::At(at) => self.places[at].store(0, SeqCst),
            Place::More(number) => {
                let mut more = self.more();
                if let Some(at) = more.iter().position(|known| *known == number) {
                    more.swap_remove(at);
                }
            }
        }
    }

    fn least(&self) -> Option<u64> {
        self.least_from(1).0[0]
    }

    /// The least that is not below this, the least above that one, and whether
    /// there are others above both.
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
        self.places.iter().for_each(|place| see(place.load(SeqCst)));
        self.more().iter().for_each(|number| see(*number));
        (least, more)
    }
}

/// Where this thread begins to look for a place.
fn near() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NEAR: usize = NEXT.fetch_add(1, SeqCst) as usize * 3 % PLACES;
    }
    NEAR.with(|near| *near)
}

/// A client's books.
#[derive(Debug)]
pub(crate) struct Ledger {
    client: u64,
    /// Of its commits.
    last: AtomicU64,
    snapshots: Least,
    /// A server keeps no snapshot below this one.
    gone: AtomicU64,
    commits: Least,
}

/// A snapshot that servers keep until this is dropped.
#[derive(Debug)]
pub struct SnapshotHold<'a> {
    ledger: &'a Ledger,
    place: Place,
}

/// A commit whose end is not known until this is dropped.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) txn: TxnId,
    ledger: &'a Ledger,
    place: Place,
}

impl Ledger {
    pub(crate) fn new(client: u64) -> Ledger {
        Ledger {
            client,
            last: AtomicU64::new(0),
            snapshots: Least::new(),
            gone: AtomicU64::new(0),
            commits: Least::new(),
        }
    }

    pub(crate) fn hold(&self, snapshot: Timestamp) -> SnapshotHold<'_> {
        SnapshotHold { ledger: self, place: self.snapshots.keep(snapshot.0, near()) }
    }

    /// A server has said that it keeps no snapshot below this one.
    pub(crate) fn gone_before(&self, oldest: Timestamp) {
        self.gone.fetch_max(oldest.0, SeqCst);
    }

    pub(crate) fn attempt(&self) -> Attempt<'_> {
        // Whoever asks meanwhile must not think that there is none: what the
        // number will be is above what the last one is now.
        let place = self.commits.keep(self.last.load(SeqCst) + 1, near());
        let txn = TxnId { client: self.client, number: self.last.fetch_add(1, SeqCst) + 1 };
        Attempt { txn, ledger: self, place }
    }
}

impl Drop for SnapshotHold<'_> {
    fn drop(&mut self) {
        self.ledger.snapshots.forget(self.place);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.ledger.commits.forget(self.place);
    }
}

impl HeartbeatSource for Ledger {
    fn client(&self) -> u64 {
        self.client
    }

    fn heartbeat(&self) -> ClientHeartbeat {
        // The last number first: one that is given later is not below it.
        let last = self.last.load(SeqCst);
        let known = self.commits.least().map_or(last, |least| last.min(least - 1));
        let (oldest, more) = self.snapshots.least_from(self.gone.load(SeqCst));
        ClientHeartbeat { oldest: oldest.map(|number| number.map(Timestamp)), more, known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_snapshot_is_told_also_beyond_the_places() {
        let ledger = Ledger::new(1);
        assert_eq!(ledger.heartbeat(), ClientHeartbeat::default());
        let first = ledger.hold(Timestamp(70));
        let mut others: Vec<_> = (0..2 * PLACES as u64).map(|at| ledger.hold(Timestamp(100 + at))).collect();
        let oldest = |numbers: &[u64]| {
            let told = ledger.heartbeat().oldest;
            let told: Vec<u64> = told.into_iter().flatten().map(|number| number.0).collect();
            assert_eq!(told, numbers);
            ledger.heartbeat().more
        };
        assert!(oldest(&[70, 100]));
        let again = ledger.hold(Timestamp(70));
        assert!(oldest(&[70, 100]));
        drop(first);
        assert!(oldest(&[70, 100]));
        drop(again);
        assert!(oldest(&[100, 101]));
        drop(others.remove(0));
        assert!(oldest(&[101, 102]));
        let last = others.pop();
        others.truncate(1);
        let highest = 99 + 2 * PLACES as u64;
        assert!(!oldest(&[101, highest]));
        let again = ledger.hold(Timestamp(101));
        assert!(!oldest(&[101, highest]), "one that two hold is one");
        let between = ledger.hold(Timestamp(150));
        assert!(oldest(&[101, 150]));
        drop((others, again, between));
        assert!(!oldest(&[highest]));
        drop(last);
        assert!(!oldest(&[]));
    }

    /// A forgotten one that its server has let go of must not stand for those
    /// that are in use.
    #[test]
    fn a_snapshot_that_is_gone_hides_no_other() {
        let ledger = Ledger::new(1);
        let _forgotten = ledger.hold(Timestamp(70));
        let used = ledger.hold(Timestamp(100));
        ledger.gone_before(Timestamp(90));
        assert_eq!(ledger.heartbeat().oldest, [Some(Timestamp(100)), None]);
        drop(used);
        assert_eq!(ledger.heartbeat().oldest, [None; 2]);
    }

    #[test]
    fn what_is_under_way_is_not_known() {
        let ledger = Ledger::new(7);
        let (first, second) = (ledger.attempt(), ledger.attempt());
        assert_eq!((first.txn, second.txn.number), (TxnId { client: 7, number: 1 }, 2));
        assert_eq!(ledger.heartbeat().known, 0);
        drop(first);
        assert_eq!(ledger.heartbeat().known, 1);
        drop(second);
        assert_eq!(ledger.heartbeat().known, 2);
    }

    /// Threads begin and end commits while another asks: a number that it is
    /// told is known was never under way at that time.
    #[test]
    fn no_commit_under_way_is_ever_called_known() {
        let ledger = Ledger::new(1);
        let under_way = Mutex::new(std::collections::BTreeSet::new());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let attempt = ledger.attempt();
                            under_way.lock().unwrap().insert(attempt.txn.number);
                            under_way.lock().unwrap().remove(&attempt.txn.number);
                            drop(attempt);
                        }
                    })
                })
                .collect();
            while !workers.iter().all(|worker| worker.is_finished()) {
                let under_way = under_way.lock().unwrap();
                let known = ledger.heartbeat().known;
                assert!(under_way.first().is_none_or(|first| *first > known));
            }
        });
        assert_eq!(ledger.heartbeat().known, 80_000);
    }
}
