//! Tests of the sums of a group: they equal the clients' work.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use crate::{
    intervals::{Intervals, end},
    merged::{ClientOutcome, CoordinatorView, empty, record},
    part::ClientPart,
    wire::{IntervalWire, RecordWire},
};
use proptest::prelude::*;
use serval_coordination::message::ClientFacts;
use serval_lag::analysis::LagSettings;
use serval_measure::{histogram::Histogram, recorder::Pair};
use serval_model::{Metric, Status};
use serval_runner::Interval;
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, SystemTime},
};

const CLIENTS: usize = 4;
const INTERVALS: usize = 5;

/// An operation: its client, its interval, whether it reads, whether it succeeded, its service time and
/// lateness, ns.
type Sample = (usize, usize, bool, bool, u64, u64);

fn count(pairs: &mut BTreeMap<(Metric, Status), Pair>, sample: &Sample) {
    let &(_, _, reads, ok, service, late) = sample;
    let metric = if reads { Metric::READ } else { Metric::UPDATE };
    let pair = pairs.entry((metric, if ok { Status::Ok } else { Status::Error })).or_default();
    pair.service.record(service);
    pair.response.record(service + late);
}

fn counted<'a>(samples: impl Iterator<Item = &'a Sample>) -> BTreeMap<(Metric, Status), Pair> {
    let mut pairs = BTreeMap::new();
    samples.for_each(|sample| count(&mut pairs, sample));
    pairs
}

fn late<'a>(samples: impl Iterator<Item = &'a Sample>) -> Histogram {
    let mut all = Histogram::new();
    samples.for_each(|sample| all.record(sample.5));
    all
}

/// Encodes and decodes a message, as between client and coordinator.
fn sent<W: serde::Serialize + serde::de::DeserializeOwned>(wire: &W) -> W {
    serde_json::from_slice(&serde_json::to_vec(wire).unwrap()).unwrap()
}

fn record_of(samples: &[Sample], client: usize) -> RecordWire {
    let own = || samples.iter().filter(|sample| sample.0 == client);
    let mut record = empty(SystemTime::UNIX_EPOCH);
    record.totals.measured = counted(own());
    record.totals.lateness = late(own());
    record.totals.units = own().count() as u64;
    record.totals.units_failed = own().filter(|sample| !sample.3).count() as u64;
    record.totals.paced = true;
    sent(&RecordWire::of(&record, None))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// With intervals of any length and clients that stall at any time: each sample is in one sum, sums are
    /// consecutive, and the samples of a sum lie in its time.
    #[test]
    fn intervals_of_different_lengths_are_added_where_they_lie(
        lengths in prop::collection::vec(prop::collection::vec(1u64..6, 1..12), CLIENTS),
        order in Just((0..CLIENTS * 12).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        const QUARTER: Duration = Duration::from_millis(250);
        // Intervals of whole seconds whose ends are late by up to a quarter of a second.
        let mut made: Vec<VecDeque<Interval>> = lengths.iter().enumerate().map(|(client, lengths)| {
            let mut start = Duration::ZERO;
            let interval = |(nth, seconds): (usize, &u64)| {
                let late = QUARTER * ((client + nth) % 2) as u32;
                let whole = Duration::from_secs(lengths[..=nth].iter().sum());
                let length = whole + late - start;
                let pairs = counted([(client, nth, true, true, 1000, 0); 1].iter().cycle().take(*seconds as usize));
                let made = Interval {
                    start, length, warm_up: false, pairs, paced: false, due: None, lateness: Histogram::new(),
                };
                start = whole + late;
                made
            };
            lengths.iter().enumerate().map(interval).collect()
        }).collect();
        let mut intervals = Intervals::new(vec![false; CLIENTS], Duration::from_secs(1));
        let mut sums = Vec::new();
        for client in order.into_iter().map(|nth| nth % CLIENTS) {
            match made[client].pop_front() {
                Some(interval) => {
                    intervals.take(client, &sent(&IntervalWire::of(&interval, (0, 0), None))).unwrap();
                }
                None => intervals.set_ended(client),
            }
            sums.extend(std::iter::from_fn(|| intervals.next()));
        }
        (0..CLIENTS).for_each(|client| intervals.set_ended(client));
        sums.extend(std::iter::from_fn(|| intervals.next()));
        let count = |interval: &Interval| interval.pairs.values().map(|pair| pair.service.count()).sum::<u64>();
        let all: u64 = sums.iter().map(|(sum, _)| count(sum)).sum();
        prop_assert_eq!(all, lengths.iter().flatten().sum::<u64>());
        let tolerance = 2 * QUARTER;
        for pair in sums.windows(2) {
            prop_assert!(end(&pair[0].0) <= pair[1].0.start + tolerance, "{:?}", (end(&pair[0].0), pair[1].0.start));
        }
        for (sum, _) in &sums {
            // One sample per second and client.
            let most = CLIENTS as f64 * (sum.length + tolerance).as_secs_f64();
            prop_assert!(count(sum) as f64 <= most, "{} in {:?}", count(sum), sum.length);
        }
        prop_assert!(intervals.rates.iter().all(|rates| rates.len() == sums.len()));
    }

    /// For any distribution of samples among clients and intervals, and any order of arrival of intervals, the
    /// sum's histograms equal those of all samples.
    #[test]
    fn sums_are_the_histograms_of_all_samples(
        samples in prop::collection::vec(
            (0..CLIENTS, 0..INTERVALS, any::<bool>(), any::<bool>(), 0..20_000_000_000u64, 0..5_000_000u64),
            1..400,
        ),
        order in Just((0..CLIENTS * INTERVALS).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let all = counted(samples.iter());
        let left = (0..CLIENTS).map(|client| ClientOutcome { record: Some(record_of(&samples, client)), ..ClientOutcome::default() });
        let facts = vec![
            ClientFacts { host: "h".into(), process: 1, version: String::new(), processors: 1, stores: vec![] };
            CLIENTS
        ];
        let parts = ClientPart::even(CLIENTS);
        let seen = CoordinatorView { rates: &[], parts: &parts, skew: None, clocks: &[], setting: LagSettings::default() };
        let sum = record(SystemTime::UNIX_EPOCH, &facts, left.collect(), &seen, true).unwrap().record;
        // Not prop_assert_eq, which would print a hundred thousand cells.
        prop_assert!(sum.totals.measured == all, "the whole");
        prop_assert!(sum.totals.lateness == late(samples.iter()), "its lateness");
        prop_assert_eq!(sum.totals.units, samples.len() as u64);

        // Intervals of one client arrive in order, clients in any order.
        let mut intervals = Intervals::new(vec![false; CLIENTS], Duration::from_secs(1));
        let (mut next, mut sums) = ([0; CLIENTS], Vec::new());
        for client in order.into_iter().map(|nth| nth % CLIENTS) {
            let nth = next[client];
            next[client] += 1;
            let own = || samples.iter().filter(|sample| (sample.0, sample.1) == (client, nth));
            let interval = Interval {
                start: Duration::from_secs(nth as u64),
                length: Duration::from_secs(1),
                warm_up: false,
                pairs: counted(own()),
                paced: true,
                due: None,
                lateness: late(own()),
            };
            intervals.take(client, &sent(&IntervalWire::of(&interval, (0, 0), None))).unwrap();
            sums.extend(std::iter::from_fn(|| intervals.next()));
        }
        prop_assert_eq!(sums.len(), INTERVALS);
        for (nth, (sum, _)) in sums.iter().enumerate() {
            let own = || samples.iter().filter(|sample| sample.1 == nth);
            prop_assert!(sum.pairs == counted(own()), "interval {}", nth);
            prop_assert!(sum.lateness == late(own()), "lateness of interval {}", nth);
        }
    }
}
