//! What operations on the core workload's records are made of: its keys, its
//! values, its distributions, its count of inserts. For the core's own mix
//! and for workloads that go other ways over the same records.

use super::{Shared, Values};
use crate::{
    distribution::{DistributionError, KeyChooser, LengthChooser},
    random::{Random, Rng},
    values::RandomText,
};
use serval_model::{FieldSelection, Record, Reply, Status};
use std::sync::Arc;

/// One client's tools.
#[derive(Debug)]
pub struct Tools {
    pub(super) shared: Arc<Shared>,
    client: usize,
    values: Values,
    scan_lengths: LengthChooser,
    scratch: Vec<u8>,
}

impl Tools {
    pub(super) fn new(shared: Arc<Shared>, client: usize) -> Self {
        Tools {
            client,
            values: shared.values.clone(),
            scan_lengths: shared.scan_lengths.clone(),
            shared,
            scratch: Vec::new(),
        }
    }

    /// The distribution that `requestdistribution` names.
    pub fn request_chooser(&self) -> KeyChooser {
        self.shared.chooser.clone()
    }

    /// The distribution of another name of `requestdistribution`, over the
    /// same records. Clients that shall share a sequence share a clone.
    pub fn chooser(&self, kind: &str) -> Result<KeyChooser, DistributionError> {
        self.shared.range.chooser(kind)
    }

    /// The last key such that it and all before it are there.
    #[inline]
    pub fn newest(&self) -> u64 {
        // Keys start at recordcount, which is at least 1: one is always there.
        self.shared.inserts.end() - 1
    }

    /// Appends the key of a record.
    #[inline]
    pub fn write_key(&self, out: &mut String, number: u64) {
        self.shared.keys.write(out, self.shared.number(number));
    }

    /// As [`write_key`](Self::write_key), with another word before the number
    /// than `user`.
    pub fn write_key_with(&self, out: &mut String, prefix: &str, number: u64) {
        self.shared.keys.write_with(out, prefix, self.shared.number(number));
    }

    /// The number of the next record to insert. It must be acknowledged
    /// before the next is asked for.
    pub fn begin_insert(&self) -> u64 {
        self.shared.inserts.begin(self.client)
    }

    /// The insert has ended. Failed inserts too, as in YCSB: later keys must
    /// not wait for ever.
    pub fn acknowledge(&self, number: u64) {
        self.shared.inserts.acknowledge(self.client, number);
    }

    /// Names of the fields.
    pub fn fields(&self) -> &[String] {
        &self.shared.fields
    }

    /// One field by chance.
    fn a_field<'a>(fields: &'a [String], rng: &mut Rng) -> &'a str {
        &fields[rng.below(fields.len() as u64) as usize]
    }

    /// The fields of a read or scan: all, or one at random; `by_name` names
    /// all.
    #[inline]
    pub fn choose_fields(&self, selection: &mut FieldSelection, by_name: bool, rng: &mut Rng) {
        let fields = &self.shared.fields;
        if !self.shared.read_all {
            selection.push(Self::a_field(fields, rng));
        } else if by_name {
            fields.iter().for_each(|field| selection.push(field));
        }
    }

    /// Whether a read names its fields.
    pub fn reads_by_name(&self) -> bool {
        self.values.integrity || self.shared.read_by_name
    }

    /// Adds a field with a value.
    pub fn push_field(&mut self, record: &mut Record, key: &str, field: &str, rng: &mut Rng) {
        self.values.push(record, key, field, rng);
    }

    /// Adds the fields of an insert, all.
    pub fn push_all(&mut self, record: &mut Record, key: &str, rng: &mut Rng) {
        self.values.push_all(record, key, &self.shared.fields, rng);
    }

    /// Adds the fields of an update: all, or one at random.
    pub fn push_some(&mut self, record: &mut Record, key: &str, rng: &mut Rng) {
        let fields = &self.shared.fields;
        if self.shared.write_all {
            self.values.push_all(record, key, fields, rng);
        } else {
            self.values.push(record, key, Self::a_field(fields, rng), rng);
        }
    }

    /// A length of a field's value.
    pub fn value_length(&mut self, rng: &mut Rng) -> u64 {
        self.values.lengths.draw(rng)
    }

    /// How random values are made.
    pub fn random_text(&self) -> RandomText {
        self.values.text
    }

    /// Records of a scan.
    pub fn scan_length(&mut self, rng: &mut Rng) -> u64 {
        self.scan_lengths.draw(rng)
    }

    /// Whether values follow from key and field.
    #[inline]
    pub fn verifies(&self) -> bool {
        self.values.integrity
    }

    /// Compares what was read with what must have been written; `None` when
    /// values cannot be told right from wrong.
    #[inline]
    pub fn verify(&mut self, key: &str, reply: &Reply) -> Option<Status> {
        self.values.verify(key, reply, &mut self.scratch)
    }
}
