//! Journal of the producers and consumers of one process, for the analysis after the run.
//! Instants are ns of the process's own clock.

use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum number of recorded writes: half an hour of 1 % of 20,000 writes/s.
pub const WRITES_MAX: usize = 400_000;

/// Maximum number of recorded keys from the queue.
pub const TRIALS_MAX: usize = 400_000;

/// Maximum number of recorded reads.
pub const READS_MAX: usize = 800_000;

/// Maximum number of distinct fields that are stamped.
pub const FIELDS_MAX: usize = 64;

/// Kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// A new record.
    Insert,
    /// Fields of an existing record.
    Update,
    /// Removal of a record.
    Delete,
}

/// A write of a sampled key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WriteRow", into = "WriteRow")]
pub struct Write {
    /// Number of its key among [`Journal::keys`].
    pub key: u32,
    /// Bits of the fields written, by their numbers among [`Journal::fields`].
    pub fields: u64,
    /// Its kind.
    pub kind: WriteKind,
    /// The client of its process that wrote.
    pub client: u32,
    /// Its version; the writer is [`Journal::writer`].
    pub version: u64,
    /// Just before it was sent.
    pub sent: u64,
    /// When it was acknowledged; `None` if it failed or has no answer, so that it may or may not
    /// be in the store.
    pub acknowledged: Option<u64>,
}

/// A key from the queue, and its reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PolledKeyRow", into = "PolledKeyRow")]
pub struct PolledKey {
    /// The sampled write.
    pub item: Item,
    /// When the first read was sent; 0 if there was none.
    pub first: u64,
    /// When the last read that did not find it was sent.
    pub last_in_vain: Option<u64>,
    /// When the first read that found it was answered; `None` if none did.
    pub found: Option<u64>,
    /// When that read was sent.
    pub found_by: Option<u64>,
    /// Number of reads until then, without failed ones.
    pub reads: u64,
}

/// A sampled write in the queue. Instants are of the producer's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The field by which it is recognised: the first that was written.
    pub field: String,
    /// Writer and version.
    pub stamp: Stamp,
    /// Kind of the write: an insert or an update.
    pub kind: WriteKind,
    /// The client of its process that wrote.
    pub client: u32,
    /// Just before it was sent, ns.
    pub sent: u64,
    /// When it was acknowledged, ns.
    pub acknowledged: u64,
}

/// A read of a sampled key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ReadRow", into = "ReadRow")]
pub struct Read {
    /// Number of its key among [`Journal::keys`].
    pub key: u32,
    /// The client of its process that read.
    pub reader: u32,
    /// Just before it was sent.
    pub sent: u64,
    /// When it was answered.
    pub answered: u64,
    /// Whether the record existed.
    pub there: bool,
    /// Fields with stamps, by their numbers among [`Journal::fields`].
    pub seen: Vec<(u8, Stamp)>,
    /// The version, if a client reads back its own write.
    pub own: Option<u64>,
}

// Compact encodings: there are hundreds of thousands of entries, and field names would be most of their bytes.

/// A [`Write`]: key, fields, kind, client, version, sent, acknowledged.
type WriteRow = (u32, u64, WriteKind, u32, u64, u64, Option<u64>);

/// A [`PolledKey`]: its item's key, field, writer, version, kind, client, sent and acknowledged; first, last in vain,
/// found, found by, reads.
type PolledKeyRow =
    ((String, String, u64, u64, WriteKind, u32, u64, u64), (u64, Option<u64>, Option<u64>, Option<u64>, u64));

/// A [`Read`]: key, reader, sent, answered, there, seen, own. `seen` is a list of field bits, writer and version;
/// most records have one entry.
type ReadRow = (u32, u32, u64, u64, bool, Vec<(u64, u64, u64)>, Option<u64>);

impl From<WriteRow> for Write {
    fn from((key, fields, kind, client, version, sent, acknowledged): WriteRow) -> Write {
        Write { key, fields, kind, client, version, sent, acknowledged }
    }
}

impl From<Write> for WriteRow {
    fn from(write: Write) -> WriteRow {
        let Write { key, fields, kind, client, version, sent, acknowledged } = write;
        (key, fields, kind, client, version, sent, acknowledged)
    }
}

impl From<PolledKeyRow> for PolledKey {
    fn from((item, (first, last_in_vain, found, found_by, reads)): PolledKeyRow) -> PolledKey {
        let (key, field, writer, version, kind, client, sent, acknowledged) = item;
        let item = Item { key, field, stamp: Stamp { writer, version }, kind, client, sent, acknowledged };
        PolledKey { item, first, last_in_vain, found, found_by, reads }
    }
}

impl From<PolledKey> for PolledKeyRow {
    fn from(PolledKey { item, first, last_in_vain, found, found_by, reads }: PolledKey) -> PolledKeyRow {
        let Item { key, field, stamp: Stamp { writer, version }, kind, client, sent, acknowledged } = item;
        let item = (key, field, writer, version, kind, client, sent, acknowledged);
        (item, (first, last_in_vain, found, found_by, reads))
    }
}

impl From<ReadRow> for Read {
    fn from((key, reader, sent, answered, there, rows, own): ReadRow) -> Read {
        let mut seen = Vec::new();
        for (fields, writer, version) in rows {
            let fields = (0..FIELDS_MAX as u8).filter(|field| fields >> field & 1 == 1);
            seen.extend(fields.map(|field| (field, Stamp { writer, version })));
        }
        Read { key, reader, sent, answered, there, seen, own }
    }
}

impl From<Read> for ReadRow {
    fn from(Read { key, reader, sent, answered, there, seen, own }: Read) -> ReadRow {
        let mut rows: Vec<(u64, u64, u64)> = Vec::new();
        for (field, Stamp { writer, version }) in seen {
            let bit = 1u64.checked_shl(field.into()).unwrap_or(0);
            match rows.iter_mut().find(|(_, w, v)| (*w, *v) == (writer, version)) {
                Some((bits, ..)) => *bits |= bit,
                None => rows.push((bit, writer, version)),
            }
        }
        (key, reader, sent, answered, there, rows, own)
    }
}

/// Numbered names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    names: Vec<String>,
    #[serde(skip)]
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Returns the number of a name, assigning one to a new name.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Returns the number of a name that has one. Names that came from another process have none.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the name with a number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Counters of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Inserts and updates of sampled keys that were acknowledged.
    pub acknowledged: u64,
    /// Inserts and updates of sampled keys that failed.
    pub failed: u64,
    /// Writes acknowledged in the measured time that went into the queue.
    pub carried: u64,
    /// Writes acknowledged in the measured time that queue or journal could not accept.
    pub not_carried: u64,
    /// Writes of sampled keys with a value too short for a stamp.
    pub too_short: u64,
    /// Writes of sampled keys that the full journal did not record; the analysis of versions does
    /// not know them.
    pub writes_not_noted: u64,
    /// Reads by consumers, including failures.
    pub reads: u64,
    /// Reads by consumers that failed.
    pub reads_failed: u64,
    /// Reads that the full journal did not record.
    pub reads_not_noted: u64,
    /// Keys from the queue that the full journal did not record.
    pub trials_not_noted: u64,
    /// Keys that were in the queue before this consumer started.
    pub from_before: u64,
    /// Entries of the queue that were not written by Serval.
    pub foreign: u64,
}

impl Counts {
    /// Adds the counters of another process.
    pub fn add(&mut self, other: &Counts) {
        let pairs = [
            (&mut self.acknowledged, other.acknowledged),
            (&mut self.failed, other.failed),
            (&mut self.carried, other.carried),
            (&mut self.not_carried, other.not_carried),
            (&mut self.too_short, other.too_short),
            (&mut self.writes_not_noted, other.writes_not_noted),
            (&mut self.reads, other.reads),
            (&mut self.reads_failed, other.reads_failed),
            (&mut self.reads_not_noted, other.reads_not_noted),
            (&mut self.trials_not_noted, other.trials_not_noted),
            (&mut self.from_before, other.from_before),
            (&mut self.foreign, other.foreign),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Journal of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Number of the process as a writer.
    pub writer: u64,
    /// Keys by their numbers.
    pub keys: Names,
    /// Fields by their numbers.
    pub fields: Names,
    /// Writes of sampled keys.
    pub writes: Vec<Write>,
    /// Keys from the queue.
    pub trials: Vec<PolledKey>,
    /// Reads of sampled keys.
    pub reads: Vec<Read>,
    /// Counters of a journal.
    pub counts: Counts,
}

impl Journal {
    /// Returns the empty journal of a process that writes as `writer`.
    pub fn new(writer: u64) -> Journal {
        Journal { writer, ..Journal::default() }
    }

    /// Returns the number of a field, below [`FIELDS_MAX`]; `None` if there are too many fields.
    pub fn field(&mut self, name: &str) -> Option<u8> {
        if self.fields.find(name).is_none() && self.fields.len() >= FIELDS_MAX {
            return None;
        }
        Some(self.fields.number(name) as u8)
    }

    /// Records a write that is about to be sent. Returns its index; `None` if the journal is full.
    pub fn write(&mut self, write: Write) -> Option<usize> {
        if self.writes.len() >= WRITES_MAX {
            self.counts.writes_not_noted += 1;
            return None;
        }
        self.writes.push(write);
        Some(self.writes.len() - 1)
    }

    /// Records a read with the record's fields and values, if the record existed.
    pub fn read<'a>(
        &mut self,
        key: &str,
        reader: u32,
        (sent, answered): (u64, u64),
        record: Option<impl Iterator<Item = (&'a str, &'a [u8])>>,
        own: Option<u64>,
    ) {
        if self.reads.len() >= READS_MAX {
            self.counts.reads_not_noted += 1;
            return;
        }
        let there = record.is_some();
        let mut seen = Vec::new();
        for (name, value) in record.into_iter().flatten() {
            if let Some(stamp) = Stamp::of(value)
                && let Some(field) = self.field(name)
            {
                seen.push((field, stamp));
            }
        }
        let key = self.keys.number(key);
        self.reads.push(Read { key, reader, sent, answered, there, seen, own });
    }

    /// Notes what became of a key from the queue.
    pub fn trial(&mut self, trial: PolledKey) {
        if self.trials.len() >= TRIALS_MAX {
            self.counts.trials_not_noted += 1;
        } else {
            self.trials.push(trial);
        }
    }

    /// Leaves out notes, the last first, until it has `bytes` as JSON at most, and counts them as not noted: reads
    /// before keys, and keys before writes.
    pub fn shorten_to(&mut self, bytes: usize) {
        while serde_json::to_vec(self).is_ok_and(|all| all.len() > bytes) {
            if !self.reads.is_empty() {
                self.counts.reads_not_noted += halve(&mut self.reads);
            } else if !self.trials.is_empty() {
                self.counts.trials_not_noted += halve(&mut self.trials);
            } else if !self.writes.is_empty() {
                self.counts.writes_not_noted += halve(&mut self.writes);
            } else {
                return;
            }
        }
    }

    /// Whether what came from another process can be looked at: no number of it leads
    /// nowhere.
    pub fn is_sound(&self) -> bool {
        let (keys, fields) = (self.keys.len(), self.fields.len());
        self.writes
            .iter()
            .all(|write| (write.key as usize) < keys && (fields >= FIELDS_MAX || write.fields >> fields == 0))
            && self.reads.iter().all(|read| {
                (read.key as usize) < keys && read.seen.iter().all(|(field, _)| usize::from(*field) < fields)
            })
            && fields <= FIELDS_MAX
    }
}

/// Drops the later half. How many that were.
fn halve<T>(notes: &mut Vec<T>) -> u64 {
    let kept = notes.len() / 2;
    (notes.drain(kept..)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp() -> impl Strategy<Value = Stamp> {
        (0..3u64, 0..3u64).prop_map(|(writer, version)| Stamp { writer, version })
    }

    fn journal() -> impl Strategy<Value = Journal> {
        let kind = prop_oneof![Just(WriteKind::Insert), Just(WriteKind::Update), Just(WriteKind::Delete)];
        let write = (any::<u32>(), any::<u64>(), kind.clone(), any::<Option<u64>>()).prop_map(
            |(key, fields, kind, acknowledged)| Write {
                key,
                fields,
                kind,
                client: 3,
                version: 5,
                sent: 7,
                acknowledged,
            },
        );
        let item = ("[a-z\"é]{0,9}", stamp(), kind).prop_map(|(key, stamp, kind)| Item {
            key,
            field: "field0".to_owned(),
            stamp,
            kind,
            client: 2,
            sent: 4,
            acknowledged: 6,
        });
        let trial = (item, any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>()).prop_map(
            |(item, first, last_in_vain, found)| PolledKey {
                item,
                first,
                last_in_vain,
                found,
                found_by: found,
                reads: 9,
            },
        );
        let seen = proptest::collection::btree_map(0..FIELDS_MAX as u8, stamp(), 0..12);
        let read =
            (any::<u32>(), any::<bool>(), seen, any::<Option<u64>>()).prop_map(|(key, there, seen, own)| {
                Read { key, reader: 1, sent: 2, answered: 3, there, seen: seen.into_iter().collect(), own }
            });
        let many = 0..20;
        (
            proptest::collection::vec(write, many.clone()),
            proptest::collection::vec(trial, many.clone()),
            proptest::collection::vec(read, many),
        )
            .prop_map(|(writes, trials, reads)| Journal { writes, trials, reads, ..Journal::new(1) })
    }

    proptest! {
        #[test]
        fn journals_survive_a_round_trip(mut journal in journal()) {
            let mut back: Journal = serde_json::from_slice(&serde_json::to_vec(&journal).unwrap()).unwrap();
            for journal in [&mut journal, &mut back] {
                journal.reads.iter_mut().for_each(|read| read.seen.sort());
            }
            prop_assert_eq!(back, journal);
        }

        #[test]
        fn dropped_entries_are_counted(mut journal in journal(), bytes in 0usize..4000) {
            let all = (journal.reads.len() + journal.trials.len() + journal.writes.len()) as u64;
            journal.shorten_to(bytes);
            let left = (journal.reads.len() + journal.trials.len() + journal.writes.len()) as u64;
            let counts = &journal.counts;
            prop_assert_eq!(left + counts.reads_not_noted + counts.trials_not_noted + counts.writes_not_noted, all);
            prop_assert!(left == 0 || serde_json::to_vec(&journal).unwrap().len() <= bytes);
            prop_assert!(journal.trials.is_empty() || counts.writes_not_noted == 0);
        }
    }

    /// What a process notes at most can be sent whole in one frame, where records are not all of different writes.
    #[test]
    fn the_largest_journal_fits_into_a_message() {
        let writer = crate::stamp::writer(1_760_000_000_000, 1000);
        let (at, stamp) = (9_000_000_000_000_000, Stamp { writer, version: 123_456_789 });
        let key = "user6284781860667377211".to_owned();
        let item = Item {
            key,
            field: "field0".to_owned(),
            stamp,
            kind: WriteKind::Insert,
            client: 1000,
            sent: at,
            acknowledged: at,
        };
        let length = |note: Vec<u8>| note.len() + 1;
        let trial = PolledKey {
            item,
            first: at,
            last_in_vain: Some(at),
            found: Some(at),
            found_by: Some(at),
            reads: 100,
        };
        let seen = (0..10).map(|field| (field, stamp)).collect();
        let read = Read { key: 399_999, reader: 1000, sent: at, answered: at, there: true, seen, own: None };
        let all = TRIALS_MAX * length(serde_json::to_vec(&trial).unwrap())
            + READS_MAX * length(serde_json::to_vec(&read).unwrap())
            + TRIALS_MAX * length(serde_json::to_vec(&trial.item.key).unwrap());
        assert!(all < 224 << 20, "{} MiB", all >> 20);
    }
}
