//! Records in flight: the content of inserts and of replies.
//!
//! A client reuses these buffers for every operation, so that the measured
//! path allocates nothing once they have grown to size.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldCell {
    name: Range<usize>,
    value: Range<usize>,
}

/// Field names with their values, in insertion order.
///
/// One buffer holds all bytes; [`clear`](Record::clear) keeps its capacity.
#[derive(Debug, Default, Clone)]
pub struct Record {
    bytes: Vec<u8>,
    cells: Vec<FieldCell>,
}

impl Record {
    /// Returns an empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the fields of all these records, each once, in order of first
    /// occurrence.
    pub fn fields_of_all(records: &[(String, Record)]) -> Vec<&str> {
        let mut fields: Vec<&str> = Vec::new();
        for (_, record) in records {
            // Records of a workload have the same fields: the common case is one comparison.
            if record.iter().map(|(field, _)| field).eq(fields.iter().copied()) {
                continue;
            }
            for (field, _) in record.iter() {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
        fields
    }

    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.cells.clear();
    }

    /// Becomes a copy of another record without new memory, if its buffers are
    /// large enough; a clone would allocate.
    pub fn copy_from(&mut self, other: &Record) {
        self.clear();
        self.bytes.extend_from_slice(&other.bytes);
        self.cells.extend_from_slice(&other.cells);
    }

    /// Adds a field.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.push_with(name, |bytes| bytes.extend_from_slice(value));
    }

    /// Adds a field whose value `write` appends to the given buffer.
    ///
    /// `write` must only append, since the buffer already contains other fields.
    pub fn push_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.as_bytes());
        let middle = self.bytes.len();
        write(&mut self.bytes);
        self.cells.push(FieldCell { name: start..middle, value: middle..self.bytes.len() });
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns the total size of all names and values, bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + '_ {
        self.cells.iter().map(|cell| {
            // Only `&str` names are stored, so they are UTF-8.
            let name = std::str::from_utf8(&self.bytes[cell.name.clone()]).unwrap_or_default();
            (name, &self.bytes[cell.value.clone()])
        })
    }

    /// Overwrites the beginning of the value at `index`. Returns false, and writes
    /// nothing, if there is no such value or it is shorter than `bytes`.
    pub fn overwrite(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(cell) = self.cells.get(index).filter(|cell| cell.value.len() >= bytes.len()) else {
            return false;
        };
        self.bytes[cell.value.start..cell.value.start + bytes.len()].copy_from_slice(bytes);
        true
    }

    /// Returns the value of a field, by linear search: records have few fields.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let cell = self.cells.iter().find(|c| &self.bytes[c.name.clone()] == name.as_bytes())?;
        Some(&self.bytes[cell.value.clone()])
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Record {}

impl<'a> FromIterator<(&'a str, &'a [u8])> for Record {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a [u8])>>(fields: T) -> Self {
        let mut record = Record::new();
        for (name, value) in fields {
            record.push(name, value);
        }
        record
    }
}

/// The records that a read or scan returned.
///
/// A store calls [`begin_record`](Reply::begin_record) for each record and
/// [`push`](Reply::push) for each field. Operations reuse the memory.
#[derive(Debug, Default)]
pub struct Reply {
    records: Vec<Record>,
    used: usize,
}

impl Reply {
    /// Returns an empty reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Starts the next record and returns it, empty.
    pub fn begin_record(&mut self) -> &mut Record {
        if self.used == self.records.len() {
            self.records.push(Record::new());
        }
        let record = &mut self.records[self.used];
        record.clear();
        self.used += 1;
        record
    }

    /// Adds a field to the last record; begins a record if there is none.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if self.used == 0 {
            self.begin_record();
        }
        self.records[self.used - 1].push(name, value);
    }

    /// Returns the records, in the store's order.
    pub fn records(&self) -> &[Record] {
        &self.records[..self.used]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_order_and_finds_fields_by_name() {
        let mut record = Record::new();
        record.push("b", b"2");
        record.push("a", b"");
        record.push_with("c", |bytes| bytes.extend_from_slice(b"xyz"));
        let all: Vec<_> = record.iter().collect();
        assert_eq!(all, [("b", &b"2"[..]), ("a", b""), ("c", b"xyz")]);
        assert_eq!(record.get("c"), Some(&b"xyz"[..]));
        assert_eq!(record.get("d"), None);
        assert_eq!((record.len(), record.size()), (3, 7));
        let mut other: Record = [("z", &b"long before"[..])].into_iter().collect();
        other.copy_from(&record);
        assert_eq!(other, record);
    }

    #[test]
    fn overwriting_needs_a_value_that_is_long_enough() {
        let mut record = Record::new();
        record.push("a", b"12345");
        record.push("b", b"1");
        assert!(record.overwrite(0, b"xyz"));
        assert!(!record.overwrite(1, b"xy") && !record.overwrite(2, b""));
        assert_eq!(record.iter().collect::<Vec<_>>(), [("a", &b"xyz45"[..]), ("b", b"1")]);
    }

    #[test]
    fn a_reply_reuses_records_without_showing_old_fields() {
        let mut reply = Reply::new();
        reply.push("f", b"1");
        reply.begin_record().push("g", b"2");
        assert_eq!(reply.records().len(), 2);
        reply.clear();
        assert!(reply.records().is_empty());
        reply.begin_record();
        assert!(reply.records()[0].is_empty());
    }
}
