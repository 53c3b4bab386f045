//! Merges the lag of several results. Notes name what cannot be merged.

use super::{MergeError, MergeInput, Together, joined, latency};
use crate::sums::{sum, sums};
use serval_result::{
    document::Latency,
    lag::{Behind, Brackets, LagKeys, LagResult, LagWrites, Versions, Violations},
    note::MergedNote,
};

/// Adds up a number of all results.
fn add<'a>(lags: &[(&'a str, &'a LagResult)], number: impl Fn(&'a LagResult) -> u64) -> u64 {
    sum(lags.iter().map(|(_, lag)| number(lag)))
}

fn writes(lags: &[(&str, &LagResult)]) -> LagWrites {
    LagWrites {
        acknowledged: add(lags, |lag| lag.writes.acknowledged),
        failed: add(lags, |lag| lag.writes.failed),
        carried: add(lags, |lag| lag.writes.carried),
        not_carried: add(lags, |lag| lag.writes.not_carried),
        too_short: add(lags, |lag| lag.writes.too_short),
        not_noted: add(lags, |lag| lag.writes.not_noted),
        from_before: add(lags, |lag| lag.writes.from_before),
        foreign: add(lags, |lag| lag.writes.foreign),
    }
}

fn keys(lags: &[(&str, &LagResult)]) -> LagKeys {
    LagKeys {
        tried: add(lags, |lag| lag.keys.tried),
        at_once: add(lags, |lag| lag.keys.at_once),
        later: add(lags, |lag| lag.keys.later),
        censored: add(lags, |lag| lag.keys.censored),
        undecided: add(lags, |lag| lag.keys.undecided),
        unread: add(lags, |lag| lag.keys.unread),
        not_taken: add(lags, |lag| lag.keys.not_taken),
    }
}

/// Merges the spans of all results.
fn spans<'a>(
    lags: &[(&'a str, &'a LagResult)],
    of: impl Fn(&'a LagResult) -> Option<&'a Latency>,
) -> Result<Option<Latency>, MergeError> {
    latency(lags.iter().filter_map(|(name, lag)| Some((*name, of(lag)?))))
}

fn versions(lags: &[(&str, &LagResult)]) -> Result<Option<Versions>, MergeError> {
    let all = || lags.iter().filter_map(|(_, lag)| lag.versions.as_ref());
    if all().next().is_none() {
        return Ok(None);
    }
    let behind = sums(all().flat_map(|versions| versions.behind.iter().map(|b| (b.versions, b.reads))));
    let number = |of: fn(&Versions) -> u64| sum(all().map(of));
    let violations = |of: fn(&Versions) -> Violations| Violations {
        checked: sum(all().map(|versions| of(versions).checked)),
        violations: sum(all().map(|versions| of(versions).violations)),
        undecided: sum(all().map(|versions| of(versions).undecided)),
    };
    Ok(Some(Versions {
        behind: behind.into_iter().map(|(versions, reads)| Behind { versions, reads }).collect(),
        undecided: number(|versions| versions.undecided),
        last_stale: spans(lags, |lag| lag.versions.as_ref()?.last_stale.as_ref())?,
        versions: number(|versions| versions.versions),
        read_your_writes: violations(|versions| versions.read_your_writes),
        monotonic_reads: violations(|versions| versions.monotonic_reads),
        monotonic_writes: violations(|versions| versions.monotonic_writes),
    }))
}

/// The merged lag of the parts; `None` if none measured it. The queue delivers each key once, so that
/// no two parts have read the same key.
pub(super) fn merged(
    parts: &[MergeInput<'_>],
    together: Together,
    notes: &mut Vec<MergedNote>,
) -> Result<Option<LagResult>, MergeError> {
    let lags: Vec<(&str, &LagResult)> =
        parts.iter().filter_map(|part| Some((part.name, part.document.lag.as_ref()?))).collect();
    let Some((first, one)) = lags.first() else { return Ok(None) };
    for part in parts.iter().filter(|part| part.document.lag.is_none()) {
        notes.push(MergedNote::LagNotMeasured { part: part.name.to_owned() });
    }
    for (name, lag) in &lags[1..] {
        if (lag.sample, lag.poll_ns) != (one.sample, one.poll_ns) {
            notes.push(MergedNote::LagSamplingDiffers {
                parts: [first, name].map(|name| (*name).to_owned()),
                samples: [one.sample, lag.sample],
                poll_ns: [one.poll_ns, lag.poll_ns],
            });
        }
    }
    let read: Vec<(&str, &LagResult)> = lags.iter().copied().filter(|(_, lag)| lag.keys.tried > 0).collect();
    if read.iter().any(|(_, lag)| lag.survival.is_some()) {
        notes.push(MergedNote::WithoutSurvival);
    }
    // A distribution of some of the keys would be mistaken for that of all.
    let clocks_known = read.iter().all(|(_, lag)| lag.visible.is_some() && lag.hand_over.is_some());
    if !clocks_known && read.iter().any(|(_, lag)| lag.visible.is_some() || lag.hand_over.is_some()) {
        let without = read.iter().filter(|(_, lag)| lag.visible.is_none() || lag.hand_over.is_none());
        let parts = without.map(|(name, _)| (*name).to_owned()).collect();
        notes.push(MergedNote::WithoutVisibility { parts });
    }
    let brackets = Brackets {
        lower: spans(&read, |lag| lag.visible.as_ref()?.lower.as_ref())?,
        upper: spans(&read, |lag| lag.visible.as_ref()?.upper.as_ref())?,
        clock_error_ns: read
            .iter()
            .filter_map(|(_, lag)| Some(lag.visible.as_ref()?.clock_error_ns))
            .max()
            .unwrap_or(0),
        without: add(&read, |lag| lag.visible.as_ref().map_or(0, |visible| visible.without)),
    };
    let known = clocks_known && !read.is_empty();
    Ok(Some(LagResult {
        queue: joined(lags.iter().map(|(_, lag)| lag.queue.as_str())),
        sample: one.sample,
        poll_ns: one.poll_ns,
        consumers: match together {
            Together::AtOnce => add(&lags, |lag| lag.consumers),
            Together::InTurn => lags.iter().map(|(_, lag)| lag.consumers).max().unwrap_or(0),
        },
        writes: writes(&lags),
        reads: add(&lags, |lag| lag.reads),
        reads_failed: add(&lags, |lag| lag.reads_failed),
        keys: keys(&lags),
        lag: spans(&lags, |lag| lag.lag.as_ref())?,
        poll: spans(&lags, |lag| lag.poll.as_ref())?,
        hand_over: if known { spans(&read, |lag| lag.hand_over.as_ref())? } else { None },
        visible: known.then_some(brackets),
        survival: None,
        versions: versions(&lags)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{merge::merge, sample};
    use proptest::prelude::*;
    use serval_measure::histogram::Histogram;
    use serval_result::document::ResultDocument;

    /// A result with these lags in ns; 0 means found at once.
    fn lagging(lags: &[u64]) -> ResultDocument {
        let latency = |spans: &mut dyn Iterator<Item = u64>| {
            let mut histogram = Histogram::new();
            spans.for_each(|ns| histogram.record(ns));
            (!histogram.is_empty()).then(|| Latency::of(&histogram, &[50.0, 99.0]))
        };
        let later = lags.iter().filter(|lag| **lag > 0).count() as u64;
        let lag = LagResult {
            queue: "memory".to_owned(),
            sample: 0.01,
            consumers: 2,
            keys: LagKeys {
                tried: lags.len() as u64,
                at_once: lags.len() as u64 - later,
                later,
                ..LagKeys::default()
            },
            lag: latency(&mut lags.iter().copied().filter(|lag| *lag > 0)),
            hand_over: latency(&mut lags.iter().map(|lag| lag / 7)),
            visible: Some(Brackets {
                lower: latency(&mut lags.iter().copied()),
                upper: latency(&mut lags.iter().map(|lag| lag + 5)),
                clock_error_ns: lags.len() as u64,
                without: 0,
            }),
            versions: Some(Versions {
                behind: vec![Behind { versions: lags.len() as u64 % 3, reads: 4 }],
                versions: 9,
                read_your_writes: Violations { checked: 5, violations: 2, undecided: 1 },
                ..Versions::default()
            }),
            ..LagResult::default()
        };
        ResultDocument { lag: Some(lag), ..sample::of(&[(1, 2 + lags.len() as u64, true)], 1.0) }
    }

    fn merge_all(documents: &[ResultDocument], together: Together) -> ResultDocument {
        let names = ["a", "b", "c"];
        let parts: Vec<MergeInput<'_>> =
            names.iter().zip(documents).map(|(name, document)| MergeInput { name, document }).collect();
        merge(&parts, together, true).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn the_parts_are_the_whole(lags in proptest::collection::vec(
            proptest::collection::vec(0u64..1_000_000_000, 1..50), 2..4)
        ) {
            let documents: Vec<ResultDocument> = lags.iter().map(|lags| lagging(lags)).collect();
            let merged = merge_all(&documents, Together::AtOnce).lag.unwrap();
            let whole = lagging(&lags.concat()).lag.unwrap();
            prop_assert_eq!(&merged.keys, &whole.keys);
            let spans = |lag: &LagResult| {
                let visible = lag.visible.clone().unwrap();
                [lag.lag.clone(), lag.hand_over.clone(), visible.lower, visible.upper].map(|latency| {
                    latency.map(|latency| {
                        (latency.count, latency.min_ns, latency.max_ns, latency.percentiles, latency.histogram)
                    })
                })
            };
            prop_assert_eq!(spans(&merged), spans(&whole));
            let parts = documents.len() as u64;
            prop_assert_eq!(merged.consumers, 2 * parts);
            let versions = merged.versions.unwrap();
            prop_assert_eq!(versions.stale().0, 4 * parts);
            let own = versions.read_your_writes;
            prop_assert_eq!((own.checked, own.violations, own.undecided), (5 * parts, 2 * parts, parts));
            let most = lags.iter().map(|lags| lags.len() as u64).max();
            prop_assert_eq!(merged.visible.map(|visible| visible.clock_error_ns), most);
        }
    }

    #[test]
    fn what_cannot_be_merged_is_left_out_and_noted() {
        let mut documents = [sample::lagging(), lagging(&[0, 7, 9]), sample::unpaced()];
        let lag = documents[1].lag.as_mut().unwrap();
        (lag.visible, lag.poll_ns) = (None, 3_000_000);
        let merged = merge_all(&documents, Together::InTurn);
        let lag = merged.lag.unwrap();
        assert_eq!(
            (lag.survival.is_none(), lag.visible.is_none(), lag.hand_over.is_none()),
            (true, true, true)
        );
        assert_eq!((lag.keys.tried, lag.lag.unwrap().count, lag.consumers), (1003, 242, 2));
        for part in [
            "The survival curves of lag are left out",
            "are left out: b has none, for its clocks are not known.",
            "c: no lag was measured",
            "Lag was sampled differently (a: 0.01 of keys, read every 10.000 ms; b: 0.01 of keys, read every 3.000 ms)",
        ] {
            assert!(
                merged.warnings.iter().any(|warning| warning.contains(part)),
                "{part}: {:?}",
                merged.warnings
            );
        }
        let plain = merge_all(&[sample::unpaced(), sample::paced()], Together::AtOnce);
        assert!(plain.lag.is_none() && plain.warnings.iter().all(|warning| !warning.contains("lag")));
    }
}
