//! What a client reports to its servers: the oldest snapshots that its transactions read, and which
//! of its commits are settled.

use crate::unsettled::UnsettledCommit;
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_transport::{HeartbeatSource, LostCall};
use yesquel_wire::{ClientHeartbeat, Correction, Reply, SETTLED_EXCEPTIONS_MAX, SettledReport};

/// Age at which a server's time is too old to estimate the present: clocks whose rates differ by 100
/// millionths are 6 ms apart then.
const ESTIMATE_AGE_MAX: Duration = Duration::from_secs(60);

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
    snapshots: MinSet,
    /// Servers have dropped the snapshots below this timestamp.
    dropped_below: AtomicU64,
    commits: Mutex<Commits>,
    /// Whether a message about an unsettled commit is due.
    is_message_due: AtomicBool,
}

/// The commits of a client. One lock draws number and birth, so that they rise together.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    last: u64,
    last_birth: Timestamp,
    /// The largest birth of all.
    largest_birth: Timestamp,
    /// A timestamp of a server, and the client's uptime when it was new.
    anchor: (Timestamp, Duration),
    /// Numbers that are not settled, in order.
    open: Vec<u64>,
    /// Those whose end the client knows or asks for, while servers have not confirmed it.
    unsettled: Vec<UnsettledCommit>,
    /// Replies to these messages that correct where a server is.
    corrections: Vec<(ServerId, Box<[u8]>)>,
}

impl Commits {
    /// Notes that a commit is settled.
    pub(crate) fn close(&mut self, number: u64) {
        if let Ok(place) = self.open.binary_search(&number) {
            self.open.remove(place);
        }
    }

    fn report(&self) -> SettledReport {
        let exceptions: Vec<u64> = self.open.iter().copied().take(SETTLED_EXCEPTIONS_MAX).collect();
        match self.open.get(SETTLED_EXCEPTIONS_MAX) {
            None => SettledReport { number: self.last, birth: self.largest_birth, exceptions },
            Some(number) => SettledReport { number: number - 1, birth: self.largest_birth, exceptions },
        }
    }
}

/// Keeps the versions of a snapshot on the servers until it is dropped.
#[derive(Debug)]
pub struct SnapshotHold<'a> {
    in_flight: &'a InFlight,
    slot: MinSlot,
}

/// A commit in progress. If it is dropped, its outcome is not known, and it never counts as settled.
#[derive(Debug)]
#[must_use]
pub(crate) struct CommitInFlight<'a> {
    pub(crate) txn: TxnId,
    pub(crate) birth: Timestamp,
    in_flight: &'a InFlight,
}

impl CommitInFlight<'_> {
    /// Ends it: no server will be asked about it.
    pub(crate) fn settle(self) {
        self.in_flight.commits().close(self.txn.number);
    }

    /// Like [`settle`](Self::settle), with a new timestamp of a server.
    pub(crate) fn settle_at(self, at: Timestamp, uptime: Duration) {
        let mut commits = self.in_flight.commits();
        commits.close(self.txn.number);
        if at >= commits.anchor.0 {
            commits.anchor = (at, uptime);
        }
    }
}

impl InFlight {
    /// Creates the state of a client that has connected to servers at this time of theirs.
    pub(crate) fn new(client: u64, clock: Timestamp, uptime: Duration) -> InFlight {
        InFlight {
            client,
            snapshots: MinSet::new(),
            dropped_below: AtomicU64::new(0),
            commits: Mutex::new(Commits { anchor: (clock, uptime), ..Commits::default() }),
            is_message_due: AtomicBool::new(false),
        }
    }

    pub(crate) fn commits(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(&self, snapshot: Timestamp) -> SnapshotHold<'_> {
        SnapshotHold { in_flight: self, slot: self.snapshots.insert(snapshot.0, preferred_slot()) }
    }

    /// Notes that a server has dropped the snapshots below this timestamp.
    pub(crate) fn dropped_below(&self, oldest: Timestamp) {
        self.dropped_below.fetch_max(oldest.0, SeqCst);
    }

    /// Draws a number for something that is no commit.
    pub(crate) fn draw_number(&self) -> TxnId {
        let mut commits = self.commits();
        commits.last += 1;
        TxnId { client: self.client, number: commits.last }
    }

    /// Begins a commit; `seen` is the highest timestamp that the client has seen.
    pub(crate) fn begin_commit(&self, seen: Timestamp, uptime: Duration) -> CommitInFlight<'_> {
        let mut commits = self.commits();
        let (anchor, since) = commits.anchor;
        // A client that was idle is not born in the past.
        let passed = (uptime.saturating_sub(since).as_millis() as u64) << 16;
        let birth = seen.max(Timestamp(anchor.0.saturating_add(passed)));
        let birth = birth.max(Timestamp(commits.last_birth.0.saturating_add(1)));
        commits.last += 1;
        commits.last_birth = birth;
        commits.largest_birth = commits.largest_birth.max(birth);
        let number = commits.last;
        commits.open.push(number);
        CommitInFlight { txn: TxnId { client: self.client, number }, birth, in_flight: self }
    }

    /// Notes a new timestamp of a server.
    pub(crate) fn note_time(&self, at: Timestamp, uptime: Duration) {
        let mut commits = self.commits();
        if at >= commits.anchor.0 {
            commits.anchor = (at, uptime);
        }
    }

    /// Returns the client's estimate of the servers' present time, not below what it has seen. There
    /// is none if the client has learned no time for long: clocks run at different rates.
    pub(crate) fn present(&self, seen: Timestamp, uptime: Duration) -> Option<Timestamp> {
        let commits = self.commits();
        let (anchor, since) = commits.anchor;
        let passed = uptime.saturating_sub(since);
        (anchor > Timestamp::ZERO && passed <= ESTIMATE_AGE_MAX).then(|| {
            let passed = (passed.as_millis() as u64) << 16;
            seen.max(Timestamp(anchor.0.saturating_add(passed)))
        })
    }

    /// Takes the time of a server that has refused a birth as too far ahead, or too old.
    pub(crate) fn set_anchor(&self, clock: Timestamp, uptime: Duration) {
        let mut commits = self.commits();
        commits.anchor = (clock, uptime);
        commits.last_birth = commits.last_birth.min(clock);
    }

    /// Adds a commit that is not settled.
    pub(crate) fn unsettled(&self, commit: UnsettledCommit) {
        let mut commits = self.commits();
        if commit.is_settled() {
            commits.close(commit.txn.number);
        } else {
            commits.unsettled.push(commit);
            self.is_message_due.store(true, SeqCst);
        }
    }

    /// Takes the corrections in replies to the messages about unsettled commits.
    pub(crate) fn take_corrections(&self) -> Vec<(ServerId, Box<[u8]>)> {
        match self.is_message_due.load(SeqCst) {
            true => std::mem::take(&mut self.commits().corrections),
            false => Vec::new(),
        }
    }

    /// Takes the messages about unsettled commits that are due.
    pub(crate) fn take_due(&self) -> Vec<(TxnId, ServerId, Vec<u8>)> {
        let mut due = Vec::new();
        // Without the lock first: mostly there is none.
        if self.is_message_due.load(SeqCst) && self.is_message_due.swap(false, SeqCst) {
            self.commits().unsettled.iter_mut().for_each(|commit| commit.take_due(&mut due));
        }
        due
    }

    /// Takes the answer of a server to such a message, or its loss.
    pub(crate) fn on_reply(&self, txn: TxnId, server: ServerId, reply: Result<&[u8], LostCall>) {
        let mut commits = self.commits();
        let Some(place) = commits.unsettled.iter().position(|commit| commit.txn == txn) else { return };
        if let Some(bytes) = reply.as_ref().ok().filter(|bytes| Correction::of(bytes).is_some()) {
            commits.corrections.push((server, (*bytes).into()));
        }
        let commit = &mut commits.unsettled[place];
        let reply = reply.ok().and_then(|bytes| Reply::decode(bytes).ok());
        // A reply that is none is like a loss.
        if commit.answered(server, &reply.unwrap_or(Reply::Report(b""))) {
            commits.unsettled.swap_remove(place);
            commits.close(txn.number);
        } else if commit.is_due() {
            self.is_message_due.store(true, SeqCst);
        }
    }
}

impl Drop for SnapshotHold<'_> {
    fn drop(&mut self) {
        self.in_flight.snapshots.remove(self.slot);
    }
}

impl HeartbeatSource for InFlight {
    fn client(&self) -> u64 {
        self.client
    }

    fn heartbeat(&self) -> ClientHeartbeat {
        let (oldest, more) = self.snapshots.least_from(self.dropped_below.load(SeqCst));
        let settled = self.commits().report();
        ClientHeartbeat { oldest: oldest.map(|number| number.map(Timestamp)), more, settled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight() -> InFlight {
        InFlight::new(1, Timestamp::ZERO, Duration::ZERO)
    }

    #[test]
    fn oldest_snapshots_are_reported_beyond_the_slots() {
        let in_flight = in_flight();
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
        let in_flight = in_flight();
        let _forgotten = in_flight.hold(Timestamp(70));
        let used = in_flight.hold(Timestamp(100));
        in_flight.dropped_below(Timestamp(90));
        assert_eq!(in_flight.heartbeat().oldest, [Some(Timestamp(100)), None]);
        drop(used);
        assert_eq!(in_flight.heartbeat().oldest, [None; 2]);
    }

    #[test]
    fn commits_in_flight_are_not_settled() {
        let in_flight = in_flight();
        let begin = || in_flight.begin_commit(Timestamp::ZERO, Duration::ZERO);
        let (first, second) = (begin(), begin());
        assert_eq!((first.txn, second.txn.number), (TxnId { client: 1, number: 1 }, 2));
        let settled = |number: u64, exceptions: &[u64]| {
            let report = in_flight.heartbeat().settled;
            assert_eq!((report.number, &report.exceptions[..]), (number, exceptions));
        };
        settled(2, &[1, 2]);
        first.settle();
        settled(2, &[2]);
        // A dropped one has no known outcome.
        drop(begin());
        second.settle();
        settled(3, &[3]);
        in_flight.draw_number();
        settled(4, &[3]);
    }

    /// Beyond the exceptions that a report may have, the number is lower.
    #[test]
    fn a_report_has_a_limited_number_of_exceptions() {
        let in_flight = in_flight();
        let open: Vec<_> =
            (0..100).map(|_| in_flight.begin_commit(Timestamp::ZERO, Duration::ZERO)).collect();
        let report = in_flight.heartbeat().settled;
        assert_eq!((report.number, report.exceptions.len()), (64, 64));
        assert_eq!(report.birth, open[99].birth);
    }

    /// Births rise with the numbers, and with the time of an idle client.
    #[test]
    fn births_rise_with_numbers_and_time() {
        let in_flight = InFlight::new(1, Timestamp::from_ms(5_000), Duration::from_secs(1));
        let at = |seconds| in_flight.begin_commit(Timestamp::from_ms(5_001), Duration::from_secs(seconds));
        let births = [1, 1, 601, 600].map(|seconds| at(seconds).birth);
        assert_eq!(births[0], Timestamp::from_ms(5_001));
        assert_eq!(births[2], Timestamp::from_ms(605_000));
        assert!(births.is_sorted_by(|one, next| one < next), "{births:?}");
    }

    /// The present is estimated from a server's time, for a minute, and never below what was seen.
    #[test]
    fn the_present_is_estimated() {
        let in_flight = InFlight::new(1, Timestamp::from_ms(5_000), Duration::from_secs(1));
        let present =
            |seen, seconds| in_flight.present(Timestamp::from_ms(seen), Duration::from_secs(seconds));
        assert_eq!(present(5_000, 1), Some(Timestamp::from_ms(5_000)));
        assert_eq!(present(5_000, 3), Some(Timestamp::from_ms(7_000)));
        assert_eq!(present(8_000, 3), Some(Timestamp::from_ms(8_000)));
        assert_eq!(present(5_000, 62), None);
        in_flight.note_time(Timestamp::from_ms(65_500), Duration::from_secs(62));
        assert_eq!(present(5_000, 62), Some(Timestamp::from_ms(65_500)));
        assert_eq!(
            InFlight::new(1, Timestamp::ZERO, Duration::ZERO).present(Timestamp::ZERO, Duration::ZERO),
            None
        );
    }

    /// Threads begin and end commits while another reads heartbeats: a number that is reported as
    /// settled is never in flight.
    #[test]
    fn commits_in_flight_are_never_reported_as_settled() {
        let in_flight = in_flight();
        let open_commits = Mutex::new(std::collections::BTreeSet::new());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let commit = in_flight.begin_commit(Timestamp::ZERO, Duration::ZERO);
                            open_commits.lock().unwrap().insert(commit.txn.number);
                            open_commits.lock().unwrap().remove(&commit.txn.number);
                            commit.settle();
                        }
                    })
                })
                .collect();
            while !workers.iter().all(|worker| worker.is_finished()) {
                let open = open_commits.lock().unwrap();
                let report = in_flight.heartbeat().settled;
                assert!(!open.iter().any(|number| report.covers(*number)));
            }
        });
        assert_eq!(in_flight.heartbeat().settled.number, 80_000);
    }
}
