//! What producers and consumers of one process note, to be looked at when all is over.
//! Instants are ns of the process's own clock.

use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Writes that are noted at most. With 1 % of 20,000 writes/s that is half an hour.
pub const WRITES_MAX: usize = 400_000;

/// Keys from the queue whose fate is noted at most.
pub const TRIALS_MAX: usize = 400_000;

/// Reads that are noted at most.
pub const READS_MAX: usize = 800_000;

/// Fields of a record that are stamped: the first so many that a write has.
pub const FIELDS_MAX: usize = 64;

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// A new record.
    Insert,
    /// Fields of one that is there.
    Update,
    /// A record taken away.
    Delete,
}

/// A write of a sampled key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Number of its key among [`Journal::keys`].
    pub key: u32,
    /// Bits of the fields written, by their numbers among [`Journal::fields`].
    pub fields: u64,
    /// What it did.
    pub kind: WriteKind,
    /// The client of its process that wrote.
    pub client: u32,
    /// Its version; the writer is [`Journal::writer`].
    pub version: u64,
    /// Before it was sent.
    pub sent: u64,
    /// Once it was acknowledged; `None` if it was not, or failed, so that it may be
    /// there or not.
    pub acknowledged: Option<u64>,
}

/// A key that was taken from the queue, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The sampled write.
    pub item: Item,
    /// When the first read of it was sent; 0 if none was.
    pub first: u64,
    /// When the last read that did not find it was sent.
    pub last_in_vain: Option<u64>,
    /// When the first read that found it was answered; `None` if none did.
    pub found: Option<u64>,
    /// When that read was sent.
    pub found_by: Option<u64>,
    /// Reads until then, those that failed left out.
    pub reads: u64,
}

/// A sampled write, as it goes through the queue. Instants are of the producer's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The field by which it is recognised: the first that was written.
    pub field: String,
    /// Who wrote which version.
    pub stamp: Stamp,
    /// What the write did: an insert or an update.
    pub kind: WriteKind,
    /// The client of its process that wrote.
    pub client: u32,
    /// Before it was sent, ns.
    pub sent: u64,
    /// Once it was acknowledged, ns.
    pub acknowledged: u64,
}

/// A read of a sampled key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Number of its key among [`Journal::keys`].
    pub key: u32,
    /// Which client of its process read.
    pub reader: u32,
    /// Before it was sent.
    pub sent: u64,
    /// When it was answered.
    pub answered: u64,
    /// Whether there was a record.
    pub there: bool,
    /// The fields that had stamps, by their numbers among [`Journal::fields`].
    pub seen: Vec<(u8, Stamp)>,
    /// Whether it is the read that a writer makes of its own write at once; which version
    /// it was.
    pub own: Option<u64>,
}

/// Names with numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    names: Vec<String>,
    #[serde(skip)]
    numbers: HashMap<String, u32>,
}

impl Names {
    /// The number of a name, a new one if it has none.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// How many there were of what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Inserts and updates of sampled keys that were acknowledged.
    pub acknowledged: u64,
    /// Those that failed.
    pub failed: u64,
    /// Of those acknowledged in the measured time, how many went into the queue.
    pub carried: u64,
    /// How many the queue, or the notes, could not take.
    pub not_carried: u64,
    /// Writes of sampled keys none of whose values is long enough for a stamp.
    pub too_short: u64,
    /// Writes of sampled keys that could not be noted: what is said of versions does not
    /// know of them.
    pub writes_not_noted: u64,
    /// Reads by consumers, failures included.
    pub reads: u64,
    /// Of these, how many failed.
    pub reads_failed: u64,
    /// Reads that could not be noted.
    pub reads_not_noted: u64,
    /// Keys from the queue whose fate could not be noted.
    pub trials_not_noted: u64,
    /// Keys that were in the queue before this consumer began.
    pub from_before: u64,
    /// Nodes of the queue that could not be understood.
    pub foreign: u64,
}

impl Counts {
    /// Adds those of another process.
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

/// Everything that one process noted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The process as a writer.
    pub writer: u64,
    /// Keys by their numbers.
    pub keys: Names,
    /// Fields by their numbers.
    pub fields: Names,
    /// Writes of sampled keys.
    pub writes: Vec<Write>,
    /// Keys from the queue.
    pub trials: Vec<Trial>,
    /// Reads of them.
    pub reads: Vec<Read>,
    /// How many there were of what.
    pub counts: Counts,
}

impl Journal {
    /// The notes of a process that writes as `writer`.
    pub fn new(writer: u64) -> Journal {
        Journal { writer, ..Journal::default() }
    }

    /// The number of a field, below [`FIELDS_MAX`]; `None` for one too many.
    pub fn field(&mut self, name: &str) -> Option<u8> {
        let known = self.fields.numbers.contains_key(name);
        if !known && self.fields.len() >= FIELDS_MAX {
            return None;
        }
        Some(self.fields.number(name) as u8)
    }

    /// Notes a write that is about to be sent. Its place; `None` if there is no more.
    pub fn write(&mut self, write: Write) -> Option<usize> {
        if self.writes.len() >= WRITES_MAX {
            self.counts.writes_not_noted += 1;
            return None;
        }
        self.writes.push(write);
        Some(self.writes.len() - 1)
    }

    /// Notes a read, by what it saw. `seen` are the record's fields and values.
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
    pub fn trial(&mut self, trial: Trial) {
        if self.trials.len() >= TRIALS_MAX {
            self.counts.trials_not_noted += 1;
        } else {
            self.trials.push(trial);
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
