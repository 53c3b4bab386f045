//! Ends of transactions that a client or server may still ask for, and which transactions take no
//! vote here any more. `docs/yesquel/cluster/commit.md` says when an end may be forgotten.

use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_wire::{Decision, SettledReport};

/// Ends that a report of a client must free to be worth a log record of its own.
const WORTH_A_RECORD: usize = 1_000;

/// Memory of a client's entry, and of one with a few ends.
const CLIENT_BYTES: usize = 200;
pub(crate) const END_BYTES: usize = 96;

/// End of a transaction of several servers.
#[derive(Debug, Clone)]
pub(crate) struct TransactionEnd {
    pub(crate) decision: Decision,
    pub(crate) birth: Timestamp,
    pub(crate) participants: Arc<[ServerId]>,
}

/// Commit of a transaction of this server alone.
#[derive(Debug, Clone, Copy)]
struct SingleCommit {
    number: u64,
    birth: Timestamp,
    at: Timestamp,
}

/// One client's transactions.
#[derive(Debug, Default)]
struct ClientOutcomes {
    /// In the log.
    settled: SettledReport,
    /// What the client has reported and the log does not have yet.
    reported: Option<SettledReport>,
    /// Commits of this server alone, by number.
    commits: VecDeque<SingleCommit>,
    /// Transactions of this server alone that must not commit any more.
    given_up: Vec<(u64, Timestamp)>,
    ends: BTreeMap<u64, TransactionEnd>,
}

impl ClientOutcomes {
    fn count(&self) -> usize {
        self.commits.len() + self.given_up.len() + self.ends.len()
    }

    fn bytes(&self) -> usize {
        self.commits.len() * size_of::<SingleCommit>()
            + self.given_up.len() * size_of::<(u64, Timestamp)>()
            + self.ends.len() * END_BYTES
    }

    /// Forgets what is covered once `horizon` is, except for ends that other servers may ask for.
    fn forget_below(&mut self, horizon: Timestamp, us: ServerId) {
        while self.commits.front().is_some_and(|commit| commit.birth < horizon) {
            self.commits.pop_front();
        }
        self.given_up.retain(|(_, birth)| *birth >= horizon);
        self.ends.retain(|_, end| end.birth >= horizon || end.participants.iter().any(|other| *other != us));
        if self.settled.birth < horizon {
            self.settled = SettledReport::default();
        }
    }

    /// Whether the entry states nothing.
    fn is_empty(&self) -> bool {
        self.count() == 0 && self.reported.is_none() && self.settled == SettledReport::default()
    }

    /// The lowest birth that keeps something here.
    fn lowest_birth(&self) -> Option<Timestamp> {
        let settled = Some(self.settled.birth).filter(|_| self.settled.number > 0);
        let commit = self.commits.front().map(|commit| commit.birth);
        let given_up = self.given_up.iter().map(|(_, birth)| *birth).min();
        [settled, commit, given_up].into_iter().flatten().min()
    }
}

/// Ends of transactions.
#[derive(Debug, Default)]
pub(crate) struct OutcomeTable {
    clients: FxHashMap<u64, ClientOutcomes>,
    /// Transactions born below it are covered.
    horizon: Timestamp,
    /// Clients with a report that is not in the log.
    reported: usize,
    /// Memory of all ends.
    bytes: usize,
}

impl OutcomeTable {
    fn client(&mut self, client: u64) -> &mut ClientOutcomes {
        self.clients.entry(client).or_default()
    }

    /// Changes a client's entry, and counts its memory.
    fn change(&mut self, client: u64, change: impl FnOnce(&mut ClientOutcomes)) {
        let entry = self.clients.entry(client).or_default();
        let before = entry.bytes();
        change(entry);
        self.bytes = self.bytes + entry.bytes() - before;
        if entry.is_empty() {
            self.clients.remove(&client);
        }
    }

    pub(crate) fn horizon(&self) -> Timestamp {
        self.horizon
    }

    /// Memory of what is remembered.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.clients.len() * CLIENT_BYTES
    }

    /// Number of ends of transactions of several servers.
    pub(crate) fn ends(&self) -> usize {
        self.clients.values().map(|client| client.ends.len()).sum()
    }

    /// Whether no vote is taken for a transaction any more. Its end, if there is one, counts first.
    pub(crate) fn covers(&self, txn: TxnId, birth: Timestamp) -> bool {
        birth < self.horizon
            || self.clients.get(&txn.client).is_some_and(|client| client.settled.covers(txn.number))
    }

    /// Records a commit of this server alone.
    pub(crate) fn committed(&mut self, txn: TxnId, birth: Timestamp, at: Timestamp) {
        let client = self.clients.entry(txn.client).or_default();
        // Threads of a client may overtake each other, but not by much.
        let behind = client.commits.iter().rev().take_while(|other| other.number > txn.number).count();
        let commit = SingleCommit { number: txn.number, birth, at };
        client.commits.insert(client.commits.len() - behind, commit);
        self.bytes += size_of::<SingleCommit>();
    }

    /// Outcome of a transaction of this server alone, if it has ended and is not forgotten.
    pub(crate) fn single_server_outcome(&self, txn: TxnId) -> Option<Decision> {
        let client = self.clients.get(&txn.client)?;
        let commit = client.commits.binary_search_by_key(&txn.number, |commit| commit.number);
        match commit.ok().and_then(|place| client.commits.get(place)) {
            Some(commit) => Some(Decision::Commit(commit.at)),
            None => {
                client.given_up.iter().any(|(number, _)| *number == txn.number).then_some(Decision::Abort)
            }
        }
    }

    /// Aborts a transaction of this server alone that has not ended.
    pub(crate) fn give_up(&mut self, txn: TxnId, birth: Timestamp) {
        self.change(txn.client, |client| client.given_up.push((txn.number, birth)));
    }

    /// Outcome of a transaction of several servers.
    pub(crate) fn distributed_outcome(&self, txn: TxnId) -> Option<Decision> {
        Some(self.clients.get(&txn.client)?.ends.get(&txn.number)?.decision)
    }

    pub(crate) fn decide(&mut self, txn: TxnId, end: TransactionEnd) {
        self.change(txn.client, |client| drop(client.ends.insert(txn.number, end)));
    }

    pub(crate) fn forget(&mut self, txn: TxnId) {
        self.change(txn.client, |client| drop(client.ends.remove(&txn.number)));
    }

    /// Takes note of a client's report, which goes into the log with its next record.
    pub(crate) fn report(&mut self, client: u64, report: &SettledReport) {
        let is_news = |known: &SettledReport| report.number >= known.number && report != known;
        let known =
            self.clients.get(&client).map(|client| client.reported.as_ref().unwrap_or(&client.settled));
        // Without any transaction here there is nothing to forget, and none may come later that is
        // covered: its client would have to know the end of a transaction that it has not sent.
        if !known.is_some_and(is_news) {
            return;
        }
        let client = self.client(client);
        match &mut client.reported {
            Some(reported) => reported.merge(report),
            None => {
                client.reported = Some(report.clone());
                self.reported += 1;
            }
        }
    }

    /// Takes a client's report, to be logged with another record of the client.
    pub(crate) fn take_reported(&mut self, client: u64) -> Option<SettledReport> {
        if self.reported == 0 {
            return None;
        }
        let reported = self.clients.get_mut(&client)?.reported.take()?;
        self.reported -= 1;
        Some(reported)
    }

    /// Clients whose reports free enough for a record of their own, in order.
    pub(crate) fn large_reports(&self) -> Vec<u64> {
        if self.reported == 0 {
            return Vec::new();
        }
        let is_large = |client: &ClientOutcomes| client.reported.is_some() && client.count() > WORTH_A_RECORD;
        let mut large: Vec<u64> =
            self.clients.iter().filter(|(_, of)| is_large(of)).map(|(client, _)| *client).collect();
        large.sort_unstable();
        large
    }

    /// Applies a report that is in the log.
    pub(crate) fn settle(&mut self, client: u64, report: &SettledReport) {
        self.change(client, |client| {
            client.settled.merge(report);
            let settled = &client.settled;
            client.commits.retain(|commit| !settled.covers(commit.number));
            client.given_up.retain(|(number, _)| !settled.covers(*number));
            client.ends.retain(|number, _| !settled.covers(*number));
        });
    }

    /// Raises the horizon.
    pub(crate) fn raise(&mut self, horizon: Timestamp, us: ServerId) {
        self.horizon = self.horizon.max(horizon);
        let horizon = self.horizon;
        for client in self.clients.values_mut() {
            client.forget_below(horizon, us);
        }
        self.clients.retain(|_, client| !client.is_empty());
        self.bytes = self.clients.values().map(ClientOutcomes::bytes).sum();
    }

    /// Whether a horizon at `horizon` would free memory.
    pub(crate) fn frees(&self, horizon: Timestamp) -> bool {
        self.clients.values().any(|client| client.lowest_birth().is_some_and(|birth| birth < horizon))
    }

    /// Ends below the horizon, which wait for the other participants, in order.
    pub(crate) fn covered_ends(&self) -> impl Iterator<Item = (TxnId, &TransactionEnd)> {
        self.ended().filter(|(_, end)| end.birth < self.horizon)
    }

    /// All ends of transactions of several servers.
    pub(crate) fn ended(&self) -> impl Iterator<Item = (TxnId, &TransactionEnd)> {
        self.clients.iter().flat_map(|(client, of)| {
            of.ends.iter().map(|(number, end)| (TxnId { client: *client, number: *number }, end))
        })
    }

    /// The ends of one client, from the newest on: numbers, births, and the other servers that may
    /// ask.
    pub(crate) fn ends_of(&self, client: u64) -> impl Iterator<Item = (u64, &TransactionEnd)> {
        let ends = self.clients.get(&client).map(|client| client.ends.iter().rev());
        ends.into_iter().flatten().map(|(number, end)| (*number, end))
    }

    /// Numbers and births of all that is known of one client, in order.
    pub(crate) fn numbers_of(&self, client: u64) -> Vec<(u64, Timestamp)> {
        let Some(client) = self.clients.get(&client) else { return Vec::new() };
        let commits = client.commits.iter().map(|commit| (commit.number, commit.birth));
        let ends = client.ends.iter().map(|(number, end)| (*number, end.birth));
        let mut all: Vec<_> = commits.chain(ends).chain(client.given_up.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// Memory of the ends of one client.
    pub(crate) fn bytes_of(&self, client: u64) -> usize {
        self.clients.get(&client).map_or(0, ClientOutcomes::bytes)
    }

    /// Numbers of the clients that are remembered.
    pub(crate) fn client_numbers(&self) -> impl Iterator<Item = u64> {
        self.clients.keys().copied()
    }

    /// Clients that are remembered.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Commits of this server alone: the transactions, births and commit times.
    pub(crate) fn commits(&self) -> impl Iterator<Item = (TxnId, Timestamp, Timestamp)> {
        self.clients.iter().flat_map(|(client, of)| {
            let txn = |number| TxnId { client: *client, number };
            of.commits.iter().map(move |commit| (txn(commit.number), commit.birth, commit.at))
        })
    }

    /// Transactions of this server alone that were given up, and their births.
    pub(crate) fn all_given_up(&self) -> impl Iterator<Item = (TxnId, Timestamp)> {
        self.clients.iter().flat_map(|(client, of)| {
            let txn = |number| TxnId { client: *client, number };
            of.given_up.iter().map(move |(number, birth)| (txn(*number), *birth))
        })
    }

    /// What the log states to be settled, by client.
    pub(crate) fn all_settled(&self) -> impl Iterator<Item = (u64, &SettledReport)> {
        let settled = self.clients.iter().map(|(client, of)| (*client, &of.settled));
        settled.filter(|(_, settled)| **settled != SettledReport::default())
    }
}
