//! Analysis of the journals of producers and consumers (`docs/lag.md`).

mod clock;
mod history;
mod survival;
mod versions;

pub use clock::{OffsetSample, PartClock};
pub use survival::survival;
pub use versions::BEHIND_MAX;

use crate::journal::{Counts, Journal, PolledKey};
use clock::ClockInstant;
use history::History;
use serval_measure::histogram::Histogram;
use serval_result::{
    document::Latency,
    lag::{Brackets, Fate, LagKey, LagKeys, LagResult, LagWrites, Survival},
};
use versions::VersionAnalysis;

/// Percentiles of times in results.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 95.0, 99.0, 99.9];

/// Journal and clock of one process.
#[derive(Debug, Clone, Default)]
pub struct ProcessJournal {
    /// Its journal.
    pub journal: Journal,
    /// Its clock.
    pub clock: PartClock,
    /// Whether the process was lost before it sent its journal: its writes are known from the
    /// queue only.
    pub lost: bool,
}

impl ProcessJournal {
    /// Returns a process that was lost with its journal.
    pub fn lost(writer: u64, clock: PartClock) -> ProcessJournal {
        ProcessJournal { journal: Journal::new(writer), clock, lost: true }
    }
}

/// Settings of the measurement, for the result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LagSettings {
    /// Description of the queue.
    pub queue: String,
    /// Share of keys that were sampled.
    pub sample: f64,
    /// Time between two reads of a key, ns.
    pub poll: u64,
    /// Number of consumers.
    pub consumers: u64,
}

/// What a key's reads tell about its write. Times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// From the sending of the first read to that of the first read that found it; `None` if none did.
    pub lag: Option<u64>,
    /// From the sending of the last unsuccessful read to the answer of the successful one.
    pub poll: Option<u64>,
    /// When it was acknowledged, by the common clock, if the clocks are known.
    pub acknowledged: Option<i64>,
    /// From the acknowledgement to the first read.
    pub hand_over: Option<u64>,
    /// Lower bound on the time from acknowledgement to visibility, if the clocks are known.
    pub lower: Option<u64>,
    /// Upper bound; `None` if it was not found.
    pub upper: Option<u64>,
    /// Clock error in these times.
    pub error: u64,
}

fn span(from: ClockInstant, to: ClockInstant) -> u64 {
    from.span_to(to).max(0) as u64
}

impl Verdict {
    fn of(history: &History<'_>, trial: &PolledKey, moment: impl Fn(u64) -> ClockInstant) -> Verdict {
        let first = moment(trial.first);
        let (found, found_by) = (trial.found.map(&moment), trial.found_by.map(&moment));
        let in_vain = trial.last_in_vain.map(&moment);
        let version = history.version(trial.item.stamp).map(|place| &history.versions[place]);
        let acknowledged = version.and_then(|version| version.acknowledged);
        let acknowledged = acknowledged.filter(|acknowledged| acknowledged.error_to(first).is_finite());
        let error = acknowledged.map_or(0.0, |acknowledged| {
            let ends = [Some(first), in_vain, found];
            ends.into_iter().flatten().map(|end| acknowledged.error_to(end)).fold(0.0, f64::max)
        });
        let since = |to: ClockInstant| acknowledged.map(|acknowledged| acknowledged.span_to(to));
        let error = error.ceil() as u64;
        let lower = match in_vain {
            None => since(first).map(|_| 0),
            Some(in_vain) => since(in_vain).map(|span| (span.max(0) as u64).saturating_sub(error)),
        };
        Verdict {
            lag: found_by.map(|by| span(first, by)),
            poll: in_vain.zip(found).map(|(in_vain, found)| span(in_vain, found)),
            acknowledged: acknowledged.map(|acknowledged| acknowledged.at),
            hand_over: since(first).map(|span| span.max(0) as u64),
            lower,
            upper: found.and_then(since).map(|span| (span.max(0) as u64).saturating_add(error)),
            error,
        }
    }
}

/// Returns whether another write may have replaced the write before it was read.
fn is_written_over(history: &History<'_>, trial: &PolledKey) -> bool {
    let item = &trial.item;
    match (history.version(item.stamp), history.field(&item.field)) {
        (Some(place), Some(field)) => history.is_written_over(&item.key, field, place),
        _ => false,
    }
}

impl Verdict {
    fn fate(&self) -> Fate {
        match (self.lag, self.poll) {
            (None, _) => Fate::Censored,
            (Some(_), None) => Fate::AtOnce,
            (Some(_), Some(_)) => Fate::Later,
        }
    }
}

/// Returns a trial's entry of the result.
fn line(trial: &PolledKey, verdict: Option<&Verdict>) -> LagKey {
    LagKey {
        key: trial.item.key.clone(),
        stamp: String::from_utf8_lossy(&trial.item.stamp.bytes()).trim_end_matches('.').to_owned(),
        fate: verdict.map_or(if trial.first == 0 { Fate::Unread } else { Fate::Undecided }, Verdict::fate),
        reads: trial.reads,
        acknowledged_ns: verdict.and_then(|verdict| verdict.acknowledged),
        hand_over_ns: verdict.and_then(|verdict| verdict.hand_over),
        lag_ns: verdict.and_then(|verdict| verdict.lag),
        poll_ns: verdict.and_then(|verdict| verdict.poll),
        lower_ns: verdict.and_then(|verdict| verdict.lower),
        upper_ns: verdict.and_then(|verdict| verdict.upper),
        clock_error_ns: verdict.map_or(0, |verdict| verdict.error),
    }
}

#[derive(Default)]
struct Spans(Histogram);

impl Spans {
    fn add(&mut self, span: Option<u64>) {
        if let Some(span) = span {
            self.0.record(span);
        }
    }

    fn latency(&self) -> Option<Latency> {
        (!self.0.is_empty()).then(|| Latency::of(&self.0, &PERCENTILES))
    }
}

/// Returns each key from the queue whose lag is known, with its trial.
pub fn verdicts(parts: &[ProcessJournal]) -> Vec<(&PolledKey, Verdict)> {
    let history = History::new(parts);
    decided(&history, parts).filter_map(|(trial, verdict)| Some((trial, verdict?))).collect()
}

/// Returns all trials with a read; without a verdict those that tell nothing.
fn decided<'a, 'h>(
    history: &'h History<'a>,
    parts: &'a [ProcessJournal],
) -> impl Iterator<Item = (&'a PolledKey, Option<Verdict>)> + use<'a, 'h> {
    parts.iter().enumerate().flat_map(move |(number, part)| {
        part.journal.trials.iter().filter(|trial| trial.first > 0).map(move |trial| {
            let open = trial.last_in_vain.is_some() && is_written_over(history, trial);
            let verdict = || Verdict::of(history, trial, |instant| part.clock.moment(number, instant));
            (trial, (!open).then(verdict))
        })
    })
}

/// Returns the result of the journals.
pub fn result(parts: &[ProcessJournal], setting: LagSettings) -> LagResult {
    analyse(parts, setting).0
}

/// Returns the result of the journals, and an entry for each key from the queue.
pub fn analyse(parts: &[ProcessJournal], setting: LagSettings) -> (LagResult, Vec<LagKey>) {
    let history = History::new(parts);
    let mut counts = Counts::default();
    parts.iter().for_each(|part| counts.add(&part.journal.counts));
    let unread = parts.iter().flat_map(|part| &part.journal.trials).filter(|trial| trial.first == 0);
    let mut lines: Vec<LagKey> = unread.map(|trial| line(trial, None)).collect();
    let mut keys = LagKeys { unread: lines.len() as u64, ..LagKeys::default() };
    // Keys without a trial were left in the queue. The number of keys of processes outside this
    // run is not known.
    if setting.consumers > 0 {
        let taken = parts.iter().map(|part| part.journal.trials.len() as u64).sum::<u64>();
        keys.not_taken = counts.carried.saturating_sub(taken.saturating_add(counts.trials_not_noted));
    }
    let [mut lags, mut polls, mut hand_overs, mut lowers, mut uppers] = [(); 5].map(|()| Spans::default());
    let mut verdicts = Vec::new();
    for (trial, verdict) in decided(&history, parts) {
        keys.tried += 1;
        lines.push(line(trial, verdict.as_ref()));
        let Some(verdict) = verdict else {
            keys.undecided += 1;
            continue;
        };
        match verdict.fate() {
            Fate::AtOnce => keys.at_once += 1,
            Fate::Later => {
                keys.later += 1;
                lags.add(verdict.lag);
                polls.add(verdict.poll);
            }
            _ => keys.censored += 1,
        }
        hand_overs.add(verdict.hand_over);
        lowers.add(verdict.lower.filter(|_| verdict.upper.is_some()));
        uppers.add(verdict.upper);
        verdicts.push((trial, verdict));
    }
    let without = verdicts.iter().filter(|(_, verdict)| verdict.lower.is_none()).count() as u64;
    let clocks_known = without < verdicts.len() as u64;
    let error = verdicts.iter().map(|(_, verdict)| verdict.error).max().unwrap_or(0);
    let result = LagResult {
        queue: setting.queue,
        sample: setting.sample,
        poll_ns: setting.poll,
        consumers: setting.consumers,
        writes: LagWrites {
            acknowledged: counts.acknowledged,
            failed: counts.failed,
            carried: counts.carried,
            not_carried: counts.not_carried,
            too_short: counts.too_short,
            not_noted: [counts.writes_not_noted, counts.reads_not_noted, counts.trials_not_noted]
                .into_iter()
                .fold(0, u64::saturating_add),
            from_before: counts.from_before,
            foreign: counts.foreign,
        },
        reads: counts.reads,
        reads_failed: counts.reads_failed,
        lag: lags.latency(),
        poll: polls.latency(),
        hand_over: hand_overs.latency(),
        visible: clocks_known.then(|| Brackets {
            lower: lowers.latency(),
            upper: uppers.latency(),
            clock_error_ns: error,
            without,
        }),
        survival: curves(&verdicts, clocks_known),
        versions: VersionAnalysis::judge(&history, parts),
        keys,
    };
    (result, lines)
}

/// Returns the survival curves: since the acknowledgement, or since the first read if the clocks
/// are not known.
fn curves(verdicts: &[(&PolledKey, Verdict)], clocks_known: bool) -> Option<Survival> {
    if verdicts.is_empty() {
        return None;
    }
    let (lower, upper): (Vec<_>, Vec<_>) = if clocks_known {
        // Whether a key has bounds depends on its writer, not on its lag, so leaving it out adds no bias.
        let ends = verdicts.iter().filter_map(|(_, verdict)| {
            let lower = verdict.lower?;
            let found = verdict.upper.is_some();
            Some(((lower, found), (verdict.upper.unwrap_or(lower), found)))
        });
        ends.unzip()
    } else {
        let ends = verdicts.iter().map(|(trial, _)| {
            let last = trial.last_in_vain.unwrap_or(trial.first).saturating_sub(trial.first);
            let upper = trial.found.map_or(last, |found| found.saturating_sub(trial.first));
            ((last, trial.found.is_some()), (upper, trial.found.is_some()))
        });
        ends.unzip()
    };
    let since = if clocks_known { "acknowledgement" } else { "first read" };
    Some(Survival { since: since.to_owned(), lower: survival(&lower), upper: survival(&upper) })
}
