//! History of the writes to sampled keys.

use super::{
    ProcessJournal,
    clock::{Certainty, ClockInstant, PartClock},
};
use crate::{
    journal::{FIELDS_MAX, Names, WriteKind},
    stamp::Stamp,
};
use std::collections::{HashMap, HashSet};

/// A write.
#[derive(Debug)]
pub(super) struct WrittenVersion {
    pub(super) kind: WriteKind,
    /// Bits of the written fields, by their numbers in the history.
    pub(super) fields: u64,
    /// The writing client: its process and its number there.
    pub(super) session: (usize, u32),
    /// Number of the write in its process, in order of sending.
    pub(super) number: u64,
    pub(super) sent: ClockInstant,
    pub(super) acknowledged: Option<ClockInstant>,
}

/// What a read saw in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldState {
    /// The value before all versions.
    Initial,
    /// This version.
    Version(usize),
    /// A version that the history does not know.
    Unknown,
}

/// The versions of one key.
#[derive(Debug, Default)]
pub(super) struct KeyHistory {
    /// Versions by field, in order of sending. Deletes are in all lists.
    pub(super) by_field: Vec<(u8, Vec<usize>)>,
    /// The overlaps of each version, in the same order.
    overlaps: Vec<Vec<Overlap>>,
    pub(super) deletes: Vec<usize>,
    /// Number of acknowledged versions.
    pub(super) acknowledged: u64,
}

/// What may have replaced a version of a field.
#[derive(Debug, Clone, Copy, Default)]
struct Overlap {
    /// Whether an earlier write was never acknowledged, so that it may take effect at any time.
    open: bool,
    /// Of the earlier writes, the one that was acknowledged last.
    latest: Option<usize>,
    /// Whether another process wrote after it, or any process deleted.
    others_after: bool,
}

/// All versions of all keys.
#[derive(Debug)]
pub(super) struct History<'a> {
    pub(super) versions: Vec<WrittenVersion>,
    pub(super) keys: HashMap<&'a str, KeyHistory>,
    by_stamp: HashMap<Stamp, usize>,
    fields: Names,
    /// Writers with a complete journal.
    writers: HashSet<u64>,
    /// The first writer of the run; smaller numbers are of earlier runs.
    first_writer: u64,
    complete: bool,
    /// Whether all values have a stamp, so that a value without one is older than the run.
    pub(super) stamped: bool,
    /// Whether every version is known, so that a read that misses none is current.
    pub(super) whole: bool,
    /// Largest finite clock error, ns.
    pub(super) error: f64,
}

/// Returns the overlaps of each of a field's versions; an empty list if their clocks cannot be
/// compared, for they have no order then.
fn overlaps(versions: &[WrittenVersion], of_field: &[usize]) -> Vec<Overlap> {
    let processes: HashSet<usize> = of_field.iter().map(|place| versions[*place].session.0).collect();
    if processes.len() > 1 && of_field.iter().any(|place| versions[*place].sent.error.is_infinite()) {
        return Vec::new();
    }
    let mut all = vec![Overlap::default(); of_field.len()];
    let (mut open, mut latest): (bool, Option<(i64, usize)>) = (false, None);
    for (place, overlap) in of_field.iter().zip(&mut all) {
        (overlap.open, overlap.latest) = (open, latest.map(|(_, place)| place));
        match versions[*place].acknowledged {
            None => open = true,
            Some(at) if latest.is_none_or(|(last, _)| at.at >= last) => latest = Some((at.at, *place)),
            Some(_) => {}
        }
    }
    let mut after = false;
    let mut next: Option<&WrittenVersion> = None;
    for (place, overlap) in of_field.iter().zip(&mut all).rev() {
        let version = &versions[*place];
        after |=
            next.is_some_and(|next| next.kind == WriteKind::Delete || next.session.0 != version.session.0);
        overlap.others_after = after;
        next = Some(version);
    }
    all
}

impl<'a> History<'a> {
    pub(super) fn new(parts: &'a [ProcessJournal]) -> History<'a> {
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
                .chain(lost.iter().map(|(_, part)| part.journal.writer).filter(|writer| *writer > 0))
                .min()
                .unwrap_or(0),
            complete: parts.iter().all(|part| part.journal.counts.writes_not_noted == 0),
            stamped: parts.iter().all(|part| part.journal.counts.too_short == 0),
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
                let version = WrittenVersion {
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
        // Writes that are known from the queue only. Each writer has a clock of its own; the offset is
        // known for lost processes of this run.
        let lost: HashMap<u64, (usize, &PartClock)> =
            lost.into_iter().map(|(number, part)| (part.journal.writer, (number, &part.clock))).collect();
        let mut clocks: HashMap<u64, usize> = HashMap::new();
        for item in of_others() {
            let (number, clock) = lost.get(&item.stamp.writer).copied().unwrap_or_else(|| {
                let next = parts.len() + clocks.len();
                (*clocks.entry(item.stamp.writer).or_insert(next), &PartClock::Unknown)
            });
            let fields = history.bit(&item.field);
            let version = WrittenVersion {
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
        // Versions of an unknown clock have no order among the others.
        let comparable =
            parts.len() == 1 || history.versions.iter().all(|version| version.sent.error.is_finite());
        history.whole = history.complete
            && history.stamped
            && kept.len() == parts.len()
            && clocks.is_empty()
            && comparable;
        history.writers = writers;
        history.sort();
        history
    }

    /// Returns the bit of a field; 0 if there are too many fields.
    fn bit(&mut self, name: &str) -> u64 {
        if self.fields.len() >= FIELDS_MAX && self.fields.find(name).is_none() {
            return 0;
        }
        1 << self.fields.number(name)
    }

    fn add(&mut self, key: &'a str, stamp: Stamp, version: WrittenVersion) {
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
                key.overlaps.push(overlaps(versions, of_field));
            }
        }
    }

    /// Returns whether a version may have been overwritten in a field, by a version that is not certain to have
    /// preceded it. Later versions of the same process do not count, as consumers recognise them; its deletes do.
    pub(super) fn is_written_over(&self, key: &str, field: u8, place: usize) -> bool {
        let Some(key) = self.keys.get(key) else { return false };
        let of_field = key.by_field.iter().zip(&key.overlaps).find(|((number, _), _)| *number == field);
        let Some(((_, of_field), overlaps)) = of_field else { return false };
        let may_come_after =
            |other: usize| self.precedes(FieldState::Version(other), place) != Certainty::Yes;
        if overlaps.is_empty() {
            let written = &self.versions[place];
            let recognised = |version: &WrittenVersion| {
                version.session.0 == written.session.0
                    && version.number > written.number
                    && version.kind != WriteKind::Delete
            };
            let mut others =
                of_field.iter().filter(|other| **other != place && !recognised(&self.versions[**other]));
            return others.any(|other| may_come_after(*other));
        }
        let sent = self.versions[place].sent;
        let from = of_field.partition_point(|other| self.versions[*other].sent.at < sent.at);
        let Some(at) = of_field[from..].iter().position(|other| *other == place).map(|nth| from + nth) else {
            return false;
        };
        let overlap = overlaps[at];
        if overlap.open || overlap.others_after || overlap.latest.is_some_and(may_come_after) {
            return true;
        }
        // Clock errors: consider versions that were acknowledged shortly before the latest.
        let near = |acknowledged: ClockInstant| acknowledged.at as f64 >= sent.at as f64 - 2.0 * self.error;
        let mut before = at;
        while before > 0
            && let Some(latest) = overlaps[before].latest
            && self.versions[latest].acknowledged.is_some_and(near)
        {
            before -= 1;
            if may_come_after(of_field[before]) {
                return true;
            }
        }
        false
    }

    /// The number of a field.
    pub(super) fn field(&self, name: &str) -> Option<u8> {
        self.fields.find(name).map(|number| number as u8)
    }

    /// The version of a stamp.
    pub(super) fn version(&self, stamp: Stamp) -> Option<usize> {
        self.by_stamp.get(&stamp).copied()
    }

    /// What a stamp that was read is.
    pub(super) fn state(&self, stamp: Stamp) -> FieldState {
        match self.version(stamp) {
            Some(place) => FieldState::Version(place),
            // Of an earlier run, whose records these were.
            None if stamp.writer < self.first_writer => FieldState::Initial,
            // A value may look like a stamp by chance: there is no such version.
            None if self.complete && self.writers.contains(&stamp.writer) => FieldState::Initial,
            None => FieldState::Unknown,
        }
    }

    /// Whether a state was over before a version was written.
    pub(super) fn precedes(&self, state: FieldState, version: usize) -> Certainty {
        match state {
            FieldState::Initial => Certainty::Yes,
            FieldState::Unknown => Certainty::Open,
            FieldState::Version(place) if place == version => Certainty::No,
            // What was never acknowledged may come at any time.
            FieldState::Version(place) => match self.versions[place].acknowledged {
                None => Certainty::No,
                Some(acknowledged) => acknowledged.before(self.versions[version].sent),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, Write};
    use proptest::prelude::*;

    /// What the quick way stands for.
    fn slowly(history: &History<'_>, place: usize) -> bool {
        let written = &history.versions[place];
        (0..history.versions.len()).filter(|other| *other != place).any(|other| {
            let version = &history.versions[other];
            let recognised = version.session.0 == written.session.0
                && version.number > written.number
                && version.kind != WriteKind::Delete;
            !recognised && history.precedes(FieldState::Version(other), place) != Certainty::Yes
        })
    }

    proptest! {
        /// Of one key and field: processes, when a write was sent, how long it took (0: never acknowledged), whether
        /// it was a delete.
        #[test]
        fn possible_overwrites_equal_those_of_an_exhaustive_search(
            writes in prop::collection::vec((0usize..3, 0u64..200, 0u64..40, 0u8..12), 1..40),
            processes in 1usize..4,
            unknown in prop::option::of(0usize..3),
        ) {
            let mut parts: Vec<ProcessJournal> = (0..processes)
                .map(|number| {
                    let offset = crate::analysis::OffsetSample { at: 0, ahead: 0.0, error: 3.0 * number as f64, drift: 0.0 };
                    let clock = if unknown == Some(number) { PartClock::Unknown } else { PartClock::Known(vec![offset]) };
                    let mut journal = Journal::new(10 + number as u64);
                    journal.keys.number("k");
                    journal.field("f");
                    ProcessJournal { journal, clock, lost: false }
                })
                .collect();
            let mut writes = writes;
            writes.sort_by_key(|(_, sent, ..)| *sent);
            for (process, sent, took, kind) in writes {
                let journal = &mut parts[process % processes].journal;
                let version = journal.writes.len() as u64 + 1;
                let (kind, fields) = if kind == 0 { (WriteKind::Delete, 0) } else { (WriteKind::Update, 1) };
                let acknowledged = (took > 0).then_some(sent + took);
                journal.writes.push(Write { key: 0, fields, kind, client: 0, version, sent, acknowledged });
            }
            let history = History::new(&parts);
            for place in 0..history.versions.len() {
                if history.versions[place].kind != WriteKind::Delete {
                    let quick = history.is_written_over("k", 0, place);
                    prop_assert_eq!(quick, slowly(&history, place), "{:?} of {:?}", place, &history.versions);
                }
            }
        }
    }
}
