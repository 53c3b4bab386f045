//! Forgetting: the horizon, what clients have settled, and what other groups report.
//! `docs/yesquel/cluster/commit.md` has the rules.

use super::Engine;
use crate::{
    effects::{Effects, EndQuery, Now},
    record::LogRecord,
};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use yesquel_model::{ServerId, Timestamp, TxnId};
use yesquel_wire::{HorizonReport, SettledReport};

/// The horizon is raised this often, if that frees memory.
const RAISE_EVERY_MS: u64 = 1_000;
/// Otherwise it is raised when it is so much behind, for the groups that wait for it.
const RAISE_BEHIND_MS: u64 = 60_000;
/// Ends that are kept for a client that may return, of those that it has not settled.
const KEPT_OF_CLIENT: usize = 16;
/// How long all connections of a client must have been closed before it counts as gone.
const GONE_AFTER_MS: u64 = 10_000;
/// The part of the memory budget that the ends kept for clients that are gone may take.
const KEPT_PART: usize = 4;
/// How often that limit is enforced.
const LIMIT_EVERY_MS: u64 = 1_000;

/// A client without a connection, whose ends are to be settled.
#[derive(Debug, Clone, Copy)]
struct GoneClient {
    /// Since when; none until the next tick.
    since_ms: Option<u64>,
    /// Number of its newest ends that are kept.
    keeps: usize,
}

impl GoneClient {
    const NEW: GoneClient = GoneClient { since_ms: None, keeps: KEPT_OF_CLIENT };
}

/// Clients that are gone and whose newest ends are kept.
#[derive(Debug, Default)]
struct KeptClients {
    /// From the one that has been gone longest.
    by_departure: BTreeMap<u64, u64>,
    departures: FxHashMap<u64, u64>,
    departed: u64,
    limited_at_ms: u64,
}

impl KeptClients {
    fn push(&mut self, client: u64) {
        self.remove(client);
        self.departed += 1;
        self.by_departure.insert(self.departed, client);
        self.departures.insert(client, self.departed);
    }

    fn remove(&mut self, client: u64) {
        if let Some(departure) = self.departures.remove(&client) {
            self.by_departure.remove(&departure);
        }
    }

    /// Takes the client that has been gone longest.
    fn pop(&mut self) -> Option<u64> {
        let (_, client) = self.by_departure.pop_first()?;
        self.departures.remove(&client);
        Some(client)
    }
}

/// What is known only to this process.
#[derive(Debug, Default)]
pub(crate) struct ForgetState {
    /// Uptime and horizon at its last rise: it does not rise faster than twice the time.
    risen: Option<(u64, Timestamp)>,
    /// What other groups have reported.
    reports: BTreeMap<ServerId, HorizonReport>,
    /// Groups that have left the cluster for good: they are in doubt about nothing.
    retired: BTreeSet<ServerId>,
    /// Clients by connection.
    connections: BTreeMap<u64, u64>,
    gone: BTreeMap<u64, GoneClient>,
    kept: KeptClients,
    /// Other groups that have ended transactions of clients that are gone.
    ended: BTreeMap<TxnId, Vec<ServerId>>,
}

impl Engine {
    /// Takes a client's report of what it has settled.
    pub fn on_settled(&mut self, connection: u64, client: u64, report: &SettledReport) {
        self.forget.connections.insert(connection, client);
        self.forget.gone.remove(&client);
        self.forget.kept.remove(client);
        self.outcomes.report(client, report);
    }

    pub(super) fn client_disconnected(&mut self, connection: u64) {
        if let Some(client) = self.forget.connections.remove(&connection)
            && !self.forget.connections.values().any(|other| *other == client)
        {
            self.forget.gone.insert(client, GoneClient::NEW);
        }
    }

    /// After a start: no client has a connection yet.
    pub(super) fn no_client_is_connected(&mut self) {
        self.forget.gone = self.outcomes.client_numbers().map(|client| (client, GoneClient::NEW)).collect();
    }

    /// What this group tells the others, and the log record that must be synced before it leaves,
    /// under every durability.
    pub fn report(&self) -> (HorizonReport, u64) {
        let horizon = self.outcomes.horizon();
        let below = self.prepared.iter().filter(|(_, prepared)| prepared.birth < horizon);
        let mut prepared: Vec<TxnId> = below.map(|(txn, _)| *txn).collect();
        prepared.sort_unstable();
        // With the records so far synced, the ends of all that is not listed are durable.
        (HorizonReport { horizon, prepared }, self.lsn)
    }

    /// Takes the report of another group. It never becomes wrong, however late it arrives.
    pub fn on_report(&mut self, server: ServerId, report: HorizonReport) {
        self.recover_with(server);
        let known = self.forget.reports.entry(server).or_default();
        if report.horizon >= known.horizon {
            *known = report;
        }
    }

    /// Notes that a group has left the cluster for good. Ends do not wait for it any more.
    pub fn retire_group(&mut self, server: ServerId) {
        self.forget.retired.insert(server);
    }

    /// Forgets what may be forgotten.
    pub(super) fn tick_forgetting(&mut self, now: Now, last: Timestamp, effects: &mut Effects) {
        for client in self.outcomes.large_reports() {
            if let Some(report) = self.outcomes.take_reported(client) {
                self.settle_client(client, report, effects);
            }
        }
        self.raise_horizon(now, last, effects);
        self.settle_gone(now, effects);
        self.limit_kept(now, effects);
    }

    fn settle_client(&mut self, client: u64, report: SettledReport, effects: &mut Effects) {
        self.outcomes.settle(client, &report);
        self.log(&LogRecord::Settled { client, report }, effects);
    }

    fn raise_horizon(&mut self, now: Now, last: Timestamp, effects: &mut Effects) {
        let wanted = Timestamp::from_ms(last.ms().saturating_sub(self.settings.outcomes_kept_ms));
        let own = self.outcomes.horizon();
        let wanted = match self.forget.risen {
            Some((since_ms, _)) if since_ms + RAISE_EVERY_MS > now.uptime_ms => return,
            // A clock that jumps ahead must not cover transactions that have just begun.
            Some((since_ms, from)) => {
                let passed_ms = now.uptime_ms - since_ms;
                wanted.min(Timestamp::from_ms(from.ms().saturating_add(passed_ms.saturating_mul(2))))
            }
            None => wanted,
        };
        // Groups that report to this one may wait for its horizon.
        let is_wanted = !self.forget.reports.is_empty() && wanted.ms() >= own.ms() + RAISE_BEHIND_MS;
        if wanted > own && (is_wanted || self.outcomes.frees(wanted)) {
            self.forget.risen = Some((now.uptime_ms, wanted));
            self.log(&LogRecord::Horizon(wanted), effects);
            self.outcomes.raise(wanted, self.settings.server);
        }
        self.forget.risen.get_or_insert((now.uptime_ms, own.max(wanted)));
        self.forget_reported(effects);
    }

    /// Forgets ends that no other participant can be in doubt about, by what those have reported.
    fn forget_reported(&mut self, effects: &mut Effects) {
        let (us, state) = (self.settings.server, &self.forget);
        let has_ended = |server: ServerId, txn: TxnId, birth: Timestamp| {
            let says_so = state.ended.get(&txn).is_some_and(|ended| ended.contains(&server));
            let report = state.reports.get(&server);
            let is_reported = report
                .is_some_and(|report| birth < report.horizon && report.prepared.binary_search(&txn).is_err());
            server == us || says_so || is_reported || state.retired.contains(&server)
        };
        let is_over = |txn: TxnId, birth, participants: &[ServerId]| {
            participants.iter().all(|server| has_ended(*server, txn, birth))
        };
        let over = self.outcomes.covered_ends();
        let over = over.filter(|(txn, end)| is_over(*txn, end.birth, &end.participants));
        let mut over: Vec<TxnId> = over.map(|(txn, _)| txn).collect();
        over.sort_unstable();
        for txn in over {
            self.log(&LogRecord::Forget { txn }, effects);
            self.outcomes.forget(txn);
            self.forget.ended.remove(&txn);
        }
    }

    /// Settles the transactions of clients that are gone, except for the newest, and asks other
    /// participants whether they have ended.
    fn settle_gone(&mut self, now: Now, effects: &mut Effects) {
        let mut due = Vec::new();
        for (client, gone) in &mut self.forget.gone {
            let since_ms = *gone.since_ms.get_or_insert(now.uptime_ms);
            if since_ms + GONE_AFTER_MS <= now.uptime_ms {
                due.push((*client, gone.keeps));
            }
        }
        for (client, keeps) in due {
            self.settle_due(now, client, keeps, effects);
        }
    }

    fn settle_due(&mut self, now: Now, client: u64, keeps: usize, effects: &mut Effects) {
        let open = self.settle_gone_client(client, keeps, effects);
        if open.is_empty() {
            self.forget.gone.remove(&client);
            if keeps > 0 && self.outcomes.bytes_of(client) > 0 {
                self.forget.kept.push(client);
            }
        } else {
            // They are asked again when as much time has passed.
            self.forget.gone.insert(client, GoneClient { since_ms: Some(now.uptime_ms), keeps });
            effects.end_queries.extend(open);
        }
    }

    /// Settles all transactions of the clients that have been gone longest, as long as the ends kept
    /// for such clients take too much memory.
    fn limit_kept(&mut self, now: Now, effects: &mut Effects) {
        let bytes_max = self.settings.memory_bytes_max / KEPT_PART;
        let is_due = self.forget.kept.limited_at_ms + LIMIT_EVERY_MS <= now.uptime_ms;
        if !is_due || self.outcomes.bytes() <= bytes_max {
            return;
        }
        self.forget.kept.limited_at_ms = now.uptime_ms;
        let kept = self.forget.kept.by_departure.values();
        let mut bytes: usize = kept.map(|client| self.outcomes.bytes_of(*client)).sum();
        while bytes > bytes_max
            && let Some(client) = self.forget.kept.pop()
        {
            bytes -= self.outcomes.bytes_of(client);
            self.settle_due(now, client, 0, effects);
        }
    }

    /// Settles the transactions of a client except for its newest, and returns the questions that
    /// are open.
    fn settle_gone_client(&mut self, client: u64, keeps: usize, effects: &mut Effects) -> Vec<EndQuery> {
        if let Some(report) = self.outcomes.take_reported(client) {
            self.settle_client(client, report, effects);
        }
        let numbers = self.outcomes.numbers_of(client);
        let Some(old) = numbers.len().checked_sub(keeps).filter(|old| *old > 0) else {
            return Vec::new();
        };
        let kept_from = numbers.get(old).map_or(u64::MAX, |(number, _)| *number);
        let us = self.settings.server;
        let mut asked: BTreeMap<ServerId, EndQuery> = BTreeMap::new();
        let mut exceptions: Vec<u64> = numbers[old..].iter().map(|(number, _)| *number).collect();
        for (number, end) in self.outcomes.ends_of(client).filter(|(number, _)| *number < kept_from) {
            let ended = self.forget.ended.get(&TxnId { client, number });
            let is_open =
                |server: &&ServerId| **server != us && !ended.is_some_and(|ended| ended.contains(server));
            let is_open = |server: &&ServerId| is_open(server) && !self.forget.retired.contains(server);
            for server in end.participants.iter().filter(is_open) {
                let transactions = Vec::new();
                let query = asked.entry(*server);
                let query = query.or_insert(EndQuery { server: *server, client, transactions });
                query.transactions.push((number, end.birth, Arc::clone(&end.participants)));
                exceptions.push(number);
            }
        }
        // What is in doubt here is an exception until it has ended.
        let in_doubt = self.prepared.keys().filter(|txn| txn.client == client);
        exceptions.extend(in_doubt.map(|txn| txn.number));
        exceptions.sort_unstable();
        exceptions.dedup();
        let (number, birth) = numbers
            .iter()
            .fold((0, Timestamp::ZERO), |(number, birth), next| (number.max(next.0), birth.max(next.1)));
        exceptions.retain(|exception| *exception <= number);
        self.settle_client(client, SettledReport { number, birth, exceptions }, effects);
        self.forget.ended.retain(|txn, _| txn.client != client || txn.number >= kept_from);
        let mut open: Vec<EndQuery> = asked.into_values().collect();
        open.iter_mut().for_each(|query| query.transactions.reverse());
        open
    }

    /// Handles the answer to an [`EndQuery`]: one flag for each transaction.
    pub fn on_ended(&mut self, query: &EndQuery, flags: &[u8], effects: &mut Effects) {
        for ((number, ..), flag) in query.transactions.iter().zip(flags) {
            if *flag == 1 {
                let txn = TxnId { client: query.client, number: *number };
                self.forget.ended.entry(txn).or_default().push(query.server);
            }
        }
        if let Some(gone) = self.forget.gone.get(&query.client) {
            self.settle_gone_client(query.client, gone.keeps, effects);
        }
    }
}
