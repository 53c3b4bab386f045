//! A workload that reads sampled keys until it sees the producers' writes.

use crate::{
    Clock,
    journal::{Item, Journal, PolledKey},
    queue::Queue,
    stamp::Stamp,
};
use serval_model::{Operation, OperationKind, Outcome, Record, Reply, Schema, Status};
use serval_workload::{ClientWorkload, Demand, End, Last, Place, Random, Rng, Step, Workload};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Interval at which an idle consumer polls the queue, ns.
const LOOK_NS: u64 = 500_000;

/// Number of further reads of a found key that `lag.again` selects.
const AGAIN_READS: u32 = 3;

/// Maximum number of unsuccessful reads of a key that has another writer's version. The consumer
/// cannot tell whether that version is older or newer.
const FOREIGN_READS_MAX: u64 = 100;

/// Separates the random streams of consumers from other streams.
const OWN: u64 = 0x636f_6e73_756d_6572;

/// State that the consumers of one process share.
pub struct Consuming {
    /// Clock of all instants.
    pub clock: Clock,
    /// Source of keys.
    pub queue: Arc<dyn Queue>,
    /// Journal of the reads.
    pub journal: Arc<Mutex<Journal>>,
    /// Minimum time between two reads of a key, ns.
    pub poll: u64,
    /// Share of found keys that are read again, from 0 to 1.
    pub again: f64,
    /// Idle time that ends a consumer after its first key, ns; `None`: no limit.
    pub idle: Option<u64>,
    /// Time limit for the remaining keys after the end was requested, ns.
    pub drain: u64,
    /// When to end even if keys are left, here or in the queue.
    end_at: AtomicU64,
    last_came: AtomicU64,
}

impl fmt::Debug for Consuming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consuming({:?} every {} ns)", self.queue, self.poll)
    }
}

impl Consuming {
    /// Returns the state of consumers that have read nothing.
    pub fn new(clock: Clock, queue: Arc<dyn Queue>, journal: Arc<Mutex<Journal>>) -> Consuming {
        Consuming {
            clock,
            queue,
            journal,
            poll: 10_000_000,
            again: 0.0,
            idle: None,
            drain: 10_000_000_000,
            end_at: AtomicU64::new(u64::MAX),
            last_came: AtomicU64::new(0),
        }
    }

    /// Ends the consumers once they have found the remaining keys, or after `drain`. Call it
    /// after the last write.
    pub fn close(&self) {
        let end = (self.clock)().saturating_add(self.drain);
        self.end_at.fetch_min(end, Relaxed);
    }

    /// Returns whether a client without a key to read now should end.
    fn is_over(&self, now: u64, has_some: bool) -> bool {
        let end_at = self.end_at.load(Relaxed);
        if end_at != u64::MAX {
            return now >= end_at || !has_some && self.queue.drained();
        }
        let came = self.last_came.load(Relaxed);
        match self.idle {
            Some(idle) if came > 0 => {
                let quiet = came.saturating_add(idle);
                now >= quiet && (!has_some || now >= quiet.saturating_add(self.drain))
            }
            _ => false,
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workload whose units are reads of sampled keys.
pub struct Consumer {
    schema: Schema,
    shared: Arc<Consuming>,
}

impl Consumer {
    /// Returns a consumer of records of this schema.
    pub fn new(schema: Schema, shared: Arc<Consuming>) -> Consumer {
        Consumer { schema, shared }
    }
}

impl Workload for Consumer {
    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn demands(&self) -> Vec<Demand> {
        vec![Demand { kind: OperationKind::Read, because: "a consumer (lag.role)".into() }]
    }

    fn client(&self, place: Place, _: Rng) -> Box<dyn ClientWorkload> {
        Box::new(ConsumerClient {
            shared: Arc::clone(&self.shared),
            number: place.index as u32,
            rng: Rng::stream(place.seed ^ OWN, place.index as u64),
            back: BTreeMap::new(),
            count: 0,
            fresh: true,
            reading: None,
        })
    }
}

/// A key that a consumer is looking for.
struct SoughtKey {
    trial: PolledKey,
    /// Number of further reads after it was found.
    again: u32,
}

struct ConsumerClient {
    shared: Arc<Consuming>,
    number: u32,
    rng: Rng,
    /// Keys that wait for their next read: when it is due, and a number that orders keys of the same instant.
    back: BTreeMap<(u64, u64), Box<SoughtKey>>,
    count: u64,
    /// Whether the last key was a new one.
    fresh: bool,
    /// The key that is being read, and when the read was sent.
    reading: Option<(Box<SoughtKey>, u64)>,
}

impl ConsumerClient {
    fn take_new(&mut self, now: u64) -> Option<Box<SoughtKey>> {
        // A key that arrives too late would be censored.
        if now >= self.shared.end_at.load(Relaxed) {
            return None;
        }
        let item = self.shared.queue.take()?;
        self.shared.last_came.fetch_max(now.max(1), Relaxed);
        let trial = PolledKey { item, first: 0, last_in_vain: None, found: None, found_by: None, reads: 0 };
        Some(Box::new(SoughtKey { trial, again: 0 }))
    }

    fn take_back(&mut self, now: u64) -> Option<Box<SoughtKey>> {
        let first = self.back.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Returns the next key to read now. Alternates between new keys and waiting ones, so that
    /// neither kind starves.
    fn next(&mut self, now: u64) -> Option<Box<SoughtKey>> {
        self.fresh = !self.fresh;
        if self.fresh {
            self.take_back(now).or_else(|| self.take_new(now))
        } else {
            self.take_new(now).or_else(|| self.take_back(now))
        }
    }

    fn go_on(&mut self, operation: &mut Operation) -> Step {
        let now = (self.shared.clock)();
        let over = self.shared.end_at.load(Relaxed);
        if now < over
            && let Some(held) = self.next(now)
        {
            operation.begin(OperationKind::Read);
            operation.key.push_str(&held.trial.item.key);
            self.reading = Some((held, (self.shared.clock)()));
            return Step::Seek;
        }
        if self.shared.is_over(now, !self.back.is_empty()) {
            return Step::Stop;
        }
        let due = self.back.first_key_value().map_or(u64::MAX, |((due, _), _)| *due);
        let look = now.saturating_add(LOOK_NS);
        Step::Wait(Duration::from_nanos(due.min(look).saturating_sub(now).max(1)))
    }

    fn put_back(&mut self, held: Box<SoughtKey>, sent: u64) {
        self.count += 1;
        self.back.insert((sent.saturating_add(self.shared.poll), self.count), held);
    }

    fn judge(&mut self, mut held: Box<SoughtKey>, sent: u64, outcome: &Outcome, reply: &Reply) {
        let answered = (self.shared.clock)();
        let Item { key, field, stamp, .. } = &held.trial.item;
        let there = outcome.is_ok();
        let mut journal = self.shared.journal();
        journal.counts.reads += 1;
        if !there && outcome.status != Status::NotFound {
            // A failed read tells nothing about the key.
            journal.counts.reads_failed += 1;
            drop(journal);
            self.put_back(held, sent);
            return;
        }
        let record = || reply.records().iter().flat_map(Record::iter);
        let seen = record().find(|(name, _)| name == field).and_then(|(_, value)| Stamp::of(value));
        journal.read(key, self.number, (sent, answered), there.then(record), None);
        drop(journal);
        if held.again > 0 {
            held.again -= 1;
            if held.again > 0 {
                self.put_back(held, sent);
            }
            return;
        }
        let found = seen.is_some_and(|seen| seen.writer == stamp.writer && seen.version >= stamp.version);
        let foreign = seen.is_some_and(|seen| seen.writer != stamp.writer);
        // A writer that started earlier may have written the old value: keep waiting.
        let older = seen.is_some_and(|seen| seen.writer < stamp.writer);
        let trial = &mut held.trial;
        trial.reads += 1;
        if trial.first == 0 {
            trial.first = sent;
        }
        if !found {
            trial.last_in_vain = Some(sent);
            let patient = older && sent.saturating_sub(trial.first) < self.shared.drain;
            if foreign && !patient && trial.reads >= FOREIGN_READS_MAX {
                self.let_go(*held);
            } else {
                self.put_back(held, sent);
            }
            return;
        }
        trial.found = Some(answered);
        trial.found_by = Some(sent);
        self.shared.journal().trial(held.trial.clone());
        if self.shared.again > 0.0 && self.rng.next_f64() < self.shared.again {
            held.again = AGAIN_READS;
            self.put_back(held, sent);
        }
    }

    /// Gives up a key that was not found; it is censored.
    fn let_go(&self, held: SoughtKey) {
        if held.again == 0 {
            self.shared.journal().trial(held.trial);
        }
    }
}

impl ClientWorkload for ConsumerClient {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        let Last::Outcome(outcome, reply) = last else { return self.go_on(operation) };
        if let Some((held, sent)) = self.reading.take() {
            self.judge(held, sent, outcome, reply);
        }
        // A key that is not visible yet is not a failure.
        let ok = outcome.is_ok() || outcome.status == Status::NotFound;
        Step::End(End { ok, ..End::of(outcome) })
    }
}

impl Drop for ConsumerClient {
    /// Censors the keys that were not found.
    fn drop(&mut self) {
        if let Some((held, _)) = self.reading.take() {
            self.let_go(*held);
        }
        while let Some((_, held)) = self.back.pop_first() {
            self.let_go(*held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{journal::WriteKind, queue::Queue};
    use std::sync::atomic::AtomicUsize;

    /// A queue that delivers its only item at the fourth call.
    #[derive(Debug)]
    struct Slow(AtomicUsize);

    impl Queue for Slow {
        fn offer(&self, _: Item) -> bool {
            false
        }

        fn take(&self) -> Option<Item> {
            let stamp = Stamp { writer: 1, version: 1 };
            let (key, field) = ("user1".to_owned(), "field0".to_owned());
            let item =
                Item { key, field, stamp, kind: WriteKind::Insert, client: 0, sent: 1, acknowledged: 2 };
            (self.0.fetch_add(1, Relaxed) == 3).then_some(item)
        }

        fn drained(&self) -> bool {
            self.0.load(Relaxed) > 3
        }
    }

    #[test]
    fn a_consumer_asked_to_end_takes_the_remaining_items() {
        let shared =
            Arc::new(Consuming::new(Arc::new(|| 5), Arc::new(Slow(AtomicUsize::new(0))), Arc::default()));
        let consumer = Consumer::new(Schema::default(), Arc::clone(&shared));
        let place = Place { index: 0, count: 1, units: None, seed: 1 };
        let mut client = consumer.client(place, Rng::stream(1, 0));
        shared.close();
        let mut operation = Operation::new("t");
        for _ in 0..3 {
            assert!(matches!(client.step(Last::Begin, &mut operation), Step::Wait(_)));
        }
        assert_eq!(client.step(Last::Begin, &mut operation), Step::Seek);
        assert_eq!(operation.key, "user1");
    }
}
