//! A client's write buffer: writes are acknowledged when they are in it, and sent
//! together when it is full or its first has waited as long as it may.

use super::{Clock, settings::BufferSettings, under::Verbs};
use serval_model::{Flush, OperationKind, Outcome, Record, Status};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// What a write is told that has been taken.
pub(super) const TAKEN: Outcome = Outcome { status: Status::BatchedOk, message: None };

/// Inserts that are handed to a store's own batch at a time, at most: etcd takes
/// 128 in a transaction, and nobody gains much from more.
const BATCH_RECORDS_MAX: usize = 100;

/// Their bytes, from which on no more are added: ZooKeeper takes 1 MiB in a packet,
/// etcd 1.5 MiB.
const BATCH_BYTES: u64 = 512 << 10;

#[derive(Debug)]
pub(super) struct Buffer {
    /// Bytes of keys, field names and values from which on it is full.
    size: u64,
    /// How long its first write may wait, ns; `u64::MAX` without end.
    latency: u64,
    clock: Clock,
    table: String,
    kinds: Vec<OperationKind>,
    /// Keys and what is written, from 0 on; those beyond `kinds` are memory for
    /// writes to come. Apart from their kinds, so that inserts in a row are a
    /// batch as stores take it.
    writes: Vec<(String, Record)>,
    bytes: u64,
    /// When it is to be sent; `None` while it is empty, or may wait for ever.
    send_at: Option<u64>,
    /// What it has come to, and when that was.
    flushes: VecDeque<(Flush, u64)>,
    /// How many writes there are, for whoever asks when this client is gone.
    held: Arc<AtomicU64>,
}

/// Bytes that a write counts for.
fn bytes_of((key, record): &(String, Record)) -> u64 {
    (key.len() + record.size()) as u64
}

impl Buffer {
    pub(super) fn new(settings: &BufferSettings, clock: Clock, held: Arc<AtomicU64>) -> Buffer {
        Buffer {
            size: settings.size,
            latency: settings.latency_ns,
            clock,
            table: String::new(),
            kinds: Vec::new(),
            writes: Vec::new(),
            bytes: 0,
            send_at: None,
            flushes: VecDeque::new(),
            held,
        }
    }

    pub(super) fn send_at(&self) -> Option<u64> {
        self.send_at
    }

    /// The next flush that nobody has been told of.
    pub(super) fn flushed(&mut self) -> Option<Flush> {
        let (flush, end) = self.flushes.pop_front()?;
        Some(Flush { ago_ns: self.clock.now().saturating_sub(end), ..flush })
    }

    /// Whether a write to this table may join those that are there.
    pub(super) fn has_room_in(&self, table: &str) -> bool {
        self.kinds.is_empty() || self.table == table
    }

    /// Takes a write; whether it is full then.
    pub(super) fn put(
        &mut self,
        kind: OperationKind,
        table: &str,
        key: &str,
        record: Option<&Record>,
    ) -> bool {
        let at = self.kinds.len();
        if at == 0 {
            self.table.clear();
            self.table.push_str(table);
            if self.latency < u64::MAX {
                self.send_at = Some(self.clock.now().saturating_add(self.latency));
            }
        }
        if at == self.writes.len() {
            self.writes.push((String::new(), Record::new()));
        }
        let write = &mut self.writes[at];
        write.0.clear();
        write.0.push_str(key);
        match record {
            Some(record) => write.1.copy_from(record),
            None => write.1.clear(),
        }
        self.bytes += bytes_of(write);
        self.kinds.push(kind);
        self.held.store(self.kinds.len() as u64, Relaxed);
        self.bytes >= self.size
    }

    /// Sends all that is there, in the order in which it came. Failures do not
    /// keep back what comes after.
    pub(super) async fn flush(&mut self, client: &mut dyn Verbs) {
        if self.kinds.is_empty() {
            return;
        }
        let start = self.clock.now();
        let (mut first, mut lost) = (Outcome::OK, 0);
        let mut at = 0;
        while let Some(&kind) = self.kinds.get(at) {
            let to = if kind == OperationKind::Insert { self.batch_end(at) } else { at + 1 };
            let table = self.table.as_str();
            let outcome = match (kind, &self.writes[at..to]) {
                (OperationKind::Insert, [(key, record)]) => client.insert(table, key, record).await,
                (OperationKind::Insert, batch) => client.insert_batch(table, batch).await,
                (OperationKind::Delete, [(key, _), ..]) => client.delete(table, key).await,
                (_, [(key, record), ..]) => client.update(table, key, record).await,
                (_, []) => Outcome::OK,
            };
            if !outcome.is_ok() {
                lost += (to - at) as u64;
                if first.is_ok() {
                    first = outcome;
                }
            }
            at = to;
            // Whoever gives this client up in the middle loses the rest, and what is under way.
            self.held.store((self.kinds.len() - at) as u64, Relaxed);
        }
        let end = self.clock.now();
        let took_ns = end.saturating_sub(start);
        let flush = Flush { outcome: first, took_ns, ago_ns: 0, writes: at as u64, lost };
        self.flushes.push_back((flush, end));
        self.kinds.clear();
        self.bytes = 0;
        self.send_at = None;
    }

    /// The end of the batch of inserts that begins at a place.
    fn batch_end(&self, from: usize) -> usize {
        let mut bytes = 0;
        let more = self.kinds[from..].iter().zip(&self.writes[from..]).take(BATCH_RECORDS_MAX);
        let more = more.take_while(|(kind, write)| {
            let joins = **kind == OperationKind::Insert && bytes < BATCH_BYTES;
            bytes += bytes_of(write);
            joins
        });
        from + more.count()
    }
}
