//! Laws of the commit protocol that hold at each step of a server, by its requests, records and
//! replies.

use crate::PathCounts;
use std::collections::{BTreeMap, BTreeSet};
use yesquel_engine::{Caller, LogRecord};
use yesquel_model::{Key, NodeId, Refusal, Timestamp, TxnId};
use yesquel_wire::{NodeOperation, Operations, Reply, Request, WriteOperation};

/// A request to commit or to vote that has no answer yet.
#[derive(Debug)]
struct AskedVote {
    txn: TxnId,
    connection: u64,
    /// Its place among the requests.
    arrival: u64,
    /// The prepare may be queued.
    waits: bool,
    /// Cells that it writes; they may have moved since.
    cells: BTreeSet<(NodeId, Key)>,
    /// Uptime of the server.
    arrived_ms: u64,
}

/// What a server has been asked, and what it has answered.
#[derive(Debug, Default)]
pub(super) struct ServerLaws {
    arrivals: u64,
    /// By request and connection; a copy has the numbers of the first.
    asked: BTreeMap<(u64, u64), AskedVote>,
    /// Snapshots that connections have reported to hold.
    held: BTreeMap<u64, [Option<Timestamp>; 2]>,
    /// Snapshots from before are not served, and need not be kept.
    served_from: Timestamp,
    /// Transactions that it has refused since its start.
    refused: BTreeSet<TxnId>,
    /// Highest timestamp that it has given out, in all its lives.
    given: Timestamp,
    pub(super) paths: PathCounts,
}

fn cells(operations: &Operations<'_>) -> BTreeSet<(NodeId, Key)> {
    let cell = |NodeOperation { node, write }: NodeOperation<'_>| match write {
        WriteOperation::Put { key, .. } | WriteOperation::Delete { key, .. } => Some((node, Key::from(key))),
        _ => None,
    };
    operations.iter().filter_map(cell).collect()
}

impl ServerLaws {
    /// Notes a request.
    pub(super) fn on_request(&mut self, now_ms: u64, caller: Caller, request: &[u8]) {
        let (txn, waits, operations) = match Request::decode(request) {
            Ok(Request::Commit { txn, operations, .. }) => (txn, false, operations),
            Ok(Request::Prepare { txn, waits, operations, .. }) => (txn, waits, operations),
            _ => return,
        };
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.asked.entry((caller.request, caller.connection)).or_insert_with(|| AskedVote {
            txn,
            connection: caller.connection,
            arrival,
            waits,
            cells: cells(&operations),
            arrived_ms: now_ms,
        });
    }

    /// Checks a record, before a step's replies are noted: nothing is voted for below the horizon or
    /// after a refusal, and no request overtakes a prepare that was queued before it on the same
    /// cell.
    pub(super) fn on_record(
        &mut self,
        at: usize,
        record: &LogRecord<'_>,
        horizon: Timestamp,
        queued_since_ms: impl Fn(TxnId) -> Option<u64>,
    ) {
        let (txn, birth) = match record {
            LogRecord::Commit { txn, birth, .. } | LogRecord::Prepare { txn, birth, .. } => (*txn, *birth),
            _ => return,
        };
        assert!(!self.refused.contains(&txn), "server {at} takes {txn} after it has refused it");
        assert!(birth >= horizon, "server {at} takes {txn}, which was born below its horizon");
        let own = self.asked.values().filter(|asked| asked.txn == txn);
        let Some(own) = own.min_by_key(|asked| asked.arrival) else { return };
        let is_overtaken = |other: &&AskedVote| {
            other.waits
                && other.txn != txn
                && other.arrival < own.arrival
                && !other.cells.is_disjoint(&own.cells)
                // Others were held first, because of a clock, and were queued later.
                && queued_since_ms(other.txn) == Some(other.arrived_ms)
        };
        if let Some(other) = self.asked.values().find(is_overtaken) {
            panic!("server {at}: {txn} overtakes {}, which is queued", other.txn);
        }
    }

    /// Notes the snapshots that a connection holds.
    pub(super) fn on_hold(&mut self, connection: u64, oldest: [Option<Timestamp>; 2]) {
        self.held.insert(connection, oldest);
    }

    /// Notes the end of a connection.
    pub(super) fn on_disconnected(&mut self, connection: u64) {
        self.held.remove(&connection);
    }

    /// Checks the low-water mark that a record sets: it passes no snapshot that is held.
    pub(super) fn on_low_water(
        &self,
        at: usize,
        (low, next): (Timestamp, Timestamp),
        is_kept: impl Fn(Timestamp) -> bool,
    ) {
        for held in self.held.values().flatten().flatten() {
            let was_kept = *held >= self.served_from && is_kept(*held);
            let is_kept = *held == low || *held >= next;
            assert!(is_kept || !was_kept, "server {at}: its mark {low} passes {held}, which is held");
        }
    }

    /// Notes a reply that leaves.
    pub(super) fn on_reply(&mut self, caller: Caller, reply: &[u8]) {
        let decoded = Reply::decode(reply);
        // The request may have been queued before its copy met another epoch.
        let is_copy = matches!(decoded, Ok(Reply::Corrected(_)));
        let asked = if is_copy { None } else { self.asked.remove(&(caller.request, caller.connection)) };
        let in_order = asked.as_ref().map(|asked| asked.waits);
        let was_refused = asked.as_ref().is_some_and(|asked| self.refused.contains(&asked.txn));
        self.paths.on_reply(reply, in_order, was_refused);
        match decoded {
            Ok(Reply::Answers { snapshot: at, .. } | Reply::Committed(at) | Reply::Voted(at)) => {
                self.given = self.given.max(at);
            }
            // It may be on disk.
            Ok(Reply::Refused { refusal: Refusal::DiskLost, .. }) => {}
            Ok(Reply::Refused { .. }) => self.refused.extend(asked.map(|asked| asked.txn)),
            _ => {}
        }
    }

    /// The connections on which a prepare came that may be queued.
    pub(super) fn connections_of(&self, txn: TxnId) -> impl Iterator<Item = u64> {
        let of_txn = self.asked.values().filter(move |asked| asked.txn == txn && asked.waits);
        of_txn.map(|asked| asked.connection)
    }

    /// Notes a start: it begins above all timestamps that were given out, unless those do not wait for
    /// the disk.
    pub(super) fn on_start(&mut self, at: usize, last: Timestamp, is_relaxed: bool, return_ms: u64) {
        let given = self.given;
        assert!(is_relaxed || last >= given, "server {at} starts at {last}, and has given out {given}");
        self.served_from = if return_ms == 0 { last } else { Timestamp::ZERO };
        self.asked.clear();
        self.held.clear();
        self.refused.clear();
    }
}
