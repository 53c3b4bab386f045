//! Operations: requests to a store.

use crate::record::Record;

/// The operations of the database interface layer (YCSB paper, section 5.2),
/// and delete, which YCSB's implementation added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OperationKind {
    /// Read one record, all of its fields or some.
    Read,
    /// Overwrite fields of an existing record.
    Update,
    /// Write a new record.
    Insert,
    /// Read records in key order from a start key.
    Scan,
    /// Remove a record.
    Delete,
}

impl OperationKind {
    /// All operations.
    pub const ALL: [OperationKind; 5] = [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::Delete];

    /// Returns the operation's name in results, as YCSB prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Update => "UPDATE",
            Self::Insert => "INSERT",
            Self::Scan => "SCAN",
            Self::Delete => "DELETE",
        }
    }
}

/// A set of operations: those that a store supports, or those that a workload needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationKinds(u8);

impl OperationKinds {
    /// Every operation.
    pub const ALL: OperationKinds = OperationKinds(0b1_1111);
    /// No operation.
    pub const NONE: OperationKinds = OperationKinds(0);

    /// Returns this set with an operation added.
    #[must_use]
    pub const fn with(self, kind: OperationKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Returns this set with an operation removed.
    #[must_use]
    pub const fn without(self, kind: OperationKind) -> Self {
        Self(self.0 & !(1 << kind as u8))
    }

    /// Whether the operation is in the set.
    pub const fn contains(self, kind: OperationKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Returns the operations in the set.
    pub fn iter(self) -> impl Iterator<Item = OperationKind> {
        OperationKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<OperationKind> for OperationKinds {
    fn from_iter<T: IntoIterator<Item = OperationKind>>(kinds: T) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

/// The fields that a read or scan requests, in a reusable buffer.
#[derive(Debug, Default, Clone)]
pub struct FieldSelection {
    bytes: String,
    ends: Vec<usize>,
}

impl FieldSelection {
    /// Requests all fields without naming them (YCSB passes `null`).
    pub fn all(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a field by name.
    pub fn push(&mut self, name: &str) {
        self.bytes.push_str(name);
        self.ends.push(self.bytes.len());
    }

    /// Whether all fields are requested without names.
    pub fn is_all(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of fields named; 0 means all.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no field is named, which means all.
    pub fn is_empty(&self) -> bool {
        self.is_all()
    }

    /// Returns the fields named.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let name = &self.bytes[start..end];
            start = end;
            name
        })
    }

    /// Whether a field of this name is requested.
    pub fn wants(&self, name: &str) -> bool {
        self.is_all() || self.iter().any(|field| field == name)
    }
}

/// One request to a store. A client owns one and refills it, so that an
/// operation allocates nothing.
#[derive(Debug)]
pub struct Operation {
    /// The kind of operation.
    pub kind: OperationKind,
    /// The table; `usertable` for most stores.
    pub table: String,
    /// The record's key, or the key at which a scan starts.
    pub key: String,
    /// Fields that a read or scan requests.
    pub fields: FieldSelection,
    /// Fields that an insert or update writes.
    pub record: Record,
    /// Number of records that a scan requests.
    pub scan_length: u64,
    /// Records of a batch that exist already. They are not inserted, and count as done.
    pub skipped: u64,
    batch: Vec<(String, Record)>,
    batch_used: usize,
}

impl Operation {
    /// Returns an operation on a table, to be filled in.
    pub fn new(table: &str) -> Self {
        Operation {
            kind: OperationKind::Read,
            table: table.to_owned(),
            key: String::new(),
            fields: FieldSelection::default(),
            record: Record::new(),
            scan_length: 0,
            skipped: 0,
            batch: Vec::new(),
            batch_used: 0,
        }
    }

    /// Resets this to an operation of a kind, on all fields, with nothing else
    /// filled in.
    pub fn begin(&mut self, kind: OperationKind) {
        self.kind = kind;
        self.key.clear();
        self.fields.all();
        self.record.clear();
        self.scan_length = 0;
        self.skipped = 0;
        self.batch_used = 0;
    }

    /// Adds an empty record to a batch of inserts and returns its key and the
    /// record. An insert with a batch ignores `key` and `record`.
    pub fn push_batch(&mut self) -> (&mut String, &mut Record) {
        if self.batch_used == self.batch.len() {
            self.batch.push((String::new(), Record::new()));
        }
        let (key, record) = &mut self.batch[self.batch_used];
        self.batch_used += 1;
        key.clear();
        record.clear();
        (key, record)
    }

    /// Returns the batch of inserts; empty for a single operation.
    pub fn batch(&self) -> &[(String, Record)] {
        &self.batch[..self.batch_used]
    }

    /// Returns the batch of inserts for changes.
    pub fn batch_mut(&mut self) -> &mut [(String, Record)] {
        &mut self.batch[..self.batch_used]
    }

    /// Returns the number of operations that this counts as: the length of its batch, or one.
    pub fn units(&self) -> u64 {
        (self.batch_used as u64 + self.skipped).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_kinds_are_a_set() {
        let set = OperationKinds::NONE.with(OperationKind::Scan).with(OperationKind::Read);
        assert!(set.contains(OperationKind::Scan) && !set.contains(OperationKind::Delete));
        assert_eq!(set.without(OperationKind::Scan).iter().collect::<Vec<_>>(), [OperationKind::Read]);
        assert_eq!(OperationKind::ALL.into_iter().collect::<OperationKinds>(), OperationKinds::ALL);
    }

    #[test]
    fn an_empty_selection_means_all_fields() {
        let mut fields = FieldSelection::default();
        assert!(fields.is_all() && fields.wants("anything"));
        fields.push("field1");
        fields.push("f");
        assert_eq!(fields.iter().collect::<Vec<_>>(), ["field1", "f"]);
        assert!(fields.wants("f") && !fields.wants("field"));
        fields.all();
        assert!(fields.is_all());
    }
}
