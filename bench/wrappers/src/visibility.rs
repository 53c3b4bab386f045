//! A store with a known replica lag: other clients see a write some time after its
//! acknowledgement, and the old state before. As the distribution of the delay is
//! known, it tests what measures the lag.
//!
//! The store itself applies each write at once. The hidden writes are in memory that
//! all clients of the process share: for each record, its state before them, and the
//! version that each made. To know the state before, a write first reads the record,
//! unless it has hidden versions. A read asks the store; when the answer arrives, the
//! clock decides which version is visible. A read that finds a write was therefore
//! answered after the write became visible, and a read that misses it was sent before.
//!
//! Versions of a record become visible in order: a client that sees a version also
//! sees all before it, even those whose own delay is not over. If two clients write
//! a record at the same time, the store may apply them in the other order; the
//! difference shows until both are visible.

use super::{
    RunClock,
    erased::{BoxOutcome, ErasedVerbs, send},
    hidden_writes::{
        HiddenWrite, HiddenWrites, HideResult, InvisibleRecords, RecordState, UnsentWrite, contents,
        full_key, project,
    },
    settings::{DelayLaw, ViewSettings},
};
use crate::delay::SplitMix;
use serval_model::{FieldSelection, OperationKind, Outcome, Record, Reply, Status};
use std::sync::Arc;

/// Maximum number of records that a scan requests beyond its count, to replace the
/// hidden ones.
const SCAN_BEYOND_MAX: u64 = 1000;

/// One client's view of a store with lag.
#[derive(Debug)]
pub(super) struct DelayedView {
    hidden: Arc<HiddenWrites>,
    /// Number of the client, unique in the process.
    client: usize,
    /// Whether the client sees its own writes at once.
    sees_own: bool,
    law: DelayLaw,
    random: SplitMix,
    clock: RunClock,
}

impl DelayedView {
    /// `place`: the client's number in its run.
    pub(super) fn new(
        settings: &ViewSettings,
        hidden: Arc<HiddenWrites>,
        place: usize,
        clock: RunClock,
    ) -> DelayedView {
        // Consecutive numbers must give independent random streams.
        let client = hidden.next_client();
        let random = SplitMix(settings.seed ^ (place as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let (sees_own, law) = (settings.sees_own, settings.law);
        DelayedView { hidden, client, sees_own, law, random, clock }
    }

    fn own(&self) -> Option<usize> {
        self.sees_own.then_some(self.client)
    }

    fn acknowledged(&mut self, hidden_write: HiddenWrite<'_>) {
        let delay = self.law.draw_ns(&mut self.random);
        hidden_write.acknowledged(self.clock.now(), delay);
    }
}

/// A client with a [`DelayedView`] of its store.
pub(super) struct DelayedClient<'a> {
    pub(super) client: &'a mut dyn ErasedVerbs,
    pub(super) view: &'a mut DelayedView,
}

/// Hides a write before it is sent. Reads the record first if its state is not known
/// from hidden versions.
async fn hide<'a>(
    client: &mut dyn ErasedVerbs,
    hidden: &'a HiddenWrites,
    view: &DelayedView,
    (kind, table, key, record): (OperationKind, &str, &str, Option<&Record>),
) -> HideResult<'a> {
    let write = UnsentWrite { kind, table, key, full_key: full_key(table, key), record };
    loop {
        let read = match hidden.is_hidden(&write.full_key, view.clock.now()) {
            Ok(()) => None,
            Err(released) => Some((read(client, &write).await?, released)),
        };
        // Another client's write may have become visible to all in between.
        if let Some(holding) = hidden.hide(&write, view.client, read) {
            return holding;
        }
    }
}

/// Reads a record from the store.
async fn read(client: &mut dyn ErasedVerbs, write: &UnsentWrite<'_>) -> Result<RecordState, Outcome> {
    let (all, mut reply) = (FieldSelection::default(), Reply::new());
    let outcome = client.read(write.table, write.key, &all, &mut reply).await;
    match outcome.status {
        Status::NotFound => Ok(None),
        _ if outcome.is_ok() => Ok(Some(reply.records().first().cloned().unwrap_or_default())),
        _ => Err(outcome),
    }
}

impl DelayedClient<'_> {
    fn write<'a>(
        &'a mut self,
        kind: OperationKind,
        table: &'a str,
        key: &'a str,
        record: Option<&'a Record>,
    ) -> BoxOutcome<'a> {
        Box::pin(async move {
            let hidden = Arc::clone(&self.view.hidden);
            let hidden_write = match hide(self.client, &hidden, self.view, (kind, table, key, record)).await {
                Ok(hidden_write) => hidden_write,
                Err(outcome) => return outcome,
            };
            let outcome = send(self.client, kind, table, key, record).await;
            if outcome.is_ok() {
                self.view.acknowledged(hidden_write);
            }
            outcome
        })
    }
}

impl ErasedVerbs for DelayedClient<'_> {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> BoxOutcome<'a> {
        Box::pin(async move {
            let outcome = self.client.read(table, key, fields, reply).await;
            if !outcome.is_ok() && outcome.status != Status::NotFound {
                return outcome;
            }
            let (key, now) = (full_key(table, key), self.view.clock.now());
            let mut shard = self.view.hidden.shard(&key);
            shard.expire(now, &self.view.hidden);
            let Some(entry) = shard.entries.get(&key) else { return outcome };
            let visible = entry.visible_count(now, self.view.own());
            if visible == entry.versions.len() {
                return outcome;
            }
            reply.clear();
            let Some(state) = entry.state(visible) else { return Outcome::NOT_FOUND };
            project(state, fields, reply.begin_record());
            Outcome::OK
        })
    }

    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> BoxOutcome<'a> {
        self.write(OperationKind::Update, table, key, Some(fields))
    }

    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> BoxOutcome<'a> {
        self.write(OperationKind::Insert, table, key, Some(record))
    }

    /// The records of a scan have no keys: a hidden record is recognised by its
    /// fields. A deleted record is missing at once.
    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> BoxOutcome<'a> {
        Box::pin(async move {
            let beyond = self.view.hidden.hidden_in(table).min(SCAN_BEYOND_MAX);
            let outcome =
                self.client.scan(table, start_key, count.saturating_add(beyond), fields, reply).await;
            if outcome.is_ok() {
                let invisible =
                    self.view.hidden.invisible(table, fields, self.view.clock.now(), self.view.own());
                let most = usize::try_from(count).unwrap_or(usize::MAX);
                if !invisible.is_empty() || reply.records().len() > most {
                    keep_visible(reply, &invisible, most);
                }
            }
            outcome
        })
    }

    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> BoxOutcome<'a> {
        self.write(OperationKind::Delete, table, key, None)
    }

    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> BoxOutcome<'a> {
        Box::pin(async move {
            let hidden = Arc::clone(&self.view.hidden);
            let mut all = Vec::with_capacity(records.len());
            for (key, record) in records {
                let write = (OperationKind::Insert, table, key.as_str(), Some(record));
                match hide(self.client, &hidden, self.view, write).await {
                    Ok(hidden_write) => all.push(hidden_write),
                    Err(outcome) => return outcome,
                }
            }
            let outcome = self.client.insert_batch(table, records).await;
            if outcome.is_ok() {
                all.into_iter().for_each(|hidden_write| self.view.acknowledged(hidden_write));
            }
            outcome
        })
    }
}

/// Removes hidden records from a reply, and all beyond `most`.
fn keep_visible(reply: &mut Reply, invisible: &InvisibleRecords, most: usize) {
    let visible = reply.records().iter().filter_map(|record| match invisible.get(&contents(record)) {
        None => Some(record.clone()),
        Some(instead) => instead.clone(),
    });
    let visible: Vec<Record> = visible.take(most).collect();
    reply.clear();
    visible.iter().for_each(|record| reply.begin_record().copy_from(record));
}
