//! A client: writes the series of its own keys in turn, and queries all series.

use super::{
    SeriesShared, ValueType,
    number::{decode_long, encode_double, encode_long},
    series::SeriesPoint,
    timestamps::Timestamps,
};
use crate::{
    core::Phase,
    distribution::{KeyChooser, LengthChooser},
    random::{Random, Rng},
    workload::{ClientWorkload, End, Last, Place, Step},
};
use serval_model::{
    FieldSelection, Operation, OperationKind, Outcome, Record, Reply, Status, java::string_hash_from,
};
use std::sync::Arc;

/// Upper bound of real values.
const FLOATS_END: f64 = 100_000.0;

/// Contents of a record's field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldSlot {
    Tag(usize),
    Timestamp,
    Value,
}

/// Spelling of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Query {
    Read,
    Scan,
}

pub(super) struct SeriesClient {
    shared: Arc<SeriesShared>,
    chooser: KeyChooser,
    scan_lengths: LengthChooser,
    rng: Rng,
    /// The keys that this client writes: the first, and the number of keys.
    first_key: u64,
    keys: u64,
    timestamps: Timestamps,
    /// Start of the queries' timestamps.
    start: i64,
    /// The next step of the write order.
    step: u64,
    /// Whether the operation issued is a read that will be verified.
    verifying: bool,
    text: String,
}

impl SeriesClient {
    pub(super) fn new(shared: Arc<SeriesShared>, place: Place, mut rng: Rng) -> Self {
        let count = shared.keys.count();
        let places = (place.count as u64).clamp(1, count);
        let (index, share) = ((place.index as u64).min(places - 1), count / places);
        let first_key = share * index;
        // The last client gets the remainder.
        let keys = if index == places - 1 { count - first_key } else { share };
        let clock = &shared.clock;
        let mut timestamps = match clock.shuffled {
            None => Timestamps::rising(clock.start, clock.step),
            Some((base, range)) => Timestamps::shuffled(base, clock.step, range, rng.next_u64()),
        };
        let start = if shared.exact { timestamps.offset(0) } else { timestamps.at(0) };
        SeriesClient {
            chooser: shared.chooser.clone(),
            scan_lengths: shared.scan_lengths.clone(),
            shared,
            rng,
            first_key,
            keys,
            timestamps,
            start,
            step: 0,
            verifying: false,
            text: String::new(),
        }
    }

    /// Returns the steps from the last written point to the next: 1 if none is
    /// omitted.
    fn stride(&mut self) -> u64 {
        let sparsity = self.shared.sparsity;
        if sparsity <= 0.0 {
            1
        } else if self.shared.exact {
            // Points are omitted until a draw is not below the sparsity: a geometric
            // number, by inversion of its distribution. Saturates.
            let left_out = libm::log(1.0 - self.rng.next_f64()) / libm::log(sparsity);
            (left_out as u64).saturating_add(1)
        } else {
            let bound = (self.shared.cardinality.per_key as f64 * sparsity) as u64;
            self.rng.below(bound).max(1)
        }
    }

    /// Fills in the next data point of an insert, or an older one of an
    /// update.
    fn write_point(&mut self, operation: &mut Operation, insert: bool) {
        let step = self.step.saturating_add(self.stride() - 1);
        self.step = step.saturating_add(1);
        let shared = &*self.shared;
        let point = shared.cardinality.point(step, self.first_key, self.keys);
        shared.keys.write(&mut operation.key, point.key);
        let current = self.timestamps.at(point.tick);
        let timestamp = if insert {
            current.wrapping_sub(delay(shared, point))
        } else if shared.exact {
            self.timestamps.at(self.rng.below(point.tick.max(1)))
        } else {
            let interval = shared.clock.interval;
            let intervals = (current.wrapping_sub(self.start) / interval).max(1) as u64;
            self.start.wrapping_add(interval.wrapping_mul(self.rng.below(intervals) as i64))
        };
        let value = if shared.integrity {
            // YCSB takes the timestamp before it is delayed or made older.
            let stored = if shared.exact { timestamp } else { current };
            let mut hash = shared.integrity_seed(&operation.key);
            for (tag, name) in shared.tags.iter().enumerate() {
                self.text.clear();
                shared.tag_values.write(&mut self.text, shared.cardinality.value(tag, point.v));
                hash = string_hash_from(string_hash_from(hash, name), &self.text);
            }
            encode_long(i64::from(hash) ^ stored)
        } else {
            random_value(shared.value_type, &mut self.rng)
        };
        for slot in &shared.slots {
            match *slot {
                FieldSlot::Tag(tag) => {
                    self.text.clear();
                    shared.tag_values.write(&mut self.text, shared.cardinality.value(tag, point.v));
                    operation.record.push(&shared.tags[tag], self.text.as_bytes());
                }
                FieldSlot::Timestamp => operation.record.push(&shared.timestamp_key, &encode_long(timestamp)),
                FieldSlot::Value => operation.record.push(&shared.value_key, &value),
            }
        }
    }

    /// Appends a tag and one of its values to the text, or the tag alone when
    /// queries group by it.
    fn append_tag(&mut self, tag: usize) {
        let shared = &*self.shared;
        self.text.push_str(&shared.tags[tag]);
        if !shared.query.grouped(tag) {
            self.text.push_str(&shared.query.pair_delimiter);
            let value = self.rng.below(shared.cardinality.values(tag));
            shared.tag_values.write(&mut self.text, value);
        }
    }

    /// Appends the timestamp of a query, or its first and last.
    fn append_timestamps(&mut self, from: i64) {
        let (shared, query) = (&*self.shared, &self.shared.query);
        let mut buffer = itoa::Buffer::new();
        for part in [&shared.timestamp_key, &query.pair_delimiter, buffer.format(from)] {
            self.text.push_str(part);
        }
        if query.span > 0 {
            let span = match query.random_spans {
                None => query.span,
                Some(count) => shared.clock.interval.wrapping_mul(self.rng.below(count) as i64),
            };
            self.text.push_str(&query.span_delimiter);
            self.text.push_str(buffer.format(from.wrapping_add(span)));
        }
    }

    /// Draws the first timestamp of a query from those that a load wrote for all series.
    fn query_start(&mut self) -> i64 {
        let (ticks, step) = (self.shared.clock.ticks, self.shared.clock.step);
        self.start.wrapping_add(step.wrapping_mul(self.rng.below(ticks) as i64))
    }

    fn write_query(&mut self, fields: &mut FieldSelection, kind: Query) {
        let from = self.query_start();
        for tag in 0..self.shared.tags.len() {
            self.text.clear();
            self.append_tag(tag);
            fields.push(&self.text);
        }
        self.text.clear();
        self.append_timestamps(from);
        fields.push(&self.text);
        let query = &self.shared.query;
        if let Some(grouping) = &query.grouping {
            fields.push(&grouping.field);
        }
        if let Some(downsampling) = &query.downsampling {
            fields.push(if kind == Query::Read { &downsampling.read } else { &downsampling.scan });
        }
    }

    fn any_key(&mut self, key: &mut String) {
        let index = self.rng.below(self.shared.keys.count());
        self.shared.keys.write(key, index);
    }

    fn begin(&mut self, operation: &mut Operation) -> Step {
        let load = self.shared.phase == Phase::Load;
        let kind = if load {
            OperationKind::Insert
        } else {
            self.shared.actions[self.shared.mix.draw(&mut self.rng)]
        };
        operation.begin(kind);
        self.verifying = false;
        match kind {
            OperationKind::Insert => {
                self.write_point(operation, true);
                // A load must see the outcome to continue.
                return Step::Issue { more: load };
            }
            OperationKind::Update => self.write_point(operation, false),
            OperationKind::Read => {
                let newest = self.shared.keys.count() - 1;
                let index = self.chooser.draw(&mut self.rng, newest);
                self.shared.keys.write(&mut operation.key, index);
                self.write_query(&mut operation.fields, Query::Read);
                self.verifying = self.shared.integrity;
            }
            OperationKind::Scan => {
                self.any_key(&mut operation.key);
                operation.scan_length = self.scan_lengths.draw(&mut self.rng);
                self.write_query(&mut operation.fields, Query::Scan);
            }
            OperationKind::Delete => {
                self.any_key(&mut operation.key);
                self.write_delete(&mut operation.key);
            }
        }
        Step::Issue { more: self.verifying }
    }

    /// Appends tags and timestamps to the key of a delete.
    fn write_delete(&mut self, key: &mut String) {
        let from = self.query_start();
        self.text.clear();
        for tag in 0..self.shared.tags.len() {
            self.text.push_str(&self.shared.query.delete_delimiter);
            self.append_tag(tag);
        }
        self.text.push_str(&self.shared.query.delete_delimiter);
        self.append_timestamps(from);
        key.push_str(&self.text);
    }

    fn ended(&mut self, outcome: &Outcome, reply: &Reply, operation: &Operation) -> Step {
        if self.verifying && outcome.is_ok() {
            let status = self.shared.verify(&operation.key, reply);
            return Step::End(End {
                composite: None,
                verified: Some(status),
                ok: status.is_ok(),
                stop: false,
            });
        }
        let stop = self.shared.phase == Phase::Load && !outcome.is_ok();
        Step::End(End { stop, ..End::of(outcome) })
    }
}

impl ClientWorkload for SeriesClient {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        match last {
            Last::Outcome(outcome, reply) => self.ended(outcome, reply, operation),
            Last::Begin | Last::Waited => self.begin(operation),
        }
    }
}

/// Returns the delay of a series' inserts.
fn delay(shared: &SeriesShared, point: SeriesPoint) -> i64 {
    let cardinality = &shared.cardinality;
    let series = point.key * cardinality.per_key + point.v;
    if shared.delayed_intervals == 0 || series as f64 / cardinality.total as f64 >= shared.delayed_series {
        return 0;
    }
    shared.clock.interval.wrapping_mul((series % shared.delayed_intervals) as i64)
}

fn random_value(kind: ValueType, rng: &mut Rng) -> [u8; 8] {
    let whole = match kind {
        ValueType::Integers => true,
        ValueType::Floats => false,
        ValueType::Mixed => rng.next_u64() >> 63 == 1,
    };
    if whole {
        encode_long(i64::from((rng.next_u64() >> 32) as i32))
    } else {
        encode_double(rng.next_f64() * FLOATS_END)
    }
}

impl SeriesShared {
    /// Returns the start of a value's hash. YCSB documents that it includes the key, but
    /// omits it.
    fn integrity_seed(&self, key: &str) -> i32 {
        if self.exact { string_hash_from(0, key) } else { 0 }
    }

    /// Verifies the data that was read.
    fn verify(&self, key: &str, reply: &Reply) -> Status {
        if self.exact && reply.records().iter().all(Record::is_empty) {
            return Status::Error;
        }
        let right = |record: &Record| {
            let number = |name: &str| match record.get(name) {
                Some(field) => decode_long(field),
                // YCSB uses zero for a missing field.
                None => Some(0),
            };
            let tags_hash = self.hash_of(key, record);
            let (timestamp, value) = (number(&self.timestamp_key), number(&self.value_key));
            matches!((timestamp, value, tags_hash), (Some(t), Some(v), Some(hash)) if i64::from(hash) ^ t == v)
        };
        if reply.records().iter().all(right) { Status::Ok } else { Status::UnexpectedState }
    }

    /// Returns the hash of a record's tags in the order of their names; `None` if a tag is
    /// not text.
    fn hash_of(&self, key: &str, record: &Record) -> Option<i32> {
        let mut hash = self.integrity_seed(key);
        let mut done = None;
        // Repeated selection of the next name: there are few fields, and it allocates nothing.
        while let Some((name, value)) = record
            .iter()
            .filter(|(name, _)| *name != self.timestamp_key && *name != self.value_key)
            .filter(|(name, _)| done.is_none_or(|done| *name > done))
            .min_by_key(|(name, _)| *name)
        {
            let value = std::str::from_utf8(value).ok()?;
            hash = string_hash_from(string_hash_from(hash, name), value);
            done = Some(name);
        }
        Some(hash)
    }
}
