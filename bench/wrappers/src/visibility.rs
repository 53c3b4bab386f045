//! A store that lags on purpose: others see a write only a while after its
//! acknowledgement, and before that what was there before. The law of the delay is
//! known, so that what is measured of a lag can be held against it.
//!
//! The store itself has each write at once. What is held back is held here, in
//! memory that all clients of the process share: of each record with writes that
//! are not seen by all yet, what it was before them, and each of them. To know the
//! former, a write reads the record first, unless it is held already. A read asks
//! the store, and when the answer is there it is decided by the clock whether it
//! may be seen: so a read that finds a write was answered after the write became
//! visible, and one that does not was sent before.
//!
//! Versions of a record are seen in their order: who sees one has seen all before
//! it, also those whose own delay is not over. Of two clients that write the same
//! record at the same time, the store may have the other order than is held here,
//! until both are visible.

use super::{
    Clock,
    held::{Held, Holding, Shared, State, Unseen, Write, contents, full_key, show},
    settings::{Law, ViewSettings},
    under::{Answer, Verbs, send},
};
use crate::delay::SplitMix;
use serval_model::{FieldSelection, OperationKind, Outcome, Record, Reply, Status};
use std::sync::Arc;

/// Records that a scan asks for at most beyond its number, for those that it must
/// not show.
const SCAN_BEYOND_MAX: u64 = 1000;

/// One client's view of a store that lags.
#[derive(Debug)]
pub(super) struct View {
    shared: Arc<Shared>,
    /// Its number among all that have been connected.
    client: usize,
    /// Whether it sees its own writes at once.
    sees_own: bool,
    law: Law,
    random: SplitMix,
    clock: Clock,
}

impl View {
    /// `place`: the client's in its run.
    pub(super) fn new(settings: &ViewSettings, shared: Arc<Shared>, place: usize, clock: Clock) -> View {
        // Streams of neighbours must not be alike.
        let client = shared.next_client();
        let random = SplitMix(settings.seed ^ (place as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let (sees_own, law) = (settings.sees_own, settings.law);
        View { shared, client, sees_own, law, random, clock }
    }

    fn own(&self) -> Option<usize> {
        self.sees_own.then_some(self.client)
    }

    fn acknowledged(&mut self, held: Held<'_>) {
        let delay = self.law.draw_ns(&mut self.random);
        held.acknowledged(self.clock.now(), delay);
    }
}

/// A client of a store that is seen so.
pub(super) struct Delayed<'a> {
    pub(super) client: &'a mut dyn Verbs,
    pub(super) view: &'a mut View,
}

/// Holds a write back before it is sent. What the record was before is known from what
/// is held of it, or read.
async fn hold<'a>(
    client: &mut dyn Verbs,
    shared: &'a Shared,
    view: &View,
    (kind, table, key, record): (OperationKind, &str, &str, Option<&Record>),
) -> Holding<'a> {
    let write = Write { kind, table, key, full_key: full_key(table, key), record };
    loop {
        let read = match shared.is_held(&write.full_key, view.clock.now()) {
            Ok(()) => None,
            Err(let_go) => Some((read(client, &write).await?, let_go)),
        };
        // Others may have written it and all have seen it since.
        if let Some(holding) = shared.hold(&write, view.client, read) {
            return holding;
        }
    }
}

/// A record as the store has it.
async fn read(client: &mut dyn Verbs, write: &Write<'_>) -> Result<State, Outcome> {
    let (all, mut reply) = (FieldSelection::default(), Reply::new());
    let outcome = client.read(write.table, write.key, &all, &mut reply).await;
    match outcome.status {
        Status::NotFound => Ok(None),
        _ if outcome.is_ok() => Ok(Some(reply.records().first().cloned().unwrap_or_default())),
        _ => Err(outcome),
    }
}

impl Delayed<'_> {
    fn write<'a>(
        &'a mut self,
        kind: OperationKind,
        table: &'a str,
        key: &'a str,
        record: Option<&'a Record>,
    ) -> Answer<'a> {
        Box::pin(async move {
            let shared = Arc::clone(&self.view.shared);
            let held = match hold(self.client, &shared, self.view, (kind, table, key, record)).await {
                Ok(held) => held,
                Err(outcome) => return outcome,
            };
            let outcome = send(self.client, kind, table, key, record).await;
            if outcome.is_ok() {
                self.view.acknowledged(held);
            }
            outcome
        })
    }
}

impl Verbs for Delayed<'_> {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a> {
        Box::pin(async move {
            let outcome = self.client.read(table, key, fields, reply).await;
            if !outcome.is_ok() && outcome.status != Status::NotFound {
                return outcome;
            }
            let (key, now) = (full_key(table, key), self.view.clock.now());
            let mut shard = self.view.shared.shard(&key);
            shard.expire(now, &self.view.shared);
            let Some(entry) = shard.entries.get(&key) else { return outcome };
            let seen = entry.seen(now, self.view.own());
            if seen == entry.versions.len() {
                return outcome;
            }
            reply.clear();
            let Some(state) = entry.state(seen) else { return Outcome::NOT_FOUND };
            show(state, fields, reply.begin_record());
            Outcome::OK
        })
    }

    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> Answer<'a> {
        self.write(OperationKind::Update, table, key, Some(fields))
    }

    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> Answer<'a> {
        self.write(OperationKind::Insert, table, key, Some(record))
    }

    /// The records of a scan come without their keys: one that must not be seen yet
    /// is known by what it holds. One that was deleted is missed at once.
    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a> {
        Box::pin(async move {
            let beyond = self.view.shared.held_in(table).min(SCAN_BEYOND_MAX);
            let outcome =
                self.client.scan(table, start_key, count.saturating_add(beyond), fields, reply).await;
            if outcome.is_ok() {
                let unseen = self.view.shared.unseen(table, fields, self.view.clock.now(), self.view.own());
                let most = usize::try_from(count).unwrap_or(usize::MAX);
                if !unseen.is_empty() || reply.records().len() > most {
                    keep_seen(reply, &unseen, most);
                }
            }
            outcome
        })
    }

    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> Answer<'a> {
        self.write(OperationKind::Delete, table, key, None)
    }

    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> Answer<'a> {
        Box::pin(async move {
            let shared = Arc::clone(&self.view.shared);
            let mut all = Vec::with_capacity(records.len());
            for (key, record) in records {
                let write = (OperationKind::Insert, table, key.as_str(), Some(record));
                match hold(self.client, &shared, self.view, write).await {
                    Ok(held) => all.push(held),
                    Err(outcome) => return outcome,
                }
            }
            let outcome = self.client.insert_batch(table, records).await;
            if outcome.is_ok() {
                all.into_iter().for_each(|held| self.view.acknowledged(held));
            }
            outcome
        })
    }
}

/// Leaves of a reply what may be seen, and no more than `most` records.
fn keep_seen(reply: &mut Reply, unseen: &Unseen, most: usize) {
    let seen = reply.records().iter().filter_map(|record| match unseen.get(&contents(record)) {
        None => Some(record.clone()),
        Some(instead) => instead.clone(),
    });
    let seen: Vec<Record> = seen.take(most).collect();
    reply.clear();
    seen.iter().for_each(|record| reply.begin_record().copy_from(record));
}
