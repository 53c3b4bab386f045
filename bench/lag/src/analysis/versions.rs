//! Staleness and session guarantees of reads. A version precedes another if it was acknowledged
//! before the other was sent. Concurrent versions may be seen in any order, which is never a
//! violation.

use super::{
    PERCENTILES, ProcessJournal,
    clock::{Certainty, ClockInstant},
    history::{FieldState, History, KeyHistory},
};
use crate::journal::{Journal, Read, WriteKind};
use serval_measure::histogram::Histogram;
use serval_result::{
    document::Latency,
    lag::{Behind, Versions, Violations},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Largest distinguished number of versions behind; larger ones count as this.
pub const BEHIND_MAX: u64 = 1000;

/// A read compared with its key's history.
struct Sight {
    /// FieldState of each field that has versions.
    states: Vec<(u8, FieldState)>,
    /// Versions that it should have seen.
    missing: Vec<usize>,
    /// Whether there may be more missing versions.
    open: bool,
}

/// Returns what a read saw in the fields that have versions.
fn states(
    history: &History<'_>,
    key: &KeyHistory,
    journal: &Journal,
    read: &Read,
    answered: ClockInstant,
) -> Vec<(u8, FieldState)> {
    // A missing record never existed or was deleted. In the store's favour, assume the last
    // delete that had been sent.
    let nothing = match read.there {
        true if history.stamped => FieldState::Initial,
        // The value may have been too short for a stamp.
        true => FieldState::Unknown,
        false => {
            let begun = key.deletes.iter().copied();
            let begun = begun.filter(|place| history.versions[*place].sent.before(answered) != Certainty::No);
            let last = begun.max_by_key(|place| history.versions[*place].sent.at);
            last.map_or(FieldState::Initial, FieldState::Version)
        }
    };
    let mut states: Vec<(u8, FieldState)> = key.by_field.iter().map(|(field, _)| (*field, nothing)).collect();
    for (field, stamp) in &read.seen {
        let number = journal.fields.name(u32::from(*field)).and_then(|name| history.field(name));
        if let Some((_, state)) = states.iter_mut().find(|(field, _)| Some(*field) == number) {
            *state = history.state(*stamp);
        }
    }
    states
}

/// Compares a read with the versions that it should have seen.
fn look(history: &History<'_>, key: &KeyHistory, states: Vec<(u8, FieldState)>, sent: ClockInstant) -> Sight {
    let mut sight = Sight { states, missing: Vec::new(), open: !history.whole };
    let slack = (2.0 * history.error + if sent.error.is_finite() { sent.error } else { 0.0 }) as i64;
    for ((_, state), (_, versions)) in sight.states.iter().zip(&key.by_field) {
        let from = match state {
            FieldState::Initial => 0,
            FieldState::Unknown => {
                sight.open = true;
                continue;
            }
            FieldState::Version(place) => match history.versions[*place].acknowledged {
                None => continue,
                Some(acknowledged) => versions.partition_point(|place| {
                    history.versions[*place].sent.at < acknowledged.at.saturating_sub(slack)
                }),
            },
        };
        let before = sight.missing.len();
        for place in &versions[from..] {
            let version = &history.versions[*place];
            let comparable = version.sent.error_to(sent).is_finite();
            if comparable && version.sent.at > sent.at.saturating_add(slack) {
                break;
            }
            if (sight.missing.len() - before) as u64 >= BEHIND_MAX || sight.open && !comparable {
                break;
            }
            let Some(acknowledged) = version.acknowledged else { continue };
            match (history.precedes(*state, *place), acknowledged.before(sent)) {
                (Certainty::Yes, Certainty::Yes) => sight.missing.push(*place),
                (Certainty::No, _) | (_, Certainty::No) => {}
                _ => sight.open = true,
            }
        }
    }
    // A write to several fields counts once.
    sight.missing.sort_unstable();
    sight.missing.dedup();
    sight
}

fn count(violations: &mut Violations, verdict: Certainty) {
    match verdict {
        Certainty::Yes => {
            violations.checked += 1;
            violations.violations += 1;
        }
        Certainty::No => violations.checked += 1,
        Certainty::Open => violations.undecided += 1,
    }
}

/// Returns yes if any is, otherwise open if any is.
fn any(verdicts: impl Iterator<Item = Certainty>) -> Certainty {
    verdicts.fold(Certainty::No, |sum, verdict| match (sum, verdict) {
        (Certainty::Yes, _) | (_, Certainty::Yes) => Certainty::Yes,
        (Certainty::Open, _) | (_, Certainty::Open) => Certainty::Open,
        _ => Certainty::No,
    })
}

/// Judges all reads.
pub(super) struct VersionAnalysis<'a> {
    history: &'a History<'a>,
    behind: BTreeMap<u64, u64>,
    result: Versions,
    /// Time from each version's acknowledgement to the last read that missed it, ns.
    last_stale: HashMap<usize, u64>,
}

impl<'a> VersionAnalysis<'a> {
    pub(super) fn judge(history: &'a History<'a>, parts: &'a [ProcessJournal]) -> Option<Versions> {
        if parts.iter().all(|part| part.journal.reads.is_empty()) {
            return None;
        }
        let mut judge = VersionAnalysis {
            history,
            behind: BTreeMap::new(),
            result: Versions::default(),
            last_stale: HashMap::new(),
        };
        let mut keys: HashSet<&str> = HashSet::new();
        for (number, part) in parts.iter().enumerate() {
            // The state of each field that each consumer saw last, by key.
            let mut seen: HashMap<(u32, u32), Vec<(u8, FieldState)>> = HashMap::new();
            for read in &part.journal.reads {
                let Some(name) = part.journal.keys.name(read.key) else { continue };
                let Some(key) = history.keys.get(name) else { continue };
                let sent = part.clock.moment(number, read.sent);
                let answered = part.clock.moment(number, read.answered);
                let states = states(history, key, &part.journal, read, answered);
                if let Some(version) = read.own {
                    judge.own(part.journal.writer, version, &states);
                    continue;
                }
                if keys.insert(name) {
                    judge.result.versions += key.acknowledged;
                }
                let sight = look(history, key, states, sent);
                judge.behind(&sight, sent);
                let earlier = seen.entry((read.reader, read.key)).or_default();
                let went_back = judge.against_earlier(earlier, &sight.states, read.there);
                judge.writes_in_order(&sight, went_back);
            }
        }
        let mut histogram = Histogram::new();
        judge.last_stale.values().for_each(|ns| histogram.record(*ns));
        let mut result = judge.result;
        result.behind =
            judge.behind.into_iter().map(|(versions, reads)| Behind { versions, reads }).collect();
        result.last_stale = (!histogram.is_empty()).then(|| Latency::of(&histogram, &PERCENTILES));
        Some(result)
    }

    /// Checks a client's read of its own write.
    fn own(&mut self, writer: u64, version: u64, states: &[(u8, FieldState)]) {
        let Some(place) = self.history.version(crate::stamp::Stamp { writer, version }) else { return };
        let fields = self.history.versions[place].fields;
        let of_it = states.iter().filter(|(field, _)| fields >> field & 1 == 1);
        let verdict = any(of_it.map(|(_, state)| self.history.precedes(*state, place)));
        count(&mut self.result.read_your_writes, verdict);
    }

    /// Counts how many versions a read is behind.
    fn behind(&mut self, sight: &Sight, sent: ClockInstant) {
        if sight.open {
            self.result.undecided += 1;
        } else {
            *self.behind.entry((sight.missing.len() as u64).min(BEHIND_MAX)).or_default() += 1;
        }
        for place in &sight.missing {
            let acknowledged = self.history.versions[*place].acknowledged;
            let span = acknowledged.map_or(0, |acknowledged| acknowledged.span_to(sent)).max(0) as u64;
            let last = self.last_stale.entry(*place).or_default();
            *last = (*last).max(span);
        }
    }

    /// Another read of a key by the same consumer. Whether it went back from one version to another
    /// of the same client.
    fn against_earlier(
        &mut self,
        earlier: &mut Vec<(u8, FieldState)>,
        states: &[(u8, FieldState)],
        there: bool,
    ) -> bool {
        let history = self.history;
        let mut went_back = false;
        if earlier.iter().any(|(_, state)| *state != FieldState::Initial) {
            let mut verdicts = Vec::new();
            for (field, before) in &*earlier {
                let now = states.iter().find(|(other, _)| other == field).map(|(_, state)| *state);
                if *before == FieldState::Unknown {
                    verdicts.push(Certainty::Open);
                }
                let (Some(now), FieldState::Version(before)) = (now, *before) else { continue };
                let verdict = history.precedes(now, before);
                verdicts.push(verdict);
                went_back |= verdict == Certainty::Yes
                    && seen_version(history, now)
                        .is_some_and(|now| history.versions[now].session == history.versions[before].session);
            }
            count(&mut self.result.monotonic_reads, any(verdicts.into_iter()));
        }
        // Which delete it was that was seen is a guess: nothing is held against it later.
        if there {
            let newest = |(field, now): &(u8, FieldState)| {
                let before = earlier.iter().find(|(other, _)| other == field).map(|(_, state)| *state);
                match before {
                    // What it has gone back from it has seen all the same.
                    Some(FieldState::Version(before)) if history.precedes(*now, before) == Certainty::Yes => {
                        (*field, FieldState::Version(before))
                    }
                    _ => (*field, *now),
                }
            };
            *earlier = states.iter().map(newest).collect();
        }
        went_back
    }

    /// Writes of one client in another order than it made them: a later version of it beside the lack of
    /// an earlier one, or one that the reader had left behind.
    fn writes_in_order(&mut self, sight: &Sight, went_back: bool) {
        let history = self.history;
        let versions: Vec<usize> =
            sight.states.iter().filter_map(|(_, state)| seen_version(history, *state)).collect();
        if versions.is_empty() {
            return;
        }
        let session = |place: usize| history.versions[place].session;
        let out_of_order = went_back
            || sight.missing.iter().any(|missing| {
                versions.iter().any(|seen| {
                    session(*seen) == session(*missing)
                        && history.precedes(FieldState::Version(*missing), *seen) == Certainty::Yes
                })
            });
        let kept = if sight.open { Certainty::Open } else { Certainty::No };
        count(&mut self.result.monotonic_writes, if out_of_order { Certainty::Yes } else { kept });
    }
}

fn seen_version(history: &History<'_>, state: FieldState) -> Option<usize> {
    match state {
        FieldState::Version(place) if history.versions[place].kind != WriteKind::Delete => Some(place),
        _ => None,
    }
}
