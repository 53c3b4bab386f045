//! Wraps a workload and records its writes to sampled keys.

use crate::{
    Clock,
    journal::{FIELDS_MAX, Item, Journal, WRITES_MAX, Write, WriteKind},
    queue::Queue,
    stamp::{Stamp, VERSION_END},
};
use serval_model::{Operation, OperationKind, Record, Schema};
use serval_workload::{ClientWorkload, Demand, End, Last, Place, Random, Rng, Step, Workload};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Separates the random streams of producers from those of the wrapped workload.
const OWN: u64 = 0x7072_6f64_7563_6572;

/// State that the producers of one process share.
pub struct Producing {
    /// Clock of all instants.
    pub clock: Clock,
    /// Queue of the sampled writes.
    pub queue: Arc<dyn Queue>,
    /// Journal of the sampled writes.
    pub journal: Arc<Mutex<Journal>>,
    /// Share of keys that are sampled, from 0 to 1.
    pub sample: f64,
    /// Seed of the sample.
    pub sample_seed: u64,
    /// Share of sampled writes that their client reads back at once, from 0 to 1.
    pub read_back: f64,
    /// The last version that was assigned.
    versions: AtomicU64,
    /// Whether sampled writes go into the queue; false in the warm-up.
    armed: AtomicBool,
}

impl fmt::Debug for Producing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Producing({} of keys into {:?})", self.sample, self.queue)
    }
}

impl Producing {
    /// Returns the state of producers that have written nothing. Writes go into the queue once
    /// [armed](Self::arm).
    pub fn new(clock: Clock, queue: Arc<dyn Queue>, journal: Arc<Mutex<Journal>>) -> Producing {
        Producing {
            clock,
            queue,
            journal,
            sample: 0.01,
            sample_seed: 0,
            read_back: 0.0,
            versions: AtomicU64::new(0),
            armed: AtomicBool::new(false),
        }
    }

    /// Sets whether sampled writes go into the queue.
    pub fn arm(&self, armed: bool) {
        self.armed.store(armed, Relaxed);
    }

    /// Returns whether a key is sampled.
    #[inline]
    pub fn samples(&self, key: &str) -> bool {
        // FNV-1a, then the finalizer of SplitMix64: FNV's high bits are the same for keys that
        // differ in their last characters.
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ self.sample_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in key.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // 53 bits are exact in a float.
        (((hash ^ (hash >> 31)) >> 11) as f64) < self.sample * (1u64 << 53) as f64
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workload with sampled writes.
pub struct Producer {
    inner: Arc<dyn Workload>,
    shared: Arc<Producing>,
}

impl Producer {
    /// Samples the writes of `inner`.
    pub fn new(inner: Arc<dyn Workload>, shared: Arc<Producing>) -> Producer {
        Producer { inner, shared }
    }
}

impl Workload for Producer {
    fn schema(&self) -> Schema {
        self.inner.schema()
    }

    fn demands(&self) -> Vec<Demand> {
        self.inner.demands()
    }

    fn units(&self) -> Option<u64> {
        self.inner.units()
    }

    fn metrics(&self) -> Vec<String> {
        self.inner.metrics()
    }

    fn verifies(&self) -> bool {
        self.inner.verifies()
    }

    fn sample_keys(&self) -> Vec<String> {
        self.inner.sample_keys()
    }

    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        Box::new(ProducerClient {
            inner: self.inner.client(place, rng),
            shared: Arc::clone(&self.shared),
            number: place.index as u32,
            rng: Rng::stream(place.seed ^ OWN, place.index as u64),
            pending: Vec::new(),
            forced: false,
            read_back: None,
            reading: None,
        })
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
}

/// A sampled write in flight.
struct SampledWrite {
    /// Its index in the journal; `None` if the journal is full.
    place: Option<usize>,
    item: Item,
}

/// A client's read of its own write.
struct ReadBack {
    version: u64,
    sent: u64,
    /// The unit's end, which the read delays.
    end: End,
}

struct ProducerClient {
    inner: Box<dyn ClientWorkload>,
    shared: Arc<Producing>,
    number: u32,
    rng: Rng,
    pending: Vec<SampledWrite>,
    /// Whether the wrapped workload did not ask for the outcome.
    forced: bool,
    /// Key and version to read back after the unit.
    read_back: Option<(String, u64)>,
    reading: Option<ReadBack>,
}

/// Stamps all values that are long enough. Returns the stamped fields as bits, and the first one's name.
fn stamp(record: &mut Record, stamp: Stamp, journal: &mut Journal) -> (u64, Option<String>) {
    let (mut bits, mut first) = (0, None);
    for index in 0..record.len() {
        let Some(field) = record.iter().nth(index).and_then(|(name, _)| journal.field(name)) else { break };
        if record.overwrite(index, &stamp.bytes()) {
            bits |= 1 << field;
            if first.is_none() {
                first = journal.fields.name(u32::from(field)).map(str::to_owned);
            }
        }
    }
    (bits, first)
}

impl ProducerClient {
    /// Records the sampled keys that the next operation writes.
    fn look(&mut self, operation: &mut Operation) {
        let kind = match operation.kind {
            OperationKind::Insert => WriteKind::Insert,
            OperationKind::Update => WriteKind::Update,
            OperationKind::Delete => WriteKind::Delete,
            OperationKind::Read | OperationKind::Scan => return,
        };
        if operation.batch().is_empty() {
            if self.shared.samples(&operation.key) {
                let Operation { key, record, .. } = operation;
                self.note(kind, key, record);
            }
            return;
        }
        for (key, record) in operation.batch_mut() {
            if self.shared.samples(key) {
                self.note(kind, key, record);
            }
        }
    }

    #[cold]
    fn note(&mut self, kind: WriteKind, key: &str, record: &mut Record) {
        let mut journal = self.shared.journal();
        // Under the journal's lock, so that versions rise in the order of sending.
        let version = self.shared.versions.fetch_add(1, Relaxed) + 1;
        let stamped = Stamp { writer: journal.writer, version: version % VERSION_END };
        let (fields, field) = match kind {
            WriteKind::Delete => (0, Some(String::new())),
            _ => stamp(record, stamped, &mut journal),
        };
        if kind != WriteKind::Delete && (fields.count_ones() as usize) < record.len().min(FIELDS_MAX) {
            journal.counts.too_short += 1;
        }
        let Some(field) = field else { return };
        // The journal is full: the key needs no number.
        let number = if journal.writes.len() < WRITES_MAX { journal.keys.number(key) } else { 0 };
        let sent = (self.shared.clock)();
        let client = self.number;
        let write = Write { key: number, fields, kind, client, version, sent, acknowledged: None };
        let place = journal.write(write);
        let key = key.to_owned();
        let item = Item { key, field, stamp: stamped, kind, client, sent, acknowledged: sent };
        self.pending.push(SampledWrite { place, item });
    }

    /// Records the outcome of the sampled writes.
    #[cold]
    fn ended(&mut self, ok: bool) {
        let now = (self.shared.clock)();
        let armed = self.shared.armed.load(Relaxed);
        let mut journal = self.shared.journal();
        self.read_back = None;
        let single = self.pending.len() == 1;
        for SampledWrite { place, mut item } in self.pending.drain(..) {
            if ok && let Some(write) = place.and_then(|place| journal.writes.get_mut(place)) {
                write.acknowledged = Some(now);
            }
            if item.kind == WriteKind::Delete {
                continue;
            }
            if !ok {
                journal.counts.failed += 1;
                continue;
            }
            journal.counts.acknowledged += 1;
            if !armed {
                continue;
            }
            item.acknowledged = now;
            if single
                && place.is_some()
                && self.shared.read_back > 0.0
                && self.rng.next_f64() < self.shared.read_back
            {
                self.read_back = Some((item.key.clone(), item.stamp.version));
            }
            if place.is_some() && self.shared.queue.offer(item) {
                journal.counts.carried += 1;
            } else {
                journal.counts.not_carried += 1;
            }
        }
    }

    /// Starts the read of the last write.
    #[cold]
    fn read_back(&mut self, (key, version): (String, u64), end: End, operation: &mut Operation) -> Step {
        // The rest of the operation counts the unit's records, so it stays. Of a batch, one key is read.
        operation.kind = OperationKind::Read;
        operation.key = key;
        operation.fields.all();
        self.reading = Some(ReadBack { version, sent: (self.shared.clock)(), end });
        Step::Probe
    }
}

impl ClientWorkload for ProducerClient {
    fn step(&mut self, mut last: Last<'_>, operation: &mut Operation) -> Step {
        if let Some(ReadBack { version, sent, end }) = self.reading.take() {
            if let Last::Outcome(outcome, reply) = &mut last {
                let answered = (self.shared.clock)();
                let found = outcome.is_ok();
                if found || outcome.status == serval_model::Status::NotFound {
                    let record = found.then(|| reply.records().iter().flat_map(Record::iter));
                    let mut journal = self.shared.journal();
                    journal.read(&operation.key, self.number, (sent, answered), record, Some(version));
                }
            }
            return Step::End(end);
        }
        if let (false, Last::Outcome(outcome, _)) = (self.pending.is_empty(), &last) {
            self.ended(outcome.is_ok());
        }
        let step = match last {
            Last::Outcome(outcome, _) if self.forced => {
                self.forced = false;
                Step::End(End::of(outcome))
            }
            last => self.inner.step(last, operation),
        };
        match step {
            Step::Issue { more } => {
                self.look(operation);
                self.forced = !more && !self.pending.is_empty();
                Step::Issue { more: more || self.forced }
            }
            // A composite time must not include the read.
            Step::End(end) if end.composite.is_none() && !end.stop => match self.read_back.take() {
                Some(written) => self.read_back(written, end, operation),
                None => step,
            },
            step => step,
        }
    }

    fn failure(&mut self) -> Option<String> {
        self.inner.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::InMemory;

    fn producing(sample: f64, seed: u64) -> Producing {
        let queue = Arc::new(InMemory::new(10));
        let mut producing = Producing::new(Arc::new(|| 0), queue, Arc::default());
        (producing.sample, producing.sample_seed) = (sample, seed);
        producing
    }

    #[test]
    fn the_requested_share_is_sampled_and_the_seed_selects_the_keys() {
        const KEYS: usize = 100_000;
        let keys = || (0..KEYS).map(|n| format!("user{n}"));
        for (share, seed) in [(0.01, 0), (0.01, 1), (0.5, 7)] {
            let producing = producing(share, seed);
            let sampled = keys().filter(|key| producing.samples(key)).count() as f64;
            // Binomial, to five standard deviations.
            let (mean, deviation) = (share * KEYS as f64, (share * (1.0 - share) * KEYS as f64).sqrt());
            assert!((sampled - mean).abs() < 5.0 * deviation, "{share}: {sampled}");
        }
        let (a, b) = (producing(0.01, 0), producing(0.01, 1));
        let both = keys().filter(|key| a.samples(key) && b.samples(key)).count();
        assert!(both < 50, "{both} of about 10");
        assert!(keys().all(|key| producing(1.0, 3).samples(&key) && !producing(0.0, 3).samples(&key)));
    }

    /// Loads two records as a batch.
    struct Batch;

    impl ClientWorkload for Batch {
        fn step(&mut self, _: Last<'_>, operation: &mut Operation) -> Step {
            operation.begin(OperationKind::Insert);
            for key in ["user0", "user1"] {
                let (name, record) = operation.push_batch();
                name.push_str(key);
                record.push("field0", &[b'x'; 20]);
            }
            Step::Issue { more: false }
        }
    }

    #[test]
    fn a_sampled_record_of_a_batch_is_read_back_by_its_own_key() {
        let seed = (0..).find(|seed| {
            let producing = producing(0.5, *seed);
            !producing.samples("user0") && producing.samples("user1")
        });
        let mut shared = producing(0.5, seed.unwrap());
        shared.read_back = 1.0;
        shared.arm(true);
        let mut client = ProducerClient {
            inner: Box::new(Batch),
            shared: Arc::new(shared),
            number: 0,
            rng: Rng::stream(1, 0),
            pending: Vec::new(),
            forced: false,
            read_back: None,
            reading: None,
        };
        let mut operation = Operation::new("t");
        assert_eq!(client.step(Last::Begin, &mut operation), Step::Issue { more: true });
        let mut reply = serval_model::Reply::new();
        let outcome = serval_model::Outcome::OK;
        assert_eq!(client.step(Last::Outcome(&outcome, &mut reply), &mut operation), Step::Probe);
        assert_eq!((operation.kind, operation.key.as_str()), (OperationKind::Read, "user1"));
    }
}
