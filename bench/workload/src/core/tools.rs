//! Parts of operations on the core workload's records: keys, values, distributions and
//! the insert counter, for the core's mix and for other workloads on the same
//! records.

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

    /// Returns the distribution of `requestdistribution`.
    pub fn request_chooser(&self) -> KeyChooser {
        self.shared.chooser.clone()
    }

    /// Returns the distribution for another value of `requestdistribution`, over the
    /// same records. Clients share a sequence through clones.
    pub fn chooser(&self, kind: &str) -> Result<KeyChooser, DistributionError> {
        self.shared.range.chooser(kind)
    }

    /// Returns the last key such that it and all before it exist.
    #[inline]
    pub fn newest(&self) -> u64 {
        // Inserts start at recordcount, at least 1, so one key always exists.
        self.shared.inserts.end() - 1
    }

    /// Appends the key of a record.
    #[inline]
    pub fn write_key(&self, out: &mut String, number: u64) {
        self.shared.keys.write(out, self.shared.number(number));
    }

    /// As [`write_key`](Self::write_key), with another prefix than
    /// `user`.
    pub fn write_key_with(&self, out: &mut String, prefix: &str, number: u64) {
        self.shared.keys.write_with(out, prefix, self.shared.number(number));
    }

    /// Returns the number of the next record to insert. It must be acknowledged
    /// before the next call.
    pub fn begin_insert(&self) -> u64 {
        self.shared.inserts.begin(self.client)
    }

    /// Records the end of an insert, even a failed one, as in YCSB, so that
    /// later keys become usable.
    pub fn acknowledge(&self, number: u64) {
        self.shared.inserts.acknowledge(self.client, number);
    }

    /// Returns the names of the fields.
    pub fn fields(&self) -> &[String] {
        &self.shared.fields
    }

    /// Returns a random field.
    fn a_field<'a>(fields: &'a [String], rng: &mut Rng) -> &'a str {
        &fields[rng.below(fields.len() as u64) as usize]
    }

    /// Chooses the fields of a read or scan: all, or a random one. `by_name`: name
    /// all of them.
    #[inline]
    pub fn choose_fields(&self, selection: &mut FieldSelection, by_name: bool, rng: &mut Rng) {
        let fields = &self.shared.fields;
        if !self.shared.read_all {
            selection.push(Self::a_field(fields, rng));
        } else if by_name {
            fields.iter().for_each(|field| selection.push(field));
        }
    }

    /// Returns whether a read names its fields.
    pub fn reads_by_name(&self) -> bool {
        self.values.integrity || self.shared.read_by_name
    }

    /// Adds a field with a value.
    pub fn push_field(&mut self, record: &mut Record, key: &str, field: &str, rng: &mut Rng) {
        self.values.push(record, key, field, rng);
    }

    /// Adds all fields, for an insert.
    pub fn push_all(&mut self, record: &mut Record, key: &str, rng: &mut Rng) {
        self.values.push_all(record, key, &self.shared.fields, rng);
    }

    /// Adds the fields of an update: all, or a random one.
    pub fn push_some(&mut self, record: &mut Record, key: &str, rng: &mut Rng) {
        let fields = &self.shared.fields;
        if self.shared.write_all {
            self.values.push_all(record, key, fields, rng);
        } else {
            self.values.push(record, key, Self::a_field(fields, rng), rng);
        }
    }

    /// Draws the length of a value.
    pub fn value_length(&mut self, rng: &mut Rng) -> u64 {
        self.values.lengths.draw(rng)
    }

    /// Returns the generator of random values.
    pub fn random_text(&self) -> RandomText {
        self.values.text
    }

    /// Draws the length of a scan.
    pub fn scan_length(&mut self, rng: &mut Rng) -> u64 {
        self.scan_lengths.draw(rng)
    }

    /// Returns whether values are determined by key and field.
    #[inline]
    pub fn verifies(&self) -> bool {
        self.values.integrity
    }

    /// Verifies the data that was read; `None` if values are
    /// random.
    #[inline]
    pub fn verify(&mut self, key: &str, reply: &Reply) -> Option<Status> {
        self.values.verify(key, reply, &mut self.scratch)
    }
}
