//! All that was written under sampled keys, by whom and when.

use super::{
    Part,
    clock::{Known, Moment, PartClock},
};
use crate::{
    journal::{FIELDS_MAX, Names, WriteKind},
    stamp::Stamp,
};
use std::collections::{HashMap, HashSet};

/// A write.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) kind: WriteKind,
    /// Bits of the fields that it wrote, by their numbers in the history.
    pub(super) fields: u64,
    /// The client that wrote: its process and its number there.
    pub(super) session: (usize, u32),
    /// Which of its process's writes it is, in the order in which they were sent.
    pub(super) number: u64,
    pub(super) sent: Moment,
    pub(super) acknowledged: Option<Moment>,
}

/// What a field of a record was seen to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// What was there before all versions.
    Initial,
    /// This version.
    Version(usize),
    /// A version of which nothing is known.
    Unknown,
}

/// The versions of one key.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// By field, in the order in which they were sent. Deletes are in all of them.
    pub(super) by_field: Vec<(u8, Vec<usize>)>,
    pub(super) deletes: Vec<usize>,
    /// How many versions were acknowledged.
    pub(super) acknowledged: u64,
}

/// All versions of all keys.
#[derive(Debug)]
pub(super) struct History<'a> {
    pub(super) versions: Vec<Version>,
    pub(super) keys: HashMap<&'a str, Key>,
    by_stamp: HashMap<Stamp, usize>,
    fields: Names,
    /// Writers of whom all is known.
    writers: HashSet<u64>,
    /// The first writer of the run: an earlier one wrote before it.
    first_writer: u64,
    complete: bool,
    /// Whether every version is known, so that a read that misses none is behind by none.
    pub(super) whole: bool,
    /// The largest error of a clock that is known, ns.
    pub(super) error: f64,
}

impl<'a> History<'a> {
    pub(super) fn new(parts: &'a [Part]) -> History<'a> {
        let trials = || parts.iter().flat_map(|part| &part.journal.trials);
        let (lost, kept): (Vec<_>, Vec<_>) = parts.iter().enumerate().partition(|(_, part)| part.lost);
        let writers: HashSet<u64> = kept.iter().map(|(_, part)| part.journal.writer).collect();
        let of_others =
            || trials().map(|trial| &trial.item).filter(|item| !writers.contains(&item.stamp.writer));
        let mut history = History {
            versions: Vec::new(),
            keys: HashMap::new(),
            by_stamp: HashMap::new(),
            fields: Names::default(),
            first_writer: writers
                .iter()
                .copied()
                .chain(of_others().map(|item| item.stamp.writer))
                .min()
                .unwrap_or(0),
            complete: parts.iter().all(|part| part.journal.counts.writes_not_noted == 0),
            whole: false,
            error: 0.0,
            writers: HashSet::new(),
        };
        for (number, part) in parts.iter().enumerate() {
            let journal = &part.journal;
            for write in &journal.writes {
                let fields = (0..FIELDS_MAX as u32).filter(|field| write.fields >> field & 1 == 1);
                let names = fields.filter_map(|field| journal.fields.name(field));
                let fields = names.fold(0, |bits, name| bits | history.bit(name));
                let version = Version {
                    kind: write.kind,
                    fields,
                    session: (number, write.client),
                    number: write.version,
                    sent: part.clock.moment(number, write.sent),
                    acknowledged: write.acknowledged.map(|at| part.clock.moment(number, at)),
                };
                let Some(key) = journal.keys.name(write.key) else { continue };
                history.add(key, Stamp { writer: journal.writer, version: write.version }, version);
            }
        }
        // What writers of other processes told by the queue, and nothing else is known of them. Each
        // has a clock of its own; of those that were lost it is known how far off it was.
        let lost: HashMap<u64, (usize, &PartClock)> =
            lost.into_iter().map(|(number, part)| (part.journal.writer, (number, &part.clock))).collect();
        let mut clocks: HashMap<u64, usize> = HashMap::new();
        for item in of_others() {
            let (number, clock) = lost.get(&item.stamp.writer).copied().unwrap_or_else(|| {
                let next = parts.len() + clocks.len();
                (*clocks.entry(item.stamp.writer).or_insert(next), &PartClock::Unknown)
            });
            let fields = history.bit(&item.field);
            let version = Version {
                kind: item.kind,
                fields,
                session: (number, item.client),
                number: item.stamp.version,
                sent: clock.moment(number, item.sent),
                acknowledged: Some(clock.moment(number, item.acknowledged)),
            };
            if !history.by_stamp.contains_key(&item.stamp) {
                history.add(&item.key, item.stamp, version);
            }
        }
        // Versions of a clock of which nothing is known have no place among those of others.
        let comparable =
            parts.len() == 1 || history.versions.iter().all(|version| version.sent.error.is_finite());
        history.whole = history.complete && kept.len() == parts.len() && clocks.is_empty() && comparable;
        history.writers = writers;
        history.sort();
        history
    }

    /// The bit of a field; none for one too many.
    fn bit(&mut self, name: &str) -> u64 {
        if self.fields.len() >= FIELDS_MAX {
            return 0;
        }
        1 << self.fields.number(name)
    }

    fn add(&mut self, key: &'a str, stamp: Stamp, version: Version) {
        let place = self.versions.len();
        for moment in [Some(version.sent), version.acknowledged].into_iter().flatten() {
            if moment.error.is_finite() {
                self.error = self.error.max(moment.error);
            }
        }
        let of_key = self.keys.entry(key).or_default();
        of_key.acknowledged += u64::from(version.acknowledged.is_some());
        if version.kind == WriteKind::Delete {
            of_key.deletes.push(place);
        }
        for field in (0..FIELDS_MAX as u8).filter(|field| version.fields >> field & 1 == 1) {
            match of_key.by_field.iter_mut().find(|(number, _)| *number == field) {
                Some((_, versions)) => versions.push(place),
                None => of_key.by_field.push((field, vec![place])),
            }
        }
        self.by_stamp.insert(stamp, place);
        self.versions.push(version);
    }

    fn sort(&mut self) {
        let versions = &self.versions;
        for key in self.keys.values_mut() {
            for (_, of_field) in &mut key.by_field {
                of_field.extend(&key.deletes);
                of_field.sort_by_key(|place| versions[*place].sent.at);
            }
        }
    }

    /// The number of a field.
    pub(super) fn field(&self, name: &str) -> Option<u8> {
        let number = (0..self.fields.len() as u32).find(|number| self.fields.name(*number) == Some(name))?;
        Some(number as u8)
    }

    /// The version of a stamp.
    pub(super) fn version(&self, stamp: Stamp) -> Option<usize> {
        self.by_stamp.get(&stamp).copied()
    }

    /// What a stamp that was read is.
    pub(super) fn state(&self, stamp: Stamp) -> State {
        match self.version(stamp) {
            Some(place) => State::Version(place),
            // Of an earlier run, whose records these were.
            None if stamp.writer < self.first_writer => State::Initial,
            // A value may look like a stamp by chance: there is no such version.
            None if self.complete && self.writers.contains(&stamp.writer) => State::Initial,
            None => State::Unknown,
        }
    }

    /// Whether a state was over before a version was written.
    pub(super) fn precedes(&self, state: State, version: usize) -> Known {
        match state {
            State::Initial => Known::Yes,
            State::Unknown => Known::Open,
            State::Version(place) if place == version => Known::No,
            // What was never acknowledged may come at any time.
            State::Version(place) => match self.versions[place].acknowledged {
                None => Known::No,
                Some(acknowledged) => acknowledged.before(self.versions[version].sent),
            },
        }
    }
}
