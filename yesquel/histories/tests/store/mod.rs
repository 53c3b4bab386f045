//! Simple store with snapshot isolation and optional faults, and concurrent clients that a seed
//! drives.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeMap;
use yesquel_histories::{Element, ListKey, ListOperation, RecordedOutcome, RecordedTransaction};

/// xorshift64*, seeded through a round of splitmix64, so that similar seeds diverge at once.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Random((mixed ^ (mixed >> 27)) | 1)
    }

    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.next(times) == 0
    }
}

/// Fault of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None: strong snapshot isolation.
    None,
    /// None, with validation of reads, as in a strictly serializable store.
    NoneSerializable,
    /// No check for concurrent writes.
    NoConflictCheck,
    /// Each read sees the state at its own time.
    ReadsAtStatement,
    /// Reads see uncommitted writes.
    DirtyReads,
    /// Aborted writes stay.
    AbortsStay,
    /// An acknowledged commit is lost.
    LostCommit,
    /// A commit becomes visible key by key.
    PartialCommit,
    /// Snapshots are slightly old.
    SnapshotsGoBack,
    /// Snapshots are old, but never go back for a client.
    StaleSnapshots,
    /// Two sites that receive each other's commits later: parallel snapshot isolation.
    TwoSites,
    /// A transaction does not see its own writes.
    BlindToItself,
    /// An append is applied twice.
    Twice,
    /// A read returns the end of another list.
    Mixed,
}

/// Size of a history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) transactions: usize,
    pub(crate) clients: usize,
    /// Number of keys in use at a time.
    pub(crate) keys: u64,
    /// Number of transactions after which the keys change.
    pub(crate) keys_for: usize,
}

/// Element with its transaction and commit time.
#[derive(Debug, Clone, Copy)]
struct Version {
    element: Element,
    at: u64,
    /// Time at which each site learns of it.
    known: [u64; 2],
}

/// Open transaction of a client.
struct Open {
    invoked: u64,
    snapshot: u64,
    left: u64,
    operations: Vec<ListOperation>,
    writes: BTreeMap<ListKey, Vec<Element>>,
    reads: Vec<ListKey>,
}

/// Writes that are applied at a later time.
struct Late {
    at: u64,
    snapshot: Option<u64>,
    site: usize,
    writes: BTreeMap<ListKey, Vec<Element>>,
    reads: Vec<ListKey>,
}

pub(crate) struct Store {
    fault: Fault,
    size: Size,
    random: Random,
    now: u64,
    element: Element,
    lists: BTreeMap<ListKey, Vec<Version>>,
    late: Vec<Late>,
    history: Vec<RecordedTransaction>,
    /// Last snapshot or commit of each client.
    seen: Vec<u64>,
}

/// Runs clients on a store, and reads everything at the end.
pub(crate) fn history(fault: Fault, size: Size, seed: u64) -> Vec<RecordedTransaction> {
    let mut store = Store {
        fault,
        size,
        random: Random::new(seed),
        now: 0,
        element: 0,
        lists: BTreeMap::new(),
        late: Vec::new(),
        history: Vec::new(),
        seen: vec![0; size.clients],
    };
    let mut open: Vec<Option<Open>> = (0..size.clients).map(|_| None).collect();
    while store.history.len() < size.transactions {
        store.now += 1;
        store.apply_late();
        let client = store.random.next(size.clients as u64) as usize;
        match &mut open[client] {
            None => open[client] = Some(store.begin(client)),
            Some(transaction) if transaction.left > 0 => {
                let mut transaction = open[client].take().expect("an open transaction");
                transaction.left -= 1;
                let others: Vec<&BTreeMap<ListKey, Vec<Element>>> =
                    open.iter().flatten().map(|other| &other.writes).collect();
                store.operate(client, &mut transaction, &others);
                open[client] = Some(transaction);
            }
            Some(_) => {
                let transaction = open[client].take().expect("an open transaction");
                store.end(client, transaction);
            }
        }
    }
    store.now = u64::MAX / 2;
    store.apply_late();
    store.read_all();
    store.history
}

impl Store {
    fn begin(&mut self, client: usize) -> Open {
        let back = self.random.next(40);
        let snapshot = match self.fault {
            Fault::SnapshotsGoBack => self.now.saturating_sub(back),
            Fault::StaleSnapshots => self.now.saturating_sub(back).max(self.seen[client]),
            _ => self.now,
        };
        self.seen[client] = self.seen[client].max(snapshot);
        let left = 1 + self.random.next(5);
        Open { invoked: self.now, snapshot, left, operations: vec![], writes: BTreeMap::new(), reads: vec![] }
    }

    fn a_key(&mut self) -> ListKey {
        let epoch = (self.history.len() / self.size.keys_for) as u64;
        epoch * self.size.keys + self.random.next(self.size.keys)
    }

    /// Returns the list at a snapshot, at the client's site.
    fn visible(&self, client: usize, key: ListKey, snapshot: u64) -> Vec<Element> {
        let site = self.site(client);
        let versions = self.lists.get(&key).map_or(&[][..], Vec::as_slice);
        versions
            .iter()
            .filter(|version| version.known[site] <= snapshot)
            .map(|version| version.element)
            .collect()
    }

    fn site(&self, client: usize) -> usize {
        if self.fault == Fault::TwoSites { client % 2 } else { 0 }
    }

    fn operate(&mut self, client: usize, open: &mut Open, others: &[&BTreeMap<ListKey, Vec<Element>>]) {
        let key = self.a_key();
        if self.random.one_in(2) {
            self.element += 1;
            open.writes.entry(key).or_default().push(self.element);
            open.operations.push(ListOperation::append(key, self.element));
            return;
        }
        open.reads.push(key);
        let at = if self.fault == Fault::ReadsAtStatement { self.now } else { open.snapshot };
        let mut list = self.visible(client, key, at);
        if self.fault == Fault::DirtyReads {
            list.extend(others.iter().filter_map(|writes| writes.get(&key)).flatten());
        }
        if self.fault == Fault::Mixed && self.random.one_in(40) {
            list.extend(self.visible(client, key + 1, at).last());
        }
        if self.fault != Fault::BlindToItself {
            list.extend(open.writes.get(&key).into_iter().flatten());
        }
        open.operations.push(ListOperation::read(key, list));
    }

    fn end(&mut self, client: usize, open: Open) {
        let Open { invoked, snapshot, operations, writes, reads, .. } = open;
        let given_up = self.random.one_in(20);
        let unanswered = self.random.one_in(20);
        let (committed, mut outcome) = if given_up {
            if self.fault == Fault::AbortsStay {
                self.apply(self.site(client), &writes);
            }
            (false, RecordedOutcome::Aborted)
        } else if unanswered && self.random.one_in(3) {
            // The commit happens after the client's timeout.
            let at = self.now + self.random.next(30);
            self.late.push(Late { at, snapshot: Some(snapshot), site: self.site(client), writes, reads });
            self.record(client, invoked, operations, RecordedOutcome::Unknown);
            return;
        } else if self.conflicts(client, snapshot, &writes, &reads) {
            (false, RecordedOutcome::Aborted)
        } else {
            (true, RecordedOutcome::Committed)
        };
        if committed && !(self.fault == Fault::LostCommit && self.random.one_in(30)) {
            let mut writes = writes;
            if self.fault == Fault::PartialCommit && writes.len() > 1 && self.random.one_in(4) {
                let at = self.now + 1 + self.random.next(20);
                let first = *writes.keys().next().expect("at least two writes");
                let rest = writes.split_off(&(first + 1));
                self.late.push(Late {
                    at,
                    snapshot: None,
                    site: self.site(client),
                    writes: rest,
                    reads: vec![],
                });
            }
            self.apply(self.site(client), &writes);
        }
        if unanswered {
            outcome = RecordedOutcome::Unknown;
        }
        if outcome == RecordedOutcome::Committed {
            self.seen[client] = self.now;
        }
        self.record(client, invoked, operations, outcome);
    }

    fn record(
        &mut self,
        client: usize,
        invoked: u64,
        mut operations: Vec<ListOperation>,
        outcome: RecordedOutcome,
    ) {
        if outcome == RecordedOutcome::Unknown && self.random.one_in(2) {
            for operation in &mut operations {
                if let ListOperation::Read { list, .. } = operation {
                    *list = None;
                }
            }
        }
        let process = client as u64;
        self.history.push(RecordedTransaction { process, invoked, completed: self.now, operations, outcome });
    }

    /// Returns whether another has written the same keys since the snapshot.
    fn conflicts(
        &self,
        client: usize,
        snapshot: u64,
        writes: &BTreeMap<ListKey, Vec<Element>>,
        reads: &[ListKey],
    ) -> bool {
        let site = self.site(client);
        let is_new = |key: &ListKey| {
            self.lists.get(key).is_some_and(|list| list.iter().any(|version| version.known[site] > snapshot))
        };
        match self.fault {
            Fault::NoConflictCheck => false,
            Fault::NoneSerializable => writes.keys().chain(reads).any(is_new),
            _ => writes.keys().any(is_new),
        }
    }

    fn apply(&mut self, site: usize, writes: &BTreeMap<ListKey, Vec<Element>>) {
        // Snapshots of this instant do not include it.
        self.now += 1;
        let mut known = [self.now; 2];
        if self.fault == Fault::TwoSites {
            // The other site receives commits in order, in rounds.
            known[1 - site] = (self.now / 128 + 1) * 128;
        }
        for (key, elements) in writes {
            let list = self.lists.entry(*key).or_default();
            for element in elements {
                list.push(Version { element: *element, at: self.now, known });
            }
            if self.fault == Fault::Twice && self.random.one_in(30) {
                list.extend(list.last().copied());
            }
        }
    }

    fn apply_late(&mut self) {
        let now = self.now;
        for late in self.late.extract_if(.., |late| late.at <= now).collect::<Vec<_>>() {
            // The rest of a commit does not conflict.
            let Late { snapshot, site, writes, reads, .. } = late;
            if snapshot.is_none_or(|snapshot| !self.conflicts(site, snapshot, &writes, &reads)) {
                self.apply(site, &writes);
            }
        }
    }

    fn read_all(&mut self) {
        self.now += 100;
        for key in self.lists.keys().copied().collect::<Vec<_>>() {
            let list = self.visible(0, key, self.now);
            self.now += 2;
            let (process, invoked) = (self.size.clients as u64, self.now - 1);
            self.history.push(RecordedTransaction::committed(
                process,
                invoked,
                self.now,
                [ListOperation::read(key, list)],
            ));
        }
    }
}
