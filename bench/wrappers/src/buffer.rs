//! A client's write buffer. A write is acknowledged when it is in the buffer. The
//! buffer is sent when it is full, or when its oldest write reaches the latency limit.

use super::{RunClock, erased::ErasedVerbs, settings::BufferSettings};
use serval_model::{Flush, OperationKind, Outcome, Record, Status};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The outcome of a write that was buffered.
pub(super) const BUFFERED: Outcome = Outcome { status: Status::BatchedOk, message: None };

/// Maximum number of inserts in a batch of the store: etcd accepts 128 in a
/// transaction, and larger batches are hardly faster.
const BATCH_RECORDS_MAX: usize = 100;

/// Bytes from which no more inserts are added to a batch: ZooKeeper accepts 1 MiB in a
/// packet, etcd 1.5 MiB.
const BATCH_BYTES: u64 = 512 << 10;

#[derive(Debug)]
pub(super) struct Buffer {
    /// Bytes of keys, field names and values from which the buffer is full.
    size: u64,
    /// How long the oldest write may wait, ns; `u64::MAX` for no limit.
    latency: u64,
    clock: RunClock,
    table: String,
    kinds: Vec<OperationKind>,
    /// Keys and records. Entries beyond `kinds.len()` are reused memory. Kept apart
    /// from the kinds, so that consecutive inserts are a slice that stores accept.
    writes: Vec<(String, Record)>,
    bytes: u64,
    /// When it must be sent; `None` while it is empty, or without a limit.
    send_at: Option<u64>,
    /// Flushes that were not reported yet, and when each ended.
    flushes: VecDeque<(Flush, u64)>,
    /// Number of buffered writes; outlives this client.
    held: Arc<AtomicU64>,
}

/// Returns the bytes that a write counts for.
fn bytes_of((key, record): &(String, Record)) -> u64 {
    (key.len() + record.size()) as u64
}

impl Buffer {
    pub(super) fn new(settings: &BufferSettings, clock: RunClock, held: Arc<AtomicU64>) -> Buffer {
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

    /// Returns the next unreported flush.
    pub(super) fn flushed(&mut self) -> Option<Flush> {
        let (flush, end) = self.flushes.pop_front()?;
        Some(Flush { ago_ns: self.clock.now().saturating_sub(end), ..flush })
    }

    /// Returns whether the buffer accepts a write to this table.
    pub(super) fn has_room_in(&self, table: &str) -> bool {
        self.kinds.is_empty() || self.table == table
    }

    /// Adds a write. Returns whether the buffer is full.
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

    /// Sends all writes in order. A failure does not keep the later writes from
    /// being sent.
    pub(super) async fn flush(&mut self, client: &mut dyn ErasedVerbs) {
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
            // If this future is dropped here, the rest and the request in flight are lost.
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

    /// Returns the end of the batch of inserts that starts at `from`.
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
